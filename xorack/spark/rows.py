"""Tracked rows: one job starts what it wrote, another finishes what it wrote.

The order is always output, record or comparison, requests: a job that died is repeated as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import add
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from xorack.core.errors import ArgumentError, StateError, XorAckError
from xorack.core.message import SendReport
from xorack.errors import ColumnsError
from xorack.spark import finishing
from xorack.spark.evidence import (
    Observed,
    Output,
    check_unchanged,
    has_evidence,
    proof_of,
    remember,
)
from xorack.spark.folding import together
from xorack.spark.inputs import input_lost
from xorack.spark.missing.auditing import Audit, audit
from xorack.spark.record import summary_in
from xorack.spark.run import RowNames
from xorack.spark.sending import send
from xorack.spark.starting import creates, keep_start
from xorack.spark.storage import Stored
from xorack.spark.units import check_frame, field_named, unit_column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from xorack.spark.evidence import Proof
    from xorack.spark.finishing import Decision


@dataclass(frozen=True)
class Report:
    """What a call did.

    Attributes:
        proof: What the requests rest on: ``written``, ``observed`` or ``read``.
        chains: The chains with units.
        units: The units that were started, or finished.
        missing: The units that were started, and are not in the input of this job.
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
class Rows(RowNames):
    """The rows of one name in one run, of whose units an output can have evidence."""

    def with_unit(self, frame: DataFrame) -> DataFrame:
        """Add the unit of each row, a long in the column ``xorack_{name}``.

        The unit equals ``xorack.unit_id("{run_id}/{name}", *values)`` of the unit columns: rows of
        another run or name have other units.

        Raises:
            ColumnsError: A unit column is missing, or has another type than an
                integer, string, binary, boolean, date, timestamp or decimal. A null fails the
                job, with a message that names the column.
        """
        check_frame("frame", frame)
        return frame.withColumn(self.unit_name, unit_column(frame, self.salt, self.unit))

    def evidence(self, frame: DataFrame | None = None) -> tuple[Column, Column, Column]:
        """Return three aggregates of the units of a group, for the output: XOR, count and sum.

        Args:
            frame: The frame that is aggregated: it has the column that `with_unit` adds, or
                evidence, which is added up then. By default the former.

        Raises:
            ColumnsError: The frame has neither.
        """
        if frame is not None:
            if has_evidence(self, check_frame("frame", frame)):
                return together(self.evidence_names, self.evidence_names)
            if self.unit_name.lower() not in map(str.lower, frame.columns):
                raise ColumnsError(
                    f"the frame has no column {self.unit_name}: add it first, "
                    "with .transform(rows.with_unit)"
                )
            field_named(frame, self.unit_name)  # once
        remember(self, frame)
        unit, (xor, count, sum_) = F.col(self.unit_name), self.evidence_names
        upper = F.sum(F.shiftright(unit, 32)).alias(sum_)
        return F.bit_xor(unit).alias(xor), F.count(unit).alias(count), upper

    def observe(self, frame: DataFrame, write: Callable[[Any], object]) -> Observed:
        """Write a frame, and observe its evidence in the tasks: nothing has to be read back.

        Args:
            frame: A frame with the columns of `evidence`.
            write: A function that writes the frame it is given, without these columns:
                ``lambda bills: bills.write.jdbc(url, "bills")``.

        Returns:
            What to give to `finish`.

        Raises:
            ArgumentError: The function did not write, or wrote twice, or tried again.
        """
        return Observed.of(check_frame("frame", frame), self.evidence_names, write)


