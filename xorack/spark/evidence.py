"""The evidence that an output carries: what the units in what was written add up to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from xorack.core.errors import ArgumentError, StateError
from xorack.spark.errors import ColumnsError
from xorack.spark.folding import (
    SUMS,
    Totals,
    fold_units,
    metrics_of,
    named,
    of_units,
    together,
    totals_of,
)
from xorack.spark.messages import one_line, readable
from xorack.spark.reading import READ_ALL, check_reading
from xorack.spark.storage import (
    MAX_NAMED,
    Stored,
    files_of,
    files_read,
    folders,
    hides_files,
    lies_in,
    reads_plainly,
)
from xorack.spark.types import unmarked_files
from xorack.spark.units import (
    check_frame,
    column_named,
    field_named,
    has_columns,
    made_once,
    unit_column,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from xorack.spark.record import Header
    from xorack.spark.run import RowNames
    from xorack.spark.storage import Files

Output = DataFrame | str
"""A frame that reads an output, the path of its Parquet files, or a table's name."""

_INEXACT = ("double", "float")
_MAX_JOBS, _MAX_FRAMES = 1_000, 4
_SECOND = 1_000  # in milliseconds


@dataclass
class _Job:
    """The frames that `evidence` was given since the last output of unknown rows."""

    frames: list[DataFrame] = field(default_factory=list)
    has_ended: bool = False


_JOBS: dict[tuple[str, str], _Job] = {}
"""The last job by records and salt."""


def remember(rows: RowNames, frame: DataFrame | None) -> None:
    """Keep a frame whose rows go into an output, until the job after this one."""
    if len(_JOBS) >= _MAX_JOBS:
        _JOBS.clear()
    job = _JOBS.get(_key(rows))
    before = [] if frame is None or job is None or job.has_ended else job.frames
    others = [one for one in before if one is not frame]
    _JOBS[_key(rows)] = _Job([] if frame is None else [*others, frame][-_MAX_FRAMES:])


def job_ends(rows: RowNames) -> None:
    """Note that a job calls finish: the next frame is of another one."""
    if job := _JOBS.get(_key(rows)):
        job.has_ended = True


def forget(rows: RowNames) -> None:
    """Forget the frames of an output that agrees: what differs later is another output."""
    _JOBS.pop(_key(rows), None)


def remembered(rows: RowNames) -> list[DataFrame]:
    """Return the frames of the last job, the last one first."""
    job = _JOBS.get(_key(rows))
    return job.frames[::-1] if job else []


def _key(rows: RowNames) -> tuple[str, str]:
    return rows.tracking.records, rows.salt


class Observed(NamedTuple):
    """A frame whose evidence is observed as tasks hand its rows on.

    Attributes:
        frame: The frame without the columns of the evidence.
        observation: Spark's observation of the write that returned.
        source: The frame with these columns.
    """

    frame: DataFrame
    observation: Observation
    source: DataFrame

    @classmethod
    def of(cls, frame: DataFrame, names: Sequence[str]) -> Observed:
        """Observe the columns of the evidence and drop them."""
        for name in names:
            field_named(frame, name)
        observation = Observation()
        sums = made_once(frame.sparkSession, tuple(names), lambda: together(names, SUMS))
        observed = frame.observe(observation, *sums)
        return cls(observed.drop(*names), observation, frame)

    def write(self, write: Callable[[Any], object]) -> Observed:
        """Let a function write the frame, once, or raise; observe the write that returned."""
        written: list[Observed] = []
        write(_ToWrite(self, written))
        if not written:
            raise ArgumentError("write", problem="it did not write the frame that it was given")
        return written[0]

    def totals(self) -> Totals:
        """Return what the tasks received, or raise `ArgumentError` if the frame was not written."""
        sums = metrics_of(self.observation)
        if sums is None:
            raise ArgumentError("observed", problem="its frame was not written")
        return Totals(*(sums[name] or 0 for name in SUMS))


