"""Why rows of two frames differ: some of them, and a sample of all, for `xorack.compare.why`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql import types as T

from xorack.compare.report import Change, Counts
from xorack.compare.why import COLUMNS, ROWS, Looked
from xorack.spark.units import comparable, quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from xorack.core.explaining import Term
    from xorack.spark._diff.columns import Pair

__all__ = ["changes_of", "looked_at"]

_TIMES = (T.DateType, T.TimestampType, T.TimestampNTZType)


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
    names, *sides = (F.col(quoted(name)) for name in rows.columns[-3:])
    chosen = [pair for pair in values if pair.name in changed][:COLUMNS]
    units, sums = [], []
    for pair in chosen:
        differs = F.array_contains(names, pair.name)
        pair_of = [F.when(differs, side.getField(pair.name)) for side in sides]
        distance, unit = _distance(pair, *pair_of)
        sums += [F.count_if(differs & value.isNull()) for value in pair_of]
        sums.append(F.max(F.when(distance < float("inf"), distance)))
        units.append(unit)
    told = rows.agg(*sums).collect()[0] if chosen else ()
    for i, pair in enumerate(chosen):
        lefts, rights, most = told[3 * i : 3 * i + 3]
        found[pair.name] = Change(changed[pair.name], lefts, rights, most, units[i])
    return found


def _distance(pair: Pair, left: Column, right: Column) -> tuple[Column, str]:
    """Return the distance of two values, null if their types have none, and its unit."""
    types = pair.left.dataType, pair.right.dataType
    if all(isinstance(of, T.NumericType) for of in types):
        return F.abs(left.cast("double") - right.cast("double")), ""
    if types[0] == types[1] and isinstance(types[0], _TIMES):
        micros = [F.unix_micros(of.cast("timestamp")) for of in (left, right)]
        return F.abs(micros[0] - micros[1]) / 1e6, "s"
    return F.lit(None).cast("double"), ""
