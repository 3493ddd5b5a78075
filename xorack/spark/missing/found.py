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
from xorack.spark.missing.comparing import compare_groups, compare_units, sums_of, sums_of_units
from xorack.spark.missing.telling import Basis, Counts, Facts
from xorack.spark.missing.why import SAMPLE, Explanation, Sample, explain_groups, explain_sample
from xorack.spark.units import chain_columns, column_named, has_columns, with_tag

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from xorack.spark.evidence import Evidence
    from xorack.spark.missing.comparing import ByUnit, Keep
    from xorack.spark.run import RowNames

MAX_COLLECTED = 100_000
"""Most differing units that the driver keeps, so that their names need no further computation."""
_UNITS = "xorack_unit_ long, missing_count long, is_named boolean"
_OWN = ("xorack_unit_", "xorack_chain_", "xorack_file_", "missing_count", "is_named")
"""The columns that are added to a source."""


class _Compared(NamedTuple):
    """The facts, the differing units, if they are known, and the rows that may be missing."""

    facts: Facts
    units: DataFrame | None = None
    candidates: DataFrame | None = None


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class MissingRows(Facts):
    """The rows of a source that are missing from an output; its attributes are those of `Facts`.

    Without a proof, `missing` and `surplus` are the smallest numbers that the counts allow.
    """

    _source: DataFrame = field(repr=False)
    _units: DataFrame | None = field(repr=False)
    _is_collected: bool = field(repr=False)  # then the units need no further computation
    _candidates: DataFrame = field(repr=False)
    _rows: RowNames = field(repr=False)

    @property
    def proof(self) -> str:
        """A sentence that says what proves the names, or why there are no names."""
        return telling.basis_in_words(self)

    @property
    def rows(self) -> DataFrame:
        """The missing rows that have names, with the columns of the source."""
        return self._with("missing_count > 0 AND is_named")

    @property
    def doubled(self) -> DataFrame:
        """The surplus rows of the output that are also in the source."""
        return self._with("missing_count < 0")

    @property
    def repeated(self) -> DataFrame:
        """The rows of a unit of which the output has some: any of them may be missing."""
        return self._with("missing_count > 0 AND NOT is_named")

    @property
    def candidates(self) -> DataFrame:
        """The rows that may be the missing rows without names."""
        return self._candidates.drop(*_OWN)

    def _with(self, condition: str) -> DataFrame:
        if self._units is None:
            return self._source.limit(0).drop(*_OWN)
        if not self._is_collected and sums_of_units(self._units) != self.difference:
            raise StateError(
                "the rows cannot be named again: the source or the job's frame has changed"
            )
        units = self._units.where(condition).select("xorack_unit_")
        units = F.broadcast(units) if self._is_collected else units
        return self._source.join(units, "xorack_unit_", "left_semi").drop(*_OWN)

    @cached_property
    def _explanation(self) -> Explanation:
        kept: list[DataFrame] = []

        def keep(frame: DataFrame) -> DataFrame:
            kept.append(frame.persist())
            return kept[-1]

        try:
            return self.explain_with(keep)[0]
        finally:
            for frame in kept:
                frame.unpersist()

    def __repr__(self) -> str:
        return f"<MissingRows: {self}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows; it computes nothing."""
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

    def explain_with(self, keep: Keep) -> tuple[Explanation, Sample | None]:
        """Return the explanation and its sample, which stays cached."""
        if self._units is None:
            among = self._source, self._candidates
            return explain_groups(self._rows, self, *among), None
        sample = self._sample(self._units, keep)
        explanation = explain_sample(self._rows, self, sample, self._source)
        return explanation, sample

    def _sample(self, units: DataFrame, keep: Keep) -> Sample:
        """Return all differing rows of the source, or a sample of them, and a sample of the others.

        One scan of the source serves names, notes and reasons.
        """
        has_all = self._is_collected
        units = F.broadcast(units) if has_all else units
        marked = self._source.join(units, "xorack_unit_", "left").na.fill(0, ["missing_count"])
        of_differing = 1.0 if has_all else min(1.0, SAMPLE / max(self.differing, 1))
        of_others = min(1.0, SAMPLE / max(self.source.count - self.missing, 1))
        kept = keep(marked.where(f"rand(1) < if(missing_count <> 0, {of_differing}, {of_others})"))
        differing = (kept if has_all else marked).where("missing_count <> 0")
        return Sample(kept, differing, has_all, of_others >= 1)

    def __str__(self) -> str:
        return telling.counts_in_words(self)


