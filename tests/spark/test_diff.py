"""Differences of frames: pairs and counts, columns, tolerance, repairs."""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal

import pytest
from pyspark.sql import functions as F

from tests.spark.conftest import EACH_SESSION
from xorack.compare import sharing
from xorack.errors import ArgumentError, ColumnsError, StateError
from xorack.spark import Counts, diff
from xorack.spark._diff import digests, pairing

pytestmark = pytest.mark.spark

ROWS = "id int, name string, price double"


@pytest.fixture
def frame(session):
    def make(rows, schema=ROWS):
        return session.createDataFrame(list(rows), schema)

    return make


def rows_of(frame):
    return sorted(map(tuple, frame.collect()), key=str)


def rows_of_all(d):
    return sorted(d.all_rows.collect(), key=lambda row: (row["diff"], str(row["left"])))


@EACH_SESSION
def test_kinds(frame):
    left = frame([(1, "a", 1.0), (2, "b", 2.0), (3, "c", None), (None, "n", 0.0)])
    right = frame([(1, "a", 1.0), (2, "B", 2.5), (4, "d", 4.0), (None, "n", -0.0)])
    with diff(left, right, key="id") as d:
        assert d.counts == Counts(4, 4, 2, 1, 1, 1, 0, 0)
        assert rows_of(d.missing) == [(3, "c", None)]
        assert rows_of(d.extra) == [(4, "d", 4.0)]
        assert rows_of(d.changed) == [(2, ["name", "price"], ("b", 2.0), ("B", 2.5))]
        assert [(row["diff"], row["id"], row["columns"]) for row in rows_of_all(d)] == [
            ("C", 2, ["name", "price"]), ("D", 3, None), ("I", 4, None), ("N", 1, None),
            ("N", None, None),
        ]  # fmt: skip
        assert d.missing.schema.simpleString() == left.schema.simpleString()
        assert d.changed.columns == ["id", "columns", "left", "right"]
        assert d.changed_columns == {"name": 1, "price": 1}
        assert rows_of(d.duplicates) == []
        assert not d.equal
        assert d.first() == {
            "missing": [{"id": 3, "name": "c", "price": None}],
            "extra": [{"id": 4, "name": "d", "price": 4.0}],
            "changed": [{"key": {"id": 2}, "columns": {"name": ["b", "B"], "price": [2.0, 2.5]}}],
        }
        assert json.loads(json.dumps(d.summary())) == {
            "equal": False,
            "counts": {
                **{"left": 4, "right": 4, "equal": 2, "missing": 1, "extra": 1, "changed": 1},
                **{"duplicate_keys_left": 0, "duplicate_keys_right": 0},
            },
            "changed_columns": {"name": 1, "price": 1},
            "equal_share": {"name": 0.666667, "price": 0.666667},
            "left_only": [],
            "right_only": [],
            "changed_types": {},
        }


@pytest.mark.slow
def test_text(frame):
    left = frame([(i, "a", 1.0) for i in range(1500)]).withColumn("more", F.lit(1))
    right = frame([(i, "a" if i else "b", 1.0) for i in range(1498)])
    with diff(left, right, key="id") as d:
        assert str(d).splitlines() == [
            "different",
            "  rows on the left      1,500",
            "  rows on the right     1,498",
            "  equal                 1,497",
            "  missing on the right      2",
            "  extra on the right        0",
            "  changed                   1",
            "  duplicate keys, left      0",
            "  duplicate keys, right     0",
            "  changed columns: name (1)",
            "  columns on the left only: more",
        ]


@EACH_SESSION
def test_equal_frames(frame):
    rows = frame([(1, "a", 1.0), (1, "a", 1.0), (None, None, None)])
    with diff(rows, rows.orderBy("price").select("price", "name", "id"), key="id") as d:
        assert d.equal
        assert d.counts == Counts(3, 3, 3, 0, 0, 0, 0, 0)
        assert d.first() == {"missing": [], "extra": [], "changed": []}
        for empty in (d.missing, d.extra, d.changed, d.duplicates, d.repair, d.deletions):
            assert empty.collect() == []
        assert [row["diff"] for row in d.all_rows.collect()] == ["N", "N", "N"]
        assert d.missing.columns == rows.columns
    empty = rows.limit(0)
    with diff(empty, empty, key="id") as d:
        assert d.equal
        assert d.counts.left == 0


