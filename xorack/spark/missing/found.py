"""The rows that an output lacks: how many, which ones, by what proof, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F

from xorack.ops.reasons import Explanation
from xorack.spark.evidence import remembered, unit_in
from xorack.spark.missing.asking import Asked, ask, with_unit_of
from xorack.spark.missing.comparing import (
    Differing,
    compare_groups,
    compare_units,
    sums_of,
    with_units,
)
from xorack.spark.missing.why import compare, deduplicated
from xorack.spark.storage import reads_plainly
from xorack.spark.units import has_columns, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from xorack.spark.evidence import Proof
    from xorack.spark.run import RowNames

_ROWS = "the job's rows, computed again,"
_UNSTABLE = "dropDuplicates without an order, rand, a source that has changed"


@dataclass(frozen=True, eq=False)
class MissingRows:
    """The rows of a source that an output lacks. It has the methods of `rows`, such as ``show``.

    Attributes:
        name: The name of the rows.
        absent: Units that were started and that the source lacks.
        added: Rows that the source has more than were started.
        total: The rows of the source.
        missing: How many rows of the source the output lacks; at least so many if not `is_exact`.
        named: How many of them are in `rows`: all, or none without a proof.
        surplus: How many units the output has more than once, or without a row of the source.
        is_exact: Whether these numbers are proved, and no net of rows lost and doubled.
        proof: What the names rest on, or what is known without names.
    """

    name: str
    absent: int
    added: int
    total: int
    missing: int
    named: int
    surplus: int
    is_exact: bool
    proof: str
    _rows: RowNames = field(repr=False)
    _frame: DataFrame = field(repr=False)
    _source: DataFrame = field(repr=False)
    _found: Differing = field(repr=False)
    _asked: Asked = field(repr=False)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.rows, name)

    @property
    def by(self) -> tuple[str, ...]:
        """The columns by which both sides were compared; none if that was unit by unit."""
        return self._found.by

    @property
    def replaced(self) -> int:
        """How many rows are in groups that have as many rows as the source, but others."""
        return self._found.replaced

    @cached_property
    def rows(self) -> DataFrame:
        """The missing rows that are named, with the columns of the source."""
        return self._plain(self._lost)

    @cached_property
    def _lost(self) -> DataFrame:
        """The missing rows that are named, with ``xorack_unit_`` and ``xorack_tag_``."""
        if self._found.lacks is None:
            return self._source.limit(0)
        lacks = self._found.lacks.where("lack > 0 AND is_known").drop("is_known")
        keys = [name for name in lacks.columns if name != "lack"]
        place = F.row_number().over(Window.partitionBy(*keys).orderBy(F.lit(0)))
        found = self._source.join(lacks, keys).withColumn("_place", place)
        return found.where("_place <= lack").drop("_place", "lack")

    @cached_property
    def _doubled(self) -> DataFrame:
        """The rows that the output has too often, as far as they are named, as `_lost` has them."""
        if self._found.lacks is None:
            return self._source.limit(0)
        lacks = self._found.lacks.where("lack < 0").select("xorack_unit_")
        return self._source.join(lacks, "xorack_unit_", "left_semi")

    @cached_property
    def candidates(self) -> DataFrame:
        """The rows among which those are that have no names: ``xorack_lacks`` says how many."""
        lacks, found = F.col("lack").alias("xorack_lacks"), self._found
        if found.lacks is not None:
            unknown = found.lacks.where("lack > 0 AND NOT is_known")
        elif found.groups is not None:
            unknown = found.groups.where("n > 0 AND lack >= 0").join(self._members, "xorack_key_")
        else:
            unknown = self._source.selectExpr("xorack_unit_", "bigint(NULL) AS lack")
        some = unknown.select("xorack_unit_", lacks).dropDuplicates(["xorack_unit_"])
        return self._plain(self._source.join(some, "xorack_unit_"), "xorack_lacks")

    @property
    def _members(self) -> DataFrame:
        assert self._found.keyed is not None
        return self._found.keyed.select("xorack_key_", "xorack_unit_")

    def explain(self) -> Explanation:
        """Say why these rows are missing: what they have in common, and the others do not.

        If none is missing, it explains rows that the output has twice, or groups that have as many
        rows as the source, but others. It says nothing of rows that have no names.
        """
        return self._explained

    @cached_property
    def _explained(self) -> Explanation:
        found, count, word = self._found, self.missing, "missing row"
        some, is_named = self._lost, found.lacks is not None and self.named == self.missing
        frames = () if self.by or self.surplus or not is_named else self._asked.frames
        if count and (key := deduplicated(frames, self._source, some)):
            same = f"has a row with the same {', '.join(key)} that is in the output"
            return Explanation(f"Each of the {count:,} missing rows {same}")
        if not count and self.surplus:
            some, word = self._doubled, "doubled row"
            count = sums_of(some, "count(1)")[0]
        elif not count and found.groups is not None:
            members = self._members.join(found.groups, "xorack_key_", "left_semi")
            some, word = self._source.join(members, "xorack_unit_", "left_semi"), "replaced row"
            count, is_named = found.replaced, True
        if not count or not is_named:
            return Explanation("")
        # Only what was lost behind the job's rows was lost with a task.
        tasks = self.by if self._asked.frames and has_columns(self._source, self.by) else ()
        return compare(self._frame, (self._source, self.total), (some, count), word, tasks)

    def reasons(self) -> DataFrame:
        """Return the findings of `explain` as a frame, the best first."""
        findings = [(f.what, f.missing, f.all, f.lift) for f in self.explain().findings]
        schema = "what string, missing double, all double, lift double"
        return self._frame.sparkSession.createDataFrame(findings, schema)

    def __str__(self) -> str:
        least = "" if self.is_exact else "at least "
        by = f", by {', '.join(self.by)}" if self.by else ""
        parts = [f"{self.named:,} of {least}{self.missing:,} missing rows can be named{by}"]
        if self.missing > self.named:
            parts.append("the others are among .candidates")
        if self.absent > 0:
            parts.append(f"the source lacks {self.absent:,} that were started")
        if self.surplus:
            parts.append(f"the output has {least}{self.surplus:,} rows too many")
        if self.replaced and self.by:
            have = "rows are in groups that have as many rows as the source, but others"
            parts.append(f"{self.replaced:,} {have}: see .candidates")
        return "; ".join(parts)

    def unpersist(self) -> None:
        """Free what was cached."""
        for frame in (*self._found.cached, *self._asked.cached):
            frame.unpersist()

    def _plain(self, frame: DataFrame, *more: str) -> DataFrame:
        return frame.select(*map(quoted, self._frame.columns), *more)


def resolve(
    rows: RowNames,
    source: DataFrame,
    proof: Proof,
    started: int,
    by: str | Sequence[str] | None = None,
    frames: Sequence[DataFrame] | None = None,
) -> MissingRows:
    """Find the rows of a source that an output lacks.

    Args:
        rows: The rows' names.
        source: A frame with the columns of the unit: what was started.
        proof: What the output has: its frames with evidence or units, and what they add up to.
        started: How many units were started.
        by: The columns to compare by, where groups are.
        frames: The frames that were aggregated, the last one first; by default those that
            `evidence` was given.

    Raises:
        ColumnsError: A column is not in the source and in all outputs.
    """
    keyed = source
    if reads_plainly(source):  # a frame of several sources has no such file
        file = F.element_at(F.split(F.input_file_name(), "/"), -1)
        keyed = source.withColumn("xorack_file_", file)
    keyed, total, strange = _started(rows, with_units(rows, keyed, unit_in(rows, source)))
    written = proof.totals.count
    asked = ask(rows, proof, remembered(rows) if frames is None else frames)
    found, said = _look(rows, keyed, proof, asked, [by] if isinstance(by, str) else by)
    numbers = max(total - written, 0), 0, max(written - total, 0)
    if found.lacks is not None:
        sums = ("sum(if(lack > 0, lack, 0))", "sum(if(lack > 0 AND is_known, lack, 0))")
        missing, named, surplus = sums_of(found.lacks, *sums, "sum(if(lack < 0, -lack, 0))")
        numbers = missing, named, surplus
        if missing == total and surplus == written > 0:  # of another type, run or name
            found = found._replace(lacks=None, replaced=total)
            numbers = max(total - written, 0), 0, max(written - total, 0)
            said = "none of the units of the output was started"
    changed = max(started - total, 0), max(total + strange - started, 0)
    exact = found.lacks is not None, said
    return MissingRows(
        rows.name, *changed, total, *numbers, *exact, rows, source, keyed, found, asked
    )


def _look(
    rows: RowNames, source: DataFrame, proof: Proof, asked: Asked, by: Sequence[str] | None
) -> tuple[Differing, str]:
    """Return how the output differs, and what proves it."""
    outputs = [one for one in proof.outputs if has_columns(one, rows.evidence_names)]
    said, lost = "", Differing()
    if asked.problem:
        said = f"the job's rows cannot be computed again: {asked.problem}; "
    if asked.units is not None:
        lost = compare_units(source, asked.units)
        if asked.is_output and not asked.frames:
            return lost, "the output has the units of rows: each is compared"
        if asked.is_output:
            equal = "are those of the output, by XOR, count and sum"
            return lost, f"{_ROWS} {equal}: the rows that they lack are missing"
        assert lost.lacks is not None
        sums = ("sum(greatest(lack, 0))", "sum(greatest(-lack, 0))")
        missing, surplus = sums_of(lost.lacks, *sums)
        said = (
            f"{_ROWS} are all that were started: what differs came after them, in the aggregation, "
            "its write, or since; "
        )
        if missing or surplus:
            said = (
                f"{_ROWS} are neither those that were started nor those of the output: this time "
                f"they lack {missing:,} and have {surplus:,} too many. They are others each time "
                f"({_UNSTABLE}), or rows were lost after them, too; "
            )
    if not outputs or len(outputs) < len(proof.outputs):
        return lost._replace(lacks=None), said + "nothing tells which rows the output has"
    if lost.lacks is not None and len(asked.frames) == 1:
        # The job may have changed the chain columns: its frame has no tags.
        frame = with_unit_of(rows, asked.frames[0]).withColumn("xorack_tag_", F.lit(""))
        after = compare_groups(rows, frame, outputs, by)
        cached = lost.cached + after.cached
        if after.lacks is not None:
            lacks = _both(rows, lost.lacks, after.lacks)
            said += "the rows that are named explain the sums of every group"
            return after._replace(lacks=lacks, cached=cached), said
        after.unpersist()
    found = compare_groups(rows, source, outputs, by)
    found = found._replace(cached=lost.cached + found.cached)
    if found.lacks is None:
        return found, f"{said}no rows explain the sums of every group"
    return found, "the rows that are named explain the sums of every group"


def _both(rows: RowNames, lost: DataFrame, after: DataFrame) -> DataFrame:
    """Add up what a frame lacks and what was lost after it."""
    is_apart = F.lit({*rows.chain} <= {*rows.unit}).alias("is_known")
    some = after.select("xorack_unit_", "lack", is_apart)
    both = some.union(lost.select("xorack_unit_", "lack", "is_known"))
    sums = ("sum(lack) AS lack", "bool_and(is_known) AS is_known")
    return both.groupBy("xorack_unit_").agg(*map(F.expr, sums)).where("lack <> 0")


def _started(rows: RowNames, source: DataFrame) -> tuple[DataFrame, int, int]:
    """Return the rows of started chains and their number, and that of rows of unknown chains."""
    if rows.batch_id is not None or not has_columns(source, rows.chain):
        return source, sums_of(source, "count(1)")[0], 0
    chains = rows.record.chains().selectExpr("tag AS xorack_tag_", "count > 0 AS _started")
    known = source.join(chains, "xorack_tag_", "left")
    total, strange = sums_of(known, "count_if(_started)", "count_if(_started IS NULL)")
    return known.where("_started").drop("_started"), total, strange
