"""Which units are missing, chain by chain: the notes that `finish` sends with their ids."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from xorack.core.errors import ColumnsError
from xorack.spark.evidence import has_evidence, unit_of
from xorack.spark.grouping import tags
from xorack.spark.starting import request_id
from xorack.spark.units import tag_column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from xorack.spark.missing import MissingRows
    from xorack.spark.names import Rows
    from xorack.spark.record import Line

__all__ = ["missing_units", "notes", "of_found"]

_WHY = 200
"""Characters of the reason that a note has: a note has 1,024 bytes."""
_NAMED = 100
"""The ids that a note may have."""


def missing_units(
    rows: Rows, line: Line, outputs: Sequence[DataFrame], source: DataFrame, differing: DataFrame
) -> DataFrame:
    """Name the units that chains lack, as far as the data tells them.

    A chain that lacks one unit names it by its sums, one that lacks all by what was started. An
    output with units, or a record that keeps them, names any.

    Args:
        rows: The rows.
        line: The line of their record.
        outputs: The outputs.
        source: What the job read.
        differing: The chains: see `xorack.spark.finishing`.

    Returns:
        These chains, with ``ids`` added: up to 100 of them in hexadecimal, or null.
    """
    held, is_exact = _held(rows, outputs, source)
    started = _started(rows, line, source)
    # What the input still has is not what it lacked; an output names what it has only by units.
    applies = F.lit(True) if is_exact else F.col("verdict") == "lacking"
    nameable = differing.where(F.lit(is_exact) | applies | (F.col("written") == 0))
    short = nameable.where("written < started").select("tag", "verdict")
    lost = started.join(short, "tag").join(held, (F.col("unit") == F.col("held")) & applies, "anti")
    named = _named(lost)
    lost_one = F.expr("started - written = 1 AND lost_sum = shiftright(lost_xor, 32)")
    alone = F.when(lost_one & (F.col("lost_xor") != 0), F.array(_hex("lost_xor")))
    joined = differing.join(named.drop("n"), "tag", "left")
    return joined.withColumn("ids", F.coalesce("named", alone)).drop("named")


def _named(units: DataFrame) -> DataFrame:
    """Return ``tag``, ``n``, and up to 100 of its ``unit`` in hexadecimal as ``named``."""
    chain = Window.partitionBy("tag")
    placed = units.withColumns(
        {"place": F.row_number().over(chain.orderBy("unit")), "n": F.count("unit").over(chain)}
    )
    ids = F.array_sort(F.collect_list(_hex("unit"))).alias("named")
    return placed.where(f"place <= {_NAMED}").groupBy("tag", "n").agg(ids)


def of_found(rows: Rows, found: MissingRows, started: DataFrame) -> DataFrame:
    """Return what `missing_units` does, of rows that were found by what output and input share.

    Args:
        rows: The rows.
        found: The missing rows.
        started: ``tag`` and ``count`` of the chains.
    """
    tagged = tags(rows, found.rows)
    units = tagged.select(F.col("xorack_tag_").alias("tag"), unit_of(rows, tagged).alias("unit"))
    chains = _named(units).join(started.select("tag", F.col("count").alias("started")), "tag")
    written = (F.col("started") - F.col("n")).alias("written")
    verdict = F.lit("differs").alias("verdict")
    return chains.select("tag", verdict, "started", written, F.col("named").alias("ids"))


def _hex(name: str) -> Column:
    return F.lower(F.lpad(F.hex(name), 16, "0"))


def _held(rows: Rows, outputs: Sequence[DataFrame], source: DataFrame) -> tuple[DataFrame, bool]:
    """Return the units that are there, and whether the output names them; else the input does."""
    try:
        if outputs and not any(has_evidence(rows, one) for one in outputs):
            units = [one.select(unit_of(rows, one).alias("held")) for one in outputs]
            return reduce(lambda one, other: one.union(other), units), True
    except ColumnsError:
        pass
    return source.select(unit_of(rows, source).alias("held")), False


def _started(rows: Rows, line: Line, source: DataFrame) -> DataFrame:
    """Return ``tag`` and ``unit`` of what was started, or of the input where nothing keeps it."""
    if line["keeps_units"]:
        kept = rows.record.units(line)
        names, unit = kept.columns[: len(rows.chain)], F.col("unit")
    else:
        kept, names, unit = source, [*rows.chain], unit_of(rows, source)
    return kept.select(tag_column(kept, rows.prefix, names).alias("tag"), unit.alias("unit"))


def notes(rows: Rows, missing: DataFrame, why: str = "") -> DataFrame:
    """Return the requests that note on chains what is missing, and why: see `missing_units`."""
    lost = F.col("started") - F.col("written")
    number = F.format_string("%,d", F.abs(lost))
    of = F.concat(number, F.lit(" of "), F.format_string("%,d", "started"), F.lit(" units of "))
    where = F.when(F.col("verdict") == "lacking", " were not in what the job read")
    text = (
        F.when(lost > 0, F.concat(of, F.lit(rows.name), where.otherwise(" are not in the output")))
        .when(lost < 0, F.concat(F.lit("the output has too many units: "), number))
        .otherwise("the output has as many units as were started, but others")
    )
    if why:
        text = F.concat(text, F.when(where.isNull(), F.lit(f"; {why[:_WHY]}")).otherwise(""))
    noted = missing.select(
        "tag", text.alias("text"), F.col("ids").alias("missing"), lost.alias("n")
    )
    digest = noted.withColumn("digest", F.xxhash64("text", "missing"))
    id = F.concat(F.lit(f"{request_id(rows, 'finish')}/note/"), _hex("digest")).alias("id")
    count = F.when(F.col("n") > 0, F.col("n")).alias("missing_count")
    return digest.select(F.lit("note").alias("op"), "tag", id, "text", "missing", count)
