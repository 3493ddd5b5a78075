"""What is started against what is there: chain by chain, unit by unit, and group by group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

from xorack.spark.errors import ColumnsError
from xorack.spark.evidence import evidence_of
from xorack.spark.folding import named, of_units
from xorack.spark.messages import plain_errors
from xorack.spark.missing.naming import MAX_SOLVED, Group, name_missing
from xorack.spark.units import chain_columns, column_named, has_columns, with_tag

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from xorack.spark.run import RowNames

INTEGERS = ("tinyint", "smallint", "int", "bigint")
_KEYS = (*INTEGERS, "boolean", "string", "binary", "date", "timestamp", "timestamp_ntz", "decimal")
_MAX_DROPPED = 4
"""Columns that are left out, one at a time, where no rows explain all groups by all of them."""
_DIFFER = "lack <> 0 OR difference <> 0 OR s <> 0"


class Differing(NamedTuple):
    """How an output differs from a source.

    Attributes:
        lacks: ``xorack_unit_``, ``lack``, how many of it the output lacks, or has too many if
            negative, and ``is_known``; of groups ``xorack_tag_`` as well. None without a proof.
        by: The columns that make groups; empty if units are compared.
        groups: The groups that differ: ``xorack_key_`` and what `differences` returns.
        keyed: What was compared, with ``xorack_key_`` and ``xorack_unit_``.
        replaced: The units of groups that have as many, but others, if no other groups differ.
        cached: What is cached of it.
    """

    lacks: DataFrame | None = None
    by: tuple[str, ...] = ()
    groups: DataFrame | None = None
    keyed: DataFrame | None = None
    replaced: int = 0
    cached: tuple[DataFrame, ...] = ()

    def unpersist(self) -> None:
        """Free what is cached."""
        for frame in self.cached:
            frame.unpersist()


def differences(source: DataFrame, outputs: Sequence[DataFrame], *key: str) -> DataFrame:
    """Compare the columns `SUMS` of units on both sides, by the columns of a key.

    Returns:
        The key and six numbers: ``n``, units of the source; ``found``, units of the outputs;
        ``lack``, ``n - found``; ``difference``, the XOR of both; ``own``, that of the source;
        ``s``, the difference of the sums.
    """
    sides = [source.selectExpr(*key, "xor", "xor AS own", "count AS n", "0L AS found", "sum AS s")]
    sides += [one.selectExpr(*key, "xor", "0L", "0L", "count", "-sum") for one in outputs]
    sums = [F.expr(f"sum({name}) AS {name}") for name in ("n", "found", "s")]
    xors = [F.expr("bit_xor(xor) AS difference"), F.expr("bit_xor(own) AS own")]
    both = reduce(lambda a, b: a.union(b), sides).groupBy(*key)
    compared = both.agg(*xors, *sums).na.fill(0)
    return compared.selectExpr("*", "n - found AS lack")


def compare_chains(started: DataFrame, held: Sequence[DataFrame]) -> DataFrame:
    """Compare chains: ``tag`` and the columns `SUMS` on both sides.

    Returns:
        ``tag``, what `differences` returns, and ``verdict``: ``agree``, ``missing``, ``short``,
        ``surplus``, ``other`` or ``unknown``.
    """
    verdict = f"""
        CASE WHEN NOT ({_DIFFER}) THEN 'agree' WHEN n = 0 THEN 'unknown'
        WHEN found = 0 THEN 'missing' WHEN lack > 0 THEN 'short'
        WHEN lack < 0 THEN 'surplus' ELSE 'other' END AS verdict"""
    return differences(started, held, "tag").selectExpr("*", verdict)


def tells_chains(rows: RowNames, frames: Sequence[DataFrame]) -> bool:
    """Tell whether frames have the columns of the chain, of suitable types and without nulls."""

    def has_null(frame: DataFrame) -> bool:
        chain_columns(frame, rows.chain)  # raises for types
        nulls = [column_named(frame, name)[0].isNull() for name in rows.chain]
        return bool(frame.where(reduce(or_, nulls)).take(1))

    try:
        return bool(frames) and not any(map(has_null, frames))
    except ColumnsError:
        return False


def compare_units(source: DataFrame, held: DataFrame) -> Differing:
    """Compare a source, with ``xorack_unit_`` and ``xorack_tag_``, with the units of ``unit``.

    What is missing is exact, also where rows are doubled, and whatever was done to other columns.
    Of equal units of two chains, nobody knows whose is missing.
    """
    sides = source.selectExpr("xorack_unit_", "xorack_tag_ AS tag", "1L AS n", "0L AS found").union(
        held.selectExpr("unit", "string(NULL)", "0L", "1L")
    )
    sums = ("sum(n) - sum(found) AS lack", "sum(found) = 0 OR min(tag) = max(tag) AS is_known")
    units = sides.groupBy("xorack_unit_").agg(*map(F.expr, sums)).where("lack <> 0")
    lacks = units.withColumn("is_known", F.expr("coalesce(is_known, false)")).persist()
    return Differing(lacks, cached=(lacks,))


def compare_groups(
    rows: RowNames, source: DataFrame, outputs: Sequence[DataFrame], by: Sequence[str] | None
) -> Differing:
    """Compare by the columns that are given, or else by those that outputs and source share.

    Units have names only if they explain the difference of every group.

    Args:
        rows: The names of the rows.
        source: What the output was made of, with ``xorack_unit_`` and ``xorack_tag_``.
        outputs: What was written, with evidence.
        by: The columns.

    Raises:
        ColumnsError: A column is not in the source and in all outputs.
    """
    shared = _shared(rows, source, outputs) if by is None else [*by]
    candidates = [shared]
    if by is None:
        # The job may change the chain columns, or name a sum or maximum as a column of the source.
        chain = {*map(str.lower, rows.chain)}
        candidates.append([name for name in shared if name.lower() not in chain])
        candidates += [[name for name in shared if name != one] for one in shared[:_MAX_DROPPED]]
    found = Differing()
    for place, names in enumerate(candidates):
        if names in candidates[:place] or (place and not names):
            continue
        tried = _by_groups(rows, source, outputs, names)
        if tried.lacks is not None or not place:
            found.unpersist()
            found = tried
        else:
            tried.unpersist()
        if tried.lacks is not None:
            break
    return found


def _by_groups(
    rows: RowNames, source: DataFrame, outputs: Sequence[DataFrame], by: Sequence[str]
) -> Differing:
    keyed = source.withColumn("xorack_key_", _key(source, by))
    held = [
        one.select(_key(one, by).alias("xorack_key_"), *named(evidence_of(rows, one)))
        for one in outputs
    ]
    sums = named(of_units(F.col("xorack_unit_")))
    groups = differences(keyed.select("xorack_key_", *sums), held, "xorack_key_").where(_DIFFER)
    gone = "n > 0 AND (found = 0 OR lack = -n AND difference = own) AS is_whole"
    groups = groups.selectExpr("*", gone).persist()
    solvable = f"n > 0 AND (abs(lack) = 1 OR lack <> 0 AND n <= {MAX_SOLVED})"
    hard, others, replaced = sums_of(
        groups,
        f"count_if(NOT is_whole AND NOT ({solvable}))",
        "count_if(lack <> 0)",
        "sum(if(lack = 0, n, 0))",
    )
    result = Differing(None, tuple(by), groups, keyed, 0 if others else replaced, (groups,))
    if hard:
        return result
    columns = ("xorack_key_", "xorack_unit_", "xorack_tag_")
    members = keyed.select(*columns).join(groups, "xorack_key_")
    asked = members.where("NOT is_whole AND (abs(lack) > 1 OR xorack_unit_ = difference)")
    lists = asked.groupBy("xorack_key_").agg(F.collect_list("xorack_unit_").alias("members"))
    hard_ones = groups.where("NOT is_whole").join(lists, "xorack_key_", "left")
    given = hard_ones.select("xorack_key_", "lack", "difference", "s", "members")
    solved = given.mapInArrow(_solve, "xorack_key_ long, xorack_unit_ long").persist()
    result = result._replace(cached=(groups, solved))
    if sums_of(solved, "count_if(xorack_unit_ = 0)")[0]:
        return result
    parts = members.join(solved, ["xorack_key_", "xorack_unit_"], "left_semi")
    some = members.where("is_whole").union(parts).groupBy("xorack_unit_", "xorack_tag_")
    lacks = some.agg(F.expr("bigint(sum(sign(lack))) AS lack"), F.lit(True).alias("is_known"))
    return result._replace(lacks=lacks)


def _solve(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the units that groups lack or have twice; 0 if some group stays unexplained."""
    import pyarrow as pa

    for batch in batches:
        rows = {row["xorack_key_"]: row for row in batch.to_pylist()}
        groups = {key: Group(r["lack"], r["difference"], r["s"]) for key, r in rows.items()}
        named = name_missing(groups, {key: row["members"] or () for key, row in rows.items()})
        pairs = (
            [(0, 0)] if named is None else [(k, one) for k, units in named.items() for one in units]
        )
        columns = zip(*pairs, strict=True) if pairs else ((), ())
        arrays = [pa.array([*column], pa.int64()) for column in columns]
        yield pa.RecordBatch.from_arrays(arrays, ["xorack_key_", "xorack_unit_"])


