"""Keys of another type or form, and evidence in wrong columns.

A cast or a reader may give a unit column another type in the output, or its values another form. If
the sums of all units agree in this form, the form is the entire difference, and no row is missing.
So the forms are tried before rows are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import combinations, permutations, product
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as F

from xorack.core.text import plural
from xorack.spark import units
from xorack.spark.folding import Totals, of_units
from xorack.spark.messages import plain_errors
from xorack.spark.storage import files_read

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from xorack.spark.evidence import Evidence
    from xorack.spark.record import Header
    from xorack.spark.run import RowNames

_EQUAL_UNITS = ({*units.INTEGERS, "boolean"}, {"string", "decimal", "binary"})
"""Groups of types in which equal values are equal units."""
_TEXT = ("string({c})", "a string")
_NUMBER = ("coalesce(try_cast({c} AS bigint), 0L)", "an integer")
_DATE = ("coalesce(try_cast({c} AS date), date'1970-01-01')", "a date")
_TIME = ("coalesce(try_cast({c} AS timestamp), timestamp'1970-01-01')", "a timestamp")
_SIDES = ("what was started", "the output")
_SAME_TYPE = ("without", "in ")
"""The first words of forms that keep the type."""
_ZONE = "in another time zone than that of the session"
_FORMS = {
    "string": [
        _NUMBER,
        ("regexp_replace({c}, '^0+(?=.)', '')", "without leading zeros"),
        ("rtrim({c})", "without spaces at its end"),
        ("trim({c})", "without spaces around it"),
        ("lower({c})", "in lower case"),
        ("upper({c})", "in upper case"),
        _DATE,
        _TIME,
    ],
    "decimal": [("string({c})", "a string with all decimals"), _NUMBER],
    "date": [_TEXT, ("timestamp({c})", "a timestamp")],
    "timestamp": [
        _TEXT,
        ("date({c})", "a date"),
        ("to_utc_timestamp({c}, current_timezone())", _ZONE),
        ("from_utc_timestamp({c}, current_timezone())", _ZONE),
    ],
}
"""For each type, the forms that a value may have taken, in SQL and in words; else `_TEXT`."""


def types_of(frame: DataFrame, names: Sequence[str]) -> dict[str, str]:
    """Return the types of columns, as SQL writes them."""
    return {name: units.column_named(frame, name)[1].simpleString() for name in names}


def other_keys(
    rows: RowNames, header: Header, evidence: Evidence, source: DataFrame, misplaced: str
) -> str:
    """Say in one sentence how the keys of an output differ; return an empty text if unknown.

    `misplaced` is the sentence of `evidence_faults`.
    """
    totals, outputs = evidence.totals, evidence.outputs
    started = Totals(*(header["summary"][name] for name in ("xor", "count", "sum")))
    before = dict(zip(header["unit"], header["types"], strict=True))
    marks = (rows.unit_name, *rows.evidence_names)
    plain = [
        frame
        for frame in outputs
        if units.has_columns(frame, rows.unit)
        and not any(units.has_columns(frame, [name]) for name in marks)
    ]
    for frame in plain:
        if problem := _other_types(before, frame, rows.unit, _EQUAL_UNITS):
            return problem
    for frame in outputs:
        if difference := _chain_difference(rows, header, frame, source):
            return difference
    # If the counts differ, no form explains the difference, because rows are missing or surplus.
    if misplaced or totals.count != started.count:
        return misplaced
    problem = ""
    if units.has_columns(source, rows.unit):
        problem = _form(rows, source, (started, totals), _SIDES)
    if not problem and len(outputs) == len(plain) == 1:
        problem = _form(rows, plain[0], (totals, started), _SIDES[::-1])
    return problem


def _chain_difference(rows: RowNames, header: Header, frame: DataFrame, source: DataFrame) -> str:
    """Say which type or form of a chain column makes the output's chains unknown."""
    started = rows.record.chains(header).select("tag")
    if not units.has_columns(frame, rows.chain) or _are_among(rows, frame, started) is not False:
        return ""
    if problem := _other_types(header["chain_types"], frame, rows.chain, [{*units.INTEGERS}]):
        return problem
    types = types_of(frame, rows.chain)
    forms = [(changed, text) for changed, text in _forms(types) if text.startswith(_SAME_TYPE)]
    sides = (source, frame) if _are_among(rows, source, started) else (frame,)
    for side, (changed, text) in product(sides, forms):
        sqls = {name: F.expr(sql.format(c=units.quoted(name))) for name, sql in changed.items()}
        other = side.withColumns(sqls)
        if side is source and _are_among(rows, frame, other):
            return _equal_form(changed, types, text, _SIDES)
        if side is frame and _are_among(rows, other, started):
            return _equal_form(changed, types, text, _SIDES[::-1])
    return ""


