"""The comparison of files, on DuckDB: digests where few rows differ, else a join of both sides.

A sample of rows says which. A bucket's digest is the number of its rows and the sums of the two
halves of their hashes: docs/adr/0049-files-on-duckdb.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from xorack.compare import texts
from xorack.compare.columns import Limit, Matched, Side, balanced, limits, match
from xorack.compare.forms import FLOATS, TIMES, canonical_forms, has_weak_hash, shown
from xorack.compare.found import FileDifference, Found
from xorack.compare.inputs import Input, ReadOptions, open_inputs
from xorack.compare.messages import one_line, reading
from xorack.compare.options import CompareOptions
from xorack.compare.report import Counts, by_rows
from xorack.compare.texts import Column, quoted
from xorack.core.errors import ArgumentError, StateError

__all__ = ["Comparison", "diff_files"]

_BUCKETS = 1 << 16
_SAMPLE_ROWS = 2048
_DIGEST_KEYS = 0.3
"""Digests are worth it while the keys that differ are at most this share of the buckets."""
_SAMPLED_FROM_ROWS = 100_000
_KEPT_ROWS = 500_000
"""Rows of both sides that are kept as a table of pairs; more are read again for what is shown."""
_ROWS_OF_KEY = ("lefts", "rights")
_MANY = 0.5
"""The share of rows in buckets that differ from which all rows are joined."""


class _Value(NamedTuple):
    """A compared column: its names and forms on both sides, and its tolerance."""

    names: tuple[str, str]
    forms: tuple[str, str]
    has_weak_hash: bool = False
    limit: Limit | None = None
    is_date: bool = False


def _or(parts: Sequence[str]) -> str:
    return str(balanced("({} OR {})".format, parts, "false"))


def diff_files(
    con: Any, names: Sequence[str], read: Sequence[ReadOptions], options: CompareOptions
) -> FileDifference:
    """Find the rows that differ between two inputs of DuckDB.

    Raises:
        ArgumentError: An argument is invalid.
        ColumnsError: A column is missing, or its types cannot be compared.
        StateError: An input cannot be read; the message begins with its name.
    """
    inputs = open_inputs(con, names, read)
    sides = (Side(names[0], inputs[0].columns), Side(names[1], inputs[1].columns))
    matched = match(sides, options.key, options.values, options.ignore)
    pairs = [*matched.keys, *matched.values]
    of_views, remarks = _make_views(con, inputs, pairs, options)
    types = [(of_views[0][a.name], of_views[1][b.name]) for a, b in pairs]
    compared = [_compared(pair, of, options) for pair, of in zip(pairs, types, strict=True)]
    described = con.execute(f"SELECT {', '.join(v.forms[0] for v in compared)} FROM side0 LIMIT 0")
    compared = [
        one._replace(has_weak_hash=has_weak_hash(form[1]))
        for one, form in zip(compared, described.description, strict=True)
    ]
    count = len(matched.keys)
    given = limits(sides[0], matched.values, options.tolerance, _kind_of(pairs, types))
    values = [
        one._replace(limit=given.get(one.names[0]), is_date=of[0].id in TIMES)
        for one, of in zip(compared[count:], types[count:], strict=True)
    ]
    changed_types = {
        left.name: (shown(of[0]), shown(of[1]))
        for (left, _), of in zip(pairs, types, strict=True) if of[0] != of[1]
    }  # fmt: skip
    comparison = Comparison(con, inputs, of_views, compared[:count], values)
    with reading(f"{names[0]}, {names[1]}"):
        return comparison.compare(matched, changed_types, remarks, options.limit)


def _make_views(
    con: Any, inputs: Sequence[Input], pairs: Sequence[Any], options: CompareOptions
) -> tuple[list[dict[str, Any]], list[str]]:
    """Make the views `side0` and `side1`, whose columns have their types; return these."""
    known = {c.name.lower() for one in inputs for c in one.columns}
    if unknown := [name for name in options.text if name.lower() not in known]:
        raise ArgumentError("text", problem=f"column {unknown[0]} is in neither input")
    scanned = []
    for side, one in enumerate(inputs):
        columns = [pair[side] for pair in pairs if pair[side].is_soft]
        empty_is_null = any(other.empty_is_null for other in inputs)
        found: dict[str, texts.Values] = {}
        if columns:
            with reading(one.name, one.files):
                sql = texts.kinds_sql(columns, one.relation, empty_is_null=empty_is_null)
                row = con.execute(sql).fetchone()
            found = {c.name: texts.Values(*row[3 * i : 3 * i + 3]) for i, c in enumerate(columns)}
        scanned.append(found)
    keep, remarks = {name.lower() for name in options.text}, []
    expressions: list[dict[str, str]] = [{}, {}]
    for pair in pairs:
        of = [texts.Side(pair[i], scanned[i].get(pair[i].name), inputs[i].name,
                         inputs[i].empty_is_null) for i in (0, 1)]  # fmt: skip
        *both, found_remarks = texts.fit(of[0], of[1], keep=pair[0].name.lower() in keep)
        remarks += found_remarks
        for i in (0, 1):
            expressions[i][pair[i].name] = both[i]
    types = []
    for i, one in enumerate(inputs):
        columns_sql = ", ".join(
            f"{expressions[i].get(c.name, quoted(c.name))} AS {quoted(c.name)}" for c in one.columns
        )
        relation = f"SELECT {columns_sql} FROM {one.relation}"
        for n, where in enumerate(one.options.where):
            relation = f"SELECT * FROM ({relation}) AS w{n} WHERE ({where})"
        try:
            con.execute(f"CREATE OR REPLACE TEMP VIEW side{i} AS {relation}")
            described = con.execute(f"SELECT * FROM side{i} LIMIT 0").description
        except Exception as error:
            if not one.options.where:
                raise StateError(f"{one.name}: {one_line(error)}") from error
            problem = f"{one_line(error)} (on the {('left', 'right')[i]})"
            raise ArgumentError("where", problem=problem) from error
        types.append({name: type_ for name, type_, *_ in described})
    return types, remarks


def _compared(pair: Any, types: tuple[Any, Any], options: CompareOptions) -> _Value:
    forms = canonical_forms(pair[0].name, *types)
    made = []
    for form, column in zip(forms, pair, strict=True):
        value = quoted(column.name)
        if types[0].id == "varchar":
            for names, function in (
                (options.ignore_case, "lower"),
                (options.ignore_blanks, "trim"),
            ):
                if {"*", pair[0].name.lower()} & {name.lower() for name in names}:
                    value = f"{function}({value})"
        made.append(form(value))
    return _Value((pair[0].name, pair[1].name), (made[0], made[1]))


def _kind_of(pairs: Sequence[Any], types: Sequence[tuple[Any, Any]]) -> Callable[[Any], str]:
    of_column = {pair[0].name: of for pair, of in zip(pairs, types, strict=True)}

    def kind_of(pair: tuple[Column, Column]) -> str:
        ids = {of.id for of in of_column[pair[0].name]}
        is_number = ids & (FLOATS | {"decimal"})
        return (
            "number" if is_number else "time" if ids <= TIMES else shown(of_column[pair[0].name][0])
        )

    return kind_of


@dataclass
class Comparison:
    """Both sides as the views `side0` and `side1`, and the columns that are compared."""

    con: Any
    inputs: Sequence[Input]
    types: Sequence[dict[str, Any]]
    keys: Sequence[_Value]
    values: Sequence[_Value]

    def all(self, sql: str) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        return self.con.execute(sql).fetchall()  # type: ignore[no-any-return]

    def hash(self, side: int, values: Sequence[_Value]) -> str:
        """Return SQL of the hash of columns of a side."""
        return self.hash_of([v.forms[side] for v in values], values)

    @staticmethod
    def hash_of(forms: Sequence[str], values: Sequence[_Value]) -> str:
        """Return SQL of the hash of forms of these columns."""
        texts_of = [
            f"to_json({form})" if v.has_weak_hash else form
            for form, v in zip(forms, values, strict=True)
        ]
        return f"hash({', '.join(texts_of)})"

    def compare(
        self, matched: Matched, changed_types: dict[str, Any], remarks: list[str], limit: int
    ) -> FileDifference:
        """Compare both sides."""
        totals, within, condition = self._choose()
        found = self._summarise(totals, within, condition, limit)
        kinds = found.missing, found.extra, found.changed
        counts = Counts(
            totals[0], totals[1], totals[0] - kinds[0] - kinds[2], *kinds, *found.duplicates
        )
        key = tuple((left.name, right.name) for left, right in matched.keys)
        alone = matched.left_only, matched.right_only
        columns = by_rows(found.columns)
        return FileDifference(
            counts, columns, *alone, key, changed_types, remarks, self, found, limit
        )

    def _choose(self) -> tuple[list[int], list[int], str]:
        """Return the numbers of all rows, of those that may differ, and a condition on these."""
        is_typed = all(one.format != "csv" for one in self.inputs)
        if is_typed:
            totals = [self.all(f"SELECT count(*) FROM side{i}")[0][0] for i in (0, 1)]
            if (
                totals[0] > _SAMPLED_FROM_ROWS
                and self._sampled() * totals[0] > _DIGEST_KEYS * _BUCKETS
            ):
                return totals, totals, ""
        for side in (0, 1):
            row = f"hash({self.hash(side, [*self.keys, *self.values])})"
            rows = f"SELECT {self._bucket(side)} AS b, {row} AS h FROM side{side}"
            sums = "count(*) AS n, sum((h >> 1)::BIGINT) AS s"  # a HUGEINT: it does not overflow
            digests = f"SELECT b, {sums} FROM ({rows}) GROUP BY b"
            self.con.execute(f"CREATE OR REPLACE TEMP TABLE digests{side} AS {digests}")
        differ = " OR ".join(f"l.{of} IS DISTINCT FROM r.{of}" for of in ("n", "s"))
        self.con.execute(
            "CREATE OR REPLACE TEMP TABLE buckets AS SELECT b, coalesce(l.n, 0) AS n0, "
            f"coalesce(r.n, 0) AS n1 FROM digests0 l FULL JOIN digests1 r USING (b) WHERE {differ}"
        )
        totals = [
            self.all(f"SELECT coalesce(sum(n), 0)::BIGINT FROM digests{i}")[0][0] for i in (0, 1)
        ]
        ((*within,),) = self.all("SELECT coalesce(sum(n0), 0), coalesce(sum(n1), 0) FROM buckets")
        if not sum(within):
            return totals, [0, 0], "WHERE false"
        if sum(within) > _MANY * sum(totals):
            return totals, totals, ""
        return totals, within, "WHERE {bucket} IN (SELECT b FROM buckets)"

    def _bucket(self, side: int) -> str:
        return f"({self.hash(side, self.keys)} & {_BUCKETS - 1})::INTEGER"

    def _sampled(self) -> float:
        """Return the share of the left side's first rows that the right side has not."""
        sample, right = self._side(0, f"LIMIT {_SAMPLE_ROWS}"), self._side(1)
        same = [f"l.k{i} = r.k{i}" for i in range(len(self.keys))]  # = lets DuckDB skip row groups
        differs = _or(self._differences("l.", "r."))
        sql = f"FROM ({sample}) l JOIN ({right}) r ON {' AND '.join(same)} WHERE NOT {differs}"
        return float(1 - self.all(f"SELECT count(*) {sql}")[0][0] / _SAMPLE_ROWS)

    def _side(self, side: int, condition: str = "", *, wide: bool = False) -> str:
        """Return SQL of a side's rows: their keys' and values' forms; whole rows, too, if wide."""
        columns = [f"{v.forms[side]} AS k{i}" for i, v in enumerate(self.keys)]
        columns += [f"{v.forms[side]} AS v{i}" for i, v in enumerate(self.values)]
        columns += [
            f"{quoted(v.names[side])} AS t{i}" for i, v in enumerate(self.values) if v.limit
        ]
        if wide:
            held = ", ".join(
                f"{quoted(c.name)} := {quoted(c.name)}" for c in self.inputs[side].columns
            )
            columns.append(f"struct_pack({held}) AS w")
        condition = condition.replace("{bucket}", self._bucket(side))
        condition = condition.replace("{hash}", self.hash(side, self.keys))
        return f"SELECT true AS p, {', '.join(columns)} FROM side{side} {condition}"

    def _differences(self, left: str, right: str) -> list[str]:
        """Return SQL for each value that is true where two rows differ in it."""
        return [self._differs(i, v, left, right) for i, v in enumerate(self.values)]

    def _differs(self, i: int, value: _Value, left: str, right: str) -> str:
        differs = f"{left}v{i} IS DISTINCT FROM {right}v{i}"
        if value.limit is None:
            return differs
        kind, amount = value.limit
        a, b = f"{left}t{i}", f"{right}t{i}"
        if kind == "seconds":
            micros = [f"epoch_us(({of})::TIMESTAMP)" for of in (a, b)]
            within = f"abs({micros[0]} - {micros[1]}) <= {amount * 1e6!r}"
        elif kind == "relative":
            a, b = f"({a})::DOUBLE", f"({b})::DOUBLE"
            most = f"{amount!r} * greatest(abs({a}), abs({b}))"
            within = f"isfinite({a}) AND isfinite({b}) AND abs({a} - {b}) <= {most}"
        else:
            within = f"TRY(abs({a} - {b}))::DOUBLE <= {amount!r}"
        return f"({differs} AND NOT coalesce({within}, false))"

    def _joined(self, left: str, right: str, kind: str = "FULL", *, wide: bool = False) -> str:
        """Return SQL of pairs of rows by a join: for keys that are unique on the right."""
        on = " AND ".join(f"l.k{i} IS NOT DISTINCT FROM r.k{i}" for i in range(len(self.keys)))
        keys = [f"coalesce(l.k{i}, r.k{i}) AS k{i}" for i in range(len(self.keys))]
        differences = self._differences("l.", "r.")
        columns = [f"{differs} AS c{i}" for i, differs in enumerate(differences)]
        changed = _or([f"c{i}" for i in range(len(columns))])
        rows = ["l.w AS lw, r.w AS rw"] * wide
        more = ["(l.p)::INTEGER AS lefts, (r.p)::INTEGER AS rights, 1 AS n"] * wide
        chosen = ", ".join([*keys, *columns, *rows, *more])
        return (
            f"SELECT *, l IS NULL OR r IS NULL OR {changed} AS differs FROM (SELECT l.p AS l, "
            f"r.p AS r, {chosen} FROM ({left}) l {kind} JOIN ({right}) r ON {on})"
        )

    def _numbered(self, left: str, right: str, *, wide: bool = False) -> str:
        """Return SQL of pairs of rows, whose keys may have several: equal ones cancel out first."""
        keys = [f"k{i}" for i in range(len(self.keys))]
        values = [f"v{i}" for i in range(len(self.values))]
        # Columns with a tolerance come last: the others tell which rows belong together.
        order = sorted(range(len(values)), key=lambda i: self.values[i].limit is not None)
        by_value = f"ORDER BY {', '.join(f'v{i}' for i in order)}" if values else ""
        k, kv = ", ".join(keys), ", ".join([*keys, *values])
        raw = [f"t{i}" for i, value in enumerate(self.values) if value.limit]
        sides = []
        for side, rows in enumerate((left, right)):
            own = [f"{t} AS {'lr'[side]}{t}, NULL AS {'rl'[side]}{t}" for t in raw]
            own += [f"w AS {'lr'[side]}w, NULL AS {'rl'[side]}w"] * wide
            sides.append(f"SELECT {', '.join([f'{side} AS s', kv, *own])} FROM ({rows})")
        copies = (
            f"SELECT *, row_number() OVER (PARTITION BY {kv}, s) AS copy, "
            f"count(*) FILTER (s = 0) OVER (PARTITION BY {k}) AS lefts, "
            f"count(*) FILTER (s = 1) OVER (PARTITION BY {k}) AS rights "
            f"FROM ({' UNION ALL BY NAME '.join(sides)})"
        )
        same = f"SELECT *, count(*) OVER (PARTITION BY {kv}, copy) > 1 AS same FROM ({copies})"
        numbered = (
            f"SELECT *, row_number() OVER (PARTITION BY {k}, same, s {by_value}) AS n FROM ({same})"
        )
        firsts = [
            f"any_value({of}) FILTER (s = {s}) AS {'lr'[s]}{of}" for s in (0, 1) for of in values
        ]
        firsts += [f"any_value({a}{of}) AS {a}{of}" for a in "lr" for of in [*raw, *["w"] * wide]]
        grouped = (
            f"SELECT {', '.join([k, *firsts])}, n, any_value(lefts) AS lefts, any_value(rights) AS "
            "rights, bool_or(s = 0) OR NULL AS l, bool_or(s = 1) OR NULL AS r "
            f"FROM ({numbered}) GROUP BY {k}, same, n"
        )
        differences = [f"{d} AS c{i}" for i, d in enumerate(self._differences("l", "r"))]
        changed = _or([f"c{i}" for i in range(len(values))])
        kept = ", ".join([k, "n", "lefts", "rights", "l", "r", *differences, *["lw, rw"] * wide])
        return (
            f"SELECT *, l IS NULL OR r IS NULL OR {changed} AS differs FROM (SELECT {kept} FROM "
            f"({grouped}))"
        )

    def _summarise(
        self, totals: Sequence[int], within: Sequence[int], condition: str, limit: int
    ) -> Found:
        """Count the rows that differ, and find the first keys of each kind."""
        unique = bool(self.values) and self._may_be_unique(condition, within[1])
        found = self._count(within, condition, limit, unique=unique)
        if found is None:
            found = self._count(within, condition, limit, unique=False)
        if found is None or found.missing - found.extra != totals[0] - totals[1]:
            raise StateError("the inputs gave other rows when they were read again")
        return found

    def _may_be_unique(self, condition: str, rows: int) -> bool:
        """Return false if a join could make many pairs: by the most rows in a bucket of keys."""
        side, most = self._side(1, condition), 1
        if not condition:
            side, most = f"SELECT {self._bucket(1)} AS k0 FROM side1", 100 + 4 * rows // _BUCKETS
        keys = "k0" if not condition else ", ".join(f"k{i}" for i in range(len(self.keys)))
        counts = f"SELECT count(*) AS n FROM ({side}) GROUP BY {keys}"
        return bool(self.all(f"SELECT coalesce(max(n), 0) <= {most} FROM ({counts})")[0][0])

    def _count(
        self, within: Sequence[int], condition: str, limit: int, *, unique: bool
    ) -> Found | None:
        """Count pairs of rows by their kinds; None if keys taken for unique are not."""
        relation = f"({self.pairs(condition, unique=unique, wide=False)})"
        if sum(within) <= _KEPT_ROWS:
            pairs = self.pairs(condition, unique=unique)
            self.con.execute(f"CREATE OR REPLACE TEMP TABLE kept AS {pairs}")
            relation = "kept"
        both, columns = "l AND r", [f"c{i}" for i in range(len(self.values))]
        kinds = {"missing": "r IS NULL", "extra": "l IS NULL", "changed": f"{both} AND differs"}
        key = f"struct_pack({', '.join(f'k{i} := k{i}' for i in range(len(self.keys)))})"
        numbers = [f"count(*) FILTER ({of})" for of in kinds.values()]
        if unique:
            alone = [f"count(DISTINCT {key}) FILTER ({of} IS NULL)" for of in "rl"]
            numbers += ["count(l)", "count(r)", *alone]
        else:
            numbers += [
                f"count(DISTINCT {key}) FILTER (differs AND {of} > 1)" for of in _ROWS_OF_KEY
            ]
        numbers += [f"count(*) FILTER ({both} AND {c})" for c in columns]
        firsts = [f"min({key}, {limit}) FILTER ({of})" for of in kinds.values()] if limit else []
        firsts += [f"[min({key}) FILTER ({both} AND {c})]" for c in columns] if limit else []
        keys = f"flatten([{', '.join(f'coalesce({of}, [])' for of in firsts)}])"
        self.con.execute(
            f"CREATE OR REPLACE TEMP TABLE found AS SELECT {', '.join(numbers)}, {keys} AS keys "
            f"FROM {relation}"
        )
        missing, extra, changed, *rest = self.all("SELECT * EXCLUDE (keys) FROM found")[0]
        more = 4 if unique else 2
        if unique and rest[:more] != [*within, missing, extra]:
            return None
        names = [value.names[0] for value in self.values]
        return Found(
            missing, extra, changed, (0, 0) if unique else tuple(rest[:more]),
            dict(zip(names, rest[more:], strict=True)), unique, condition, relation == "kept",
        )  # fmt: skip

    def pairs(self, condition: str, *, unique: bool, wide: bool = True) -> str:
        """Return SQL of pairs of rows, whole ones if wide."""
        left, right = (self._side(i, condition, wide=wide) for i in (0, 1))
        return (self._joined if unique else self._numbered)(left, right, wide=wide)
