"""What missing rows have in common: the right reason first, or none."""

from __future__ import annotations

import random
from datetime import date, timedelta

import pytest

from xorack.ops.reasons import explain

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


def why(lost, rows=ROWS, **given):
    missing, others = ([row for row in rows if lost(row) == wanted] for wanted in (True, False))
    return explain(missing, others, len(missing), len(rows), **given)


@pytest.mark.parametrize(
    ("lost", "sentence"),
    [
        (lambda r: r["line"] == 7, "Every missing row has line = 7 ({all} of all rows, all of"),
        (lambda r: r["note"] is None, "Every missing row has note = NULL ({all} of all rows, all"),
        (
            lambda r: r["line"] == 7 and r["mode"] == "AIR",
            "Every missing row has line = 7 and mode = 'AIR' ({all} of all rows, all of which",
        ),
        (lambda r: r["line"] == 7 and r["id"] % 2, "Every missing row has line = 7 (1"),
        (lambda r: r["line"] > 5, "Every missing row has line in (6, 7) ({all} of all rows"),
        (lambda r: r["line"] < 3, "Every missing row has line in (1, 2) ({all} of all rows"),
        (lambda r: r["line"] in (2, 5), "Every missing row has line in (2, 5) ({all} of all"),
        (lambda r: r["mode"] != "AIR", "Every missing row has mode in ('RAIL', 'SHIP') ({all} of"),
        (lambda r: 1010 < r["id"] < 1090, "Every missing row has id from 1011 to 1089 (1.6 %"),
        (lambda r: r["day"] == date(2026, 1, 9), "Every missing row has day = 2026-01-09 (2 %"),
        (
            lambda r: r["line"] == 7 or r["note"] is None,
            "{share} of the {n:,} missing rows have line = 7 (",
        ),
        (lambda r: r["id"] % 97 == 0, "Nothing tells the {n:,} missing rows from the others"),
        (lambda r: r["id"] in (17, 4200), "Nothing tells the 2 missing rows from the others"),
        (lambda r: r["line"] != 7 or r["id"] % 20 == 0, ""),  # no rule, and no false one
    ],
)
def test_what_missing_rows_have_in_common(lost, sentence):
    explanation = why(lambda row: bool(lost(row)))
    missing = [row for row in ROWS if lost(row)]
    share, rows = len(missing) / len(ROWS), sum(row["line"] == 7 for row in missing)
    texts = (
        f"{one * 100:.1f}".rstrip("0").rstrip(".") + " %" for one in (share, rows / len(missing))
    )
    expected = sentence.format(n=len(missing), all=next(texts), share=next(texts))
    assert explanation.sentence.startswith(expected)
    assert len(explanation.sentence) < 200
    lines = str(explanation).splitlines()
    assert len(lines) == 1 + bool(explanation.findings) + len(explanation.findings)


