"""Random pairs of small tables, of all types that `xorack.spark.diff` compares.

One pair of frames holds many cases, told apart by the column `CASE` of the key: one comparison
proves hundreds. Values are few, so that keys and rows often meet.
"""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyspark
from hypothesis import strategies as st

from tests.spark.diff_model import Columns, Found, complaints, expected, plain

CASE = "case"
Kinds = st.SearchStrategy["Kind"]
Pair = tuple[Any, Any]
Cells = dict[str, Pair]
"""A row: the values of both sides by column."""
ABSENT = object()
"""A value that the type of a side does not have."""
NAMES = (
    *("left", "right", "columns", "key", "k", "v", "l", "n", "count", "side", "bucket", "kind"),
    *("a.b", "back`tick", "a space", "Ünïcode", "_hash", "lefts", "same", "copy", "left_count"),
    *("k0", "v0", "lw", "c0", "differs"),
)
"""Names of columns, some of them an engine's own."""


@dataclass(frozen=True)
class Kind:
    """A kind of values.

    Attributes:
        types: The types of the left and of the right column.
        values: Pairs of a left and a right value, mostly equal ones; without nulls.
    """

    types: tuple[str, str]
    values: Sequence[tuple[Any, Any]]


@dataclass(frozen=True)
class Column:
    """A column of both sides, or of one: then the kind's other side is not used."""

    name: str
    kind: Kind


def _pairs(types: Sequence[str], values: Sequence[Any], as_type: Any) -> st.SearchStrategy[Kind]:
    """Draw the types of both sides."""

    def kind(chosen: tuple[str, str]) -> Kind:
        return Kind(chosen, [tuple(as_type(of, value) for of in chosen) for value in values])

    return st.tuples(st.sampled_from(types), st.sampled_from(types)).map(kind)


def _same(types: Sequence[str], *values: Any) -> st.SearchStrategy[Kind]:
    return _pairs(types, values, lambda _, value: value)


BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
INTEGERS = (0, 1, -1, 127, 128, -128, 2**31 - 1, 2**31, -(2**31), 2**40, 2**63 - 1, -(2**63))
DECIMALS = (
    *("0", "1", "-1", "1.5", "1.05", "0.15", "15", "99999"),
    *("0.000001", "1e18", "1e25", "1e37"),
)
FLOATS = (
    *(0.0, -0.0, float("nan"), float("inf"), float("-inf")),
    *(1.5, -1.5, 0.1, 1e300, 5e-324, 1e-45),
)


def _integer(of: str, value: int) -> Any:
    edge = 2 ** (BITS[of] - 1)
    return value if -edge <= value < edge else ABSENT


def _decimal(of: str, text: str) -> Any:
    value = Decimal(text)
    if of in BITS:
        return _integer(of, int(value)) if value == int(value) else ABSENT
    precision, scale = map(int, of[len("decimal(") : -1].split(","))
    digits = value.scaleb(scale)
    fits = digits == int(digits) and abs(digits) < 10**precision
    return Decimal((value < 0, tuple(map(int, str(abs(int(digits))))), -scale)) if fits else ABSENT


def _float(of: str, value: float) -> Any:
    try:
        return struct.unpack("f", struct.pack("f", value))[0] if of == "float" else value
    except OverflowError:
        return ABSENT


_FRACTION_TYPES = [f"decimal({of})" for of in ("5,2", "9,0", "18,6", "38,18")]
_WIDE_TYPES = ("decimal(38,0)", "decimal(38,18)", "decimal(38,37)")
STRING_TYPES = ["string"]
if int(pyspark.__version__.split(".")[0]) >= 4:
    STRING_TYPES.append("string collate UTF8_LCASE")
