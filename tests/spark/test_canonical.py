"""Values that are equal have one hash and one form; others have neither."""

from __future__ import annotations

import re

import pyspark
import pytest
from pyspark.sql import functions as F

from tests.spark.helpers import ROOT
from xorack.compare.engine import diff_files
from xorack.compare.inputs import ReadOptions
from xorack.compare.options import CompareOptions, connect
from xorack.errors import ColumnsError
from xorack.spark import diff
from xorack.spark._diff.columns import compare_columns
from xorack.spark._diff.digests import hash_of

pytestmark = pytest.mark.spark

RULES = {
    "integers of any width": (
        [("1", "1L"), ("1Y", "1S"), ("CAST(NULL AS int)", "CAST(NULL AS bigint)")],
        [("1", "2"), ("1", "CAST(NULL AS int)"), ("0", "CAST(NULL AS int)")],
    ),
    "decimals of any scale; a decimal and an integer": (
        [
            ("1.50BD", "1.5BD"),
            ("-2.00BD", "-2"),
            ("CAST(9223372036854775807 AS decimal(38,10))", "9223372036854775807L"),
            ("CAST(1.5 AS decimal(38,30))", "CAST(1.5 AS decimal(38,2))"),
            ("CAST(-7 AS decimal(38,30))", "-7"),
            ("CAST(0 AS decimal(38,37))", "CAST(0 AS decimal(38,0))"),
        ],
        [
            ("1.50BD", "1.51BD"),
            ("CAST(1.5 AS decimal(38,30))", "CAST(1.25 AS decimal(38,2))"),
            ("CAST(10 AS decimal(38,0))", "CAST(1 AS decimal(38,37))"),
        ],
    ),
    "float, double": (
        [
            ("double('NaN')", "double('NaN')"),
            ("float('NaN')", "double('NaN')"),
            ("-0.0D", "0.0D"),
            ("CAST(-0.0 AS float)", "0.0D"),
            ("CAST(0.5 AS float)", "0.5D"),
        ],
        [
            ("CAST(0.1 AS float)", "0.1D"),
            ("double('NaN')", "CAST(NULL AS double)"),
            ("double('NaN')", "0D"),
        ],
    ),
    "string": (
        [("'ä'", "'ä'")],
        [
            ("'a'", "'A'"),
            ("'a'", "'a '"),
            ("''", "CAST(NULL AS string)"),
            ("'\u00e4'", "'a\u0308'"),
        ],
    ),
    "binary, boolean, date": (
        [("true", "true"), ("X'00FF'", "X'00FF'"), ("DATE'0001-01-01'", "DATE'0001-01-01'")],
        [
            ("false", "CAST(NULL AS boolean)"),
            ("X'00'", "X'0000'"),
            ("DATE'2026-01-31'", "DATE'2026-02-01'"),
        ],
    ),
    "timestamp; timestamp_ntz": (
        [
            ("TIMESTAMP'2026-01-31 12:00:00 UTC'", "TIMESTAMP'2026-01-31 13:00:00 +01:00'"),
            ("TIMESTAMP_NTZ'2026-01-31 12:00:00'", "TIMESTAMP_NTZ'2026-01-31 12:00:00'"),
        ],
        [("TIMESTAMP'2026-01-31 12:00:00'", "TIMESTAMP'2026-01-31 12:00:00.000001'")],
    ),
    "array": (
        [
            ("array(1, NULL)", "array(1L, NULL)"),
            ("array(-0.0D, double('NaN'))", "array(0.0D, double('NaN'))"),
            ("array(1.50BD)", "array(1.5BD)"),
            (
                "array(named_struct('m', map(1D, 2, 0D, 3)))",
                "array(named_struct('m', map(-0D, 3, 1D, 2)))",
            ),
        ],
        [
            ("array(1, 2)", "array(2, 1)"),
            ("array(1, NULL)", "array(NULL, 1)"),
            ("array(1)", "array(1, NULL)"),
            ("CAST(array() AS array<int>)", "CAST(NULL AS array<int>)"),
            ("array(array(1), array(2))", "array(array(1, 2))"),
            ("array(array(1, 2), array())", "array(array(1), array(2))"),
        ],
    ),
    "struct": (
        [("named_struct('a', 1, 'b', 'x')", "named_struct('b', 'x', 'A', 1L)")],
        [
            ("named_struct('a', 1, 'b', int(NULL))", "named_struct('a', int(NULL), 'b', 1)"),
            ("named_struct('a', CAST(NULL AS int))", "CAST(NULL AS struct<a: int>)"),
        ],
    ),
    "map": (
        [
            ("map('a', 1, 'b', NULL)", "map('b', NULL, 'a', 1L)"),
            ("map(1, map(1, 2, 3, 4), 2, NULL)", "map(2, NULL, 1, map(3, 4, 1, 2))"),
        ],
        [
            ("map('a', int(NULL))", "CAST(map() AS map<string, int>)"),
            ("map('a', 1)", "map('a', 2)"),
            ("map(1, 2)", "map(2, 1)"),
        ],
    ),
}
"""The rows of the table in docs/diff.md: values that are equal, and others."""
EQUAL = [pair for equal, _ in RULES.values() for pair in equal]
OTHER = [pair for _, other in RULES.values() for pair in other]


