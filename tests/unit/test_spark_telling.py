"""The words for rows that are missing: each sentence follows from the facts."""

import pytest

from xorack.spark.folding import Totals
from xorack.spark.missing.telling import (
    Basis,
    Facts,
    basis_in_words,
    chains_in_words,
    counts_in_words,
    doubling_in_words,
    head_of,
)

STARTED = Totals(7, 100, 900)


def facts(basis=Basis.FRAME, **given):
    return Facts(basis=basis, started=STARTED, written=Totals(5, 99, 3), source=STARTED, **given)


def test_the_first_line_claims_no_more_than_is_known():
    exact = facts(is_exact=True, missing=3, named=3, surplus=2)
    net = facts(Basis.GROUPS, missing=1)
    for found, written, head in (
        (exact, Totals(5, 99, 3), "97 of 100 units of 'n' are in the output, and 2 too many"),
        (net, Totals(5, 99, 3), "at most 99 of 100 units of 'n' are in the output"),
        (None, STARTED, "the output has 100 units of 'n', but not those that were started"),
        (None, Totals(0, 200, 0), "the output has 200 units of 'n', and 100 were started"),
        (None, Totals(0, -3, 0), "the output has not the 100 units of 'n' that were started"),
    ):
        assert head_of("n", STARTED, written, found) == head
    assert counts_in_words(net).startswith("0 of at least 1 missing rows can be named")
    assert counts_in_words(exact).endswith("; the output has 2 rows too many")


def test_chains_that_stay_open():
    assert chains_in_words(["a"], 2, 58, 60) == "2 of 60 chains stay open: a; 58 are acked"
    assert chains_in_words([], 1, 1, 2) == "1 of 2 chains stay open; 1 is acked"
    assert chains_in_words([], 2, 0, 2) == "all chains stay open that no earlier call finished"


@pytest.mark.parametrize(("copies", "xor"), [(2, 0), (3, 7)])
def test_everything_several_times(copies, xor):
    written = Totals(xor, 100 * copies, 900 * copies)
    assert "everything is there" in doubling_in_words(STARTED, written, ())
    assert doubling_in_words(STARTED, Totals(xor ^ 1, 100 * copies, 900 * copies), ()) == ""
    assert doubling_in_words(STARTED, STARTED, ()) == ""


@pytest.mark.parametrize("basis", Basis)
def test_each_basis_has_a_sentence(basis):
    text = basis_in_words(facts(basis, frames=2, by=("sku",)))
    assert text[0].islower()
    assert "{" not in text