INTEGER = _pairs(list(BITS), INTEGERS, _integer)
TEXT = _same(STRING_TYPES, "", "a", "A", "b", "ab", "ba", "a ", "\0", "é", "e\u0301", "ß", "𝄞")
FRACTIONS = st.one_of(
    _pairs(("float", "double"), FLOATS, _float),
    _pairs(_FRACTION_TYPES, DECIMALS, _decimal),
)
LEAVES = st.one_of(
    INTEGER,
    TEXT,
    FRACTIONS,
    _pairs(("bigint", "int", *_FRACTION_TYPES), DECIMALS, _decimal),
    _pairs(_WIDE_TYPES, DECIMALS, _decimal),
    _same(["boolean"], False, True),
    _same(["binary"], b"", b"\0", b"\0\0", b"a", bytes(range(40))),
    _same(["date"], date.min, date.max, date(1969, 12, 31), date(1970, 1, 1)),
    _same(
        ["timestamp"],
        *(datetime(2026, 1, 31, 12, 0, 0, us, timezone.utc) for us in (0, 1, 1000)),
        *(datetime(year, 1, 15, tzinfo=timezone.utc) for year in (1901, 1970, 9998)),
    ),
    _same(
        ["timestamp_ntz"], datetime.min, datetime.max, datetime(1970, 1, 1), datetime(2026, 1, 31)
    ),
)


def _both(make: Any, *pairs: tuple[Any, Any]) -> tuple[Any, Any]:
    """Make a value of each side from such pairs, if the side has them all."""
    sides = zip(*pairs, strict=True) if pairs else ((), ())
    return tuple(ABSENT if ABSENT in of else make(*of) for of in map(list, sides))  # type: ignore[return-value]


_NULL = (None, None)


def _array(of: Kind) -> Kind:
    first, second = of.values[0], of.values[-1]
    held = [(), (_NULL,), (first,), (second,), (first, second), (second, first), (first, first)]
    held += [(first, _NULL), (_NULL, first), (_NULL, _NULL)]
    values = [_both(lambda *elements: list(elements), *pairs) for pairs in held]
    return Kind(tuple(f"array<{t}>" for t in of.types), values)  # type: ignore[arg-type]


def _struct(one: Kind, other: Kind) -> Kind:
    types = (
        f"struct<x:{one.types[0]},`y.z`:{other.types[0]}>",
        f"struct<`y.z`:{other.types[1]},x:{one.types[1]}>",
    )
    firsts, seconds = ((_NULL, of.values[0], of.values[-1]) for of in (one, other))
    values = [_both(lambda x, y: {"x": x, "y.z": y}, a, b) for a in firsts for b in seconds]
    return Kind(types, values)


def _map(key: Kind, value: Kind) -> Kind:
    one, two = key.values[0], key.values[1]
    first, second = value.values[0], value.values[-1]
    held = [(), (one, first), (two, first), (one, _NULL), (one, first, two, second)]
    held += [(two, second, one, first), (one, second, two, first), (one, _NULL, two, second)]
    values = [_both(lambda *o: dict(zip(o[::2], o[1::2], strict=True)), *pairs) for pairs in held]
    types = (f"map<{k},{v}>" for k, v in zip(key.types, value.types, strict=True))
    return Kind(tuple(types), values)  # type: ignore[arg-type]


KINDS = LEAVES | st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        inner.map(_array), st.builds(_struct, inner, inner), st.builds(_map, INTEGER | TEXT, inner)
    ),
    max_leaves=4,
)


@dataclass(frozen=True)
class Schema:
    """The columns of both sides and how they are compared.

    Attributes:
        key: Those of the key, without `CASE`.
        values: The others that both sides have.
        alone: Columns that the left, and that the right side alone has.
        ignored: How many of the values are left out.
        named: Whether the values are named, or all are compared that both sides have.
    """

    key: Sequence[Column]
    values: Sequence[Column]
    alone: tuple[Sequence[Column], Sequence[Column]]
    ignored: int
    named: bool

    def side(self, side: int) -> list[Column]:
        return [*self.key, *self.values, *self.alone[side]]


