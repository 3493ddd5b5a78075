"""Damage a large table at random, and let `xorack.spark.diff` find all of it: by seeds.

    python -m tests.spark.diff_damage --seeds 1000 --together 10    seeds 0 to 999
    python -m tests.spark.diff_damage --seeds 1 --first 17          what a seed does

Each seed makes another copy of one table, whose rows are lost, doubled, or have other values. What
differs is known exactly. A seed whose damage is not found to the last row is printed. Copies that
are compared together are told apart by the first column of the key.
"""

from __future__ import annotations

import argparse
import random
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tests.spark.diff_model import Columns, Found, Values, complaints
from xorack.spark import diff

ROWS = 200_000
KEY = ("order", "line")
TABLE = {
    "order": "id div 4",
    "line": "cast(id % 4 as int)",
    "part": "pmod(xxhash64(id, 'part'), 200000)",
    "quantity": "cast(1 + pmod(xxhash64(id, 'quantity'), 50) as decimal(15,2))",
    "price": "cast(0.01 * pmod(xxhash64(id, 'price'), 10000000) as decimal(15,2))",
    "discount": "pmod(xxhash64(id, 'discount'), 11) / 100D",
    "weight": "cast(pmod(xxhash64(id, 'weight'), 1000) as float) / 8F",
    "returned": "id % 3 = 0",
    "shipped": "date_add(DATE'1992-01-01', cast(pmod(xxhash64(id, 'day'), 2500) as int))",
    "packed": "timestamp_micros(pmod(xxhash64(id, 'packed'), 1000000000000000))",
    "mode": "elt(1 + cast(id % 4 as int), 'AIR', 'MAIL', 'SHIP', '')",
    "comment": "if(id % 17 = 0, null, hex(xxhash64(id, 'comment')))",
    "code": "cast(hex(id) as binary)",
}
"""SQL of each column, resembling TPC-H's lineitem."""
DOUBLED = 97
"""Every so many rows there are two equal ones."""
MANY = 5
"""The most faults of a seed that are printed."""
_COPY = 1 << 40
"""The distance of the numbers of two copies."""


class Table:
    """The undamaged table, in Spark's memory and in Python's."""

    def __init__(self, spark: SparkSession, rows: int = ROWS, copies: int = 1) -> None:
        """Make the table; `number` tells its rows apart, and is not compared."""
        self.spark, self.copies = spark, copies
        columns = [F.expr(sql).alias(name) for name, sql in TABLE.items()]
        once = spark.range(rows).select(F.col("id").alias("number"), *columns)
        again = once.where(f"number % {DOUBLED} = 0").withColumn("number", -1 - F.col("number"))
        copy = spark.range(copies).select(F.col("id").alias("copy"))
        table = copy.crossJoin(once.unionByName(again))
        self.frame = table.withColumn("number", F.expr(f"number + copy * {_COPY}")).cache()
        first = self.frame.where("copy = 0").drop("copy")
        self.rows: list[Values] = [row.asDict() for row in first.collect()]
        self.of_key: dict[Any, list[int]] = {}
        for at, row in enumerate(self.rows):
            self.of_key.setdefault(key_of(row), []).append(at)
        self.twice = [at for of in self.of_key.values() if len(of) > 1 for at in of]
        # All may be null on the other side.
        self.schema = T.StructType(
            [T.StructField(of.name, of.dataType) for of in self.frame.schema]
        )

    def damaged(self, damages: Sequence[Damage]) -> DataFrame:
        """Return the table with damaged copies."""
        numbers, others = [], []
        for copy, damage in enumerate(damages):
            for at, rows in damage.changed.items():
                numbers.append(self.rows[at]["number"] + copy * _COPY)
                for number, *values in map(dict.values, rows):
                    others.append((copy, number + copy * _COPY, *values))
        kept = self.frame.where(~F.col("number").isin(numbers))
        return kept.union(self.spark.createDataFrame(others, self.schema))


def key_of(row: Values) -> tuple[Any, ...]:
    return tuple(row[name] for name in KEY)


def _flip(number: int, rng: random.Random, bits: int) -> int:
    return number ^ 1 << rng.randrange(bits)


