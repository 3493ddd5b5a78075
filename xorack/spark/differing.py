"""An output that differs: the chains that finish nevertheless, and notes for the other chains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

from xorack.core.errors import XorAckError, printable
from xorack.core.text import verb
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
from xorack.spark.notes import IS_SINGLE, Notes, by_tag, notes
from xorack.spark.outcome import Agrees, Differs, Finished, Lost, Outcome
from xorack.spark.starting import fold_input
from xorack.spark.units import has_columns, hex_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from xorack.errors import OutputDiffersError
    from xorack.spark.evidence import Evidence, Output
    from xorack.spark.missing.comparing import Keep
    from xorack.spark.run import RowNames

_MAX_EXAMPLES = 5
_WORDS = "if({0} = 1, 'unit', 'units'), if(1 IN ({0}, {1}), 'is', 'are')"
"""In SQL, the noun for all units of a chain, and the verb for a part of them."""
_LACKS = "'%,d of %,d %s of {0} %s not in "
_UNREAD = f"""
    CASE WHEN verdict <> 'agree' THEN format_string(
        {_LACKS}what the job read', missing_count, started,
        {_WORDS.format("started", "missing_count")})
    WHEN NOT agrees THEN
        'all units of {{0}} are in the output, which is not published: other chains lack units'
    END"""
_DIFFERS = f"""
    CASE WHEN missing IS NULL THEN
        if(agrees, NULL, 'no unit of this chain differs, but the output does')
    WHEN missing > 0 AND surplus > 0 THEN format_string(
        {_LACKS}the output, and %,d too many', missing, count,
        {_WORDS.format("count", "missing")}, surplus)
    WHEN surplus > 0 THEN format_string('%,d %s in the output', surplus,
        if(surplus = 1, 'unit of {{0}} too many is', 'units of {{0}} too many are'))
    ELSE format_string({_LACKS}the output%s', missing, count,
        {_WORDS.format("count", "missing")}, if(agrees, '; up to {{1}} tolerated', '')) END"""
_BY_CHAIN = f"""
    if(agrees, NULL, format_string('%,d of %,d %s of {{0}} %s in this chain of the output%s',
        found, started, {_WORDS.format("started", "found")},
        if(found = started, ', but different units', '')))"""
_ENDS = "tag", "started_xor AS xor", "started AS count", "agrees", "found"
"""Columns of the result of `compare_chains`. A chain ends if `agrees`; otherwise its
note gets the ``text``."""
_NUMBERS = "count_if(agrees)", "sum(if(agrees, count, 0L))", "count_if(text IS NOT NULL)"
"""The numbers of the chains that end, of their units, and of the chains that get a ``text``."""
_NO_IDS = "bigint(NULL) AS missing_count", "CAST(NULL AS array<string>) AS ids"


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
        has_more_earlier: Whether an earlier call died, which may have finished other chains.
        advances: Whether the call is `advance`, which sends nothing if an output differs.
        hint: A sentence about another problem of the output.
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
    has_more_earlier: bool = False
    advances: bool = False
    hint: str = ""

    def find(self, source: DataFrame, *, is_started: bool = False) -> Difference:
        """Find the difference between the output and a source that has the started rows.

        If the files do not show that the source has the started rows, its chains are compared with
        the chains of the record.
        """
        # If the chain columns are among the unit columns, equal units are in equal chains.
        is_apart = is_started or {*self.rows.chain} <= {*self.rows.unit}
        if not is_apart and (chains := self._changed_chains(source)):
            return self.unknown(f"the source is not what was started: {chains}")
        sides = self.rows, self.evidence, self.totals, source, self.frames, self.keep
        difference = find_difference(Comparison(*sides), self.hint)
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
            changed = compared.where("verdict <> 'agree' AND started > 0")
            examples = _examples(changed.selectExpr(*_ENDS[:3], "found"))
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
        unexpected = "count_if(verdict IN ('surplus', 'unknown', 'other'))"
        missing, others = sums_of(compared, "sum(greatest(missing_count, 0L))", unexpected)
        if others:  # the job read rows that were not started
            return None
        if not missing:
            return Agrees(self.started)
        judged = compared.withColumns(
            {"agrees": F.expr(f"verdict = 'agree' AND NOT {self.publish}")}
        ).withColumns(
            {
                "text": F.expr(_UNREAD.format(self.rows.name)),
                "ids": F.when(F.expr(IS_SINGLE), F.array(hex_of("xor"))),
            }
        )
        judged = judged.selectExpr(*_ENDS, "text", "missing_count", "ids")
        finished, noted = self._split(judged, sums_of(judged, *_NUMBERS))
        open_chains = self.started.number - self._acked(finished)
        return Lost(finished, missing, open_chains, noted, self.has_more_earlier)

    def by_units(self, difference: Difference) -> Outcome:
        """Finish the chains that miss no unit, or at most the tolerated number of units."""
        facts, rows = difference.missing_rows, difference.findings.differing
        assert facts is not None
        assert rows is not None
        is_exact = self.publish or self.rows.batch_id is not None
        most = 0 if is_exact else self.rows.tracking.tolerated_units
        sums = self.started.chains.join(by_tag(self.rows, rows), "tag", "left")
        fits = f"(missing IS NULL OR surplus = 0 AND missing <= {most})"
        left, left_units, tolerated, noted, *both = sums_of(
            sums := self.keep(sums),
            f"count_if(NOT {fits})",
            f"sum(if({fits}, 0L, count))",
            f"sum(if({fits}, missing, 0L))",
            "count(missing)",
            "sum(missing)",
            "sum(surplus)",
        )
        # The difference includes rows of chains that were not started.
        if both != [facts.missing, facts.surplus]:
            return self.all_open(difference)
        is_split = not left or self._may_finish_some()
        judged = sums.selectExpr("*", f"{is_split} AND {fits} AS agrees").selectExpr(
            *("tag", "xor", "count", "agrees", "count - missing + surplus AS found"),
            f"{_DIFFERS.format(self.rows.name, f'{most:,} {verb(most)}')} AS text",
            "missing AS missing_count",
            "ids",
        )
        number = self.started.number
        numbers = number - left, self.started.units - left_units, noted
        if not left:
            return Agrees(self.started, tolerated, self._split(judged, numbers)[1])
        return self._differs(difference, judged, numbers if is_split else (0, 0, number))

    def by_chain(self, difference: Difference) -> Differs:
        """Finish the chains that have exactly the started units, if the output shows chains."""
        if not self._may_finish_some():
            return self.all_open(difference)
        folded = per_chain(self.rows, self.evidence.outputs)
        compared = self.keep(compare_chains(self.started.chains, folded))
        judged = compared.selectExpr("*", "verdict = 'agree' AS agrees").selectExpr(
            *_ENDS, f"{_BY_CHAIN.format(self.rows.name)} AS text", *_NO_IDS
        )
        return self._differs(difference, judged, sums_of(judged, *_NUMBERS))

    def all_open(self, difference: Difference) -> Differs:
        """Finish no chain, because the differing chains are unknown."""
        text = f"'the output of {self.rows.name} differs from what was started' AS text"
        columns = "tag", "xor", "count", "false AS agrees", "bigint(NULL) AS found"
        judged = self.started.chains.selectExpr(*columns, text, *_NO_IDS)
        return self._differs(difference, judged, (0, 0, self.started.number))

    def _may_finish_some(self) -> bool:
        is_whole = self.publish or self.advances or self.rows.batch_id is not None
        return not is_whole and tells_chains(self.rows, self.evidence.outputs)

    def _differs(
        self, difference: Difference, judged: DataFrame, numbers: Sequence[int]
    ) -> Differs:
        finished, noted = self._split(judged, numbers, difference.sentence)
        error = self._error(difference, finished, judged.where("NOT agrees"))
        return Differs(error, noted, finished)

    def _split(
        self, judged: DataFrame, numbers: Sequence[int], sentence: str = ""
    ) -> tuple[Finished, Notes]:
        """Split chains into those that finish and those that get a note; see `_ENDS`."""
        number, units, noted = numbers
        texts = judged.where("text IS NOT NULL AND count > 0")
        chains = judged.where("agrees").select("tag", "xor", "count")
        return Finished(chains, number, units), notes(self.rows, texts, noted, sentence)

    def _error(
        self, difference: Difference, finished: Finished, differing: DataFrame
    ) -> OutputDiffersError:
        """Make the error. Pass the chains that this call finishes, and those that differ."""
        if self.earlier is not None:
            differing = differing.join(self.earlier, "tag", "left_anti")
        examples = _examples(differing) if finished.number else ()
        acked = None if self.advances else self._acked(finished)
        numbers = acked, self.started.number, self.has_more_earlier
        return error_of(self.rows, self.evidence, difference, self.source, numbers, examples)

    def _acked(self, finished: Finished) -> int:
        """Return how many chains this call or an earlier call finishes."""
        if self.earlier is None:
            return finished.number
        return self.earlier.union(finished.chains.select("tag")).distinct().count()

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
    """Return examples of started chains that differ, with their numbers of units; see `_ENDS`."""
    with plain_errors():
        first = differing.where("count > 0").orderBy("tag").limit(_MAX_EXAMPLES).collect()
    return [f"{printable(row['tag'])} ({row['found']:,} of {row['count']:,})" for row in first]
