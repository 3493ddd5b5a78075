"""The evidence that an output carries: what the units in what was written add up to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from xorack.core.errors import ArgumentError, StateError
from xorack.spark.errors import ColumnsError
from xorack.spark.folding import SUMS, Totals, fold_units, metrics_of, named, of_units, together
from xorack.spark.messages import one_line, readable
from xorack.spark.reading import WHOLE, check_reading
from xorack.spark.storage import (
    MOST,
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
_MAX_NAMES, _MAX_FRAMES = 1_000, 4
_UNKNOWN, _END = "evidence without a frame", "finish"
_ASKED: dict[tuple[str, str], list[DataFrame | str]] = {}
"""By records and salt: the frames that `evidence` was given since the last job ended."""


def remember(rows: RowNames, frame: DataFrame | None) -> None:
    """Keep a frame whose rows go into an output, until the job after this one."""
    if len(_ASKED) >= _MAX_NAMES:
        _ASKED.clear()
    key = (rows.tracking.records, rows.salt)
    before = _ASKED.get(key, [])
    has_ended = any(one is _END for one in before)
    kept = [] if has_ended else [one for one in before if one is not frame]
    _ASKED[key] = [*kept, _UNKNOWN if frame is None else frame][-_MAX_FRAMES:]


def job_ends(rows: RowNames) -> None:
    """Note that a job calls finish: the next frame is of another one."""
    if (before := _ASKED.get((rows.tracking.records, rows.salt), [_END]))[-1] is not _END:
        before.append(_END)


def forget(rows: RowNames) -> None:
    """Forget the frames of an output that is whole: what differs later is another one."""
    _ASKED.pop((rows.tracking.records, rows.salt), None)


def remembered(rows: RowNames) -> list[DataFrame]:
    """Return the frames of a job, the last one first, up to an output of unknown rows."""
    frames: list[DataFrame] = []
    for one in reversed(_ASKED.get((rows.tracking.records, rows.salt), [])):
        if one is _UNKNOWN:
            break
        frames += [] if isinstance(one, str) else [one]
    return frames


_SECOND = 1_000  # in milliseconds


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
        """Let a function write the frame, once; the observation is of the write that returned.

        Raises:
            ArgumentError: It did not write the frame, or wrote it twice.
        """
        handed = _Handed(self)
        write(handed)
        if not handed.writes:
            raise ArgumentError("write", problem="it did not write the frame that it was given")
        return next(iter(handed.writes.values()))

    def totals(self) -> Totals:
        """Return what the tasks received.

        Raises:
            ArgumentError: The frame was not written.
        """
        sums = metrics_of(self.observation)
        if sums is None:
            raise ArgumentError("observed", problem="its frame was not written")
        return Totals(*(sums[name] or 0 for name in SUMS))


class _Handed:
    """What a function may do with the frame that it is to write: write it, once."""

    def __init__(self, given: Observed) -> None:
        self._given, self.writes = given, dict[str, Observed]()

    def __getattr__(self, name: str) -> Any:
        frame, source = self._given.frame, self._given.source
        if name in ("columns", "schema"):
            return getattr(frame, name)
        # Each attempt to write has an observation of its own: Spark has those that fail, too.
        names = [one for one in source.columns if one not in frame.columns]
        observed = Observed.of(source, names)
        if name == "write":
            return _Writer(observed.frame.write, [observed], self.writes)
        if name == "writeTo":
            return lambda to: _Writer(observed.frame.writeTo(to), [observed], self.writes)
        raise ArgumentError("write", problem=f"the frame may only be written: .{name} is no write")


class _Writer:
    """A writer of Spark's, whose options return it and whose one action returns nothing."""

    def __init__(self, target: Any, unused: list[Observed], writes: dict[str, Observed]) -> None:
        self._target, self._unused, self._writes = target, unused, writes

    def __getattr__(self, name: str) -> Callable[..., _Writer | None]:
        def call(*given: Any, **options: Any) -> _Writer | None:
            if self._writes:
                action = next(iter(self._writes))
                raise ArgumentError("write", problem=f"it wrote before: .{action}(…)")
            if not self._unused:
                raise ArgumentError("write", problem="this writer failed before: take a new .write")
            # If the call raises, its observation stays used: Spark has the one of a failed write.
            observed = self._unused.pop()
            result = getattr(self._target, name)(*given, **options)
            if result is None:  # an action: it has written
                self._writes[name] = observed
                return None
            self._unused.append(observed)
            return _Writer(result, self._unused, self._writes)

        return call


def open_output(spark: SparkSession, output: Output, option: str = "written") -> DataFrame:
    """Read what was written, given as the argument ``option``.

    Raises:
        ArgumentError: There is nothing that can be read, or Spark may leave some of it out.
    """
    if not isinstance(output, str):
        frame = check_frame(option, output, "a frame, path or table's name")
        check_reading(frame, option)
        return frame
    try:
        if "/" in output:
            # Spark would take what it has in its cache for what lies on disk: not with an option.
            frame = spark.read.options(xorack=uuid4().hex, **WHOLE).parquet(output)
        else:
            spark.catalog.refreshTable(output)
            frame = spark.read.options(**WHOLE).table(output)
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
    """Return the unit of each row of an output: its column of units, or one of the unit columns.

    Raises:
        ColumnsError: The frame has neither.
    """
    name = rows.unit_name
    if not has_columns(frame, [name]):
        return unit_in(rows, frame)
    column, type_ = column_named(frame, name)
    if type_.simpleString() != "bigint":
        raise ColumnsError(f"column {name} is {type_.simpleString()}, expected bigint")
    wrong = F.raise_error(F.lit(f"xorack: column {name} is null or 0: the row has no unit"))
    return F.when(column.isNull() | (column == 0), wrong).otherwise(column)