def _flip_float(value: float, rng: random.Random, form: str) -> float:
    """Flip a bit of a float: of any but the exponent's highest ones, so it stays a number."""
    size = struct.calcsize(form)
    number = int.from_bytes(struct.pack(form, value), "big")
    return struct.unpack(form, _flip(number, rng, 8 * size - 4).to_bytes(size, "big"))[0]


def _flip_text(value: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(value))
    return value[:at] + bytes([_flip(value[at], rng, 5)]) + value[at + 1 :]


def flipped(value: Any, type_: T.DataType, rng: random.Random) -> Any:
    """Flip one bit of a value."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return _flip(value, rng, 63 if isinstance(type_, T.LongType) else 31)
    if isinstance(value, Decimal):
        return Decimal(_flip(int(value.scaleb(2)), rng, 20)).scaleb(-2)
    if isinstance(value, float):
        return _flip_float(value, rng, ">f" if isinstance(type_, T.FloatType) else ">d")
    if isinstance(value, str):
        return _flip_text(value.encode(), rng).decode()
    if isinstance(value, bytes | bytearray):
        return _flip_text(bytes(value), rng)
    if isinstance(value, date) and isinstance(type_, T.DateType):
        return date.fromordinal(_flip(value.toordinal(), rng, 12))
    # A bit of the microseconds: in no time zone does this meet a change of the clocks.
    return value + timedelta(microseconds=_flip(value.microsecond, rng, 19) - value.microsecond)


class Damage:
    """The damage of a seed.

    Attributes:
        seed: It.
        changed: The rows in place of some rows of the table, by their positions.
        kinds: What was done.
    """

    def __init__(self, table: Table, seed: int) -> None:
        """Draw how many rows are damaged, and damage them."""
        self.seed, self._rng, self._table = seed, random.Random(seed), table
        self.changed: dict[int, list[Values]] = {}
        self.kinds: list[str] = []
        number = self._rng.choice((1, 1, 2, 3, 5, 20, 100, 300))
        kinds = self._rng.sample(list(KINDS), self._rng.randint(1, len(KINDS)))
        while len(self.kinds) < number:
            kind = self._rng.choice(kinds)
            if KINDS[kind](self):
                self.kinds.append(kind)

    def _take(self) -> int:
        """Draw a row that is still whole; often one of two equal ones."""
        all_rows = range(len(self._table.rows))
        at = self._rng.choice(self._table.twice if self._rng.random() < 0.3 else all_rows)
        while at in self.changed:
            at = self._rng.choice(all_rows)
        self.changed[at] = [dict(self._table.rows[at])]
        return at

    def _column(self) -> tuple[str, T.DataType]:
        field = self._rng.choice(self._table.schema.fields[2:])
        return field.name, field.dataType

    def drop(self) -> bool:
        self.changed[self._take()] = []
        return True

    def drop_key(self) -> bool:
        """Drop all rows of a key: XOR is blind to pairs."""
        for at in self._table.of_key[key_of(self._table.rows[self._take()])]:
            self.changed[at] = []
        return True

    def double(self) -> bool:
        """Add copies: an even number, too."""
        at = self._take()
        self.changed[at] *= self._rng.randint(2, 5)
        return True

    def flip(self) -> bool:
        """Flip one bit of a value, perhaps of the key."""
        (row,) = self.changed[self._take()]
        name, type_ = self._column()
        if row[name] in (None, ""):
            return False
        row[name] = flipped(row[name], type_, self._rng)
        return True

    def nullify(self) -> bool:
        """Put null in the place of a value."""
        (row,) = self.changed[self._take()]
        name, _ = self._column()
        changes = row[name] is not None
        row[name] = None
        return changes

    def swap(self) -> bool:
        """Swap a value of two rows, or all but their keys: sums over the table stay."""
        one, other = (self.changed[self._take()][0] for _ in range(2))
        names = [self._column()[0]] if self._rng.random() < 0.5 else [*list(TABLE)[2:]]
        for name in names:
            one[name], other[name] = other[name], one[name]
        return True

    def shift(self) -> bool:
        """Add to a number of one row what another one loses: the sum stays."""
        one, other = (self.changed[self._take()][0] for _ in range(2))
        name, by = self._rng.choice(
            [("part", 1), ("quantity", Decimal("0.01")), ("discount", 0.25)]
        )
        if one[name] is None or other[name] is None:
            return False
        one[name], other[name] = one[name] + by, other[name] - by
        return True

    def replace(self) -> bool:
        """Put a copy of another row in the place of a row: the number of rows stays."""
        at, source = self._take(), self._take()
        self.changed[at] = [dict(self.changed[source][0])]
        return True

    def exchange(self) -> bool:
        """Drop one copy of a doubled row and double another row."""
        self.changed[self._take()] = []
        return self.double()

    def tables(self) -> tuple[list[Values], list[Values]]:
        """Return all rows of both sides whose keys are among the damaged ones."""
        now = [row for rows in self.changed.values() for row in rows]
        keys = {key_of(self._table.rows[at]) for at in self.changed} | set(map(key_of, now))
        there = {at for key in keys for at in self._table.of_key.get(key, ())}
        untouched = [self._table.rows[at] for at in there - set(self.changed)]
        return [self._table.rows[at] for at in there], [*untouched, *now]


KINDS: dict[str, Callable[[Damage], bool]] = {
    name: getattr(Damage, name)
    for name in (
        *("drop", "drop_key", "double", "flip", "nullify", "swap", "shift", "replace", "exchange"),
    )
}


COLUMNS = Columns(KEY, list(TABLE)[2:])


def check(table: Table, first: int = 0) -> dict[int, list[str]]:
    """Damage each copy of the table by another seed, and compare.

    Returns:
        The seeds whose damage was not found, or wrongly, with what is wrong.
    """
    damages = [Damage(table, first + copy) for copy in range(table.copies)]
    copy = table.damaged(damages)
    found = [Found() for _ in damages]
    with diff(table.frame, copy, key=["copy", *KEY], ignore="number") as difference:
        counts = difference.counts
        for kind in ("missing", "extra", "changed", "duplicates"):
            if getattr(counts, kind, True):
                for row in getattr(difference, kind).collect():
                    getattr(found[row["copy"]], kind).append(_marked(row, kind))
    wrong = {}
    total = dict.fromkeys(("left", "right", "missing", "extra", "changed"), 0)
    for damage, of_copy in zip(damages, found, strict=True):
        left, right = damage.tables()
        if faults := complaints(left, right, COLUMNS, of_copy):
            wrong[damage.seed] = faults
        total["left"] += len(table.rows)
        total["right"] += len(table.rows) + len(right) - len(left)
        for kind in ("missing", "extra", "changed"):
            total[kind] += len(getattr(of_copy, kind))
    if (counted := {name: getattr(counts, name) for name in total}) != total:
        wrong[first] = [*wrong.get(first, ()), f"counts: {counted}, not {total}"]
    return wrong


def _marked(row: Any, kind: str) -> Values:
    """Name the columns as `Found` does."""
    values = row.asDict()
    copy = values.pop("copy")
    if kind in ("missing", "extra"):
        return values | {"number": values["number"] - copy * _COPY}
    return {name if name in KEY else f"?{name}": value for name, value in values.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run seeds; return 1 if the damage of one was not found."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.spark.diff_damage",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", type=int, required=True, help="how many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of the table")
    parser.add_argument("--together", type=int, default=1, help="seeds of one comparison")
    options = parser.parse_args(arguments)

    from pipeline.session import session

    table = Table(session("diff damage"), options.rows, options.together)
    end, failed, begun = options.first + options.seeds, 0, time.monotonic()
    for first in range(options.first, end, options.together):
        wrong = check(table, first)
        failed += len(wrong)
        for seed in [first] if options.seeds == 1 else wrong:
            kinds = Counter(Damage(table, seed).kinds).items()
            print(f"seed {seed}: {', '.join(f'{number} x {kind}' for kind, number in kinds)}")
            faults = wrong.get(seed, ["all found"])
            print("\n".join(f"  {fault}" for fault in faults[:MANY]), flush=True)
            if len(faults) > MANY:
                print(f"  and {len(faults) - MANY} more")
        done = first + options.together - options.first
        if done % 50 == 0 or done >= options.seeds:
            each = (time.monotonic() - begun) / done
            print(f"{done} seeds, {failed} not found, {each:.2f} s each", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