DUPLICATES = [
    # Names of the rows of a key on the left and on the right; missing, extra, pairs of changed.
    # Equal rows cancel each other out, one by one.
    ("aa", "a", "a", "", []),
    ("a", "aab", "", "ab", []),
    ("aab", "abb", "", "", ["ab"]),
    # The others are pairs in their order, whatever the frames' is.
    ("dcb", "ae", "d", "", ["ba", "ce"]),
    ("abc", "bcd", "", "", ["ad"]),
    ("a", "", "a", "", []),
    ("", "zz", "", "zz", []),
    ("zz", "zz", "", "", []),
]


@EACH_SESSION
def test_duplicate_keys(frame):
    sides = [
        frame((key, name, 0.0) for key, case in enumerate(DUPLICATES) for name in case[side])
        for side in (0, 1)
    ]
    with diff(*sides, key="id") as d:
        missing, extra = rows_of(d.missing), rows_of(d.extra)
        pairs = [(row["id"], row["left"].name + row["right"].name) for row in d.changed.collect()]
        for key, (_, _, *expected) in enumerate(DUPLICATES):
            found = [[row[1] for row in rows if row[0] == key] for rows in (missing, extra, pairs)]
            assert [*map(sorted, found)] == [*map(list, expected)]
        assert d.counts == Counts(15, 16, 8, 3, 4, 4, 4, 5)
        differ = [key for key, case in enumerate(DUPLICATES) if case[0] != case[1]]
        numbers = [(key, *map(len, DUPLICATES[key][:2])) for key in differ]
        assert rows_of(d.duplicates) == [counts for counts in numbers if max(counts[1:]) > 1]
        letters = Counter(row["diff"] for row in d.all_rows.collect())
        assert letters == {"N": 8, "D": 3, "I": 4, "C": 4}
        assert rows_of(d.deletions) == [(6,)]
        repaired = sides[1].join(d.deletions, "id", "left_anti")
        repaired = repaired.join(d.repair, "id", "left_anti").unionByName(d.repair)
        assert rows_of(repaired) == rows_of(sides[0])


@pytest.mark.slow
def test_equal_duplicates_among_many_keys_that_differ(spark, monkeypatch):
    for module, name, value in (
        (digests, "_BUCKETS", 64),
        (pairing, "_FEW", 0),
        (pairing, "_BROADCAST_HASHES", 0),
    ):
        monkeypatch.setattr(module, name, value)
    many = spark.range(1000, 1300)
    left = many.selectExpr("id", "'x' AS v").union(spark.sql("VALUES (3, 'a'), (3, 'b')"))
    right = many.selectExpr("id", "'y' AS v").union(spark.sql("VALUES (3, 'b'), (3, 'a')"))
    with diff(left, right, key="id") as d:
        assert d.counts == Counts(302, 302, 2, 0, 0, 300, 0, 0)


@pytest.mark.slow
def test_first_rows_with_values_that_python_lacks(spark):
    """A usual sentinel: east of Greenwich, it lies in the year 10000."""
    rows = spark.sql(
        "SELECT 1 AS id, timestamp_seconds(253402300799 + 86400) AS until, 1 AS n,"
        " array(named_struct('x', 1)) AS s"
    )
    with diff(rows, rows.withColumn("n", F.lit(2)), key=["id", "until"]) as d:
        ((until, n),) = [(c["key"]["until"], c["columns"]["n"]) for c in d.first()["changed"]]
        assert until.startswith("+10000-01-01")
        assert n == [1, 2]
    other = rows.withColumn("s", F.expr("array(named_struct('x', 2))"))
    with diff(rows.drop("until"), other.drop("until"), key="id") as d:
        assert d.first()["changed"][0]["columns"]["s"] == [[{"x": 1}], [{"x": 2}]]


