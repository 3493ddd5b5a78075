"""What lies in storage behind a frame, and small texts in it, without a Spark job where possible.

A classic session asks Hadoop's file system on the driver. Spark Connect has no such way: it runs
a small job instead.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Files = dict[str, tuple[int, int]]

_CONSTANT: dict[str, list[str]] = {}
"""Lines of texts that are written once, by path, size and time."""
GLOB = str.maketrans({character: f"\\{character}" for character in "\\*?[]{}"})
_STATUS = re.compile(r"path=(.+?); isDirectory=.*?length=(\d+);.*?modification_time=(\d+)")
_PLAIN = re.compile(r"[ :+|-]*(?:Project|Filter|Union|Relation|HiveTableRelation)\b")
"""Lines of a plan that reads what is stored, and no more."""
_PARTITION = re.compile(r"[^/=]+=[^/]*")
_PART = re.compile(r".*/part-\d+-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})[^/]*")
_MOST_WRITES = 1_000


class Stored(NamedTuple):
    """What was read of an output.

    Attributes:
        folder: The folder of its files; the first one, if they lie in several.
        files: The number of its files.
        bytes: Their size.
    """

    folder: str
    files: int
    bytes: int


def names_of(frame: DataFrame) -> list[str]:
    """Return the files that a frame reads, as Hadoop writes paths; none for other sources."""
    given: Any = frame
    if hasattr(given, "_jdf"):  # in one call: a call a file takes seconds for 20,000
        texts = given.sparkSession._jvm.org.apache.hadoop.util.StringUtils
        uris = texts.join("\n", given._jdf.inputFiles()).splitlines()
    else:
        uris = frame.inputFiles()
    return sorted(_plain(unquote(uri)) for uri in uris)


def _plain(uri: str) -> str:
    """Put one slash after a path's scheme: Java and Hadoop differ in their number."""
    return re.sub(r"^(\w[\w+.-]*):/+", r"\1:/", uri)


def folders(names: Sequence[str]) -> list[str]:
    """Return the folders of files, without those of partitions."""
    found = set()
    for folder in {name.rpartition("/")[0] for name in names}:
        parts = folder.split("/")
        while len(parts) > 1 and _PARTITION.fullmatch(parts[-1]):
            parts.pop()
        found.add("/".join(parts))
    return sorted(found)


def writes_in(names: Sequence[str]) -> list[str]:
    """Return the ids of Spark's writes in files' names: a copy of a file keeps its write's."""
    return sorted({match[1] for match in map(_PART.fullmatch, names) if match})[:_MOST_WRITES]


def files_of(spark: SparkSession, names: Sequence[str]) -> Files:
    """Return the bytes and the time of modification of files; nothing for one that is gone."""
    wanted = set(names)
    escaped = [folder.translate(GLOB) for folder in {name.rpartition("/")[0] for name in names}]
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    try:
        listed = reader.load(escaped).select("path", "length", "modificationTime")
        if hasattr(spark, "_jvm"):
            found = _statuses(listed)
        else:
            rows = listed.withColumn("modificationTime", F.unix_micros("modificationTime"))
            found = {_plain(path): (size, time) for path, size, time in rows.collect()}
    except AnalysisException:  # a folder is gone
        return {}
    return {name: facts for name, facts in found.items() if name in wanted}


def _statuses(listed: Any) -> Files:
    """Read Spark's listing of files, in one call: a call a file takes a second for 5,000."""
    jvm = listed.sparkSession._jvm
    relation = listed._jdf.queryExecution().optimizedPlan().collectLeaves().head().relation()
    nothing = getattr(getattr(jvm.scala.collection.immutable, "Nil$"), "MODULE$")
    text = relation.location().listFiles(nothing, nothing).toString()
    return {_plain(path): (int(size), int(time)) for path, size, time in _STATUS.findall(text)}


