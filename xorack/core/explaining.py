"""Why some rows are missing, or some chains failed: what they have in common, and others do not.

Sources: Abuzaid and others, "DIFF: a relational interface for large-scale data explanation" (VLDB
2018), and Wu and Madden, "Scorpion: explaining away outliers in aggregate queries" (VLDB 2013). The
rows compared are in memory.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from itertools import combinations
from operator import and_
from typing import Any, NamedTuple

_MOST_VALUES = 20
"""Values of a column that are looked at: the most frequent ones among the missing rows."""
_MOST_PAIRED = 12
"""Conditions that are paired with each other: the best ones."""
_CHANCE = 0.01
"""Most probability with which chance alone makes a finding, over all that were looked at."""
_MOST_CHARACTERS = 100
_GAIN = 1.1
"""How much more evidence two conditions must have than one."""

Row = Mapping[str, Any]
Term = tuple[str, Any, Any]
"""A column, and the least and greatest value that meets a condition; None and None for a null."""


@dataclass(frozen=True)
class Finding:
    """A condition that stands out among the missing rows.

    Attributes:
        what: The condition, such as ``l_linenumber = 7``.
        missing: Share of the missing rows that meet it, 0 to 1.
        all: Share of all rows that meet it.
        lift: The first share by the second.
        terms: What a row must meet, all of it.
    """

    what: str
    missing: float
    all: float
    lift: float
    terms: tuple[Term, ...] = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        shares = {"share": self.missing, "share_of_all": self.all, "lift": self.lift}
        return {"what": self.what, **shares}

    def of(self, rows: Iterable[Row]) -> list[bool]:
        """Tell which rows meet the condition."""
        tests = [(name, _test(low, high)) for name, low, high in self.terms]
        return [all(test(_known(row.get(name))) for name, test in tests) for row in rows]

    @property
    def nats(self) -> float:
        """The evidence that a missing row gives for the condition: relative entropy, in nats."""
        if self.missing <= self.all:
            return 0.0
        return _entropy(self.missing, self.all)


@dataclass(frozen=True)
class Explanation:
    """Why rows are missing: the best finding in words, and all of them, the best first."""

    sentence: str
    findings: tuple[Finding, ...]

    def __str__(self) -> str:
        """Return the sentence and a table of the findings."""
        lines = [f"{f.missing:>8.1%}  {f.all:>6.1%}  {f.what}" for f in self.findings]
        head = [" missing     all  condition"] if lines else []
        return "\n".join([self.sentence, *head, *lines])


def explain(
    missing: Sequence[Row], rows: Sequence[Row], count: int, total: int, word: str = "missing row"
) -> Explanation:
    """Find the conditions that tell missing rows from all rows.

    Args:
        missing: The missing rows, or a sample of them: their values by column. A column that a
            row lacks is null.
        rows: All rows, or a sample of them, the missing ones among them.
        count: How many rows are missing.
        total: How many rows there are in all.
        word: What these rows are, for the sentence: an adjective and a noun.

    Returns:
        What chance alone explains with a probability of at most 1 %.
    """
    if not count:
        return Explanation("", ())
    if not missing or not rows:
        return Explanation(f"None of the {count:,} {word}s could be named to be compared", ())
    columns = dict.fromkeys(name for row in missing for name in row)
    counted = [(name, _counter(name, missing), _counter(name, rows)) for name in columns]
    is_whole = len(missing) == count and len(rows) == total
    tried = sum(
        bool(_ordered(own)) + sum(n > 1 for n in (other if is_whole else own + other).values())
        for _, own, other in counted
    )  # a range, and the values that can be frequent
    compared = _Compared(missing, rows, count / max(total, count), is_whole, tried)
    ranked = _ranked(
        finding
        for name, own, other in counted
        for what, *ends in _conditions(name, own, other)
        if (finding := compared.single(name, what, ends, own, other)) is not None
    )
    paired = [(one, one.of(missing), one.of(rows)) for one in ranked[:_MOST_PAIRED]]
    pairs = (
        compared.both(one, other)
        for one, other in combinations(paired, 2)
        if one[0].terms[0][0] != other[0].terms[0][0]
    )
    best = ranked[0].nats if ranked else 0.0
    better = [pair for pair in pairs if pair is not None and pair.nats > best * _GAIN]
    findings = tuple(_ranked([*ranked, *better])[:_MOST_VALUES])
    return Explanation(sentence_of(findings, len(missing), count, total, word), findings)


def _ranked(findings: Iterable[Finding]) -> list[Finding]:
    """Sort findings by their evidence; of equals, a single value comes before a range."""
    return sorted(
        findings, key=lambda one: (-round(one.nats, 9), len(one.terms), " = " not in one.what)
    )


_Met = tuple[Finding, list[bool], list[bool]]
"""A finding, and which of the missing rows and of all rows meet it."""


class _Compared(NamedTuple):
    """Missing rows and all rows; the share of all rows that is missing.

    If not whole, they are samples. ``tried`` is the number of conditions on one column.
    """

    missing: Sequence[Row]
    rows: Sequence[Row]
    share: float
    is_whole: bool
    tried: int

    def single(
        self, name: str, what: str, ends: Sequence[Any], own: Counter[Any], other: Counter[Any]
    ) -> Finding | None:
        """Return the finding of a condition on one column; None if chance explains it."""
        times = _count(own, *ends), _count(other, *ends)
        term = (name, *ends)
        if not self._stands_out(times, (len(self.missing), len(self.rows)), term):
            return None
        return self._finding((term,), what, *times)

    def both(self, one: _Met, other: _Met) -> Finding | None:
        """Return the finding of two conditions together; None if one of them tells as much."""
        times = [sum(map(and_, *some)) for some in zip(one[1:], other[1:], strict=True)]
        for met, adds in ((one, other), (other, one)):
            if not self._stands_out(times, (sum(met[1]), sum(met[2])), adds[0].terms[0]):
                return None
        terms, what = one[0].terms + other[0].terms, f"{one[0].what} and {other[0].what}"
        return self._finding(terms, what, *times)

    def _finding(
        self, terms: tuple[Term, ...], what: str, missing_times: int, times: int
    ) -> Finding:
        share, sampled = missing_times / len(self.missing), len(self.rows)
        # A sample may have none of these rows, though they are among all.
        of_all = min(max(times / sampled, share * self.share, 0.5 / sampled), 1.0)
        return Finding(what, share, of_all, share / of_all, terms)

    def _stands_out(self, times: Sequence[int], of: Sequence[int], term: Term) -> bool:
        """Tell if chance does not explain how many of some missing rows meet a term.

        ``times`` are the missing rows and the rows that do, among ``of`` of them.
        """
        (met, others_met), (missing, others) = times, of
        # What only some meet must stand out among all: what others have is no reason.
        if self.is_whole and met == missing:
            others_met, others = others_met - met, others - missing
        # The ends of a range are those of the missing rows: others may be in as many places.
        ways = 1 if term[1] is term[2] else 1 + others - others_met
        return self.tried * ways * _chance(met, missing, others_met, others) < _CHANCE


def _chance(met: int, missing: int, others_met: int, others: int) -> float:
    """Return the probability that so many rows of a random choice meet a condition, or more.

    Source: Fisher's exact test, "Statistical methods for research workers" (5th edition, 1934).
    """
    in_all, rest = met + others_met, missing - met
    point = _log_choices(in_all, met) + _log_choices(others + missing - in_all, rest)
    point -= _log_choices(others + missing, missing)
    # Each next term of the sum is at most this share of the one before.
    ratio = others_met * rest / ((met + 1) * (others - others_met + 1))
    return math.exp(point) / (1 - ratio) if ratio < 1 else 1.0


def _log_choices(of: int, some: int) -> float:
    return math.lgamma(of + 1) - math.lgamma(some + 1) - math.lgamma(of - some + 1)


def _entropy(share: float, of_all: float) -> float:
    parts = ((share, of_all), (1 - share, 1 - of_all))
    return sum(p * math.log(p / max(q, 1e-12)) for p, q in parts if p > 0)


def _counter(name: str, rows: Sequence[Row]) -> Counter[Any]:
    return Counter(_known(row.get(name)) for row in rows)


def _known(value: Any) -> Any:
    """Return one NaN for all: as a key, it equals itself."""
    return math.nan if isinstance(value, (float, Decimal)) and math.isnan(value) else value


def _test(low: Any, high: Any) -> Callable[[Any], bool]:
    if low is high:
        return lambda value: value is low or value == low
    return lambda value: value is not None and bool(low <= value <= high)


def _count(values: Counter[Any], low: Any, high: Any) -> int:
    if low is high:
        return values[low]
    test = _test(low, high)
    return sum(times for value, times in values.items() if test(value))


def _conditions(
    name: str, own: Counter[Any], other: Counter[Any]
) -> Iterator[tuple[str, Any, Any]]:
    """Yield conditions on the values of a column that missing rows meet, in words and as a term."""
    for value, times in own.most_common(_MOST_VALUES):
        if times > 1:
            yield f"{name} is null" if value is None else f"{name} = {_text(value)}", value, value
    known = _ordered(own)
    if len(known) < 2:
        return
    low, high, everything = min(known), max(known), known + _ordered(other)
    first, last = low == min(everything), high == max(everything)
    if not first or not last:
        what = f"from {_text(low)} to {_text(high)}"
        what = f"<= {_text(high)}" if first else f">= {_text(low)}" if last else what
        yield f"{name} {what}", low, high


def _ordered(values: Iterable[Any]) -> list[Any]:
    """Return the values, without null and NaN, if ranges of them are of use: numbers and times."""
    known = [value for value in values if value not in (None, math.nan)]
    return known if known and isinstance(known[0], (int, float, Decimal, date)) else []


def _text(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat(" ")
    if not isinstance(value, (str, bytes)):
        return str(value)
    return repr(value[:_MOST_CHARACTERS]) + ("..." if len(value) > _MOST_CHARACTERS else "")


def sentence_of(
    findings: Sequence[Finding], looked: int, count: int, total: int, word: str = "missing row"
) -> str:
    """Say in words what the best finding is; see `explain`."""
    state, _, noun = word.partition(" ")
    rows = f"{looked:,} {word}{'' if looked == 1 else 's'}"
    if looked < count:
        rows = f"{looked:,} that were looked at of {count:,} {word}s"
    if count >= total:
        return f"All {count:,} {noun}s are {state}"
    if not findings:
        return f"Nothing tells the {rows} from the others"
    best = findings[0]
    have = "has" if rows.endswith(noun) else "have"
    who = "The" if have == "has" else "All"
    if best.missing < 1:
        who = f"{_percent(best.missing)} of the"
    rest = f"{_percent(best.all)} of all {noun}s"
    # The sample may miss it by a little.
    if best.missing * count >= 0.99 * best.all * total:
        rest += f", all of which {'' if state == 'failed' else 'are '}{state}"
    return f"{who} {rows} {have} {best.what} ({rest})"


def _percent(share: float) -> str:
    return f"{share * 100:.{1 if share > 0.001 else 3}f}".rstrip("0").rstrip(".") + " %"
