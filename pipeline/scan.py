"""From files to rows, in the tasks: what Spark cannot read by itself with stable positions.

Python reads bytes, decodes and finds the words' borders with functions that run over whole pieces
(no Python code runs for each word), folds the words' stamps, and hands Arrow batches to the JVM.
docs/adr/0020 and 0022 say why.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.accumulators import Accumulator, AccumulatorParam

from pipeline.files import POSITION_BITS, Said
from pipeline.folder import Found, opened, shown_path
from pipeline.reading import PIECE, Encoding, UnreadableFile, read_words
from xorack.spark.arrays import Folds, bounds_of_runs, stamp_bytes, unit_ids

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession


__all__ = ["Part", "scan_words", "tasks_of"]

_BATCH_WORDS = 1 << 16
_TASK_BYTES = 32 << 20
"""The most that a task is given, if files can be cut so."""
_TASK_FILES = 2_000
_TASKS_A_CORE = 3
_FILE_COSTS = 64 << 10
"""What opening a file costs, in bytes that could have been read instead."""
_WORDS = pa.schema([("word", pa.string()), ("at", pa.int64())])


class Part(NamedTuple):
    """What one task reads of one file.

    Attributes:
        number: The file's.
        path: As `pipeline.folder.Found` has it.
        start: The first byte.
        end: The byte after the last.
        size: The file's size.
    """

    number: int
    path: bytes
    start: int
    end: int
    size: int


def tasks_of(
    files: Iterable[tuple[int, Found]], encoding: Encoding, cores: int
) -> list[list[Part]]:
    """Share files out to tasks: small ones together, large ones cut.

    Nothing but the work's spread depends on it: words and positions come out the same.

    Args:
        files: The file's number, and the file.
        encoding: The files' encoding: not all can be cut.
        cores: How many tasks run at once.

    Returns:
        What each task reads, none of them nothing.
    """
    files = list(files)
    cost = sum(file.size + _FILE_COSTS for _, file in files)
    target = min(_TASK_BYTES, max(PIECE, cost // (cores * _TASKS_A_CORE)))
    target -= target % PIECE
    tasks: list[list[Part]] = [[]]
    filled = 0
    for number, file in files:
        step = target if encoding.unit else max(file.size, 1)
        for start in range(0, max(file.size, 1), step):
            end = min(start + step, file.size)
            size = end - start + _FILE_COSTS
            if tasks[-1] and (filled + size > target or len(tasks[-1]) >= _TASK_FILES):
                tasks.append([])
                filled = 0
            tasks[-1].append(Part(number, file.path, start, end, file.size))
            filled += size
    return [task for task in tasks if task]


def scan_words(
    spark: SparkSession, tasks: list[list[Part]], encoding: Encoding, form: dict[str, Any]
) -> tuple[DataFrame, Callable[[], list[dict[int, Said]]]]:
    """The words of files, one task of Spark's for each task given.

    Args:
        spark: The session.
        tasks: What `tasks_of` made.
        encoding: The files' encoding.
        form: The kind and the cells of the stamps: arguments of `xorack.spark.arrays.Folds`.

    Returns:
        Rows of `pipeline.layout.WORDS_SCHEMA`. And a function to ask once they are written, which
        gives what each task said of its files (see `pipeline.files.gathered`), in the tasks' order:
        that of the attempt whose rows were written, since Spark counts what a task of an action
        adds to an accumulator once, when it has succeeded, whichever of its attempts does.
    """
    from pipeline.layout import WORDS_SCHEMA

    # The tasks travel with the function, each packed by itself: a task unpacks only its own.
    packed = [pickle.dumps(task) for task in tasks]
    numbers = spark.range(0, len(tasks), 1, max(len(tasks), 1))  # one number a partition
    said: Accumulator[Any] = spark.sparkContext.accumulator({}, _ByTask())

    def all_said() -> list[dict[int, Said]]:
        if len(said.value) != len(tasks):
            raise RuntimeError(f"{len(said.value)} of {len(tasks)} tasks said what they read")
        return [said.value[number] for number in sorted(said.value)]

    return numbers.mapInArrow(_scanner(encoding, packed, form, said), WORDS_SCHEMA), all_said


class _ByTask(AccumulatorParam[Any]):
    """What tasks said, by the task's number: nothing is added twice, whatever runs again."""

    def zero(self, value: dict[int, Any]) -> dict[int, Any]:
        return {}

    def addInPlace(self, value1: dict[int, Any], value2: dict[int, Any]) -> dict[int, Any]:
        value1.update(value2)
        return value1


