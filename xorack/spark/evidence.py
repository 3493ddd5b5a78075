"""The evidence that an output carries: the XOR and the count of the units in what was written."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from xorack.core.errors import ArgumentError, ColumnsError
from xorack.spark.errors import plain_errors
from xorack.spark.folding import fold_units
from xorack.spark.record import Totals
from xorack.spark.units import column_named, has_columns, unit_column

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from xorack.spark.names import Rows

__all__ = ["Observed", "Output", "Proof", "open_output", "per_chain", "proof_of", "unit_of"]

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
            ArgumentError: The frame was not written.
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
            raise ArgumentError(
                "observed", problem="its frame was not written: write observed.frame"
            )
        return Totals(got[0].get("units") or 0, got[0]["count"] or 0)


def open_output(spark: SparkSession, output: Output, option: str = "written") -> DataFrame:
    """Read what was written.

    Args:
        spark: The session.
        output: A frame that reads it, the path of Parquet files (with a ``/``), or a table's name.
        option: The name of the argument in errors.

    Raises:
        ArgumentError: There is nothing that can be read.
    """
    if not isinstance(output, str):
        if not hasattr(output, "mapInArrow"):
            raise ArgumentError(option, output, "a frame, path or table's name")
        return output
    # Spark would take what it has in its cache for what lies on disk.
    try:
        if "/" in output:
            spark.catalog.refreshByPath(output)
            frame = spark.read.parquet(output)
        else:
            spark.catalog.refreshTable(output)
            frame = spark.table(output)
        _ = frame.schema
    except AnalysisException as error:
        problem = str(error).partition("\n")[0]
        raise ArgumentError(option, problem=f"{output!r} cannot be read: {problem}") from None
    return frame


def unit_of(rows: Rows, frame: DataFrame) -> Column:
    """Return the unit of each row: the column that carries it, or one made of the unit columns.

    Raises:
        ColumnsError: The frame has neither.
    """
    name = rows.unit_name
    if not has_columns(frame, [name]):
        return unit_column(frame, rows.salt, rows.unit)
    column, type_ = column_named(frame, name)
    if type_.simpleString() != "bigint":
        raise ColumnsError(f"column {name} is {type_.simpleString()}, expected bigint")
    wrong = F.raise_error(F.lit(f"xorack: column {name} is null or 0: the row has no unit"))
    return F.when(column.isNull() | (column == 0), wrong).otherwise(column)


def evidence_of(rows: Rows, frame: DataFrame) -> tuple[Column, Column]:
    """Return the XOR and the count of the units that a row of an output stands for."""
    xor, count = rows.evidence_names
    if has_columns(frame, [xor, count]):
        return F.col(xor).cast("long"), F.col(count).cast("long")
    try:
        return unit_of(rows, frame), F.lit(1).cast("long")
    except ColumnsError as error:
        raise ColumnsError(
            f"the output has neither the evidence of {rows.name!r} ({xor}, {count}) nor its "
            f"units: {error}"
        ) from None


def total(rows: Rows, outputs: Sequence[DataFrame]) -> Totals:
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
        outputs: The frames that read the output; none if it was observed.
        given: The output as it was given.
    """

    kind: str
    totals: Totals
    outputs: Sequence[DataFrame]
    given: Any = None


def proof_of(
    rows: Rows,
    written: Output | Sequence[Output] | None,
    observed: Observed | None,
    read: DataFrame | None,
) -> Proof:
    """Collect the evidence of the one output that is given."""
    given = {"written": written, "observed": observed, "read": read}
    kinds = [kind for kind, output in given.items() if output is not None]
    if len(kinds) != 1:
        found = " and ".join(kinds) or "none of them"
        raise ArgumentError("written", problem=f"{found} given, expected one of {', '.join(given)}")
    if observed is not None:
        return Proof("observed", observed.totals(), ())
    output = read if written is None else written
    outputs: list[Any] = list(output) if isinstance(output, (list, tuple)) else [output]
    if not outputs:
        raise ArgumentError("written", problem="an empty list, expected one or more outputs")
    frames = [open_output(rows.tracking.spark, one) for one in outputs]
    return Proof(kinds[0], total(rows, frames), frames, output)


def per_chain(rows: Rows, outputs: Sequence[DataFrame]) -> DataFrame | None:
    """Sum up the evidence of all outputs by chain.

    Returns:
        ``tag``, ``units`` and ``count``; None if an output lacks the columns of the chain.
    """
    if not outputs or not all(has_columns(frame, rows.chain) for frame in outputs):
        return None
    parts = [fold_units(one, rows.chain, evidence_of(rows, one), rows.prefix) for one in outputs]
    together = reduce(lambda one, other: one.union(other), parts).groupBy("tag")
    return together.agg(F.bit_xor("units").alias("units"), F.sum("count").alias("count"))
