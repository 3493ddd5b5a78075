"""Tracked rows: one job starts what it wrote, another finishes what it wrote.

The order is always: output, then the record or the comparison, then the requests. So what was sent
is durable, and a job that died is repeated under the same run: it sends the same requests again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import add
from typing import TYPE_CHECKING

from xorack.core.errors import ArgumentError, XorAckError
from xorack.core.message import SendReport
from xorack.spark.auditing import Audit, audit
from xorack.spark.differing import notes
from xorack.spark.evidence import Observed, Output, check_unchanged, proof_of
from xorack.spark.finishing import advance, finish, line_of, settle
from xorack.spark.record import summary_in
from xorack.spark.run import Rows
from xorack.spark.sending import send
from xorack.spark.starting import creates, keep_start
from xorack.spark.storage import Stored

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from xorack.spark.evidence import Proof
    from xorack.spark.finishing import Settled


@dataclass(frozen=True)
class Report:
    """What a call did.

    Attributes:
        proof: What the requests rest on: ``written``, ``observed`` or ``read``.
        chains: The chains with units.
        units: The units that were started, or finished.
        missing: The units that were started, and that the input of this job lacks.
        messages: SQS messages that were sent.
        requests: The requests in them.
        bytes: The bytes of their bodies.
        outputs: What was read of the outputs, if that is known: folder, files and bytes.
    """

    proof: str
    chains: int
    units: int
    missing: int
    messages: int
    requests: int
    bytes: int
    outputs: tuple[Stored, ...] = ()


def check_batch(batch_id: int) -> int:
    """Return the number of a micro-batch, or raise `ArgumentError`."""
    if isinstance(batch_id, bool) or not isinstance(batch_id, int) or batch_id < 0:
        raise ArgumentError("batch_id", batch_id, "the number of a micro-batch")
    return batch_id


@dataclass(frozen=True)
class TrackedRows(Rows):
    """The rows of one name in one run, to be started and finished; `Tracking.rows` makes it."""

    def batch(self, batch_id: int) -> TrackedRows:
        """Return these rows as those of a micro-batch, inside ``foreachBatch``.

        A batch that Spark repeats sends the same requests. Start a chain in one batch only: let
        it be what arrives as a whole, a file or a message.
        """
        return replace(self, batch_id=check_batch(batch_id))

    def start(self, written: DataFrame | str, chains: DataFrame | None = None) -> Report:
        """Start the units of what was written: each chain is created with all its units.

        Args:
            written: What was written: a frame that reads it back, the path of Parquet files
                (with a ``/``), or a table's name.
            chains: Facts about chains, a row each: the chain columns and optionally ``detail``, a
                JSON object that the chain's event gives back, and ``failed``, a reason. A chain
                without rows is acked at once. A chain with a reason fails at once; its rows are
                not started, so the next job must leave them out.

        Returns:
            What was started and sent.

        Raises:
            ColumnsError: Columns of the frames or their values are unsuitable, or the units of a
                chain cancel each other out; nothing was sent.
            StateError: Another name has started these chains, or this run was started with other
                rows; nothing was sent.
            SendError: The queue did not accept all. Repeat the call.
        """
        line = keep_start(self, written, chains)
        summary = summary_in(line)
        sent = send(creates(self, line), self.tracking.queue, summary.chains)
        return Report("written", summary.chains, summary.count, 0, *sent)

    def finish(
        self,
        written: Output | Sequence[Output] | None = None,
        *,
        observed: Observed | None = None,
        read: DataFrame | None = None,
        rows: Output | None = None,
    ) -> Report:
        """Finish the units that the output of this job stands for.

        The evidence of the output must equal what was started: then each chain finishes. If it
        does not, `rows` is folded. An output that agrees with `rows` shows that these lacked
        units: the other chains finish. A chain that lacks units gets a note, which its event has.

        Args:
            written: What was written, as for `start`; several outputs as a list. It has the
                columns of `evidence`, the one of `with_unit`, or the unit columns.
            observed: What `observe` returned, once its frame is written.
            read: A frame that was only read, for outputs that cannot be read back. It proves
                the reading, and nothing of what was written.
            rows: The rows that this job read. By default what `start` was given, if that was a
                path or a table. In a micro-batch, its frame: it is compared in place of a record.

        Returns:
            What was finished and sent; ``missing`` counts the units that the input lacked.

        Raises:
            ArgumentError: Not exactly one of written, observed and read is given.
            StateError: This run and name has no record of a start.
            OutputDiffersError: The job lost rows, or has too many. It names rows, and says why.
                Chains that differ are not finished, but noted on; without columns that tell
                chains apart, none is finished.
            ColumnsError: The output has neither evidence nor units.
            SendError: The queue did not accept all. Repeat the call.
        """
        line = line_of(self)
        proof = proof_of(self, line, written, observed, read)
        with settle(self, line, proof, rows) as settled:
            return self._send(proof, settled, finish(self, settled))

    def _send(self, proof: Proof, settled: Settled, stamps: DataFrame) -> Report:
        """Send the requests that finish chains, and the notes for those that do not."""
        queue, sent = self.tracking.queue, SendReport()
        try:
            check_unchanged(self.tracking.spark, proof)
        except XorAckError as problem:
            raise settled.error or problem from None
        if settled.chains:
            sent = send(stamps, queue, settled.chains)
        if settled.notes is not None and settled.noted:
            why = getattr(settled.error, "why", "")
            noted = send(notes(self, settled.notes, why), queue, settled.noted)
            sent = SendReport(*map(add, sent, noted))
        if settled.error is not None:
            raise settled.error
        chains, units = settled.chains, settled.units
        return Report(proof.kind, chains, units, settled.missing, *sent, proof.stored)

    def advance(
        self, following: TrackedRows, written: Output, *, rows: Output | None = None
    ) -> Report:
        """Finish these units and start those of what was written from them, in one stamp a chain.

        Args:
            following: The rows that this job wrote, with the same label.
            written: What was written, as for `start`. It has the chain columns, the unit columns
                of `following`, and the evidence of these units.
            rows: The rows that this job read, as for `finish`.

        Returns:
            What was finished and sent.

        Raises:
            XorAckError: As `start` and `finish` do; but where an output differs, nothing was kept
                or sent for any chain.
        """
        if (following.label, following.batch_id) != (self.label, self.batch_id):
            raise ArgumentError(
                "following", problem=f"label {following.label!r}, expected {self.label!r}"
            )
        line = line_of(self)
        proof = proof_of(self, line, written)
        with settle(self, line, proof, rows) as settled:
            if settled.error is not None:
                raise settled.error
            return self._send(proof, settled, advance(self, line, following, settled, written))

    def audit(self, table: Output | Sequence[Output]) -> Audit:
        """Compare what was started with what a table holds: a second opinion on an ack.

        It reads the record and the table, and sends nothing.

        Args:
            table: What was written, as for `finish`: with the columns of `evidence`, the one of
                `with_unit`, or the unit columns; several outputs as a list.

        Returns:
            The verdicts on the chains, and the means to name the rows that the table lacks.

        Raises:
            ArgumentError: The table cannot be read.
            StateError: This run and name has no record of a start.
            ColumnsError: The table has neither evidence nor units.

        Example:
            >>> found = lines.audit("sales.bills")  # doctest: +SKIP
            >>> print(found)  # doctest: +SKIP
            >>> found.missing_rows(spark.table("sales.lines")).show()  # doctest: +SKIP
        """
        return audit(self, table)