def _scanner(
    encoding: Encoding, packed: list[bytes], form: dict[str, Any], said: Accumulator[Any]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def scan(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                rows = _Rows(form)
                for part in pickle.loads(packed[number]):  # noqa: S301 - packed by ourselves
                    yield from rows.of(part, encoding)
                yield from rows.rest()
                said.add({number: rows.said()})

    return scan


def _only(rows: NDArray[np.int64], values: NDArray[np.int64], length: int) -> pa.Array:
    """A column that has values in some rows and is null in all others."""
    column, bits = np.zeros(length, np.int64), np.zeros(length + 7 >> 3, np.uint8)
    column[rows] = values
    np.bitwise_or.at(bits, rows >> 3, (1 << (rows & 7)).astype(np.uint8))
    buffers = [pa.py_buffer(bits), pa.py_buffer(column)]
    return pa.Array.from_buffers(pa.int64(), length, buffers, length - len(rows))


class _Rows:
    """A task's words in batches, so that small files do not make one each; and their stamps."""

    def __init__(self, form: dict[str, Any]) -> None:
        self._folds = Folds(**form)
        self._bounds = Folds("plain")
        self._errors: dict[int, str] = {}
        self._begin()

    def _begin(self) -> None:
        self._words: list[pa.Array] = []
        self._pieces: list[tuple[int, int, int]] = []  # number of the file, first place, words
        self._gathered = 0

    def of(self, part: Part, encoding: Encoding) -> Iterator[pa.RecordBatch]:
        first = part.number << POSITION_BITS
        try:
            with opened(part.path, part.size) as file:
                for position, text in read_words(file, part.start, part.end, part.size, encoding):
                    whole = pa.array([text], pa.binary()).cast(pa.string())
                    words = pc.split_pattern(whole, " ").flatten()
                    self._words.append(words)
                    self._pieces.append((part.number, first + position, len(words)))
                    self._gathered += len(words)
                    if self._gathered >= _BATCH_WORDS:
                        yield self._flush()
        except UnreadableFile as error:
            # The same one whichever parts of the file a task has.
            found = f"{shown_path(part.path)} {error}"
            self._errors[part.number] = min(found, self._errors.get(part.number, found))

    def _flush(self) -> pa.RecordBatch:
        numbers, firsts, lengths = np.array(self._pieces, np.int64).T
        begins = np.cumsum(lengths) - lengths
        places = np.arange(self._gathered)
        places += firsts[0] if len(firsts) == 1 else np.repeat(firsts - begins, lengths)
        self._folds.add_runs(numbers, lengths, unit_ids(places))
        self._bounds.add(numbers, bounds_of_runs(firsts, lengths))
        words = self._words[0] if len(self._words) == 1 else pa.concat_arrays(self._words)
        at = _only(begins, firsts, self._gathered)
        self._begin()
        return pa.RecordBatch.from_arrays([words, at], schema=_WORDS)

    def rest(self) -> Iterator[pa.RecordBatch]:
        """The words that no batch has yet."""
        if self._pieces:
            yield self._flush()

    def said(self) -> dict[int, Said]:
        """What is to be said of the files, by number."""
        said: dict[int, Said] = {}
        for numbers, stamps, counts in self._folds.results():
            told = zip(numbers, stamp_bytes(stamps), counts.tolist(), strict=True)
            said.update((number, Said(words, stamp)) for number, stamp, words in told)
        for numbers, bounds, _ in self._bounds.results():
            for number, bound in zip(numbers, bounds[:, 0].view(np.int64).tolist(), strict=True):
                said[number].bounds = bound
        for number, error in self._errors.items():
            said.setdefault(number, Said()).error = error
        return said
