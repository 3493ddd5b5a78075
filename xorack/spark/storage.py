"""What lies in storage behind a frame, and small texts in it, without a Spark job where possible.

A classic session asks Hadoop's file system on the driver. Spark Connect has no such way: it runs
a small job instead.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
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

from xorack.spark.units import GLOB

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Output = DataFrame | str
    Files = dict[str, tuple[int, int]]

_STATUS = re.compile(r"path=(.+?); isDirectory=.*?length=(\d+);.*?modification_time=(\d+)")
_PLAIN = re.compile(r"[ :+|-]*(?:Project|Filter|Union|Relation|HiveTableRelation)\b")
"""Lines of a plan that reads what is stored, and no more."""
_HIDING = ("LogicalRDD", "InMemoryRelation")
"""Micro-batches and caches: a plan does not name the files behind them."""
_LOCAL = "file:"
MAX_NAMED = 1_000
"""How many folders and files a record names."""


class Stored(NamedTuple):
    """What was read of an output: its first folder; its files' number, bytes and times."""

    folder: str
    files: int
    bytes: int
    first: datetime | None = None
    last: datetime | None = None


def files_read(frame: DataFrame) -> list[str]:
    """Return the files that a frame reads, as Hadoop writes paths; none for other sources.

    Those behind micro-batches and caches are left out: see `hides_files`.
    """
    given: Any = frame
    if hasattr(given, "_jdf"):  # in one call: a call a file takes seconds for 20,000
        texts = given.sparkSession._jvm.org.apache.hadoop.util.StringUtils
        uris = texts.join("\n", given._jdf.inputFiles()).splitlines()
    else:
        uris = frame.inputFiles()
    return sorted({_plain(unquote(uri)) for uri in uris})


def _plain(uri: str) -> str:
    """Put one slash after a path's scheme: Java and Hadoop differ in their number."""
    return re.sub(r"^(\w[\w+.-]*):/+", r"\1:/", uri)


def folders(names: Sequence[str], given: Output = "") -> list[str]:
    """Return the folders of files; of a path that was given, not of partitions below it."""
    last = given.rstrip("/").rpartition("/")[2] if isinstance(given, str) and "/" in given else ""

    def above(folder: str) -> str:
        outer, _, part = folder.rpartition("/")
        return above(outer) if last and part != last and "=" in part else folder

    return sorted({above(folder) for folder in {name.rpartition("/")[0] for name in names}})


def files_of(spark: SparkSession, names: Sequence[str]) -> Files:
    """Return the bytes of files that are there, and the milliseconds since 1970 of their times."""
    if not names:
        return {}
    escaped = [folder.translate(GLOB) for folder in {name.rpartition("/")[0] for name in names}]
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    try:
        listed = reader.load(escaped).select("path", "length", "modificationTime")
        if hasattr(spark, "_jvm"):
            found = _statuses(listed)
        else:
            rows = listed.withColumn("modificationTime", F.unix_millis("modificationTime"))
            found = {_plain(path): (size, time) for path, size, time in rows.collect()}
    except AnalysisException:  # a folder is gone
        return {}
    return {name: found[name] for name in names if name in found}


def _statuses(listed: Any) -> Files:
    """Read Spark's listing of files, in one call: a call a file takes a second for 5,000."""
    jvm = listed.sparkSession._jvm
    relation = listed._jdf.queryExecution().optimizedPlan().collectLeaves().head().relation()
    nothing = getattr(getattr(jvm.scala.collection.immutable, "Nil$"), "MODULE$")
    text = relation.location().listFiles(nothing, nothing).toString()
    return {_plain(path): (int(size), int(time)) for path, size, time in _STATUS.findall(text)}


def reads_plainly(frame: DataFrame) -> bool:
    """Tell whether a frame reads what is stored: it computes no rows, and none are cached."""
    lines = _optimized(frame).strip().splitlines()
    # Spark cuts long plans, where its settings say so.
    return all(map(_PLAIN.match, lines)) and bool(lines) and not lines[-1].endswith(" characters")


def hides_files(frame: DataFrame) -> bool:
    """Tell whether a frame may read files that `files_read` does not name."""
    return any(kind in _optimized(frame) for kind in _HIDING)


def _optimized(frame: Any) -> str:
    if hasattr(frame, "_jdf"):
        return str(frame._jdf.queryExecution().optimizedPlan().toString())
    text: str = frame._explain_string("extended")
    return text.partition("== Optimized Logical Plan ==\n")[2].partition("\n==")[0]


def write_text(spark: SparkSession, folder: str, text: str) -> None:
    """Write a text of one line to a folder of its own, in place of what is there."""
    if not hasattr(spark, "_jvm"):
        frame = spark.range(0, 1, 1, 1).select(F.lit(text).alias("value"))
        frame.write.mode("overwrite").text(folder)
        return
    system, path = _hadoop(spark, folder)
    place = system.makeQualified(path).toString()
    name, data = f"part-{uuid4().hex}.txt", f"{text}\n".encode()
    # A process that dies leaves a draft, and no half text.
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
        raise OSError(f"{folder}: the text could not be renamed")


def read_texts(spark: SparkSession, pattern: str) -> list[str]:
    """Read the lines of the texts in the folders of a pattern, which may be none."""
    if not hasattr(spark, "_jvm"):
        return _scan(spark, pattern)
    system, path = _hadoop(spark, f"{pattern}/part-*")
    java = _java(spark)
    while True:
        # One call, not several a file. To list more than paths, Hadoop starts processes.
        found = java.wrap(java.paths(system.globStatus(path))).mkString("\n").splitlines()
        with suppress(FileNotFoundError):  # a text was replaced: what was read may be older
            return [line for place in found for line in _text(spark, place)]


def read_lines(spark: SparkSession, file: str) -> list[str]:
    """Read the lines of a file that may change; none if it is not there."""
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
    """Read a text once: no two texts ever have one path."""
    return _lines(spark, path)


def _lines(spark: Any, path: str) -> list[str]:
    """Read the lines of a file of Hadoop's, or raise `FileNotFoundError`."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    system, found = _hadoop(spark, path)
    try:
        stream = system.open(found)
    except Py4JJavaError as error:
        if error.java_exception.getClass().getSimpleName() == "FileNotFoundException":
            raise FileNotFoundError(path) from None
        raise
    with closing(stream):
        return bytes(stream.readAllBytes()).decode().splitlines()


@lru_cache(maxsize=4)
def _java(spark: Any) -> SimpleNamespace:
    """Return what is used of Java, found once: each part of a class's name takes a call.

    The settings are those that the session has at the first use.
    """
    hadoop = spark._jvm.org.apache.hadoop.fs
    wrap = spark._jvm.scala.Predef.genericWrapArray
    configuration = spark._jsparkSession.sessionState().newHadoopConf()
    return SimpleNamespace(
        Path=hadoop.Path, paths=hadoop.FileUtil.stat2Paths, wrap=wrap, configuration=configuration
    )


def _hadoop(spark: Any, place: str) -> tuple[Any, Any]:
    """Return the file system of Hadoop that has a path, and the path."""
    java = _java(spark)
    path = java.Path(place)
    return path.getFileSystem(java.configuration), path
