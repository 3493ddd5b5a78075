"""The job is asked: the frames that `evidence` was given tell which rows reached the output."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

from xorack.spark.evidence import has_evidence, total, unit_in, unit_of
from xorack.spark.folding import Totals, named, of_units, together
from xorack.spark.messages import one_line, plain_errors
from xorack.spark.units import column_named, has_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from xorack.spark.evidence import Proof
    from xorack.spark.run import RowNames


class Asked(NamedTuple):
    """The rows that an output was made of, as the job computes them once more.

    Attributes:
        units: Their ``unit``, cached; None if nobody can be asked.
        frames: The frames that have them; none if the output itself has.
        is_output: Whether they add up to the output.
        problem: Why they could not be computed.
        cached: What is cached of them.
    """

    units: DataFrame | None = None
    frames: tuple[DataFrame, ...] = ()
    is_output: bool = False
    problem: str = ""
    cached: tuple[DataFrame, ...] = ()


def ask(rows: RowNames, proof: Proof, frames: Sequence[DataFrame]) -> Asked:
    """Compute the frames of a job once more, the last ones until they add up to the output.

    An output that has units, and no evidence, stands for itself.
    """
    own = [one for one in proof.outputs if not has_evidence(rows, one)]
    needed = max(1, len(proof.outputs) - len(own))
    parts = [one.select(unit_of(rows, one).alias("unit")) for one in own]
    if own and len(own) == len(proof.outputs):
        return Asked(_together(parts), is_output=True)
    found, some = total(rows, own), Asked()
    cached: list[DataFrame] = []
    try:
        for number, frame in enumerate(frames, 1):
            units = with_unit_of(rows, frame).selectExpr("xorack_unit_ AS unit")
            cached.append(units.persist())
            found += _totals(cached[-1])
            if number <= needed or found == proof.totals:
                units = _together([*parts, *cached])
                some = Asked(units, (*frames[:number],), found == proof.totals)
            if some.is_output:
                break
    except Exception as problem:  # noqa: BLE001 - whatever a job raises: its rows are not known
        some = Asked(problem=one_line(problem))
    return some._replace(cached=tuple(cached))


def _together(parts: Sequence[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.union(other), parts)


def with_unit_of(rows: RowNames, frame: DataFrame) -> DataFrame:
    """Add ``xorack_unit_``; leave out rows without a unit, which evidence does not count."""
    if not has_columns(frame, [rows.unit_name]):
        return frame.withColumn("xorack_unit_", unit_in(rows, frame))
    unit = column_named(frame, rows.unit_name)[0].cast("long")
    return frame.withColumn("xorack_unit_", unit).where("xorack_unit_ IS NOT NULL")


def _totals(units: DataFrame) -> Totals:
    with plain_errors():
        sums = units.select(*named(of_units(F.col("unit")))).agg(*together()).first()
    return Totals(*(number or 0 for number in sums or ()))
