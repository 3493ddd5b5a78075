"""What missing rows have in common: samples on the driver, and the duplicates that a job drops."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from xorack.ops.reasons import CHARACTERS, Explanation, explain
from xorack.spark.messages import plain_errors
from xorack.spark.units import comparable, has_columns, quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_SAMPLE = 10_000
"""Missing rows, and others, that are compared."""
_MAX_COLUMNS = 60
_FILE = "input file"
_DEDUPED = re.compile(r"(?:Deduplicate|Aggregate|Window \[.*?\],) \[([^\]]*)\]")
"""The columns of a plan's operators that keep a row of each group."""


def compare(
    frame: DataFrame,
    source: tuple[DataFrame, int],
    lost: tuple[DataFrame, int],
    word: str,
    keys: Sequence[str],
) -> Explanation:
    """Compare a sample of some rows of a source, lost by these keys, with one of the others."""
    (every, total), (some, count) = source, lost
    if count >= total:
        return explain((), (), count, total, word)
    shown = dict([*comparable(frame).items()][:_MAX_COLUMNS])
    types = {name: type_ for name, type_ in frame.dtypes if name in shown}
    for name, type_ in types.items():
        if type_ == "string":
            shown[name] = F.left(shown[name], F.lit(CHARACTERS))
    late = {_FILE: 10.0}
    if has_columns(every, ["xorack_file_"]):
        shown[_FILE] = F.col("xorack_file_")
    if keys:
        tasks = int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions") or 200)
        task = f"shuffle partition by {', '.join(keys)}"
        shown[task] = F.pmod(F.hash(*map(F.col, map(quoted, keys))), F.lit(tasks))
        late[task] = 0.5
    sides = lost, (without(every, some), total - count)
    try:
        missing, others = (_sample(*side, shown) for side in sides)
    except (OverflowError, ValueError):  # Python has no such time
        times = [name for name, type_ in types.items() if type_.startswith(("date", "timestamp"))]
        shown |= {name: shown[name].cast("string") for name in times}
        missing, others = (_sample(*side, shown) for side in sides)
    return explain(missing, others, count, total, word, late)


def without(source: DataFrame, some: DataFrame) -> DataFrame:
    """Return the rows of a source whose unit none of some rows has."""
    return source.join(some.select("xorack_unit_"), "xorack_unit_", "left_anti")


def _sample(frame: DataFrame, count: int, shown: dict[str, Column]) -> list[dict[str, Any]]:
    columns = F.struct(*(column.alias(name) for name, column in shown.items()))
    chosen = frame.where(F.rand(1) < _SAMPLE / count) if count > _SAMPLE else frame
    with plain_errors():
        return [row[0].asDict() for row in chosen.select(columns).collect()]


def deduplicated(frames: Sequence[Any], source: DataFrame, lost: DataFrame) -> list[str]:
    """Return the columns of which a job keeps one row each, if that explains each missing row.

    The plans of its frames have these columns. Of the rows that are not missing, one must have the
    values of each missing row, and no two the same.
    """
    for frame in frames:
        if hasattr(frame, "_jdf"):
            plan = str(frame._jdf.queryExecution().analyzed().toString())
        else:
            plan = frame._explain_string("extended").partition("== Optimized")[0]
        for columns in dict.fromkeys(_DEDUPED.findall(plan)):
            names = [re.sub(r"#\d+L?$", "", name) for name in columns.split(", ") if name]
            if not names or not has_columns(source, names):
                continue
            key = [F.col(quoted(name)) for name in names]
            sides = lost.select(*key, F.lit(0).alias("_kept")).union(
                without(source, lost).select(*key, F.lit(1))
            )
            kept = sides.groupBy(*map(quoted, names)).agg(F.sum("_kept").alias("kept"))
            if not kept.where("kept <> 1").take(1):
                return names
    return []