def shop(seed, products=20):
    """Return rows of products, which have a price, a maker, and a country of origin."""
    draw = random.Random(seed)
    of = [
        (draw.randrange(5, 200), draw.choice("abcdef"), draw.choice("xyz")) for _ in range(products)
    ]
    rows = []
    for number in range(3_000):
        product = draw.randrange(products)
        price, maker, origin = of[product]
        rows.append(
            {
                "order": number // 6,
                "line": number % 6,
                "product": f"p{product}",
                "price": price,
                "maker": maker,
                "origin": origin,
                "city": draw.choice("ABCDEFGHIJ"),
                "day": date(2026, 1, 1) + timedelta(number // 6 % 30),
                "amount": draw.randrange(90),
            }
        )
    return rows, draw


@pytest.mark.parametrize("seed", range(25))
def test_rows_that_are_lost_in_entities_have_these_as_their_reason(seed):
    """Two products of twenty have other things in common by chance, which are no reasons."""
    rows, draw = shop(seed)
    gone = draw.sample(sorted({row["product"] for row in rows}), 2)
    found = why(lambda row: row["product"] in gone, rows)
    reason = f"product in ('{min(gone)}', '{max(gone)}')"
    # One has made, or sold, just these two.
    same = {"maker", "origin"} & {found.findings[0].what.split()[0]} and found.findings[0].only
    assert same or found.sentence.startswith(f"Every missing row has {reason} (")
    # Of half of their rows, too: chance has chosen the rest.
    half = {id(row) for row in rows if row["product"] in gone and draw.random() < 0.5}
    sentence = why(lambda row: id(row) in half, rows).sentence
    assert same or sentence.startswith(f"Every missing row has {reason} (")
    # Whole orders, at random.
    orders = draw.sample(range(500), 40)
    sentence = why(lambda row: row["order"] in orders, rows).sentence
    assert sentence.startswith("Every missing row has one of 40 of 500 values of order (8 % of all")


@pytest.mark.parametrize("seed", range(10))
def test_many_values_are_missing_from_a_dimension(seed):
    rows, draw = shop(seed, products=300)
    gone = draw.sample(sorted({row["product"] for row in rows}), 60)
    found = why(lambda row: row["product"] in gone, rows)
    assert found.sentence.startswith("Every missing row has one of 60 of 300 values of product (")
    cheap = why(lambda row: row["price"] < 60, rows)
    assert cheap.sentence.startswith("Every missing row has price <= 5")


def test_a_task_is_a_reason_if_the_values_are_many():
    """Handicapped columns are no properties of rows: chance puts few values into one of them."""
    rows = [{"sku": f"s{n % 20}", "task": n % 20 % 4} for n in range(400)]
    found = why(lambda row: row["task"] == 3, rows, late={"task": 0.5})
    assert found.sentence.startswith("Every missing row has task = 3 (25 % of all rows, all")
    found = why(lambda row: row["sku"] == "s3", rows, late={"task": 0.5})
    assert found.sentence.startswith("Every missing row has sku = 's3' (5 %")


def test_few_chains_that_one_value_tells_apart():
    """What all of them have, and none of the others: no others' share is like it by chance."""
    chains = [{"region": "eu" if n < 7 else "us", "units": n % 3, "made": n} for n in range(12)]
    sentence = why(lambda one: one["made"] < 7, chains, word="failed chain").sentence
    assert sentence.startswith("All 7 failed chains have region = 'eu' (58.3 % of all chains, all")
    other = why(lambda one: one["made"] in (0, 1, 2, 3, 8, 9, 10), chains).sentence
    assert other == "Nothing tells the 7 missing rows from the others"


def test_samples_and_other_words():
    missing = _RANDOM.sample([row for row in ROWS if row["line"] == 7], 100)
    others = [row for row in ROWS if row["line"] != 7]
    text = explain(missing, others, 7_000, 50_000, "doubled row").sentence
    assert text.startswith("Every doubled row of 100 compared has line = 7 (14 % of all")
    assert text.endswith("nearly all of which are doubled)")
    assert explain([], others, 3, 50_000).sentence == "Nothing is known of the 3 missing rows"
    assert explain([], [], 3, 3).sentence == "All 3 rows are missing"
    one = explain(missing[:1], others, 1, 5_000).sentence
    assert one == "Nothing tells the 1 missing row from the others"


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
    for _ in range(50):
        of_all, scale = rows(total), 1_000 if are_samples else 1
        some, others = of_all[:missing], of_all[missing:]
        named += bool(explain(some, others, missing * scale, total * scale).findings)
    assert named <= 3


@pytest.mark.slow
def test_the_ends_of_a_range_are_chosen_from_the_rows():
    draw = random.Random(7).random
    rows = [{f"n{i}": draw() for i in range(12)} for _ in range(60_000)]
    samples = [rows[at : at + 100] for at in range(0, len(rows), 100)]
    pairs = zip(samples[::2], samples[1::2], strict=True)
    named = sum(bool(explain(some, others, 10_000, 100_000).findings) for some, others in pairs)
    assert named <= 6  # of 300