class _ToWrite:
    """A frame that a function may write, once, and nothing else."""

    def __init__(self, given: Observed, written: list[Observed]) -> None:
        self._given, self._written = given, written
        self.columns, self.schema = given.frame.columns, given.frame.schema

    @property
    def write(self) -> _Writer:
        observed = self._observed()
        return _Writer(observed.frame.write, observed, self._written)

    def writeTo(self, table: str) -> _Writer:
        observed = self._observed()
        return _Writer(observed.frame.writeTo(table), observed, self._written)

    def _observed(self) -> Observed:
        # Each writer has an observation of its own: Spark observes the writes that fail, too.
        source = self._given.source
        return Observed.of(source, [name for name in source.columns if name not in self.columns])

    def __getattr__(self, name: str) -> Any:
        raise ArgumentError("write", problem=f"the frame may only be written: .{name} is no write")


class _Writer:
    """A writer of Spark's: an option returns it, an action nothing, once it has written."""

    def __init__(self, target: Any, observed: Observed, written: list[Observed]) -> None:
        self._target, self._observed, self._written = target, observed, written
        self._is_used = False

    def __getattr__(self, name: str) -> Callable[..., _Writer | None]:
        def call(*given: Any, **options: Any) -> _Writer | None:
            if self._written:
                raise ArgumentError("write", problem="it wrote the frame before")
            if self._is_used:
                raise ArgumentError("write", problem="this writer failed before: take a new .write")
            self._is_used = True  # and stays so, if this raises
            result = getattr(self._target, name)(*given, **options)
            if result is None:
                self._written.append(self._observed)
                return None
            self._target, self._is_used = result, False
            return self

        return call


def open_output(spark: SparkSession, output: Output, option: str = "written") -> DataFrame:
    """Read what was written, or raise `ArgumentError` if Spark cannot, or may leave rows out."""
    if not isinstance(output, str):
        frame = check_frame(option, output, "a frame, path or table's name")
        check_reading(frame, option)
        return frame
    try:
        if "/" in output:
            # Spark would take what it has in its cache for what lies on disk: not with an option.
            frame = spark.read.options(xorack=uuid4().hex, **READ_ALL).parquet(output)
        else:
            spark.catalog.refreshTable(output)
            frame = spark.read.options(**READ_ALL).table(output)
        _ = frame.schema
    except Exception as error:  # noqa: BLE001 - whatever Java raises
        how = ""
        if "/" in output:
            how = f"; other formats as a frame: spark.read.format(…).load({output!r})"
        problem = f"{output!r} cannot be read: {one_line(error).rstrip('.')}{how}"
        raise ArgumentError(option, problem=problem) from None
    check_reading(frame, option)
    return frame


def unit_in(rows: RowNames, frame: DataFrame) -> Column:
    """Return the unit of each row of an input: a column that has units may be of another run."""
    return unit_column(frame, rows.salt, rows.unit)


def unit_of(rows: RowNames, frame: DataFrame) -> Column:
    """Return the unit of each row of an output: its column of units, or one of the unit columns."""
    name = rows.unit_name
    if not has_columns(frame, [name]):
        return unit_in(rows, frame)
    column, type_ = column_named(frame, name)
    if type_.simpleString() != "bigint":
        raise ColumnsError(f"column {name} is {type_.simpleString()}, expected bigint")
    wrong = F.raise_error(F.lit(f"xorack: column {name} is null or 0: the row has no unit"))
    return F.when(column.isNull() | (column == 0), wrong).otherwise(column)


def has_evidence(rows: RowNames, frame: DataFrame) -> bool:
    """Tell whether a frame has the columns of the evidence, complete and exact, or raise."""
    there = [name for name in rows.evidence_names if has_columns(frame, [name])]
    gone = ", ".join(name for name in rows.evidence_names if name not in there)
    if there and gone:
        raise ColumnsError(
            f"the output has {', '.join(there)}, and not {gone}: add up all columns of the "
            "evidence, with .agg(…, *rows.evidence(frame))"
        )
    for name in there:
        type_ = field_named(frame, name).dataType.simpleString()
        if type_ in ("double", "float"):
            raise ColumnsError(
                f"column {name} is {type_}, expected bigint: it has lost digits, so write it as a "
                "bigint or a string"
            )
    return bool(there)


