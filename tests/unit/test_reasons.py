"""The common values of missing rows: the right reason first with its counts, or none."""

from __future__ import annotations

import random
from datetime import date, timedelta

import pytest

from xorack.core.conditions import Both, Values
from xorack.core.reasons import find_reasons

_RANDOM = random.Random(28)
ROWS = [
    {
        "id": number,
        "line": _RANDOM.randrange(1, 8),
        "mode": _RANDOM.choice(["AIR", "RAIL", "SHIP"]),
        "note": None if _RANDOM.random() < 0.1 else "x",
        "weight": float("nan") if number % 11 == 0 else 1.0,
        "day": date(2026, 1, 1) + timedelta(number // 100),
    }
    for number in range(5_000)
]


def why(is_lost, rows=ROWS, **options):
    missing, others = ([row for row in rows if is_lost(row) == side] for side in (True, False))
    return find_reasons(missing, others, len(missing), len(rows), **options)


@pytest.mark.parametrize(
    ("is_lost", "condition"),
    [
        (lambda r: r["line"] == 7, "line = 7"),
        (lambda r: r["note"] is None, "note = NULL"),
        (lambda r: r["weight"] != r["weight"], "weight = NaN"),
        (lambda r: r["line"] == 7 and r["mode"] == "AIR", "line = 7 and mode = 'AIR'"),
        (lambda r: r["line"] == 7 and r["id"] % 2 == 1, "line = 7"),
        (lambda r: r["line"] == 7 or r["note"] is None, "line = 7"),
        (lambda r: r["mode"] != "AIR", "mode in ('RAIL', 'SHIP')"),
        (lambda r: 1010 < r["id"] < 1090, "id from 1011 to 1089"),
        (lambda r: r["id"] >= 4_950, "id >= 4950"),
        (lambda r: r["day"] == date(2026, 1, 9), "day = 2026-01-09"),
        (lambda r: r["id"] % 97 == 0, None),
        (lambda r: r["id"] in (17, 4200), None),
    ],
)
def test_the_condition_of_missing_rows_and_exact_counts(is_lost, condition):
    reasons = why(is_lost)
    lost = [row for row in ROWS if is_lost(row)]
    others = [row for row in ROWS if not is_lost(row)]
    if condition is None:
        expected = f"no column clearly distinguishes the {len(lost):,} missing rows from the others"
        assert (reasons.findings, reasons.sentence) == ((), expected)
        return
    best = reasons.findings[0]
    assert str(best.condition) == condition
    counts = [sum(map(best.condition.holds, rows)) for rows in (lost, others)]
    assert counts == [best.missing, best.others]
    assert reasons.sentence == (
        f"{condition}: {counts[0]:,} of {len(lost):,} missing rows, "
        f"{counts[1]:,} of {len(others):,} others"
    )
    assert len(str(reasons).splitlines()) == len(reasons.findings)


def test_columns_that_are_no_properties_give_way():
    """A task takes many products: chance puts a few of them into one task."""
    rows = [{"sku": f"s{n % 20}", "task": n % 20 % 4} for n in range(400)]
    best = why(lambda row: row["task"] == 3, rows, handicaps={"task": 0.5}).findings[0]
    assert best.condition == Values("task", (3,))
    best = why(lambda row: row["sku"] == "s3", rows, handicaps={"task": 0.5}).findings[0]
    assert best.condition == Values("sku", ("s3",))


def test_counts_of_samples_are_not_taken_for_counts_of_all():
    lost = [row for row in ROWS if row["line"] == 7]
    others = [row for row in ROWS if row["line"] != 7]
    sampled = find_reasons(lost[:100], others[:500], len(lost), len(ROWS))
    assert not sampled.is_exact
    assert sampled.sentence == (
        "line = 7: 100 of 100 missing rows, 0 of 500 others compared "
        f"(of {len(lost):,} and {len(others):,})"
    )
    # One more row of the line is there after all.
    exact = sampled.counted_in(lost, [*others[:-1], lost[0]])
    assert exact.is_exact
    assert exact.sentence == (
        f"line = 7: {len(lost)} of {len(lost)} missing rows, 1 of {len(others):,} others"
    )
    both = Both(Values("line", (7,)), Values("mode", ("AIR",)))
    assert both.holds({"line": 7, "mode": "AIR"})
    assert not both.holds({"line": 7, "mode": "SHIP"})


def test_what_cannot_be_compared_is_said():
    assert find_reasons([], [], 3, 3).sentence == "all 3 rows are missing"
    assert find_reasons([], [], 3, 3, "failed chain").sentence == "all 3 chains have failed"
    assert find_reasons([], [], 1, 1).sentence == "the only row is missing"
    assert find_reasons([], [], 1, 1, "failed chain").sentence == "the only chain has failed"
    assert find_reasons([], [], 0, 3).sentence == ""
    sentence = find_reasons([], ROWS, 3, 50_000).sentence
    assert sentence == "the 3 missing rows could not be compared with others"


@pytest.mark.parametrize("is_sample", [False, True])
@pytest.mark.parametrize(("missing", "total"), [(3, 200), (40, 400), (380, 400)])
def test_chance_is_no_reason(missing, total, is_sample):
    """Rows that are lost at random: 1 % of the answers may name something, not 1 % of columns."""
    draw = random.Random(missing).random
    named = 0
    for _ in range(50):
        rows = [
            {"x": draw(), "y": draw(), "z": int(draw() * 50), "kind": "abc"[int(draw() * 3)]}
            for _ in range(total)
        ]
        scale = 1_000 if is_sample else 1
        sides = rows[:missing], rows[missing:]
        named += bool(find_reasons(*sides, missing * scale, total * scale).findings)
    assert named <= 3
