"""Why some rows are missing, or some chains failed: what they have in common, and others do not.

Rows of one product or order are not independent: what chance does to a few of these, it does to all
their rows. So a condition has to stand out among the values that it is told by, and among those of
each column whose values went missing as a whole.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

_CHANCE = 0.01
"""Most probability with which chance alone makes a finding, over all that were looked at."""
_NEARLY = 0.95
_MOST_LISTED = 5
"""Values of a column that a condition lists."""
_MOST_OTHERS = 0.5
"""Share of the other rows that may meet what all missing rows meet."""
_LEAST_SHARE = 0.3
"""Share of the missing rows of which a condition is told, if just missing rows meet it."""
_FEW_ROWS = 3
"""Missing rows a value, so that whole values went missing, and not rows."""
_MOST_FINDINGS = 10
_MOST_CHARACTERS = 100
CHARACTERS = 300
"""Characters of a text that are compared; the caller cuts it, so that samples are small."""

_NO_ONE: Mapping[str, float] = {}

Row = Mapping[str, Any]
Met = tuple[list[bool], list[bool]]


@dataclass(frozen=True)
class Finding:
    """A condition that stands out among the missing rows.

    Attributes:
        what: The condition, such as ``l_linenumber = 7``.
        missing: Share of the missing rows that meet it, 0 to 1.
        all: Share of all rows that meet it.
    """

    what: str
    missing: float
    all: float
    only: bool = field(repr=False, default=False)

    @property
    def lift(self) -> float:
        """The first share by the second."""
        return self.missing / self.all

    def to_json(self) -> dict[str, Any]:
        return {"what": self.what, "share": self.missing, "share_of_all": self.all,
                "lift": self.lift}  # fmt: skip


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


@dataclass(frozen=True)
class _Condition:
    """A test of the values of a column; `ways` is the logarithm of how many like it there are."""

    name: str
    what: str
    test: Callable[[Any], bool]
    ways: float
    complexity: float
    is_range: bool = False


def explain(
    missing: Sequence[Row],
    others: Sequence[Row],
    count: int,
    total: int,
    word: str = "missing row",
    late: Mapping[str, float] = _NO_ONE,
) -> Explanation:
    """Find the conditions that tell missing rows from others.

    Args:
        missing: The missing rows, or a random sample of them: their values by column.
        others: The rows that are not missing, or a random sample of them.
        count: How many rows are missing.
        total: How many rows there are in all.
        word: What these rows are, for the sentence: an adjective and a noun.
        late: Columns that are no properties of a row, such as its file, with their handicap:
            of equally good reasons, one with two values has 3.

    Returns:
        The conditions that nearly all missing rows meet, and at most half of the others; and those
        that none but missing rows meet. None that chance explains with more than 1 %.
    """
    state, _, noun = word.partition(" ")
    if not count:
        return Explanation("")
    if count >= total:
        return Explanation(f"All {count:,} {noun}s are {state}")
    rows = f"{count:,} {word}{'' if count == 1 else 's'}"
    if not missing or not others:
        return Explanation(f"Nothing is known of the {rows}")
    found = _Samples(missing, others, count, total, late).findings()
    if not found:
        return Explanation(f"Nothing tells the {rows} from the others")
    best, looked = found[0], len(missing)
    who = f"Every {word} has" if noun == "row" else f"All {rows} have"
    if looked < count:
        who = f"Every {word} of {looked:,} that were looked at has"
    elif count == 1:
        who = f"The {word} has"
    if best.missing < 1:
        who = f"{_percent(best.missing)} of the {rows} have"
    rest = f"{_percent(best.all)} of all {noun}s"
    if best.only:
        nearly = "" if looked == count and looked + len(others) == total else "nearly "
        rest += f", {nearly}all of which {'' if state == 'failed' else 'are '}{state}"
    return Explanation(f"{who} {best.what} ({rest})", tuple(found))


class _Samples:
    """Missing rows and others, or samples of both."""

    def __init__(
        self, missing: Sequence[Row], others: Sequence[Row], count: int, total: int,
        late: Mapping[str, float],
    ) -> None:  # fmt: skip
        self.missing, self.others, self.late = missing, others, late
        self.count, self.total = count, total
        names = dict.fromkeys(name for row in missing for name in row)
        self.columns = {
            name: tuple([_known(row.get(name)) for row in some] for some in (missing, others))
            for name in names
        }

    def findings(self, *, inner: bool = True) -> list[Finding]:
        """Return what stands out, the best first."""
        given = [(one, self._met(one)) for name in self.columns for one in self._conditions(name)]
        strong = [(one, met) for one, met in given if self._is_strong(met)]
        wholes = {
            one.name: met
            for one, met in strong
            if not self._is_strict(one) and self._share(met) >= _NEARLY
        }
        kept = [(one, met) for one, met in strong if self._stands_out(one, met, wholes)]
        kept.sort(
            key=lambda pair: (
                -(self._is_all(pair[1]) and self._share(pair[1]) >= _NEARLY),
                -round(self._gain(pair[1]), 2),
                pair[0].complexity,
            )
        )
        found = [self._finding(one.what, met) for one, met in kept[:_MOST_FINDINGS]]
        if inner and kept and not found[0].only and found[0].missing >= _NEARLY:
            found[:0] = self._both(*kept[0])
        return found

    def _both(self, first: _Condition, met: Met) -> list[Finding]:
        """Return what a second condition tells of the rows that meet a first one, if all."""
        some, rest = (
            [row for row, is_met in zip(rows, flags, strict=True) if is_met]
            for rows, flags in zip((self.missing, self.others), met, strict=True)
        )
        if not some or not rest:
            return []
        of = len(some) / len(self.missing), len(rest) / len(self.others)
        count = max(1, round(self.count * of[0]))
        whole = count + max(1, round((self.total - self.count) * of[1]))
        less = [{k: v for k, v in row.items() if k != first.name} for row in some]
        inner = _Samples(less, rest, count, whole, self.late).findings(inner=False)
        return [
            replace(
                one,
                what=f"{first.what} and {one.what}",
                missing=one.missing * of[0],
                all=one.all * whole / self.total,
            )
            for one in inner[:1]
            if one.only and one.missing >= _NEARLY
        ]

    def _conditions(self, name: str) -> Iterator[_Condition]:
        """Yield conditions on the values of a column that missing rows meet."""
        own, other = (Counter(values) for values in self.columns[name])
        late = self.late.get(name, 0.0)
        everything = own.keys() | other.keys()
        known = _ordered(own)
        if len(known) > 1 and len(known) == len(own):
            ends = _ordered(everything)
            low, high = min(known), max(known)
            first, last = low == min(ends), high == max(ends)
            if not first or not last:
                what = f"from {_text(low)} to {_text(high)}"
                what = f"<= {_text(high)}" if first else f">= {_text(low)}" if last else what
                ways, sides = math.log(len(ends)), 2 - first - last
                test = _between(low, high)
                yield _Condition(name, f"{name} {what}", test, ways * sides, 1 + sides + late, True)
        size, rows = len(self.missing), max(len(self.others), 1)
        often = [v for v, n in own.most_common() if n > 1 and n / size > 3 * other[v] / rows]
        pure = not own.keys() & other.keys()
        for number in sorted({1, min(len(often), _MOST_LISTED)} if often else ()):
            some = often[:number]
            texts = [_text(v) for v in sorted(some, key=lambda v: (v is None, v))]
            what = f"{name} = {texts[0]}" if number == 1 else f"{name} in ({', '.join(texts)})"
            ways = _log_choices(len(everything), number)
            yield _Condition(
                name, what, frozenset(some).__contains__, ways, number + (number > 1) + late
            )
        if pure and len(own) > _MOST_LISTED and size >= _FEW_ROWS * len(own):
            what = f"one of {len(own):,} of {len(everything):,} values of {name}"
            ways = _log_choices(len(everything), len(own))
            yield _Condition(name, what, own.keys().__contains__, ways, 20 + late)

    def _is_strict(self, one: _Condition) -> bool:
        return one.is_range or one.name in self.late

    def _met(self, one: _Condition) -> Met:
        own, other = self.columns[one.name]
        return [*map(one.test, own)], [*map(one.test, other)]

    def _share(self, met: Met) -> float:
        return sum(met[0]) / len(self.missing)

    def _others_share(self, met: Met) -> float:
        return sum(met[1]) / len(self.others)

    def _gain(self, met: Met) -> float:
        return self._share(met) - self._others_share(met)

    def _finding(self, what: str, met: Met) -> Finding:
        share, of_all = self._share(met), self._share_of_all(met)
        return Finding(what, share, of_all, self._is_all(met))

    def _share_of_all(self, met: Met) -> float:
        rest = self._others_share(met) * (self.total - self.count)
        return (self._share(met) * self.count + rest) / self.total

    def _is_all(self, met: Met) -> bool:
        """Tell whether all that meet a condition are missing; a sample may miss it by a little."""
        return self._share(met) * self.count >= 0.99 * self._share_of_all(met) * self.total

    def _is_strong(self, met: Met) -> bool:
        if not any(met[0]):
            return False
        share, rest = self._share(met), self._others_share(met)
        if share >= _NEARLY:
            return rest <= _MOST_OTHERS
        return share >= _LEAST_SHARE and self._is_all(met)

    def _stands_out(self, one: _Condition, met: Met, wholes: Mapping[str, Met]) -> bool:
        """Tell if chance does not explain a condition, by rows nor by values of columns.

        Args:
            one: The condition.
            met: The rows that meet it.
            wholes: By column, the rows of a few values that nearly all missing rows have.
        """
        # It gives way to whole values of another column that tell more; a range to as much.
        gain, slack = self._gain(met), 0.001 if self._is_strict(one) else -0.001
        names = [
            name
            for name, other in wholes.items()
            if name != one.name
            and self._gain(other) > gain - slack * (10 if self._is_all(other) and slack > 0 else 1)
        ]
        names += [one.name] if one.is_range else []
        tables = [(sum(met[0]), len(met[0]), sum(met[1]), len(met[1]))]
        tables += [self._by_values(name, met, wholes.get(name)) for name in names]
        tried = math.log(len(self.columns))
        return all(tried + one.ways + _log_chance(*table) < math.log(_CHANCE) for table in tables)

    def _by_values(self, name: str, met: Met, whole: Met | None) -> tuple[int, int, int, int]:
        """Count values in place of rows: those of missing rows, and those of others alone."""
        flags: list[dict[Hashable, bool]] = [{}, {}]
        for place, values in enumerate(self.columns[name]):
            for value, is_met in zip(values, met[place], strict=True):
                flags[place][value] = flags[place].get(value, False) or is_met
        own, other = flags
        rest = {value: is_met for value, is_met in other.items() if value not in own}
        if whole is None and not rest:
            rest = other
        return sum(own.values()), len(own), sum(rest.values()), len(rest)


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
    """Return one NaN for all: as a key, it equals itself."""
    return math.nan if _is_nan(value) else value


def _is_nan(value: Any) -> bool:
    return isinstance(value, (float, Decimal)) and math.isnan(value)


def _between(low: Any, high: Any) -> Callable[[Any], bool]:
    return lambda value: value is not None and not _is_nan(value) and bool(low <= value <= high)


def _ordered(values: Iterable[Any]) -> list[Any]:
    """Return the values, without null and NaN, if ranges of them are of use: numbers and times."""
    known = [value for value in values if value is not None and not _is_nan(value)]
    is_ordered = bool(known) and isinstance(known[0], (int, float, Decimal, date))
    return known if is_ordered and not isinstance(known[0], bool) else []


def _text(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, datetime):
        return value.isoformat(" ")
    if not isinstance(value, (str, bytes)):
        return str(value)
    return repr(value[:_MOST_CHARACTERS]) + ("..." if len(value) > _MOST_CHARACTERS else "")


def _percent(share: float) -> str:
    return f"{share * 100:.{1 if share > 0.001 else 3}f}".rstrip("0").rstrip(".") + " %"
