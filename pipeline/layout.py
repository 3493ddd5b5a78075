"""The data between the two jobs: what ``split`` leaves for ``count``, and how it is found again.

    WORDS/
      words/      Parquet, one row a word
        word      string  the word
        at        long    the word's place: the number of its file, shifted by 40 bits, and its
                          position in the file (see `pipeline.reading`). Null where it is one more
                          than in the row before: see `xorack.spark.consecutive`. So the files must
                          stay as they were written; `words_in` gives rows with their places
      files/      JSON, one line a file; written last: where its _SUCCESS is, WORDS is whole
        number    long    the file's number, from 0
        chain     long    the chain's key: ``unit("tag")``, a unit id as signed 64 bits
        tag       string  the chain's tag: "<database's name>/<path in the database>"
        path      string  where the file was
        bytes     long    its size
        words     long    how many words it has; with an error, how many were written all the same
        error     string  why it could not be read, else null; its words do not count
        stamp     binary  the XOR of the stamps of the file's root unit and all its words
        bounds    long    what says which words there are: see `xorack.spark.fold_runs`
      _run.json           which run made it
    COUNTS/       Parquet: word (string), count (long); its _SUCCESS is written last of all
      _tracking/  JSON, one line a chain of which words were counted; readers of COUNTS pass over
                  what begins with an underscore
        chain     long    the chain's key
        tag       string  the tag of the chain's latest attempt: see `pipeline.repair`
        attempt   int     its number: 1 for the file's own chain
        finished  long    how many of its words were counted
        stamp     binary  the XOR of their stamps
      _run.json           which run made it
    COUNTS of `pipeline.repair` have two more:
      _missing/   Parquet, one row a word that was missing and is counted here
        chain     long    the key of the file's chain
        at        long    the word's place
        word      string  the word
        tag       string  the tag of the attempt that finishes it
        path      string  where the file was
      _chains/    Parquet, one row a chain that the repair starts and finishes
        tag       string  the attempt's tag
        repairs   string  the tag of the attempt that failed
        stamp     binary  the XOR of the stamps of the missing words, or the root's
        units     long    how many units that is
        detail    string  what its events give back, JSON
      _repair.json        what was asked for and could not be repaired

In JSON, bytes are in base64 and nulls are left out, as Spark has it.

The root unit of a file's chain is ``unit_id(tag)``, the same number as the chain's key. A word's
unit is ``unit_id(at)``: so the outstanding ids of a failed chain lead to rows, by
``xorack.spark.rows_of(words, ids, "at")``.
"""

from __future__ import annotations

import io
import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from pipeline.errors import JobError
from pipeline.files import POSITION_BITS
from xorack.spark import consecutive

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "CHAINS_SCHEMA",
    "COUNTS_SCHEMA",
    "FILES_SCHEMA",
    "MISSING_SCHEMA",
    "TRACKING_SCHEMA",
    "WORDS_SCHEMA",
    "Folder",
    "arrow_columns",
    "begin",
    "chains_of",
    "files_of",
    "frame_of",
    "missing_of",
    "names_in",
    "reason_of",
    "rows_in",
    "run_of",
    "tracking_of",
    "words_as_written",
    "words_in",
    "words_of",
]

WORDS_SCHEMA = "word string, at long"
FILES_SCHEMA = (
    "number long, chain long, tag string, path string, bytes long, words long, error string, "
    "stamp binary, bounds long"
)
COUNTS_SCHEMA = "word string, count long"
TRACKING_SCHEMA = "chain long, tag string, attempt int, finished long, stamp binary"
MISSING_SCHEMA = "chain long, at long, word string, tag string, path string"
CHAINS_SCHEMA = "tag string, repairs string, stamp binary, units long, detail string"
_RUN = "_run.json"
_DONE = "_SUCCESS"
_ROWS = "part-00000.json"
_AT_A_TIME = 1 << 20
"""Bytes that go from or to Java in one call, which takes some copies of them."""
_GLOB = str.maketrans({c: "\\" + c for c in "\\*?[]{}"})


