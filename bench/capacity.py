"""The formulas of docs/capacity.md: dollars for a million units, and write units a second.

    python -m bench.capacity     prints the page's tables

`bench.marks` weighs the writes with the library's own code, and `bench.consumer` measured the
processor time in docs/benchmarks.json; everything else is arithmetic. To compute
another load, change `SENDERS` or `PRICES`, or call `estimate`.
"""

from __future__ import annotations

import json
from math import ceil, exp, log1p
from typing import Any

from bench.consumer import ACK, FOLDED, FOLDED_IDS, SINGLE, VCPU
from bench.harness import ROOT, Table
from bench.marks import drive, weigh
from xorack.aws.schema import DUE_SHARDS
from xorack.core import windows
from xorack.core.transitions import MAX_FOLD

DAY, MILLION = 86_400, 1_000_000
REQUEST_BYTES = {"ids": 163, "traced stamp": 955, "plain stamp": 130}
"""Bytes of a request in a message, by what it carries: the ids of four units, or a stamp."""
POLLERS, WINDOW_SECONDS, BATCH_MESSAGES = 5, 1, 1_000  # of Lambda and the consumer
CONSUMERS = (5, 10, 100, 1_000)
CHAIN_SECONDS = 600  # from a chain's create to its end
CALL_SECONDS = 0.005  # of DynamoDB's response
MONTH_HOURS, MONTH_MINUTES = 730, 43_800
WINDOWS, PARTITIONS = 24, 512  # of a day, and of a log
METRICS, ALARMS, COMPOSITE_ALARMS = 25, 24, 2  # of the stack; an alarm counts by its metrics
PRICES = {
    "queue calls": 0.50, "invocations": 0.20, "GB-seconds": 13.3334, "write units": 0.625,
    "read units": 0.125, "events": 1.00, "GB of logs": 0.50,
    "GB of table and its backup": 0.45, "metric": 0.30, "alarm": 0.10, "composite alarm": 0.50,
    "dashboard": 3.00, "hour of a poller": 0.00925,
}  # fmt: skip
"""US dollars of us-east-1 (2026): for a million, a GB, or a month. Of a queue call, 0.10 is for
messages that have a group."""
_SECONDS = {
    name: milliseconds / 1000
    for name, milliseconds in json.loads((ROOT / "docs" / "benchmarks.json").read_text())[
        "sections"
    ]["consumer"]["figures"]["milliseconds"].items()
}
"""Processor time as measured."""
WRITE = (_SECONDS[SINGLE] - _SECONDS[FOLDED]) / (1 - 1 / 100)
"""Processor time of a write with its share of reads, seconds."""
REQUEST = _SECONDS[SINGLE] - WRITE
"""Processor time of a request with a stamp, without its write."""
REQUEST_OF_IDS = _SECONDS[FOLDED_IDS] - WRITE / 100
"""The same of one with an id."""
END = _SECONDS[ACK] - WRITE - 2 * REQUEST
"""Processor time of a chain's end: its event, and the write that marks it as published."""
SENDERS: dict[str, dict[str, Any]] = {
    "a request a unit, one message a call": {"messages_per_call": 1},
    "a request a unit, ten messages a call": {},
    "a request a unit, 100 requests a message": {"requests_per_message": 100},
    "the same with traced stamps": {"requests_per_message": 100, "carries": "traced stamp"},
    "100 units a request": {
        "units_per_request": 100, "units_per_chain": 10_000, "carries": "traced stamp",
    },
    "Spark: 10,000 units a request, 200 requests a message": {
        "units_per_request": 10_000, "units_per_chain": 100_000, "requests_per_message": 200,
        "carries": "plain stamp",
    },
}  # fmt: skip


