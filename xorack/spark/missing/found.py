"""The rows that are missing from an output: their number, their names, and the proof.

This module collects the facts. `xorack.spark.missing.telling` puts them into words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, combinations
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

from xorack.core.errors import StateError
from xorack.core.notebook import table
from xorack.spark.evidence import has_evidence, names_files, total, unit_in, unit_of
from xorack.spark.folding import Totals, named, of_units, totals_of
from xorack.spark.messages import one_line, plain_errors
from xorack.spark.missing import telling
from xorack.spark.missing.comparing import (
    ByUnit,
    Comparison,
    DifferingUnits,
    caches,
    collected,
    compare_groups,
    compare_units,
    has_units_apart,
    sums_of,
    sums_of_units,
)
from xorack.spark.missing.telling import Basis, Counts, Facts
from xorack.spark.missing.why import STATE, Explanation, Findings, examine
from xorack.spark.record import summary_in
from xorack.spark.units import chain_columns, column_named, has_columns, with_tag

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from xorack.spark.missing.comparing import Keep
    from xorack.spark.run import RowNames

_OWN = ("xorack_unit_", "xorack_file_")
"""The columns that are added to a source."""


class _Compared(NamedTuple):
    """The facts, the differing units if they are known, and the rows that may be missing."""

    facts: Facts
    units: DifferingUnits | None = None
    candidates: DataFrame | None = None


class _Sides(NamedTuple):
    """The facts, how the units of both sides differ, and the job's frames with these units."""

    facts: Facts
    by_unit: ByUnit | None = None
    frames: Sequence[DataFrame] = ()


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class MissingRows(Facts):
    """The rows of a source that are missing from an output, with the attributes of `Facts`.

    Without a proof, `missing` and `surplus` are the smallest numbers that the counts allow.
    """

    _source: DataFrame = field(repr=False)
    _units: DifferingUnits | None = field(repr=False)
    _candidates: DataFrame = field(repr=False)
    _rows: RowNames = field(repr=False)

    @property
    def proof(self) -> str:
        """A sentence that says what proves the names, or why there are no names."""
        return telling.basis_in_words(self)

    @property
    def rows(self) -> DataFrame:
        """The missing rows that are named, with the columns of the source."""
        return self._where("missing_count > 0 AND is_named")

    @property
    def doubled(self) -> DataFrame:
        """The rows that the output has too often, as far as the source has them."""
        return self._where("missing_count < 0")

    @property
    def repeated(self) -> DataFrame:
        """The rows that share a unit, if the output has only a part of them.

        Their unit does not say which part.
        """
        return self._where("missing_count > 0 AND NOT is_named")

    @property
    def candidates(self) -> DataFrame:
        """The rows of the source that may be missing, if no row can be named."""
        return self._candidates.drop(*_OWN)

    def _where(self, condition: str) -> DataFrame:
        if self._units is None:
            return self._source.limit(0).drop(*_OWN)
        self._check_units()
        units = self._units.lasting.where(condition).select("xorack_unit_")
        units = F.broadcast(units) if self._units.is_few else units
        return self._source.join(units, "xorack_unit_", "left_semi").drop(*_OWN)

    def _check_units(self) -> None:
        """Raise `StateError` if the units are computed again, and are others than before."""
        units = self._units
        if units and not units.is_few and sums_of_units(units.compared) != self.difference:
            raise StateError(
                "the rows cannot be named again: the source or the job's frame has changed"
            )

    @cached_property
    def _explanation(self) -> Explanation:
        self._check_units()
        with caches() as keep:
            return self.examine(keep, is_lasting=True).explanation

    def __repr__(self) -> str:
        return f"<MissingRows: {self}>"

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows, without computing anything."""
        explained = self.__dict__.get("_explanation")
        facts = {
            "names": str(self),
            "proof": self.proof,
            "why": None if explained is None else explained.sentence.splitlines(),
        }
        parts = (
            ("done", "in the output", self.source.count - self.missing),
            ("missing", "missing, with names", self.named),
            ("other", "missing, without names", self.missing - self.named),
            ("surplus", "too many", self.surplus),
        )
        return table(f"Missing rows of {self._rows.name}", facts, parts)

    def explain(self) -> Explanation:
        """Say what the missing rows have in common, and what the surplus rows have in common."""
        return self._explanation

    def examine(self, keep: Keep, *, is_lasting: bool = False) -> Findings:
        """Find the values that the differing rows have in common; see `examine` of `why`."""
        if self._units is None:
            units = self._candidates.select("xorack_unit_").distinct()
            suspect = units.withColumn("xorack_state_", F.lit("suspect"))
            marked = self._source.join(suspect, "xorack_unit_", "left")
            stated = marked.na.fill("other", ["xorack_state_"])
        else:
            stated = self._units.marks(self._source, is_lasting=is_lasting).selectExpr("*", STATE)
        is_few = self._units is not None and self._units.is_few
        return examine(self._rows, self, self._source, stated, keep, is_few=is_few)

    def __str__(self) -> str:
        return telling.counts_in_words(self)


def find_missing(comparison: Comparison) -> MissingRows:
    """Find the rows of a source that are missing from an output; see `Audit.missing_rows`."""
    source = _started(comparison.rows, comparison.source)
    compared = _compare(replace(comparison, source=source))
    return MissingRows(
        **vars(compared.facts),
        _source=source,
        _units=compared.units,
        _candidates=source if compared.candidates is None else compared.candidates,
        _rows=comparison.rows,
    )


def _started(rows: RowNames, source: DataFrame) -> DataFrame:
    """Add unit and file, and remove rows of chains that failed at the start."""
    keyed = source.withColumns({"xorack_unit_": unit_in(rows, source)})
    if names_files(source):
        keyed = keyed.withColumn("xorack_file_", F.input_file_name())
    if rows.batch_id is not None or not has_columns(source, rows.chain):
        return keyed
    header = rows.record.read()[1] or {}
    summary = summary_in(header)
    failed = rows.record.chains(header).where("failed IS NOT NULL").select("tag")
    if summary.all_chains == summary.chains or not failed.take(1):
        return keyed
    # Compare chains by hash, because the tags of all rows would be the most expensive part.
    columns = chain_columns(source, rows.chain)
    hashed = F.xxhash64(F.lit(0), *columns).alias("xorack_chain_")
    chains = source.select(hashed, *columns).distinct()
    keys = [f"c{i}" for i in range(len(columns))]
    others = with_tag(chains, rows.prefix, keys).join(failed, "tag", "left_semi")
    hashes = others.select("xorack_chain_")
    return (
        keyed.select("*", hashed).join(hashes, "xorack_chain_", "left_anti").drop("xorack_chain_")
    )


def _compare(comparison: Comparison) -> _Compared:
    """Compare a source with an output, and check that the sums are equal."""
    rows, evidence, source = comparison.rows, comparison.evidence, comparison.source
    sides = _compare_sides(comparison)
    facts, by_unit = sides.facts, sides.by_unit
    more = facts.difference.count
    facts = replace(facts, missing=max(more, 0), surplus=max(-more, 0))
    if facts.source != comparison.started:
        return _Compared(replace(facts, basis=Basis.SOURCE_CHANGED))
    if by_unit is not None:
        facts = replace(facts, is_apart=_is_apart(rows, source, by_unit))
        if not facts.is_apart:
            return _Compared(replace(facts, basis=Basis.SHARED_UNITS))
        if by_unit.other == evidence.totals:
            return _Compared(replace(facts, is_exact=True, **vars(by_unit.counts)), by_unit.units)
        other = Basis.OTHER_OUTPUT if facts.basis == Basis.UNITS else Basis.OTHER_FRAMES
        is_other = by_unit.counts.differing > 0
        facts = replace(facts, basis=other if is_other else Basis.AFTER_FRAME)
    if not evidence.outputs or not all(has_evidence(rows, frame) for frame in evidence.outputs):
        return _Compared(facts)
    # The frame has the columns by which the job grouped its output.
    is_frame = facts.basis == Basis.AFTER_FRAME and len(sides.frames) == 1
    compared = _with_unit(rows, sides.frames[0]) if is_frame else source
    return _by_groups(replace(comparison, source=compared), facts, source)


def _compare_sides(comparison: Comparison) -> _Sides:
    """Compare with the units of the outputs, or else with the units of the job's frames."""
    rows, evidence, source = comparison.rows, comparison.evidence, comparison.source
    sums = comparison.started, evidence.totals
    facts = Facts(basis=Basis.GROUPS, started=sums[0], written=sums[1], source=sums[0])
    own = [frame for frame in evidence.outputs if not has_evidence(rows, frame)]
    units = [frame.select(unit_of(rows, frame).alias("unit")) for frame in own]
    if own and len(own) == len(evidence.outputs):
        by_unit = compare_units(comparison, units)
        facts = replace(facts, basis=Basis.UNITS, of_frames=by_unit.counts, source=by_unit.source)
        return _Sides(facts, by_unit)
    try:
        if comparison.frames:
            asked = _frames_of(comparison, own)
            units += [_unit(rows, frame) for frame in asked]
            by_unit = compare_units(comparison, units)
            facts = replace(facts, frames=len(comparison.frames), asked=len(asked))
            facts = replace(facts, basis=Basis.FRAME, of_frames=by_unit.counts)
            return _Sides(replace(facts, source=by_unit.source), by_unit, asked)
    except Exception as error:  # noqa: BLE001 - a user's frame may raise any error
        problem = one_line(error, rows.tracking.mask)
        facts = replace(facts, basis=Basis.NOT_COMPUTED, problem=problem)
    with plain_errors():
        now = totals_of(source.select(*named(of_units(F.col("xorack_unit_")))))
    return _Sides(replace(facts, source=now))