def sums_of(frame: DataFrame, *sums: str) -> list[int]:
    """Return sums over a frame, 0 for null."""
    with plain_errors():
        first = frame.agg(*(F.expr(one).alias(f"s{i}") for i, one in enumerate(sums))).first()
    return [int(number or 0) for number in first or ()]


def _shared(rows: RowNames, source: DataFrame, outputs: Sequence[DataFrame]) -> list[str]:
    """Return the columns that source and outputs share, with types that can be compared."""
    own = {name.lower() for name in (*rows.evidence_names, rows.unit_name)}
    keys = {*map(str.lower, (*rows.chain, *rows.unit))}

    def family(frame: DataFrame, name: str) -> str:
        shown = column_named(frame, name)[1].simpleString()
        is_key = name.lower() in keys
        return "integer" if is_key and shown in INTEGERS else shown

    return [
        name
        for name in outputs[0].columns
        if name.lower() not in own
        and all(has_columns(frame, [name]) for frame in (source, *outputs))
        and len({family(frame, name) for frame in (source, *outputs)}) == 1
        and family(source, name).split("(")[0] in ("integer", *_KEYS)
    ]


def _key(frame: DataFrame, by: Sequence[str]) -> Column:
    """Return the hash of the values of columns; a null has its own."""
    hashes = [F.lit(0)]
    for name in by:
        column, type_ = column_named(frame, name)
        value = column.cast("long") if type_.simpleString() in INTEGERS else column
        hashes.append(F.xxhash64(value, column.isNull()))
    return F.xxhash64(*hashes)


def with_units(rows: RowNames, source: DataFrame, unit: Column) -> DataFrame:
    """Add ``xorack_unit_``, and the tag of the chain as ``xorack_tag_``, empty without columns."""
    keyed = source.withColumn("xorack_unit_", unit)
    if has_columns(source, rows.chain):
        return with_tag(keyed, rows.prefix, rows.chain, "xorack_tag_")
    return keyed.withColumn("xorack_tag_", F.lit(""))