def _are_among(rows: RowNames, frame: DataFrame, known: DataFrame) -> bool | None:
    """Return whether all chains of a frame are known.

    Return None if the frame's chains cannot be read.
    """

    def tags(frame: DataFrame) -> DataFrame:
        chains = units.chain_columns(frame, rows.chain)
        keys = [f"c{i}" for i in range(len(chains))]
        return units.with_tag(frame.select(*chains).distinct(), rows.prefix, keys)

    with suppress(Exception):  # the chain columns have nulls or unsuitable types
        known = known if known.columns == ["tag"] else tags(known)
        return not tags(frame).join(known, "tag", "left_anti").take(1)
    return None


def _form(
    rows: RowNames, frame: DataFrame, both: tuple[Totals, Totals], sides: Sequence[str]
) -> str:
    """Say in which form the units of a frame, which have the first totals, have the others."""
    own, totals = both
    types = types_of(frame, rows.unit)
    forms, keys = [*_forms(types)], {name: f"k{i}" for i, name in enumerate(types)}
    swaps = [*_swaps(types)]
    wide = frame.select(
        *(units.column_named(frame, name)[0].alias(key) for name, key in keys.items())
    )
    sums = [F.count(F.lit(1)), *_sums(rows, wide, [*keys.values()])]
    for number, (changed, _) in enumerate(forms):
        made = {name: f"v{number}{keys[name]}" for name in changed}
        sqls = {made[name]: F.expr(sql.format(c=keys[name])) for name, sql in changed.items()}
        wide = wide.withColumns(sqls)
        parts = [made.get(name, key) for name, key in keys.items()]
        sums += _sums(rows, wide, parts)
    for first, second in swaps:
        swapped = {**keys, first: keys[second], second: keys[first]}
        sums += _sums(rows, wide, [*swapped.values()])
    with plain_errors():
        count, *values = wide.agg(*sums).first() or (0,)
    unchanged, *results = (
        Totals(x or 0, count, s or 0) for x, s in zip(values[::2], values[1::2], strict=True)
    )
    if unchanged != own or own == totals:
        return ""
    for (changed, text), sum_ in zip(forms, results, strict=False):
        if sum_ == totals:
            return _equal_form(changed, types, text, sides)
    for (first, second), sum_ in zip(swaps, results[len(forms) :], strict=True):
        if sum_ == totals:
            return (
                f"the unit columns {first} and {second} are swapped in {_SIDES[1]}, because an "
                "INSERT takes columns by position: list their names in it"
            )
    return ""


def _sums(rows: RowNames, frame: DataFrame, columns: Sequence[str]) -> list[Column]:
    xor, _, upper = of_units(units.unit_column(frame, rows.namespace, columns))
    return [F.bit_xor(xor), F.sum(upper)]


def _forms(types: Mapping[str, str]) -> Iterator[tuple[dict[str, str], str]]:
    """Yield the forms that a column or all columns may have, as SQL by column, and in words."""
    for name, type_ in types.items():
        for sql, text in _FORMS.get(type_.partition("(")[0], [_TEXT]):
            yield {name: sql}, text
    texts = {name: _TEXT[0] for name, type_ in types.items() if type_ != "string"}
    if len(texts) > 1:
        yield texts, "a string"


