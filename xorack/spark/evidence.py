"""The evidence that an output carries: what the units in what was written add up to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from xorack.core.errors import ArgumentError, StateError
from xorack.core.masking import masked_path
from xorack.errors import ColumnsError
from xorack.spark import folding, storage, units
from xorack.spark.folding import SUMS, Totals
from xorack.spark.messages import one_line, readable
from xorack.spark.reading import READ_ALL, check_reading
from xorack.spark.storage import MAX_NAMED, Stored

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from xorack.spark.record import Header
    from xorack.spark.run import RowNames, RunOptions
    from xorack.spark.storage import Files

Output = DataFrame | str
"""A frame that reads an output, the path of its Parquet files, or a table's name."""

_MAX_JOBS, _MAX_FRAMES = 1_000, 4
_SECOND = 1_000  # in milliseconds
_JOBS: dict[tuple[str, str], tuple[list[DataFrame], bool]] = {}
"""What `evidence` was given, the last frame first, and whether finish was called since."""


def remember(rows: RowNames, frame: DataFrame | None) -> None:
    """Keep a frame whose rows go into an output, until the job after this one."""
    if len(_JOBS) >= _MAX_JOBS:
        _JOBS.clear()
    before, has_ended = _JOBS.get(_key(rows), ([], False))
    others = [other for other in before if other is not frame and not has_ended]
    _JOBS[_key(rows)] = [] if frame is None else [frame, *others][:_MAX_FRAMES], False


def job_ends(rows: RowNames) -> None:
    """Note that a job calls finish: the next frame is of another job."""
    if frames := remembered(rows):
        _JOBS[_key(rows)] = frames, True


def forget(rows: RowNames) -> None:
    """Forget the frames of an output that agrees: what differs later is another output."""
    _JOBS.pop(_key(rows), None)


def remembered(rows: RowNames) -> list[DataFrame]:
    """Return the frames of the last job, the last one first."""
    return _JOBS.get(_key(rows), ([], False))[0]


def _key(rows: RowNames) -> tuple[str, str]:
    return rows.tracking.records, rows.salt


class Observed(NamedTuple):
    """A frame whose evidence Spark observes while its tasks pass rows to the write.

    Attributes:
        frame: The frame without the columns of the evidence.
        observation: Spark's observation of its first write.
        source: The frame with these columns.
    """

    frame: DataFrame
    observation: Observation
    source: DataFrame

    @classmethod
    def of(cls, frame: DataFrame, names: Sequence[str], write: Callable[[Any], object]) -> Observed:
        """Observe and drop the columns of the evidence, while a function writes the frame, once."""
        for name in names:
            units.field_named(frame, name)
        observation = Observation()
        plain = frame.observe(observation, *folding.together(names, SUMS)).drop(*names)
        write(given := _ToWrite(plain))
        if not given.is_written:
            raise ArgumentError("write", problem="it did not write the frame that it was given")
        return cls(plain, observation, frame)

    def totals(self) -> Totals:
        """Return what the tasks received, or raise `ArgumentError` if the frame was not written."""
        sums = folding.metrics_of(self.observation)
        if sums is None:
            raise ArgumentError("observed", problem="its frame was not written")
        return Totals(*(sums[name] or 0 for name in SUMS))


class _ToWrite:
    """A frame that a function may write, once, and nothing else: Spark observes the first try."""

    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame
        self.columns, self.schema = frame.columns, frame.schema
        self.is_tried = self.is_written = False

    @property
    def write(self) -> _Writer:
        return _Writer(self._frame.write, self)

    def writeTo(self, table: str) -> _Writer:
        return _Writer(self._frame.writeTo(table), self)

    def __getattr__(self, name: str) -> Any:
        raise ArgumentError("write", problem=f"the frame may only be written: .{name} is no write")


class _Writer:
    """A writer of Spark's: an option returns it, an action nothing, once it has written."""

    def __init__(self, target: Any, frame: _ToWrite) -> None:
        self._target, self._frame = target, frame

    def __getattr__(self, name: str) -> Callable[..., _Writer | None]:
        def call(*given: Any, **options: Any) -> _Writer | None:
            if self._frame.is_tried:
                problem = "it wrote the frame before, or failed: let another observe try again"
                raise ArgumentError("write", problem=problem)
            self._frame.is_tried = True  # and stays so, if this raises
            self._target = getattr(self._target, name)(*given, **options)
            self._frame.is_tried = self._frame.is_written = self._target is None
            return None if self._target is None else self

        return call