@pytest.mark.slow
def test_columns_of_one_side(frame):
    left = frame([(1, 2, 3)], "id int, a int, b int")
    right = frame([(1, 4, 2)], "ID int, c int, A int")
    with diff(left, right, key="id") as d:
        assert (d.left_only, d.right_only, d.equal) == (("b",), ("c",), False)
        assert d.counts.equal == 1
    assert diff(left, right, key="Id", ignore=["b", "C"]).equal
    assert diff(left, right, key="id", values="a").equal
    with diff(left, right, key="id", values=[]) as d:
        assert d.equal
        assert d.changed.schema.simpleString().endswith("left:struct<>,right:struct<>>")


@pytest.mark.slow
def test_case_sensitive_names(frame, configure):
    rows = frame([(1, 2, 3)], "id int, a int, A int")
    with pytest.raises(ColumnsError, match="the left frame has 2 columns a"):
        diff(rows, rows, key="id")
    configure("spark.sql.caseSensitive", "true")
    with diff(rows, rows.withColumn("A", F.lit(4)), key="id") as d:
        assert rows_of(d.changed) == [(1, ["A"], (2, 3), (2, 4))]
    with pytest.raises(ColumnsError, match="column ID is not in the left frame, which has id"):
        diff(rows, rows, key="ID")


ODD = ["columns", "left", "right", "count", "l", "r", "k", "n", "_hash", "a.b", "`", " ", "kind"]


def test_odd_names(spark):
    ones = spark.range(1).select(*(F.lit(i).alias(name) for i, name in enumerate(ODD)))
    twos = ones.toDF(*ODD).withColumn("n", F.lit(70)).withColumn("`", F.lit(71))
    assert twos.columns == ODD
    with diff(ones, twos, key=[*ODD[:3], "a.b"]) as d:
        assert d.changed_columns == {"n": 1, "`": 1}
        assert d.changed.columns == [*ODD[:3], "a.b", "columns_", "left_", "right_"]
        assert d.repair.collect() == ones.collect()
        (row,) = d.first()["changed"]
        assert row["columns"] == {"n": [7, 70], "`": [10, 71]}
        assert row["key"] == {"columns": 0, "left": 1, "right": 2, "a.b": 9}


@pytest.mark.slow
@pytest.mark.parametrize("columns", [301, 1000])
def test_wide_rows(spark, columns):
    left = spark.range(3).selectExpr("id", *(f"id * {i} AS c{i}" for i in range(1, columns)))
    with diff(left, left.withColumn("c300", F.lit(600)), key="id") as d:
        assert d.changed_columns == {"c300": 2}
        assert rows_of(d.changed.select("id", "columns")) == [(0, ["c300"]), (1, ["c300"])]
        assert [c["columns"] for c in d.first()["changed"]] == [
            {"c300": [0, 600]}, {"c300": [300, 600]}]  # fmt: skip
        assert len(d.repair.columns) == columns


@pytest.mark.slow
def test_the_first_rows_show_each_changed_column(frame):
    left = frame([(i, "a", 0.0) for i in range(9)])
    right = frame([(i, "b" if i else "a", float(i > 7)) for i in range(9)])
    with diff(left, right, key="id") as d:
        found = [(row["key"]["id"], [*row["columns"]]) for row in d.first(2)["changed"]]
    assert found == [(1, ["name"]), (2, ["name"]), (8, ["name", "price"])]


@pytest.mark.slow
def test_other_names_of_a_key(frame):
    left = frame([(1, 2, 3)], "id int, a int, other int")
    right = frame([(1, 3, 4)], "number int, a int, id int")
    with diff(left, right, key="id=number") as d:
        assert (d.changed_columns, d.left_only, d.right_only) == ({"a": 1}, ("other",), ("id",))
    with diff(left, right.select("number", "a", F.lit(1).alias("b")), key=None) as d:
        assert (d.counts.missing, d.counts.extra, d.counts.changed) == (1, 1, 0)


