"""Comparisons of an output with what was started: by chain, by unit, and by group."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

from xorack.errors import ColumnsError
from xorack.spark.evidence import evidence_of, unit_in
from xorack.spark.folding import Totals, named, of_units
from xorack.spark.messages import plain_errors
from xorack.spark.missing.naming import MAX_SOLVED, name_missing
from xorack.spark.missing.telling import Counts
from xorack.spark.units import KEY_TYPES, chain_columns, column_named, has_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from xorack.spark.evidence import Evidence
    from xorack.spark.run import RowNames

    Keep = Callable[[DataFrame], DataFrame]
    """Caches a frame until the comparison ends."""

_DIFFER = "missing_count <> 0 OR xor <> 0 OR sum <> 0"
_XOR = "bit_xor(if(missing_count % 2 <> 0, xorack_unit_, 0L))"
_SUM = "sum(missing_count * shiftright(xorack_unit_, 32))"


@contextmanager
def caches() -> Iterator[Keep]:
    """Yield a function that caches a frame until the block ends."""
    with ExitStack() as stack:

        def keep(frame: DataFrame) -> DataFrame:
            stack.callback(frame.unpersist)
            return frame.persist()

        yield keep


@dataclass(frozen=True, eq=False)
class Comparison:
    """An output that differs, and the rows that it is compared with.

    Attributes:
        rows: The names of the rows.
        evidence: The output and its sums.
        started: The sums of what was started.
        source: The rows that the job read.
        frames: The frames of the job that may be computed again, the last one first.
        keep: Caches a frame until the call ends.
    """

    rows: RowNames
    evidence: Evidence
    started: Totals
    source: DataFrame
    frames: Sequence[DataFrame]
    keep: Keep


@dataclass(frozen=True, eq=False)
class DifferingUnits:
    """Differing units: ``xorack_unit_``, ``missing_count`` and ``is_named``.

    The count is negative if the other side has surplus rows.

    Attributes:
        compared: The units, which are cached until the call ends.
        ids: The units by the sign of their count and by `is_named`, if the driver has them.
    """

    compared: DataFrame
    ids: Mapping[tuple[int, bool], Sequence[int]] | None = None

    @property
    def is_few(self) -> bool:
        """Whether the driver has collected the units, so that nothing is computed again."""
        return self.ids is not None

    @cached_property
    def lasting(self) -> DataFrame:
        """The units, as a frame that stays valid after the call.

        If the driver has collected them, `missing_count` is only a sign.
        """
        if self.ids is None:
            return self.compared
        spark, schema = self.compared.sparkSession, "sign long, named boolean, units array<long>"
        lists = spark.createDataFrame([(*kind, [*ids]) for kind, ids in self.ids.items()], schema)
        units = "explode(units) AS xorack_unit_", "sign AS missing_count", "named AS is_named"
        return lists.selectExpr(*units)

    def marks(self, source: DataFrame, *, is_lasting: bool) -> DataFrame:
        """Add ``xorack_missing_``, the count, and ``xorack_named_`` to the rows of a source.

        Rows that do not differ get 0. A source may have columns of any other names.
        """
        units = self.lasting if is_lasting else self.compared
        counts = "missing_count AS xorack_missing_", "is_named AS xorack_named_"
        units = units.selectExpr("xorack_unit_", *counts)
        units = F.broadcast(units) if self.is_few else units
        return source.join(units, "xorack_unit_", "left").na.fill(0, ["xorack_missing_"])


@dataclass(frozen=True, eq=False)
class ByUnit:
    """The result of an exact comparison of two sides by unit.

    Attributes:
        source: The sums of the source's units.
        other: The sums of the other side's units.
        counts: The numbers of differing rows.
        has_repeats: Whether the source has a unit more than once.
        units: The differing units.
    """

    source: Totals
    other: Totals
    counts: Counts
    has_repeats: bool
    units: DifferingUnits


class Groups(NamedTuple):
    """The difference between an output and its source by groups of rows.

    Attributes:
        by: The columns that group source and output.
        units: The differing units, as in `ByUnit`. None if the sums do not determine them.
        candidates: The units of the groups that differ.
        differing: The number of the source's rows in these groups.
        is_exchange: Whether each of these groups has as many units as were started, but different
            units.
    """

    by: tuple[str, ...]
    units: DataFrame | None
    candidates: DataFrame
    differing: int
    is_exchange: bool


def differences(source: DataFrame, outputs: Sequence[DataFrame], *key: str) -> DataFrame:
    """Compare the columns `SUMS` of units by a key.

    The result has the counts ``started`` and ``found``, the differences ``missing_count``, ``xor``
    and ``sum``, and ``started_xor``, the XOR of the source.
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


def compare_chains(started: DataFrame, written: Sequence[DataFrame]) -> DataFrame:
    """Return `differences` by ``tag``, and a ``verdict`` on each chain; see `Audit.chains`."""
    verdict = f"""
        CASE WHEN NOT ({_DIFFER}) THEN 'agree' WHEN started = 0 THEN 'unknown'
        WHEN found = 0 THEN 'missing' WHEN missing_count > 0 THEN 'short'
        WHEN missing_count < 0 THEN 'surplus' ELSE 'other' END AS verdict"""
    return differences(started, written, "tag").selectExpr("*", verdict)


def tells_chains(rows: RowNames, frames: Sequence[DataFrame]) -> bool:
    """Return whether frames have the chain columns, with suitable types and without nulls."""

    def has_null(frame: DataFrame) -> bool:
        chain_columns(frame, rows.chain)  # raises for types
        nulls = [column_named(frame, name)[0].isNull() for name in rows.chain]
        # Take no value of the user's, because Python does not have the dates of all years.
        return bool(frame.where(reduce(or_, nulls)).select(F.lit(1)).take(1))

    try:
        return bool(frames) and not any(map(has_null, frames))
    except ColumnsError:
        return False


