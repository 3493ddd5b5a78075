"""What is said of an output that differs: by the error, and by notes on its chains."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F

from xorack.spark.errors import ColumnsError, OutputDiffersError
from xorack.spark.messages import one_line
from xorack.spark.missing import MissingRows, resolve
from xorack.spark.record import Record, summary_in
from xorack.spark.starting import request_id

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from xorack.spark.evidence import Output, Proof
    from xorack.spark.run import Names

_NAMED = 100
"""Rows that an error names, and ids that a note may have."""
_WHY = 200
"""Characters of the reason that a note has: a note has 1,024 bytes."""


def find_missing(rows: Names, proof: Proof, started: int, source: DataFrame) -> MissingRows | None:
    """Compare an output with what the job read; None if the output cannot be read.

    Raises:
        ColumnsError: Columns or values are unsuitable.
        OutputDiffersError: They cannot be compared.
    """
    numbers = started, proof.totals.count
    try:
        return resolve(rows, source, proof.outputs, numbers) if proof.outputs else None
    except ColumnsError:
        raise
    except Exception as problem:
        raise OutputDiffersError(rows.name, *numbers, (), "", _unknown(problem)) from problem


def output_differs(
    rows: Names,
    proof: Proof,
    started: int,
    source: tuple[Output, MissingRows | None],
    chains: tuple[Sequence[str], str] = ((), ""),
) -> OutputDiffersError:
    """Make the error of an output that differs, with the rows that it lacks.

    Args:
        rows: The rows that finish.
        proof: The evidence of the output.
        started: How many units were started.
        source: What the job read, as it was given, and what `find_missing` found.
        chains: Some of the chains that differ, and how many differ.
    """
    first = rows.name, started, proof.totals.count, *chains
    given, found = source
    if found is None:
        return OutputDiffersError(*first)
    try:
        missing, why = found.looked.rows, found.explain().sentence
        report = [*filter(None, [*_causes(rows, proof, started, found), why]), str(found)]
        for some, word in ((missing, "missing"), (found.looked.doubled, "doubled")):
            if some:
                named = ", ".join(str(_values(rows, row)) for row in some[:_NAMED])
                report.append(f"{word}, by ({', '.join(rows.unit)}): {named}")
    except Exception as problem:  # noqa: BLE001 - that it differs is known, and is told
        return OutputDiffersError(*first, _unknown(problem))
    if rows.batch_id is None:
        output, input_ = _text(proof.given, "written"), _text(given, "rows")
        report.append(f"as a frame: {rows.name}.audit({output}).missing_rows({input_})")
    error = OutputDiffersError(*first, report)
    error.missing = [_values(rows, row) for row in missing[:_NAMED]]
    error.why, error.found = why, found
    return error


def _unknown(problem: Exception) -> list[str]:
    return [f"which rows differ could not be found: {one_line(problem)}"]


def _causes(rows: Names, proof: Proof, started: int, found: MissingRows) -> Iterable[str]:
    """Say what was added to the input, or whose units an output has that is as large as that."""
    more = found.total - started
    if more > 0:
        yield f"the input has {more:,} rows more than at the start"
    is_other = more <= 0 < proof.totals.count and not (found.missing or found.surplus)
    if rows.batch_id is not None or not is_other:
        return
    for other in Record.lines(rows.tracking.spark, rows.tracking.records, rows.name):
        if summary_in(other).totals == proof.totals and other["run"] != rows.tracking.run_id:
            yield f"they are those of the run {other['run']!r}: the output is of that run"
            return
    line = rows.record.read()[1] or {}
    types = ", ".join(map(" ".join, zip(line["unit"], line["types"], strict=True)))
    yield (
        "with_unit saw a unit column of another type or value than start, or another name or run: "
        f"at the start they were {types}; int and bigint are equal, a string is not"
    )


def _values(rows: Names, row: dict[str, Any]) -> tuple[Any, ...]:
    """Return the unit of a row: the values of its columns, or else all that is shown of it."""
    names = {name.lower(): name for name in row} | dict(zip(row, row, strict=True))
    found = [names.get(name) or names.get(name.lower()) for name in rows.unit]
    own = [name for name in found if name is not None]
    return tuple(row[name] for name in own) or tuple(row.values())


def _text(given: Any, otherwise: str) -> str:
    several = given if isinstance(given, (list, tuple)) else [given]
    if all(isinstance(one, str) for one in several):
        return repr(given if isinstance(given, str) else list(given))
    return otherwise


def named_units(found: Sequence[DataFrame]) -> DataFrame:
    """Return ``tag``, ``n``, and up to 100 ids in hexadecimal as ``ids``, of units of chains.

    Args:
        found: ``xorack_unit_`` and ``xorack_tag_``.
    """
    chain = Window.partitionBy("xorack_tag_")
    place = F.row_number().over(chain.orderBy("xorack_unit_"))
    units = reduce(lambda one, other: one.union(other), found)
    placed = units.withColumns({"place": place, "n": F.count("xorack_unit_").over(chain)})
    ids = F.array_sort(F.collect_set(_hex("xorack_unit_"))).alias("ids")
    some = placed.where(f"place <= {_NAMED}")
    return some.groupBy(F.col("xorack_tag_").alias("tag"), "n").agg(ids)


def with_ids(chains: DataFrame, found: Sequence[DataFrame]) -> DataFrame:
    """Add the ids that chains lack. One that lacks a single unit names it by its sums.

    Args:
        chains: See `xorack.spark.grouping.compare_chains`.
        found: As for `named_units`.
    """
    one = F.expr("lack = 1 AND difference <> 0 AND s = shiftright(difference, 32)")
    alone = F.when(one, F.array(_hex("difference")))
    if not found:
        return chains.withColumn("ids", alone)
    joined = chains.join(named_units(found).drop("n"), "tag", "left")
    return joined.withColumn("ids", F.coalesce("ids", alone))


def _hex(name: str) -> Column:
    return F.lower(F.lpad(F.hex(name), 16, "0"))


def notes(rows: Names, chains: DataFrame, why: str = "") -> DataFrame:
    """Return the requests that note on chains what is missing, and why.

    Args:
        rows: The rows.
        chains: ``tag``, ``state``, ``n``, ``lack`` and ``ids`` of the chains.
        why: What the missing rows have in common.
    """
    text = f"""
        CASE WHEN lack > 0 THEN format_string('%,d of %,d units of {rows.name} %s', lack, n,
            if(state = 'lacking', 'were not in what the job read', 'are not in the output'))
        WHEN lack < 0 THEN format_string('the output has too many units: %,d', -lack)
        ELSE 'the output has as many units as were started, but others' END"""
    because = F.when(F.expr("state <> 'lacking'"), f"; {why[:_WHY]}" if why else "").otherwise("")
    noted = chains.withColumn("text", F.concat(F.expr(text), because))
    digest = noted.withColumn("digest", F.xxhash64("text", "ids"))
    id = F.concat(F.lit(f"{request_id(rows, 'finish')}/note/"), _hex("digest")).alias("id")
    count = F.expr("if(lack > 0, lack, NULL) AS missing_count")
    missing = F.col("ids").alias("missing")
    return digest.select(F.lit("note").alias("op"), "tag", id, "text", missing, count)
