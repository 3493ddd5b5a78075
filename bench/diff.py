"""CPU of `xorack.spark.diff` on TPC-H's lineitem, compared with other ways to compare frames.

Each way counts the rows that differ on both sides and produces them, for a sink that drops them.
One process with one Java runs all of them.
"""

from __future__ import annotations

import operator
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import Observation
from pyspark.sql import functions as F

from bench.harness import Figures, Goal, Table, goal_table
from bench.meter import Meter, cpu, make_lines, ratios, run_variants, spread_goal
from pipeline.session import session
from xorack.spark import diff

LINES = {"0.6 M": 0.1, "3 M": 0.5, "6 M": 1.0, "12 M": 2.0, "18 M": 3.0}
"""Scale factors by the number of rows."""
QUICK_SCALE = 0.01
QUICK_CASES = {"equal": 0, "10 rows": 10, "10 %": 600, "100 columns, 8 rows": 8,
               "2 columns, 1 %": 600, "skewed duplicates, 1 %": 600}  # fmt: skip
"""How many rows differ."""
TURNS = 3
SCAN, DIFF, JOIN, EXCEPT = "scan", "diff", "outer join", "exceptAll"
SHUFFLED = "bytes shuffled"
KEY = "l_orderkey", "l_linenumber"
_FAR = 1_000_000_000
"""Beyond the last order."""

_EQUAL = {JOIN: 0.31, SCAN: 1.1, SHUFFLED: 0.01}
_FEW = {JOIN: 0.5, SHUFFLED: 0.01}
_MANY = {JOIN: 1.1}


@dataclass(frozen=True)
class Case:
    """Two copies of lineitem.

    Attributes:
        lines: The number of rows; see `LINES`.
        differing: How many of the rows differ; all if there are not so many.
        bounds: The most CPU, times that of other ways; of `SHUFFLED`, bytes times the join's.
        turns: How often each way runs.
        columns: What is selected of lineitem, as SQL.
        key: The columns of the key.
        other: The usual way, which diff is compared with.
    """

    lines: str
    differing: int
    bounds: Mapping[str, float] = field(default_factory=dict)
    turns: int = TURNS
    columns: Sequence[str] = ("*",)
    key: Sequence[str] = KEY
    other: str = JOIN


_NARROW = "l_orderkey * 8 + l_linenumber AS id", "l_quantity"
_WIDE = "*", *(f"l_extendedprice * {i} AS c{i}" for i in range(84))
_SKEWED = "bigint(pow(l_partkey % 1000 / 1000D, 8) * 1e5) AS id", "* EXCEPT (l_orderkey)"
CASES = {
    "equal": Case("6 M", 0, _EQUAL),
    "10 rows": Case("6 M", 10, _FEW),
    "1,000 rows": Case("6 M", 1000, _MANY),
    "100 k rows": Case("6 M", 100_000, _MANY),
    "10 %": Case("6 M", 600_000, _MANY),
    "all rows": Case("6 M", 7_000_000, {JOIN: 1.5}, turns=1),
    "2 columns, 1 %": Case("12 M", 120_000, {JOIN: 1.3}, 1, _NARROW, ["id"]),
    "100 columns, 8 rows": Case("0.6 M", 8, {JOIN: 0.6}, columns=_WIDE),
    "skewed duplicates, 1 %": Case("3 M", 30_000, {EXCEPT: 1.2}, 1, _SKEWED, ["id"], EXCEPT),
    "18 M, equal": Case("18 M", 0, _EQUAL, turns=1),
    "18 M, 10 rows": Case("18 M", 10, _FEW, turns=1),
    "0.6 M, 10 rows": Case("0.6 M", 10),
}


def damaged(rows: Any, differing: int) -> Any:
    """Return lineitem: of `differing` rows, 1/4 is gone, 1/4 has a twin, 1/2 another value."""
    if not differing:
        return rows
    draw = F.expr(f"xxhash64({', '.join(KEY)}, 'bench')")
    lowest = rows.select(draw.alias("draw")).orderBy("draw").limit(differing)
    drawn, kind = draw <= lowest.agg(F.max("draw")).first()[0], F.pmod(draw, F.lit(4))

    def change(column: str, number: int, value: Any) -> Any:
        return F.when(drawn & (kind == number), value).otherwise(F.col(column)).alias(column)

    changes = {
        "l_quantity": change("l_quantity", 2, F.expr("l_quantity + 1").cast("decimal(15,2)")),
        "l_comment": change("l_comment", 3, F.expr("l_comment || '.'")),
    }
    added = rows.where(drawn & (kind == 1)).withColumn("l_orderkey", F.col("l_orderkey") + _FAR)
    return rows.where(~(drawn & (kind == 0))).withColumns(changes).unionByName(added)


def drop(rows: Any, *conditions: Any) -> list[int]:
    """Produce rows for a sink that drops them; count those that meet conditions."""
    seen = Observation()
    counts = [F.count(F.when(of, 1)).alias(str(at)) for at, of in enumerate(conditions)]
    rows = rows.observe(seen, *counts) if counts else rows
    rows.write.format("noop").mode("overwrite").save()
    return [seen.get[str(at)] for at in range(len(conditions))]


