"""The evidence in an output: the sums of the units of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime, timezone
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from xorack.core.errors import ArgumentError, StateError
from xorack.core.masking import masked_path, masked_paths
from xorack.core.text import plural, verb
from xorack.errors import ColumnsError
from xorack.spark import folding, storage, tables, units
from xorack.spark.folding import Totals
from xorack.spark.messages import one_line, readable
from xorack.spark.observing import Observed
from xorack.spark.reading import READ_ALL, check_reading
from xorack.spark.storage import MAX_NAMED, Stored
from xorack.spark.tables import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from xorack.spark.record import Header
    from xorack.spark.run import RowNames, RunOptions

Output = DataFrame | str
"""A frame that reads an output, the path of its Parquet files, or a table's name."""
Place = Output | Snapshot
"""An output, or the version of a table at which it is read."""

_SECOND = 1_000  # in milliseconds


def open_output(tracking: RunOptions, output: Place, option: str = "written") -> DataFrame:
    """Read an output, or raise `ArgumentError` if Spark cannot read it or may skip rows.

    A table with versions is read at its current version, or at that of a `Snapshot`.
    """
    spark, mask = tracking.spark, tracking.mask
    output = tables.pinned(spark, output)
    if not isinstance(output, str | Snapshot):
        frame = units.check_frame(option, output, "a frame, path or table's name")
        if frame.isStreaming:
            problem = "the frame is a stream, expected the frame of a micro-batch, in foreachBatch"
            raise ArgumentError(option, problem=problem)
        check_reading(frame, option)
        return frame
    try:
        frame = _opened(spark, output)
    except Exception as error:  # noqa: BLE001 - Java raises any error
        how, why = "", one_line(error).rstrip(".")
        name = output.words if isinstance(output, Snapshot) else repr(output)
        if "/" in name and "UNABLE_TO_INFER_SCHEMA" in str(error):
            why = "it has no files that Spark reads, or only empty files"
            how = f"; if it has no rows, give a frame: spark.read.schema(…).parquet({name})"
        elif "/" in name:
            how = f"; other formats as a frame: spark.read.format(…).load({name})"
        problem = f"{name} cannot be read: {why}{how}"
        problem = masked_paths(problem, mask)
        raise ArgumentError(option, problem=problem) from None
    check_reading(frame, option)
    return frame


def open_written(
    rows: RowNames, output: Place, option: str = "written", types: Mapping[str, str] | None = None
) -> DataFrame:
    """Read an output of a job, as `open_output` does.

    A partitioned write without rows makes a folder without files. It is an output without rows,
    with columns of these types, by default with those of the evidence.
    """
    try:
        return open_output(rows.tracking, output, option)
    except ArgumentError:
        spark = rows.tracking.spark
        if not isinstance(output, str) or not storage.has_no_files(spark, output):
            raise
    types = types or dict.fromkeys(rows.evidence_names, "long")
    columns = ", ".join(f"{units.quoted(name)} {type_}" for name, type_ in types.items())
    return spark.createDataFrame([], columns)


def open_source(rows: RowNames, header: Header, source: Place) -> DataFrame:
    """Read the input of a job. A folder that has lost all of its files has no rows."""
    types = {**header["chain_types"], **dict(zip(header["unit"], header["types"], strict=True))}
    return open_written(rows, source, "source", types)


def _opened(spark: SparkSession, output: str | Snapshot) -> DataFrame:
    if isinstance(output, Snapshot):
        return tables.read(spark, output)
    if "/" not in output:
        spark.catalog.refreshTable(output)
        frame = spark.read.options(**READ_ALL).table(output)
        _ = frame.schema
        return frame
    # Without a new option, Spark could use its cache instead of the files.
    reader = spark.read.options(xorack=uuid4().hex, **READ_ALL)
    try:
        frame = reader.parquet(output)
        _ = frame.schema
    except AnalysisException:
        if not storage.is_pattern(output):
            raise
        # Read a folder whose name looks like a pattern.
        frame = reader.parquet(output.translate(units.GLOB))
        _ = frame.schema
    return frame


