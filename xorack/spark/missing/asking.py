"""The job is asked: the frames that `evidence` was given tell which rows reached the output."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

from xorack.spark.evidence import has_evidence, total, unit_in, unit_of
from xorack.spark.folding import named, of_units, totals_of
from xorack.spark.messages import one_line, plain_errors
from xorack.spark.units import column_named, has_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from xorack.spark.evidence import Proof
    from xorack.spark.missing.comparing import Keep
    from xorack.spark.run import RowNames


class Asked(NamedTuple):
    """The units of an output as the job computes them once more: None if nobody can be asked.

    The frames have them, none if the output itself has; `is_output` if they add up to the output.
    """

    units: DataFrame | None = None
    frames: tuple[DataFrame, ...] = ()
    is_output: bool = False
    problem: str = ""


def ask(rows: RowNames, proof: Proof, frames: Sequence[DataFrame], keep: Keep) -> Asked:
    """Compute the frames of a job once more, the last ones until they add up to the output."""
    own = [frame for frame in proof.outputs if not has_evidence(rows, frame)]
    parts = [frame.select(unit_of(rows, frame).alias("unit")) for frame in own]
    if own and len(own) == len(proof.outputs):  # it has units: it stands for itself
        return Asked(reduce(_union, parts), is_output=True)
    needed, found, asked = max(1, len(proof.outputs) - len(own)), total(rows, own), Asked()
    try:
        for number, frame in enumerate(frames, 1):
            parts.append(keep(with_unit_of(rows, frame).selectExpr("xorack_unit_ AS unit")))
            with plain_errors():
                found += totals_of(parts[-1].select(*named(of_units(F.col("unit")))))
            if number <= needed or found == proof.totals:
                asked = Asked(reduce(_union, parts), (*frames[:number],), found == proof.totals)
            if asked.is_output:
                break
    except Exception as problem:  # noqa: BLE001 - whatever a job raises: its rows are not known
        return Asked(problem=one_line(problem))
    return asked


def _union(one: DataFrame, other: DataFrame) -> DataFrame:
    return one.union(other)


def with_unit_of(rows: RowNames, frame: DataFrame) -> DataFrame:
    """Add ``xorack_unit_``; leave out rows without a unit, which evidence does not count."""
    if not has_columns(frame, [rows.unit_name]):
        return frame.withColumn("xorack_unit_", unit_in(rows, frame))
    unit = column_named(frame, rows.unit_name)[0].cast("long")
    return frame.withColumn("xorack_unit_", unit).where("xorack_unit_ IS NOT NULL")