def cases_of(spark):
    """Return pairs of equal values, and frames of all pairs' values of each side."""
    if int(pyspark.__version__.split(".")[0]) > 3:
        collated = ("'a' COLLATE UTF8_LCASE", "'A' COLLATE UTF8_LCASE")
        equal = [*EQUAL, ("'a' COLLATE UTF8_LCASE", "'a'")]
    else:
        collated, equal = ("'a'", "'b'"), EQUAL
    cases = [*equal, *OTHER, collated]
    sides = [
        spark.range(1).selectExpr("id", *(f"{case[side]} AS c{i}" for i, case in enumerate(cases)))
        for side in (0, 1)
    ]
    return equal, cases, sides


def test_hashes(spark):
    equal, cases, sides = cases_of(spark)
    comparison = compare_columns(*sides, "id")
    hashes = [
        side.selectExpr(*(f"{hash_of([pair], i)} AS {pair.name}" for pair in comparison.values))
        for i, side in enumerate(sides)
    ]
    (one,), (other,) = (frame.collect() for frame in hashes)
    same = {cases[i] for i in range(len(cases)) if one[i] == other[i]}
    assert same == set(equal)


@pytest.mark.slow
def test_differences_of_frames(spark):
    equal, cases, sides = cases_of(spark)
    with diff(*sides, key="id") as d:
        assert list(d.changed_columns) == [f"c{i}" for i in range(len(equal), len(cases))]
        assert d.first()["changed"]


@pytest.mark.slow
def test_differences_of_files(spark, tmp_path, configure):
    """The same values have the same differences on DuckDB; its digests tell them apart, too."""
    configure("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    configure("spark.sql.parquet.datetimeRebaseModeInWrite", "CORRECTED")  # the default of Spark 4
    cases = [*EQUAL, *OTHER]
    for side in (0, 1):
        columns = [f"{case[side]} AS c{i}" for i, case in enumerate(cases)]
        spark.range(1).selectExpr("id", *columns).write.parquet(f"{tmp_path}/{side}")
    names = [f"{tmp_path}/{side}" for side in (0, 1)]
    differ = [f"c{i}" for i in range(len(EQUAL), len(cases))]
    with connect() as con:
        found = diff_files(con, names, [ReadOptions()] * 2, CompareOptions("id"))
        assert list(found.changed_columns) == differ
        assert {*found.first()["changed"][0]["columns"]} == {*differ}
        for i in range(len(cases)):
            one = diff_files(con, names, [ReadOptions()] * 2, CompareOptions("id", [f"c{i}"]))
            assert one.equal == (i < len(EQUAL)), cases[i]


def test_the_rules_are_those_of_the_page():
    page = (ROOT / "docs" / "diff.md").read_text(encoding="utf-8")
    table = page[page.index("## What is equal") : page.index("## JSON")]
    rows = re.findall(r"^\| (.*?) \|", table, re.MULTILINE)
    assert rows[2:] == list(RULES)


def test_hashes_of_several_columns(spark):
    """Neighbours do not make up for each other."""
    rows = [
        "array(1) AS a, array(2, 3) AS b, 1 AS c, int(NULL) AS d",
        "array(1, 2) AS a, array(3) AS b, 1 AS c, int(NULL) AS d",
        "array(1, 2) AS a, array(3) AS b, int(NULL) AS c, 1 AS d",
    ]
    frame = spark.sql(" UNION ALL ".join(f"SELECT 0 AS id, {row}" for row in rows))
    values = compare_columns(frame, frame, "id").values
    assert frame.selectExpr(hash_of(values, 0)).distinct().count() == len(rows)


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        ("1", "'1'", "column x is of the type int and string: it cannot be compared"),
        ("1", "1D", "column x is of the type int and double"),
        ("current_date()", "current_timestamp()", "type date and timestamp"),
        ("current_timestamp()", "localtimestamp()", "type timestamp and timestamp_ntz"),
        ("INTERVAL '1' DAY", "INTERVAL '1' DAY", "of the type interval day: it cannot"),
        ("array(1)", "array('a')", r"column x\[\] is of the type int and string"),
        ("map('a', 1)", "map('a', 'b')", r"column x\.value is of the type int and string"),
        ("named_struct('a', 1)", "named_struct('a', '1')", r"column x\.a is of the type int and"),
        ("named_struct('a', 1, 'b', 2)", "named_struct('a', 1)", "the field b of its struct is on"),
    ],
)
def test_unsuitable_types(spark, left, right, message):
    sides = [spark.range(1).selectExpr("id", f"{value} AS x") for value in (left, right)]
    with pytest.raises(ColumnsError, match=message):
        diff(*sides, key="id")


@pytest.mark.slow
def test_time_zones_and_modes(spark, configure):
    """Frames of Python's values are the same instants in every zone of the session."""
    instants = spark.sql("SELECT 1 AS id, TIMESTAMP'2026-01-31 12:00:00 UTC' AS at, 1.10BD AS x")
    configure("spark.sql.session.timeZone", "Asia/Tokyo")
    configure("spark.sql.ansi.enabled", "false")
    same = spark.sql("SELECT 1L AS id, TIMESTAMP'2026-01-31 21:00:00' AS at, 1.1BD AS x")
    assert diff(instants, same, key="id").equal
    assert diff(instants, same.withColumn("x", F.lit(1)), key=["id", "at"]).counts.changed == 1