def unit_in(rows: RowNames, frame: DataFrame) -> Column:
    """Return the unit of each row of an input, from its unit columns.

    The column of `with_unit` is not used, because it may come from another run.
    """
    return units.unit_column(frame, rows.namespace, rows.unit)


def unit_of(rows: RowNames, frame: DataFrame) -> Column:
    """Return the unit of each row of an output, from its column of units or its unit columns."""
    name = rows.unit_name
    if not units.has_columns(frame, [name]):
        return unit_in(rows, frame)
    column, type_ = units.column_named(frame, name)
    if type_.simpleString() != "bigint":
        raise ColumnsError(f"column {name} is {type_.simpleString()}, expected bigint")
    wrong = F.raise_error(F.lit(f"xorack: column {name} is null or 0: the row has no unit"))
    return F.when(column.isNull() | (column == 0), wrong).otherwise(column)


def has_evidence(rows: RowNames, frame: DataFrame) -> bool:
    """Return whether a frame has the columns of the evidence.

    Raise an error if they are incomplete or inexact.
    """
    there = [name for name in rows.evidence_names if units.has_columns(frame, [name])]
    gone = ", ".join(name for name in rows.evidence_names if name not in there)
    if there and gone:
        raise ColumnsError(
            f"the output has {', '.join(there)}, and lacks {gone}: add all columns of the "
            "evidence, with .agg(…, *rows.evidence(frame))"
        )
    for name in there:
        if (type_ := units.field_named(frame, name).dataType.simpleString()) in ("double", "float"):
            raise ColumnsError(f"column {name} is {type_}, expected bigint: precision was lost")
    return bool(there)


def evidence_of(rows: RowNames, frame: DataFrame) -> list[Column]:
    """Return the sums of the units from which a row of an output was made."""
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
    """Return a hint if only some files of an output have evidence, or else an empty text."""
    with suppress(Exception):  # the files have other formats or types
        merged = frame.sparkSession.read.option("mergeSchema", "true")
        if units.has_columns(merged.parquet(*frame.inputFiles()), rows.evidence_names):
            return "; only some of its files have evidence: write the files without evidence again"
    return ""


def total(rows: RowNames, outputs: Sequence[DataFrame]) -> Totals:
    """Sum up the evidence of all outputs."""
    return sum((_summed(rows, frame)[0] for frame in outputs), Totals())


def _summed(rows: RowNames, frame: DataFrame, names_files: bool = False) -> tuple[Totals, bool]:
    """Return the sums of an output's evidence, and whether Spark knows the file of each row.

    Spark knows the file of a row until the row is shuffled, cached, or computed from other rows.
    """
    sums = [*folding.named(evidence_of(rows, frame))]
    sums.append((F.input_file_name() if names_files else F.lit("")).alias("file"))
    counts = F.expr("count_if(file = '') AS nameless")
    problem = "the output cannot be read, or its evidence is in other columns"
    with readable("written", problem, rows.tracking.mask):
        sums_row = frame.select(*sums).agg(*folding.together(), counts).first() or (0, 0, 0, 0)
    *totals, nameless = (number or 0 for number in sums_row)
    return Totals(*totals), not nameless


class Evidence(NamedTuple):
    """The evidence for a call to finish; see `Report` for its kind and its storage.

    Attributes:
        outputs: The frames that read the output; empty if it was observed.
        place: The output as the user gave it.
        files: The files of the outputs when they were read.
        since: When the record of the start was written, in ms by its storage; None if the output
            itself shows its run.
        is_output: False if the job only read or observed the rows.
        snapshots: The versions of the tables among the outputs.
    """

    kind: str
    totals: Totals
    outputs: Sequence[DataFrame] = ()
    place: Any = None
    files: Mapping[str, tuple[int, int]] = MappingProxyType({})
    stored: tuple[Stored, ...] = ()
    since: int | None = None
    is_output: bool = False
    snapshots: tuple[Snapshot, ...] = ()