def _is_apart(rows: RowNames, source: DataFrame, by_unit: ByUnit) -> bool:
    is_apart = {*rows.chain} <= {*rows.unit} or not has_columns(source, rows.chain)
    return is_apart or not by_unit.has_repeats or has_units_apart(rows, source)


def _by_groups(comparison: Comparison, facts: Facts, source: DataFrame) -> _Compared:
    """Compare by groups of the output, and name rows of `source`."""
    groups = compare_groups(comparison)
    units = groups.candidates.select("xorack_unit_")
    candidates = source.join(units, "xorack_unit_", "left_semi")
    exchanged = groups.differing if groups.is_exchange else 0
    facts = replace(facts, by=groups.by, exchanged=exchanged)
    if groups.units is None or sums_of_units(groups.units) != facts.difference:
        return _Compared(facts, None, candidates)
    sums = ["sum(greatest(missing_count, 0))", "sum(greatest(-missing_count, 0))"]
    parts = [*sums, "count_if(missing_count > 0)", "count_if(missing_count < 0)"]
    missing, surplus, missing_units, doubled_units = sums_of(groups.units, *parts)
    # If a missing unit has more rows in the source than are missing, the output has one of these
    # rows. Then no row has a name.
    marked = source.select("xorack_unit_").join(groups.units, "xorack_unit_")
    lost, doubled = sums_of(marked, "count_if(missing_count > 0)", "count_if(missing_count < 0)")
    if lost != missing:
        return _Compared(facts, None, candidates)
    differing = missing_units + doubled_units
    counts = Counts(
        missing=missing,
        named=missing,
        surplus=surplus,
        doubled_rows=doubled,
        named_units=missing_units,
        doubled_units=doubled_units,
        differing=differing,
    )
    facts = replace(facts, is_exact=True, **vars(counts))
    return _Compared(facts, collected(groups.units, differing))


