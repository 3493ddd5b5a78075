"""An oracle for the sentences of a failing finish: each is parsed into a claim, and checked."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Truth:
    """What a job did: the rows of the source, and how often the output has each unit.

    Rows are compared by their unit columns, `keys`.
    """

    source: Sequence[Row]
    written: Counter[tuple[Any, ...]]
    keys: tuple[str, ...]

    def key(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.keys)

    @property
    def started(self) -> Counter[tuple[Any, ...]]:
        return Counter(map(self.key, self.source))

    @property
    def missing(self) -> Counter[tuple[Any, ...]]:
        return self.started - self.written

    @property
    def surplus(self) -> Counter[tuple[Any, ...]]:
        return self.written - self.started

    def rows_of(self, units: Iterable[tuple[Any, ...]]) -> list[Row]:
        wanted = {*units}
        return [row for row in self.source if self.key(row) in wanted]


def false_claims(
    text: str, truth: Truth, sent: Sequence[Any], chains: int, earlier: Collection[str] = ()
) -> list[str]:
    """Return the claims in an error's text that do not hold; earlier calls have acked chains."""
    claims = [*_head(text, truth), *_chains(text, sent, chains, earlier), *_counts(text, truth)]
    claims += [*_conditions(text, truth), *_twice(text, truth), *_same(text, truth)]
    claims += [*_listed(text, truth)]
    claims += [(found[0], False) for found in _ONE_OF_MANY.finditer(text)]
    return [claim for claim, holds in claims if not holds]


_ONE_OF_MANY = re.compile(
    r"(?<![\d,.])1 (?:(?:missing )?(?:rows|units|chains|files|frames|positions)|are|stay)\b"
    r"|(?<![\d,.])1 of [\d,]+ \w+ (?:of '\w+' )?(?:are|stay)\b|the 1 frame|at least 0 "
)
"""A plural of one thing, or a minimum of none."""


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def _head(text: str, truth: Truth):
    started, missing, surplus = (
        units.total() for units in (truth.started, truth.missing, truth.surplus)
    )
    found = re.match(
        r"(at most )?([\d,]+) of ([\d,]+) units? of '\w+' (?:is|are) in the output", text
    )
    if found:
        there = _number(found[2])
        is_right = there >= started - missing if found[1] else there == started - missing
        yield found[0], is_right and _number(found[3]) == started
    if found := re.match(r"[^:]*, and ([\d,]+) too many", text):
        yield found[0], _number(found[1]) == surplus
    if found := re.match(r"the output has ([\d,]+) units? of '\w+'", text):
        yield found[0], _number(found[1]) == truth.written.total()


def _chains(text: str, sent: Sequence[Any], chains: int, earlier: Collection[str]):
    stamped = {request.tag for request in sent if request.op == "stamp"}
    noted = {request.tag for request in sent if request.op == "note"}
    acked = len(stamped | {*earlier})
    if found := re.search(
        r"([\d,]+) of ([\d,]+) chains? stays? open.*; ([\d,]+) (?:is|are) acked", text
    ):
        numbers = [_number(found[n]) for n in (1, 2, 3)]
        yield found[0], numbers == [chains - acked, chains, acked]
    elif "all chains stay open" in text:
        yield "all chains stay open", not acked
    elif found := re.search(r"no chain stays open: all ([\d,]+) are acked", text):
        yield found[0], acked == _number(found[1]) == chains
    yield "each chain that stays open has a note", len({*stamped, *noted, *earlier}) == chains


def _counts(text: str, truth: Truth):
    missing, surplus = truth.missing.total(), truth.surplus.total()
    for found in re.finditer(r"([\d,]+) of (at least )?([\d,]+) missing rows? can be named", text):
        number = _number(found[3])
        yield found[0], number <= missing if found[2] else number == missing
    for found in re.finditer(r"the output has (at least )?([\d,]+) rows? too many", text):
        number = _number(found[2])
        yield found[0], number <= surplus if found[1] else number == surplus


def _twice(text: str, truth: Truth):
    for found in re.finditer(
        r"([\d,]+) units? of '\w+' (?:is|are) there (twice|more than once)", text
    ):
        hidden = [u for u in truth.missing if truth.started[u] > 1 and truth.written[u]]
        yield found[0], _number(found[1]) == len(hidden)


def _listed(text: str, truth: Truth):
    """Check the number of units that follow the first 20; several rows may have one unit."""
    for found in re.finditer(r"^(missing|doubled), by .*, and ([\d,]+) more$", text, re.MULTILINE):
        units = truth.surplus.keys() & truth.started.keys()
        if found[1] == "missing":
            lost = truth.missing
            units = {u for u in lost if truth.started[u] == 1 or not truth.written[u]}
        yield f"and {found[2]} more {found[1]}", 20 + _number(found[2]) == len(units)


def _same(text: str, truth: Truth):
    for found in re.finditer(
        r"Each of the ([\d,]+) missing rows has a row with the same (.+?) that", text
    ):
        names = found[2].split(", ")
        lost = truth.rows_of(truth.missing)
        rest = truth.rows_of(truth.started.keys() - truth.missing.keys())
        kept = Counter(tuple(row[name] for name in names) for row in rest)
        is_right = all(kept[tuple(row[name] for name in names)] == 1 for row in lost)
        yield found[0], is_right and _number(found[1]) == len(lost)


_CONDITION = re.compile(
    r"(?:^|; )([^\n;]+?): ([\d,]+) of ([\d,]+) (missing|doubled) rows?, "
    r"([\d,]+) of ([\d,]+) others(?: compared \(of ([\d,]+) and ([\d,]+)\))?",
    re.MULTILINE,
)


def _conditions(text: str, truth: Truth):
    for found in _CONDITION.finditer(text):
        what, numbers = found[1], [_number(found[n]) for n in (2, 3, 5, 6)]
        hidden = {u for u in truth.missing if truth.started[u] > 1 and truth.written[u]}
        units = truth.surplus if found[4] == "doubled" else truth.missing.keys() - hidden
        some = truth.rows_of(units)
        rest = truth.rows_of(truth.started.keys() - {*units})
        if found[7]:  # counted in samples
            least = [numbers[0] <= numbers[1] <= len(some), numbers[2] <= numbers[3] <= len(rest)]
            totals = [_number(found[7]), _number(found[8])]
            yield found[0], all(least) and totals == [len(some), len(rest)]
            continue
        tests = [_test(part) for part in what.split(" and ")]
        if None in tests:
            continue  # of a file, or of values that are not listed
        met = [sum(all(test(row) for test in tests) for row in rows) for rows in (some, rest)]
        yield found[0], numbers == [met[0], len(some), met[1], len(rest)]


def _test(text: str):
    """Return the test of a condition on one column; None if the text does not say it all."""
    pattern = r"(size of )?(\w+) (=|in|>=|<=|from) (.+)"
    found = re.fullmatch(pattern, text)
    if found is None or text.startswith("one of"):
        return None
    size, name, how, value = found.groups()

    def of(row: Row) -> Any:
        return len(row[name]) if size else row[name]

    if how in ("=", "in"):
        values = ast.literal_eval(f"({value.strip('()').replace('NULL', 'None')},)")
        return lambda row: of(row) in values
    low, _, high = value.partition(" to ") if how == "from" else (value, "", value)
    least = None if how == "<=" else ast.literal_eval(low)
    most = None if how == ">=" else ast.literal_eval(high)
    return lambda row: (
        of(row) is not None
        and ((least is None or of(row) >= least) and (most is None or of(row) <= most))
    )
