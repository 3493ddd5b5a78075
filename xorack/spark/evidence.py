"""The evidence that an output carries: the XOR and the count of the units in what was written."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from xorack.spark.errors import InvalidOption, UnsuitableColumns, plain_errors
from xorack.spark.record import Totals
from xorack.spark.units import chain_columns, has_columns, tag_column, unit_column

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from xorack.spark.rows import TrackedRows

__all__ = ["Observed", "Output", "Proof", "open_output", "proof_of", "total", "unit_of"]

Output = DataFrame | str
"""A frame that reads an output, the path of its Parquet files, or a table's name."""

_PATIENCE_SECONDS = 60
"""How long an observation may take to arrive once its action has ended."""


class Observed(NamedTuple):
    """A frame to be written, whose evidence is observed as the writer's tasks receive it.

    Attributes:
        frame: The frame without the columns of the evidence. Write it, in one action.
        observation: Spark's observation of that action.
    """

    frame: DataFrame
    observation: Observation

    @classmethod
    def of(cls, frame: DataFrame, xor: str, count: str) -> Observed:
        """Observe two columns of a frame and drop them."""
        observation = Observation()
        sums = (F.bit_xor(xor).alias("units"), F.sum(count).alias("count"))
        return cls(frame.observe(observation, *sums).drop(xor, count), observation)

    def totals(self) -> Totals:
        """Return what the tasks of the writer received.

        Raises:
            InvalidOption: The frame was not written.
        """
        got: list[dict[str, int | None]] = []

        def get() -> None:
            with suppress(Exception):
                got.append(self.observation.get)

        # A classic session waits for ever for the observation of a frame that nobody writes.
        thread = threading.Thread(target=get, daemon=True)
        thread.start()
        thread.join(_PATIENCE_SECONDS)
        if not got or "count" not in got[0]:
            raise InvalidOption("observed", "its frame was not written: write observed.frame")
        return Totals(got[0].get("units") or 0, got[0]["count"] or 0)


def open_output(spark: SparkSession, output: Output) -> DataFrame:
    """Read what was written.

    Args:
        spark: The session.
        output: A frame that reads it, the path of Parquet files (with a ``/``), or a table's name.
    """
    if not isinstance(output, str):
        return output
    return spark.read.parquet(output) if "/" in output else spark.table(output)


def unit_of(rows: TrackedRows, frame: DataFrame) -> Column:
    """Return the unit of each row: the column that carries it, or one made of the unit columns.

    Raises:
        UnsuitableColumns: The frame has neither.
    """
    name = rows.unit_name
    if not has_columns(frame, [name]):
        return unit_column(frame, rows.name, rows.unit)
    if dict(frame.dtypes)[name] != "bigint":
        raise UnsuitableColumns(f"column {name} is {dict(frame.dtypes)[name]}, expected bigint")
    column = F.col(name)
    wrong = F.raise_error(F.lit(f"xorack: column {name} is null or 0: the row has no unit"))
    return F.when(column.isNull() | (column == 0), wrong).otherwise(column)


def evidence_of(rows: TrackedRows, frame: DataFrame) -> tuple[Column, Column]:
    """Return the XOR and the count of the units that a row of an output stands for."""
    xor, count = rows.evidence_names
    if has_columns(frame, [xor, count]):
        return F.col(xor), F.col(count)
    try:
        return unit_of(rows, frame), F.lit(1).cast("long")
    except UnsuitableColumns as error:
        raise UnsuitableColumns(
            f"the output has neither the evidence of {rows.name!r} ({xor}, {count}) nor its "
            f"units: {error}"
        ) from None


def total(rows: TrackedRows, outputs: Sequence[DataFrame]) -> Totals:
    """Sum up the evidence of all outputs."""
    units = count = 0
    for frame in outputs:
        xor, number = evidence_of(rows, frame)
        with plain_errors():
            sums = frame.select(xor.alias("units"), number.alias("count")).agg(
                F.bit_xor("units"), F.sum("count")
            )
            first = sums.first()
        units ^= (first and first[0]) or 0
        count += (first and first[1]) or 0
    return Totals(units, count)


class Proof(NamedTuple):
    """What a call to finish rests on.

    Attributes:
        kind: ``written``, ``observed`` or ``read``.
        totals: The XOR and the count of the units in the output.
        chains: The same by chain: ``tag``, ``units``, ``count``; None if that is unknown.
    """

    kind: str
    totals: Totals
    chains: DataFrame | None


def proof_of(
    rows: TrackedRows,
    written: Output | Sequence[Output] | None,
    observed: Observed | None,
    read: DataFrame | None,
) -> Proof:
    """Collect the evidence of the one output that is given."""
    given = {"written": written, "observed": observed, "read": read}
    kinds = [kind for kind, output in given.items() if output is not None]
    if len(kinds) != 1:
        found = " and ".join(kinds) or "none of them"
        raise InvalidOption("written", f"{found} given, expected one of {', '.join(given)}")
    if observed is not None:
        return Proof("observed", observed.totals(), None)
    output = read if written is None else written
    outputs: list[Any] = list(output) if isinstance(output, (list, tuple)) else [output]
    frames = [open_output(rows.tracking.spark, one) for one in outputs]
    return Proof(kinds[0], total(rows, frames), per_chain(rows, frames))


def per_chain(rows: TrackedRows, outputs: Sequence[DataFrame]) -> DataFrame | None:
    """Sum up the evidence of all outputs by chain.

    Returns:
        ``tag``, ``units`` and ``count``; None if an output lacks the columns of the chain.
    """
    if not all(has_columns(frame, rows.chain) for frame in outputs):
        return None
    parts = [_by_tag(rows, frame) for frame in outputs]
    together = reduce(lambda one, other: one.unionByName(other), parts)
    return together.groupBy("tag").agg(
        F.bit_xor("units").alias("units"), F.sum("count").alias("count")
    )


def _by_tag(rows: TrackedRows, frame: DataFrame) -> DataFrame:
    xor, count = evidence_of(rows, frame)
    columns = chain_columns(frame, rows.chain)
    selected = frame.select(*columns, xor.alias("units"), count.alias("count"))
    grouped = selected.groupBy(*selected.columns[:-2]).agg(
        F.bit_xor("units").alias("units"), F.sum("count").alias("count")
    )
    return grouped.select(
        tag_column(grouped, rows.prefix, len(columns)).alias("tag"), "units", "count"
    )
