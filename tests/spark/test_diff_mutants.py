"""Broken versions of `xorack.spark.diff`, which the proof must catch."""

from __future__ import annotations

import math
import re
from types import SimpleNamespace

import pytest
from pyspark.errors import ArithmeticException
from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tests.spark.diff_tables import MIXED, NULLS, Cases
from tests.spark.test_diff_proof import prove, prove_swaps
from xorack.compare import sharing
from xorack.errors import StateError
from xorack.spark._diff import canonical, digests, pairing
from xorack.spark._diff.columns import Pair
from xorack.spark._diff.difference import Difference

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def expressions(pattern, other):
    """Return `pyspark.sql.functions` that replaces a part of SQL."""
    return SimpleNamespace(**vars(F) | {"expr": lambda sql: F.expr(re.sub(pattern, other, sql))})


def halves(change):
    """Return `_halves` with other halves of a row's hash."""
    real = digests._halves
    return lambda name: change(real(name)) if name == "row" else real(name)


def hashes(row):
    """Return `_hashes` with another hash of a row."""
    return lambda of, side: (f"{digests.hash_of(of.keys, side)} AS hash", f"{row(of, side)} AS row")


def cast(type_, other):
    """Return `_cast` that casts to another type instead of one."""
    real = canonical._cast
    return lambda to: real(other if isinstance(to, type_) else to)


def number(*partition):
    return F.row_number().over(Window.partitionBy("hash", "k", *partition).orderBy("v"))


def changed(function, name, column):
    """Return a function whose frame has another column of a name."""
    return lambda *given: function(*given).withColumn(name, column())


def cancelling(rows):
    """Number rows; equal ones cancel each other out, on one side as well."""
    same = F.count(F.lit(1)).over(Window.partitionBy("hash", "k", "v")) > 1
    return rows.withColumn("same", same).where("NOT same").withColumn("n", number("side"))


def numbered_first(rows):
    """Number rows before equal ones cancel each other out."""
    return numbered(rows.withColumn("first", number("side"))).withColumn("n", F.col("first"))


def of_one_side(comparison, frames, rows):
    """Find the rows that one side alone has, however many copies."""
    found = differing_rows(comparison, frames, rows)
    hashes = [frame.selectExpr(f"{digests.row_hash(comparison, side)} AS hash")
              for side, frame in enumerate(frames)]  # fmt: skip
    return found.join(hashes[0].intersect(hashes[1]), "hash", "left_anti")


def null_is_hashed_as_nothing(value, form):
    return f"named_struct('n', false, 'v', {form(value)})"


in_buckets, paired, count = pairing.in_buckets, pairing._paired, pairing._count
differing_rows, numbered, rows_of_keys = (
    pairing.differing_rows, pairing._numbered, pairing.rows_of_keys)  # fmt: skip
duplicates = Difference.duplicates
MUTANTS = {
    "XOR instead of sums": (digests, "F", expressions(r"^sum\((?!IF)", "bit_xor(")),
    "only the numbers of rows are compared": (digests, "_halves", halves(lambda real: [])),
    "sums of whole hashes overflow": (
        *(digests, "_halves"),
        halves(lambda real: [real[0], "row"]),
    ),
    "the hash skips nulls": (Pair, "nullable", False),
    "the hash of a row lacks its key": (
        *(digests, "_hashes"),
        hashes(lambda of, side: digests.hash_of(of.values, side)),
    ),
    "the hash of a row lacks its values": (
        *(digests, "_hashes"),
        hashes(lambda of, side: digests.hash_of(of.keys, side)),
    ),
    "keys with as many rows on both sides are left out": (
        *(digests, "F"),
        expressions(r"try_sum\(row\)", "sum(IF(row < 0, -1, 0))"),
    ),
    "the last buckets are not read again": (
        *(pairing, "in_buckets"),
        lambda of, side, buckets: in_buckets(of, side, sorted(buckets)[:-1] or [-1]),
    ),
    "strata are not read again": (
        *(pairing, "in_buckets"),
        lambda of, side, buckets: in_buckets(of, side, [b for b in buckets if b < 4096] or [-1]),
    ),
    "keys whose hashes overflow are left out": (
        *(digests, "F"),
        expressions(r"(try_sum\(row\))", r"coalesce(\1, -sum(IF(row < 0, 1, 0)))"),
    ),
    "all keys are taken for unique": (
        *(pairing, "_paired"),
        lambda *given, unique, **more: paired(*given, unique=True, **more),
    ),
    "rows of one side cancel out": (pairing, "_numbered", cancelling),
    "rows that differ are numbered with equal ones": (pairing, "_numbered", numbered_first),
    "copies of a row do not count": (pairing, "differing_rows", of_one_side),
    "only rows that differ count as those of a key": (
        *(pairing, "rows_of_keys"),
        changed(rows_of_keys, "rights", lambda: F.lit(1)),
    ),
    "a repair lacks equal rows": (
        *(Difference, "repair"),
        property(lambda self: self._pairs.where("l IS NOT NULL").select("l.*")),
    ),
    "rows of one key are one pair": (
        *(pairing, "_numbered"),
        changed(pairing._numbered, "n", lambda: F.lit(1)),
    ),
    "an element is hashed without being null": (canonical, "_nested", null_is_hashed_as_nothing),
    "floats of another width": (canonical, "_cast", cast(T.DoubleType, T.StringType())),
    "integers cut off": (canonical, "_cast", cast(T.LongType, T.BooleanType())),
    "decimals cut off": (canonical, "_cast", cast(T.DecimalType, T.DecimalType(38, 0))),
    "keys with three rows are duplicates": (
        *(Difference, "duplicates"),
        property(lambda self: duplicates.fget(self).where("left_count > 2 OR right_count > 2")),
    ),
    "a key with duplicates counts once for each pair": (
        *(pairing, "_count"),
        lambda of, pairs, *given: count(of, pairs.withColumn("n", F.lit(1)), *given),
    ),
}


def prove_all(spark, monkeypatch):
    prove_swaps(spark, monkeypatch)
    for most in (sharing._MOST_ROWS, math.inf):  # the second searches keys
        monkeypatch.setattr(sharing, "_MOST_ROWS", most)
        prove(spark, MIXED, Cases(MIXED, seed=0, cases=200))
    prove(spark, NULLS, Cases(NULLS, seed=0, cases=50))


def test_the_proof_passes(spark, monkeypatch):
    prove_all(spark, monkeypatch)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_proof_catches(spark, monkeypatch, mutant):
    monkeypatch.setattr(*MUTANTS[mutant])
    with pytest.raises((AssertionError, ArithmeticException, StateError)):
        prove_all(spark, monkeypatch)
