"""The rows that are missing from an output: how many, which ones, by what proof, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F

from xorack.spark.evidence import has_evidence, remembered, total, unit_in, unit_of
from xorack.spark.folding import named, of_units, totals_of
from xorack.spark.messages import one_line, plain_errors
from xorack.spark.missing.comparing import Differing, compare_groups, compare_units, sums_of
from xorack.spark.missing.why import Explanation, compare, deduplicated
from xorack.spark.storage import reads_plainly
from xorack.spark.units import chain_columns, column_named, has_columns, is_deterministic, with_tag

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from xorack.spark.evidence import Proof
    from xorack.spark.missing.comparing import Keep
    from xorack.spark.run import RowNames

    Compared = tuple[Differing, str, Sequence[DataFrame]]

_ROWS = "the job's rows, computed again,"
_MAX_CACHED = 100_000
"""Missing rows that are kept: each reading of the source for them takes a scan."""
_MISSING_AND_SURPLUS = "sum(greatest(missing_count, 0))", "sum(greatest(-missing_count, 0))"
_OWN = ("xorack_unit_", "xorack_chain_", "xorack_tag_", "xorack_file_")
"""The columns that are added to a source."""


@dataclass(frozen=True, eq=False)
class MissingRows:
    """The rows of a source that an output lost. It has the methods of `rows`, such as ``show``.

    Attributes:
        missing: How many rows of the source are not in the output; at least, if not `is_exact`.
        named: How many of them are in `rows`: all, or none without a proof.
        surplus: How many units the output has more than once, or without a row of the source.
        is_exact: Whether these numbers are proved, and no net of rows lost and doubled.
        by: The columns by which both sides were compared; none if that was unit by unit.
        proof: What the names rest on, or what is known without names.
        jobs: The frames of the job that were computed for it.
    """

    missing: int
    named: int
    surplus: int
    is_exact: bool
    by: tuple[str, ...]
    proof: str
    jobs: Sequence[DataFrame]
    _source: DataFrame = field(repr=False)
    _total: int = field(repr=False)
    _units: DataFrame = field(repr=False)
    _found: Differing = field(repr=False)
    _cached: list[DataFrame] = field(repr=False)
    _rows: RowNames = field(repr=False)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.rows, name)

    @property
    def rows(self) -> DataFrame:
        """The missing rows that are named, with the columns of the source."""
        return self.tagged.drop(*_OWN)

    @cached_property
    def tagged(self) -> DataFrame:
        """The missing rows that are named, with ``xorack_unit_`` and ``xorack_tag_``."""
        units = self._units.where("missing_count > 0 AND is_known").drop("is_known")
        keys = [name for name in units.columns if name != "missing_count"]
        # Else all rows of the source would be sorted by unit.
        units = F.broadcast(units) if self.missing <= _MAX_CACHED else units
        place = F.row_number().over(Window.partitionBy(*keys).orderBy(F.lit(0)))
        found = self._source.join(units, keys).withColumn("_place", place)
        found = found.where("_place <= missing_count").drop("_place", "missing_count")
        if has_columns(found, self._rows.chain):
            found = with_tag(found, self._rows.prefix, self._rows.chain, "xorack_tag_")
        if self.missing <= _MAX_CACHED:  # names, reasons and notes need it
            self._cached.append(found.persist())
        return found

    @property
    def doubled(self) -> DataFrame:
        """The rows that the output has too often, as far as they are named."""
        return self._of(self._units.where("missing_count < 0"))

    @property
    def candidates(self) -> DataFrame:
        """The rows among which those are that have no names."""
        return self._candidates.drop(*_OWN)

    @property
    def _candidates(self) -> DataFrame:
        if self.is_exact:
            return self._of(self._units.where("missing_count > 0 AND NOT is_known"))
        groups = self._found.candidates
        return self._source if groups is None else self._of(groups)

    def _of(self, units: DataFrame) -> DataFrame:
        return self._source.join(units.select("xorack_unit_"), "xorack_unit_", "left_semi")

    def explain(self) -> Explanation:
        """Say why rows with names are missing or, if none is, doubled, or replaced in groups."""
        if self.named < self.missing:
            return Explanation("")
        some, count, word = self.tagged, self.missing, "missing row"
        if not count and self.surplus:
            some, word = self.doubled, "doubled row"
            count = sums_of(some, "count(1)")[0]
        elif not count:
            some, count = self._candidates, self._found.replaced
            word = "replaced row"
        if not count:
            return Explanation("")
        jobs = () if self.by or self.surplus else self.jobs
        if key := deduplicated(jobs, self._source, some):
            same = f"has a row with the same {', '.join(key)} that is in the output"
            return Explanation(f"Each of the {count:,} missing rows {same}")
        # Only what was lost behind the job's rows was lost with a task.
        tasks = self.by if self.jobs and has_columns(self._source, self.by) else ()
        source, mask = (self._source, self._total), self._rows.tracking.mask
        reasons = compare(source, (some, count), word, tasks, mask)
        return Explanation(reasons.sentence, reasons.findings)

    def __str__(self) -> str:
        least = "" if self.is_exact else "at least "
        by = f", by {', '.join(self.by)}" if self.by else ""
        parts = [f"{self.named:,} of {least}{self.missing:,} missing rows can be named{by}"]
        if self.missing > self.named:
            parts.append("the others are among .candidates")
        if self.surplus:
            parts.append(f"the output has {least}{self.surplus:,} rows too many")
        return "; ".join(parts)

    def unpersist(self) -> None:
        """Free what was cached."""
        for frame in self._cached:
            frame.unpersist()


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

    keyed = _started(rows, source)
    (total,) = sums_of(keyed, "count(1)")
    jobs: Sequence[DataFrame] = ()
    found, said = Differing(), "the rows of the input are others each time, as with rand()"
    if total > started:  # which of them were started?
        said = f"the input has at least {total - started:,} rows more than at the start"
    elif is_deterministic(source):
        frames = remembered(rows) if frames is None else frames
        found, said, jobs = _compare(rows, keyed, proof, frames, keep)
    if total < started:
        said = f"{started - total:,} that were started are not in the source; {said}"
    written = proof.totals.count
    if found.units is not None:
        sums = (*_MISSING_AND_SURPLUS, "sum(if(is_known, greatest(missing_count, 0), 0))")
        missing, surplus, known = sums_of(found.units, *sums)
        if missing == total and surplus == written > 0:  # of another type, run or name
            found = Differing(replaced=total)
    units, is_exact = found.units, found.units is not None
    if units is None:
        missing, surplus, known = max(total - written, 0), max(written - total, 0), 0
        none = keyed.limit(0)
        units = none.selectExpr("xorack_unit_", "0L AS missing_count", "true AS is_known")
    if rows.batch_id is None and found.replaced >= max(total, 1):
        header = rows.record.read()[1] or {}
        types = ", ".join(map(" ".join, zip(header["unit"], header["types"], strict=True)))
        said = (
            "with_unit saw another run or name, or a unit column of another type or value than "
            f"start: there they were {types}; int and bigint are equal, a string is not"
        )
    of_source = keyed, total, units, found, cached, rows
    return MissingRows(missing, known, surplus, is_exact, found.by, said, jobs, *of_source)


def _started(rows: RowNames, source: DataFrame) -> DataFrame:
    """Add unit, chain and file; leave out rows of chains that were not started."""
    # Tags of all rows would cost more than all the rest: chains are compared by hash.
    chain = chain_columns(source, rows.chain) if has_columns(source, rows.chain) else []
    keys, hashed = [f"c{i}" for i in range(len(chain))], F.xxhash64(F.lit(0), *chain)
    keyed = source.withColumns({"xorack_unit_": unit_in(rows, source), "xorack_chain_": hashed})
    keyed = keyed.withColumn("xorack_tag_", F.lit(""))
    if reads_plainly(source):  # a frame of several sources has no such file
        file = F.substring_index(F.input_file_name(), "/", -1)
        keyed = keyed.withColumn("xorack_file_", file)
    if rows.batch_id is not None or not chain:
        return keyed
    chains = source.select(hashed.alias("xorack_chain_"), *chain).distinct()
    started = rows.record.chains().where("count > 0").select("tag")
    others = with_tag(chains, rows.prefix, keys).join(started, "tag", "left_anti")
    with plain_errors():
        is_started = not others.take(1)
    return keyed if is_started else keyed.join(others, "xorack_chain_", "left_anti")


def _compare(
    rows: RowNames, source: DataFrame, proof: Proof, frames: Sequence[DataFrame], keep: Keep
) -> Compared:
    """Return how the output differs, what proves it, and the frames of the job that were asked."""
    own = [frame for frame in proof.outputs if not has_evidence(rows, frame)]
    held = [frame.select(unit_of(rows, frame).alias("unit")) for frame in own]
    if own and len(own) == len(proof.outputs):
        found = Differing(compare_units(source, held, keep))
        return found, "the output has the units of rows: each is compared", ()
    said, jobs, compared = "", frames[: max(1, len(proof.outputs) - len(own))], source
    found_totals = total(rows, own)
    try:
        for number, frame in enumerate(frames, 1):
            held.append(keep(_with_unit(rows, frame).selectExpr("xorack_unit_ AS unit")))
            with plain_errors():
                found_totals += totals_of(held[-1].select(*named(of_units(F.col("unit")))))
            if found_totals == proof.totals:
                found = Differing(compare_units(source, held, keep))
                equal = f"{_ROWS} are those of the output, by XOR, count and sum"
                said = f"{equal}: the rows that are not among them are missing"
                return found, said, frames[:number]
    except Exception as error:  # noqa: BLE001 - whatever a job raises: its rows are not known
        said, jobs = f"the job's rows cannot be computed again: {one_line(error)}; ", ()
    if jobs:
        units = compare_units(source, held[: len(own) + len(jobs)], keep)
        missing, surplus = sums_of(units, *_MISSING_AND_SURPLUS)
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
            if len(jobs) == 1 and {*rows.chain} <= {*rows.unit}:
                compared = _with_unit(rows, jobs[0])  # it groups by columns that the job changed
    if own or not proof.outputs:
        return Differing(), f"{said}nothing tells which rows the output has", jobs
    found = compare_groups(rows, compared, proof.outputs, keep)
    which = "no rows" if found.units is None else "the rows that are named"
    return found, f"{said}{which} explain the sums of every group", jobs


def _with_unit(rows: RowNames, frame: DataFrame) -> DataFrame:
    """Add ``xorack_unit_``; leave out rows without a unit, which evidence does not count."""
    if not has_columns(frame, [rows.unit_name]):
        return frame.withColumn("xorack_unit_", unit_in(rows, frame))
    unit = column_named(frame, rows.unit_name)[0].cast("long")
    return frame.withColumn("xorack_unit_", unit).where("xorack_unit_ IS NOT NULL")
