"""The files behind a frame, and small texts in storage, without a Spark job where possible.

A classic session asks Hadoop's file system on the driver. Spark Connect cannot do this, so it runs
a small job instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote
from uuid import uuid4

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from xorack.core.text import plural
from xorack.spark.units import GLOB

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Output = DataFrame | str
    Files = dict[str, tuple[int, int]]

_LOCAL = "file:"
MAX_NAMED = 1_000
"""Most folders and files that a record names."""
_MAX_DEPTH = 8
"""Levels of subfolders that are searched for hidden names."""
_OF_WRITERS = re.compile(
    r"_SUCCESS|_(common_)?metadata|_(committed|started)_.*|_delta_log|_spark_metadata|\..*\.crc"
)
"""Hidden names that hold no rows."""
_STATUS = re.compile(
    r"\w+\{path=(.*); isDirectory=false; length=(\d+); .*; modification_time=(\d+);"
)
"""A file as Hadoop's ``FileStatus`` shows it."""


class Stored(NamedTuple):
    """The storage of an output: its first folder, and the number, bytes and times of its files.

    For a table with versions, the folder is its name, and the version is a snapshot of Iceberg or a
    version of Delta. The times are those of its commit.
    """

    folder: str
    files: int
    bytes: int
    first: datetime | None = None
    last: datetime | None = None
    version: int | None = None

    def __str__(self) -> str:
        words = self.folder if self.version is None else f"{self.folder} at {self.version}"
        files = plural(self.files, "file"), plural(self.bytes, "byte")
        words += f", {', '.join(files)}" if self.files else ""
        return words + (f", of {self.last:%Y-%m-%d %H:%M:%S} UTC" if self.last else "")


def files_read(frame: DataFrame) -> list[str]:
    """Return the files that a frame reads, as Hadoop writes paths; no files for other sources.

    The result lacks the files of micro-batches and caches, because Spark does not name them.
    """
    untyped: Any = frame
    # Make one call, because a call for each of 20,000 files takes seconds.
    if hasattr(untyped, "_jdf"):
        texts = untyped.sparkSession._jvm.org.apache.hadoop.util.StringUtils
        uris = texts.join("\n", untyped._jdf.inputFiles()).splitlines()
    else:
        uris = frame.inputFiles()
    return sorted({_plain(unquote(uri)) for uri in uris})


def _plain(uri: str) -> str:
    """Put one slash after a path's scheme, because Java and Hadoop write different numbers."""
    return re.sub(r"^(\w[\w+.-]*):/+", r"\1:/", uri)


def folders(names: Sequence[str], place: Output = "") -> list[str]:
    """Return the folders of files. Partitions below the path `place` do not count as folders."""
    last = place.rstrip("/").rpartition("/")[2] if isinstance(place, str) and "/" in place else ""

    def above(folder: str) -> str:
        outer, _, part = folder.rpartition("/")
        return above(outer) if last and part != last and "=" in part else folder

    return sorted({above(folder) for folder in {name.rpartition("/")[0] for name in names}})


def files_of(spark: SparkSession, names: Sequence[str]) -> Files:
    """Return the sizes of existing files in bytes, and their times in milliseconds since 1970.

    The result lacks empty files and hidden files, because Spark does not list them.
    """
    existing = files_below(spark, {name.rpartition("/")[0] for name in names})
    return {name: existing[name] for name in names if name in existing}


def is_pattern(path: str) -> bool:
    """Return whether Spark treats a path as a pattern."""
    return path.translate(GLOB) != path


def files_below(spark: SparkSession, places: Iterable[str]) -> Files:
    """Return all files in folders and in their subfolders, as `files_of` does."""
    places = [*places]
    if not (escaped := [place.translate(GLOB) for place in places]):
        return {}
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", True)
    try:
        frame = reader.load(escaped)
        if (listed := _listed(frame)) is None:
            facts = "path", "length", F.unix_millis("modificationTime")
            listed = [tuple(row) for row in frame.select(*facts).collect()]
    except AnalysisException:  # one of the folders does not exist
        half = len(places) // 2
        return files_below(spark, places[:half]) | files_below(spark, places[half:]) if half else {}
    return {_plain(path): (size, time) for path, size, time in listed}


def has_no_files(spark: SparkSession, folder: str) -> bool:
    """Return whether a path is a folder without files that Spark reads, also in its subfolders."""
    if "/" not in folder:
        return False
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", True)
    with suppress(AnalysisException):  # the folder does not exist
        return not reader.load(folder.translate(GLOB)).inputFiles()
    return False


def _listed(frame: Any) -> list[tuple[str, int, int]] | None:
    """Return path, size and time of the files that a frame reads, without a job.

    Return None if Java does not show them, as with Spark Connect.
    """
    if not hasattr(frame, "_jdf"):
        return None
    source = frame._jdf.queryExecution().analyzed().collectLeaves().head().relation()
    # Make one call for all files.
    texts = source.location().allFiles().mkString("\n").splitlines()
    matches = [*map(_STATUS.match, texts)]
    if not all(matches):
        return None
    files = [(match[1], int(match[2]), int(match[3])) for match in matches if match]
    return [file for file in files if file[1]]