def has_evidence(rows: RowNames, frame: DataFrame) -> bool:
    """Tell whether a frame has the columns of the evidence.

    Raises:
        ColumnsError: It has some of them, or they have lost precision.
    """
    there = [name for name in rows.evidence_names if has_columns(frame, [name])]
    if there and len(there) < len(rows.evidence_names):
        lost = ", ".join(name for name in rows.evidence_names if name not in there)
        raise ColumnsError(
            f"the output has {', '.join(there)}, and lacks {lost}: add up all columns of the "
            f"evidence, with .agg(…, *rows.evidence(frame))"
        )
    for name in there:
        type_ = field_named(frame, name).dataType.simpleString()
        if type_ in _INEXACT:
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
        problem = "the output cannot be read, or its evidence is in other columns"
        with readable("written", problem):
            first = sums.agg(*together()).first()
        totals += Totals(*(value or 0 for value in first or ()))
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
    reads = [_Read.of(rows, header, *one) for one in zip(outputs, frames, strict=True)]
    files = {name: facts for one in reads for name, facts in one.files.items()}
    stored = [one.stored() for one in reads]
    since = None if all(one.is_marked for one in reads) else _since(rows, header)
    unproved = None in stored or any(one.may_be_older(header, since) for one in reads)
    kept = tuple(one for one in stored if one is not None)
    problem = next(filter(None, (one.problem(rows, header, since) for one in reads)), None)
    kind = "read" if unproved else "written"
    return Proof(kind, total(rows, frames), frames, output, files, kept, problem)


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
        "folders": folders(files_read(frame), given)[:MOST],
        "hidden": hides_files(frame),
        "marked": _is_marked(rows, frame),
    }


def _is_marked(rows: RowNames, frame: DataFrame) -> bool:
    return any(has_columns(frame, [name]) for name in (rows.unit_name, *rows.evidence_names))


def _since(rows: RowNames, header: Header) -> int | None:
    """Return when the record of a start was written, in milliseconds, by its storage's clock.

    None in a micro-batch, which has no record.
    """
    if "attempt" not in header:
        return None
    chains = rows.record.chains(header)
    files = files_of(chains.sparkSession, files_read(chains))
    return max((time for _, time in files.values()), default=None)


class _Read(NamedTuple):
    """An output: as it was given, what reads it, its files, and whether it is a table.

    It is marked if its rows carry evidence or units, and what was started does not: then they are
    of this run, and nothing else has to tell so.
    """

    output: Output
    frame: DataFrame
    names: Sequence[str]
    files: Files
    is_table: bool
    is_marked: bool

    @classmethod
    def of(cls, rows: RowNames, header: Header, output: Output, frame: DataFrame) -> _Read:
        spark, names = frame.sparkSession, files_read(frame)
        is_table = (
            isinstance(output, str)
            and "/" not in output
            and spark.catalog.getTable(output).tableType in ("MANAGED", "EXTERNAL")  # not a view
        )
        files = files_of(spark, names) if names else {}
        is_marked = _is_marked(rows, frame) and not header["marked"]
        return cls(output, frame, names, files, is_table, is_marked)

    def stored(self) -> Stored | None:
        """Sum its files up; None if it shows nothing stored."""
        if not self.is_table and (not self.names or not reads_plainly(self.frame)):
            return None
        times = sorted(time for _, time in self.files.values())
        ends = [
            datetime.fromtimestamp(one // _SECOND, timezone.utc) for one in times[:1] + times[-1:]
        ]
        size = sum(size for size, _ in self.files.values())
        return Stored(self.place, len(self.names), size, *ends)

    @property
    def place(self) -> str:
        """Where it lies."""
        return str((*folders(self.names, self.output), self.output)[0])

    def may_be_older(self, header: Header, since: int | None) -> bool:
        """Tell whether nothing shows that its rows were written for this start."""
        return not self.is_marked and (since is None or header["hidden"] or not self.files)

    def problem(self, rows: RowNames, header: Header, since: int | None) -> ArgumentError | None:
        """Return an error if it is what was started, or unmarked and older than the start."""
        if any(lies_in(name, place) for place in header["folders"] for name in self.names):
            return ArgumentError(
                "written",
                problem=f"it reads what was started, {self.place}: give what this job wrote, or "
                "read= to prove the reading alone",
            )
        count = F.col(rows.evidence_names[1])
        is_csv = any(".csv" in name.rpartition("/")[2] for name in self.names)
        if is_csv and has_evidence(rows, self.frame) and self.frame.where(count.isNull()).take(1):
            return ArgumentError(
                "written",
                problem=f"rows of {self.place} have no evidence: a line break in a value divides a "
                "row of CSV, so read it with multiLine; or leave out what a join has added",
            )
        # Some storage tells whole seconds: such a time may be any in its second.
        old = [
            name
            for name, (_, time) in self.files.items()
            if since and time + (0 if time % _SECOND else _SECOND) <= since
        ]
        if self.is_marked or not old:
            return None
        return ArgumentError(
            "written",
            problem=f"{len(old):,} of {len(self.files):,} files are older than the start of this "
            f"run, such as {min(old)}, and nothing in them tells runs apart: give what this job "
            f"wrote, and keep the column {rows.unit_name} of with_unit in it",
        )


def check_unchanged(spark: SparkSession, proof: Proof) -> None:
    """Check that an output is one, and compare its files with those that were read.

    Raises:
        ArgumentError: It is what was started.
        StateError: Some files are gone, or were written again.
    """
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
