"""What lies in storage behind a frame, and small texts in it, without a Spark job where possible.

A classic session asks Hadoop's file system on the driver. Spark Connect has no such way: it runs
a small job instead.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property, lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote
from uuid import uuid4

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Files = dict[str, tuple[int, int]]

_Text = tuple[str, int, list[str]]
_KNOWN: dict[str, _Text] = {}
"""Of each folder of a text the name of its file, which no other has, its bytes and its lines."""
_MOST_KNOWN = 10_000
"""A stream has a folder for each of its batches."""
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


class Texts:
    """Small texts in storage, reached with the settings that the session has at the first use."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark: Any = spark
        self._is_classic = hasattr(spark, "_jvm")
        self._reached: dict[str, tuple[Any, Any]] = {}

    def write(self, folder: str, text: str) -> None:
        """Write a text of one line to a folder of its own, in place of what is there."""
        if not self._is_classic:
            writer = self._spark.range(0, 1, 1, 1).select(F.lit(text).alias("value")).write
            writer.mode("overwrite").text(folder)
            return
        path, system = self._hadoop(folder)
        system.delete(path, True)
        name, data = f"part-{uuid4().hex}.txt", bytearray(f"{text}\n".encode())
        place = system.makeQualified(path).toString()
        draft = self._path(path, "_draft")  # a process that dies leaves no half text
        # With permissions, each of these takes a process of its own on a local disk.
        of_disk = [None, True, 4096, 1, 1 << 20, None] if place.startswith("file:") else []
        stream = system.create(draft, *of_disk)
        try:
            stream.write(data)
        finally:
            stream.close()
        if not system.rename(draft, self._path(path, name)):
            raise OSError(f"{folder}: the text could not be renamed")
        _keep(place, (name, len(data), [text]))

    def read(self, pattern: str) -> list[str]:
        """Read the lines of the texts in folders of a pattern; none if there are no such folders.

        On a classic session, a process reads each text once.
        """
        if not self._is_classic:
            try:
                return [row["value"] for row in self._spark.read.text(pattern).collect()]
            except AnalysisException as error:
                if "PATH_NOT_FOUND" in str(error) or "Path does not exist" in str(error):
                    return []
                raise
        path, system = self._hadoop(f"{pattern}/part-*")
        while (lines := self._listed(system, _glob(system, path))) is None:
            pass
        return lines

    def lines(self, file: str) -> list[str] | None:
        """Read the lines of one small file; None if there is no such file."""
        if self._is_classic:
            path, system = self._hadoop(file)
            return _lines(system, path)
        try:
            return [row["value"] for row in self._spark.read.text(file).collect()]
        except AnalysisException:
            return None

    def _listed(self, system: Any, found: Any) -> list[str] | None:
        """Read the lines of files; None if one is gone, as those that were read may be older."""
        lines: list[str] = []
        statuses = _java(self._spark).toString(found)
        for path, size, _ in _STATUS.findall(statuses):  # in one call, instead of some a file
            folder, _, name = path.rpartition("/")
            known = _KNOWN.get(folder)
            if known is None or known[:2] != (name, int(size)):
                text = _lines(system, self._path(path))
                if text is None:
                    return None
                known = _keep(folder, (name, int(size), text))
            lines += known[2]
        return lines

    def _path(self, *given: Any) -> Any:
        return _java(self._spark).Path(*given)

    def _hadoop(self, path: str) -> tuple[Any, Any]:
        """Return a path of Hadoop's, and its file system."""
        if path not in self._reached:
            hadoop = self._path(path)
            self._reached[path] = hadoop, hadoop.getFileSystem(self._settings)
        return self._reached[path]

    @cached_property
    def _settings(self) -> Any:
        return self._spark._jsparkSession.sessionState().newHadoopConf()


def _keep(folder: str, text: _Text) -> _Text:
    """Keep a text in `_KNOWN`; those that are forgotten are read once more."""
    if len(_KNOWN) >= _MOST_KNOWN:
        _KNOWN.clear()
    _KNOWN[folder] = text
    return text


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


@lru_cache(maxsize=4)
def _java(spark: Any) -> SimpleNamespace:
    """Return what is used of Java: to find a class takes a call for each part of its name."""
    return SimpleNamespace(
        Path=spark._jvm.org.apache.hadoop.fs.Path,
        toString=spark._jvm.org.apache.commons.lang3.ArrayUtils.toString,
    )
