"""The figures of docs/capacity.md: write units by the library's own code, and what was measured."""

import re

import pytest

from bench.harness import ROOT
from bench.weighed_table import WeighedTable
from xorack.acker.chain_writer import Application, CachedChain, ChainWriter
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.core.request import Request
from xorack.core.stamp import traced
from xorack.core.transitions import Limits

TAG = "database/2026/11/file-000013.txt"
DOCS = ROOT / "docs"
PAGE = (DOCS / "capacity.md").read_text(encoding="utf-8")


FIGURES = [(1, 1.2, 2.25), (10, 0.30, 0.60), (100, 0.10, 0.08)]


def weighed(count, together, tag=TAG, cells=16, **of_create):
    """Apply requests of one chain, so many a write; return the table and a writer."""
    table = WeighedTable()
    limits = Limits(default_timeout_ms=86_400_000, resumes=frozenset({"step_functions"}))
    store = DynamoDBStore("chains", client=table)
    writer = ChainWriter(store, clock=lambda: 1_800_000_000_000, limits=limits)
    ops = ["create", *["stamp"] * (count - 1)]
    requests = [
        Request(op, tag, f"r-{n}", traced(n + 1, cells), started=1, **({} if n else of_create))
        for n, op in enumerate(ops)
    ]
    cached = None
    for first in range(0, count, together):
        applied = writer.apply(Application(tag, requests[first : first + together], cached))
        cached = CachedChain(applied.chain, verified=True)
    return table, writer


@pytest.mark.parametrize(("together", "writes", "reads"), FIGURES)
def test_what_a_chain_of_a_thousand_requests_costs(together, writes, reads):
    count = 1_000
    table, _ = weighed(count, together)
    assert table.writes / count == pytest.approx(writes, rel=0.02)
    assert (table.reads - 1) / count == pytest.approx(reads, rel=0.03)
    for units, figure in (("write units", f"{writes:g}"), ("read units", f"{reads:g}")):
        (formula,) = re.findall(rf"^\| {units} of a chain \|.*", PAGE, re.MULTILINE)
        assert re.search(rf"{figure}0? · R for (f = )?{together}\b", formula)


LARGER = {
    "none of these": {},
    "a detail of 19 bytes": {"detail": {"customer": "Ahab"}},
    "a detail of 100 bytes": {"detail": {"text": "x" * 89}},
    "a detail of 4 KiB": {"detail": {"text": "x" * 4_085}},
    "a tag of 100 bytes": {"tag": "t" * 100},
    "a callback": {"resume": {"step_functions": "t" * 600}},
    "`cells=64`": {"cells": 64},
    "`cells=256`": {"cells": 256},
    "`cells=1024`": {"cells": 1024},
}


@pytest.mark.parametrize("what", LARGER)
def test_what_makes_a_write_larger(what):
    table, _ = weighed(1_000, 1, **LARGER[what])
    units = table.writes / 1_000
    dollars = (units - 1.20) * 0.625
    (row,) = re.findall(
        rf"^\| {re.escape(what)}.*\| ([0-9.]+) \| ([0-9.]+) \|$", PAGE, re.MULTILINE
    )
    assert float(row[0]) == pytest.approx(units, abs=0.01)
    assert float(row[1]) == pytest.approx(dollars, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(("count", "writes", "reads", "calls"), [(10_000, 1.28, 3.21, 400)])
def test_what_a_large_chain_costs_and_how_long_an_extend_takes(count, writes, reads, calls):
    table, writer = weighed(count, 1)
    assert table.writes / count == pytest.approx(writes, rel=0.02)
    assert table.reads / count == pytest.approx(reads, rel=0.02)
    table.calls.clear()
    writer.apply(Application(TAG, [Request.extend(TAG, "extend", 100 * 86_400)]))
    assert 0.2 * calls < table.calls["update_item"] < calls
    row = f"| {count:,} | {writes:.2f} | {reads:.2f} |"
    assert row in (DOCS / "adr" / "0002-marks.md").read_text(encoding="utf-8")