def reads_plainly(frame: DataFrame) -> bool:
    """Tell whether a frame reads what is stored: it computes no rows, and none are cached."""
    given: Any = frame
    if hasattr(given, "_jdf"):
        text = given._jdf.queryExecution().optimizedPlan().toString()
    else:
        text = given._explain_string("extended")
        text = text.partition("== Optimized Logical Plan ==\n")[2].partition("\n==")[0]
    return all(_PLAIN.match(line) for line in text.strip().splitlines())


def write_text(spark: SparkSession, folder: str, text: str) -> None:
    """Write a text of one line to a folder of its own, in place of what is there."""
    if not hasattr(spark, "_jvm"):
        writer = spark.range(0, 1, 1, 1).select(F.lit(text).alias("value")).write
        writer.mode("overwrite").text(folder)
        return
    path, system = _hadoop(spark, folder)
    system.delete(path, True)
    file, draft = _java(spark).Path(path, "part-0.txt"), _java(spark).Path(path, "_draft")
    stream = system.create(draft)  # a process that dies leaves no half text
    try:
        stream.write(bytearray(f"{text}\n".encode()))
    finally:
        stream.close()
    if not system.rename(draft, file):
        raise OSError(f"{folder}: the text could not be renamed")


def read_texts(spark: SparkSession, pattern: str, *, constant: bool = False) -> list[str]:
    """Read the lines of the texts in folders of a pattern; none if there are no such folders.

    On a classic session, a text that is ``constant`` is read once by a process.
    """
    if not hasattr(spark, "_jvm"):
        try:
            return [row["value"] for row in spark.read.text(pattern).collect()]
        except AnalysisException as error:
            if "PATH_NOT_FOUND" in str(error) or "Path does not exist" in str(error):
                return []
            raise
    path, system = _hadoop(spark, f"{pattern}/part-*")
    while (lines := _listed(spark, system, _glob(system, path), constant)) is None:
        pass
    return lines


def read_lines(spark: SparkSession, file: str) -> list[str] | None:
    """Read the lines of one small file; None if there is no such file."""
    if hasattr(spark, "_jvm"):
        path, system = _hadoop(spark, file)
        return _lines(system, path)
    try:
        return [row["value"] for row in spark.read.text(file).collect()]
    except AnalysisException:
        return None


def _glob(system: Any, path: Any) -> Any:
    """List files; Hadoop says of a local folder that vanishes meanwhile that it is not readable."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    for _ in range(10):
        try:
            return system.globStatus(path)
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() != "AccessDeniedException":
                raise
    return system.globStatus(path)


def _listed(spark: Any, system: Any, found: Any, constant: bool) -> list[str] | None:
    """Read the lines of files; None if one is gone, as those that were read may be older then."""
    lines: list[str] = []
    statuses = _java(spark).toString(found)
    for match in _STATUS.finditer(statuses):  # in one call: each takes a quarter of a millisecond
        text = _CONSTANT.get(match[0]) if constant else None
        if text is None:
            text = _lines(system, _java(spark).Path(match[1]))
            if text is None:
                return None
            if constant:
                _CONSTANT[match[0]] = text
        lines += text
    return lines


def _lines(system: Any, path: Any) -> list[str] | None:
    """Read the lines of a file of Hadoop's; None if another process is replacing it."""
    from py4j.protocol import Py4JJavaError

    try:
        stream = system.open(path)
    except Py4JJavaError as error:
        if error.java_exception.getClass().getSimpleName() == "FileNotFoundException":
            return None
        raise
    try:
        return bytes(stream.readAllBytes()).decode().splitlines()
    finally:
        stream.close()


def _hadoop(spark: Any, path: str) -> tuple[Any, Any]:
    """Return a path of Hadoop's, and its file system with the session's settings."""
    hadoop = _java(spark).Path(path)
    return hadoop, hadoop.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())


@lru_cache(maxsize=4)
def _java(spark: Any) -> SimpleNamespace:
    """Return what is used of Java: to find a class takes a call for each part of its name."""
    return SimpleNamespace(
        Path=spark._jvm.org.apache.hadoop.fs.Path,
        toString=spark._jvm.org.apache.commons.lang3.ArrayUtils.toString,
    )
