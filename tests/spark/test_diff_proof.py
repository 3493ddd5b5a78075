"""`xorack.spark.diff` finds what the plain model finds, in random tables of all types."""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal
from itertools import chain

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F

from tests.spark.diff_model import Columns
from tests.spark.diff_tables import (
    CASE,
    FRACTIONS,
    MIXED,
    STRING_TYPES,
    Cases,
    Schema,
    judge,
    schemas,
)
from xorack.errors import ColumnsError
from xorack.spark import diff
from xorack.spark._diff import digests, pairing
from xorack.spark._diff.columns import compare_columns

pytestmark = pytest.mark.spark

PROOF = settings(
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],  # shrinking takes minutes; the message has the small table of one case
    report_multiple_bugs=False,
)


def by_case(frame):
    """Collect rows as dictionaries, by the case."""
    cases = defaultdict(list)
    for row in frame.collect():
        values = dict(zip(frame.columns, row, strict=True))
        cases[values[CASE]].append(values)
    return cases


def unmistakable(frame, schema: Schema):
    """Rename the columns behind the key: a key's column may have their names.

    Keys of more digits than a decimal has are strings.
    """
    key = [CASE, *(column.name for column in schema.key)]
    rows = by_case(
        frame.toDF(*key, *(f"?{name.rstrip('_')}" for name in frame.columns[len(key) :]))
    )
    for column in schema.key:
        if column.kind.types[0].startswith("decimal"):
            for row in chain(*rows.values()):
                value = row[column.name]
                row[column.name] = Decimal(value) if isinstance(value, str) else value
    return rows


def prove(spark, schema: Schema, cases: Cases, tolerance=None):
    """Compare all cases at once, and each case's result with the model's."""
    sides = [spark.createDataFrame(cases.rows[side], cases.schema(side)) for side in (0, 1)]
    key = [CASE, *(column.name for column in schema.key)]
    ignored = [column.name for column in schema.values[: schema.ignored]]
    values = [column.name for column in schema.values[schema.ignored :]]
    columns = Columns(key, values, dict.fromkeys(values, tolerance) if tolerance else {})
    chosen = {"values": values} if schema.named else {"ignore": ignored}
    left, right = map(by_case, sides)
    with diff(*sides, key=key, **chosen, tolerance=tolerance) as found:
        frames = {
            "missing": by_case(found.missing),
            "extra": by_case(found.extra),
            "changed": unmistakable(found.changed, schema),
            "duplicates": unmistakable(found.duplicates, schema),
            "repair": by_case(found.repair),
        }
        of_all = found.all_rows
        letters = of_all.groupBy(of_all.columns[len(key)]).count().collect()
    judge(schema, cases, columns, (left, right), frames, found)
    counts = found.counts
    expected = {"N": counts.equal, "D": counts.missing, "I": counts.extra, "C": counts.changed}
    assert dict(map(tuple, letters)) == {letter: n for letter, n in expected.items() if n}


ROWS = [(1, "a", None), (2, "b", "c"), (3, "d", "d"), (3, "d", "d"), (4, "e", "f")]
SWAPS = {
    "values of two rows": ([(1, "b", "c"), (2, "a", None), *ROWS[2:]], [1, 2], {"v": 2, "w": 2}),
    "a pair of equal rows": ([*ROWS[:2], *[(3, "x", "d")] * 2, ROWS[4]], [3, 3], {"v": 2}),
    "a value and null": ([(1, None, "a"), *ROWS[1:]], [1], {"v": 1, "w": 1}),
}


def prove_swaps(spark, monkeypatch):
    """Find damage that keeps the sums of the only bucket, if they were those of values alone."""
    with monkeypatch.context() as patch:
        patch.setattr(digests, "_bucket", lambda _: "0")
        left = spark.createDataFrame(ROWS, "k int, v string, w string")
        for rows, keys, columns in SWAPS.values():
            with diff(left, spark.createDataFrame(rows, left.schema), key="k") as found:
                assert sorted(row["k"] for row in found.changed.collect()) == keys
                assert found.counts.equal == len(ROWS) - len(keys)
                assert found.changed_columns == columns


@pytest.mark.slow
def test_sums_of_one_bucket(spark, monkeypatch):
    prove_swaps(spark, monkeypatch)


