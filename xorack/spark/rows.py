"""Tracked rows: one job starts the rows that it wrote, and another finishes them.

The order is always: write the output, keep or compare the record, send the requests. So a job that
died can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from xorack.core.errors import ArgumentError, StateError, XorAckError
from xorack.core.message import SendReport
from xorack.core.notebook import table
from xorack.core.text import plural
from xorack.errors import ColumnsError
from xorack.spark import finishing, run_chain, tables
from xorack.spark.evidence import check_output, collect_evidence, frames_in, has_evidence
from xorack.spark.finishing import Job
from xorack.spark.folding import together
from xorack.spark.inputs import check_stream, input_lost
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


@dataclass(frozen=True, repr=False)
class Report:
    """The result of a call.

    Attributes:
        proof: The proof behind the requests: ``written``, ``observed`` or ``read``.
        chains: The number of chains with units.
        units: The number of units that were started or finished.
        missing: The number of started units that are missing from the input of this job.
        messages: The number of SQS messages that were sent.
        requests: The number of requests in them.
        bytes: The bytes of their bodies.
        outputs: The storage of the outputs, if it is known: folder, files, bytes and times. For a
            table with versions, its name and its version.
        tolerated: The number of missing units that the run tolerates.
        skipped: The number of files and folders that Spark did not read because of their names.
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

    def __repr__(self) -> str:
        lacks = (
            (self.missing, "missing"),
            (self.tolerated, "tolerated"),
            (self.skipped, "skipped"),
        )
        numbers = [f"{number:,} {word}" for number, word in lacks if number]
        units = [plural(self.units, "unit"), *numbers, plural(self.chains, "chain")]
        places = "; ".join(map(str, self.outputs[:1]))
        return f"<Report: {self.proof}: {', '.join(units)}{places and f'; {places}'}>"

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        facts = {
            "proof": self.proof,
            "chains": self.chains,
            "outputs": [str(output) for output in self.outputs],
            "names that Spark skipped": self.skipped or None,
            "sent": f"{plural(self.requests, 'request')} in {plural(self.messages, 'message')}",
        }
        parts = (
            ("done", "units", self.units),
            ("missing", "missing", self.missing),
            ("other", "missing and tolerated", self.tolerated),
        )
        return table("Report", facts, parts)


def check_batch(batch_id: int) -> int:
    """Return the number of a micro-batch, or raise `ArgumentError`."""
    if isinstance(batch_id, bool) or not isinstance(batch_id, int) or batch_id < 0:
        raise ArgumentError("batch_id", batch_id, "the number of a micro-batch")
    return batch_id