def evidence_of(rows: RowNames, frame: DataFrame) -> list[Column]:
    """Return the sums of the units that a row of an output stands for."""
    if has_evidence(rows, frame):
        return [F.col(name).cast("long") for name in rows.evidence_names]
    try:
        return [*of_units(unit_of(rows, frame))]
    except ColumnsError as error:
        raise ColumnsError(
            f"the output has neither the evidence of {rows.name!r} "
            f"({', '.join(rows.evidence_names)}) nor its units: {error}"
            f"{unmarked_files(rows, frame)}"
        ) from None


def total(rows: RowNames, outputs: Sequence[DataFrame]) -> Totals:
    """Sum up the evidence of all outputs."""
    totals = Totals()
    for frame in outputs:
        sums = frame.select(*named(evidence_of(rows, frame)))
        with readable("written", "the output cannot be read, or its evidence is in other columns"):
            totals += totals_of(sums)
    return totals


class Proof(NamedTuple):
    """What a call to finish rests on; see `Report` for its kind and what is stored.

    Attributes:
        totals: What the units in the output add up to.
        outputs: The frames that read the output; none if it was observed.
        given: The output as it was given.
        files: The files that they read, with their bytes and times.
        problem: Why nothing may be sent: the output is what was started. A difference goes first.
    """

    kind: str
    totals: Totals
    outputs: Sequence[DataFrame] = ()
    given: Any = None
    files: Files | None = None
    stored: tuple[Stored, ...] = ()
    problem: ArgumentError | None = None


def proof_of(
    rows: RowNames,
    header: Header,
    written: Output | Sequence[Output] | None,
    observed: Observed | None = None,
    read: DataFrame | None = None,
) -> Proof:
    """Collect the evidence of the one output that is given."""
    given = {"written": written, "observed": observed, "read": read}
    kinds = [kind for kind, output in given.items() if output is not None]
    if len(kinds) != 1:
        found = " and ".join(kinds) or "none of them"
        raise ArgumentError("written", problem=f"{found} given, expected one of {', '.join(given)}")
    job_ends(rows)
    if observed is not None:
        if not isinstance(observed, Observed):
            raise ArgumentError("observed", observed, "what observe returned")
        return Proof("observed", observed.totals())
    output = read if written is None else written
    outputs = as_list(output, "written")
    frames = [open_output(rows.tracking.spark, one) for one in outputs]
    if written is None:
        return Proof("read", total(rows, frames), frames, output)
    reads = [_read(rows, header, *one) for one in zip(outputs, frames, strict=True)]
    since = None if all(one.is_marked for one in reads) else _since(rows, header)
    problems = [_problem(rows, one, header, since) for one in reads]
    may_be_older = since is None or header["hidden"]
    is_proved = all(
        one.stored and (one.is_marked or (one.files and not may_be_older)) for one in reads
    )
    return Proof(
        "written" if is_proved else "read",
        total(rows, frames),
        frames,
        output,
        {name: facts for one in reads for name, facts in one.files.items()},
        tuple(one.stored for one in reads if one.stored),
        next(filter(None, problems), None),
    )


def as_list(outputs: Any, option: str) -> list[Output]:
    """Return outputs that are given as one or as a list."""
    given = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    if not given:
        raise ArgumentError(option, problem="an empty list, expected one or more outputs")
    return given


def source_of(rows: RowNames, given: Output, frame: DataFrame) -> Header:
    """Return where rows lie that were started, or that a micro-batch reads: see `_Read`."""
    return {
        "source": given if isinstance(given, str) else None,
        "folders": folders(files_read(frame), given)[:MAX_NAMED],
        "hidden": hides_files(frame),
        "marked": _is_marked(rows, frame),
    }