@pytest.mark.slow
@EACH_SESSION
def test_tolerance(frame):
    """That of integers and decimals is exact."""
    schemas = [f"id int, f float, d double, m decimal(9,3), i int, n {n}" for n in
               ("bigint", "decimal(20,1)")]  # fmt: skip
    nan, inf, large = float("nan"), float("inf"), 2**53
    rows = [
        (
            (1, 0.5, 1.0, Decimal(1), 1, large + 1),
            (1, 0.625, 1.1, Decimal("1.010"), 1, Decimal(large)),
        ),
        ((2, nan, inf, None, 2, None), (2, nan, inf, None, 2, None)),
        ((3, 1.0, 1.0, Decimal(0), 3, 0), (3, nan, None, Decimal(9), 4, Decimal(0))),
    ]
    left, right = map(frame, zip(*rows, strict=True), schemas)
    columns = {"f": 1, "d": 1, "m": 1, "i": 1, "n": 1}
    assert diff(left, right, key="id", tolerance=0.125).changed_columns == columns
    limits = {"f": 0.125, "m": 0.01, "n": 1}
    columns = {"f": 1, "d": 2, "m": 1, "i": 1}
    assert diff(left, right, key="id", tolerance=limits).changed_columns == columns
    kinds = {"number": 0.125, "integer": 1, "d": 0}
    columns = {"f": 1, "d": 2, "m": 1, "n": 1}
    assert diff(left, right, key="id", tolerance=kinds).changed_columns == columns
    one = left.where("id < 3"), right.where("id < 3")
    with diff(*one, key="id", tolerance=1) as d:
        assert d.equal
        assert d.counts.equal == 2


APART = [
    # Two values in Berlin, how far they are apart, and a limit that is just too small.
    ("timestamp_ntz'2026-03-29 02:30:00'", "timestamp_ntz'2026-03-29 03:30:00'", 3600.0, "59min"),
    ("timestamp'2026-10-25 00:30:00Z'", "timestamp'2026-10-25 01:30:00Z'", 3600.0, "59min"),
    ("timestamp_ntz'2026-01-01 00:00:00.000019'", "timestamp_ntz'2026-01-01'", 19e-6, "18us"),
    ("date'2026-10-25'", "date'2026-10-26'", 86400.0, "23.5h"),
    ("date'2026-03-29'", "date'2026-03-30'", 86400.0, "23.5h"),
    ("9007199254740993", "9007199254740992", 1.0, "0.9"),
    ("12345678901234567.01BD", "12345678901234567.02BD", 0.01, "0.009"),
    ("99999999999999999999999999999999999999BD", "-99999999999999999999999999999999999999BD", 2e38,
     "1e38"),
]  # fmt: skip


@pytest.mark.parametrize("ansi", ["true", pytest.param("false", marks=pytest.mark.slow)])
def test_how_far_values_are_apart(spark, configure, ansi):
    """In each zone, exactly: a limit of as much suffices, and less does not."""
    configure("spark.sql.session.timeZone", "Europe/Berlin")
    configure("spark.sql.ansi.enabled", ansi)
    left, right = (
        spark.sql(f"SELECT 1 AS id, {', '.join(f'{of[i]} AS x{n}' for n, of in enumerate(APART))}")
        for i in (0, 1)
    )
    columns = [f"x{n}" for n in range(len(APART))]
    less = {x: of[3] for x, of in zip(columns, APART, strict=True)}
    with diff(left, right, key="id", tolerance=less) as d:
        assert {x: told.greatest for x, told in d.changes().items()} == {
            x: of[2] for x, of in zip(columns, APART, strict=True)
        }
    enough = {x: f"{of[2] * 1e6:.0f}us" if of[3][-1].isalpha() else of[2]
              for x, of in zip(columns, APART[:-1], strict=False)}  # fmt: skip
    assert diff(left, right, key="id", ignore=columns[-1], tolerance=enough).equal


