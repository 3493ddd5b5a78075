"""Broken versions of `xorack.spark.diff`, which the proof must catch."""

from __future__ import annotations

from decimal import Decimal

import pytest

from tests.spark.diff_tables import FLOATS, Cases, Column, Kind, Schema
from tests.spark.test_diff_proof import prove, prove_swaps
from tests.support.mutants import Edit, edited
from xorack.spark._diff import canonical, digests, pairing
from xorack.spark._diff.difference import Difference

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def same(type_, *values):
    return Kind((type_, type_), [(value, value) for value in values])


TEXT = same("string", "", "a", "ab", "b")
WHOLE = Kind(("int", "bigint"), [(number, number) for number in (0, 1, -1)])
SCHEMA = Schema(
    key=[Column("k", WHOLE), Column("c", Kind(("string", "string"), TEXT.values))],
    values=[
        Column("ignored", TEXT),
        Column("t", TEXT),
        Column("u", TEXT),
        Column("i", WHOLE),
        Column(
            "d",
            Kind(
                ("decimal(5,2)", "decimal(18,6)"),
                [(Decimal("1.50"), Decimal("1.5")), (Decimal("1.60"), Decimal("1.6"))],
            ),
        ),
        Column(
            "f", Kind(("float", "double"), [(0.0, -0.0), *((value, value) for value in FLOATS[:5])])
        ),
        Column("a", same("array<array<int>>", [], [[]], [None], [[1, 2]], [[1], [2]])),
        Column("z", same("array<int>", [0, None], [None, 0])),
        Column("m", Kind(("map<int,int>",) * 2, [({1: 1, 2: 2}, {2: 2, 1: 1}), ({1: 2},) * 2])),
        Column("s", same("struct<x:array<int>,y:int>", *({"x": [x], "y": x} for x in (0, None)))),
    ],
    alone=([], []),
    ignored=1,
    named=False,
)
NULLS = Schema(
    key=[Column("k", WHOLE)],
    values=[Column("z", same("array<int>", [0, None], [None, 0]))],
    alone=([], []),
    ignored=0,
    named=False,
)
_SUM = '[F.sum(half) for _, half in _halves("row")]'
_XOR = _SUM.replace("sum", "bit_xor")
MUTANTS = {
    "XOR instead of sums": [
        (digests.compare_digests, _SUM, _XOR),
    ],
    "only the numbers of rows are compared": [
        (digests.compare_digests, _SUM, "[]"),
    ],
    "sums of whole hashes overflow": [
        (digests._halves, "F.shiftright(name, _HALF)", "F.col(name)")
    ],
    "the hash skips nulls": [
        (digests.hash_of, "for pair in pairs), *masks)", "for pair in pairs))")
    ],
    "the hash of a row lacks its key": [
        (digests._row_hash, ", hash_of(comparison.keys, side))", ")")
    ],
    "the hash of a row lacks its values": [
        (digests._row_hash, "hash_of(comparison.values, side, hash_of(comparison.keys, side))",
         "hash_of(comparison.keys, side)")
    ],
    "keys with as many rows on both sides are left out": [
        (digests.differing_keys, ' | (F.col("total") != -rights)', "")
    ],
    "the last buckets are not read again": [
        (digests.in_buckets, "for bucket in buckets:", "for bucket in sorted(buckets)[:-1]:")
    ],
    "keys whose hashes overflow are left out": [
        (digests.differing_keys, 'F.col("total").isNull() | ', "")
    ],
    "a bucket in 64 is not read again": [
        (digests.in_buckets, "bucket % _WORD", "min(bucket % _WORD, 62)")
    ],
    "all keys are taken for unique": [
        (digests.differing_keys, "(lefts > 1) | (rights > 1)", "F.lit(False)")
    ],
    "duplicates cancel out at once": [
        (pairing._numbered,
         'F.row_number().over(Window.partitionBy("hash", "k", "v", "side").orderBy("side"))',
         "F.lit(1)")
    ],
    "rows of one side cancel out": [
        (pairing._numbered, '"k", "v", "copy")) > 1', '"k", "v")) > 1')
    ],
    "rows that differ are numbered with equal ones": [
        (pairing._numbered, '"k", "same", "side").orderBy("v")', '"k", "side").orderBy("v")')
    ],
    "rows of one key are one pair": [
        (pairing._paired, '"k", "same", "n"]', '"k", "same", F.lit(1).alias("n")]')
    ],
    "an element is hashed without being null": [
        (canonical._nested, "column.isNull()", "F.lit(False)")
    ],
    "floats of another width": [
        (canonical.canonical_forms,
         "_same if left == right else _cast(T.DoubleType())", "_cast(T.StringType())")
    ],
    "integers cut off": [
        (canonical.canonical_forms,
         "_same if left == right else _cast(T.LongType())", "_cast(T.BooleanType())")
    ],
    "decimals cut off": [
        (canonical._decimals, "T.DecimalType(whole + scale, scale)", "T.DecimalType(38, 0)")
    ],
    "keys with three rows are duplicates": [
        (Difference.duplicates.fget, "lefts > 1 OR rights > 1", "lefts > 2 OR rights > 2")
    ],
    "a key with duplicates counts once for each pair": [
        (pairing._count, '(F.col(name) > 1) & (F.col("n") == 1)', 'F.col(name) > 1')
    ],
}  # fmt: skip


@pytest.mark.parametrize("mutant", [None, *MUTANTS])
def test_the_proof_catches(spark, monkeypatch, mutant):
    edits = [Edit(mutant, *edit) for edit in MUTANTS.get(mutant, ())]
    failed = None
    with edited(edits):
        try:
            prove_swaps(spark, monkeypatch)
            prove(spark, SCHEMA, Cases(SCHEMA, seed=0, cases=200))
            prove(spark, NULLS, Cases(NULLS, seed=0, cases=50))
        except Exception as error:  # noqa: BLE001 - an overflow is Spark's
            failed = error
    if mutant is None and failed:
        raise failed
    assert (failed is None) == (mutant is None)
