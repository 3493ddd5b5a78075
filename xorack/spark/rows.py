"""Tracked rows: one job starts what it wrote, another finishes what it wrote.

The order is always output, record or comparison, requests: a job that died is repeated as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from xorack.core.errors import ArgumentError, StateError, XorAckError
from xorack.core.message import SendReport
from xorack.errors import ColumnsError
from xorack.spark import finishing, run_chain, tables
from xorack.spark.evidence import check_output, collect_evidence, frames_in, has_evidence
from xorack.spark.finishing import Job
from xorack.spark.folding import together
from xorack.spark.inputs import input_lost
from xorack.spark.missing.auditing import Audit, audit
from xorack.spark.observing import Observed
from xorack.spark.outcome import Agrees, Differs, Lost
from xorack.spark.record import summary_in
from xorack.spark.run import RowNames
from xorack.spark.sending import send_few, send_frame
from xorack.spark.starting import creates, keep_start
from xorack.spark.storage import Stored
from xorack.spark.units import check_frame, field_named, unit_column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from xorack.core.request import Request
    from xorack.spark.evidence import Evidence, Output
    from xorack.spark.outcome import Outcome
    from xorack.spark.record import Header


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
        outputs: What was read of the outputs, if that is known: folder, files, bytes and times;
            of a table that has versions, its name and its version.
        tolerated: The units that are missing, and that the run tolerates: the chains finished.
        skipped: The files and folders that Spark did not read because of their names.
    """

    proof: str
    chains: int
    units: int
    missing: int
    messages: int
    requests: int
    bytes: int
    outputs: tuple[Stored, ...] = ()
    tolerated: int = 0
    skipped: int = 0


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
        return frame.withColumn(self.unit_name, unit_column(frame, self.namespace, self.unit))

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
        self.tracking.jobs.remember(self.namespace, frame)
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
        of_chains = send_frame(creates(self, header), self.tracking.queue, summary.chains)
        sent = _sum(of_chains, self._send_few(run_chain.start_of_rows(self, header)))
        skipped, table = header.get("skipped", 0), tables.started(header)
        outputs = () if table is None else (tables.stored(self.tracking.spark, table),)
        counts = summary.chains, summary.count, 0
        return Report("written", *counts, *sent, outputs, skipped=skipped)

    def finish(
        self,
        written: Output | Sequence[Output] | None = None,
        *,
        observed: Observed | None = None,
        read: DataFrame | None = None,
        source: Output | None = None,
        rows: DataFrame | Sequence[DataFrame] | None = None,
        recompute: bool = True,
        allow_missing: bool = False,
        publish: bool = False,
    ) -> Report:
        """Finish the units that the output of this job stands for.

        The evidence of the output must equal what was started: then each chain finishes. If it
        does not, the frame of `evidence` is computed again and compared with the source, unit by
        unit. Chains that differ do not finish: they get a note for their event.

        Args:
            written: What was written, as for `start`; several outputs as a list. It has the
                columns of `evidence`, the one of `with_unit`, or the unit columns.
            observed: What `observe` returned, once its frame is written.
            read: A frame that was only read, for outputs that cannot be read back. It proves
                the reading, and nothing of what was written.
            source: The input of this job. By default what `start` was given, if that was a path
                or a table. In a micro-batch, its frame: it is compared in place of a record.
            rows: The frame that was aggregated, or several as a list. By default those that
                `evidence` was given since the last finish.
            recompute: Compute these frames again if the output differs. Else rows have names only
                if the sums of all groups tell them.
            allow_missing: Return the report, too, if rows that were started are missing from the
                input of this job: ``missing`` counts them.
            publish: Make what was proved visible, then send the requests. ``written`` is a branch
                of an Iceberg table, such as ``cat.db.bills.branch_audit``. Only if it has all
                units, ``main`` is fast-forwarded to exactly the snapshot that was read. Else
                nothing is published, and no chain finishes.

        Raises:
            ArgumentError: Not exactly one of written, observed and read is given, or the output
                cannot be of this run.
            StateError: This run and name has no record of a start, or a damaged one, or another
                name follows; or ``main`` cannot be fast-forwarded.
            OutputDiffersError: The job lost more rows of a chain than the run tolerates, or has
                too many: chains that differ are not finished, but noted on; without columns that
                tell chains apart, none is finished. Or rows were missing in the job's input.
            ColumnsError: The output has neither evidence nor units.
            SendError: The queue did not accept all. Repeat the call.
        """
        spark = self.tracking.spark
        branch = tables.to_publish(spark, written, allow_missing) if publish else None
        header = finishing.header_of(self, source)
        finishing.check_last(self)
        evidence = collect_evidence(self, header, branch or written, observed, read)
        job = Job(source, None if rows is None else frames_in(rows), recompute, publish)
        with finishing.attempt(self, header) as keep:
            outcome = finishing.decide(self, header, evidence, job, keep)
            self._check(header, evidence, outcome)
            if branch is not None and isinstance(outcome, Agrees):
                tables.publish(spark, branch, evidence.kind)
            sent = self._send(evidence, outcome, partial(finishing.finish_requests, self))
        return self._end(header, evidence, outcome, sent, allow_missing)

    def _check(self, header: Header, evidence: Evidence, outcome: Outcome) -> None:
        """Check the output; if it cannot be one of this job, say first that it differs."""
        try:
            check_output(self, header, evidence)
        except XorAckError as problem:
            raise (outcome.error if isinstance(outcome, Differs) else problem) from None

    def _send_few(self, requests: Sequence[Request]) -> SendReport:
        return send_few(self.tracking.spark, requests, self.tracking.queue)

    def _send(
        self, evidence: Evidence, outcome: Outcome, stamps: Callable[[DataFrame], DataFrame]
    ) -> SendReport:
        """Send the notes and the requests that finish chains."""
        queue, notes = self.tracking.queue, outcome.notes
        # Notes go before the stamps: a chain that has ended takes none.
        sent = self._send_few(run_chain.finish_requests(self, evidence.kind, outcome))
        if notes is not None and notes.chains:
            sent = _sum(sent, send_frame(notes.requests, queue, notes.chains))
        finished = outcome.finished
        if finished is None:
            return sent
        requests = stamps(finished.chains)  # advance keeps a record, though of no chain
        stamped = send_frame(requests, queue, finished.number) if finished.number else SendReport()
        if stamped.requests < finished.number:
            lost = finished.number - stamped.requests
            raise StateError(
                f"{lost:,} chains disappeared while their stamps were sent; repeat the call"
            )
        return _sum(sent, stamped)

    def _end(
        self,
        header: Header,
        evidence: Evidence,
        outcome: Outcome,
        sent: SendReport,
        allow_missing: bool,
    ) -> Report:
        """Return the report on an outcome, or raise its error."""
        match outcome:
            case Differs(error):
                raise error
            case Lost(finished, missing) if not allow_missing:
                raise input_lost(self, header, outcome)
            case Lost(finished, missing):
                counts = finished.number, finished.units, missing
                return Report(evidence.kind, *counts, *sent, evidence.stored)
            case Agrees(finished, tolerated):
                counts = finished.number, finished.units - tolerated, 0
                return Report(evidence.kind, *counts, *sent, evidence.stored, tolerated)

    def advance(
        self,
        following: TrackedRows,
        written: Output,
        *,
        source: Output | None = None,
        rows: DataFrame | Sequence[DataFrame] | None = None,
        recompute: bool = True,
        allow_missing: bool = False,
    ) -> Report:
        """Finish these units and start those of what was written from them, in one stamp a chain.

        Args:
            following: The rows that this job wrote, with the same label.
            written: What was written, as for `start`. It has the chain columns, the unit columns
                of `following`, and the evidence of these units.
            source: As for `finish`.
            rows: As for `finish`.
            recompute: As for `finish`.
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
        written = tables.pinned(self.tracking.spark, written)
        header = finishing.header_of(self, source)
        finishing.check_last(self, following.name)
        evidence = collect_evidence(self, header, written)
        job = Job(source, None if rows is None else frames_in(rows), recompute)
        with finishing.attempt(self, header) as keep:
            outcome = finishing.decide(self, header, evidence, job, keep)
            ends = isinstance(outcome, Lost) and not allow_missing
            if isinstance(outcome, Agrees | Lost) and not ends:
                self._check(header, evidence, outcome)
                starts = partial(
                    finishing.advance_requests, self, header, following, written=written
                )
                run_chain.following_started(following)
                sent = self._send(evidence, outcome, starts)
            else:
                sent = SendReport()
        return self._end(header, evidence, outcome, sent, allow_missing)

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


def _sum(*reports: SendReport) -> SendReport:
    return SendReport(*map(sum, zip(*reports, strict=True)))