def resolve(
    rows: RowNames,
    source: DataFrame,
    evidence: Evidence,
    started: Totals,
    frames: Sequence[DataFrame],
    keep: Keep,
) -> MissingRows:
    """Find the rows of a source that are missing from an output; see `Audit.missing_rows`."""
    keyed = _started(rows, source)
    facts, units, candidates = _compare(rows, keyed, evidence, started, frames, keep)
    is_collected = False
    if units is not None and facts.differing <= MAX_COLLECTED:
        is_collected = True
        with plain_errors():
            found = [tuple(row) for row in units.collect()]
        units = source.sparkSession.createDataFrame(found, _UNITS)
    among = keyed if candidates is None else candidates
    return MissingRows(
        **vars(facts),
        _source=keyed,
        _units=units,
        _is_collected=is_collected,
        _candidates=among,
        _rows=rows,
    )


def _started(rows: RowNames, source: DataFrame) -> DataFrame:
    """Add unit, chain and file, and remove rows of chains that failed at the start."""
    # Compare chains by hash, because the tags of all rows would be the most expensive part.
    columns = chain_columns(source, rows.chain) if has_columns(source, rows.chain) else []
    keys, hashed = [f"c{i}" for i in range(len(columns))], F.xxhash64(F.lit(0), *columns)
    keyed = source.withColumns({"xorack_unit_": unit_in(rows, source)})
    if columns:
        keyed = keyed.withColumn("xorack_chain_", hashed)
    if names_files(source):
        file = F.substring_index(F.input_file_name(), "/", -1)
        keyed = keyed.withColumn("xorack_file_", file)
    if rows.batch_id is not None or not columns:
        return keyed
    failed = rows.record.chains().where("failed IS NOT NULL").select("tag")
    if not failed.take(1):
        return keyed
    chains = source.select(hashed.alias("xorack_chain_"), *columns).distinct()
    others = with_tag(chains, rows.prefix, keys).join(failed, "tag", "left_semi")
    return keyed.join(others.select("xorack_chain_"), "xorack_chain_", "left_anti")


def _compare(
    rows: RowNames,
    source: DataFrame,
    evidence: Evidence,
    started: Totals,
    frames: Sequence[DataFrame],
    keep: Keep,
) -> _Compared:
    """Compare a source with an output, and check that the sums are equal."""
    facts = Facts(basis=Basis.GROUPS, started=started, written=evidence.totals, source=started)
    facts, by_unit, asked = _by_unit(rows, facts, source, evidence, frames, keep)
    more = facts.difference.count
    facts = replace(facts, missing=max(more, 0), surplus=max(-more, 0))
    if facts.source != started:
        return _Compared(replace(facts, basis=Basis.SOURCE_CHANGED))
    if by_unit is not None:
        if not by_unit.is_apart:
            return _Compared(replace(facts, basis=Basis.SHARED_UNITS))
        if by_unit.held == evidence.totals:
            return _Compared(replace(facts, is_exact=True, **vars(by_unit.counts)), by_unit.units)
        other = Basis.OTHER_OUTPUT if facts.basis == Basis.UNITS else Basis.OTHER_FRAMES
        is_other = by_unit.counts.differing > 0
        facts = replace(facts, basis=other if is_other else Basis.AFTER_FRAME)
    if not evidence.outputs or not all(has_evidence(rows, frame) for frame in evidence.outputs):
        return _Compared(facts)
    # The frame has the columns by which the job grouped its output.
    is_frame = facts.basis == Basis.AFTER_FRAME and len(asked) == 1
    compared = _with_unit(rows, asked[0]) if is_frame else source
    return _by_groups(rows, facts, compared, source, evidence, keep)