@dataclass(frozen=True)
class TrackedRows(Rows):
    """The rows of one name in one run, to be started and finished; `Tracking.rows` makes it."""

    def batch(self, batch_id: int) -> TrackedRows:
        """Return these rows as those of a micro-batch, inside ``foreachBatch``.

        A batch that Spark repeats sends the same requests. Start a chain in one batch only: let
        it be what arrives at once, a file or a message.
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

        Raises:
            ColumnsError: Columns of the frames or their values are unsuitable, or the units of a
                chain cancel each other out; nothing was sent.
            StateError: Another name has started these chains, or this run was started with other
                rows; nothing was sent.
            SendError: The queue did not accept all. Repeat the call.
        """
        header = keep_start(self, written, chains)
        summary = summary_in(header)
        sent = send(creates(self, header), self.tracking.queue, summary.chains)
        return Report("written", summary.chains, summary.count, 0, *sent)

    def finish(
        self,
        written: Output | Sequence[Output] | None = None,
        *,
        observed: Observed | None = None,
        read: DataFrame | None = None,
        rows: Output | None = None,
        allow_missing: bool = False,
    ) -> Report:
        """Finish the units that the output of this job stands for.

        The evidence of the output must equal what was started: then each chain finishes. If it
        does not, `rows` is folded. An output that agrees with `rows` shows that units are missing
        from these: the other chains finish. A chain with missing units gets a note for its event.

        Args:
            written: What was written, as for `start`; several outputs as a list. It has the
                columns of `evidence`, the one of `with_unit`, or the unit columns.
            observed: What `observe` returned, once its frame is written.
            read: A frame that was only read, for outputs that cannot be read back. It proves
                the reading, and nothing of what was written.
            rows: The rows that this job read. By default what `start` was given, if that was a
                path or a table. In a micro-batch, its frame: it is compared in place of a record.
            allow_missing: Return the report, too, if rows that were started are missing from the
                input of this job: ``missing`` counts them.

        Raises:
            ArgumentError: Not exactly one of written, observed and read is given.
            StateError: This run and name has no record of a start, or a damaged one, or another
                name follows.
            OutputDiffersError: The job lost rows, or has too many: chains that differ are not
                finished, but noted on; without columns that tell chains apart, none is finished.
                Or rows were missing in the job's input.
            ColumnsError: The output has neither evidence nor units.
            SendError: The queue did not accept all. Repeat the call.
        """
        header = finishing.header_of(self, rows)
        finishing.check_last(self)
        proof = proof_of(self, header, written, observed, read)
        with finishing.decide(self, header, proof, rows) as decision:
            report = self._send(proof, decision, partial(finishing.finish, self))
        if report.missing and not allow_missing:
            raise input_lost(self, header, report.missing)
        return report

    def _send(
        self, proof: Proof, decision: Decision, stamps: Callable[[DataFrame], DataFrame]
    ) -> Report:
        """Send the requests that finish chains, and the notes for those that do not."""
        queue, sent = self.tracking.queue, SendReport()
        try:
            check_unchanged(self.tracking, proof)  # before a record is kept
        except XorAckError as problem:
            raise decision.error or problem from None
        if decision.finished is not None:
            requests = stamps(decision.finished)  # advance keeps a record, though of no chain
            sent = send(requests, queue, decision.chains) if decision.chains else sent
            if sent.requests < decision.chains:
                raise StateError(f"{decision.chains - sent.requests:,} chains are gone meanwhile")
        if decision.notes is not None:
            sent = SendReport(*map(add, sent, send(decision.notes, queue, decision.noted)))
        if decision.error is not None:
            raise decision.error
        counts = decision.chains, decision.units, decision.missing
        return Report(proof.kind, *counts, *sent, proof.stored)

    def advance(
        self,
        following: TrackedRows,
        written: Output,
        *,
        rows: Output | None = None,
        allow_missing: bool = False,
    ) -> Report:
        """Finish these units and start those of what was written from them, in one stamp a chain.

        Args:
            following: The rows that this job wrote, with the same label.
            written: What was written, as for `start`. It has the chain columns, the unit columns
                of `following`, and the evidence of these units.
            rows: The rows that this job read, as for `finish`.
            allow_missing: As for `finish`.

        Raises:
            XorAckError: As `start` and `finish` do; but where an output differs, nothing was kept
                or sent for any chain.
        """
        if not isinstance(following, TrackedRows) or following.name == self.name:
            raise ArgumentError("following", following, "rows of another name")
        if (following.label, following.batch_id) != (self.label, self.batch_id):
            raise ArgumentError(
                "following", problem=f"label {following.label!r}, expected {self.label!r}"
            )
        header = finishing.header_of(self, rows)
        finishing.check_last(self, following.name)
        proof = proof_of(self, header, written)
        with finishing.decide(self, header, proof, rows) as decision:
            if decision.error is not None:
                raise decision.error
            if decision.missing and not allow_missing:
                raise input_lost(self, header, decision.missing)
            starts = partial(finishing.advance, self, header, following, written=written)
            return self._send(proof, decision, starts)

    def audit(self, table: Output | Sequence[Output]) -> Audit:
        """Compare what was started with what a table holds, and send nothing.

        Args:
            table: What was written, as for `finish`: with the columns of `evidence`, the one of
                `with_unit`, or the unit columns; several outputs as a list.

        Raises:
            ArgumentError: The table cannot be read.
            StateError: This run and name has no record of a start.
            ColumnsError: The table has neither evidence nor units.
        """
        return audit(self, table)
