"""Files on DuckDB have the differences that the plain model finds, and broken engines do not."""

from __future__ import annotations

import math
from collections import defaultdict
from decimal import Decimal

import duckdb
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.spark.diff_model import Columns
from tests.spark.diff_tables import CASE, FRACTIONS, LEAVES, Cases, judge, schemas
from xorack.compare import comparison, sharing
from xorack.compare.compared import Value
from xorack.compare.comparison import Comparison
from xorack.compare.engine import diff_files
from xorack.compare.inputs import ReadOptions
from xorack.compare.options import CompareOptions, connect
from xorack.compare.texts import quoted
from xorack.errors import StateError

PROOF = settings(
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
    deadline=None,
    derandomize=True,
)
TYPES = {"timestamp": "TIMESTAMPTZ", "timestamp_ntz": "TIMESTAMP", "binary": "BLOB"}


def write(cases, side, path):
    """Write the rows of a side as Parquet."""
    columns = [(CASE, "int"), *((c.name, c.kind.types[side]) for c in cases.columns[side])]
    described = ", ".join(
        f"{quoted(name)} {TYPES.get(type_, type_.partition(' ')[0])}" for name, type_ in columns
    )
    marks = ", ".join("?" * len(columns))
    with duckdb.connect() as con:
        con.execute(f"CREATE TABLE rows ({described})")
        if cases.rows[side]:
            con.executemany(f"INSERT INTO rows VALUES ({marks})", cases.rows[side])
        con.execute(f"COPY rows TO '{path}' (FORMAT parquet)")


def by_case(path, key=0):
    """Read rows as dictionaries, by the case; columns behind a key have names of their own."""
    cases = defaultdict(list)
    with duckdb.connect() as con:
        read = con.execute(f"SELECT * FROM '{path}'")
        names = [column[0] for column in read.description]
        if key:
            names[key:] = [f"?{name.rstrip('_')}" for name in names[key:]]
        for row in read.fetchall():
            cases[row[0]].append(dict(zip(names, row, strict=True)))
    return cases


def prove(folder, schema, cases, tolerance=None):
    paths = [f"{folder}/{side}.parquet" for side in (0, 1)]
    for side, path in enumerate(paths):
        write(cases, side, path)
    key = [CASE, *(column.name for column in schema.key)]
    ignored = [column.name for column in schema.values[: schema.ignored]]
    values = [column.name for column in schema.values[schema.ignored :]]
    columns = Columns(key, values, dict.fromkeys(values, tolerance) if tolerance else {})
    chosen = {"values": values} if schema.named else {"ignore": ignored}
    with connect() as con:
        options = CompareOptions(key, **chosen, tolerance=tolerance)
        found = diff_files(con, paths, [ReadOptions()] * 2, options)
        first, changes = found.first(), found.changes()
        found.explain()
        found.write(f"{folder}/found")
    frames = {
        name: by_case(
            f"{folder}/found/{name}/*.parquet", len(key) * (name in ("changed", "duplicates"))
        )
        for name in ("missing", "extra", "changed", "duplicates", "repair")
    }
    decimals = [column.name for column in schema.key if "decimal" in column.kind.types[0]]
    for row in (row for rows in frames["duplicates"].values() for row in rows):
        # A text if no decimal has the digits of both types.
        row.update({name: row[name] and Decimal(row[name]) for name in decimals})
    judge(schema, cases, columns, (by_case(paths[0]), by_case(paths[1])), frames, found)
    for kind in ("missing", "extra", "changed"):
        assert len(first[kind]) >= min(10, getattr(found.counts, kind))
    assert {name for row in first["changed"] for name in row["columns"]} == {*found.changed_columns}
    changed = [row for rows in frames["changed"].values() for row in rows]
    for name, change in changes.items():
        rows = [row for row in changed if name in row["?columns"]]
        nulls = [sum(row[side][name] is None for row in rows) for side in ("?left", "?right")]
        assert list(change[:3]) == [len(rows), *nulls]


WAYS = [
    {},
    {"_SAMPLED_FROM_ROWS": -1},
    {"_MANY": -1},
    {"_KEPT_ROWS": -1},
    {"_KEPT_ROWS": -1, "_SAMPLE_ROWS": 1},
    {"_MOST_ROWS": math.inf},
    {"_MOST_ROWS": math.inf, "_KEPT_ROWS": -1},
]
"""What makes the engine go each of its ways."""


def prove_many(make, examples, kinds=LEAVES, tolerance=None):
    """Compare random tables in each way that the engine has."""

    @settings(PROOF, max_examples=examples)
    @given(
        schema=schemas(keys=LEAVES, values=kinds),
        seed=st.integers(0, 2**32),
        unique=st.booleans(),
    )
    def run(schema, seed, unique):
        cases = Cases(schema, seed, cases=20, unique=unique or tolerance is not None)
        prove(make("files"), schema, cases, tolerance)

    for way in WAYS:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in way.items():
                patch.setattr(sharing if hasattr(sharing, name) else comparison, name, value)
            run()


@pytest.mark.parametrize("examples", [2, pytest.param(15, marks=pytest.mark.slow)])
def test_random_files(tmp_path_factory, examples):
    prove_many(tmp_path_factory.mktemp, examples)


@pytest.mark.parametrize("examples", [2, pytest.param(6, marks=pytest.mark.slow)])
def test_tolerance(tmp_path_factory, examples):
    prove_many(tmp_path_factory.mktemp, examples, FRACTIONS, 0.5)


def changed(name, *pairs, of=Comparison):
    """Return a method whose SQL has other words in the place of some."""
    real = getattr(of, name)

    def broken(*given, **options):
        sql = real(*given, **options)
        for one, other in pairs:
            assert one in sql or not sql, (one, sql)
            sql = sql.replace(one, other)
        return sql

    return of, name, broken


MUTANTS = {
    "equal nulls differ": changed("differs", ("IS DISTINCT FROM", "<>"), of=Value),
    "null keys do not match": changed("_joined", ("IS NOT DISTINCT FROM", "=")),
    "rows of one side cancel out": changed("_numbered", (", s) AS copy", ") AS copy")),
    "rows that differ are numbered with equal ones": changed("_numbered", (", same, s ", ", s ")),
    "a join is no proof of unique keys": (
        Comparison,
        "_count",
        lambda *given, unique, real=Comparison._count: real(*given, unique=unique)._replace(
            unique=unique
        ),
    ),
    "a hash without the last column": (
        Comparison,
        "hash",
        lambda self, side, values, real=Comparison.hash: real(self, side, [*values][:-1] or values),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_proof_catches(tmp_path_factory, monkeypatch, mutant):
    monkeypatch.setattr(*MUTANTS[mutant])
    with pytest.raises((AssertionError, StateError, duckdb.Error)):
        prove_many(tmp_path_factory.mktemp, 6)
