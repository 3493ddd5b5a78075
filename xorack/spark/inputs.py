"""The files of an input: check that Spark reads all of them, and find changed files."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException

from xorack.core.errors import ArgumentError
from xorack.core.masking import masked_path, masked_paths
from xorack.core.text import cut, plural, verb
from xorack.errors import OutputDiffersError
from xorack.spark.messages import one_line
from xorack.spark.missing.telling import chains_in_words, units_in_words
from xorack.spark.reading import check_reading, options_of
from xorack.spark.record import summary_in
from xorack.spark.storage import (
    MAX_NAMED,
    broken_links,
    files_below,
    files_of,
    files_read,
    hidden_below,
    is_pattern,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from xorack.spark.evidence import Place
    from xorack.spark.outcome import Lost
    from xorack.spark.record import Header
    from xorack.spark.run import RowNames
    from xorack.spark.storage import Files

_EXAMPLES = 3
_LISTING = ("recursivefilelookup", "pathglobfilter")
"""Options of a source that decide which files it reads."""
_BINARY = (".parquet", ".orc", ".avro")
"""Endings of formats whose valid files are never empty."""
_ALL_AGES = r"\d{5,}d"
"""Values of ``maxFileAge`` that are longer than any file is old."""
_MAX_PLACES = 100
"""Most folders of a table that are searched for hidden names and broken links."""


def files_started(frame: DataFrame) -> Files:
    """Return the files that a frame reads, with sizes and times; no files above `MAX_NAMED`."""
    names = files_read(frame)
    return files_of(frame.sparkSession, names if len(names) <= MAX_NAMED else [])


def check_stream(rows: RowNames, frame: DataFrame) -> int:
    """Check the folders of a stream's source; see `TrackedRows.check_stream`."""
    check_reading(frame, "frame")
    skipped = 0
    for options in options_of(frame):
        lowered = {name.lower(): value for name, value in options.items()}
        if (path := lowered.get("path")) is None:
            continue
        listing = {name: lowered[name] for name in _LISTING if name in lowered}
        _check_late_files(rows, lowered)
        reader = rows.tracking.spark.read.format("binaryFile").options(**listing)
        try:
            listed = reader.load(path)
        except AnalysisException as error:
            problem = f"{path!r} cannot be read: {one_line(error).rstrip('.')}"
            if is_pattern(path):
                problem += "; [ ] { } * ? and backslash are patterns: put a backslash before each"
            problem = masked_paths(problem, rows.tracking.mask)
            raise ArgumentError("frame", problem=problem) from None
        skipped += check_all_is_read(rows, path, listed, "frame")
    return skipped


def _check_late_files(rows: RowNames, options: Mapping[str, str]) -> None:
    """Refuse options of a stream with which Spark leaves out files that arrive later.

    Spark reads the first files of any age. Later it leaves out each file that is more than
    `maxFileAge`, by default 7 days, older than the newest file that it has read. It ignores
    this option if it reads the latest files first, and a number of them at a time.
    """
    if options.get("filenameonly", "").lower() == "true":
        problem = (
            "fileNameOnly is true: Spark leaves out, without an error, a file whose name it has "
            "read in another folder; remove it"
        )
        raise ArgumentError("frame", problem=problem)
    is_latest_first = options.get("latestfirst", "").lower() == "true"
    if is_latest_first and "maxfilespertrigger" in options:
        return
    age = options.get("maxfileage")
    if re.fullmatch(_ALL_AGES, age or ""):
        return
    how = 'give the stream .option("maxFileAge", "36500d")'
    what = (
        f"Spark leaves out, without an error, files that arrive later and are more than "
        f"{age or '7d'} older than the newest file that it has read; {how}"
    )
    if age is not None:
        raise ArgumentError("frame", problem=f"maxFileAge is {age}: {what}")
    warnings.warn(f"{rows.name}: {what}", stacklevel=4)