_OTHER = 1 << 32
"""In the sum of a unit, a row of the other side adds this, and a row of the source adds 1."""
_ROWS_A_TASK = 500_000
"""Rows of the source for each task of a comparison, so that their units fit into its memory."""
_MAX_COLLECTED = 500_000
"""Most differing units that the driver collects, so that nothing is computed again to name them."""
_MORE, _LESS = "greatest(started - other, 0L)", "greatest(other - started, 0L)"
_IS_NAMED = "(other = 0 OR started <= 1)"
_IS_HIDDEN = f"started > other AND NOT {_IS_NAMED}"
_COUNTS = {
    "missing": f"sum({_MORE})",
    "named": f"sum(if({_IS_NAMED}, {_MORE}, 0L))",
    "surplus": f"sum({_LESS})",
    "unknown": f"sum(if(started = 0, {_LESS}, 0L))",
    "hidden_units": f"count_if({_IS_HIDDEN})",
    "hidden_rows": f"sum(if({_IS_HIDDEN}, started, 0L))",
    "doubled_rows": "sum(if(started < other, started, 0L))",
    "named_units": f"count_if(started > other AND {_IS_NAMED})",
    "doubled_units": "count_if(0 < started AND started < other)",
    "differing": "count(xorack_unit_)",
}
"""Sums for the fields of `Counts`. All equal units are one row, whose unit is null."""


def compare_units(comparison: Comparison, others: Sequence[DataFrame]) -> ByUnit:
    """Compare the units of a source and of frames with a column ``unit``, in one Spark job.

    Equal units are summed up to one row, so that the result is small.
    """
    source, tasks = comparison.source, 1 + comparison.started.count // _ROWS_A_TASK
    # Shuffle as few longs as possible, because the shuffle of all rows is the most expensive part.
    sides = [source.selectExpr("xorack_unit_ AS unit", "1L AS n")]
    sides += [frame.selectExpr("unit", f"{_OTHER}L AS n") for frame in others]
    # Count units only after the shuffle. Most units occur once in a task, so counting before the
    # shuffle would only cost memory.
    both = reduce(lambda a, b: a.union(b), sides).repartition(tasks, "unit")
    counted = both.groupBy("unit").agg(F.expr("sum(n) AS n"))
    counted = counted.selectExpr("unit", f"n % {_OTHER}L AS started", f"n div {_OTHER}L AS other")
    sums = (
        "bit_xor(if(started % 2 = 1, unit, 0L)) AS xor",
        "sum(started) AS started",
        "sum(other) AS other",
        "sum(started * shiftright(unit, 32)) AS sum",
        "max(started) AS most",
    )
    differing = F.expr("if(started = other, NULL, unit) AS xorack_unit_")
    compared = comparison.keep(counted.groupBy(differing).agg(*map(F.expr, sums)))
    compared = compared.selectExpr(
        "*", "started - other AS missing_count", f"{_IS_NAMED} AS is_named"
    )
    totals = "bit_xor(xor)", "sum(started)", "sum(sum)", "max(most)"
    *numbers, xor, sum_, x, n, s, most = sums_of(compared, *_COUNTS.values(), _XOR, _SUM, *totals)
    counts, all_ = Counts(**dict(zip(_COUNTS, numbers, strict=True))), Totals(x, n, s)
    other = all_ - Totals(xor, counts.missing - counts.surplus, sum_)
    units = compared.where("xorack_unit_ IS NOT NULL")
    return ByUnit(all_, other, counts, most > 1, collected(units, counts.differing))


def collected(units: DataFrame, number: int) -> DifferingUnits:
    """Collect the differing units, unless they are too many for the driver."""
    frame = units.select("xorack_unit_", "missing_count", "is_named")
    if number > _MAX_COLLECTED:
        return DifferingUnits(frame)
    ids: dict[tuple[int, bool], list[int]] = {}
    with plain_errors():
        for unit, count, is_named in frame.collect():
            ids.setdefault((1 if count > 0 else -1, is_named), []).append(unit)
    return DifferingUnits(frame, ids)


def compare_groups(comparison: Comparison) -> Groups:
    """Compare by the columns that outputs and source share. Name all differing units, or none."""
    rows, source, keep = comparison.rows, comparison.source, comparison.keep
    outputs = comparison.evidence.outputs
    by = _shared(rows, source, outputs)
    keyed = source.withColumn("xorack_key_", _key(source, by))
    written = [
        frame.select(_key(frame, by).alias("xorack_key_"), *named(evidence_of(rows, frame)))
        for frame in outputs
    ]
    sums = named(of_units(F.col("xorack_unit_")))
    groups = differences(keyed.select("xorack_key_", *sums), written, "xorack_key_").where(_DIFFER)
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
    partly = members.join(solved, ["xorack_key_", "xorack_unit_"], "left_semi")
    both = members.where("is_entire").unionByName(partly).groupBy("xorack_unit_")
    count = F.expr("bigint(sum(sign(missing_count))) AS missing_count")
    return result._replace(units=keep(both.agg(count, F.lit(True).alias("is_named"))))


def sums_of_units(units: DataFrame) -> Totals:
    """Return the sums of the differing units: the source's sums minus the output's sums."""
    return Totals(*sums_of(units, _XOR, "sum(missing_count)", _SUM))


def has_units_apart(rows: RowNames, source: DataFrame) -> bool:
    """Return whether no unit is in two chains. If so, equal totals prove each chain."""
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
        first = frame.agg(*(F.expr(sql).alias(f"s{i}") for i, sql in enumerate(sums))).first()
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
    return F.xxhash64(F.lit(0), *(part for column in columns for part in (column, column.isNull())))
