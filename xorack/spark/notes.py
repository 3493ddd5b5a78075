"""The notes on chains that stay open: their missing units, and the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import Window
from pyspark.sql import functions as F

from xorack.spark.units import chain_columns, hex_of, with_tag

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from xorack.spark.run import RowNames

_MAX_IDS = 100
"""Most ids in a note."""
_MAX_SENTENCE = 300
"""Most characters of a sentence in a note, which has at most 1,024 bytes."""
IS_SINGLE = "missing_count = 1 AND xor <> 0 AND sum = shiftright(xor, 32)"
"""Whether the difference of a chain is one missing unit, whose id is the XOR."""


class Notes(NamedTuple):
    """The requests that add notes to chains, and the approximate number of these chains."""

    requests: DataFrame
    chains: int


def by_tag(rows: RowNames, differing: DataFrame) -> DataFrame:
    """Sum up the differing rows by chain: ``tag``, `missing`, `surplus` and up to 100 ``ids``.

    The ids are the missing units of which the output has no row.
    """
    columns = chain_columns(differing, rows.chain)
    keys = [f"c{i}" for i in range(len(columns))]
    count = F.col("xorack_missing_").alias("missing_count")
    units = differing.select(*columns, "xorack_unit_", count, "xorack_named_")
    listed = F.expr("missing_count > 0 AND xorack_named_").alias("is_listed")
    # This needs one shuffle, because all further steps keep the rows of a chain together. A unit
    # of several rows counts once.
    tagged = with_tag(units, rows.prefix, keys).repartition("tag")
    distinct = tagged.select("tag", "xorack_unit_", "missing_count", listed).distinct()
    order = F.desc("is_listed"), F.col("xorack_unit_")
    place = F.row_number().over(Window.partitionBy("tag").orderBy(*order))
    is_shown = F.expr(f"is_listed AND place <= {_MAX_IDS}")
    ids = F.sort_array(F.collect_list(F.when(is_shown, hex_of("xorack_unit_"))))
    return (
        distinct.withColumn("place", place)
        .groupBy("tag")
        .agg(
            F.expr("sum(greatest(missing_count, 0L)) AS missing"),
            F.expr("sum(greatest(-missing_count, 0L)) AS surplus"),
            F.when(F.size(ids) > 0, ids).alias("ids"),
        )
    )


def notes(rows: RowNames, noted: DataFrame, count: int, sentence: str = "") -> Notes:
    """Return the requests for notes with ``tag``, ``text``, ``missing_count`` and ``ids``.

    The sentence follows each text.
    """
    if sentence:
        more = F.concat(F.lit("; "), F.lit(sentence[:_MAX_SENTENCE]))
        noted = noted.withColumn("text", F.concat("text", more))
    hashed = F.xxhash64("text", F.col("ids").cast("array<string>"))
    id = F.concat(F.lit(f"{rows.request_id('finish')}/note/"), hex_of(hashed))
    facts = "text", "ids AS missing", "missing_count"
    return Notes(noted.withColumn("id", id).selectExpr("'note' AS op", "tag", "id", *facts), count)