def hidden_below(spark: SparkSession, folder: str) -> list[str]:
    """Return the files and folders below a folder whose names Spark hides.

    With Spark Connect, the result is empty.

    The result lacks names that writers use for themselves, such as ``_SUCCESS`` and checksums. A
    hidden folder is in the result, but the files in it are not.
    """
    if not hasattr(spark, "_jvm"):
        return []
    java, hidden = _java(spark), list[str]()
    system, path = _hadoop(spark, folder)
    level = system.makeQualified(path).toString().translate(GLOB)
    for depth in range(1, _MAX_DEPTH + 1):
        level += "/*"
        paths = java.wrap(java.paths(system.globStatus(java.Path(level))))
        names = paths.mkString("\n").splitlines()
        for name in names:
            *above, last = name.split("/")[-depth:]
            if _is_hidden(last) and not any(map(_is_hidden, above)):
                hidden.append(_plain(name))
        if not 0 < len(names) <= MAX_NAMED:
            break
    return [path for path in hidden if not _OF_WRITERS.fullmatch(path.rpartition("/")[2])]


def broken_links(spark: SparkSession, folder: str) -> list[str]:
    """Return the broken links below a local folder, which Hadoop does not list."""
    if not hasattr(spark, "_jvm"):
        return []
    system, path = _hadoop(spark, folder)
    place = system.makeQualified(path).toString()
    if not place.startswith(_LOCAL):
        return []
    paths = Path(place.removeprefix(_LOCAL)).rglob("*")
    return [f"{_LOCAL}{path}" for path in paths if path.is_symlink() and not path.exists()]


def _is_hidden(name: str) -> bool:
    """Return whether Spark skips a file or folder with this name."""
    is_odd = name.startswith((".", "_")) and not (name.startswith("_") and "=" in name)
    return is_odd or name.endswith("._COPYING_")


def write_text(spark: SparkSession, folder: str, text: str) -> None:
    """Write a text of one line to a folder of its own, and replace an earlier text."""
    if not hasattr(spark, "_jvm"):
        frame = spark.range(0, 1, 1, 1).select(F.lit(text).alias("value"))
        frame.write.mode("overwrite").text(folder)
        return
    system, path = _hadoop(spark, folder)
    place = system.makeQualified(path).toString()
    name, data = f"part-{uuid4().hex}.txt", f"{text}\n".encode()
    # If the process dies, it leaves a draft, and never a part of a text.
    if place.startswith(_LOCAL):  # Hadoop starts processes here, to set permissions
        local = Path(place.removeprefix(_LOCAL))
        local.mkdir(parents=True, exist_ok=True)
        for old in local.iterdir():
            old.unlink(missing_ok=True)
        (local / "_draft").write_bytes(data)
        (local / "_draft").rename(local / name)
        return
    system.delete(path, True)
    java = _java(spark)
    with closing(system.create(draft := java.Path(path, "_draft"))) as stream:
        stream.write(bytearray(data))
    if not system.rename(draft, java.Path(path, name)):
        raise OSError(f"{folder}: the text could not be renamed; check the permissions, and retry")


def read_texts(spark: SparkSession, pattern: str) -> list[str]:
    """Read the lines of all texts in the folders that match a pattern."""
    if not hasattr(spark, "_jvm"):
        return _scan(spark, pattern)
    system, path = _hadoop(spark, f"{pattern}/part-*")
    java = _java(spark)
    while True:
        # Make one call for all files, and list only paths. To read more than paths, Hadoop starts
        # processes.
        places = java.wrap(java.paths(system.globStatus(path))).mkString("\n").splitlines()
        with suppress(FileNotFoundError):  # a text was replaced during the reading, so list again
            return [line for place in places for line in _text(spark, place)]


def read_lines(spark: SparkSession, file: str) -> list[str]:
    """Read the lines of a file that may change; no lines if it does not exist."""
    if not hasattr(spark, "_jvm"):
        return _scan(spark, file.translate(GLOB))
    with suppress(FileNotFoundError):
        return _lines(spark, file)
    return []


def _scan(spark: SparkSession, pattern: str) -> list[str]:
    try:
        return [row["value"] for row in spark.read.text(pattern).collect()]
    except AnalysisException as error:
        if "PATH_NOT_FOUND" in str(error) or "Path does not exist" in str(error):
            return []
        raise


@lru_cache(maxsize=10_000)
def _text(spark: Any, path: str) -> list[str]:
    """Read a text once, because each text has a path of its own."""
    return _lines(spark, path)


def _lines(spark: Any, path: str) -> list[str]:
    """Read the lines of a file through Hadoop, or raise `FileNotFoundError`."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    system, place = _hadoop(spark, path)
    try:
        stream = system.open(place)
    except Py4JJavaError as error:
        if error.java_exception.getClass().getSimpleName() == "FileNotFoundException":
            raise FileNotFoundError(path) from None
        raise
    with closing(stream):
        return bytes(stream.readAllBytes()).decode().splitlines()


@lru_cache(maxsize=4)
def _java(spark: Any) -> SimpleNamespace:
    """Return Java's classes.

    They are looked up once, because each part of a class's name takes a call.

    The settings are those of the session at the first use.
    """
    hadoop = spark._jvm.org.apache.hadoop.fs
    wrap = spark._jvm.scala.Predef.genericWrapArray
    configuration = spark._jsparkSession.sessionState().newHadoopConf()
    return SimpleNamespace(
        Path=hadoop.Path, paths=hadoop.FileUtil.stat2Paths, wrap=wrap, configuration=configuration
    )


def _hadoop(spark: Any, place: str) -> tuple[Any, Any]:
    """Return Hadoop's file system of a path, and the path."""
    java = _java(spark)
    path = java.Path(place)
    return path.getFileSystem(java.configuration), path