@st.composite
def schemas(draw: Any, keys: Kinds = LEAVES, values: Kinds = KINDS) -> Schema:
    names = iter(draw(st.permutations(NAMES)))

    def columns(least: int, most: int, kinds: Kinds) -> list[Column]:
        few = st.sampled_from(draw(st.lists(kinds, min_size=1, max_size=3)))
        return [Column(next(names), draw(few)) for _ in range(draw(st.integers(least, most)))]

    key, compared = columns(1, 2, keys), columns(0, 5, values)
    alone = columns(0, 1, values), columns(0, 1, values)
    ignored = draw(st.integers(0, len(compared) // 2))
    return Schema(key, compared, alone, ignored, draw(st.booleans()))


def _of(type_: str, *values: Any) -> Kind:
    return Kind((type_, type_), [(value, value) for value in values])


_WORDS = _of("string", "", "a", "ab", "b")
_WHOLE = Kind(("int", "bigint"), [(number, number) for number in (0, 1, -1)])
_TENTHS = Decimal("1.50"), Decimal("1.60")
MIXED = Schema(
    key=[Column("k", _WHOLE), Column("c", Kind(("string", "string"), _WORDS.values))],
    values=[
        *(Column(name, _WORDS) for name in ("ignored", "t", "u")),
        Column("i", _WHOLE),
        Column("d", Kind(("decimal(5,2)", "decimal(18,6)"), [(of, of) for of in _TENTHS])),
        Column("f", Kind(("float", "double"), [(0.0, -0.0), *((f, f) for f in FLOATS[:5])])),
        Column("a", _of("array<array<int>>", [], [[]], [None], [[1, 2]], [[1], [2]])),
        Column("z", _of("array<int>", [0, None], [None, 0])),
        Column("m", Kind(("map<int,int>",) * 2, [({1: 1, 2: 2}, {2: 2, 1: 1}), ({1: 2},) * 2])),
        Column("s", _of("struct<x:array<int>,y:int>", *({"x": [x], "y": x} for x in (0, None)))),
    ],
    alone=([], []),
    ignored=1,
    named=False,
)
"""A schema whose columns have the same values on both sides, some under other types."""
NULLS = Schema(
    key=[Column("k", _WHOLE)],
    values=[Column("z", _of("array<int>", [0, None], [None, 0]))],
    alone=([], []),
    ignored=0,
    named=False,
)


class Cases:
    """Random cases of a schema: the rows of both sides, from a seed."""

    def __init__(
        self, schema: Schema, seed: int, cases: int, *, unique: bool = False, damaged: float = 1
    ) -> None:
        """Draw the rows.

        Args:
            schema: Their columns.
            seed: Leads to the same rows each time.
            cases: How many.
            unique: No side has a key twice.
            damaged: The share of cases whose right side may differ.
        """
        self._random = random.Random(seed)
        self.columns = [schema.side(0), schema.side(1)]
        self._random.shuffle(self.columns[1])
        self.rows: tuple[list[Any], list[Any]] = ([], [])
        for number in range(cases):
            self._choices = {c.name: self._few(c.kind) for of in self.columns for c in of}
            left = [self._row(0) for _ in range(self._random.randrange(6))]
            left += self._random.choices(left, k=self._random.choice((0, 0, 1, 2))) if left else []
            right = [self._other(row) for row in left]
            whole = self._random.random() >= damaged
            for _ in range(0 if whole else self._random.choice((0, 0, 1, 1, 2, 4))):
                change = self._random.choice(_CHANGES)
                change(self, right)
            self._random.shuffle(right)
            for side, rows in enumerate((left, right)):
                kept = self._first_of_keys(schema, rows, side) if unique else rows
                for row in kept:
                    held = [row[column.name][side] for column in self.columns[side]]
                    self.rows[side].append((number, *held))

    def schema(self, side: int) -> str:
        parts = [f"{CASE} int"]
        for column in self.columns[side]:
            name = column.name.replace("`", "``")
            parts.append(f"`{name}` {column.kind.types[side]}")
        return ", ".join(parts)

    def _few(self, kind: Kind) -> list[tuple[Any, Any]]:
        """Choose the values of a column in one case."""
        few = self._random.sample(kind.values, min(len(kind.values), 1 + self._random.randrange(3)))
        return few + [_NULL] * (self._random.random() < 0.4)

    def _value(self, name: str, side: int) -> Pair:
        held = [pair for pair in self._choices[name] if pair[side] is not ABSENT]
        return self._random.choice(held or [_NULL])

    def _row(self, side: int) -> Cells:
        return {name: self._value(name, side) for name in self._choices}

    def _other(self, row: Cells) -> Cells:
        """Make the right side's row of a left one: an equal one if its types have the values."""
        return {n: self._value(n, 1) if pair[1] is ABSENT else pair for n, pair in row.items()}

    def _first_of_keys(self, schema: Schema, rows: list[Cells], side: int) -> list[Cells]:
        keys: list[Any] = []
        kept = []
        for row in rows:
            key = [plain(row[column.name][side]) for column in schema.key]
            if key not in keys:
                keys.append(key)
                kept.append(row)
        return kept

    # Changes of the right side's rows.

    def add(self, rows: list[Cells]) -> None:
        rows.append(self._row(1))

    def drop(self, rows: list[Cells]) -> None:
        if rows:
            rows.pop(self._random.randrange(len(rows)))

    def drop_all(self, rows: list[Cells]) -> None:
        rows.clear()

    def double(self, rows: list[Cells]) -> None:
        if rows:
            row = self._random.choice(rows)
            rows += [dict(row) for _ in range(self._random.randint(1, 3))]

    def change(self, rows: list[Cells]) -> None:
        """Change a value of a row, or of all rows that equal it: XOR is blind to pairs."""
        if rows:
            row, name = dict(self._random.choice(rows)), self._random.choice(list(self._choices))
            chosen = [other for other in rows if other == row]
            value = self._value(name, 1)
            for other in chosen[: self._random.choice((1, None))]:
                other[name] = value

    def move(self, rows: list[Cells]) -> None:
        """Swap the values of two columns of one kind."""
        kinds = {column.name: column.kind for column in self.columns[1]}
        pairs = [(a, b) for a in kinds for b in kinds if a < b and kinds[a] is kinds[b]]
        if rows and pairs:
            row, (one, other) = self._random.choice(rows), self._random.choice(pairs)
            row[one], row[other] = row[other], row[one]

    def swap(self, rows: list[Cells]) -> None:
        """Swap a value of two rows: sums stay."""
        if rows:
            one, other = self._random.choice(rows), self._random.choice(rows)
            name = self._random.choice(list(self._choices))
            one[name], other[name] = other[name], one[name]


_CHANGES = (
    *(Cases.add, Cases.drop, Cases.drop_all, Cases.double),
    *(Cases.change, Cases.change, Cases.move, Cases.swap),
)


def judge(
    schema: Schema, cases: Cases, columns: Columns, sides: Any, frames: Any, found: Any
) -> None:
    """Compare what an engine found, by case, with the model, and its report with its rows."""
    left, right = sides
    for case in {*left, *right, *frames["missing"], *frames["extra"]}:
        of_case = Found(**{name: frame.get(case, []) for name, frame in frames.items()})
        tables = left.get(case, []), right.get(case, [])
        assert not (faults := complaints(*tables, columns, of_case)), (faults, *tables)

    def number(name):
        return sum(map(len, frames[name].values()))

    counts, total = found.counts, {name: number(name) for name in frames}
    assert {name: getattr(counts, name) for name in ("missing", "extra", "changed")} == {
        name: total[name] for name in ("missing", "extra", "changed")
    }
    assert (counts.left, counts.right) == (len(cases.rows[0]), len(cases.rows[1]))
    assert counts.equal == counts.left - counts.missing - counts.changed
    differ = [d for case in {*left, *right} for d in expected(left[case], right[case], columns)]
    doubled = [sum(difference.counts[side] > 1 for difference in differ) for side in (0, 1)]
    assert [counts.duplicate_keys_left, counts.duplicate_keys_right] == doubled
    changed = [row for rows in frames["changed"].values() for row in rows]
    assert found.changed_columns == Counter(name for row in changed for name in row["?columns"])
    alone = [[] if schema.named else [c.name for c in schema.alone[side]] for side in (0, 1)]
    assert [list(found.left_only), list(found.right_only)] == alone
    assert found.equal == (not any((differ, *alone)))
