"""What missing rows have in common, and which units of a group are missing: without Spark."""

from __future__ import annotations

import random
from datetime import date, timedelta
from functools import reduce
from operator import xor

import pytest

from xorack.core.explaining import explain
from xorack.spark.solving import MOST_INDEPENDENT, missing_units

_RANDOM = random.Random(28)
ROWS = [
    {
        "id": number,
        "line": _RANDOM.randrange(1, 8),
        "mode": _RANDOM.choice(["AIR", "RAIL", "SHIP"]),
        "note": None if _RANDOM.random() < 0.1 else "x",
        "day": date(2026, 1, 1) + timedelta(number // 100),
    }
    for number in range(5_000)
]


@pytest.mark.parametrize(
    ("lost", "sentence"),
    [
        (lambda r: r["line"] == 7, "All {n:,} missing rows have line = 7 ({all} of all rows, all"),
        (lambda r: r["note"] is None, "All {n:,} missing rows have note is null ({all} of all"),
        (lambda r: r["line"] == 7 and r["mode"] == "AIR",
         "All {n:,} missing rows have line = 7 and mode = 'AIR' ({all} of all rows, all of which"),
        (lambda r: r["line"] == 7 and r["id"] % 2, "All {n:,} missing rows have line = 7 (1"),
        (lambda r: r["line"] == 7 or r["id"] % 97 == 0, "9"),
        (lambda r: r["line"] > 5, "All {n:,} missing rows have line >= 6 ({all} of all rows, all"),
        (lambda r: r["line"] < 3, "All {n:,} missing rows have line <= 2 ({all} of all rows, all"),
        (lambda r: 1010 < r["id"] < 1090, "All 79 missing rows have id from 1011 to 1089 (1.6 %"),
        (lambda r: r["day"] == date(2026, 1, 9), "All 100 missing rows have day = 2026-01-09 (2 %"),
        (lambda r: r["id"] % 97 == 0, "Nothing tells the {n:,} missing rows from the others"),
        (lambda r: r["id"] in (17, 4200), "Nothing tells the 2 missing rows from the others"),
    ],
)  # fmt: skip
def test_what_missing_rows_have_in_common(lost, sentence):
    missing = [row for row in ROWS if lost(row)]
    explanation = explain(missing, ROWS, len(missing), len(ROWS))
    share = f"{len(missing) / len(ROWS) * 100:.1f}".rstrip("0").rstrip(".") + " %"
    assert explanation.sentence.startswith(sentence.format(n=len(missing), all=share))
    assert len(explanation.sentence) < 200
    assert len(str(explanation).splitlines()) == 1 + bool(explanation.findings) + len(
        explanation.findings
    )


def test_few_chains_that_one_value_tells_apart():
    """What all of them have, and none of the others: no others' share is like it by chance."""
    chains = [{"region": "eu" if n < 7 else "us", "units": n % 3, "made": n} for n in range(12)]
    failed = chains[:7]
    sentence = explain(failed, chains, 7, 12, "failed chain").sentence
    assert sentence.startswith("All 7 failed chains have region = 'eu' (58.3 % of all chains, all")
    other = [chains[n] for n in (0, 1, 2, 3, 8, 9, 10)]
    assert explain(other, chains, 7, 12).sentence.startswith("Nothing tells the 7 missing rows")


def test_samples_and_other_words():
    missing = _RANDOM.sample([row for row in ROWS if row["line"] == 7], 100)
    text = explain(missing, ROWS, 7_000, 50_000, "doubled row").sentence
    assert text.startswith("All 100 that were looked at of 7,000 doubled rows have line = 7 (")
    assert explain([], ROWS, 3, 50_000).sentence.startswith("None of the 3 missing rows could be")
    one = explain(missing[:1], ROWS, 1, 5_000).sentence
    assert one == "Nothing tells the 1 missing row from the others"


@pytest.mark.parametrize("size", [1, 2, 30, MOST_INDEPENDENT, 300, 5_000])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 20])
def test_one_xor_names_the_missing_units_of_a_group(size, count):
    """All of a small group's, some of a larger one's, and never others."""
    units = [_RANDOM.getrandbits(64) - (1 << 63) for _ in range(size)]
    lost = frozenset(units[:count])
    found = missing_units(units, reduce(xor, lost), len(lost))
    named = size <= MOST_INDEPENDENT or count <= 2 or (size <= 400 and count <= 4)
    assert found == (lost if named else frozenset())
    assert missing_units(units, reduce(xor, lost) ^ 12345, len(lost)) == frozenset()


def test_units_that_are_not_told_apart():
    units = [1, 2, 3, 4, 5]
    assert missing_units(units, 6, 3) == frozenset()  # dependent: 1 ^ 2 ^ 5 and 1 ^ 3 ^ 4
    assert missing_units([7, 9], 7 ^ 9, 0) == missing_units([7], 7, 2) == frozenset()


def test_what_missing_rows_seldom_have_is_no_reason():
    missing = [row for row in ROWS if row["line"] != 7 or row["id"] % 20 == 0]
    sentence = explain(missing, ROWS, len(missing), len(ROWS)).sentence
    assert (sentence.startswith("9") and "line <= 6" in sentence) or "Nothing tells" in sentence


@pytest.mark.parametrize("are_samples", [False, True])
@pytest.mark.parametrize(("missing", "total"), [(3, 200), (40, 400), (100, 400), (380, 400)])
def test_chance_is_no_reason(missing, total, are_samples):
    """Rows that are lost at random: 1 % of the answers may name something, not 1 % of columns."""
    draw = random.Random(missing).random

    def rows(count):
        return [
            {"x": draw(), "y": draw(), "z": int(draw() * 50), "kind": "abc"[int(draw() * 3)]}
            for _ in range(count)
        ]

    named = 0
    for _ in range(100):
        of_all = rows(total)
        some, scale = (rows(missing), 1_000) if are_samples else (of_all[:missing], 1)
        named += bool(explain(some, of_all, missing * scale, total * scale).findings)
    assert named <= 4


def test_the_ends_of_a_range_are_chosen_from_the_rows():
    draw = random.Random(7).random
    rows = [{f"n{i}": draw() for i in range(12)} for _ in range(60_000)]
    samples = [rows[at : at + 100] for at in range(0, len(rows), 100)]
    pairs = zip(samples[::2], samples[1::2], strict=True)
    named = sum(bool(explain(some, others, 10_000, 100_000).findings) for some, others in pairs)
    assert named <= 6  # of 300


def test_a_second_condition_is_told_if_it_tells_more():
    kinds = [(1, 1)] * 18 + [(1, 0)] * 12 + [(0, 1)] * 12 + [(0, 0)] * 958
    rows = [{"a": a, "b": b} for a, b in kinds]
    few = explain(rows[:5], rows, 5, 1_000).findings  # of five rows with a = 1, 6 % have b = 1
    assert {one.what for one in few} == {"a = 1", "b = 1"}
    assert explain(rows[:18], rows, 18, 1_000).findings[0].what == "a = 1 and b = 1"
