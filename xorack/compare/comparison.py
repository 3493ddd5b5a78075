"""The comparison of two views on DuckDB: digests where few rows differ, else a join of both sides.

A sample of rows says which. A bucket's digest is the number of its rows and the sums of the two
halves of their hashes: docs/adr/0049-files-on-duckdb.md.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from xorack.compare.columns import balanced
from xorack.compare.compared import Value
from xorack.compare.inputs import Input
from xorack.compare.report import Change
from xorack.compare.sharing import are_shared
from xorack.compare.texts import quoted
from xorack.compare.why import ROWS
from xorack.core.errors import StateError

__all__ = ["KIND_SQL", "Comparison", "Found"]

_BUCKETS = 1 << 16
_SAMPLE_ROWS = 2048
_DIGEST_KEYS = 0.3
"""Digests are worth it while the keys that differ are at most this share of the buckets."""
_SAMPLED_FROM_ROWS = 100_000
_KEPT_ROWS = 500_000
"""Rows of both sides that are kept as a table of pairs; more are read again for what is shown."""
_ROWS_OF_KEY = ("lefts", "rights")
KIND_SQL = {"missing": "r IS NULL", "extra": "l IS NULL", "changed": "l AND r AND differs"}
_MANY = 0.5
"""The share of rows in buckets that differ from which all rows are joined."""


class Found(NamedTuple):
    """What a comparison found, and how."""

    missing: int
    extra: int
    changed: int
    duplicates: tuple[int, ...]
    columns: dict[str, Change]
    unique: bool
    condition: str
    is_kept: bool
    sampled: str


def _or(parts: Sequence[str]) -> str:
    return str(balanced("({} OR {})".format, parts, "false"))


def _bucket(hashed: str) -> str:
    return f"({hashed} & {_BUCKETS - 1})::INTEGER"


@dataclass
class Comparison:
    """Both sides as the views `side0` and `side1`, and the columns that are compared."""

    con: Any
    inputs: Sequence[Input]
    types: Sequence[dict[str, Any]]
    keys: Sequence[Value]
    values: Sequence[Value]

    def all(self, sql: str) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        return self.con.execute(sql).fetchall()  # type: ignore[no-any-return]

    def hash(self, side: int, values: Sequence[Value]) -> str:
        """Return SQL of the hash of columns of a side."""
        return self.hash_of([v.forms[side] for v in values], values)

    @staticmethod
    def hash_of(forms: Sequence[str], values: Sequence[Value]) -> str:
        """Return SQL of the hash of forms of these columns."""
        texts_of = [
            f"to_json({form})" if v.has_weak_hash else form
            for form, v in zip(forms, values, strict=True)
        ]
        return f"hash({', '.join(texts_of)})"

    def compare(self) -> tuple[list[int], Found]:
        """Return the numbers of all rows of both sides, and what differs."""
        totals, within, condition = self._choose()
        if not sum(within):
            return totals, Found(0, 0, 0, (0, 0), {}, True, condition, False, condition)
        share = max(1, math.ceil(max(totals) / ROWS))
        unique = bool(self.values) and not any(
            are_shared(([n for (n,) in self.all(f"SELECT n FROM digests{side}")], _BUCKETS))
            for side in (0, 1)
        )
        found = self._count(within, condition, share, unique=unique)
        if unique and not found.unique:
            found = self._count(within, condition, share, unique=False)
        missing, extra = found.missing, found.extra
        if min(missing, extra) < 0 or missing - extra != totals[0] - totals[1]:
            raise StateError("the inputs gave other rows when they were read again")
        return totals, found

    def _choose(self) -> tuple[list[int], list[int], str]:
        """Return the numbers of all rows, of those that may differ, and a condition on these."""
        is_typed = all(one.format != "csv" for one in self.inputs)
        if is_typed:
            totals = [self.all(f"SELECT count(*) FROM side{i}")[0][0] for i in (0, 1)]
            if (
                totals[0] > _SAMPLED_FROM_ROWS
                and self._sampled() * totals[0] > _DIGEST_KEYS * _BUCKETS
            ):
                self._keep_digests()
                return totals, totals, "true"
        self._keep_digests("sum((h >> 1)::BIGINT) AS s")  # a HUGEINT: it does not overflow
        differ = " OR ".join(f"l.{of} IS DISTINCT FROM r.{of}" for of in ("n", "s"))
        self.keep(
            "buckets",
            "SELECT b, coalesce(l.n, 0) AS n0, "
            f"coalesce(r.n, 0) AS n1 FROM digests0 l FULL JOIN digests1 r USING (b) WHERE {differ}",
        )
        totals = [
            self.all(f"SELECT coalesce(sum(n), 0)::BIGINT FROM digests{i}")[0][0] for i in (0, 1)
        ]
        ((*within,),) = self.all("SELECT coalesce(sum(n0), 0), coalesce(sum(n1), 0) FROM buckets")
        if not sum(within):
            return totals, [0, 0], "false"
        if sum(within) > _MANY * sum(totals):
            return totals, totals, "true"
        return totals, within, "{bucket} IN (SELECT b FROM buckets)"

    def _keep_digests(self, *sums: str) -> None:
        """Keep the number of rows in each bucket of keys, and sums of the hashes ``h`` of rows."""
        for side in (0, 1):
            row = f"hash({self.hash(side, [*self.keys, *self.values])})"
            bucket = _bucket(self.hash(side, self.keys))
            rows = f"SELECT {bucket} AS b, {row} AS h FROM side{side}"
            digests = ", ".join(["b", "count(*) AS n", *sums])
            self.keep(f"digests{side}", f"SELECT {digests} FROM ({rows}) GROUP BY b")

    def _sampled(self) -> float:
        """Return the share of the left side's first rows that the right side has not."""
        sample, right = f"{self._side(0)} LIMIT {_SAMPLE_ROWS}", self._side(1)
        same = self.same_keys("l", "r", "=")  # = lets DuckDB skip row groups
        differs = _or(self._differences("l.", "r."))
        sql = f"FROM ({sample}) l JOIN ({right}) r ON {same} WHERE NOT {differs}"
        return float(1 - self.all(f"SELECT count(*) {sql}")[0][0] / _SAMPLE_ROWS)

    def _side(self, side: int, condition: str = "true", *, wide: bool = False) -> str:
        """Return SQL of a side's rows: their keys' and values' forms; whole rows, too, if wide."""
        columns = [f"{v.forms[side]} AS k{i}" for i, v in enumerate(self.keys)]
        columns += [f"{v.forms[side]} AS v{i}" for i, v in enumerate(self.values)]
        if wide:
            held = ", ".join(
                f"{quoted(c.name)} := {quoted(c.name)}" for c in self.inputs[side].columns
            )
            columns.append(f"struct_pack({held}) AS w")
        forms = [one.forms[side] for one in (*self.keys, *self.values)]
        rows = f"side{side} WHERE {self.on(condition, forms)}"
        return f"SELECT true AS p, {', '.join(columns)} FROM {rows}"

    def on(self, condition: str, forms: Sequence[str] = ()) -> str:
        """Return a condition with the hashes of forms of keys and of rows; else of kept rows."""
        places = {"k": len(self.keys), "v": len(self.values)}
        forms = forms or [f"{of}{i}" for of, count in places.items() for i in range(count)]
        key = self.hash_of(forms[: len(self.keys)], self.keys)
        made = {"{bucket}": _bucket(key), "{key}": key}
        if "{row}" in condition:
            made["{row}"] = self.hash_of(forms, [*self.keys, *self.values])
        return re.sub(r"\{\w+\}", lambda found: made[found[0]], condition)

    def _differences(self, left: str, right: str) -> list[str]:
        """Return SQL for each value that is true where two rows differ in it."""
        return [value.differs(i, left, right) for i, value in enumerate(self.values)]

    def _details(self, left: str, right: str, present: tuple[str, str]) -> list[str]:
        """Return SQL of what is told of values that differ, as columns; null tells nothing.

        A null is one of two rows if its own row is present and the other value is known.
        """
        told = []
        for i, value in enumerate(self.values):
            a, b = f"{left}v{i}", f"{right}v{i}"
            told.append((f"{a} IS NULL AND {b} IS NOT NULL AND {present[0]}", "true", f"a{i}"))
            told.append((f"{b} IS NULL AND {a} IS NOT NULL AND {present[1]}", "true", f"b{i}"))
            if value.unit is not None:
                told.append((f"{a} <> {b} AND c{i}", value.apart(a, b), f"g{i}"))
        return [f"CASE WHEN {when} THEN {sql} END AS {name}" for when, sql, name in told]

    def _joined(self, left: str, right: str, *, wide: bool = False) -> str:
        """Return SQL of pairs of rows by a join: for keys that are unique."""
        keys = [f"coalesce(l.k{i}, r.k{i}) AS k{i}" for i in range(len(self.keys))]
        on, differences = self.same_keys("l", "r"), self._differences("l.", "r.")
        columns = [f"{differs} AS c{i}" for i, differs in enumerate(differences)]
        changed = _or([f"c{i}" for i in range(len(columns))])
        columns += self._details("l.", "r.", ("l.p", "r.p"))
        rows = ["l.w AS lw, r.w AS rw"] * wide
        more = ["(l.p)::INTEGER AS lefts, (r.p)::INTEGER AS rights, 1 AS n"] * wide
        chosen = ", ".join([*keys, *columns, *rows, *more])
        return (
            f"SELECT *, l IS NULL OR r IS NULL OR {changed} AS differs FROM (SELECT l.p AS l, "
            f"r.p AS r, {chosen} FROM ({left}) l FULL JOIN ({right}) r ON {on})"
        )

    def _numbered(self, left: str, right: str, *, wide: bool = False) -> str:
        """Return SQL of pairs of rows, whose keys may have several: equal ones cancel out first."""
        keys = [f"k{i}" for i in range(len(self.keys))]
        values = [f"v{i}" for i in range(len(self.values))]
        k, kv = ", ".join(keys), ", ".join([*keys, *values])
        sides = []
        for side, rows in enumerate((left, right)):
            own = [f"w AS {'lr'[side]}w, NULL AS {'rl'[side]}w"] * wide
            sides.append(f"SELECT {', '.join([f'{side} AS s', kv, *own])} FROM ({rows})")
        copies = (
            f"SELECT *, row_number() OVER (PARTITION BY {kv}, s) AS copy, "
            f"count(*) FILTER (s = 0) OVER (PARTITION BY {k}) AS lefts, "
            f"count(*) FILTER (s = 1) OVER (PARTITION BY {k}) AS rights "
            f"FROM ({' UNION ALL BY NAME '.join(sides)})"
        )
        same = f"SELECT *, count(*) OVER (PARTITION BY {kv}, copy) > 1 AS same FROM ({copies})"
        near, order = self._near(same, keys)
        place = ", ".join([*keys, "same", *["near"] * (near != same)])
        by_value = f"ORDER BY {', '.join(order)}" if order else ""
        numbered = (
            f"SELECT *, row_number() OVER (PARTITION BY {place}, s {by_value}) AS n FROM ({near})"
        )
        firsts = [
            f"any_value(CASE WHEN s = {s} THEN {of} END) AS {'lr'[s]}{of}"
            for s in (0, 1)
            for of in values
        ]
        firsts += ["any_value(lw) AS lw, any_value(rw) AS rw"] * wide
        grouped = (
            f"SELECT {', '.join([k, *firsts])}, n, any_value(lefts) AS lefts, any_value(rights) AS "
            "rights, bool_or(s = 0) OR NULL AS l, bool_or(s = 1) OR NULL AS r "
            f"FROM ({numbered}) GROUP BY {place}, n"
        )
        differences = [f"{d} AS c{i}" for i, d in enumerate(self._differences("l", "r"))]
        changed = _or([f"c{i}" for i in range(len(values))])
        told = [*differences, *self._details("l", "r", ("l", "r")), *["lw, rw"] * wide]
        kept = ", ".join([k, "n", "lefts", "rights", "l", "r", *told])
        return (
            f"SELECT *, l IS NULL OR r IS NULL OR {changed} AS differs FROM (SELECT {kept} FROM "
            f"({grouped}))"
        )

    def _near(self, rows: str, keys: Sequence[str]) -> tuple[str, list[str]]:
        """Return SQL that tells which rows have a near one on the other side; and how to sort them.

        Without limits, it is the SQL that is given. Rows of one key whose values with a limit are
        not further from each other than it, one after another, are a group: in it, rows of both
        sides are near by their rank.
        """
        limited = {i: value.limit for i, value in enumerate(self.values) if value.limit}
        order = [f"v{i}" for i in range(len(self.values)) if i not in limited]
        place = [*keys, "same", *order]
        for i, limit in limited.items():
            x = self.values[i].exact.format(f"v{i}")
            most = f"{limit.amount * (1 + 1e-9) + 1e-12!r}"  # the values are compared exactly later
            if limit.kind == "relative":
                most += " * greatest(abs(x::DOUBLE), abs(before::DOUBLE))"
            part = f"OVER (PARTITION BY {', '.join(place)} ORDER BY x)"
            rows = f"SELECT *, lag(x) {part} AS before FROM (SELECT *, {x} AS x FROM ({rows}))"
            is_near = f"coalesce({self.values[i].distance('x', 'before')} <= {most}, false)"
            gap = f"x IS DISTINCT FROM before AND NOT {is_near}"
            group = f"count(*) FILTER ({gap}) {part} AS near{i}"
            rows = f"SELECT * EXCLUDE (x, before), {group} FROM ({rows})"
            place.append(f"near{i}")
        if not limited:
            return rows, order
        order += [f"near{i}" for i in limited] + [f"v{i}" for i in limited]
        part = ", ".join(place)
        rank = f"row_number() OVER (PARTITION BY {part}, s ORDER BY {', '.join(order)}) AS place"
        near = f"count(*) OVER (PARTITION BY {part}, place) > 1 AS near"
        return f"SELECT *, {near} FROM (SELECT *, {rank} FROM ({rows}))", order

    def _count(self, within: Sequence[int], condition: str, share: int, *, unique: bool) -> Found:
        """Count pairs of rows by their kinds; what is found is not unique if keys are not.

        The join proves it: a row has two pairs if the other side has its key twice.
        """
        if not unique:  # it works on what is in a window twice: 4 to the power of limits
            self.con.execute("SET disabled_optimizers = 'filter_pushdown'")
        is_kept = sum(within) <= _KEPT_ROWS
        sampled = f"{{{'key' if unique or not is_kept else 'row'}}} % {share} = 0"
        if is_kept:
            relation = "kept"
            for side in (0, 1):  # rows that may differ, and a sample of all, in one pass
                rows = self._side(side, f"{condition} OR {sampled}", wide=True)
                self.keep(f"rows{side}", rows)
            left, right = (f"SELECT * FROM rows{i} WHERE {self.on(condition)}" for i in (0, 1))
            self.keep("kept", self._paired(left, right, unique=unique, wide=True))
        else:
            relation = f"({self.pairs(condition, unique=unique, wide=False)})"
        alone = KIND_SQL["missing"], KIND_SQL["extra"]
        if unique:
            key = self.hash_of([f"k{i}" for i in range(len(self.keys))], self.keys)
            of_keys = [f"count(DISTINCT {key}) FILTER ({kind})" for kind in alone]
        else:
            of_keys = [
                f"count(DISTINCT {self.key}) FILTER (differs AND {of} > 1)" for of in _ROWS_OF_KEY
            ]
        of_sides = ["count(l)", "count(r)", *(f"count(*) FILTER ({kind})" for kind in alone)]
        flags = ("differs", *(f"c{i}" for i in range(len(self.values))))
        of_pairs = [f"count(CASE WHEN l AND r AND {of} THEN 1 END)" for of in flags]
        for i, value in enumerate(self.values):
            greatest = "NULL" if value.unit is None else f"max(g{i})"
            of_pairs += [f"count(a{i})", f"count(b{i})", greatest]
        told = self.all(f"SELECT {', '.join([*of_keys, *of_sides, *of_pairs])} FROM {relation}")[0]
        (*keys, lefts, rights, missing, extra, changed), rest = told[:7], iter(told[7:])
        if unique:
            unique, keys = [*keys, lefts, rights] == [missing, extra, *within], [0, 0]
        differ = [next(rest) for _ in self.values]
        columns = {
            value.names[0]: Change(n, next(rest), next(rest), next(rest), value.unit or "")
            for value, n in zip(self.values, differ, strict=True)
        }
        kinds = missing, extra, changed
        return Found(*kinds, tuple(keys), columns, unique, condition, is_kept, sampled)

    @property
    def key(self) -> str:
        """SQL of the forms of a key in one value."""
        return f"struct_pack({', '.join(f'k{i} := k{i}' for i in range(len(self.keys)))})"

    def same_keys(self, left: str, right: str, by: str = "IS NOT DISTINCT FROM") -> str:
        """Return SQL that is true where two rows have one key."""
        return " AND ".join(f"{left}.k{i} {by} {right}.k{i}" for i in range(len(self.keys)))

    def first_keys(self, relation: str, limit: int) -> str:
        """Return SQL of the first keys of each kind and column among pairs of rows."""
        firsts = [f"min({self.key}, {limit}) FILTER ({of})" for of in KIND_SQL.values()]
        # With FILTER, the time to plan it grows with the square of the number of columns.
        firsts += [
            f"[min(CASE WHEN l AND r AND c{i} THEN {self.key} END)]"
            for i in range(len(self.values))
        ]
        keys = f"flatten([{', '.join(f'coalesce({of}, [])' for of in firsts)}])"
        return f"SELECT unnest({keys}, max_depth := 2) FROM {relation}"

    def some_pairs(self, found: Found, limit: int) -> str:
        """Return a table of pairs with enough rows of each kind, and one for each column.

        The first rows of both sides mostly suffice: else the columns still needed are joined again.
        """
        known = " AND ".join(f"k{i} IS NOT NULL" for i in range(len(self.keys)))
        for side, values in ((0, self.values), (1, [])):  # the right has only extra rows to add
            rows = f"FROM ({self._side(side, found.condition)}) WHERE {known} LIMIT {_SAMPLE_ROWS}"
            self.keep(f"sample{side}", rows)
            part = replace(self, values=values)
            keys = part.first_keys(f"({part._pairs_of(f'sample{side}', found)})", limit)
            self.keep(f"chosen{side}", keys + " EXCEPT FROM chosen0" * side)
        # In two parts, as the keys of each side's first rows are near to each other.
        parts = (self._pairs_of(f"chosen{side}", found, wide=True) for side in (0, 1))
        self.keep("near", " UNION ALL ".join(parts))
        flags = [f"coalesce(bool_or(l AND r AND c{i}), false)" for i in range(len(self.values))]
        numbers = [*(f"count(*) FILTER ({of})" for of in KIND_SQL.values()), *flags]
        counts = self.all(f"SELECT {', '.join(numbers)} FROM near")[0]
        few = [n < min(limit, of) for n, of in zip(counts[:3], found[:3], strict=True)]
        unseen = [
            value
            for value, seen in zip(self.values, counts[3:], strict=True)
            if found.columns[value.names[0]].rows and not seen
        ]
        if any(few) or unseen:
            values = unseen if found.unique and not few[2] else self.values
            part = replace(self, values=values)
            pairs = part.pairs(found.condition, unique=found.unique, wide=False)
            more = part.first_keys(f"({pairs})", limit)
            self.keep("chosen", f"{more} UNION FROM chosen0 UNION FROM chosen1")
            self.keep("near", self._pairs_of("chosen", found, "IS NOT DISTINCT FROM", wide=True))
        return "near"

    def keep(self, name: str, sql: str) -> None:
        """Keep rows as a table."""
        self.con.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {sql}")

    def _pairs_of(self, keys: str, found: Found, by: str = "=", *, wide: bool = False) -> str:
        """Return SQL of all pairs of some keys; `=` lets DuckDB skip row groups, but no null."""
        left, right = (
            f"SELECT * FROM ({self._side(side, found.condition, wide=wide)}) AS p "
            f"SEMI JOIN {keys} AS k ON ({self.same_keys('p', 'k', by)})"
            for side in (0, 1)
        )
        return self._paired(left, right, unique=found.unique, wide=wide)

    def pairs(self, condition: str, *, unique: bool, wide: bool = True) -> str:
        """Return SQL of pairs of rows, whole ones if wide."""
        left, right = (self._side(i, condition, wide=wide) for i in (0, 1))
        return self._paired(left, right, unique=unique, wide=wide)

    def _paired(self, left: str, right: str, *, unique: bool, wide: bool) -> str:
        return (self._joined if unique else self._numbered)(left, right, wide=wide)
