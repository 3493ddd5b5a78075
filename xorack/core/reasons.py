"""Why rows are missing or chains failed: the conditions that distinguish them from other rows.

`find_reasons` returns conditions as values, each with the numbers of missing and of other rows that
meet it. `Reasons.sentence` puts them into words.

Rows of one product or order are not independent: if chance affects several products, it affects all
of their rows. So a condition has to stand out among the values of its own column. If all rows of a
value are missing, it also has to stand out among the values of that column.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from types import MappingProxyType
from typing import Any, NamedTuple

from xorack.core.conditions import (
    AnyOf,
    Both,
    Condition,
    Range,
    Row,
    Values,
    comparable_value,
    is_nan,
)
from xorack.core.text import plural

__all__ = ["CHARACTERS", "Finding", "Reasons", "find_reasons"]

_CHANCE = 0.01
"""The largest accepted probability that chance alone turns any tried condition into a finding."""
_NEARLY = 0.95
_MAX_LISTED = 5
"""The most values of a column that a condition lists."""
_MAX_OTHERS = 0.5
"""The largest share of the other rows that may meet a condition which all missing rows meet."""
_MIN_SHARE = 0.3
"""The least share of the missing rows that meet a reported condition which no other row meets."""
_FEW_ROWS = 3
"""The least missing rows for each value that show that values are missing, and not single rows."""
_MAX_FINDINGS = 10
CHARACTERS = 300
"""The characters of a text that are compared. The caller cuts texts, so that samples are small."""


@dataclass(frozen=True)
class Finding:
    """A condition that stands out, and how many of the compared rows meet it."""

    condition: Condition
    missing: int
    others: int


@dataclass(frozen=True)
class Reasons:
    """The conditions that distinguish missing rows from other rows, the best condition first.

    Attributes:
        missing: The number of all missing rows.
        others: The number of all other rows.
        compared: The numbers of missing and of other rows that were compared: all, or samples.
        word: A name for a missing row, as in ``failed chain``.
    """

    missing: int
    others: int
    compared: tuple[int, int]
    findings: tuple[Finding, ...] = ()
    word: str = "missing row"

    @property
    def is_exact(self) -> bool:
        """Return whether the counts cover all rows, not only samples."""
        return self.compared == (self.missing, self.others)

    def with_counts(self, counts: Sequence[tuple[int, int]]) -> Reasons:
        """Return the findings with the counts of all missing rows and of all other rows."""
        findings = tuple(
            replace(finding, missing=missing, others=others)
            for finding, (missing, others) in zip(self.findings, counts, strict=False)
        )
        return replace(self, compared=(self.missing, self.others), findings=findings)

    def counted_in(self, missing: Iterable[Row], others: Iterable[Row]) -> Reasons:
        """Count the conditions in all rows, and return the findings with the counts."""
        conditions = [finding.condition for finding in self.findings]
        counts = [Counter[int](), Counter[int]()]
        for count, rows in zip(counts, (missing, others), strict=True):
            for row in rows:
                count.update(n for n, condition in enumerate(conditions) if condition.holds(row))
        return self.with_counts([(counts[0][n], counts[1][n]) for n in range(len(conditions))])

    @property
    def sentence(self) -> str:
        """The best finding with its counts, or a statement that there is none.

        The sentence is empty if no rows are missing.
        """
        state, _, noun = self.word.partition(" ")
        if not self.missing:
            return ""
        if not self.others:
            one, all_ = ("has", "have") if state == "failed" else ("is", "are")
            if self.missing == 1:
                return f"the only {noun} {one} {state}"
            return f"all {plural(self.missing, noun)} {all_} {state}"
        if not all(self.compared):
            return f"the {plural(self.missing, self.word)} could not be compared with others"
        if self.findings:
            return self.describe(self.findings[0])
        rows = plural(self.missing, self.word)
        return f"no column clearly distinguishes the {rows} from the others"

    def describe(self, finding: Finding) -> str:
        """Describe a finding: ``status = 'late': 412 of 412 missing rows, 3 of 9,588 others``."""
        missing, others = self.compared
        text = f"{finding.condition}: {finding.missing:,} of {plural(missing, self.word)}, "
        text += f"{finding.others:,} of {others:,} others"
        if self.is_exact:
            return text
        return f"{text} compared (of {self.missing:,} and {self.others:,})"

    def __str__(self) -> str:
        """Return the sentence, and a line for each further finding."""
        return "\n".join([self.sentence, *map(self.describe, self.findings[1:])])


def find_reasons(
    missing: Sequence[Row],
    others: Sequence[Row],
    count: int,
    total: int,
    word: str = "missing row",
    handicaps: Mapping[str, float] = MappingProxyType({}),
    ranges: Collection[str] = (),
) -> Reasons:
    """Find the conditions that distinguish missing rows from other rows.

    A condition is found if nearly all missing rows and at most half of the other rows meet it. It
    is also found if only missing rows meet it. The probability of such counts by chance has to be
    at most 1 %.

    Args:
        missing: All missing rows, or a sample of them.
        others: All other rows, or a sample of them.
        count: The number of all missing rows.
        total: The number of all rows.
        word: A name for a missing row.
        handicaps: The handicaps of columns that do not describe a row, such as its file. If two
            conditions are equally good, the condition with the lower handicap comes first. A
            condition on two values has a handicap of 3.
        ranges: Columns, such as times, for which conditions are always ranges.
    """
    reasons = Reasons(count, max(0, total - count), (len(missing), len(others)), (), word)
    if not missing or not others or count >= total:
        return reasons
    candidates = _Samples(missing, others, count, total, handicaps, ranges).candidates()
    findings = (Finding(c.condition, sum(c.met[0]), sum(c.met[1])) for c in candidates)
    return replace(reasons, findings=tuple(findings))


class _Test(NamedTuple):
    """A condition on one column, with the figures that decide whether it stands out."""

    condition: Values | Range | AnyOf
    log_alternatives: float
    """The logarithm of the number of similar conditions."""
    complexity: float


@dataclass(frozen=True)
class _Candidate:
    """A condition that separates the samples; see `_Samples.candidates`."""

    condition: Condition
    met: tuple[list[bool], list[bool]]
    share: float
    """The share of the missing rows that meet it."""
    is_only: bool
    """Whether all rows that meet it are missing. In a sample, about all is enough."""
    log_alternatives: float
    complexity: float

    @property
    def gain(self) -> float:
        return self.share - sum(self.met[1]) / len(self.met[1])

    @property
    def is_common(self) -> bool:
        return self.share >= _NEARLY


@dataclass(frozen=True)
class _Samples:
    """Missing rows and other rows, or samples of both; see `find_reasons`."""

    missing: Sequence[Row]
    others: Sequence[Row]
    count: int
    total: int
    handicaps: Mapping[str, float]
    ranges: Collection[str]

    def candidates(self, without: str | None = None) -> list[_Candidate]:
        """Return the conditions that stand out, the best first, on all columns except `without`."""
        names = dict.fromkeys(name for row in self.missing for name in row if name != without)
        columns = {
            name: [
                [comparable_value(row.get(name)) for row in rows]
                for rows in (self.missing, self.others)
            ]
            for name in names
        }
        strong = [
            candidate
            for name, values in columns.items()
            for test in self._tests(name, *map(Counter, values))
            if (candidate := self._candidate(test)) is not None
        ]
        common = [c for c in strong if not self._is_strict(c) and c.is_common]
        best = [c for c in strong if self._stands_out(c, common, columns)]
        best.sort(key=lambda c: (-(c.is_only and c.is_common), -round(c.gain, 2), c.complexity))
        if without is None and best and not best[0].is_only and best[0].is_common:
            best[:0] = self._with_second(best[0])
        return best[:_MAX_FINDINGS]

    def _with_second(self, first: _Candidate) -> list[_Candidate]:
        """Return a second condition on the rows that meet the first, if both explain all rows."""
        sides = zip((self.missing, self.others), first.met, strict=True)
        meeting, failing = (
            [row for row, met in zip(rows, mets, strict=True) if met] for rows, mets in sides
        )
        count = max(1, round(self.count * first.share))
        share = len(failing) / len(self.others)
        total = max(count + 1, round(count + share * (self.total - count)))
        inner = _Samples(meeting, failing, count, total, self.handicaps, self.ranges)
        return [
            replace(second, condition=Both(first.condition, second.condition))
            for second in (inner.candidates(first.condition.column)[:1] if failing else ())
            if second.is_only and second.is_common
        ]

    def _tests(self, name: str, own: Counter[Any], other: Counter[Any]) -> Iterator[_Test]:
        """Yield conditions on the values of a column that missing rows meet."""
        handicap, every = self.handicaps.get(name, 0.0), own.keys() | other.keys()
        if len(own) > 1 and all(map(_is_ordered, own)):
            yield from self._range(name, own, every, handicap)
        if name in self.ranges:
            return
        size, rows = len(self.missing), len(self.others)
        often = [v for v, n in own.most_common() if n > 1 and n / size > 3 * other[v] / rows]
        for number in sorted({1, min(len(often), _MAX_LISTED)} if often else ()):
            listed = sorted(often[:number], key=lambda v: (v is None, str(type(v)), v))
            complexity = number + (number > 1) + handicap
            choices = _log_choices(len(every), number)
            yield _Test(Values(name, tuple(listed)), choices, complexity)
        is_pure = not own.keys() & other.keys()
        if is_pure and len(own) > _MAX_LISTED and size >= _FEW_ROWS * len(own):
            condition = AnyOf(name, frozenset(own), len(every))
            yield _Test(condition, _log_choices(len(every), len(own)), 20 + handicap)

    def _range(
        self, name: str, own: Collection[Any], every: Collection[Any], handicap: float
    ) -> Iterator[_Test]:
        """Yield the range from the least to the greatest value among missing rows."""
        ends = [value for value in every if _is_ordered(value)]
        low, high = min(own), max(own)
        first, last = low == min(ends), high == max(ends)
        if sides := 2 - first - last:
            condition = Range(name, None if first else low, None if last and not first else high)
            yield _Test(condition, math.log(len(ends)) * sides, 1 + sides + handicap)

    def _candidate(self, test: _Test) -> _Candidate | None:
        """Return a candidate if the condition of a test separates the samples well enough."""
        condition = test.condition
        met = [*map(condition.holds, self.missing)], [*map(condition.holds, self.others)]
        share, other = (sum(flags) / len(flags) for flags in met)
        times = share * self.count
        is_only = times >= 0.99 * (times + other * (self.total - self.count))
        is_strong = other <= _MAX_OTHERS if share >= _NEARLY else is_only and share >= _MIN_SHARE
        if not is_strong:
            return None
        return _Candidate(condition, met, share, is_only, test.log_alternatives, test.complexity)

    def _is_strict(self, candidate: _Candidate) -> bool:
        condition = candidate.condition
        return isinstance(condition, Range) or condition.column in self.handicaps

    def _stands_out(
        self,
        candidate: _Candidate,
        common: Sequence[_Candidate],
        columns: Mapping[str, Sequence[list[Any]]],
    ) -> bool:
        """Return whether a condition is not due to chance, neither by rows nor by column values.

        `common` has the conditions that nearly all missing rows meet and that list values of a
        column. `columns` maps each column to its values in missing rows and in other rows.
        """
        column = candidate.condition.column

        def explains_more(other: _Candidate) -> bool:
            # A range or a file is dropped if values of another column explain as much.
            slack = (0.01 if other.is_only else 0.001) if self._is_strict(candidate) else -0.001
            return other.condition.column != column and other.gain > candidate.gain - slack

        names = {other.condition.column for other in common if explains_more(other)}
        met = candidate.met
        tables = [(sum(met[0]), len(met[0]), sum(met[1]), len(met[1]))]
        tables += [_by_values(columns[name], met) for name in names]
        if isinstance(candidate.condition, Range):
            tables.append(_by_values(columns[column], met))
        tried = math.log(len(columns)) + candidate.log_alternatives
        return all(tried + _log_chance(*table) < math.log(_CHANCE) for table in tables)


def _by_values(
    columns: Sequence[list[Any]], met: Sequence[list[bool]]
) -> tuple[int, int, int, int]:
    """Count values instead of rows: values of missing rows, and values of other rows alone."""
    own, other = dict[Hashable, bool](), dict[Hashable, bool]()
    for flags, values, mets in zip((own, other), columns, met, strict=True):
        for value, is_met in zip(values, mets, strict=True):
            flags[value] = flags.get(value, False) or is_met
    others_only = [is_met for value, is_met in other.items() if value not in own]
    return sum(own.values()), len(own), sum(others_only), len(others_only)


def _log_chance(met: int, missing: int, others_met: int, others: int) -> float:
    """Return the logarithm of the probability that so many rows meet a condition by chance.

    Source: Fisher's exact test, "Statistical methods for research workers" (5th edition, 1934).
    """
    all_met, missing_unmet = met + others_met, missing - met
    point = _log_choices(all_met, met)
    point += _log_choices(others + missing - all_met, missing_unmet)
    point -= _log_choices(others + missing, missing)
    # Each term of the sum is at most this share of the term before it.
    ratio = others_met * missing_unmet / ((met + 1) * (others - others_met + 1))
    return point - math.log1p(-ratio) if ratio < 1 else 0.0


def _log_choices(total: int, chosen: int) -> float:
    return math.lgamma(total + 1) - math.lgamma(chosen + 1) - math.lgamma(total - chosen + 1)


def _is_ordered(value: Any) -> bool:
    is_number = isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)
    return isinstance(value, date) or (is_number and not is_nan(value))
