"""What missing rows have in common: samples on the driver, and the duplicates that a job drops."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from xorack.core.masking import masked, masked_path
from xorack.core.reasons import CHARACTERS, Finding, Reasons, find_reasons
from xorack.spark.messages import plain_errors
from xorack.spark.units import comparable, has_columns, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SAMPLE = 10_000
"""Missing rows, and others, that are compared."""
_MAX_COLUMNS = 60
_FILE = "input file"
_DEDUPED = re.compile(r"(?:Deduplicate|Aggregate|Window \[.*?\],) \[([^\]]*)\]")
"""The columns of a plan's operators that keep a row of each group."""


@dataclass(frozen=True)
class Explanation:
    """Why rows are missing: a sentence, and the conditions that it rests on, the best first."""

    sentence: str
    findings: tuple[Finding, ...] = ()


def compare(
    source: tuple[DataFrame, int],
    lost: tuple[DataFrame, int],
    word: str,
    keys: Sequence[str],
    mask: Collection[str] = (),
) -> Reasons:
    """Compare a sample of some rows of a source, lost by these keys, with one of the others."""
    (every, total), (some, count) = source, lost
    if count >= total:
        return find_reasons([], [], count, total, word)
    shown = dict([*comparable(every, CHARACTERS).items()][:_MAX_COLUMNS])
    late = {_FILE: 10.0}
    if has_columns(every, ["xorack_file_"]):
        shown[_FILE] = F.col("xorack_file_")
    if keys:
        tasks = int(every.sparkSession.conf.get("spark.sql.shuffle.partitions") or 200)
        task = f"shuffle partition by {', '.join(keys)}"
        shown[task] = F.pmod(F.hash(*map(F.col, map(quoted, keys))), F.lit(tasks))
        late[task] = 0.5
    columns = F.struct(*(column.alias(name) for name, column in shown.items()))
    samples: list[list[dict[str, Any]]] = []

    def drawn(rows: DataFrame, number: int) -> DataFrame:
        return rows.where(F.rand(1) < _SAMPLE / number) if number > _SAMPLE else rows

    # The others are drawn before the join, which then has few rows to look up.
    for chosen in drawn(some, count), without(drawn(every, total - count), some):
        with plain_errors():
            samples.append([row[0].asDict() for row in chosen.select(columns).collect()])
        for row in samples[-1] if mask else ():
            row.update({name: masked(value) for name, value in row.items() if name.lower() in mask})
            row.update({_FILE: masked_path(row[_FILE], mask)} if row.get(_FILE) else {})
    missing, others = samples
    return find_reasons(missing, others, count, total, word, late)


def without(source: DataFrame, some: DataFrame) -> DataFrame:
    """Return the rows of a source whose unit none of some rows has."""
    return source.join(some.select("xorack_unit_"), "xorack_unit_", "left_anti")


def deduplicated(frames: Sequence[Any], source: DataFrame, lost: DataFrame) -> list[str]:
    """Return columns of which a job keeps one row each, by its plans: if that explains all rows."""
    plans = [
        str(one._jdf.queryExecution().analyzed().toString())
        if hasattr(one, "_jdf")
        else one._explain_string("extended").partition("== Optimized")[0]
        for one in frames
    ]
    for columns in dict.fromkeys(found for plan in plans for found in _DEDUPED.findall(plan)):
        names = [re.sub(r"#\d+L?$", "", name) for name in columns.split(", ") if name]
        if not names or not has_columns(source, names):
            continue
        key = [F.col(quoted(name)) for name in names]
        rest = without(source, lost).select(*key, F.lit(1))
        sides = lost.select(*key, F.lit(0).alias("_kept")).union(rest)
        kept = sides.groupBy(*map(quoted, names)).agg(F.sum("_kept").alias("kept"))
        if not kept.where("kept <> 1").take(1):
            return names
    return []
