"""What was started against what is there: chain by chain, unit by unit, and group by group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

from xorack.errors import ColumnsError
from xorack.spark.evidence import evidence_of
from xorack.spark.folding import named, of_units
from xorack.spark.messages import plain_errors
from xorack.spark.missing.naming import MAX_SOLVED, name_missing
from xorack.spark.units import KEY_TYPES, chain_columns, column_named, has_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from xorack.spark.run import RowNames

    Keep = Callable[[DataFrame], DataFrame]
    """Caches a frame for as long as what is compared."""

_DIFFER = "missing_count <> 0 OR xor <> 0 OR sum <> 0"


class Differing(NamedTuple):
    """How an output differs from its source.

    Attributes:
        units: If there is a proof: the units that differ, with ``missing_count`` (negative if the
            output has too many of a unit), and whether their chain `is_known`.
        by: The columns that group source and output.
        candidates: The units of groups that may have lost some.
        replaced: How many these are, if only units are exchanged.
    """

    units: DataFrame | None = None
    by: tuple[str, ...] = ()
    candidates: DataFrame | None = None
    replaced: int = 0


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
    """Return True if frames have the columns of the chain, of suitable types and without nulls."""

    def has_null(frame: DataFrame) -> bool:
        chain_columns(frame, rows.chain)  # raises for types
        nulls = [column_named(frame, name)[0].isNull() for name in rows.chain]
        return bool(frame.where(reduce(or_, nulls)).take(1))

    try:
        return bool(frames) and not any(map(has_null, frames))
    except ColumnsError:
        return False


def compare_units(source: DataFrame, held: Sequence[DataFrame], keep: Keep) -> DataFrame:
    """Compare a source's units with those of the output, exactly; return `Differing.units`."""
    # Of longs alone: Spark sorts where it has to compare strings.
    columns = ("xorack_unit_", "xorack_chain_ AS chain", "1L AS n")
    others = [frame.selectExpr("unit", "bigint(NULL)", "-1L") for frame in held]
    sides = reduce(lambda a, b: a.union(b), [source.selectExpr(*columns), *others])
    count = F.expr("sum(n) AS missing_count")
    known = F.expr("coalesce(min(n) = 1 OR min(chain) = max(chain), false) AS is_known")
    return keep(sides.groupBy("xorack_unit_").agg(count, known).where("missing_count <> 0"))


def compare_groups(
    rows: RowNames, source: DataFrame, outputs: Sequence[DataFrame], keep: Keep
) -> Differing:
    """Compare by the columns that outputs and source share; name units, or none."""
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
    unsolved, other_counts, replaced = sums_of(
        groups,
        f"count_if(NOT is_entire AND NOT (started > 0 AND ({one_or_few})))",
        "count_if(missing_count <> 0)",
        "sum(if(missing_count = 0, started, 0))",
    )
    may_lack = groups.where("started > 0 AND missing_count >= 0")
    candidates = keyed.join(may_lack, "xorack_key_", "left_semi")
    result = Differing(None, tuple(by), candidates, 0 if other_counts else replaced)
    if unsolved:
        return result
    keys = [name for name in ("xorack_unit_", "xorack_chain_") if name in source.columns]
    members = keyed.select("xorack_key_", *keys)
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
    both = members.where("is_entire").unionByName(found).groupBy(*keys)
    count = F.expr("bigint(sum(sign(missing_count))) AS missing_count")
    return result._replace(units=both.agg(count, F.lit(True).alias("is_known")))


def sums_of(frame: DataFrame, *sums: str) -> list[int]:
    """Return sums over a frame, 0 for null."""
    with plain_errors():
        first = frame.agg(*(F.expr(one).alias(f"s{i}") for i, one in enumerate(sums))).first()
    return [int(number or 0) for number in first or ()]


def _shared(rows: RowNames, source: DataFrame, outputs: Sequence[DataFrame]) -> list[str]:
    """Return the columns that source and outputs share, of one type that can be compared."""
    own = {name.lower() for name in (*rows.evidence_names, rows.unit_name)}

    def is_shared(name: str) -> bool:
        frames = (source, *outputs)
        if name.lower() in own or not all(has_columns(frame, [name]) for frame in frames):
            return False
        types = {column_named(frame, name)[1].simpleString() for frame in frames}
        return len(types) == 1 and types.pop().split("(")[0] in KEY_TYPES

    return [name for name in outputs[0].columns if is_shared(name)]


def _key(frame: DataFrame, by: Sequence[str]) -> Column:
    """Return the hash of the values of columns; a null has its own."""
    columns = [column_named(frame, name)[0] for name in by]
    return F.xxhash64(F.lit(0), *(part for one in columns for part in (one, one.isNull())))
