"""What is said of an output that differs: by the error, and by notes on its chains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F

from xorack.core.masking import masked
from xorack.ops.text import cut
from xorack.spark.errors import ColumnsError, OutputDiffersError
from xorack.spark.messages import one_line
from xorack.spark.missing.found import resolve
from xorack.spark.starting import request_id
from xorack.spark.units import column_named

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from xorack.spark.evidence import Output, Proof
    from xorack.spark.run import RowNames

_MAX_NAMED = 100
"""Rows that an error has, and ids that a note may have."""
_MAX_SAID = 20
"""Rows in the text of an error."""
_MAX_REASON = 200
"""Characters of the reason that a note has: a note has 1,024 bytes."""


def output_differs(
    rows: RowNames,
    proof: Proof,
    started: int,
    source: tuple[Output, DataFrame],
    chains: Sequence[str] = (),
    differing: str = "",
) -> OutputDiffersError:
    """Make the error of an output that differs, with the rows that are missing from it."""
    given, frame = source
    counts = rows.name, started, proof.totals.count, chains, differing
    try:
        found = resolve(rows, frame, proof, started)
        names = _first(rows, found.tagged) if found.named else []
        doubled = _first(rows, found.doubled) if found.surplus else []
        why = found.explain().sentence
        report = [*([why] if why else []), str(found), found.proof]
    except ColumnsError:
        raise
    except Exception as problem:  # noqa: BLE001 - that it differs is known, and is said
        text = f"which rows differ could not be found: {one_line(problem)}"
        return OutputDiffersError(*counts, [text])
    for some, count, word in (names, found.named, "missing"), (doubled, len(doubled), "doubled"):
        if some:
            texts = cut([*map(str, some)], _MAX_SAID, count)
            report.append(f"{word}, by ({', '.join(rows.unit)}): {', '.join(texts)}")
    if rows.batch_id is None:
        unnamed = found.named < found.missing
        how = "names: give evidence the frame that it adds up, or" if unnamed else "as a frame"
        more = ", rows=frame" if unnamed or found.jobs else ""
        output, input_ = _text(proof.given, "written"), _text(given, "rows")
        report.append(f"{how}: {rows.name}.audit({output}).missing_rows({input_}{more})")
    error = OutputDiffersError(*counts, report)
    error.missing, error.why, error.found = names, why, found
    return error


def _first(rows: RowNames, frame: DataFrame) -> list[tuple[Any, ...]]:
    columns, mask = [column_named(frame, name)[0] for name in rows.unit], rows.tracking.mask
    return [
        tuple(
            masked(row[i]) if name.lower() in mask else row[i] for i, name in enumerate(rows.unit)
        )
        for row in frame.select(*columns).limit(_MAX_NAMED).collect()
    ]


def _text(given: Any, otherwise: str) -> str:
    several = given if isinstance(given, (list, tuple)) else [given]
    return repr(given) if all(isinstance(output, str) for output in several) else otherwise


def named_units(units: DataFrame) -> DataFrame:
    """Return how many units are ``named`` and up to 100 ``ids`` in hexadecimal, by ``tag``."""
    chain = Window.partitionBy("xorack_tag_")
    place = F.row_number().over(chain.orderBy("xorack_unit_"))
    named = F.count("xorack_unit_").over(chain).alias("named")
    placed = units.select("xorack_tag_", "xorack_unit_", place.alias("place"), named)
    some = placed.where(f"place <= {_MAX_NAMED}").groupBy("xorack_tag_", "named")
    ids = F.array_sort(F.collect_set(hex_of("xorack_unit_"))).alias("ids")
    return some.agg(ids).withColumnRenamed("xorack_tag_", "tag")


def hex_of(name: str | Column) -> Column:
    """Return units as 16 hex digits."""
    return F.lower(F.lpad(F.hex(name), 16, "0"))


def notes(rows: RowNames, chains: DataFrame, why: str = "") -> DataFrame:
    """Return the requests that note on chains what is missing, and why."""
    where = """
        CASE WHEN is_unread THEN 'not in what the job read' WHEN named > 0 THEN 'not in the output'
        WHEN found = started THEN 'in the output, but others' ELSE 'in the output' END"""
    count = "if(is_unread, started - found, named)"
    numbers = f"coalesce({count}, found), started"
    text = F.expr(f"format_string('%,d of %,d units of {rows.name} are %s', {numbers}, {where})")
    is_told = F.lit(bool(why)) & F.expr("named > 0 AND NOT is_unread")
    because = F.when(is_told, f"; {why[:_MAX_REASON]}").otherwise("")
    noted = chains.withColumn("text", F.concat(text, because))
    digest = hex_of(F.xxhash64("text", "ids"))
    id = F.concat(F.lit(f"{request_id(rows, 'finish')}/note/"), digest).alias("id")
    return noted.selectExpr("*", f"{count} AS missing_count").select(
        F.lit("note").alias("op"), "tag", id, "text", F.col("ids").alias("missing"), "missing_count"
    )