def _is_marked(rows: RowNames, frame: DataFrame) -> bool:
    return any(has_columns(frame, [name]) for name in (rows.unit_name, *rows.evidence_names))


def _since(rows: RowNames, header: Header) -> int | None:
    """Return when a start's record was written, in ms by its storage; None in a micro-batch."""
    if "attempt" not in header:
        return None
    chains = rows.record.chains(header)
    files = files_of(chains.sparkSession, files_read(chains))
    return max((time for _, time in files.values()), default=None)


class _Read(NamedTuple):
    """What reads an output, its files, and what is stored, if it shows that.

    It is marked if its rows carry evidence or units, and what was started does not: then they are
    of this run, and nothing else has to tell so.
    """

    frame: DataFrame
    place: str
    names: Sequence[str]
    files: Files
    stored: Stored | None
    is_marked: bool


def _read(rows: RowNames, header: Header, output: Output, frame: DataFrame) -> _Read:
    spark, names = frame.sparkSession, files_read(frame)
    files = files_of(spark, names) if names else {}
    place, stored = str((*folders(names, output), output)[0]), None
    is_table = (
        isinstance(output, str)
        and "/" not in output
        and spark.catalog.getTable(output).tableType in ("MANAGED", "EXTERNAL")  # not a view
    )
    if is_table or (names and reads_plainly(frame)):
        times = sorted(time // _SECOND for _, time in files.values())
        ends = [datetime.fromtimestamp(time, timezone.utc) for time in times[:1] + times[-1:]]
        stored = Stored(place, len(names), sum(size for size, _ in files.values()), *ends)
    is_marked = _is_marked(rows, frame) and not header["marked"]
    return _Read(frame, place, names, files, stored, is_marked)


def _problem(
    rows: RowNames, read: _Read, header: Header, since: int | None
) -> ArgumentError | None:
    """Return an error if an output is what was started, or unmarked and older than the start."""
    problem = ""
    count = F.col(rows.evidence_names[1])
    is_csv = any(".csv" in name.rpartition("/")[2] for name in read.names)
    # Some storage counts seconds: such a time may be any in its second.
    old = [
        name
        for name, (_, time) in read.files.items()
        if since and time + (0 if time % _SECOND else _SECOND) <= since
    ]
    if any(lies_in(name, place) for place in header["folders"] for name in read.names):
        problem = (
            f"it reads what was started, {read.place}: give what this job wrote, or read= to prove "
            "the reading alone"
        )
    elif is_csv and has_evidence(rows, read.frame) and read.frame.where(count.isNull()).take(1):
        problem = (
            f"rows of {read.place} have no evidence: a line break in a value divides a row of CSV, "
            "so read it with multiLine; or leave out what a join has added"
        )
    elif old and not read.is_marked:
        problem = (
            f"{len(old):,} of {len(read.files):,} files are older than the start of this run, such "
            f"as {min(old)}, and nothing in them tells runs apart: give what this job wrote, and "
            f"keep the column {rows.unit_name} of with_unit in it"
        )
    return ArgumentError("written", problem=problem) if problem else None


def check_unchanged(spark: SparkSession, proof: Proof) -> None:
    """Check that an output is one and has the files that were read, or raise."""
    if proof.problem is not None:
        raise proof.problem
    if not proof.files:
        return
    now = files_of(spark, list(proof.files))
    changed = sorted(name for name, facts in proof.files.items() if now.get(name) != facts)
    if changed:
        raise StateError(
            f"the output changed while finish read it: {len(changed):,} of {len(proof.files):,} "
            f"files, such as {changed[0]}; repeat the call once nobody writes there"
        )


def per_chain(rows: RowNames, outputs: Sequence[DataFrame]) -> list[DataFrame]:
    """Fold the evidence of each output by chain, where `tells_chains` says that it has chains."""
    return [fold_units(one, rows.chain, evidence_of(rows, one), rows.prefix) for one in outputs]