def _other_types(
    before: Mapping[str, str], frame: DataFrame, names: Sequence[str], equal: Sequence[set[str]]
) -> str:
    """Say which columns have another type than before, unless their values are equal."""
    problems = []
    for name, type_ in types_of(frame, names).items():
        kinds = {type_.partition("(")[0], before[name].partition("(")[0]}
        if len(kinds) == 1 or any(kinds <= same for same in equal):
            continue
        fix = (
            f".withColumn({name!r}, F.col({name!r}).cast({before[name]!r})) before the write fixes "
            "it if no precision is lost"
        )
        if any(f"/{name}=" in file for file in files_read(frame)):
            fix = (
                "Spark infers the types of partition columns, unless you pass the output as "
                "spark.read.schema(…).parquet(…)"
            )
        problems.append(
            f"{name} is {before[name]} in {_SIDES[0]} and {type_} in {_SIDES[1]}: {fix}"
        )
    return "; ".join(problems)


def _swaps(types: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of columns whose values an INSERT may have swapped."""
    kinds = {name: type_.partition("(")[0] for name, type_ in types.items()}
    for first, second in combinations(types, 2):
        if kinds[first] == kinds[second] or {kinds[first], kinds[second]} <= {*units.INTEGERS}:
            yield first, second


def _equal_form(
    changed: Mapping[str, str], types: Mapping[str, str], text: str, sides: Sequence[str]
) -> str:
    name, sql = next(iter(changed.items()))
    line = f".withColumn({name!r}, F.expr({sql.format(c=units.quoted(name))!r}))"
    which, (here, there) = ", ".join(changed), sides
    return f"{which} is {types[name]} in {here} and {text} in {there}: {line} makes both equal"


class EvidenceFaults(NamedTuple):
    """Sentences about wrong columns of evidence, which are empty if nothing is wrong.

    Attributes:
        misplaced: Explains the entire difference by swapped or wrongly summed columns.
        others: Names a problem that is not missing rows.
    """

    misplaced: str = ""
    others: str = ""


def evidence_faults(
    rows: RowNames, outputs: Sequence[DataFrame], started: Totals
) -> EvidenceFaults:
    """Find what is wrong with the columns of evidence, in one Spark job for each output."""
    names = rows.evidence_names
    longs = [f"bigint({units.quoted(name)})" for name in names]
    sqls = [f"bit_xor({long})" for long in longs]
    sqls += [f"sum(CAST({long} AS decimal(20)))" for long in longs]
    sqls += [f"min({longs[1]})", f"count_if({longs[1]} IS NULL)"]
    found = EvidenceFaults()
    for frame in _with_evidence(rows, outputs):
        with plain_errors():
            row = frame.agg(*map(F.expr, sqls)).first() or (None,) * 8
        xors, sums = (dict(zip(names, values, strict=True)) for values in (row[:3], row[3:6]))
        misplaced = found.misplaced or _misplaced(names, xors, sums, started)
        found = EvidenceFaults(misplaced, found.others or _other_fault(names[1], *row[6:]))
    return found


def _misplaced(
    names: Sequence[str], xors: Mapping[str, Any], sums: Mapping[str, Any], started: Totals
) -> str:
    for x, n, s in permutations(names):
        if (x, n, s) != names and Totals(xors[x], sums[n], sums[s]) == started:
            return (
                f"the columns of the evidence are swapped: {x} has the XOR, {n} the count and "
                f"{s} the sum; an INSERT takes columns by position: list their names in it"
            )
    rest = (sums[names[1]], sums[names[2]])
    if rest == (started.count, started.sum) and xors[names[0]] != started.xor:
        return f"{names[0]} was summed: use bit_xor for it, as rows.evidence(frame) does"
    return ""


def _other_fault(name: str, least: int | None, without: int | None) -> str:
    if least is not None and least < 0:
        return f"{name} has {least:,}, not a count: are columns swapped?"
    if without:
        has, them = ("has", "it") if without == 1 else ("have", "them")
        which = f"{plural(without, 'row')} of the output {has} no evidence"
        return f"{which}: did another job write {them}?"
    return ""


def _with_evidence(rows: RowNames, outputs: Sequence[DataFrame]) -> Sequence[DataFrame]:
    has = [units.has_columns(frame, rows.evidence_names) for frame in outputs]
    return outputs if all(has) else ()