def open_output(spark: SparkSession, output: Output, option: str = "written") -> DataFrame:
    """Read what was written, or raise `ArgumentError` if Spark cannot, or may leave rows out."""
    if not isinstance(output, str):
        frame = units.check_frame(option, output, "a frame, path or table's name")
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
    return units.unit_column(frame, rows.salt, rows.unit)


def unit_of(rows: RowNames, frame: DataFrame) -> Column:
    """Return the unit of each row of an output: its column of units, or one of the unit columns."""
    name = rows.unit_name
    if not units.has_columns(frame, [name]):
        return unit_in(rows, frame)
    column, type_ = units.column_named(frame, name)
    if type_.simpleString() != "bigint":
        raise ColumnsError(f"column {name} is {type_.simpleString()}, expected bigint")
    wrong = F.raise_error(F.lit(f"xorack: column {name} is null or 0: the row has no unit"))
    return F.when(column.isNull() | (column == 0), wrong).otherwise(column)


def has_evidence(rows: RowNames, frame: DataFrame) -> bool:
    """Tell whether a frame has the columns of the evidence, complete and exact, or raise."""
    there = [name for name in rows.evidence_names if units.has_columns(frame, [name])]
    gone = ", ".join(name for name in rows.evidence_names if name not in there)
    if there and gone:
        raise ColumnsError(
            f"the output has {', '.join(there)}, and not {gone}: add up all columns of the "
            "evidence, with .agg(…, *rows.evidence(frame))"
        )
    for name in there:
        if (type_ := units.field_named(frame, name).dataType.simpleString()) in ("double", "float"):
            raise ColumnsError(f"column {name} is {type_}, expected bigint: it has lost digits")
    return bool(there)


def evidence_of(rows: RowNames, frame: DataFrame) -> list[Column]:
    """Return the sums of the units that a row of an output stands for."""
    if has_evidence(rows, frame):
        return [F.col(name).cast("long") for name in rows.evidence_names]
    try:
        return [*folding.of_units(unit_of(rows, frame))]
    except ColumnsError as error:
        raise ColumnsError(
            f"the output has neither the evidence of {rows.name!r} "
            f"({', '.join(rows.evidence_names)}) nor its units: {error}"
            f"{_unmarked_files(rows, frame)}"
        ) from None


def _unmarked_files(rows: RowNames, frame: DataFrame) -> str:
    """Say that some Parquet files of an output have evidence, and others do not; else nothing."""
    with suppress(Exception):  # other formats, or other types
        merged = frame.sparkSession.read.option("mergeSchema", "true")
        if units.has_columns(merged.parquet(*frame.inputFiles()), rows.evidence_names):
            return "; some of its files have the evidence: the others are older, or of another job"
    return ""


def total(rows: RowNames, outputs: Sequence[DataFrame]) -> Totals:
    """Sum up the evidence of all outputs."""
    totals = Totals()
    for frame in outputs:
        sums = frame.select(*folding.named(evidence_of(rows, frame)))
        with readable("written", "the output cannot be read, or its evidence is in other columns"):
            totals += folding.totals_of(sums)
    return totals


class Proof(NamedTuple):
    """What a call to finish rests on; see `Report` for its kind and what is stored.

    `outputs` are the frames that read the output; none if it was observed. `given` is as the user
    gave it. A `problem` is why nothing may be sent; a difference goes first.
    """

    kind: str
    totals: Totals
    outputs: Sequence[DataFrame] = ()
    given: Any = None
    files: Files | None = None
    stored: tuple[Stored, ...] = ()
    problem: str = ""


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
    frames = [open_output(rows.tracking.spark, each) for each in outputs]
    if written is None:
        return Proof("read", total(rows, frames), frames, output)
    reads = [_read(rows, header, *pair) for pair in zip(outputs, frames, strict=True)]
    files, stored, are_proved, problems = zip(*reads, strict=True)
    return Proof(
        "written" if all(are_proved) else "read",
        total(rows, frames),
        frames,
        output,
        {name: facts for some in files for name, facts in some.items()},
        tuple(filter(None, stored)),
        next(filter(None, problems), ""),
    )


def as_list(outputs: Any, option: str) -> list[Output]:
    """Return outputs that are given as one or as a list."""
    given = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    if not given:
        raise ArgumentError(option, problem="an empty list, expected one or more outputs")
    return given


