"""The figures of docs/capacity.md: write units by the library's own code, and what was measured."""

import re
from functools import cache
from math import ceil, exp, log1p

import pytest

from bench.consumer import ACK, FOLDED, SINGLE
from bench.harness import ROOT
from tests.support.weighed_table import WeighedTable
from xorack.acker.chain_writer import Application, CachedChain, ChainWriter
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.core.request import Request
from xorack.core.stamp import traced
from xorack.core.transitions import MAX_FOLD, Limits

TAG = "database/2026/11/file-000013.txt"
DOCS = ROOT / "docs"
PAGE = (DOCS / "capacity.md").read_text(encoding="utf-8")


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
        applied = writer.apply(Application(TAG, requests[first : first + together], cached))
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
    writer.apply(Application(TAG, [Request.extend(TAG, "extend", 100 * 86_400)]))
    assert 0.2 * calls < table.calls["update_item"] < calls
    row = f"| {count:,} | {writes:.2f} | {reads:.2f} |"
    assert row in (DOCS / "adr" / "0002-marks.md").read_text(encoding="utf-8")


# -- dollars: the page's formulas ------------------------------------------------------------------

DAY, MILLION = 86_400, 1_000_000
POLLERS, WINDOW_SECONDS, BATCH_MESSAGES, CHAIN_SECONDS = 5, 1, 1_000, 600
VCPU, CALL_SECONDS = 0.58, 0.005
REQUEST_BYTES = {"ids": 163, "traced": 955, "plain": 130}
SENDERS = {
    "a request a unit, one message a call": {"messages_per_call": 1},
    "a request a unit, ten messages a call": {},
    "a request a unit, 100 requests a message": {"requests_per_message": 100},
    "the same with traced stamps": {"requests_per_message": 100, "carries": "traced"},
    "100 units a request": {"fold": 100, "units": 10_000, "carries": "traced"},
    "Spark: 10,000 units a request, 200 requests a message": {
        "fold": 10_000,
        "units": 100_000,
        "requests_per_message": 200,
        "carries": "plain",
    },
}


def prices():
    """Return the page's dollars for a million, by what they are for."""
    table = PAGE.partition("| price | dollars |")[2].partition("\n\n")[0]
    found = re.findall(r"^\| (?:a million|a) ([^,|]+?)(?:,.*)? \| ([\d.]+) \|$", table, re.M)
    return {name: float(dollars) for name, dollars in found}


@cache
def weigh(requests, together):
    """Return the write and read units of a chain whose requests share writes."""
    table, _ = weighed(requests, together)
    return table.writes, table.reads - 1