def collect_evidence(
    rows: RowNames,
    header: Header,
    written: Place | Sequence[Place] | None,
    observed: Observed | None = None,
    read: DataFrame | None = None,
) -> Evidence:
    """Collect the evidence of the output.

    Exactly one of `written`, `observed` and `read` must be given.
    """
    forms = {"written": written, "observed": observed, "read": read}
    kinds = [kind for kind, output in forms.items() if output is not None]
    if len(kinds) != 1:
        passed = " and ".join(kinds) or "no output"
        raise ArgumentError(
            "written", problem=f"{passed} given, expected one of {', '.join(forms)}"
        )
    rows.tracking.jobs.end(rows.namespace)
    if observed is not None:
        if not isinstance(observed, Observed):
            raise ArgumentError("observed", observed, "the result of observe()")
        return Evidence("observed", observed.totals())
    output = read if written is None else written
    outputs = [tables.pinned(rows.tracking.spark, each) for each in as_list(output, "written")]
    frames = [open_written(rows, each) for each in outputs]
    if written is None:
        return Evidence("read", total(rows, frames), frames, output)
    parts = [_read(rows, header, *pair) for pair in zip(outputs, frames, strict=True)]
    return Evidence(
        "written" if all(part.kind == "written" for part in parts) else "read",
        sum((part.totals for part in parts), Totals()),
        frames,
        output,
        {name: facts for part in parts for name, facts in part.files.items()},
        tuple(stored for part in parts for stored in part.stored),
        max((part.since for part in parts if part.since is not None), default=None),
        is_output=True,
        snapshots=tuple(output for output in outputs if isinstance(output, Snapshot)),
    )


def as_list(outputs: Any, option: str) -> list[Any]:
    """Return a single output or a list of outputs as a list."""
    listed = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    if not listed:
        raise ArgumentError(option, problem="an empty list, expected one or more outputs")
    return listed


def frames_in(frames: DataFrame | Sequence[DataFrame]) -> list[DataFrame]:
    """Return the aggregated frames, which the user gave as one frame or as a list."""
    return [units.check_frame("rows", frame) for frame in as_list(frames, "rows")]


def source_of(rows: RowNames, place: Place, frame: DataFrame) -> Header:
    """Return the storage of rows that were started, or that a micro-batch reads; see `_read`."""
    names = storage.files_read(frame)
    name = place.name if isinstance(place, Snapshot) else place
    snapshot = asdict(place) if isinstance(place, Snapshot) else None
    return {
        "source": name if isinstance(name, str) else None,
        "folders": storage.folders(names, name)[:MAX_NAMED],
        "snapshot": snapshot,
        "hidden": not names and snapshot is None,
        "marked": names_run(rows, frame),
    }


def names_run(rows: RowNames, frame: DataFrame) -> bool:
    """Return whether a frame has units or evidence, which name their run."""
    return any(units.has_columns(frame, [name]) for name in (rows.unit_name, *rows.evidence_names))


