"""The rows that are missing from an output: how many, which ones, by what proof, and why."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import Window
from pyspark.sql import functions as F

from xorack.ops.reasons import Explanation
from xorack.spark.evidence import has_evidence, remembered, total, unit_in, unit_of
from xorack.spark.folding import named, of_units, totals_of
from xorack.spark.messages import one_line, plain_errors
from xorack.spark.missing import comparing
from xorack.spark.missing.comparing import Differing
from xorack.spark.missing.why import compare, deduplicated
from xorack.spark.storage import reads_plainly
from xorack.spark.units import column_named, has_columns, is_deterministic, quoted, with_tag

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from xorack.spark.evidence import Proof
    from xorack.spark.missing.comparing import Keep
    from xorack.spark.run import RowNames

_ROWS = "the job's rows, computed again,"
_MAX_CACHED = 100_000
"""Missing rows that are kept: each reading of the source for them takes a scan."""
_MISSING_AND_SURPLUS = "sum(greatest(missing_count, 0))", "sum(greatest(-missing_count, 0))"


@dataclass(frozen=True, eq=False)
class MissingRows:
    """The rows of a source that an output lost. It has the methods of `rows`, such as ``show``.

    Attributes:
        name: The name of the rows.
        absent: Units that were started and are not in the source.
        added: Rows that the source has more than were started.
        total: The rows of the source.
        missing: How many rows of the source are not in the output; at least, if not `is_exact`.
        named: How many of them are in `rows`: all, or none without a proof.
        surplus: How many units the output has more than once, or without a row of the source.
        is_exact: Whether these numbers are proved, and no net of rows lost and doubled.
        by: The columns by which both sides were compared; none if that was unit by unit.
        replaced: How many rows are in groups that have as many rows as the source, but others.
        proof: What the names rest on, or what is known without names.
        jobs: The frames of the job that were computed for it.
    """

    name: str
    absent: int
    added: int
    total: int
    missing: int
    named: int
    surplus: int
    is_exact: bool
    by: tuple[str, ...]
    replaced: int
    proof: str
    jobs: tuple[DataFrame, ...]
    _frame: DataFrame = field(repr=False)
    _source: DataFrame = field(repr=False)
    _found: Differing = field(repr=False)
    _cached: list[DataFrame] = field(repr=False)
    _mask: Collection[str] = field(repr=False)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.rows, name)

    @cached_property
    def rows(self) -> DataFrame:
        """The missing rows that are named, with the columns of the source."""
        return self._plain(self.tagged)

    @cached_property
    def tagged(self) -> DataFrame:
        """The missing rows that are named, with ``xorack_unit_`` and ``xorack_tag_``."""
        if self._found.units is None:
            return self._source.limit(0)
        units = self._found.units.where("missing_count > 0 AND is_known").drop("is_known")
        keys = [name for name in units.columns if name != "missing_count"]
        place = F.row_number().over(Window.partitionBy(*keys).orderBy(F.lit(0)))
        found = self._source.join(units, keys).withColumn("_place", place)
        found = found.where("_place <= missing_count").drop("_place", "missing_count")
        if self.missing <= _MAX_CACHED:  # names, reasons and notes need it
            self._cached.append(found.persist())
        return found

    @cached_property
    def doubled(self) -> DataFrame:
        """The rows that the output has too often, as far as they are named."""
        if self._found.units is None:
            return self._source.limit(0)
        return self._of_units(self._found.units.where("missing_count < 0"))

    @cached_property
    def candidates(self) -> DataFrame:
        """The rows among which those are that have no names: ``xorack_lacks`` says how many."""
        count, found = F.col("missing_count").alias("xorack_lacks"), self._found
        if found.units is not None:
            unknown = found.units.where("missing_count > 0 AND NOT is_known")
        elif found.groups is not None:
            unknown = self._members(found.groups.where("started > 0 AND missing_count >= 0"))
        else:
            unknown = self._source.selectExpr("xorack_unit_", "bigint(NULL) AS missing_count")
        some = unknown.select("xorack_unit_", count).dropDuplicates(["xorack_unit_"])
        return self._plain(self._source.join(some, "xorack_unit_"), "xorack_lacks")

    def explain(self) -> Explanation:
        """Say why rows with names are missing or, if none is, doubled, or replaced in groups."""
        return self._explained

    @cached_property
    def _explained(self) -> Explanation:
        found, count, word, some = self._found, self.missing, "missing row", self.tagged
        if not count and self.surplus:
            some, word = self.doubled, "doubled row"
            count = comparing.sums_of(some, "count(1)")[0]
        elif not count and found.groups is not None:
            some, word = self._of_units(self._members(found.groups)), "replaced row"
            count = self.replaced
        elif found.units is None or self.named < count:
            count = 0
        if not count:
            return Explanation("")
        jobs = () if self.by or self.surplus else self.jobs
        if key := deduplicated(jobs, self._source, some):
            same = f"has a row with the same {', '.join(key)} that is in the output"
            return Explanation(f"Each of the {count:,} missing rows {same}")
        # Only what was lost behind the job's rows was lost with a task.
        tasks = self.by if self.jobs and has_columns(self._source, self.by) else ()
        source = self._source, self.total
        return compare(self._frame, source, (some, count), word, tasks, self._mask)

    def __str__(self) -> str:
        least = "" if self.is_exact else "at least "
        by = f", by {', '.join(self.by)}" if self.by else ""
        parts = [f"{self.named:,} of {least}{self.missing:,} missing rows can be named{by}"]
        if self.missing > self.named:
            parts.append("the others are among .candidates")
        if self.absent > 0:
            parts.append(f"{self.absent:,} that were started are not in the source")
        if self.surplus:
            parts.append(f"the output has {least}{self.surplus:,} rows too many")
        return "; ".join(parts)

    def unpersist(self) -> None:
        """Free what was cached."""
        for frame in self._cached:
            frame.unpersist()

    def _members(self, groups: DataFrame) -> DataFrame:
        key = comparing.key_of(self._source, self.by).alias("xorack_key_")
        return self._source.select("xorack_unit_", key).join(groups, "xorack_key_")

    def _of_units(self, units: DataFrame) -> DataFrame:
        return self._source.join(units.select("xorack_unit_"), "xorack_unit_", "left_semi")

    def _plain(self, frame: DataFrame, *more: str) -> DataFrame:
        return frame.select(*map(quoted, self._frame.columns), *more)


def resolve(
    rows: RowNames,
    source: DataFrame,
    proof: Proof,
    started: int,
    frames: Sequence[DataFrame] | None = None,
) -> MissingRows:
    """Find the rows of a source that are not in an output; see `Audit.missing_rows`."""
    cached: list[DataFrame] = []

    def keep(frame: DataFrame) -> DataFrame:
        cached.append(frame.persist())
        return cached[-1]

    keyed, total, unknown = _started(rows, source)
    found, said = Differing(), "the rows of the input are others each time, as with rand()"
    asked = _Asked()
    if is_deterministic(source):
        asked = _ask(rows, proof, remembered(rows) if frames is None else frames, keep)
        found, said = _compare(rows, keyed, proof, asked, keep)
    written, is_exact = proof.totals.count, found.units is not None
    missing, named, surplus = max(total - written, 0), 0, max(written - total, 0)
    if found.units is not None:
        known = "sum(if(is_known, greatest(missing_count, 0), 0))"
        lost, extra, known_lost = comparing.sums_of(found.units, *_MISSING_AND_SURPLUS, known)
        if lost == total and extra == written > 0:  # of another type, run or name
            found, is_exact = found._replace(units=None, replaced=total), False
            said = "none of the units of the output was started"
        else:
            missing, surplus, named = lost, extra, known_lost
    return MissingRows(
        name=rows.name,
        absent=max(started - total, 0),
        added=max(total + unknown - started, 0),
        total=total,
        missing=missing,
        named=named,
        surplus=surplus,
        is_exact=is_exact,
        by=found.by,
        replaced=found.replaced,
        proof=said,
        jobs=asked.frames,
        _frame=source,
        _source=keyed,
        _found=found,
        _cached=cached,
        _mask=rows.tracking.mask,
    )


def _started(rows: RowNames, source: DataFrame) -> tuple[DataFrame, int, int]:
    """Add unit and tag; return the rows of started chains, how many, and how many of others."""
    keyed, has_chain = source, has_columns(source, rows.chain)
    if reads_plainly(source):  # a frame of several sources has no such file
        file = F.element_at(F.split(F.input_file_name(), "/"), -1)
        keyed = source.withColumn("xorack_file_", file)
    keyed = keyed.withColumns({"xorack_unit_": unit_in(rows, source), "xorack_tag_": F.lit("")})
    if has_chain:
        keyed = with_tag(keyed, rows.prefix, rows.chain, "xorack_tag_")
    if rows.batch_id is not None or not has_chain:
        return keyed, comparing.sums_of(keyed, "count(1)")[0], 0
    chains = rows.record.chains().selectExpr("tag AS xorack_tag_", "count > 0 AS _started")
    known = keyed.join(chains, "xorack_tag_", "left")
    total, unknown = comparing.sums_of(known, "count_if(_started)", "count_if(_started IS NULL)")
    return known.where("_started").drop("_started"), total, unknown


class _Asked(NamedTuple):
    """The units of an output as the job computes them once more: None if nobody can be asked.

    The frames have them, none if the output itself has; `is_output` if they add up to the output.
    """

    units: DataFrame | None = None
    frames: tuple[DataFrame, ...] = ()
    is_output: bool = False
    problem: str = ""


def _ask(rows: RowNames, proof: Proof, frames: Sequence[DataFrame], keep: Keep) -> _Asked:
    """Compute the frames of a job once more, the last ones until they add up to the output."""
    own = [frame for frame in proof.outputs if not has_evidence(rows, frame)]
    parts = [frame.select(unit_of(rows, frame).alias("unit")) for frame in own]
    if own and len(own) == len(proof.outputs):  # it has units: it stands for itself
        return _Asked(_union(parts), is_output=True)
    needed, found, asked = max(1, len(proof.outputs) - len(own)), total(rows, own), _Asked()
    try:
        for number, frame in enumerate(frames, 1):
            parts.append(keep(_with_unit(rows, frame).selectExpr("xorack_unit_ AS unit")))
            with plain_errors():
                found += totals_of(parts[-1].select(*named(of_units(F.col("unit")))))
            is_output = found == proof.totals
            if number <= needed or is_output:
                asked = _Asked(_union(parts), (*frames[:number],), is_output)
            if is_output:
                break
    except Exception as error:  # noqa: BLE001 - whatever a job raises: its rows are not known
        return _Asked(problem=f"the job's rows cannot be computed again: {one_line(error)}; ")
    return asked


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.union(other), frames)


def _with_unit(rows: RowNames, frame: DataFrame) -> DataFrame:
    """Add ``xorack_unit_``; leave out rows without a unit, which evidence does not count."""
    if not has_columns(frame, [rows.unit_name]):
        return frame.withColumn("xorack_unit_", unit_in(rows, frame))
    unit = column_named(frame, rows.unit_name)[0].cast("long")
    return frame.withColumn("xorack_unit_", unit).where("xorack_unit_ IS NOT NULL")


def _compare(
    rows: RowNames, source: DataFrame, proof: Proof, asked: _Asked, keep: Keep
) -> tuple[Differing, str]:
    """Return how the output differs, and what proves it."""
    said, sources = asked.problem, [source]
    if asked.units is not None:
        units = comparing.compare_units(source, asked.units, keep)
        if asked.is_output:
            equal = f"{_ROWS} are those of the output, by XOR, count and sum: the rows that are"
            own = "the output has the units of rows: each is compared"
            return Differing(units), f"{equal} not among them are missing" if asked.frames else own
        missing, surplus = comparing.sums_of(units, *_MISSING_AND_SURPLUS)
        if missing or surplus:
            said = (
                f"{_ROWS} are neither those that were started nor those of the output: this time "
                f"{missing:,} are missing and {surplus:,} too many. They are others each time "
                "(dropDuplicates without an order, rand, a source that has changed), or rows were "
                "lost after them, too; "
            )
        else:
            said = (
                f"{_ROWS} are all that were started: what differs came after them, in the "
                "aggregation, its write, or since; or evidence was given another frame than is "
                "aggregated; "
            )
            # The job may have changed columns: its frame groups as the output does.
            frames = [_with_unit(rows, one) for one in asked.frames if len(asked.frames) == 1]
            sources = [*(one.withColumn("xorack_tag_", F.lit("")) for one in frames), source]
    outputs = [frame for frame in proof.outputs if has_columns(frame, rows.evidence_names)]
    if not outputs or len(outputs) < len(proof.outputs):
        return Differing(), f"{said}nothing tells which rows the output has"
    for compared in sources:
        found = comparing.compare_groups(rows, compared, outputs, keep)
        if found.units is not None:
            if compared is not source:
                is_apart = F.lit({*rows.chain} <= {*rows.unit})
                units = found.units.drop("xorack_tag_").withColumn("is_known", is_apart)
                found = found._replace(units=units)
            return found, f"{said}the rows that are named explain the sums of every group"
    return found, f"{said}no rows explain the sums of every group"