def _by_unit(
    rows: RowNames,
    facts: Facts,
    source: DataFrame,
    evidence: Evidence,
    frames: Sequence[DataFrame],
    keep: Keep,
) -> tuple[Facts, ByUnit | None, Sequence[DataFrame]]:
    """Compare by unit with the output, or with the frames of the job; return these frames too."""
    own = [frame for frame in evidence.outputs if not has_evidence(rows, frame)]
    held = [frame.select(unit_of(rows, frame).alias("unit")) for frame in own]
    asked: Sequence[DataFrame] = ()
    by_unit: ByUnit | None = None
    if own and len(own) == len(evidence.outputs):
        by_unit, facts = compare_units(rows, source, held, keep), replace(facts, basis=Basis.UNITS)
    elif frames:
        try:
            asked = _frames_of(rows, total(rows, own), evidence, frames, len(own), keep)
            units = [*held, *(_unit(rows, frame) for frame in asked)]
            by_unit = compare_units(rows, source, units, keep)
            facts = replace(facts, basis=Basis.FRAME, frames=len(frames), asked=len(asked))
        except Exception as error:  # noqa: BLE001 - whatever a job raises: its rows are not known
            facts = replace(
                facts, basis=Basis.NOT_COMPUTED, problem=one_line(error, rows.tracking.mask)
            )
    if by_unit is None:
        with plain_errors():
            now = totals_of(source.select(*named(of_units(F.col("xorack_unit_")))))
        return replace(facts, source=now), None, ()
    facts = replace(facts, of_frames=by_unit.counts, is_apart=by_unit.is_apart)
    return replace(facts, source=by_unit.source), by_unit, asked


def _by_groups(
    rows: RowNames,
    facts: Facts,
    compared: DataFrame,
    source: DataFrame,
    evidence: Evidence,
    keep: Keep,
) -> _Compared:
    groups = compare_groups(rows, compared, evidence.outputs, keep)
    units = groups.candidates.select("xorack_unit_")
    candidates = source.join(units, "xorack_unit_", "left_semi")
    exchanged = groups.differing if groups.is_exchange else 0
    facts = replace(facts, by=groups.by, exchanged=exchanged)
    if groups.units is None or sums_of_units(groups.units) != facts.difference:
        return _Compared(facts, None, candidates)
    parts = "sum(greatest(missing_count, 0))", "sum(greatest(-missing_count, 0))", "count(1)"
    missing, surplus, differing = sums_of(groups.units, *parts)
    # Each unit must have as many rows as are missing, or another row of it is in the output.
    lost = groups.units.where("missing_count > 0").select("xorack_unit_")
    (found,) = sums_of(source.join(lost, "xorack_unit_", "left_semi"), "count(1)")
    if found != missing:
        return _Compared(facts, None, candidates)
    counts = Counts(missing=missing, named=missing, surplus=surplus, differing=differing)
    return _Compared(replace(facts, is_exact=True, **vars(counts)), groups.units)


def _frames_of(
    rows: RowNames,
    own: Totals,
    evidence: Evidence,
    frames: Sequence[DataFrame],
    number_own: int,
    keep: Keep,
) -> Sequence[DataFrame]:
    """Return the frames whose sums equal those of an output, or else the last frame per output."""
    if len(frames) == 1:  # the comparison checks its sums
        return frames
    sums: list[Totals] = []
    for frame in frames:
        units = keep(_unit(rows, frame))
        with plain_errors():
            sums.append(totals_of(units.select(*named(of_units(F.col("unit"))))))
        *before, last = range(len(sums))
        some = chain.from_iterable(combinations(before, n) for n in range(len(sums)))
        for chosen in some:
            if sum((sums[n] for n in (*chosen, last)), own) == evidence.totals:
                return [frames[n] for n in sorted((*chosen, last))]
    return frames[: max(1, len(evidence.outputs) - number_own)]


def _unit(rows: RowNames, frame: DataFrame) -> DataFrame:
    return _with_unit(rows, frame).selectExpr("xorack_unit_ AS unit")


def _with_unit(rows: RowNames, frame: DataFrame) -> DataFrame:
    """Add ``xorack_unit_``, and remove rows without a unit, which evidence does not count."""
    if not has_columns(frame, [rows.unit_name]):
        return frame.withColumn("xorack_unit_", unit_in(rows, frame))
    unit = column_named(frame, rows.unit_name)[0].cast("long")
    return frame.withColumn("xorack_unit_", unit).where("xorack_unit_ IS NOT NULL")