def source_of(rows: RowNames, given: Output, frame: DataFrame) -> Header:
    """Return where rows lie that were started, or that a micro-batch reads: see `_read`."""
    return {
        "source": given if isinstance(given, str) else None,
        "folders": storage.folders(storage.files_read(frame), given)[:MAX_NAMED],
        "hidden": storage.hides_files(frame),
        "marked": _is_marked(rows, frame),
    }


def _is_marked(rows: RowNames, frame: DataFrame) -> bool:
    return any(units.has_columns(frame, [name]) for name in (rows.unit_name, *rows.evidence_names))


def _since(rows: RowNames, header: Header) -> int | None:
    """Return when a start's record was written, in ms by its storage; None in a micro-batch."""
    names = storage.files_read(rows.record.chains(header)) if "attempt" in header else []
    files = storage.files_of(rows.tracking.spark, names)
    return max((time for _, time in files.values()), default=None)


def _read(
    rows: RowNames, header: Header, output: Output, frame: DataFrame
) -> tuple[Files, Stored | None, bool, str]:
    """Return an output's files, what is stored, whether it is of this run, and what is wrong."""
    spark, names, mask = frame.sparkSession, storage.files_read(frame), rows.tracking.mask
    files = storage.files_of(spark, names)
    place, stored, problem = str((*storage.folders(names, output), output)[0]), None, ""
    is_table = (
        isinstance(output, str)
        and "/" not in output
        and spark.catalog.getTable(output).tableType in ("MANAGED", "EXTERNAL")  # not a view
    )
    if is_table or (names and storage.reads_plainly(frame)):
        times = sorted(time // _SECOND for _, time in files.values())
        ends = [datetime.fromtimestamp(time, timezone.utc) for time in times[:1] + times[-1:]]
        stored = Stored(place, len(names), sum(size for size, _ in files.values()), *ends)
    # Evidence and units are of this run, unless what was started has them: else files tell it.
    is_marked = _is_marked(rows, frame) and not header["marked"]
    since = None if is_marked else _since(rows, header)
    # Some storage counts seconds: such a time may be any in its second.
    old = [
        name
        for name, (_, time) in files.items()
        if since and time + (0 if time % _SECOND else _SECOND) <= since
    ]
    if any(folder in storage.folders(names, folder) for folder in header["folders"]):
        problem = (
            f"it reads what was started, {place}: give what this job wrote, or read= to prove "
            "the reading alone"
        )
    elif _is_divided(rows, frame, names):
        problem = (
            f"rows of {place} have no evidence: a line break in a value divides a row of CSV, "
            "so read it with multiLine; or leave out what a join has added"
        )
    elif old:
        problem = (
            f"{len(old):,} of {len(files):,} files are older than the start of this run, such as "
            f"{masked_path(min(old), mask)}, and nothing in them tells runs apart: give what this "
            f"job wrote, and keep the column {rows.unit_name} of with_unit in it"
        )
    tells_times = bool(files) and since is not None and not header["hidden"]
    return files, stored, stored is not None and (is_marked or tells_times), problem


def _is_divided(rows: RowNames, frame: DataFrame, names: Sequence[str]) -> bool:
    """Tell whether rows of CSV are without evidence."""
    is_csv = any(".csv" in name.rpartition("/")[2] for name in names)
    without = F.col(rows.evidence_names[1]).isNull()
    return is_csv and has_evidence(rows, frame) and bool(frame.where(without).take(1))


def check_unchanged(run: RunOptions, proof: Proof) -> None:
    """Check that an output is one and has the files that were read, or raise."""
    if proof.problem:
        raise ArgumentError("written", problem=proof.problem)
    files = proof.files or {}
    now = storage.files_of(run.spark, list(files))
    changed = sorted(name for name, facts in files.items() if now.get(name) != facts)
    if changed:
        raise StateError(
            f"the output changed while finish read it: {len(changed):,} of {len(files):,} "
            f"files, such as {masked_path(changed[0], run.mask)}; repeat the call once nobody "
            "writes there"
        )


def per_chain(rows: RowNames, outputs: Sequence[DataFrame]) -> list[DataFrame]:
    """Fold the evidence of each output by chain, where `tells_chains` says that it has chains."""
    return [
        folding.fold_units(frame, rows.chain, evidence_of(rows, frame), rows.prefix)
        for frame in outputs
    ]