@pytest.mark.slow
def test_pairs_within_a_tolerance(frame):
    """The columns without tolerance say first which rows of a key belong together."""
    left = frame([(1, "a", 2.0), (1, "b", 1.0)], "id int, name string, x double")
    right = frame([(1, "b", 1.1), (1, "a", 2.1)], "id int, name string, x double")
    order = ["x", "name"]
    assert diff(left.select("id", *order), right, key="id", tolerance=0.2).equal


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"key": "no"}, ColumnsError, "column no is not in the left frame, which has id, n"),
        ({"key": []}, ArgumentError, "key: is empty"),
        ({"key": ["id", "id"]}, ArgumentError, "names column id twice"),
        ({"key": "id", "values": ["name", "NAME"]}, ArgumentError, "names column name twice"),
        ({"key": [1]}, ArgumentError, "key: a list of 1, expected names of columns"),
        ({"key": "id", "ignore": "id"}, ArgumentError, "ignore: id is a column of the key"),
        ({"key": "id", "ignore": "no"}, ColumnsError, "no, to be left out, is in neither"),
        ({"key": "id", "values": "id"}, ArgumentError, "values: id is a column of the key"),
        ({"key": "id", "values": "no"}, ColumnsError, "column no is not in the left"),
        ({"key": "id", "tolerance": -1}, ArgumentError, "tolerance: -1, expected"),
        ({"key": "id", "tolerance": True}, ArgumentError, "tolerance: True, expected"),
        ({"key": "id", "tolerance": float("nan")}, ArgumentError, "tolerance: nan"),
        ({"key": "id", "tolerance": {"name": 1}}, ColumnsError, "name is of the type string"),
        ({"key": "id", "tolerance": {"id": 1}}, ArgumentError, "id is not among the compared"),
        ({"key": "id", "tolerance": {"time": 1}}, ColumnsError, "time is a kind of columns: a tol"),
    ],
)
def test_invalid_options(frame, options, error, message):
    with pytest.raises(error, match=message):
        diff(frame([]), frame([]), **options)


def test_no_frame(frame):
    with pytest.raises(ArgumentError, match="right: 'copy', expected a frame"):
        diff(frame([]), "copy", key="id")


def test_frames_that_change(frame, monkeypatch):
    rows = frame([(i, "a", 0.0) for i in range(9)])
    monkeypatch.setattr(pairing, "_FEW", 1)
    monkeypatch.setattr(pairing, "in_buckets", lambda *_: f"id < {5 + 2 * _[1]}")
    with pytest.raises(StateError, match="gave other rows when they were read again"):
        diff(rows, rows.withColumn("name", F.lit("b")), key="id")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("paths", "unique"),
    [
        ({"_FEW": 1}, False),
        ({"_FEW": 0}, True),
        ({"_FEW": 1}, True),
        ({"_FEW": 0}, False),
        ({"_FEW": 0, "_BROADCAST_HASHES": 0}, True),
        ({"_FEW": 0, "_BROADCAST_HASHES": 0}, False),
        ({"_FEW": 0, "_MOST_ROWS": 0}, True),
        ({"_FEW": 0, "_MOST_ROWS": 0}, False),
        ({"_FEW": 0, "_MOST_ROWS": 0, "_BROADCAST_HASHES": 0}, False),
    ],
)
def test_every_path_finds_the_same(spark, monkeypatch, paths, unique):
    for name, value in paths.items():
        monkeypatch.setattr(sharing if hasattr(sharing, name) else pairing, name, value)
    left = spark.range(300).selectExpr("nullif(id, 7) AS id", "id % 10 AS a", "string(id) AS b")
    right = left.where("id IS NULL OR id NOT IN (1, 2, 3)")
    right = right.withColumn("a", F.expr("if(id % 50 = 4, -1, a)"))
    right = right.union(spark.sql("SELECT 1000, 0, 'x' UNION ALL SELECT 1001, 0, 'x'"))
    if not unique:
        left = left.union(left.where("id = 54 OR id = 100"))
        right = right.union(right.where("id = 100"))
    with diff(left, right, key="id") as d:
        more = 0 if unique else 1
        expected = Counts(300 + 2 * more, 299 + more, 291 + more, 3 + more, 2, 6, more, 0)
        assert d.counts == expected
        assert d.changed_columns == {"a": 6}
        assert {row["id"] for row in d.missing.collect()} == {1, 2, 3, *[54] * more}
        assert {row["id"] for row in d.deletions.collect()} == {1000, 1001}