Compared = tuple[int, int]
"""How many rows of each side are not on the other; a changed row counts on both."""


def by_scan(left: Any, right: Any, key: Sequence[str]) -> None:
    """Hash all columns of both sides: what any comparison has to read."""
    for side in (left, right):
        side.agg(F.bit_xor(F.xxhash64(*left.columns))).first()


def by_join(left: Any, right: Any, key: Sequence[str]) -> Compared:
    """Join both sides on the key, and compare all columns."""
    pairs = {name: (F.col(f"a.{name}"), F.col(f"b.{name}")) for name in left.columns}
    same = [pairs[name][0].eqNullSafe(pairs[name][1]) for name in key]
    differ = reduce(operator.or_, [~a.eqNullSafe(b) for a, b in pairs.values()])
    joined = left.alias("a").join(right.alias("b"), same, "full_outer").where(differ)
    lefts, rights = drop(joined, *(side.isNotNull() for side in pairs[key[0]]))
    return lefts, rights


def by_except(left: Any, right: Any, key: Sequence[str]) -> Compared:
    """Subtract each side from the other, as multisets."""
    lefts, rights = left.exceptAll(right), right.exceptAll(left)
    return drop(lefts, F.lit(True))[0], drop(rights, F.lit(True))[0]


def by_diff(left: Any, right: Any, key: Sequence[str]) -> Compared:
    """Let `xorack.spark.diff` compare."""
    with diff(left, right, key=key) as found:
        counts = found.counts
        if not found.equal:
            for rows in (found.missing, found.extra, found.changed):
                drop(rows)
    return counts.missing + counts.changed, counts.extra + counts.changed


WAYS = {SCAN: by_scan, DIFF: by_diff, JOIN: by_join, EXCEPT: by_except}


def run_case(spark: Any, case: Case, sides: Sequence[str]) -> dict[str, list[Figures]]:
    """Compare two folders in all ways."""

    def run(name: str) -> tuple[Compared | None, Figures]:
        left, right = map(spark.read.parquet, sides)
        meter = Meter(spark, Path("none"))
        with meter.step("compare"):
            compared = WAYS[name](left, right, case.key)
        return compared, meter.figures()

    return run_variants((SCAN, DIFF, case.other), run, case.turns)


def measure(quick: bool, names: Iterable[str] = CASES) -> Figures:
    """Measure cases; a small one runs before: Java compiles."""
    cases = {name: CASES[name] for name in names}
    if quick:
        cases = {n: replace(CASES[n], turns=1, differing=QUICK_CASES[n])
                 for n in QUICK_CASES if n in cases}  # fmt: skip
    warm_up = {} if quick else {"warm-up": Case("0.6 M", 1000)}
    spark, results = session("xorack bench"), {}
    # Spark's default: the session's two partitions would spill.
    spark.conf.set("spark.sql.shuffle.partitions", 200)
    with tempfile.TemporaryDirectory(prefix="xorack-bench-") as data:
        for name, case in (warm_up | cases).items():
            lines = Path(data, case.lines)
            if not lines.exists():
                make_lines(lines, QUICK_SCALE if quick else LINES[case.lines])
            rows = spark.read.parquet(f"{lines}/lineitem")
            sides = {f"{data}/left": rows, f"{data}/right": damaged(rows, case.differing)}
            for folder, frame in sides.items():
                frame.selectExpr(*case.columns).write.mode("overwrite").parquet(folder)
            results[name] = run_case(spark, case, list(sides))
    spark.stop()
    return {"turns": TURNS, "cases": {name: results[name] for name in cases}}


def goals_of(name: str, case: Figures) -> Iterator[Goal]:
    """Yield the goals of a case."""
    for what, bound in CASES[name].bounds.items():
        if what == SHUFFLED:
            ours, others = (median(run["shuffle_mb"] for run in case[of]) for of in (DIFF, JOIN))
            yield Goal(f"{name}: {what}, times the {JOIN}'s", ours / others, bound, "less")
        else:
            yield spread_goal(f"{name}: CPU, times the {what}'s", ratios(case, DIFF, what), bound)


def tables(figures: Figures) -> list[Table]:
    """Make the tables."""
    table = Table(
        ["case", "scan, CPU s", "usual way", "diff", "diff, times the usual way", "times the scan",
         "diff, seconds", "MB shuffled: usual way", "diff", "MB spilled: usual way", "diff"],
    )  # fmt: skip
    goals: list[Goal] = []
    for name, case in figures["cases"].items():
        goals += goals_of(name, case)
        other = next(way for way in (JOIN, EXCEPT) if way in case)
        figures_of = ("wall", DIFF), *product(("shuffle_mb", "spilled_mb"), (other, DIFF))
        table.add(
            name if other == JOIN else f"{name} ({other})",
            *(median(map(cpu, case[way])) for way in (SCAN, other, DIFF)),
            *(median(ratios(case, DIFF, base)) for base in (other, SCAN)),
            *(float(median(run[figure] for run in case[way])) for figure, way in figures_of),
        )
    return [table, goal_table(goals)]
