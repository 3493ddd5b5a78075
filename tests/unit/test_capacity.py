"""The figures of docs/capacity.md: write units by the library's own code, and what was measured."""

import re

import pytest

from bench.__main__ import PAGE as BENCHMARKS
from bench.consumer import ACK, FOLDED, SINGLE
from tests.support.weighed_table import WeighedTable
from xorack.acker.chain_writer import CachedChain, ChainWriter
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.core.request import Request
from xorack.core.stamp import traced
from xorack.core.transitions import Limits

TAG = "database/2026/11/file-000013.txt"
PAGE = (BENCHMARKS.parent / "capacity.md").read_text(encoding="utf-8")


FIGURES = [(1, 1.2, 2.25), (10, 0.30, 0.60), (100, 0.10, 0.08)]


def weighed(count, together):
    """Apply requests of one chain, so many a write; return the table and a writer."""
    table = WeighedTable()
    limits = Limits(default_timeout_ms=86_400_000)
    store = DynamoDBStore("chains", client=table)
    writer = ChainWriter(store, clock=lambda: 1_800_000_000_000, limits=limits)
    ops = ["create", *["stamp"] * (count - 1)]
    requests = [Request(op, TAG, f"r-{n}", traced(n + 1), started=1) for n, op in enumerate(ops)]
    cached = None
    for first in range(0, count, together):
        applied = writer.apply(TAG, requests[first : first + together], cached)
        cached = CachedChain(applied.chain, verified=True)
    return table, writer


@pytest.mark.thorough
@pytest.mark.parametrize(("together", "writes", "reads"), FIGURES)
def test_what_a_chain_of_a_thousand_requests_costs(together, writes, reads):
    count = 1_000
    table, _ = weighed(count, together)
    assert table.writes / count == pytest.approx(writes, rel=0.02)
    assert (table.reads - 1) / count == pytest.approx(reads, rel=0.03)
    for units, figure in (("write units", f"{writes:g}"), ("read units", f"{reads:g}")):
        (formula,) = re.findall(rf"^\| {units} of a chain \|.*", PAGE, re.MULTILINE)
        assert re.search(rf"{figure}0? · R for (f = )?{together}\b", formula)


@pytest.mark.slow
@pytest.mark.parametrize(("count", "writes", "reads", "calls"), [(10_000, 1.28, 3.21, 400)])
def test_what_a_large_chain_costs_and_how_long_an_extend_takes(count, writes, reads, calls):
    table, writer = weighed(count, 1)
    assert table.writes / count == pytest.approx(writes, rel=0.02)
    assert table.reads / count == pytest.approx(reads, rel=0.02)
    table.calls.clear()
    writer.apply(TAG, [Request.extend(TAG, "extend", 100 * 86_400)])
    assert 0.2 * calls < table.calls["update_item"] < calls
    row = f"| {count:,} | {writes:.2f} | {reads:.2f} |"
    assert row in (BENCHMARKS.parent / "adr" / "0002-marks.md").read_text(encoding="utf-8")


def test_what_a_consumer_does_follows_from_its_measured_processor_time():
    page = BENCHMARKS.read_text(encoding="utf-8")
    cells = re.findall(r"^\| (an? .+) \| (.+) \| (.+) \|$", page, re.MULTILINE)
    measured = {name: (each, float(a_second.replace(",", ""))) for name, each, a_second in cells}
    rows = {
        "chains of two requests, acked": ACK,
        "requests, each of its own chain": SINGLE,
        "requests, a hundred of each chain": FOLDED,
    }
    for row, name in rows.items():
        cells = [f"{float(f'{n * measured[name][1]:.2g}'):,.0f}" for n in (5, 10, 100, 1_000)]
        assert f"| {row} | {' | '.join(cells)} |" in PAGE
    (each, a_second), text = measured[ACK], " ".join(PAGE.split())
    assert f"takes {each} ms of it, so an invocation does {a_second:.0f} a" in text
