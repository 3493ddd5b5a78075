"""The comparison of files, on DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from xorack.compare import texts
from xorack.compare.columns import Side, limits, match
from xorack.compare.compared import Value
from xorack.compare.comparison import Comparison
from xorack.compare.forms import (
    FLOATS,
    INTEGERS,
    TIMES,
    canonical_forms,
    digits,
    has_weak_hash,
    shown,
)  # fmt: skip
from xorack.compare.found import FileDifference
from xorack.compare.inputs import Input, ReadOptions, open_inputs
from xorack.compare.messages import one_line, reading
from xorack.compare.options import CompareOptions
from xorack.compare.report import Counts, by_rows
from xorack.compare.texts import Column, quoted
from xorack.core.errors import ArgumentError, StateError

__all__ = ["diff_files"]


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
    _check_names(inputs, options)
    of_views, remarks = _make_views(con, inputs, pairs, options)
    types = [(of_views[0][a.name], of_views[1][b.name]) for a, b in pairs]
    compared = [_compared(pair, of, inputs, options) for pair, of in zip(pairs, types, strict=True)]
    described = con.execute(f"SELECT {', '.join(v.forms[0] for v in compared)} FROM side0 LIMIT 0")
    forms = [form[1] for form in described.description]
    compared = [
        one._replace(has_weak_hash=has_weak_hash(form))
        for one, form in zip(compared, forms, strict=True)
    ]
    count = len(matched.keys)
    given = limits(sides[0], matched.values, options.tolerance, _kind_of(pairs, types))
    values = [
        one._replace(limit=given.get(one.names[0]), unit=unit, exact=exact)
        for one, (unit, exact) in zip(compared, map(_numbers_of, types, forms), strict=True)
    ][count:]
    changed_types = {
        left.name: (shown(of[0]), shown(of[1]))
        for (left, _), of in zip(pairs, types, strict=True) if of[0] != of[1]
    }  # fmt: skip
    comparison = Comparison(con, inputs, of_views, compared[:count], values)
    with reading(f"{names[0]}, {names[1]}"):
        totals, found = comparison.compare()
    kinds = found.missing, found.extra, found.changed
    counts = Counts(
        totals[0], totals[1], totals[0] - kinds[0] - kinds[2], *kinds, *found.duplicates
    )
    key_names = tuple((left.name, right.name) for left, right in matched.keys)
    changed = by_rows({name: change.rows for name, change in found.columns.items()})
    return FileDifference(
        counts, changed, matched.left_only, matched.right_only, key_names,
        changed_types, remarks, comparison, found, options.limit,
    )  # fmt: skip


def _check_names(inputs: Sequence[Input], options: CompareOptions) -> None:
    """Check that columns exist that have an option of their values."""
    known = {c.name.lower() for one in inputs for c in one.columns}
    for option, every in (("text", set()), ("ignore-case", {"*"}), ("ignore-blanks", {"*"})):
        names = getattr(options, option.replace("-", "_"))
        if unknown := [name for name in names if name.lower() not in known | every]:
            raise ArgumentError(option, problem=f"column {unknown[0]} is in neither input")


def _make_views(
    con: Any, inputs: Sequence[Input], pairs: Sequence[Any], options: CompareOptions
) -> tuple[list[dict[str, Any]], list[str]]:
    """Make the views `side0` and `side1`, whose columns have their types; return these."""
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
    keep = {name.lower() for name in options.text}
    remarks = [
        f"column {one.name} of {of.name} is read as {shown(one.type)}: {what} are rounded"
        for pair in pairs
        for one, of in zip(pair, inputs, strict=True)
        if (what := of.rounded.get(one.name.lower()))
    ]
    expressions: list[dict[str, str]] = [{}, {}]
    for pair in pairs:
        of = [texts.Side(pair[i], scanned[i].get(pair[i].name), inputs[i].name,
                         inputs[i].empty_is_null) for i in (0, 1)]  # fmt: skip
        is_text = any(one.name.lower() in keep for one in pair)
        *both, found_remarks = texts.fit(of[0], of[1], keep=is_text)
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
            relation = f"SELECT * FROM ({relation}) AS w{n} WHERE ({where}\n)"
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


def _compared(
    pair: Any, types: tuple[Any, Any], inputs: Sequence[Input], options: CompareOptions
) -> Value:
    forms = canonical_forms(pair[0].name, *types)
    trimmed = "nullif(trim({}), '')" if any(one.empty_is_null for one in inputs) else "trim({})"
    names = {"*", *(one.name.lower() for one in pair)}
    chosen_of = options.ignore_case, options.ignore_blanks
    made = []
    for form, column in zip(forms, pair, strict=True):
        value = quoted(column.name)
        if {of.id for of in types} <= {"varchar", "enum"}:
            for chosen, sql in zip(chosen_of, ("lower({})", trimmed), strict=True):
                if names & {name.lower() for name in chosen}:
                    value = sql.format(value)
        made.append(form(value))
    return Value((pair[0].name, pair[1].name), (made[0], made[1]))


def _numbers_of(types: tuple[Any, Any], form: Any) -> tuple[str | None, str]:
    """Return the unit of differences of two types, and SQL of exact numbers; None if none is."""
    if {of.id for of in types} <= TIMES:
        own = {"timestamp_ns": "epoch_ns({})::HUGEINT", "hugeint": "{}"}
        micros = "TRY_CAST({} AS TIMESTAMP)" if form.id == "date" else "{}"
        return "s", own.get(form.id, f"epoch_us({micros})::HUGEINT * 1000")
    if form.id in INTEGERS:
        return "", "TRY_CAST({} AS HUGEINT)"
    if form.id == "varchar" and (scales := [of[1] for of in map(digits, types) if of]):
        return "", f"TRY_CAST({{}} AS DECIMAL(38, {max(scales)}))"
    return "" if form.id in {*FLOATS, "decimal"} else None, "{}"


def _kind_of(pairs: Sequence[Any], types: Sequence[tuple[Any, Any]]) -> Callable[[Any], str]:
    of_column = {pair[0].name: of for pair, of in zip(pairs, types, strict=True)}

    def kind_of(pair: tuple[Column, Column]) -> str:
        ids = {of.id for of in of_column[pair[0].name]}
        if ids & (FLOATS | {"decimal"}):
            return "number"
        known = {"integer": INTEGERS, "time": TIMES}
        other = shown(of_column[pair[0].name][0])
        return next((kind for kind, of in known.items() if ids <= of), other)

    return kind_of
