"""Observing a write: Spark sums up the evidence while its tasks pass rows to the write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import Observation

from xorack.core.errors import ArgumentError
from xorack.spark import folding
from xorack.spark.folding import SUMS, Totals
from xorack.spark.units import field_named

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_WRITES = (
    *("save", "saveAsTable", "insertInto", "jdbc", "json", "parquet", "text", "csv", "xml", "orc"),
    *("create", "createOrReplace", "replace", "append", "overwrite", "overwritePartitions"),
)
"""The methods of Spark's writers that write; all others set options."""


class FrameToWrite:
    """A frame that a function may write once, because Spark observes only the first attempt."""

    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame
        self._is_tried = self._is_writing = False
        self.is_written = False
        self.columns, self.schema = frame.columns, frame.schema

    @property
    def write(self) -> Any:
        """Spark's writer of the frame."""
        return self._watched(self._frame.write)

    def writeTo(self, table: str) -> Any:
        """Return Spark's writer to a table."""
        return self._watched(self._frame.writeTo(table))

    def _watched(self, writer: Any) -> Any:
        for name in _WRITES:
            if hasattr(writer, name):
                setattr(writer, name, self._once(getattr(writer, name)))
        return writer

    def _once(self, method: Callable[..., None]) -> Callable[..., None]:
        def call(*args: Any, **options: Any) -> None:
            if self._is_writing:  # Spark's writer calls its own methods
                return method(*args, **options)
            if self._is_tried:
                problem = "the frame was written before, or a write failed: call observe() again"
                raise ArgumentError("write", problem=problem)
            self._is_tried = self._is_writing = True
            try:
                method(*args, **options)
            finally:
                self._is_writing = False
            self.is_written = True
            return None

        return call


class Observed(NamedTuple):
    """A frame whose evidence Spark observes while its tasks pass rows to the write.

    Attributes:
        frame: The frame without the columns of the evidence.
        observation: Spark's observation of its first write.
        source: The frame with the columns of the evidence.
    """

    frame: DataFrame
    observation: Observation
    source: DataFrame

    @classmethod
    def of(cls, frame: DataFrame, names: Sequence[str], write: Callable[[Any], object]) -> Observed:
        """Drop the columns of the evidence, and observe their sums during a function's write."""
        for name in names:
            field_named(frame, name)
        observation = Observation()
        plain = frame.observe(observation, *folding.together(names, SUMS)).drop(*names)
        to_write = FrameToWrite(plain)
        try:
            write(to_write)
        except AttributeError as error:
            if error.obj is not to_write:
                raise
            problem = f".{error.name} is not a write method: use .write or .writeTo"
            raise ArgumentError("write", problem=problem) from None
        if not to_write.is_written:
            raise ArgumentError(
                "write", problem="it did not write its frame; write only the frame that it gets"
            )
        return cls(plain, observation, frame)

    def totals(self) -> Totals:
        """Return the sums that the tasks observed.

        Raise `ArgumentError` if the frame was not written.
        """
        sums = folding.metrics_of(self.observation)
        if sums is None:
            raise ArgumentError(
                "observed", problem="the observed frame was not written; write it first"
            )
        return Totals(*(sums[name] or 0 for name in SUMS))