def queue_calls(messages: float, message_bytes: float) -> float:
    """Compute the calls that SQS bills a message for: one for each 64 KB of a call begun."""
    together = max(1.0, min(messages, (1 << 20) // message_bytes))
    return ceil(together * message_bytes / (1 << 16)) / together


def estimate(
    units_per_day: float, *, units_per_chain: float = 1_000, units_per_request: float = 1,
    requests_per_message: float = 1, messages_per_call: float = 10, carries: str = "ids",
) -> tuple[float, dict[str, float], float]:  # fmt: skip
    """Estimate a load: units, their chains, and how the sender folds, packs and sends them.

    Returns:
        Requests that share a write; dollars for a million units by service; and write units a
        second.
    """
    per_chain = 1 + units_per_chain / units_per_request
    chains_s = units_per_day / DAY / units_per_chain
    messages_s = chains_s * per_chain / requests_per_message
    message_bytes = REQUEST_BYTES[carries] * requests_per_message
    open_chains = max(1.0, chains_s * CHAIN_SECONDS)

    # The requests of a batch, which arrive in no order, and how many of them share a chain.
    window = messages_s / POLLERS * WINDOW_SECONDS
    messages = max(1.0, min(BATCH_MESSAGES, window, 6e6 // message_bytes))
    batch = messages * requests_per_message
    distinct = open_chains * (1 - exp(batch * log1p(-1 / open_chains))) if open_chains > 1 else 1
    together = max(1.0, min(batch / distinct, per_chain))
    rounds = max(1, batch / together / 8) * ceil(together / MAX_FOLD)
    written = batch / together * ceil(together / MAX_FOLD)
    request = REQUEST_OF_IDS if carries == "ids" else REQUEST
    processor = batch * request + written * WRITE + batch / per_chain * END
    busy = 0.01 + max(processor / VCPU, rounds * CALL_SECONDS * 2)

    # Ending and marking the event as published write the item and the index once more each.
    weighed = round(min(per_chain, 1_000))  # in longer chains a request costs more, up to twice
    store = drive(weighed, round(min(together, weighed)))
    writes = (store.writes + 4) * per_chain / weighed
    reads = store.reads * per_chain / weighed + per_chain / together
    kept_kb = 1.9 + 0.02 * max(0, per_chain - 64)

    chains = MILLION / units_per_chain
    batches = chains * per_chain / batch
    received = min(10.0, max(1.0, messages_s / POLLERS * 0.02))
    calls = queue_calls(messages_per_call, message_bytes)
    calls += queue_calls(received, message_bytes) + 1 / min(10, messages)
    amounts = {
        "DynamoDB": chains * (writes * PRICES["write units"] + reads * PRICES["read units"]
                              + kept_kb * PRICES["GB of table and its backup"]),
        "SQS": batches * messages * calls * PRICES["queue calls"],
        "Lambda": batches * (PRICES["invocations"] + busy * PRICES["GB-seconds"]),
        "EventBridge": chains * PRICES["events"],
        "logs": batches * 1.5 * PRICES["GB of logs"],
    }  # fmt: skip
    dollars = {name: amount / MILLION for name, amount in amounts.items()}
    return together, dollars, chains_s * writes


def table() -> str:
    """Format the table of docs/capacity.md."""
    head = ["sender", "units a day", "requests a write", "dollars", "of it DynamoDB"]
    out = Table([*head, "write units a second"])
    for name, settings in SENDERS.items():
        for units in (1e6, 1e9, 1e12):
            together, dollars, writes = estimate(units, **settings)
            total = sum(dollars.values())
            share = f"{100 * dollars['DynamoDB'] / total:.0f} %"
            row = (name, f"{units:.0e}".replace("e+", "e"), together, f"{total:.3g}", share)
            out.add(*row, writes)
    return out.markdown()


def throughput() -> str:
    """Format the table of what consumers do at most: the processor is the limit."""
    kinds = {
        "chains of two requests, acked": _SECONDS[ACK],
        "requests, each of its own chain": _SECONDS[SINGLE],
        "requests, a hundred of each chain": _SECONDS[FOLDED],
        "the same, of ids": _SECONDS[FOLDED_IDS],
    }
    out = Table(["a second", *(f"{n:,} consumers" for n in CONSUMERS)])
    for name, seconds in kinds.items():
        out.add(name, *(f"{float(f'{n * VCPU / seconds:.2g}'):,.0f}" for n in CONSUMERS))
    return out.markdown()


def idle() -> dict[str, float]:
    """Compute dollars a month without any load, by what they are for."""
    seconds = 0.01 + DUE_SHARDS * CALL_SECONDS
    sweep = DUE_SHARDS * 0.5 * PRICES["read units"] + PRICES["invocations"]
    return {
        "metrics": METRICS * PRICES["metric"],
        "dashboard": PRICES["dashboard"],
        "alarms": ALARMS * PRICES["alarm"] + COMPOSITE_ALARMS * PRICES["composite alarm"],
        # Five pollers wait 20 seconds for messages. Messages that are not there have no group.
        "polling": POLLERS * MONTH_MINUTES * 3 * 0.40 / MILLION,
        "sweeper": MONTH_MINUTES * (sweep + seconds * PRICES["GB-seconds"]) / MILLION,
        "each provisioned poller": MONTH_HOURS * PRICES["hour of a poller"],
    }


def windows_day() -> str:
    """Weigh the requests of a day of windows over a log of many partitions."""
    hour, keys = "2026-09-14T14", [f"orders/{number}" for number in range(PARTITIONS)]
    detail = {"log": "orders", "window": hour, "ranges": "0" * 16, "positions": MILLION}
    create = windows.create(tag := f"shop/orders/{hour}", detail, keys)
    requests = [create, *(windows.finish(tag, detail["ranges"], key) for key in keys)]
    sizes = [len(json.dumps(one.to_json(), separators=(",", ":"))) for one in requests[:2]]
    out = Table(["partitions pass a window's end", "requests", "write units", "dollars"])
    for name, together in (("together", len(requests)), ("each in another batch", 1)):
        writes = WINDOWS * (weigh(requests, together).writes + 4)
        out.add(name, WINDOWS * len(requests), writes, writes * PRICES["write units"] / MILLION)
    head = f"A create of {sizes[0]:,} bytes, stamps of {sizes[1]}; a day of {WINDOWS} windows:"
    return f"{head}\n\n{out.markdown()}"


if __name__ == "__main__":
    print(table(), throughput(), windows_day(), sep="\n")
    for purpose, dollars_a_month in idle().items():
        print(f"{purpose}: {dollars_a_month:.2f} dollars a month")
