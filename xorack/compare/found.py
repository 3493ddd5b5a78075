"""The result of a comparison of files: its first rows, and all rows that differ as Parquet."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xorack.compare.comparison import KIND_SQL, Comparison, Found
from xorack.compare.forms import TIMES, is_nested
from xorack.compare.report import KINDS, Change, DiffReport
from xorack.compare.texts import quoted
from xorack.compare.values import as_json
from xorack.compare.why import COLUMNS, ROWS, Looked, explain_kinds
from xorack.core.explaining import CHARACTERS, Explanation, Term

__all__ = ["FileDifference"]


@dataclass(frozen=True, eq=False)
class FileDifference(DiffReport):
    """What differs between two inputs; `diff_files` returns it.

    Attributes:
        remarks: Remarks on columns for the user, in one line each.
    """

    remarks: list[str]
    _comparison: Comparison = field(repr=False)
    _found: Found = field(repr=False)
    _limit: int = field(repr=False)

    def first(self) -> dict[str, list[dict[str, Any]]]:
        """Return the first rows of each kind by their keys, and one more for each other column."""
        of, rows = self._comparison, {kind: [] for kind in KINDS}  # type: ignore[var-annotated]
        if not (self._limit and self.different):
            return rows
        relation = "kept" if self._found.is_kept else of.some_pairs(self._found, self._limit)
        order = ", ".join([*(f"k{i}" for i in range(len(of.keys))), "n"])
        columns = [
            f"{_shown(f'{side}w.{quoted(name)}', type_)}"
            for side, types in zip("lr", of.types, strict=True)
            for name, type_ in types.items()
        ]
        flags = [f"c{i}" for i in range(len(of.values))]
        firsts = of.first_keys(relation, self._limit)
        sql = (
            f"SELECT l, r, lefts > 1 OR rights > 1, {', '.join([*columns, *flags])} FROM "
            f"{relation} AS p "
            f"SEMI JOIN ({firsts}) AS k ON ({of.same_keys('p', 'k')}) WHERE differs "
            f"ORDER BY {order}"
        )
        unseen = set(self.changed_columns)
        for has_left, has_right, several, *values in of.all(sql):
            ends = len(of.types[0]), len(of.types[0]) + len(of.types[1])
            left = _row(of.types[0], values[: ends[0]])
            right = _row(of.types[1], values[ends[0] : ends[1]])
            if not (has_left and has_right):
                kind, row = ("missing", left) if has_left else ("extra", right)
                rows[kind] += [row] * (len(rows[kind]) < self._limit)
                continue
            names = [
                v.names for v, differs in zip(of.values, values[ends[1] :], strict=True) if differs
            ]
            if len(rows["changed"]) < self._limit or unseen & {name for name, _ in names}:
                unseen -= {name for name, _ in names}
                shown_key = {v.names[0]: left[v.names[0]] for v in of.keys}
                pair = {name: [left[name], right[other]] for name, other in names}
                whole = {"left": left, "right": right} if several else {}
                rows["changed"].append({"key": shown_key, "columns": pair, **whole})
        return rows

    def changes(self) -> dict[str, Change]:
        """Return of each changed column how many rows have nulls, and the greatest difference."""
        return {name: self._found.columns[name] for name in self.changed_columns}

    def explain(self) -> dict[str, Explanation]:
        """Say what the rows of each kind have in common, and all others do not.

        Some 10,000 rows of each kind are looked at, and as many of each side.
        """
        if not self.different:
            return {}
        of = self._comparison
        if not self._found.is_kept:  # all rows of some keys, so their pairs are those of all rows
            of.keep("looked", of.pairs(self._found.sampled, unique=self._found.unique))
        sides = [self._looked(side) for side in (0, 1)]
        changed = [v.names[1] for v in of.values if v.names[0] in self.changed_columns]
        return explain_kinds(self, sides, changed)

    def _looked(self, side: int) -> Looked:
        of, row = self._comparison, f"{'lr'[side]}w."
        columns = dict([*_comparable(of.types[side]).items()][:COLUMNS])

        def rows(relation: str, prefix: str) -> list[dict[str, Any]]:
            shown = ", ".join(
                sql.format(f"{prefix}{quoted(name)}") for name, sql in columns.items()
            )
            read = of.all(f"SELECT {shown} FROM {relation} LIMIT {ROWS}") if columns else []
            return [dict(zip(columns, values, strict=True)) for values in read]

        def count(terms: Sequence[Term]) -> int:
            tests = []
            for name, low, high in terms:
                one, other = (_literal(value, of.types[side][name]) for value in (low, high))
                test = (
                    f"IS NOT DISTINCT FROM {one}" if low is high else f"BETWEEN {one} AND {other}"
                )
                tests.append(f"{columns[name].format(quoted(name))} {test}")
            return int(of.all(f"SELECT count(*) FROM side{side} WHERE {' AND '.join(tests)}")[0][0])

        pairs, all_rows = "looked", ("looked WHERE " + "lr"[side], row)
        if self._found.is_kept:
            pairs, all_rows = "kept", (f"rows{side} WHERE {of.on(self._found.sampled)}", "w.")
        kinds = {
            kind: rows(f"{pairs} WHERE {condition} ORDER BY hash({of.key})", row)
            for kind, condition in KIND_SQL.items()
            if kind != ("extra", "missing")[side] and getattr(self.counts, kind)
        }
        return Looked(kinds, rows(*all_rows), count)

    def _key_types(self, i: int) -> list[Any]:
        of = self._comparison
        return [of.types[side][of.keys[i].names[side]] for side in (0, 1)]

    def write(self, folder: str) -> None:
        """Write all rows that differ to a folder, as Parquet: a folder in it for each kind."""
        con = self._comparison.con
        self._keep_pairs()
        for kind, query in self._queries().items():
            described = con.execute(f"SELECT * FROM ({query}) LIMIT 0").description
            columns = ", ".join(  # Parquet lacks HUGEINT: it would be a double
                f"{_cast(quoted(column), type_, _HUGEINT, 'DECIMAL(38,0)')} AS {quoted(column)}"
                for column, type_, *_ in described
            )
            path = Path(folder, kind)
            path.mkdir(parents=True)
            file = _text(str(path / "rows.parquet"))
            con.execute(f"COPY (SELECT {columns} FROM ({query})) TO {file} (FORMAT parquet)")

    def _keep_pairs(self) -> None:
        """Make the table ``pairs``: all pairs that differ, of keys with several rows every pair."""
        of = self._comparison
        keys = ", ".join(f"k{i}" for i in range(len(of.keys)))
        pairs = of.pairs(self._found.condition, unique=self._found.unique)
        pairs = "FROM kept" if self._found.is_kept else pairs
        chosen = "WHERE differs" if self._found.unique else (
            f"QUALIFY bool_or(differs) OVER (PARTITION BY {keys})")  # fmt: skip
        of.con.execute(f"CREATE OR REPLACE TEMP TABLE pairs AS SELECT * FROM ({pairs}) {chosen}")

    def _queries(self) -> dict[str, str]:
        """Return SQL on ``pairs`` of the rows of each kind, with the columns that are written."""
        of, names = self._comparison, self._key_names()
        left_key = ", ".join(f"lw.{quoted(name)} AS {quoted(name)}" for name in names)
        columns, left, right, left_count, right_count = (
            quoted(_free(name, names))
            for name in ("columns", "left", "right", "left_count", "right_count")
        )
        flags = [f"CASE WHEN c{i} THEN {_text(v.names[0])} END" for i, v in enumerate(of.values)]
        changed = f"list_filter([{', '.join(flags)}]::VARCHAR[], lambda x: x IS NOT NULL)"
        values = ["NULL", "NULL"]
        for side in (0, 1) if of.values else ():
            fields = (
                f"{_text(v.names[0])}: {'lr'[side]}w.{quoted(v.names[side])}" for v in of.values
            )
            values[side] = f"{{{', '.join(fields)}}}"
        right_key = [f"rw.{quoted(v.names[1])}" for v in of.keys]
        distinct = [
            f"k{i}" if is_nested(self._key_types(i)[1]) else sql for i, sql in enumerate(right_key)
        ]
        first_key = ", ".join(f"first({sql}) AS {quoted(name)}" for name, sql in names.items())
        pair_key = ", ".join(f"p.k{i}" for i in range(len(of.keys)))
        several = f"any_value(lefts) AS {left_count}, any_value(rights) AS {right_count}"
        counts = "coalesce(lefts, 0) AS lefts, coalesce(rights, 0) AS rights"
        return {
            "missing": "SELECT unnest(lw) FROM pairs WHERE r IS NULL",
            "extra": "SELECT unnest(rw) FROM pairs WHERE l IS NULL",
            "changed": f"SELECT {left_key}, {changed} AS {columns}, {values[0]} AS {left}, "
            f"{values[1]} AS {right} FROM pairs WHERE l AND r AND differs",
            "duplicates": f"SELECT {first_key}, {several} FROM (SELECT * REPLACE ({counts}) FROM "
            f"pairs) AS p WHERE p.lefts > 1 OR p.rights > 1 GROUP BY {pair_key}",
            "repair": "SELECT unnest(lw) FROM pairs WHERE l",
            "deletions": f"SELECT DISTINCT ON ({', '.join(distinct)}) {', '.join(right_key)} FROM "
            "pairs WHERE coalesce(lefts, 0) = 0",
        }

    def _key_names(self) -> dict[str, str]:
        """Return SQL of the columns of the key: of the left row if there is one.

        Columns of two types have their common form, times a text.
        """
        found = {}
        for i, value in enumerate(self._comparison.keys):
            one, other = self._key_types(i)
            cast = "" if one == other else "::VARCHAR"
            own = (
                f"{side}w.{quoted(name)}{cast}"
                for side, name in zip("lr", value.names, strict=True)
            )
            is_own = one == other or one.id in TIMES
            found[value.names[0]] = f"coalesce({', '.join(own)})" if is_own else f"k{i}"
        return found


def _free(name: str, taken: dict[str, str]) -> str:
    while name.lower() in {one.lower() for one in taken}:
        name += "_"
    return name


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


_HUGEINT = r"U?HUGEINT(?=[],)[]|$)"
_DECIMAL = r"DECIMAL\(\d+,\d+\)"


def _cast(value: str, type_: Any, one: str, other: str) -> str:
    """Return SQL of a value whose types of a pattern are another, also inside of it."""
    new = re.sub(rf'("(?:[^"]|"")*")|\b{one}', lambda found: found[1] or other, str(type_))
    return value if new == str(type_) else f"{value}::{new}"


def _literal(value: Any, type_: Any) -> str:
    """Return SQL of a value; parameters would make DuckDB import pandas, a second of CPU."""
    if value is None:
        return "NULL"
    text = _text(str(as_json(value))).replace("\0", "' || chr(0) || '")
    return f"({text})::{type_}"


def _comparable(types: dict[str, Any]) -> dict[str, str]:
    """Return SQL of values that Python can compare, by column, long texts cut; for some is none."""
    time = "least(greatest(({{}})::{0}, '0001-01-01'::{0}), '9999-12-31'::{0})"
    known = dict.fromkeys(TIMES, time.format("TIMESTAMP"))
    known |= {"date": time.format("DATE"), "varchar": f"left({{}}, {CHARACTERS})"}
    return {
        name: known.get(type_.id, "{}")
        for name, type_ in types.items()
        if not is_nested(type_) and type_.id != "blob"
    }


def _shown(value: str, type_: Any) -> str:
    """Return SQL of a value that Python can show: nested ones as JSON, times as text."""
    if is_nested(type_):
        return f"to_json({_cast(value, type_, _DECIMAL, 'VARCHAR')})::VARCHAR"
    return f"{value}::VARCHAR" if type_.id in TIMES | {"uuid", "time", "interval"} else value


def _row(types: dict[str, Any], values: Sequence[Any]) -> dict[str, Any]:
    pairs = zip(types.items(), values, strict=True)
    return {
        name: json.loads(value) if is_nested(type_) and value is not None else value
        for (name, type_), value in pairs
    }