def _frames_of(comparison: Comparison, own: Sequence[DataFrame]) -> Sequence[DataFrame]:
    """Return the frames that add up to the outputs, or else to what was started.

    If there are none, return the last frame for each output.

    `own` are the outputs that have units themselves.
    """
    rows, evidence, frames = comparison.rows, comparison.evidence, comparison.frames
    if len(frames) == 1:  # the comparison checks its sums
        return frames
    sums, known = list[Totals](), total(rows, own)
    of_all: Sequence[DataFrame] = ()
    for frame in frames:
        units = comparison.keep(_unit(rows, frame))
        with plain_errors():
            sums.append(totals_of(units.select(*named(of_units(F.col("unit"))))))
        *before, last = range(len(sums))
        choices = chain.from_iterable(combinations(before, n) for n in range(len(sums)))
        for chosen in choices:
            asked = [frames[n] for n in sorted((*chosen, last))]
            together = sum((sums[n] for n in (*chosen, last)), known)
            if together == evidence.totals:
                return asked
            of_all = of_all or (asked if together == comparison.started else ())
    return of_all or frames[: max(1, len(evidence.outputs) - len(own))]


def _unit(rows: RowNames, frame: DataFrame) -> DataFrame:
    return _with_unit(rows, frame).selectExpr("xorack_unit_ AS unit")


def _with_unit(rows: RowNames, frame: DataFrame) -> DataFrame:
    """Add ``xorack_unit_``, and remove rows without a unit, which evidence does not count."""
    if not has_columns(frame, [rows.unit_name]):
        return frame.withColumn("xorack_unit_", unit_in(rows, frame))
    unit = column_named(frame, rows.unit_name)[0].cast("long")
    return frame.withColumn("xorack_unit_", unit).where("xorack_unit_ IS NOT NULL")
