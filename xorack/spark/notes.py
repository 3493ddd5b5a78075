"""What chains lack: the notes that `finish` sends, with the ids that are known."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from xorack.spark.starting import request_id

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from xorack.spark.run import Rows

__all__ = ["named_units", "notes", "with_ids"]

_WHY = 200
"""Characters of the reason that a note has: a note has 1,024 bytes."""
_NAMED = 100
"""The ids that a note may have."""


def named_units(found: Sequence[DataFrame]) -> DataFrame:
    """Return ``tag``, ``n``, and up to 100 ids in hexadecimal as ``ids``, of units of chains.

    Args:
        found: Units: see `xorack.spark.grouping.Differing`.
    """
    chain = Window.partitionBy("xorack_tag_")
    place = F.row_number().over(chain.orderBy("xorack_unit_"))
    units = reduce(lambda one, other: one.union(other), found)
    placed = units.withColumns({"place": place, "n": F.count("xorack_unit_").over(chain)})
    ids = F.array_sort(F.collect_list(_hex("xorack_unit_"))).alias("ids")
    some = placed.where(f"place <= {_NAMED}")
    return some.groupBy(F.col("xorack_tag_").alias("tag"), "n").agg(ids)


def with_ids(chains: DataFrame, found: Sequence[DataFrame]) -> DataFrame:
    """Add the ids that chains lack. One that lacks a single unit names it by its sums.

    Args:
        chains: See `xorack.spark.grouping.compare_chains`.
        found: As for `named_units`.
    """
    one = F.expr("started - found = 1 AND lost_xor <> 0 AND lost_sum = shiftright(lost_xor, 32)")
    alone = F.when(one, F.array(_hex("lost_xor")))
    if not found:
        return chains.withColumn("ids", alone)
    joined = chains.join(named_units(found).drop("n"), "tag", "left")
    return joined.withColumn("ids", F.coalesce("ids", alone))


def _hex(name: str) -> Column:
    return F.lower(F.lpad(F.hex(name), 16, "0"))


def notes(rows: Rows, chains: DataFrame, why: str = "") -> DataFrame:
    """Return the requests that note on chains what is missing, and why.

    Args:
        rows: The rows.
        chains: ``tag``, ``state``, ``started``, ``found`` and ``ids`` of the chains.
        why: What the missing rows have in common.
    """
    lost = F.col("started") - F.col("found")
    number = F.format_string("%,d", F.abs(lost))
    of = F.concat(number, F.lit(" of "), F.format_string("%,d", "started"), F.lit(" units of "))
    where = F.when(F.col("state") == "lacking", " were not in what the job read")
    text = (
        F.when(lost > 0, F.concat(of, F.lit(rows.name), where.otherwise(" are not in the output")))
        .when(lost < 0, F.concat(F.lit("the output has too many units: "), number))
        .otherwise("the output has as many units as were started, but others")
    )
    if why:
        text = F.concat(text, F.when(where.isNull(), F.lit(f"; {why[:_WHY]}")).otherwise(""))
    noted = chains.select("tag", text.alias("text"), F.col("ids").alias("missing"), lost.alias("n"))
    digest = noted.withColumn("digest", F.xxhash64("text", "missing"))
    id = F.concat(F.lit(f"{request_id(rows, 'finish')}/note/"), _hex("digest")).alias("id")
    count = F.when(F.col("n") > 0, F.col("n")).alias("missing_count")
    return digest.select(F.lit("note").alias("op"), "tag", id, "text", "missing", count)
