"""Why some rows are missing, or some chains failed: what they have in common, and others do not.

Rows of one product or order are not independent: what chance does to a few of these, it does to all
their rows. So a condition has to stand out among the values of its own column, and among those of
each column of which entire values went missing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from xorack.ops.text import plural

_CHANCE = 0.01
"""Most probability with which chance alone makes a finding, over all that were tried."""
_NEARLY = 0.95
_MAX_LISTED = 5
"""Values of a column that a condition lists."""
_MAX_OTHERS = 0.5
"""Share of the other rows that may meet what all missing rows meet."""
_MIN_SHARE = 0.3
"""Least share of the missing rows that meet a reported condition which no other row meets."""
_FEW_ROWS = 3
"""Missing rows a value, so that entire values went missing, and not rows."""
_MAX_FINDINGS = 10
_MAX_CHARACTERS = 100
CHARACTERS = 300
"""Characters of a text that are compared; the caller cuts it, so that samples are small."""

Row = Mapping[str, Any]
_Test = tuple[str, Callable[[Any], bool], float, float, bool]
"""A condition in words, and its test; the logarithm of how many like it there are; how complex it
is; whether it is a range."""


@dataclass(frozen=True)
class Finding:
    """A condition, such as ``l_linenumber = 7``, that stands out among the missing rows.

    `missing` and `all` are the shares of the missing rows and of all rows that meet it, 0 to 1;
    `only` says that all that meet it are missing; a sample may miss it by a little.
    """

    what: str
    missing: float
    all: float
    only: bool
    name: str = field(repr=False)
    met: tuple[list[bool], list[bool]] = field(repr=False)
    ways: float = field(repr=False)
    complexity: float = field(repr=False)
    is_range: bool = field(repr=False)

    @property
    def gain(self) -> float:
        return self.missing - sum(self.met[1]) / len(self.met[1])

    @property
    def lift(self) -> float:
        return self.missing / self.all

    @property
    def is_common(self) -> bool:
        return self.missing >= _NEARLY

    def to_dict(self) -> dict[str, Any]:
        shares = {"share": self.missing, "share_of_all": self.all, "lift": self.lift}
        return {"what": self.what, **shares}


@dataclass(frozen=True)
class Explanation:
    """Why rows are missing: the best finding in words, and all of them, the best first."""

    sentence: str
    findings: tuple[Finding, ...] = ()

    def __str__(self) -> str:
        """Return the sentence and a table of the findings."""
        lines = [f"{f.missing:>8.1%}  {f.all:>6.1%}  {f.what}" for f in self.findings]
        head = [" missing     all  condition"] if lines else []
        return "\n".join([self.sentence, *head, *lines])


def explain(
    missing: Sequence[Row],
    others: Sequence[Row],
    count: int,
    total: int,
    word: str = "missing row",
    late: Mapping[str, float] = MappingProxyType({}),
    ranges: Collection[str] = (),
) -> Explanation:
    """Find the conditions that tell missing rows, `count` of `total`, from others, by samples.

    They are those that nearly all missing rows meet and at most half of the others, and those that
    none but missing rows meet; none that chance explains with more than 1 %. Columns of `late` are
    no properties of a row, such as its file: each has a handicap (of equally good reasons, one with
    two values has 3). Of the columns `ranges`, such as a time, only ranges are reasons.
    """
    state, _, noun = word.partition(" ")
    if not count:
        return Explanation("")
    if count >= total:
        verb = "have" if state == "failed" else "are"
        return Explanation(f"All {count:,} {noun}s {verb} {state}")
    rows = plural(count, word)
    if not missing or not others:
        return Explanation(f"Nothing is known of the {rows}")
    found = _Samples(missing, others, count, total, late, ranges).findings()
    if not found:
        return Explanation(f"Nothing tells the {rows} from the others")
    best, compared = found[0], len(missing)
    who = f"Every {word} has" if noun == "row" else f"All {rows} have"
    if compared < count:
        who = f"Every {word} of {compared:,} compared has"
    elif count == 1:
        who = f"The {word} has"
    if best.missing < 1:
        who = f"{_percent(best.missing)} of the {rows} have"
    rest = f"{_percent(best.all)} of all {noun}s"
    if best.only:
        nearly = "" if compared + len(others) == total else "nearly "
        rest += f", {nearly}all of which {'' if state == 'failed' else 'are '}{state}"
    return Explanation(f"{who} {best.what} ({rest})", tuple(found))


@dataclass(frozen=True)
class _Samples:
    """Missing rows and others, or samples of both; see `explain`."""

    missing: Sequence[Row]
    others: Sequence[Row]
    count: int
    total: int
    late: Mapping[str, float]
    ranges: Collection[str]

    def findings(self, without: str | None = None) -> list[Finding]:
        """Return what stands out, the best first; of all columns, or all but one."""
        names = dict.fromkeys(name for row in self.missing for name in row if name != without)
        columns = {
            name: [[_known(row.get(name)) for row in rows] for rows in (self.missing, self.others)]
            for name in names
        }
        strong = [
            finding
            for name, values in columns.items()
            for test in self._tests(name, *map(Counter, values))
            if (finding := self._finding(name, test, values)) is not None
        ]
        common = [f for f in strong if not self._is_strict(f) and f.is_common]
        found = [one for one in strong if self._stands_out(one, common, columns)]
        found.sort(key=lambda f: (-(f.only and f.is_common), -round(f.gain, 2), f.complexity))
        if without is None and found and not found[0].only and found[0].is_common:
            found[:0] = self._with_second(found[0])
        return found[:_MAX_FINDINGS]

    def _with_second(self, first: Finding) -> list[Finding]:
        """Return what a second condition tells of the rows that meet a first one, if all."""
        sides = zip((self.missing, self.others), first.met, strict=True)
        some, rest = ([r for r, met in zip(rows, mets, strict=True) if met] for rows, mets in sides)
        count = max(1, round(self.count * first.missing))
        total = max(count + 1, round(self.total * first.all))
        inner = _Samples(some, rest, count, total, self.late, self.ranges)
        return [
            replace(
                one,
                what=f"{first.what} and {one.what}",
                missing=one.missing * first.missing,
                all=one.all * total / self.total,
            )
            for one in (inner.findings(first.name)[:1] if rest else ())
            if one.only and one.is_common
        ]

    def _tests(self, name: str, own: Counter[Any], other: Counter[Any]) -> Iterator[_Test]:
        """Yield conditions on the values of a column that missing rows meet."""
        late, every = self.late.get(name, 0.0), own.keys() | other.keys()
        if len(own) > 1 and all(map(_is_ordered, own)):
            ends = [value for value in every if _is_ordered(value)]
            low, high = min(own), max(own)
            first, last = low == min(ends), high == max(ends)
            what = f"from {_text(low)} to {_text(high)}"
            what = f"<= {_text(high)}" if first else f">= {_text(low)}" if last else what
            if sides := 2 - first - last:
                inside = {value for value in ends if low <= value <= high}
                ways = math.log(len(ends)) * sides
                yield f"{name} {what}", inside.__contains__, ways, 1 + sides + late, True
        if name in self.ranges:
            return
        size, rows = len(self.missing), len(self.others)
        often = [v for v, n in own.most_common() if n > 1 and n / size > 3 * other[v] / rows]
        for number in sorted({1, min(len(often), _MAX_LISTED)} if often else ()):
            some = sorted(
                often[:number], key=lambda value: (value is None, str(type(value)), value)
            )
            texts = ", ".join(map(_text, some))
            what = f"{name} = {texts}" if number == 1 else f"{name} in ({texts})"
            ways, complexity = _log_choices(len(every), number), number + (number > 1) + late
            yield what, frozenset(some).__contains__, ways, complexity, False
        is_pure = not own.keys() & other.keys()
        if is_pure and len(own) > _MAX_LISTED and size >= _FEW_ROWS * len(own):
            what = f"one of {len(own):,} of {len(every):,} values of {name}"
            yield what, own.__contains__, _log_choices(len(every), len(own)), 20 + late, False

    def _finding(self, name: str, test: _Test, values: Sequence[list[Any]]) -> Finding | None:
        """Return what a test finds, if that is a strong reason."""
        what, is_met, ways, complexity, is_range = test
        met = [*map(is_met, values[0])], [*map(is_met, values[1])]
        share, other = (sum(flags) / len(flags) for flags in met)
        times = share * self.count
        of_all = (times + other * (self.total - self.count)) / self.total
        is_only = times >= 0.99 * of_all * self.total
        is_strong = other <= _MAX_OTHERS if share >= _NEARLY else is_only and share >= _MIN_SHARE
        if not is_strong:
            return None
        return Finding(what, share, of_all, is_only, name, met, ways, complexity, is_range)

    def _is_strict(self, one: Finding) -> bool:
        return one.is_range or one.name in self.late

    def _stands_out(
        self, one: Finding, common: Sequence[Finding], columns: Mapping[str, Sequence[list[Any]]]
    ) -> bool:
        """Tell if chance does not explain a condition, by rows nor by values of columns.

        `common` are the conditions that nearly all missing rows meet, by a few values of a column;
        `columns` the values of missing rows and of others, by column.
        """

        def tells_more(other: Finding) -> bool:
            # A range, or a file, gives way to values of another column that tell as much.
            slack = (0.01 if other.only else 0.001) if self._is_strict(one) else -0.001
            return other.name != one.name and other.gain > one.gain - slack

        names = {other.name for other in common if tells_more(other)}
        tables = [(sum(one.met[0]), len(one.met[0]), sum(one.met[1]), len(one.met[1]))]
        tables += [_by_values(columns[name], one.met) for name in names]
        if one.is_range:
            tables.append(_by_values(columns[one.name], one.met))
        tried = math.log(len(columns)) + one.ways
        return all(tried + _log_chance(*table) < math.log(_CHANCE) for table in tables)


def _by_values(
    columns: Sequence[list[Any]], met: Sequence[list[bool]]
) -> tuple[int, int, int, int]:
    """Count values in place of rows, and those that meet: of missing rows, and of others alone."""
    own, other = dict[Hashable, bool](), dict[Hashable, bool]()
    for flags, values, mets in zip((own, other), columns, met, strict=True):
        for value, is_met in zip(values, mets, strict=True):
            flags[value] = flags.get(value, False) or is_met
    rest = [is_met for value, is_met in other.items() if value not in own]
    return sum(own.values()), len(own), sum(rest), len(rest)


def _log_chance(met: int, missing: int, others_met: int, others: int) -> float:
    """Return the logarithm of the probability that chance makes so many rows meet a condition.

    Source: Fisher's exact test, "Statistical methods for research workers" (5th edition, 1934).
    """
    in_all, rest = met + others_met, missing - met
    point = _log_choices(in_all, met) + _log_choices(others + missing - in_all, rest)
    point -= _log_choices(others + missing, missing)
    # Each next term of the sum is at most this share of the one before.
    ratio = others_met * rest / ((met + 1) * (others - others_met + 1))
    return point - math.log1p(-ratio) if ratio < 1 else 0.0


def _log_choices(of: int, some: int) -> float:
    return math.lgamma(of + 1) - math.lgamma(some + 1) - math.lgamma(of - some + 1)


def _known(value: Any) -> Any:
    """Return NaN as a text: it equals itself then."""
    return "NaN" if isinstance(value, (float, Decimal)) and math.isnan(value) else value


def _is_ordered(value: Any) -> bool:
    return isinstance(value, (int, float, Decimal, date)) and not isinstance(value, bool)


def _text(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, datetime):
        return value.isoformat(" ")
    if not isinstance(value, (str, bytes)):
        return str(value)
    return repr(value[:_MAX_CHARACTERS]) + ("..." if len(value) > _MAX_CHARACTERS else "")


def _percent(share: float) -> str:
    return f"{share * 100:.{1 if share > 0.001 else 3}f}".rstrip("0").rstrip(".") + " %"