def check_all_is_read(
    rows: RowNames, place: Place, frame: DataFrame, argument: str = "written"
) -> int:
    """Return the number of names that Spark skips; raise `ArgumentError` if it may skip rows."""
    spark, mask = frame.sparkSession, rows.tracking.mask
    names, is_stream = files_read(frame), argument == "frame"
    if not names and not is_stream:
        return 0
    is_path = is_stream or (isinstance(place, str) and "/" in place)
    leaves = {_folder_of(name) for name in names}
    places = [place] if isinstance(place, str) and is_path and not is_pattern(place) else [*leaves]
    below = files_below(spark, places)
    endings = "" if is_path and not is_stream else _BINARY
    empty = [name for name in names if name not in below and name.endswith(endings)]
    empty = [name for name in empty if "_$folder$" not in name]
    empty += [name for each in places[:_MAX_PLACES] for name in broken_links(spark, each)]
    if empty:
        problem = (
            f"{len(empty):,} of {plural(len(names), 'file')} {verb(len(empty))} empty or missing, "
            f"such as {masked_path(min(empty), mask)}: Spark skips empty files and broken links "
            "without an error; write them again, or remove them"
        )
        raise ArgumentError(argument, problem=problem)
    if not isinstance(place, str):
        return 0
    nested = [name for name in below if _folder_of(name) not in leaves]
    if nested and (is_path or _is_of_folders(spark, place)):
        count = plural(len(nested), "file in a subfolder is", "files in subfolders are")
        problem = (
            f"{count} not read, such as "
            f"{masked_path(min(nested), mask)}: Spark reads partitions, or the files of a folder; "
            "move them up, or give a frame that is read with recursiveFileLookup"
        )
        raise ArgumentError(argument, problem=problem)
    return _count_hidden(rows, places)


def _folder_of(name: str) -> str:
    return name.rpartition("/")[0]


def _count_hidden(rows: RowNames, places: Sequence[str]) -> int:
    """Return the number of names that Spark hides in folders, and warn of them."""
    spark, mask = rows.tracking.spark, rows.tracking.mask
    hidden = [name for place in places[:_MAX_PLACES] for name in hidden_below(spark, place)]
    if hidden:
        whose = "file or folder because of its name", "files or folders because of their names"
        count = plural(len(hidden), *whose)
        warnings.warn(
            f"{rows.name}: Spark does not read {count}, such as {masked_path(min(hidden), mask)}",
            stacklevel=6,
        )
    return len(hidden)


def _is_of_folders(spark: SparkSession, table: str) -> bool:
    """Return whether a table consists of all files in its folders, as in Hive."""
    provider = [
        row["data_type"].lower()
        for row in spark.sql(f"DESCRIBE TABLE EXTENDED {table}").collect()
        if row["col_name"] == "Provider"
    ]
    return not {*provider} & {"delta", "hudi", "iceberg", "paimon"}


def input_lost(
    rows: RowNames, header: Header, lost: Lost, *, advances: bool = False
) -> OutputDiffersError:
    """Make the error for an input that lost rows, if the output has all rows of this input."""
    summary, missing = summary_in(header), lost.missing
    started, acked = summary.count, None if advances else summary.chains - lost.open_chains
    why = f"the job's input lost {plural(missing, 'row that was', 'rows that were')} started"
    changes = _changes(rows, header)
    why += f": {'; '.join(changes)}" if changes else ""
    head = f"{units_in_words(started - missing, started, rows.name)}: "
    head += chains_in_words((), acked, summary.chains, is_least=lost.is_at_most)
    how = "bring the rows back and repeat the job, or pass allow_missing=True to get the report"
    text = "\n".join([head, why, how])
    return OutputDiffersError(text, started, started - missing, why=why)


def _changes(rows: RowNames, header: Header) -> list[str]:
    """Say which files of the input are missing, or were rewritten."""
    before = {name: tuple(facts) for name, facts in header.get("files", {}).items()}
    now = files_of(rows.tracking.spark, list(before))
    changes = {
        "missing or empty": sorted(before.keys() - now.keys()),
        "changed": sorted(name for name in now if now[name] != before[name]),
    }
    texts = []
    for what, names in changes.items():
        examples = ", ".join(
            cut([masked_path(name, rows.tracking.mask) for name in names], _EXAMPLES)
        )
        if names:
            texts.append(
                f"{len(names):,} of {plural(len(before), 'file')} {verb(len(names))} {what} since "
                f"then: {examples}"
            )
    return texts