class Folder:
    """A folder in whatever file system Spark writes to.

    Args:
        spark: The session, whose Hadoop settings and credentials are used.
        place: A path or URI.
    """

    def __init__(self, spark: SparkSession, place: str) -> None:
        self._jvm: Any = spark._jvm
        self._spark = spark
        self.place = place
        try:
            self._path = self._jvm.org.apache.hadoop.fs.Path(place)
            conf = spark._jsc.hadoopConfiguration()  # type: ignore[attr-defined]
            self._system = self._path.getFileSystem(conf)
        except (Py4JError, PySparkException) as error:  # whatever Hadoop raised
            raise JobError(f"folder {place}: {reason_of(error)}") from None

    def __truediv__(self, name: str) -> Folder:
        return Folder(self._spark, f"{self.place.rstrip('/')}/{name}")

    @property
    def uri(self) -> str:
        """Its place with the scheme of its file system."""
        return str(self._call(self._system.makeQualified, self._path).toUri().toASCIIString())

    def exists(self) -> bool:
        """Whether it is there."""
        return bool(self._call(self._system.exists, self._path))

    def is_empty(self) -> bool:
        """Whether nothing is in it, or it is not there."""
        if not self.exists():
            return True
        return len(self._call(self._system.listStatus, self._path)) == 0

    def data(self) -> list[Folder]:
        """What is in it, but for the file that says which run made it."""
        if not self.exists():
            return []
        names = [
            str(s.getPath().getName()) for s in self._call(self._system.listStatus, self._path)
        ]
        return [self / name for name in names if name != _RUN]

    def is_whole(self) -> bool:
        """Whether a job wrote it to its end."""
        return (self / _DONE).exists()

    def delete(self) -> None:
        """Delete it with all that is in it."""
        self._call(self._system.delete, self._path, True)

    def read_text(self, name: str) -> str | None:
        """The text of a small file in it; None if it is not there."""
        if not (self / name).exists():
            return None
        return b"".join(self._pieces(name)).decode()

    def write_text(self, name: str, text: str) -> None:
        """Write a small file into it."""
        with self._to_write(name) as file:
            file.write(text.encode())

    def write_rows(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Make it a folder of one file of JSON lines, as a job of Spark's would leave it.

        What this process holds anyway does not need a job, which costs as much as a million words.

        Args:
            rows: Values by the names of their columns; of the types that `rows_in` reads.
        """
        with self._to_write(_ROWS) as file:
            for row in rows:
                kept = {name: value for name, value in row.items() if value is not None}
                file.write(json.dumps(kept, default=_base64, ensure_ascii=False).encode() + b"\n")
        self.write_text(_DONE, "")

    def read_rows(self, schema: str) -> Iterator[dict[str, Any]]:
        """The rows that `write_rows` wrote.

        Args:
            schema: The columns to read.

        Yields:
            The values by the names of the columns.
        """
        columns = arrow_columns(schema)
        rest = b""
        for piece in self._pieces(_ROWS):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                row = json.loads(line)
                yield {
                    name: b64decode(row[name])
                    if type_ == "binary" and name in row
                    else row.get(name)
                    for name, type_ in columns
                }
        if rest:
            raise JobError(f"folder {self.place}: the last line of {_ROWS} is cut off")

    def _pieces(self, name: str) -> Iterator[bytes]:
        """What is in a file, some at a time."""
        stream = self._call(self._system.open, (self / name)._path)
        try:
            # As text of a character a byte: bytes come from Java one by one, in Python's own code.
            while piece := self._call(self._next_text, stream):
                yield piece.encode("latin-1")
        finally:
            stream.close()

    def _next_text(self, stream: Any) -> str:
        commons = self._jvm.org.apache.commons.io
        some = commons.input.BoundedInputStream(stream, _AT_A_TIME)
        return str(commons.IOUtils.toString(some, "ISO-8859-1"))

    def _to_write(self, name: str) -> io.BufferedWriter:
        stream = self._call(self._system.create, (self / name)._path)
        return io.BufferedWriter(_ToJava(stream, self._call), _AT_A_TIME)

    def to_read(self) -> str:
        """The place as Spark's readers want it: they take ``*``, ``[`` and the like as patterns."""
        return self.place.translate(_GLOB)

    def _call(self, function: Any, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except (Py4JError, PySparkException) as error:  # whatever Hadoop raised
            raise JobError(f"folder {self.place}: {reason_of(error)}") from None


def _base64(value: Any) -> str:
    """Bytes as Spark's JSON has them."""
    return b64encode(value).decode()


class _ToJava(io.RawIOBase):
    """A stream of Java's to write to."""

    def __init__(self, stream: Any, call: Callable[..., Any]) -> None:
        self._stream, self._call_java = stream, call

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._call_java(self._stream.write, bytearray(data))
        return len(data)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._call_java(self._stream.close)


def reason_of(error: BaseException) -> str:
    """What went wrong, in one line: of a Java error its message, without the trace."""
    java = getattr(error, "java_exception", None)
    text = str((java and java.getMessage()) or error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def begin(folder: Folder, what: str, run: dict[str, Any]) -> bool:
    """Make sure that a job may write to a folder.

    Args:
        folder: The folder.
        what: How the user knows it, for messages: ``--words``.
        run: What names this run; ``run_id`` is in it.

    Returns:
        Whether the same run had begun before: its leavings are there.

    Raises:
        JobError: Something else is there.
    """
    if folder.is_empty():
        folder.write_text(_RUN, json.dumps(run, indent=1))
        return False
    before = run_of(folder)
    if before is None or before.get("run_id") != run["run_id"]:
        raise JobError(f"{what} {folder.place} exists already: give another folder, or delete it")
    if before != run:
        differ = ", ".join(sorted(k for k in {*before, *run} if before.get(k) != run.get(k)))
        raise JobError(
            f"{what} {folder.place} is of the run {run['run_id']!r} but with another {differ}: "
            "a run is repeated as it was"
        )
    return True


def run_of(folder: Folder) -> dict[str, Any] | None:
    """Which run made a folder, as `begin` noted it; None where nothing readable says so."""
    text = folder.read_text(_RUN)
    try:
        run = json.loads(text) if text else None
    except ValueError:
        return None
    return run if isinstance(run, dict) else None


def files_of(words: Folder) -> Folder:
    """Where the files are listed."""
    return words / "files"


def words_of(words: Folder) -> Folder:
    """Where the words are."""
    return words / "words"


def arrow_columns(schema: str) -> list[tuple[str, str]]:
    """The names of a schema's columns, and pyarrow's names of their types."""
    types = {
        "string": "string",
        "binary": "binary",
        "int": "int32",
        "long": "int64",
        "double": "float64",
    }
    return [(name, types[type_]) for name, type_ in map(str.split, schema.split(", "))]


def names_in(schema: str) -> list[str]:
    """The names of a schema's columns."""
    return [name for name, _ in arrow_columns(schema)]


def frame_of(spark: SparkSession, rows: Iterable[tuple[Any, ...]], schema: str) -> DataFrame:
    """Rows of the driver's as a frame: by Arrow where Spark can, which takes no Python tasks.

    Args:
        spark: The session.
        rows: The rows, in the order of the columns.
        schema: One of those here.

    Returns:
        The frame.
    """
    rows = list(rows)
    if int(spark.version.partition(".")[0]) < 4 or not rows:
        return spark.createDataFrame(rows, schema)
    import pyarrow as pa

    columns = zip(zip(*rows, strict=True), arrow_columns(schema), strict=True)
    table = pa.table({name: pa.array(values, type_) for values, (name, type_) in columns})
    return spark.createDataFrame(table, schema)


def rows_in(spark: SparkSession, folder: Folder, schema: str) -> DataFrame:
    """The rows of a folder of JSON lines, which `Folder.write_rows` or Spark wrote.

    Args:
        spark: The session.
        folder: The folder.
        schema: The columns to read.

    Returns:
        The frame. Its job fails where a line is none of these rows.
    """
    return spark.read.schema(schema).option("mode", "FAILFAST").json(folder.to_read())


def words_as_written(spark: SparkSession, words: Folder) -> DataFrame:
    """The words as they are stored: of most of them the place is to be had by `words_in` only.

    Args:
        spark: The session.
        words: The folder.

    Returns:
        Rows of `WORDS_SCHEMA`.
    """
    return spark.read.schema(WORDS_SCHEMA).parquet(words_of(words).to_read())


def words_in(spark: SparkSession, words: Folder) -> DataFrame:
    """The words and their places, at the price of sorting them.

    Args:
        spark: The session.
        words: The folder.

    Returns:
        ``word``, ``at`` and ``number``, the file's.
    """
    rows = consecutive(words_as_written(spark, words), "at")
    return rows.withColumn("number", F.shiftright("at", POSITION_BITS))


def tracking_of(counts: Folder) -> Folder:
    """What was counted, by chain."""
    return counts / "_tracking"


def missing_of(repaired: Folder) -> Folder:
    """The words that a repair counted."""
    return repaired / "_missing"


def chains_of(repaired: Folder) -> Folder:
    """The chains that a repair starts and finishes."""
    return repaired / "_chains"
