"""Tracked rows: one job starts what it wrote, another finishes what it wrote.

The order is always: output, then the record or the comparison, then the requests. So what was sent
is durable, and a job that died is repeated under the same run: it sends the same requests again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

from xorack.core.errors import ArgumentError
from xorack.core.message import SendReport
from xorack.spark.auditing import Audit, audit
from xorack.spark.errors import plain_errors
from xorack.spark.evidence import Observed, Output, proof_of
from xorack.spark.finishing import advance, finish, settle
from xorack.spark.names import Rows
from xorack.spark.sending import send
from xorack.spark.starting import creates, keep_start
from xorack.spark.units import parse_id, signed, unit_column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["FoundRows", "Report", "TrackedRows"]


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
    """

    proof: str
    chains: int
    units: int
    missing: int
    messages: int
    requests: int
    bytes: int


class FoundRows(NamedTuple):
    """The rows that ids stand for.

    Attributes:
        rows: The rows, with their units in the column ``xorack_{name}``. They are cached: call
            ``rows.unpersist()`` when they are no longer needed.
        unknown: The ids that no row has, unsigned.
    """

    rows: DataFrame
    unknown: frozenset[int]


@dataclass(frozen=True)
class TrackedRows(Rows):
    """The rows of one name in one run, to be started and finished; `Tracking.rows` makes it."""

    def batch(self, batch_id: int) -> TrackedRows:
        """Return these rows as those of a micro-batch, inside ``foreachBatch``.

        A batch that Spark repeats sends the same requests. Start a chain in one batch only: let
        it be what arrives as a whole, a file or a message.
        """
        if isinstance(batch_id, bool) or not isinstance(batch_id, int) or batch_id < 0:
            raise ArgumentError("batch_id", batch_id, "the number of a micro-batch")
        return replace(self, batch_id=batch_id)

    def with_unit(self, frame: DataFrame) -> DataFrame:
        """Add the unit of each row, a long in the column ``xorack_{name}``.

        The unit equals ``xorack.unit_id("{run_id}/{name}", *values)`` of the unit columns: rows of
        another run or name have other units.

        Raises:
            ColumnsError: The frame lacks a unit column, or one has another type than an
                integer, string, binary, boolean, date, timestamp or decimal. A null fails the
                job, with a message that names the column.
        """
        return frame.withColumn(self.unit_name, unit_column(frame, self.salt, self.unit))

    def evidence(self) -> tuple[Column, Column]:
        """Return two aggregates of the rows of a group, for ``agg``: the XOR and the count.

        They go into the output: what was written then says which units are in it. The frame
        needs the column that `with_unit` adds.
        """
        xor, count = self.evidence_names
        return F.bit_xor(self.unit_name).alias(xor), F.count(self.unit_name).alias(count)

    def observe(self, frame: DataFrame) -> Observed:
        """Take the evidence off a frame that is about to be written.

        Spark sums it up in the tasks that write. It proves what the writer was handed, and
        needs no columns in the output and no reading back.

        Args:
            frame: A frame with the columns of `evidence`.

        Returns:
            The frame to write, once; and what to give to `finish`.
        """
        return Observed.of(frame, *self.evidence_names)

    def rows_of(self, frame: DataFrame, ids: Iterable[int | str]) -> FoundRows:
        """Find the rows that ids stand for, such as the outstanding ids of a failed chain.

        Args:
            frame: Any frame with the unit columns.
            ids: Integers, or 16 hex digits each as in events.

        Raises:
            ArgumentError: An id is invalid.
            ColumnsError: See `with_unit`.
        """
        wanted = frozenset(map(parse_id, ids))
        rows = [(signed(one),) for one in sorted(wanted)]
        asked = frame.sparkSession.createDataFrame(rows, f"`{self.unit_name}` long")
        units = self.with_unit(frame)
        matches = units.join(F.broadcast(asked), self.unit_name, "left_semi").persist()
        with plain_errors():
            found = matches.select(self.unit_name).distinct().collect()
        return FoundRows(matches, wanted - {row[0] % (1 << 64) for row in found})

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
        summary, facts = keep_start(self, written, chains)
        sent = send(creates(self, facts), self.tracking.queue, facts["cells"])
        return Report("written", summary.chains, summary.totals.rows, 0, *sent)

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
        units: chains finish as far as their rows were there, and their events name the others.

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
            OutputDiffersError: The job lost rows, or has too many. Nothing was sent for the chains
                that differ; without columns that tell chains apart, for none.
            ColumnsError: The output has neither evidence nor units.
            SendError: The queue did not accept all. Repeat the call.
        """
        proof = proof_of(self, written, observed, read)
        with settle(self, proof, rows) as settled:
            sent = SendReport()
            if settled.chains:
                sent = send(finish(self, settled), self.tracking.queue, settled.cells)
            if settled.error is not None:
                raise settled.error
        return Report(proof.kind, settled.chains, settled.units, settled.missing, *sent)

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
        proof = proof_of(self, written, None, None)
        with settle(self, proof, rows) as settled:
            if settled.error is not None:
                raise settled.error
            requests = advance(self, following, settled, written)
            sent = send(requests, self.tracking.queue, settled.cells)
        return Report(proof.kind, settled.chains, settled.units, settled.missing, *sent)

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