def test_keys_with_equal_rows_are_left_out(spark):
    left = spark.range(100).withColumn("v", F.col("id"))
    right = left.withColumn("v", F.expr("if(id = 17, 0, v)"))
    comparison = compare_columns(left, right, "id")
    assert digests.differing_keys(comparison, comparison.frames, 200).count() == 1


@pytest.mark.parametrize(("keys", "search"), [(5, "rows"), (4000, "keys")])
def test_rows_are_searched_where_many_have_one_key(spark, monkeypatch, keys, search):
    """Equal rows are then neither shuffled as a whole nor paired."""
    monkeypatch.setattr(pairing, "_FEW", 0)
    other = "differing_keys" if search == "rows" else "differing_rows"
    monkeypatch.setattr(pairing, other, None)
    paired = []
    real = pairing._paired
    monkeypatch.setattr(pairing, "_paired", lambda of, frames, number, **more: paired.append(number)
                        or real(of, frames, number, **more))  # fmt: skip
    left = spark.range(4000).selectExpr(f"id % {keys} AS id", "id AS v")
    right = left.withColumn("v", F.expr("if(v = 17, -1, v)"))
    with diff(left, right, key="id") as found:
        assert (found.counts.equal, found.counts.changed) == (3999, 1)
    assert paired == [2]


def test_a_frequent_key_of_a_stratum_is_seen(spark):
    ids = spark.range(1000)
    bucket = digests._bucket(digests.key_hash(compare_columns(ids, ids, "id"), 0))
    (key,) = ids.where(f"{bucket} >= {digests._BUCKETS}").first()
    rows = spark.range(2000).selectExpr(f"if(id < 300, {key}, id) AS id")
    assert digests.compare_digests(compare_columns(rows, rows, "id")).are_shared


@pytest.mark.slow
@settings(PROOF, max_examples=1)
@given(schema=schemas(), seed=st.integers(0, 2**32), unique=st.booleans())
def test_random_tables(spark, schema, seed, unique):
    prove(spark, schema, Cases(schema, seed, cases=100, unique=unique))


@pytest.mark.slow
@settings(PROOF, max_examples=40)
@given(schema=schemas(), seed=st.integers(0, 2**32), unique=st.booleans(), few=st.booleans())
def test_more_random_tables(spark, schema, seed, unique, few):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairing, "_FEW", 1 if few else 0)
        prove(spark, schema, Cases(schema, seed, cases=100, unique=unique))


@pytest.mark.slow
@settings(PROOF, max_examples=10)
@given(schema=schemas(values=FRACTIONS), seed=st.integers(0, 2**32))
def test_tolerance(spark, schema, seed):
    """Keys are unique: of several rows, the definition does not say which are paired."""
    prove(spark, schema, Cases(schema, seed, cases=100, unique=True), tolerance=0.5)


@pytest.mark.slow
@pytest.mark.parametrize("cases", [2_000, 10_000])
def test_damage_of_a_large_table(spark, cases):
    """Few rows differ, so that the rows of few buckets are read again."""
    prove(spark, MIXED, Cases(MIXED, seed=cases, cases=cases, damaged=8 / cases))


@pytest.mark.slow
def test_a_key_of_two_collations(spark):
    left = spark.createDataFrame([("a", 1), ("A", 1), ("b", 1)], f"k {STRING_TYPES[-1]}, v int")
    right = spark.createDataFrame([("a", 2), ("c", 1), ("c", 2), ("b", 1)], "k string, v int")
    with diff(left, right, key="k") as found:
        assert [row["k"] for row in found.changed.collect()] == ["a"]
        assert [row["k"] for row in found.duplicates.collect()] == ["c"]


@pytest.mark.slow
def test_keys_of_more_digits_than_a_decimal_has(spark):
    left = spark.createDataFrame([(Decimal(10**37),)], "k decimal(38,0)")
    right = spark.createDataFrame([(Decimal("1.05"),)] * 2, "k decimal(38,18)")
    with diff(left, right, key="k") as found:
        assert [tuple(row) for row in found.duplicates.collect()] == [("1.05", 0, 2)]
        assert found.missing.collect() == left.collect()
        assert found.deletions.collect() == [right.first()]


def test_a_nested_key_of_two_types(spark):
    left = spark.createDataFrame([([1], 1)], "k array<int>, v int")
    with pytest.raises(ColumnsError, match="column k of the key is array<int> on"):
        diff(left, left.withColumn("k", F.col("k").cast("array<bigint>")), key="k")
