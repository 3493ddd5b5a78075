"""Why rows of two frames differ: some of them, and a sample of all, for `xorack.compare.why`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from xorack.compare.report import Change, Counts
from xorack.compare.why import COLUMNS, ROWS, Looked
from xorack.spark.units import comparable, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from xorack.core.explaining import Term
    from xorack.spark._diff.columns import Pair

__all__ = ["changes_of", "looked_at"]


def looked_at(frame: DataFrame, side: int, pairs: DataFrame, counts: Counts) -> Looked:
    """Bring some rows of each kind that a side has to the driver, and a sample of all."""
    columns = dict([*comparable(frame).items()][:COLUMNS])

    def rows(frame: DataFrame) -> list[dict[str, Any]]:
        some = frame.select(*(column.alias(name) for name, column in columns.items())).limit(ROWS)
        try:
            return [row.asDict() for row in some.collect()]
        except (OverflowError, ValueError):  # Python lacks some times
            text = (F.col(quoted(n)).cast("string").alias(n) for n in columns)
            return [row.asDict() for row in some.select(*text).collect()]

    def count(terms: Sequence[Term]) -> int:
        tests = [
            columns[name].eqNullSafe(F.lit(low))
            if low is high
            else columns[name].between(F.lit(low), F.lit(high))
            for name, low, high in terms
        ]
        return frame.where(reduce(and_, tests)).count()

    kinds = {
        kind: rows(pairs.where(F.col("kind") == kind).select(f"{'lr'[side]}.*"))
        for kind in ("missing", "extra", "changed")
        if kind != ("extra", "missing")[side] and getattr(counts, kind)
    }
    total = (counts.left, counts.right)[side]
    sample = frame if total <= ROWS else frame.sample(fraction=ROWS / total, seed=1)
    return Looked(kinds, rows(sample), count)


def changes_of(
    values: Sequence[Pair], rows: DataFrame, changed: Mapping[str, int]
) -> dict[str, Change]:
    """Count the nulls of columns that differ, and find the greatest differences.

    Only of the first 60 columns, as Spark takes minutes to plan sums of a thousand.

    Args:
        values: The compared columns.
        rows: The changed rows, as `Difference.changed` has them.
        changed: In how many rows a column differs.
    """
    found = {name: Change(number) for name, number in changed.items()}
    names, *sides = map(quoted, rows.columns[-3:])
    chosen = [pair for pair in values if pair.name in changed][:COLUMNS]
    sums = []
    for pair in chosen:
        differs = F.array_contains(F.col(names), pair.name)
        left, right = (f"{side}.{quoted(pair.name)}" for side in sides)
        sums += [F.count_if(differs & F.expr(value).isNull()) for value in (left, right)]
        doubles = f"abs(double({left}) - double({right}))"
        exact = "double(null)" if pair.unit is None else pair.distance(left, right)
        distance = F.expr(f"coalesce({exact}, {doubles})" if pair.unit == "" else exact)
        sums.append(F.max(F.when(differs & (distance < float("inf")), distance)))
    told = rows.agg(*sums).collect()[0] if chosen else ()
    for i, pair in enumerate(chosen):
        lefts, rights, most = told[3 * i : 3 * i + 3]
        found[pair.name] = Change(changed[pair.name], lefts, rights, most, pair.unit or "")
    return found