def queue_calls(messages, message_bytes):
    """Return the calls that SQS bills a message for: one for each 64 KB of a call begun."""
    together = max(1.0, min(messages, (1 << 20) // message_bytes))
    return ceil(together * message_bytes / (1 << 16)) / together


def estimate(
    units_per_day,
    *,
    units=1_000,
    fold=1,
    requests_per_message=1,
    messages_per_call=10,
    carries="ids",
    window_seconds=WINDOW_SECONDS,
    batch_messages=BATCH_MESSAGES,
):
    """Return the requests a write, the dollars for a million units by service, and write units."""
    price = prices()
    per_chain = 1 + units / fold
    chains_s = units_per_day / DAY / units
    messages_s = chains_s * per_chain / requests_per_message
    message_bytes = REQUEST_BYTES[carries] * requests_per_message
    opened = max(1.0, chains_s * CHAIN_SECONDS)
    arrived = messages_s / POLLERS * window_seconds
    messages = max(1.0, min(batch_messages, arrived, 6e6 // message_bytes))
    batch = messages * requests_per_message
    distinct = opened * (1 - exp(batch * log1p(-1 / opened))) if opened > 1 else 1
    together = max(1.0, min(batch / distinct, per_chain))
    splits = ceil(together / MAX_FOLD)
    written = batch / together * splits
    processor = (batch * 0.016 + written * 1.06 + batch / per_chain * 1.06) / 1_000
    busy = 0.01 + max(processor / VCPU, max(1, batch / together / 8) * splits * 2 * CALL_SECONDS)
    counted = round(min(per_chain, 1_000))
    writes, reads = (
        one * per_chain / counted for one in weigh(counted, round(min(together, counted)))
    )
    writes, reads = writes + 4 * per_chain / counted, reads + per_chain / together
    chains = MILLION / units
    batches = chains * per_chain / batch
    received = min(10.0, max(1.0, messages_s / POLLERS * 0.02))
    calls = queue_calls(messages_per_call, message_bytes) + queue_calls(received, message_bytes)
    calls += 1 / min(10, messages)
    kept_kb = 1.9 + 0.02 * max(0, per_chain - 64)
    amounts = {
        "DynamoDB": chains
        * (
            writes * price["write units"]
            + reads * price["read units"]
            + kept_kb * price["GB of the table and its backup"]
        ),
        "SQS": batches * messages * calls * price["calls of SQS"],
        "Lambda": batches * (price["invocations"] + busy * price["GB-seconds of Lambda"]),
        "EventBridge": chains * price["events"],
        "logs": batches * 1.5 * price["GB of logs"],
    }
    return together, {name: one / MILLION for name, one in amounts.items()}, chains_s * writes


def dollars_table():
    rows = []
    for name, load in SENDERS.items():
        loads = [estimate(units, **load) for units in (1e6, 1e9, 1e12)]
        totals = [sum(dollars.values()) for _, dollars, _ in loads]
        cells = (
            ", ".join(f"{f:.3g}" if f >= 10 else f"{f:.2f}" for f, _, _ in loads),
            ", ".join(f"{total:.3g}" for total in totals),
            ", ".join(
                f"{100 * one[1]['DynamoDB'] / total:.0f}"
                for one, total in zip(loads, totals, strict=True)
            ),
            "; ".join(f"{w:,.0f}" if w >= 100 else f"{w:.3g}" for _, _, w in loads),
        )
        rows.append(f"| {name} | {' | '.join(cells)} |\n")
    return "".join(rows)


def test_the_dollars_of_the_page_follow_from_its_formulas():
    """`python -m tests.unit.test_capacity` prints the rows."""
    assert dollars_table() in PAGE
    comparison = (DOCS / "comparison.md").read_text(encoding="utf-8")
    for name, load in (
        ("`fan_in`: 10 units a message", {"requests_per_message": 10}),
        ("a message for each unit", {"messages_per_call": 1}),
    ):
        cells = (f"{sum(estimate(1e6, units=n, **load)[1].values()):.2g}" for n in (1_000, 10))
        assert f"| xorack, {name} | {' | '.join(cells)} |" in comparison


def test_three_loads_by_hand():
    # 100 units a request, a million a day: 100 chains of 101 requests, each in a batch of its own.
    # A second has 0.117 messages of a traced stamp, so SQS bills a send for ten, a receive and a
    # delete for each: 10,100 * (0.1 + 1 + 1) * 0.5 / 10^6.
    _, dollars, _ = estimate(1e6, **SENDERS["100 units a request"])
    assert dollars["SQS"] == pytest.approx(10_100 * 2.1 * 0.5 / 1e6)
    # A batch takes 10 ms and two calls of 5 ms: its 1.09 ms of a processor take 1.9 ms of these.
    assert dollars["Lambda"] == pytest.approx(10_100 * (0.2 + 0.02 * 13.3334) / 1e6)
    # One message a unit at 10^12 a day: batches are full, each request is of a chain of its own.
    # 1,001 batches of 1,000 messages: 1,000 * (0.016 + 1.06 + 1.06 / 1,001) ms / 0.58 = 1.857 s.
    _, dollars, _ = estimate(1e12, messages_per_call=1)
    assert dollars["Lambda"] == pytest.approx(1_001 * (0.2 + 1.867 * 13.3334) / 1e6, rel=1e-3)
    assert dollars["SQS"] == pytest.approx(1_001_000 * (1 + 0.1 + 0.1) * 0.5 / 1e6)
    # Spark, a million a day: ten chains of 11 requests of 130 bytes; a chain is one message.
    together, dollars, writes = estimate(1e6, **SENDERS[[*SENDERS][-1]])
    assert together == 11
    assert dollars["EventBridge"] == pytest.approx(10 / 1e6)
    assert writes == pytest.approx(10 / DAY * (weigh(11, 11)[0] + 4))


def test_what_the_profiles_cost():
    low_latency = {"window_seconds": 0, "batch_messages": 10}
    cells = [
        f"{sum(estimate(units, **load)[1].values()):.2f}"
        for units in (1e4, 1e6, 1e9)
        for load in ({}, low_latency)
    ]
    rows = [
        f"| `low-cost` | {' | '.join(cells[::2])} |",
        f"| `low-latency` | {' | '.join(cells[1::2])} |",
    ]
    assert [row for row in rows if row not in PAGE] == []


def test_provisioned_capacity_with_auto_scaling():
    # An hour of a write unit a second is 0.00065 dollars, of a read unit 0.00013.
    for kind, on_demand, hour in (("write", 0.625, 0.00065), ("read", 0.125, 0.00013)):
        used = hour / (3_600 * 0.7) * MILLION
        assert prices()[f"{kind} units"] == on_demand
        share = round(100 * (1 - used / on_demand))
        assert re.search(
            rf"a million {kind} units .*\${used:.3f}.* {share} % less", " ".join(PAGE.split())
        )


def test_what_a_consumer_does_follows_from_its_measured_processor_time():
    page = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
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


if __name__ == "__main__":
    print(dollars_table())