@dataclass(frozen=True)
class Rows(RowNames):
    """The rows of one name in one run, and their evidence in outputs."""

    def with_unit(self, frame: DataFrame) -> DataFrame:
        """Add the unit of each row, a long in the column ``xorack_{name}``.

        The unit equals ``xorack.unit_id("{run_id}/{name}", *values)`` of the unit columns. So rows
        of another run or name have other units.

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
            frame: The frame that is aggregated. It has the column that `with_unit` adds, or
                columns of evidence, which are summed up. By default the former.

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
        """Write a frame, and observe its evidence in the tasks, so that nothing is read back.

        Args:
            frame: A frame with the columns of `evidence`.
            write: A function that writes the frame it gets, which lacks these columns:
                ``lambda bills: bills.write.jdbc(url, "bills")``.

        Returns:
            The argument ``observed`` of `finish`.

        Raises:
            ArgumentError: The function did not write, or wrote more than once.
        """
        return Observed.of(check_frame("frame", frame), self.evidence_names, write)


@dataclass(frozen=True)
class TrackedRows(Rows):
    """The rows of one name in one run, which jobs start and finish; see `Tracking.rows`."""

    def batch(self, batch_id: int) -> TrackedRows:
        """Return these rows for a micro-batch, inside ``foreachBatch``.

        A batch that Spark repeats sends the same requests. Start all rows of a chain in one batch:
        make a chain of each file or message.
        """
        return replace(self, batch_id=check_batch(batch_id))

    def check_stream(self, frame: DataFrame) -> int:
        """Check that a stream of files will read its folder, before its query starts.

        In a micro-batch, Spark does not say where the rows come from. A warning says if Spark will
        leave out old files that arrive late, because the stream has no option ``maxFileAge``.

        Args:
            frame: The stream, as ``spark.readStream`` returns it.

        Returns:
            How many files and folders it skips now because of their names; a warning says so.

        Raises:
            ArgumentError: An option lets Spark leave rows out, the folder cannot be read, or files
                in subfolders are not read.
        """
        return check_stream(self, check_frame("frame", frame))

    def start(self, written: DataFrame | str, chains: DataFrame | None = None) -> Report:
        """Start the units of an output, and create each chain with all its units.

        Args:
            written: The output: a frame that reads it back, the path of Parquet files (with a
                ``/``), or a table's name.
            chains: Facts about chains, a row each: the chain columns and optionally ``detail``, a
                JSON object that the chain's event returns, and ``failed``, a reason. A chain
                without rows is acked at once. A chain with a reason fails at once; its rows are
                not started, so the next job must leave them out.

        Raises:
            ColumnsError: Columns of the frames or their values are unsuitable, or the units of a
                chain cancel out. No request was sent.
            StateError: Another name has started these chains, or this run was started with other
                rows. No request was sent.
            SendError: The queue did not accept all requests. Repeat the call.
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
        """Finish the units of the rows from which this job made its output.

        If the evidence of the output equals what was started, all chains finish. If it does not,
        the frame of `evidence` is computed again and compared with the source by unit. Chains that
        differ do not finish, and get a note for their event.

        Args:
            written: The output, as for `start`, or a list of outputs. It has the columns of
                `evidence`, the column of `with_unit`, or the unit columns.
            observed: The result of `observe`, after its frame was written.
            read: A frame that was only read, for outputs that cannot be read back. It proves
                that the rows were read, and nothing about the output.
            source: The input of this job. By default the output that `start` was given, if that
                was a path or a table. In a micro-batch it is the batch's frame, which replaces the
                record.
            rows: The frame that was aggregated, or a list of frames. By default the frames that
                `evidence` was given since the last finish.
            recompute: Compute these frames again if the output differs. If False, rows have names
                only if the sums of all groups determine them.
            allow_missing: Return the report even if started rows are missing from the input of
                this job; its ``missing`` counts them.
            publish: Publish the proved output, then send the requests. ``written`` is a branch of
                an Iceberg table, such as ``cat.db.bills.branch_audit``. If it has all units,
                ``main`` is fast-forwarded to exactly the snapshot that was read. Otherwise nothing
                is published, and no chain finishes.

        Raises:
            ArgumentError: Not exactly one of written, observed and read is given, or the output
                cannot belong to this run.
            StateError: The record of this run and name is missing or corrupt, another name
                follows, or ``main`` cannot be fast-forwarded.
            OutputDiffersError: More rows are missing than the run tolerates, or rows are surplus.
                Chains that differ get a note and do not finish. If the output lacks the chain
                columns, no chain finishes. The error is also raised if the job's input lost rows.
            ColumnsError: The output has neither evidence nor units.
            SendError: The queue did not accept all requests. Repeat the call.
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
            with self._kept(header, outcome):
                sent = self._send(evidence, outcome, partial(finishing.finish_requests, self))
        return self._end(header, evidence, outcome, sent, allow_missing)

    def _check(self, header: Header, evidence: Evidence, outcome: Outcome) -> None:
        """Check that the output can come from this job.

        If it also differs, raise that error instead.
        """
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
        # Send notes before stamps, because a chain that has ended takes no note.
        sent = self._send_few(run_chain.finish_requests(self, evidence.kind, outcome))
        if notes is not None and notes.chains:
            sent = _sum(sent, send_frame(notes.requests, queue, notes.chains))
        finished = outcome.finished
        if finished is None:
            return sent
        requests = stamps(finished.chains)  # `advance` keeps a record without chains
        stamped = send_frame(requests, queue, finished.number) if finished.number else SendReport()
        if stamped.requests < finished.number:
            lost = finished.number - stamped.requests
            raise StateError(
                f"{plural(lost, 'chain')} disappeared while stamps were sent; repeat the call"
            )
        return _sum(sent, stamped)

    def _kept(self, header: Header, outcome: Outcome) -> AbstractContextManager[None]:
        """Record which chains a block finishes, so that later errors count the acked chains."""
        finished = outcome.finished
        if self.batch_id is not None or finished is None or not finished.number:
            return nullcontext()
        return self.record.finishing(
            header, None if isinstance(outcome, Agrees) else finished.chains
        )

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
        """Finish these units and start the units of this job's output, in one stamp for each chain.

        Args:
            following: The rows that this job wrote, with the same label.
            written: The output, as for `start`. It has the chain columns, the unit columns of
                `following`, and the evidence of these units.
            source: As for `finish`.
            rows: As for `finish`.
            recompute: As for `finish`.
            allow_missing: As for `finish`.

        Raises:
            XorAckError: As `start` and `finish` do. But if an output differs, nothing was kept or
                sent for any chain.
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
        job = Job(source, None if rows is None else frames_in(rows), recompute, advances=True)
        with finishing.attempt(self, header) as keep:
            outcome = finishing.decide(self, header, evidence, job, keep)
            if isinstance(outcome, Agrees) or (isinstance(outcome, Lost) and allow_missing):
                self._check(header, evidence, outcome)
                starts = partial(
                    finishing.advance_requests, self, header, following, written=written
                )
                run_chain.following_started(following)
                with self._kept(header, outcome):
                    sent = self._send(evidence, outcome, starts)
            else:
                sent = SendReport()
        if isinstance(outcome, Lost) and not allow_missing:
            raise input_lost(self, header, outcome, advances=True)
        return self._end(header, evidence, outcome, sent, allow_missing)

    def audit(self, table: Output | Sequence[Output]) -> Audit:
        """Compare a table with what was started, and send nothing.

        Args:
            table: The output, as for `finish`, or a list of outputs. It has the columns of
                `evidence`, the column of `with_unit`, or the unit columns.

        Raises:
            ArgumentError: The table cannot be read.
            StateError: This run and name has no record of a start.
            ColumnsError: The table has neither evidence nor units.
        """
        return audit(self, table)


def _sum(*reports: SendReport) -> SendReport:
    return SendReport(*map(sum, zip(*reports, strict=True)))
