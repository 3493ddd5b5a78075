"""The rows that an output lacks, by the evidence that stands in each of its rows.

The finest comparison is by the columns that output and source share. The XOR of a group's units on
both sides then tells which of them are missing: see `xorack.spark.solving`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from operator import and_, xor
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as F

from xorack.core.explaining import Explanation, explain, sentence_of
from xorack.spark.folding import named, of_units
from xorack.spark.grouping import DIFFER, MOST_SOLVED, SOLVED, Differing, compare, differences
from xorack.spark.messages import plain_errors
from xorack.spark.solving import missing_units
from xorack.spark.units import comparable, has_columns, quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from xorack.spark.run import Names

_GROUPS = 2_000
"""Groups whose rows `MissingRows.look` brings to the driver."""
_ROWS = 20_000
"""Most rows of these groups."""
_SAMPLE = 10_000
"""Rows, of all, with which they are compared."""
_COLUMNS = 60
"""Columns of the source that are looked at."""
_TIMES = ("date", "timestamp")


class Named(NamedTuple):
    """Rows on the driver, by column: some of those that are missing, and a sample of all.

    Attributes:
        rows: Missing rows.
        doubled: Rows that the output has twice.
        replaced: Rows of groups that have as many as the source, but others.
        sample: Some of all rows.
        units: The ids of `rows`, and the tags of their chains.
        doubted: The tags of groups that have rows of others: these have no names in such chains.
    """

    rows: list[dict[str, Any]]
    doubled: list[dict[str, Any]]
    replaced: list[dict[str, Any]]
    sample: list[dict[str, Any]]
    units: list[tuple[int, str]]
    doubted: list[str]


@dataclass(frozen=True, eq=False)
class MissingRows:
    """The rows of a source that an output lacks. It has the methods of `rows`, such as ``show``.

    Attributes:
        name: The name of the rows.
        absent: Units that were started and that the source lacks.
        total: The rows of the source.
    """

    name: str
    absent: int
    total: int
    _rows: Names = field(repr=False)
    _frame: DataFrame = field(repr=False)
    _differing: Differing = field(repr=False)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.rows, name)

    @property
    def by(self) -> tuple[str, ...]:
        """The columns by which both sides were compared."""
        return self._differing.by

    @property
    def missing(self) -> int:
        """How many rows of the source the output lacks."""
        return self._differing.sums["missing"]

    @property
    def named(self) -> int:
        """How many of the missing rows the evidence names: those of `rows`.

        Of more than 2,000 groups that differ, the others are not asked for rows of others.
        """
        return self._certain.sums["named"] if self._proven is None else self.missing

    @cached_property
    def _certain(self) -> Differing:
        """The groups, with names only in chains none of whose groups has rows of others."""
        differing = self._differing
        doubted = differing.sums["named"] and self.looked.doubted
        if not doubted:
            return differing
        groups = differing.groups.withColumn("moved", F.col("moved") | F.col("tag").isin(doubted))
        (named,) = groups.agg(F.expr(f"sum(if({SOLVED}, lack, 0))")).first() or (0,)
        return differing._replace(groups=groups, sums={**differing.sums, "named": named or 0})

    @property
    def surplus(self) -> int:
        """How many units the output has more than once, or without a row of the source."""
        return self._differing.sums["surplus"]

    @cached_property
    def rows(self) -> DataFrame:
        """The missing rows that are named, with the columns of the source."""
        names = ["xorack_unit_", "xorack_tag_"]
        found = self._differing.source.join(self._units, names, "left_semi")
        if self._rows.batch_id is None and has_columns(found, self._rows.chain):
            started = self._rows.record.chains().where("count > 0")
            started = started.select(F.col("tag").alias("xorack_tag_"))
            found = found.join(started, "xorack_tag_", "left_semi")
        return self._plain(found)

    @cached_property
    def candidates(self) -> DataFrame:
        """The rows of groups whose missing rows are not named.

        ``xorack_lacks`` says how many a group lacks: 0 if it has as many, but others.
        """
        differing = self._certain
        some = "n > 0 AND lack >= 0" if self._proven is None else "false"
        hard = differing.groups.where(some).join(differing.units, "xorack_key_", "left_anti")
        lacks = hard.select("xorack_key_", F.col("lack").alias("xorack_lacks"))
        return self._plain(differing.source.join(lacks, "xorack_key_"), "xorack_lacks")

    def explain(self) -> Explanation:
        """Say why these rows are missing: what they have in common, and the others do not.

        If none is missing, it explains rows that the output has twice. If there are none of these,
        it explains groups that have as many rows as the source, but others.
        """
        found = self._explained
        if self._proven is None:
            return found
        count = self.missing
        return replace(found, sentence=sentence_of(found.findings, count, count, self.total))

    @cached_property
    def _explained(self) -> Explanation:
        looked, sums = self.looked, self._differing.sums
        some, count, word = looked.rows, self.missing, "missing row"
        if not count and looked.doubled:
            some, count, word = looked.doubled, self.surplus, "doubled row"
        elif not count:
            some, count, word = looked.replaced, sums["replaced"], "replaced row"
        return explain(some, looked.sample, count, self.total, word)

    @cached_property
    def _proven(self) -> DataFrame | None:
        """The rows that meet the best condition, if the evidence of each group lacks just these.

        It is asked only where groups are too large to name all that they lack.
        """
        differing, shown = self._differing, self._shown
        if self._certain.sums["named"] == self.missing:
            return None
        best = next(iter(self._explained.findings), None)
        if best is None or best.missing < 1:
            return None
        meets = [
            shown[name].isNull() if low is None else shown[name].between(F.lit(low), F.lit(high))
            for name, low, high in best.terms
        ]
        lost = differing.source.where(reduce(and_, meets))
        tag = F.col("xorack_tag_") if differing.has_tags else F.lit("")
        sums = named(of_units(F.col("xorack_unit_")))
        lacks = differing.groups.selectExpr(
            *("xorack_key_", "tag", "difference AS xor", "lack AS count", "s AS sum")
        )
        found = lost.select("xorack_key_", tag.alias("tag"), *sums)
        with plain_errors():
            others = differences(found, [lacks], "xorack_key_", "tag").where(DIFFER).take(1)
        return None if others else lost

    @property
    def _units(self) -> DataFrame:
        """``xorack_unit_`` and ``xorack_tag_`` of the missing rows that are named."""
        columns, units = ("xorack_unit_", "xorack_tag_"), self.looked.units
        if len(units) == self.missing == self.named:  # the source need not be read again
            schema = self._differing.source.select(*columns).schema
            return self._frame.sparkSession.createDataFrame(units, schema)
        found = self._certain.units if self._proven is None else self._proven
        return found.select(*columns)

    def reasons(self) -> DataFrame:
        """Return the findings of `explain` as a frame, the best first."""
        findings = [(f.what, f.missing, f.all, f.lift) for f in self.explain().findings]
        schema = "what string, missing double, all double, lift double"
        return self._frame.sparkSession.createDataFrame(findings, schema)

    def __str__(self) -> str:
        by = f", by {', '.join(self.by)}" if self.by else ""
        parts = [f"{self.named:,} of {self.missing:,} missing rows can be named{by}"]
        if self.missing > self.named:
            parts.append(f"the other {self.missing - self.named:,} are among .candidates")
        if self.absent > 0:
            parts.append(f"the source lacks {self.absent:,} that were started")
        if self.surplus:
            doubt = f", perhaps those that other groups lack: does the job change {by[5:]}?"
            doubt = doubt if by and self.missing > self.named else ""
            parts.append(f"the output has {self.surplus:,} rows too many{doubt}")
        if other := self._differing.sums["other"]:
            have = "group has" if other == 1 else "groups have"
            text = "as many rows as the source, but others: see .candidates"
            parts.append(f"{other:,} {have} {text}")
        return "; ".join(parts)

    def unpersist(self) -> None:
        """Free what was cached."""
        self._differing.cached.unpersist()

    def _plain(self, frame: DataFrame, *more: str) -> DataFrame:
        return frame.select(*map(quoted, self._frame.columns), *more)

    @cached_property
    def looked(self) -> Named:
        """The missing rows of up to 2,000 groups, and a sample of all rows: some 30,000 rows."""
        try:
            return self._look()
        except (OverflowError, ValueError):  # Python lacks some times
            for name, type_ in self._frame.dtypes:
                if name in self._shown and type_.startswith(_TIMES):
                    self._shown[name] = self._shown[name].cast("string")
            return self._look()

    def _look(self) -> Named:
        source, groups = self._differing.source, self._chosen()
        chosen = [tuple(group) for group in groups.values()]
        few = source.sparkSession.createDataFrame(chosen, self._first.schema)
        share = _SAMPLE / max(self.total, 1)
        sampled = source.select(
            *("xorack_key_", "xorack_unit_", "xorack_tag_"),
            F.struct(*(column.alias(name) for name, column in self._shown.items())).alias("_row"),
            (F.rand(1) < share).alias("_sampled"),
        ).join(F.broadcast(few), "xorack_key_", "left")
        large = f"found = 0 AND pmod(xorack_unit_, n) < {MOST_SOLVED}"
        wanted = F.expr(
            f"coalesce(n <= {MOST_SOLVED} OR ({large}) OR xorack_unit_ = difference, false)"
        )
        asked = sampled.withColumn("_wanted", wanted).where("_sampled OR _wanted")
        columns = ("xorack_key_", "xorack_unit_", "xorack_tag_", "_row", "_sampled", "_wanted")
        members: dict[int, dict[int, dict[str, Any]]] = defaultdict(dict)
        sample, tags, twins = [], dict[tuple[int, int], str](), set[tuple[int, int]]()
        with plain_errors():
            read = asked.select(*columns).collect()
        for key, unit, tag, row, is_sampled, is_wanted in read:
            values = row.asDict()
            if is_sampled:
                sample.append(values)
            if is_wanted:
                members[key][unit] = values
                twins |= {(key, unit)} if tags.setdefault((key, unit), tag) != tag else set()
        for key, unit in twins:  # equal units of two chains: whose is missing?
            if groups[key]["found"]:
                del members[key][unit]
        named: dict[int, list[dict[str, Any]]] = {1: [], -1: [], 0: []}
        units: list[tuple[int, str]] = []
        found = {key: _of_group(members[key], group) for key, group in groups.items()}
        doubted = {one["tag"] for key, one in groups.items() if one["solved"] and not found[key]}
        for key, group in groups.items():
            sign = (group["lack"] > 0) - (group["lack"] < 0)
            some = found[key] if sign <= 0 or group["tag"] not in doubted else []
            named[sign] += (members[key][unit] for unit in some)
            units += ((unit, tags[key, unit]) for unit in some if sign > 0)
        return Named(named[1], named[-1], named[0], sample, units, sorted(doubted))

    @property
    def _first(self) -> DataFrame:
        """The groups, those first whose missing rows can be named."""
        groups = self._differing.groups.selectExpr("*", f"{SOLVED} AS solved")
        order = F.expr("struct(lack <= 0, NOT solved, xorack_key_)")
        return groups.where("n > 0").orderBy(order)

    def _chosen(self) -> dict[int, Any]:
        """Return some groups that differ, those first whose missing rows can be named."""
        chosen: dict[int, Any] = {}
        left = _ROWS
        for group in self._first.limit(_GROUPS).collect():
            left -= min(group["n"], MOST_SOLVED)
            if left >= 0 or not chosen:
                chosen[group["xorack_key_"]] = group
        return chosen

    @cached_property
    def _shown(self) -> dict[str, Column]:
        """Return the columns to look at, with the file of a row, and its task in a shuffle."""
        frame = self._frame
        few = [*comparable(frame).items()][:_COLUMNS]
        shown = dict(few) or {"unit": F.col("xorack_unit_")}
        if self._differing.sums["whole"] and self.by and self.by != self._rows.unit:
            tasks = int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions") or 200)
            hashed = F.hash(*map(F.col, map(quoted, self.by)))
            shown[f"shuffle partition by {', '.join(self.by)}"] = F.pmod(hashed, F.lit(tasks))
        if has_columns(self._differing.source, ["xorack_file_"]):
            shown["input file"] = F.col("xorack_file_")
        return shown


def _of_group(members: Mapping[int, dict[str, Any]], group: Any) -> Collection[int]:
    """Return the units of a group that are missing, or doubled; none if that is not known."""
    units = members.keys()
    lack, difference = group["lack"], group["difference"]
    if lack > 0 and group["moved"]:
        return []
    if group["found"] == 0 or lack == 0:
        return units
    if abs(lack) == 1:
        return [difference] if difference in units else []
    if -lack == group["n"] and difference == group["own"]:
        return units
    found = missing_units(list(units), difference, abs(lack))
    return found or _with_one_value(members, difference, abs(lack))


def _with_one_value(
    members: Mapping[int, dict[str, Any]], difference: int, count: int
) -> Collection[int]:
    """Return the units of the rows with one value of a column, if the evidence lacks just these.

    A group may be too large to be solved: the XOR proves what a filter has done to it.
    """
    by_value: dict[tuple[str, Any], list[int]] = defaultdict(list)
    for unit, row in members.items():
        for name, value in row.items():
            by_value[name, value].append(unit)
    few = (units for units in by_value.values() if len(units) == count)
    return next((units for units in few if reduce(xor, units) == difference), [])


def resolve(
    rows: Names,
    source: DataFrame,
    outputs: Sequence[DataFrame],
    numbers: tuple[int, int],
    by: str | Sequence[str] | None = None,
) -> MissingRows:
    """Find the rows of a source that outputs lack.

    Args:
        rows: The rows' names.
        source: A frame with the columns of the unit.
        outputs: What was written, with evidence or units.
        numbers: How many units were started, and how many the outputs have.
        by: The columns to compare by: see `compare`.

    Raises:
        ColumnsError: A column is not in the source and in all outputs.
    """
    differing = compare(rows, source, outputs, [by] if isinstance(by, str) else by)
    total = numbers[1] + differing.sums["net"]
    return MissingRows(rows.name, max(numbers[0] - total, 0), total, rows, source, differing)
