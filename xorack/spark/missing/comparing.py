"""Comparisons of an output with what was started: by chain, by unit, and by group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

from xorack.errors import ColumnsError
from xorack.spark.evidence import evidence_of, unit_in
from xorack.spark.folding import SUMS, Totals, named, of_units
from xorack.spark.messages import plain_errors
from xorack.spark.missing.naming import MAX_SOLVED, name_missing
from xorack.spark.missing.telling import Counts
from xorack.spark.units import KEY_TYPES, chain_columns, column_named, has_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from xorack.spark.run import RowNames

    Keep = Callable[[DataFrame], DataFrame]
    """Caches a frame until the comparison ends."""

_DIFFER = "missing_count <> 0 OR xor <> 0 OR sum <> 0"


class ByUnit(NamedTuple):
    """The result of an exact comparison of two sides by unit.

    Attributes:
        source: The sums of the source's units.
        held: The sums of the other side's units.
        counts: The numbers of differing rows.
        is_apart: Whether no unit of the source is in two chains.
        units: The differing units: ``xorack_unit_``; ``missing_count``, negative if the other
            side has surplus rows; and `is_named`.
    """

    source: Totals
    held: Totals
    counts: Counts
    is_apart: bool
    units: DataFrame


class Groups(NamedTuple):
    """The difference between an output and its source by groups of rows.

    Attributes:
        by: The columns that group source and output.
        units: The differing units, as in `ByUnit`; None if they do not follow from the sums.
        candidates: The units of the groups that differ.
        differing: The number of the source's rows in these groups.
        is_exchange: Whether each of these groups has as many units as were started, but other ones.
    """

    by: tuple[str, ...]
    units: DataFrame | None
    candidates: DataFrame
    differing: int
    is_exchange: bool


def differences(source: DataFrame, outputs: Sequence[DataFrame], *key: str) -> DataFrame:
    """Compare the columns `SUMS` of units by a key: ``started``, ``found``, and their differences.

    These are ``missing_count``, ``xor`` and ``sum``; ``started_xor`` is the XOR of the source.
    """
    sides = [
        source.selectExpr(
            *key, "xor", "xor AS started_xor", "count AS started", "0L AS found", "sum"
        ),
        *(frame.selectExpr(*key, "xor", "0L", "0L", "count", "-sum") for frame in outputs),
    ]
    sums = [F.expr(f"sum({name}) AS {name}") for name in ("started", "found", "sum")]
    xors = [F.expr(f"bit_xor({name}) AS {name}") for name in ("xor", "started_xor")]
    compared = reduce(lambda a, b: a.union(b), sides).groupBy(*key).agg(*xors, *sums).na.fill(0)
    return compared.selectExpr("*", "started - found AS missing_count")


def compare_chains(started: DataFrame, held: Sequence[DataFrame]) -> DataFrame:
    """Return `differences` by ``tag``, and a ``verdict`` on each chain; see `Audit.chains`."""
    verdict = f"""
        CASE WHEN NOT ({_DIFFER}) THEN 'agree' WHEN started = 0 THEN 'unknown'
        WHEN found = 0 THEN 'missing' WHEN missing_count > 0 THEN 'short'
        WHEN missing_count < 0 THEN 'surplus' ELSE 'other' END AS verdict"""
    return differences(started, held, "tag").selectExpr("*", verdict)


def tells_chains(rows: RowNames, frames: Sequence[DataFrame]) -> bool:
    """Return whether frames have the chain columns, with suitable types and without nulls."""

    def has_null(frame: DataFrame) -> bool:
        chain_columns(frame, rows.chain)  # raises for types
        nulls = [column_named(frame, name)[0].isNull() for name in rows.chain]
        return bool(frame.where(reduce(or_, nulls)).take(1))

    try:
        return bool(frames) and not any(map(has_null, frames))
    except ColumnsError:
        return False


_SUMS_BY_UNIT = [
    f"{fold} AS {side}_{name}"
    for side in ("started", "held")
    for name, fold in (
        ("xor", f"bit_xor(if({side} % 2 = 1, unit, 0L))"),
        ("count", f"sum({side})"),
        ("sum", f"sum({side} * shiftright(unit, 32))"),
    )
]


def compare_units(
    rows: RowNames, source: DataFrame, held: Sequence[DataFrame], keep: Keep
) -> ByUnit:
    """Compare a source's units with those of frames with a column ``unit``, in one Spark job.

    Equal units are summed up to one row, so that the result is small.
    """
    # Use only longs, because Spark sorts to compare strings.
    is_told = {*rows.chain} <= {*rows.unit} or "xorack_chain_" not in source.columns
    chain = "bigint(NULL)" if is_told else "xorack_chain_"
    sides = [source.selectExpr("xorack_unit_", f"{chain} AS chain", "1L AS n", "0L AS m")]
    sides += [frame.selectExpr("unit", "bigint(NULL)", "0L", "1L") for frame in held]
    of_unit = ["sum(n) AS started", "sum(m) AS held"]
    of_unit.append(f"{'false' if is_told else 'min(chain) < max(chain)'} AS is_shared")
    counted = reduce(lambda a, b: a.union(b), sides).groupBy("xorack_unit_")
    by_unit = counted.agg(*map(F.expr, of_unit)).selectExpr(
        "if(started = held, NULL, xorack_unit_) AS differing", "xorack_unit_ AS unit", "*"
    )
    sums = (*_SUMS_BY_UNIT, "count_if(is_shared) AS shared")
    compared = by_unit.groupBy("differing").agg(*map(F.expr, sums))
    compared = keep(compared.withColumnRenamed("differing", "xorack_unit_"))
    named = "xorack_unit_ IS NOT NULL AND (held_count = 0 OR started_count <= 1)"
    more, less = (f"greatest({sign}(started_count - held_count), 0L)" for sign in ("", "-"))
    hidden = f"xorack_unit_ IS NOT NULL AND {more} > 0 AND NOT ({named})"
    numbers = {
        "missing": f"sum({more})",
        "named": f"sum(if({named}, {more}, 0L))",
        "surplus": f"sum({less})",
        "unknown": f"sum(if(started_count = 0, {less}, 0L))",
        "hidden_units": f"count_if({hidden})",
        "hidden_rows": f"sum(if({hidden}, started_count, 0L))",
        "differing": "count(xorack_unit_)",
    }
    totals = [
        f"{'bit_xor' if name == 'xor' else 'sum'}({side}_{name})"
        for side in ("started", "held")
        for name in SUMS
    ]
    shared, *found = sums_of(compared, "sum(shared)", *totals, *numbers.values())
    counts = Counts(**dict(zip(numbers, found[6:], strict=True)))
    units = compared.where("xorack_unit_ IS NOT NULL").selectExpr(
        "xorack_unit_", "started_count - held_count AS missing_count", f"{named} AS is_named"
    )
    return ByUnit(Totals(*found[:3]), Totals(*found[3:6]), counts, not shared, units)


def compare_groups(
    rows: RowNames, source: DataFrame, outputs: Sequence[DataFrame], keep: Keep
) -> Groups:
    """Compare by the columns that outputs and source share. Name all differing units, or none."""
    by = _shared(rows, source, outputs)
    keyed = source.withColumn("xorack_key_", _key(source, by))
    held = [
        frame.select(_key(frame, by).alias("xorack_key_"), *named(evidence_of(rows, frame)))
        for frame in outputs
    ]
    sums = named(of_units(F.col("xorack_unit_")))
    groups = differences(keyed.select("xorack_key_", *sums), held, "xorack_key_").where(_DIFFER)
    entire = "started > 0 AND (found = 0 OR missing_count = -started AND xor = started_xor)"
    groups = keep(groups.selectExpr("*", f"{entire} AS is_entire"))
    one_or_few = f"abs(missing_count) = 1 OR missing_count <> 0 AND started <= {MAX_SOLVED}"
    unsolved, other_counts, differing = sums_of(
        groups,
        f"count_if(NOT is_entire AND NOT (started > 0 AND ({one_or_few})))",
        "count_if(missing_count <> 0)",
        "sum(started)",
    )
    candidates = keyed.join(groups.where("started > 0"), "xorack_key_", "left_semi")
    result = Groups(tuple(by), None, candidates, differing, not other_counts)
    if unsolved:
        return result
    members = keyed.select("xorack_key_", "xorack_unit_")
    members = members.join(groups.drop("started", "found"), "xorack_key_")
    facts = ("missing_count", "xor", "sum")
    may_be = "if(abs(missing_count) > 1 OR xorack_unit_ = xor, xorack_unit_, NULL)"
    lists = F.expr(f"collect_list({may_be}) AS members")
    firsts = [F.first(name).alias(name) for name in facts]
    parts = members.where("NOT is_entire").groupBy("xorack_key_").agg(*firsts, lists)
    units = F.explode_outer(F.udf(name_missing, "array<bigint>", useArrow=False)(*facts, "members"))
    solved = keep(parts.select("xorack_key_", units.alias("xorack_unit_")))
    if solved.where("xorack_unit_ IS NULL").take(1):
        return result
    found = members.join(solved, ["xorack_key_", "xorack_unit_"], "left_semi")
    both = members.where("is_entire").unionByName(found).groupBy("xorack_unit_")
    count = F.expr("bigint(sum(sign(missing_count))) AS missing_count")
    return result._replace(units=keep(both.agg(count, F.lit(True).alias("is_named"))))


def sums_of_units(units: DataFrame) -> Totals:
    """Return the sums of the differing units: those of the source minus those of the output."""
    xor = "bit_xor(if(missing_count % 2 <> 0, xorack_unit_, 0L))"
    sum_ = "sum(missing_count * shiftright(xorack_unit_, 32))"
    return Totals(*sums_of(units, xor, "sum(missing_count)", sum_))


def has_units_apart(rows: RowNames, source: DataFrame) -> bool:
    """Return whether no unit is in two chains. Then the totals prove the units of each chain."""
    if {*rows.chain} <= {*rows.unit}:
        return True
    if not has_columns(source, rows.chain):
        return False
    chain = F.struct(*chain_columns(source, rows.chain)).alias("chain")
    units = source.select(unit_in(rows, source).alias("unit"), chain).groupBy("unit")
    with plain_errors():
        return not units.agg(F.expr("min(chain) < max(chain) AS shared")).where("shared").take(1)


def sums_of(frame: DataFrame, *sums: str) -> list[int]:
    """Return sums over a frame, with 0 for null."""
    with plain_errors():
        first = frame.agg(*(F.expr(one).alias(f"s{i}") for i, one in enumerate(sums))).first()
    return [int(number or 0) for number in first or ()]


def _shared(rows: RowNames, source: DataFrame, outputs: Sequence[DataFrame]) -> list[str]:
    """Return the columns that source and outputs share, with equal and comparable types."""
    own = {name.lower() for name in (*rows.evidence_names, rows.unit_name)}

    def is_shared(name: str) -> bool:
        frames = (source, *outputs)
        if name.lower() in own or not all(has_columns(frame, [name]) for frame in frames):
            return False
        types = {column_named(frame, name)[1].simpleString() for frame in frames}
        return len(types) == 1 and types.pop().split("(")[0] in KEY_TYPES

    return [name for name in outputs[0].columns if is_shared(name)]


def _key(frame: DataFrame, by: Sequence[str]) -> Column:
    """Return the hash of the values of columns; a null has a hash of its own."""
    columns = [column_named(frame, name)[0] for name in by]
    return F.xxhash64(F.lit(0), *(part for one in columns for part in (one, one.isNull())))
