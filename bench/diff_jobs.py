"""The comparisons whose price `bench.diff` measures, run in turn in one process with one Java.

It reads the arguments of `run_cases` as JSON and prints its result. Each comparison counts the rows
that differ on both sides and produces them, for a sink that drops them.
"""

from __future__ import annotations

import json
import operator
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from pathlib import Path
from typing import Any

from bench.harness import Figures, interleaved
from bench.spark_jobs import Meter

KEY = ["l_orderkey", "l_linenumber"]
_FAR = 1_000_000_000
"""Beyond the last order."""


def damaged(rows: Any, differing: int) -> Any:
    """Change so many rows of lineitem: a quarter each is dropped, added, or gets another value.

    Args:
        rows: Those of lineitem.
        differing: How many; the same ones each time.
    """
    from pyspark.sql import functions as F

    if not differing:
        return rows
    draw = F.expr(f"xxhash64({', '.join(KEY)}, 'bench')")
    lowest = rows.select(draw.alias("draw")).orderBy("draw").limit(differing)
    drawn, kind = draw <= lowest.agg(F.max("draw")).first()[0], F.pmod(draw, F.lit(4))

    def change(column: str, number: int, value: Any) -> Any:
        return F.when(drawn & (kind == number), value).otherwise(F.col(column)).alias(column)

    far = F.col("l_orderkey") + _FAR
    changes = {
        "l_quantity": change("l_quantity", 2, F.expr("l_quantity + 1").cast("decimal(15,2)")),
        "l_comment": change("l_comment", 3, F.expr("l_comment || '.'")),
    }
    added = rows.where(drawn & (kind == 1)).withColumn("l_orderkey", far)
    return rows.where(~(drawn & (kind == 0))).withColumns(changes).unionByName(added)


def drop(rows: Any) -> None:
    """Produce rows for a sink that drops them."""
    rows.write.format("noop").mode("overwrite").save()


def drop_and_count(rows: Any, *conditions: Any) -> list[int]:
    """Produce rows, and count those that meet conditions in the same job."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    seen = Observation()
    counts = [F.count(F.when(of, 1)).alias(str(at)) for at, of in enumerate(conditions)]
    drop(rows.observe(seen, *counts))
    return [seen.get[str(at)] for at in range(len(conditions))]


Compared = tuple[int, int]
"""How many rows of each side are not on the other; a changed row counts on both."""


def by_scan(left: Any, right: Any) -> None:
    """Hash all columns of both sides: what any comparison has to read."""
    from pyspark.sql import functions as F

    for side in (left, right):
        side.agg(F.bit_xor(F.xxhash64(*left.columns))).first()


def by_join(left: Any, right: Any) -> Compared:
    """Join both sides on the key, and compare all columns."""
    from pyspark.sql import functions as F

    pairs = {name: (F.col(f"a.{name}"), F.col(f"b.{name}")) for name in left.columns}
    same = [pairs[name][0].eqNullSafe(pairs[name][1]) for name in KEY]
    differ = reduce(operator.or_, [~a.eqNullSafe(b) for a, b in pairs.values()])
    joined = left.alias("a").join(right.alias("b"), same, "full_outer").where(differ)
    lefts, rights = drop_and_count(joined, *(side.isNotNull() for side in pairs[KEY[0]]))
    return lefts, rights


def by_except(left: Any, right: Any) -> Compared:
    """Subtract each side from the other."""
    from pyspark.sql import functions as F

    (lefts,) = drop_and_count(left.exceptAll(right), F.lit(True))
    (rights,) = drop_and_count(right.exceptAll(left), F.lit(True))
    return lefts, rights


def by_datacompy(left: Any, right: Any) -> Compared:
    """Let datacompy compare, dates as strings: version 1.1 fails on dates."""
    from datacompy.spark import SparkSQLCompare
    from pyspark.sql import functions as F

    dates = {name: F.col(name).cast("string") for name, of in left.dtypes if of == "date"}
    sides = [side.withColumns(dates) for side in (left, right)]
    found = SparkSQLCompare(left.sparkSession, *sides, join_columns=KEY)
    changed = found.intersect_rows.count() - found.count_matching_rows()
    alone = [rows.count() for rows in (found.df1_unq_rows, found.df2_unq_rows)]
    found.intersect_rows.unpersist()
    return alone[0] + changed, alone[1] + changed


def by_diff(left: Any, right: Any) -> Compared:
    """Let `xorack.spark.diff` compare."""
    from xorack.spark import diff

    with diff(left, right, key=KEY) as found:
        counts = found.counts
        if not found.equal:
            for rows in (found.missing, found.extra, found.changed):
                drop(rows)
    return counts.missing + counts.changed, counts.extra + counts.changed


VARIANTS = {
    "scan": by_scan,
    "diff": by_diff,
    "outer join": by_join,
    "exceptAll": by_except,
    "datacompy": by_datacompy,
}


def run_case(
    spark: Any, sides: Sequence[str], variants: Sequence[str], slow: Sequence[str], turns: int
) -> dict[str, list[Figures]]:
    """Compare two folders, turn after turn.

    Args:
        spark: The session.
        sides: Left and right.
        variants: Of `VARIANTS`, in turn.
        slow: Variants that run once.
        turns: How often the others run.

    Raises:
        RuntimeError: The variants find different rows.
    """
    found: set[Compared] = set()

    def run(compare: Callable[[Any, Any], Compared | None]) -> Figures:
        left, right = map(spark.read.parquet, sides)
        meter = Meter(spark, Path("none"))
        with meter.step("compare"):
            compared = compare(left, right)
        if compared:
            found.add(compared)
        figures = meter.figures()
        print(f"  {compare.__name__}: {figures}", file=sys.stderr, flush=True)
        return figures

    runs: dict[str, list[Figures]] = {}
    for names, times in ((variants, turns), (slow, 1)):
        if names:
            runs |= interleaved({name: partial(run, VARIANTS[name]) for name in names}, times)
    if len(found) != 1:
        raise RuntimeError(f"the variants find different numbers of rows: {found}")
    return runs


def run_cases(
    cases: Mapping[str, Mapping[str, Any]], data: str
) -> dict[str, dict[str, list[Figures]]]:
    """Run cases.

    Args:
        cases: ``lines``: the folder of lineitem in ``data``; ``differing``: how many of its rows
            differ; ``variants``, ``slow`` and ``turns``, as for `run_case`.
        data: The folder of the data, in which the damaged sides are written.

    Returns:
        The figures of each turn, by case and variant.
    """
    from pipeline.session import session

    spark, results = session("xorack bench"), {}
    # Spark's default: the session's two partitions would spill.
    spark.conf.set("spark.sql.shuffle.partitions", 200)
    for name, case in cases.items():
        print(f"{name} ...", file=sys.stderr, flush=True)
        sides = f"{data}/{case['lines']}/lineitem", f"{data}/damaged"
        damaged(spark.read.parquet(sides[0]), case["differing"]).write.parquet(sides[1])
        results[name] = run_case(spark, sides, case["variants"], case["slow"], case["turns"])
        shutil.rmtree(sides[1])
    return results


if __name__ == "__main__":
    print(json.dumps(run_cases(**json.load(sys.stdin))))
