"""What rows that differ have in common, and how far values are apart: the same on both engines."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal

import duckdb
import pytest

from xorack.compare.engine import diff_files
from xorack.compare.inputs import ReadOptions
from xorack.compare.options import CompareOptions, connect
from xorack.spark import diff

TYPES = {
    "id": "INT", "line": "INT", "land": "VARCHAR", "price": "DECIMAL(9,2)", "weight": "DOUBLE",
    "day": "DATE", "at": "TIMESTAMP", "tags": "VARCHAR[]",
}  # fmt: skip
ROWS = [
    {
        "id": n,
        "line": n % 7,
        "land": (None, "de", "fr", "us")[n % 4],
        "price": Decimal(n % 90),
        "weight": float("nan") if n % 11 == 3 else n / 3,
        "day": date(2026, 1, 1) + timedelta(n // 100),
        "at": datetime(2026, 1, 1) + timedelta(minutes=n * 7 % 5000),
        "tags": ["a"] * (n % 3),
    }
    for n in range(1200)
]


def without(meets):
    return [row for row in ROWS if not meets(row)]


def with_changes(meets, **values):
    """Return all rows, some with other values, which may follow from the row."""
    return [
        row | {n: v(row) if callable(v) else v for n, v in values.items()} if meets(row) else row
        for row in ROWS
    ]


WHY = {
    "a null": (
        without(lambda r: r["land"] is None),
        "All 300 missing rows have land is null (25 % of all rows, all of which are missing)",
    ),
    "a NaN": (
        without(lambda r: r["weight"] != r["weight"]),
        "All 109 missing rows have weight = nan (9.1 % of all rows, all of which are missing)",
    ),
    "a day": (
        without(lambda r: r["day"] == date(2026, 1, 4)),
        "All 100 missing rows have day = 2026-01-04 (8.3 % of all rows, all of which are missing)",
    ),
    "two columns": (
        without(lambda r: r["line"] == 3 and r["land"] == "de"),
        "All 43 missing rows have line = 3 and land = 'de' (3.6 % of all rows, all of which are "
        "missing)",
    ),
    "rows too many": (
        [*ROWS, *({**row, "id": row["id"] + 5000, "land": "xx"} for row in ROWS[:50])],
        "All 50 extra rows have land = 'xx' (4 % of all rows, all of which are extra)",
    ),
    "long texts": (
        [*ROWS, *({**row, "id": row["id"] + 5000, "land": "y" * 999} for row in ROWS[:50])],
        f"All 50 extra rows have land = '{'y' * 100}'... (4 % of all rows, all of which are extra)",
    ),
    "changes where the left has a value": (
        with_changes(lambda r: r["line"] == 5, price=lambda r: r["price"] + 1),
        "All 171 changed rows have line = 5 (14.2 % of all rows, all of which are changed)",
    ),
    "changes to one value": (
        with_changes(lambda r: r["id"] % 13 == 4, land="zz"),
        "All 92 changed rows have land on the right = 'zz' (7.7 % of all rows, all of which are "
        "changed)",
    ),
    "nothing": (without(lambda r: r["id"] % 101 == 7), None),
    "all rows": ([], None),
    "equal": (ROWS, None),
}  # fmt: skip
CHANGES = {
    "price": (lambda r: r["price"] + r["id"] % 5, (960, 0, 0, 4.0, "")),
    "weight": (lambda r: None if r["id"] % 11 == 3 else r["weight"], (109, 0, 109, None, "")),
    "land": (lambda r: r["land"] or "none", (300, 300, 0, None, "")),
    "at": (lambda r: r["at"] + timedelta(seconds=r["id"] % 2), (600, 0, 0, 1.0, "s")),
    "day": (lambda r: date(2026, 1, 1), (1100, 0, 0, 11 * 86400.0, "s")),
}


def write(rows, path):
    described = ", ".join(f'"{name}" {type_}' for name, type_ in TYPES.items())
    with duckdb.connect() as con:
        con.execute(f"CREATE TABLE rows ({described})")
        if rows:
            marks = ", ".join("?" * len(TYPES))
            con.executemany(f"INSERT INTO rows VALUES ({marks})", [[*row.values()] for row in rows])
        con.execute(f"COPY rows TO '{path}' (FORMAT parquet)")
    return str(path)


@pytest.fixture(scope="module")
def on_both(spark, tmp_path_factory):
    """A function that compares rows with `ROWS`; returns what both engines say, once alike."""
    folder = tmp_path_factory.mktemp("why")
    left = write(ROWS, folder / "left.parquet")
    count = iter(range(100))

    def compare(rows, **options):
        right = write(rows, folder / f"{next(count)}.parquet")
        with connect() as con:
            how = CompareOptions(["id"], **options)
            found = diff_files(con, [left, right], [ReadOptions()] * 2, how)
            files = found.explain(), found.changes()
        with diff(*map(spark.read.parquet, (left, right)), key=["id"], **options) as found:
            frames = found.explain(), found.changes()
        assert frames[1] == files[1]
        assert {k: w.sentence for k, w in frames[0].items()} == {
            kind: why.sentence for kind, why in files[0].items()
        }
        return files

    return compare


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n != "changes to one value")) for n in WHY]
)
def test_why(on_both, name):
    rows, sentence = WHY[name]
    why, _ = on_both(rows)
    assert [one.sentence for one in why.values()] == ([sentence] if sentence else [])


@pytest.mark.slow
def test_changes(on_both):
    changed = with_changes(lambda _: True, **{name: of for name, (of, _) in CHANGES.items()})
    _, changes = on_both(changed)
    assert changes == {name: told for name, (_, told) in CHANGES.items()}