def _read(rows: RowNames, header: Header, output: Output | Snapshot, frame: DataFrame) -> Evidence:
    """Return the evidence of one output."""
    spark, names = frame.sparkSession, storage.files_read(frame)
    name = output.name if isinstance(output, Snapshot) else output
    place = str((*storage.folders(names, name), name)[0])
    # Evidence and units name the run, unless the started rows have these columns too. Then the
    # times of files show the run.
    is_marked = names_run(rows, frame) and not header["marked"]
    has_record = "attempt" in header and not is_marked
    records = storage.files_read(rows.record.chains(header)) if has_record else []
    existing = storage.files_of(spark, [*names, *records])
    files = {name: existing[name] for name in names if name in existing}
    since = max((existing[name][1] for name in records if name in existing), default=None)
    is_table = (
        isinstance(output, str)
        and "/" not in output
        and spark.catalog.getTable(output).tableType in ("MANAGED", "EXTERNAL")  # not a view
    )
    has_names = bool(names) and names_files(frame)
    totals, is_of_files = _summed(rows, frame, has_names)
    stored: tuple[Stored, ...] = ()
    if is_table or (has_names and is_of_files):
        times = sorted(time // _SECOND for _, time in files.values())
        ends = [datetime.fromtimestamp(time, timezone.utc) for time in times[:1] + times[-1:]]
        first, last = ends or (None, None)
        size = sum(size for size, _ in files.values())
        folder = masked_path(place, rows.tracking.mask)
        stored = (Stored(folder, len(names), size, first, last),)
    if isinstance(output, Snapshot):
        stored = (tables.stored(spark, output),)
    tells_times = bool(files) and since is not None and not header["hidden"]
    kind = "written" if stored and (is_marked or tells_times) else "read"
    return Evidence(kind, totals, (frame,), output, files, stored, since)


def names_files(frame: DataFrame) -> bool:
    """Return whether Spark can name the file of each row, which it cannot after a join."""
    try:
        return bool(frame.select(F.input_file_name()).schema)
    except AnalysisException:
        return False


def check_output(rows: RowNames, header: Header, evidence: Evidence) -> None:
    """Check that evidence comes from an unchanged output of this job, or raise an error."""
    mask, files = rows.tracking.mask, evidence.files
    for snapshot in evidence.snapshots:
        source = tables.started(header)
        if source and (source.identity, source.version) == (snapshot.identity, snapshot.version):
            _refuse_source(snapshot.words)
        tables.check_unchanged(rows.tracking.spark, snapshot)
    for frame in evidence.outputs if evidence.is_output else ():
        names = storage.files_read(frame)
        started = [f for f in header["folders"] if f in storage.folders(names, f)]
        if started:
            _refuse_source(masked_path(started[0], mask))
        is_csv = any(".csv" in name.rpartition("/")[2] for name in names)
        without = F.col(rows.evidence_names[1]).isNull()
        if is_csv and has_evidence(rows, frame) and frame.where(without).select(F.lit(1)).take(1):
            problem = (
                "rows of CSV have no evidence: if line breaks divide rows, read the files with "
                "multiLine; if a join added rows, leave these out"
            )
            raise ArgumentError("written", problem=problem)
    since = evidence.since
    old = [name for name, (_, time) in files.items() if since and _latest(time) <= since]
    if old:
        problem = (
            f"{len(old):,} of {plural(len(files), 'file')} {verb(len(old))} older than the start "
            f"of this run, such as {masked_path(min(old), mask)}, and "
            f"{verb(len(old), 'does', 'do')} not show {verb(len(old), 'its', 'their')} run: pass "
            f"this job's output, and keep the column {rows.unit_name} of with_unit in it"
        )
        raise ArgumentError("written", problem=problem)
    now = storage.files_of(rows.tracking.spark, list(files))
    changed = sorted(name for name, facts in files.items() if now.get(name) != facts)
    if changed:
        raise StateError(
            f"the output changed while finish read it: {len(changed):,} of {len(files):,} "
            f"files, such as {masked_path(changed[0], mask)}; repeat the call when no job "
            "writes there"
        )


def _latest(time: int) -> int:
    """Return the latest time of a file, because some storage rounds down to full seconds."""
    return time + (0 if time % _SECOND else _SECOND)


def _refuse_source(place: str) -> None:
    problem = (
        f"the frame reads the rows that were started, {place}: pass this job's output, or read= to "
        "check only the input"
    )
    raise ArgumentError("written", problem=problem)


def per_chain(rows: RowNames, outputs: Sequence[DataFrame]) -> list[DataFrame]:
    """Fold the evidence of each output by chain. `tells_chains` must be true for the outputs."""
    return [
        folding.fold_units(frame, rows.chain, evidence_of(rows, frame), rows.prefix)
        for frame in outputs
    ]
