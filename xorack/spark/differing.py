"""An output that differs: the chains that finish nevertheless, and notes for the other chains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

from xorack.core.errors import XorAckError
from xorack.spark.evidence import per_chain
from xorack.spark.folding import Totals, totals_of
from xorack.spark.messages import plain_errors
from xorack.spark.missing.comparing import (
    Comparison,
    compare_chains,
    has_units_apart,
    sums_of,
    tells_chains,
)
from xorack.spark.missing.difference import Difference, error_of, find_difference
from xorack.spark.missing.telling import Basis
from xorack.spark.notes import IS_SINGLE, by_tag, hex_of, notes
from xorack.spark.outcome import Agrees, Differs, Finished, Lost, Outcome
from xorack.spark.starting import fold_input
from xorack.spark.units import has_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from xorack.errors import OutputDiffersError
    from xorack.spark.evidence import Evidence, Output
    from xorack.spark.missing.comparing import Keep
    from xorack.spark.run import RowNames

_MAX_EXAMPLES = 5
_UNREAD = """
    if(verdict = 'agree', '{1}', format_string(
        '%,d of %,d units of {0} are not in what the job read', missing_count, started))"""
_UNPUBLISHED = "all units of {} are in the output, which is not published: other chains lack units"
_DIFFERS = """
    CASE WHEN missing IS NULL THEN 'no unit of this chain differs, but the output does'
    WHEN missing > 0 AND surplus > 0 THEN format_string(
        '%,d of %,d units of {0} are not in the output, and %,d too many',
        missing, started, surplus)
    WHEN missing > 0 THEN
        format_string('%,d of %,d units of {0} are not in the output', missing, started)
    ELSE format_string('%,d units of {0} too many are in the output', surplus) END"""
_NO_IDS = "bigint(NULL) AS missing_count", "CAST(NULL AS array<string>) AS ids"
_BY_CHAIN = """
    CASE WHEN found = started
    THEN format_string(
        '%,d of %,d units of {0} are in the output, but different units', found, started)
    ELSE format_string('%,d of %,d units of {0} are in the output', found, started) END"""


class Differing(NamedTuple):
    """An output that differs from what was started.

    Attributes:
        totals: The sums of the units that were started.
        started: All chains that were started.
        source: The job's input, as the user gave it.
        frames: The frames of the job that may be computed, the last frame first.
        keep: Caches a frame until the call ends.
        publish: Whether the output would be published. If so, all chains finish, or none.
        earlier: The ``tag`` of each chain that earlier calls finished.
        all_or_none: Whether all chains finish, or none, as in `advance`.
    """

    rows: RowNames
    evidence: Evidence
    totals: Totals
    started: Finished
    source: Output | None
    frames: Sequence[DataFrame]
    keep: Keep
    publish: bool = False
    earlier: DataFrame | None = None
    all_or_none: bool = False

    def find(self, source: DataFrame) -> Difference:
        """Find the difference between the output and a source that is what was started."""
        is_apart = {*self.rows.chain} <= {*self.rows.unit}  # if so, equal units are in equal chains
        if not is_apart and (chains := self._changed_chains(source)):
            return self.unknown(f"the source is not what was started: {chains}")
        sides = self.rows, self.evidence, self.totals, source, self.frames, self.keep
        difference = find_difference(Comparison(*sides))
        missing = difference.missing_rows
        if missing is None or missing.basis != Basis.SOURCE_CHANGED or not is_apart:
            return difference
        return replace(difference, hints=(self._changed_chains(source), *difference.hints))

    def _changed_chains(self, source: DataFrame) -> str:
        """Name chains whose rows have changed since the start, or return an empty text."""
        if not has_columns(source, self.rows.chain):
            return ""
        try:
            compared = compare_chains(self.started.chains, [fold_input(self.rows, source)])
            # Chains that the record has no units of have failed, or consist of rows that were not
            # started.
            examples = _examples(compared.where("verdict <> 'agree' AND started > 0"))
        except XorAckError:
            raise
        except Exception:  # noqa: BLE001 - a file is broken: the comparison says so
            return ""
        return f"chains of which the source differs: {', '.join(examples)}" if examples else ""

    def unknown(self, problem: str = "", keys: str = "") -> Difference:
        """Return a difference that only a sentence describes, without a comparison of rows."""
        return Difference(self.totals, self.evidence.totals, keys=keys, problem=problem)

    def input_lost(self, source: DataFrame) -> Lost | Agrees | None:
        """Return the outcome if the output has all rows of its input, or else None."""
        read = self._read(source)
        if read is None or totals_of(read) != self.evidence.totals:
            return None
        if not has_units_apart(self.rows, source):
            return None
        compared = self.keep(compare_chains(self.started.chains, [read]))
        agree = "verdict = 'agree'"
        count, units, missing, others = sums_of(
            compared,
            f"count_if({agree})",
            f"sum(if({agree}, started, 0L))",
            "sum(greatest(missing_count, 0L))",
            "count_if(verdict IN ('surplus', 'unknown', 'other'))",
        )
        if others:  # the job read rows that were not started
            return None
        if count == self.started.number:
            return Agrees(self.started)
        if self.publish:
            agree, count, units = "false", 0, 0
        finished = self.started.chains.join(compared.where(agree), "tag", "left_semi")
        text = F.expr(_UNREAD.format(self.rows.name, _UNPUBLISHED.format(self.rows.name)))
        ids = F.when(F.expr(IS_SINGLE), F.array(hex_of("xor")))
        noted = compared.where(f"NOT ({agree})").withColumns({"text": text, "ids": ids})
        left = self.started.number - count
        return Lost(Finished(finished, count, units), missing, left, notes(self.rows, noted, left))

    def by_units(self, difference: Difference) -> Outcome:
        """Finish the chains that miss no unit, or at most the tolerated number of units."""
        facts, rows = difference.missing_rows, difference.findings.differing
        assert facts is not None
        assert rows is not None
        chains = self.started.chains
        most = 0 if self.publish else self.rows.tracking.tolerated_units
        sums = by_tag(self.rows, rows)
        sums = self.keep(chains.selectExpr("tag", "count AS started").join(sums, "tag"))
        fits = f"(surplus = 0 AND missing <= {most})"
        left, tolerated, units_tolerated, *both = sums_of(
            sums,
            f"count_if(NOT {fits})",
            f"count_if{fits}",
            f"sum(if({fits}, missing, 0L))",
            "sum(missing)",
            "sum(surplus)",
        )
        # The difference includes rows of chains that were not started.
        if both != [facts.missing, facts.surplus]:
            return self.all_open(difference)
        if not left:
            noted = self._noted(sums).withColumn(
                "text", F.concat("text", F.lit(f"; up to {most:,} are tolerated"))
            )
            return Agrees(self.started, units_tolerated, notes(self.rows, noted, tolerated))
        if not self._may_finish_some():
            return self.all_open(difference, sums)
        differing = sums.where(f"NOT {fits}")
        found_units = "started - missing + surplus"
        finished = chains.join(differing, "tag", "left_anti")
        agreeing = Finished(finished, *sums_of(finished, "count(1)", "sum(count)"))
        error = self._error(
            difference, agreeing, differing.withColumn("found", F.expr(found_units))
        )
        requests = notes(self.rows, self._noted(sums), left + tolerated, difference.sentence)
        return Differs(error, requests, agreeing)

    def by_chain(self, difference: Difference) -> Differs:
        """Finish the chains that have exactly the started units, if the output shows chains."""
        if not self._may_finish_some():
            return self.all_open(difference)
        folded = per_chain(self.rows, self.evidence.outputs)
        compared = self.keep(compare_chains(self.started.chains, folded))
        agree = "verdict = 'agree'"
        count, units = sums_of(compared, f"count_if({agree})", f"sum(if({agree}, started, 0L))")
        differing = compared.where(f"NOT ({agree})")
        text = f"{_BY_CHAIN.format(self.rows.name)} AS text"
        noted = differing.where("started > 0").selectExpr("tag", text, *_NO_IDS)
        requests = notes(self.rows, noted, self.started.number - count, difference.sentence)
        chains = self.started.chains.join(compared.where(agree), "tag", "left_semi")
        finished = Finished(chains, count, units)
        return Differs(self._error(difference, finished, differing), requests, finished)

    def _may_finish_some(self) -> bool:
        may = not (self.publish or self.all_or_none)
        return may and tells_chains(self.rows, self.evidence.outputs)

    def all_open(self, difference: Difference, sums: DataFrame | None = None) -> Differs:
        """Finish no chain; `sums` has the differing units by chain, if they are known."""
        chains = self.started.chains.selectExpr("tag", "count AS started")
        if sums is None:
            text = f"'the output of {self.rows.name} differs from what was started' AS text"
            noted = chains.selectExpr("tag", text, *_NO_IDS)
        else:
            noted = self._noted(chains.join(sums.drop("started"), "tag", "left"))
        count = self.started.number
        return Differs(self._error(difference), notes(self.rows, noted, count, difference.sentence))

    def _noted(self, sums: DataFrame) -> DataFrame:
        text = F.expr(_DIFFERS.format(self.rows.name))
        return sums.select(
            "tag", text.alias("text"), F.col("missing").alias("missing_count"), "ids"
        )

    def _error(
        self,
        difference: Difference,
        finished: Finished | None = None,
        differing: DataFrame | None = None,
    ) -> OutputDiffersError:
        """Make the error. Pass the chains that this call finishes, and those that differ."""
        acked = 0 if finished is None else finished.number
        if self.earlier is not None:
            tags = (
                self.earlier
                if finished is None
                else self.earlier.union(finished.chains.select("tag"))
            )
            acked = tags.distinct().count()
            if differing is not None:
                differing = differing.join(self.earlier, "tag", "left_anti")
        examples = () if differing is None else _examples(differing)
        numbers = acked, self.started.number
        return error_of(self.rows, self.evidence, difference, self.source, numbers, examples)

    def _read(self, source: DataFrame) -> DataFrame | None:
        """Fold the started chains of a source, or return None if it lacks the chain columns."""
        if not has_columns(source, self.rows.chain):
            return None
        known = self.started.chains.select("tag")
        try:
            with plain_errors():
                read = self.keep(fold_input(self.rows, source).join(known, "tag", "left_semi"))
                read.count()
        except XorAckError:
            raise
        except Exception:  # noqa: BLE001 - if a file is corrupt, `find` says so
            return None
        return read


def _examples(differing: DataFrame) -> list[str]:
    """Return examples of chains that differ, with their numbers of units."""
    with plain_errors():
        first = differing.orderBy(F.expr("started = 0"), "tag").limit(_MAX_EXAMPLES).collect()
    return [f"{row['tag']} ({row['found']:,} of {row['started']:,})" for row in first]
