"""What an acker costs and which limit comes next, from a model that anyone can feed.

Counts (capacity units, index writes, bytes of a message) are not written down here: the real loop
and the real packing are driven, and weighed. The rest is arithmetic over a load, prices and quotas,
each number of which can be changed by an argument::

    python -m bench.capacity --units-per-day 1e9 --units-per-request 1000 --write-units 0.625
    python -m bench.capacity --measured      the consumer's own work as `make bench` found it here
    python -m bench.capacity --tables        the tables of docs/capacity.md
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from math import ceil, exp, log1p
from pathlib import Path
from typing import Any

from bench.harness import Table, figure
from bench.marks import NOW, WeighedStore, item_bytes
from xorack.acker.chain_writer import apply_requests
from xorack.aws.dynamodb_store import DUE_SHARDS
from xorack.core.chain import MAX_FOLD, Chain, published
from xorack.core.message import MAX_BODY_BYTES, MAX_REQUESTS, pack
from xorack.core.request import Request
from xorack.core.retry import RetryPolicy
from xorack.core.stamp import traced, xor

REPORT = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.json"
DAY = 86_400
MILLION = 1_000_000
CHUNK = 64 * 1024
"""SQS and EventBridge count a request for each 64 KB begun."""
MOST_WEIGHED = 1_000
"""Requests of a chain that are driven for real; longer chains cost per request what these do."""
POLLERS = 5
"""Lambda reads a queue with so many pollers at first, and never with fewer."""
RECEIVE_SECONDS = 0.02
"""One ReceiveMessage, as a poller sees it: it brings what came meanwhile, at most ten messages."""
METRICS, ALARMS = 22, 11
"""What the functions and the stack have; a test holds these to them."""
_MOST = 1e18
_RANGES = {
    "units_per_chain": (1, _MOST),
    "hot_share": (1e-9, 1),
    "batch_size": (1, 10_000),
    "batch_window_seconds": (0, 300),
    "messages_per_call": (1, 10),
    "max_concurrency": (2, 1_000),
    "memory_mb": (128, 10_240),
    "request_seconds": (0, 900),
    "call_seconds": (1e-6, 900),
}
"""What is not just above 0."""


def _checked(numbers: Any, zero: bool = False) -> None:
    """Refuse a number that makes no sense.

    Args:
        numbers: A dataclass of numbers.
        zero: Whether 0 is one where `_RANGES` says nothing.

    Raises:
        ValueError: The text names it.
    """
    for each in fields(numbers):
        value = getattr(numbers, each.name)
        if value is None and each.default is None:
            continue
        least, most = _RANGES.get(each.name, (0, _MOST))
        inclusive = zero or each.name in _RANGES
        if not least <= value <= most or (value == 0 and not inclusive):
            above = f"from {least:,g} to" if inclusive else "above 0, at most"
            raise ValueError(f"{each.name} is {value}: expected a number {above} {most:,g}")


@dataclass(frozen=True)
class Prices:
    """US dollars, list prices of us-east-1 (2025), without free tiers. Check them before you rely.

    Attributes:
        write_units: A million on-demand write units of DynamoDB.
        read_units: A million on-demand read units.
        storage: A GB and month in DynamoDB.
        backups: A GB and month of point-in-time recovery, which the table has.
        queue_requests: A million requests of SQS, standard queue.
        invocations: A million of Lambda.
        gb_seconds: A million GB-seconds of Lambda on arm64.
        events: A million custom events of EventBridge.
        logs: A GB taken in by CloudWatch Logs.
        metric: A custom metric, a month.
        alarm: An alarm, a month.
        dashboard: A dashboard, a month.
    """

    write_units: float = 0.625
    read_units: float = 0.125
    storage: float = 0.25
    backups: float = 0.20
    queue_requests: float = 0.40
    invocations: float = 0.20
    gb_seconds: float = 13.3334
    events: float = 1.00
    logs: float = 0.50
    metric: float = 0.30
    alarm: float = 0.10
    dashboard: float = 3.00

    def __post_init__(self) -> None:
        _checked(self, zero=True)


@dataclass(frozen=True)
class Quotas:
    """What AWS lets one have: defaults of us-east-1; most can be raised, and differ by region.

    Attributes:
        partition_write_units: Write units a second of one partition of a table.
        new_table_write_units: Of an on-demand table at its beginning, a second.
        table_write_units: Of a table, a second.
        index_writes: Of the index of deadlines, a second: its partitions' together.
        concurrent_invocations: Of all functions of the account.
        messages_in_flight: Of a standard queue.
        events_a_second: PutEvents, entries.
    """

    partition_write_units: float = 1_000
    new_table_write_units: float = 4_000
    table_write_units: float = 40_000
    index_writes: float = 1_000 * DUE_SHARDS
    concurrent_invocations: float = 1_000
    messages_in_flight: float = 120_000
    events_a_second: float = 10_000

    def __post_init__(self) -> None:
        _checked(self)


@dataclass(frozen=True)
class Load:
    """What is asked of the acker, and how it is set up.

    Attributes:
        units_per_day: Units started and finished.
        units_per_chain: Units of one chain.
        units_per_request: Folding by the sender: how many units one request stands for.
        requests_per_message: Packing by the sender.
        messages_per_call: Messages that the sender has at hand for one call of SQS.
        chain_seconds: From a chain's create to its end.
        hot_share: Share of all requests that goes to the busiest chain; None: all are alike.
        batch_size: The consumer's, messages.
        batch_window_seconds: The consumer's.
        max_concurrency: The consumer's.
        memory_mb: The consumer's.
        call_seconds: One write to DynamoDB, as the consumer sees it.
        request_seconds: The consumer's own work for a request (the bench measures it).
        retention_days: How long tombstones and marks stay.
    """

    units_per_day: float = 1e6
    units_per_chain: float = 1_000
    units_per_request: float = 1
    requests_per_message: float = 1
    messages_per_call: float = 10
    chain_seconds: float = 600
    hot_share: float | None = None
    batch_size: float = 1_000
    batch_window_seconds: float = 1
    max_concurrency: float = 10
    memory_mb: float = 1_024
    call_seconds: float = 0.005
    request_seconds: float = 0.0001
    retention_days: float = 30

    def __post_init__(self) -> None:
        _checked(self)
        if self.batch_window_seconds == 0 and self.batch_size > 10:
            raise ValueError(
                f"batch_window_seconds is 0: expected 1 to 300, since batch_size is "
                f"{self.batch_size:g} and Lambda gathers more than 10 messages only within a window"
            )
        size = self.requests_per_message * request_bytes()
        if self.requests_per_message > MAX_REQUESTS or size > MAX_BODY_BYTES:
            most = min(MAX_REQUESTS, MAX_BODY_BYTES // request_bytes())
            raise ValueError(
                f"requests_per_message is {self.requests_per_message}: expected at most "
                f"{most:,}, which is what a message holds of traced stamps"
            )


@dataclass(frozen=True)
class Weighed:
    """What one chain costs DynamoDB, from create to crossed-off event.

    Attributes:
        writes: Conditional writes.
        write_units: Those of the table and the index, copies of marks included.
        item_units: Those of the chain's own item, which all fall on one partition.
        read_units: Look-ups of marks, and a read of the chain before each write.
        index_writes: Those of the index of deadlines.
        bytes: What stays in the table until its TTL.
    """

    writes: float
    write_units: float
    item_units: float
    read_units: float
    index_writes: float
    bytes: float


class _Store(WeighedStore):
    def __init__(self) -> None:
        super().__init__()
        self.made = self.index = self.of_items = 0

    def write(self, before: Chain | None, after: Chain) -> None:
        charged = self.writes
        old = 0 if before is None else item_bytes(self.shape.to_item(before))
        of_table = ceil(max(old, item_bytes(self.shape.to_item(after))) / 1024)
        super().write(before, after)
        self.made += 1
        self.index += int(self.writes - charged - of_table)
        self.of_items += of_table


@lru_cache(maxsize=512)
def weigh(requests: int, together: int) -> Weighed:
    """Drive the real loop through a chain's life and weigh it.

    Args:
        requests: Of the chain, create and last included; at least 2.
        together: How many of them come in one batch.

    Returns:
        What all of it costs.
    """
    store = _Store()
    reads = 0
    stamps = [traced(n + 1) for n in range(requests - 1)]
    last = xor(*stamps, bytes(len(stamps[0])))
    for first in range(0, requests, together):
        part = []
        for n in range(first, min(requests, first + together)):
            if n == 0:
                part.append(Request("create", "database/file-000013", "r0", stamps[0], 1))
            elif n < requests - 1:
                part.append(Request("stamp", "database/file-000013", f"r{n}", stamps[n], 1))
            else:
                part.append(
                    Request("stamp", "database/file-000013", f"r{n}", last, 0, requests - 1)
                )
        reads += first > 0  # a batch with the create guesses that there is no chain
        apply_requests(
            store, part[0].tag, part, now=lambda: NOW, policy=RetryPolicy(),
            default_timeout=DAY * 1000,
        )  # fmt: skip
    (ended,) = store.chains.values()
    if ended.status != "acked":
        raise AssertionError(f"the chain ended {ended.status}")
    store.write(ended, published(ended))
    stays = item_bytes(store.shape.to_item(ended)) + 100 + 180 * ended.spilled
    return Weighed(
        store.made, store.writes, store.of_items, store.reads + reads, store.index, stays
    )


@lru_cache(maxsize=1)
def request_bytes() -> int:
    """Bytes of a stamp request in a message, traced, as `pack` writes it."""
    request = Request.stamp_("database/file-000013", "0123456789abcdef", traced(1), started=1)
    (one,) = pack([request])
    (two,) = pack([request, replace(request, id="fedcba9876543210")])
    return len(two.encode()) - len(one.encode())


@dataclass(frozen=True)
class Limit:
    """One limit: how much of it is used.

    Attributes:
        name: What it is.
        used: What the load needs.
        limit: What there is.
        unit: Of both.
        remedy: What to do when it is reached.
    """

    name: str
    used: float
    limit: float
    unit: str
    remedy: str

    @property
    def share(self) -> float:
        """1 is full."""
        return self.used / self.limit


@dataclass(frozen=True)
class Estimate:
    """What a load costs and meets.

    Attributes:
        dollars: For each service, dollars for a million units.
        standing: For each service, dollars a month that come whatever the load is.
        requests_together: Requests of a chain that one write applies.
        messages_in_batch: Messages that an invocation gets.
        invocations: Invocations of the consumer at a time.
        shards: Over how many chains to spread the busiest one, so that each is half used.
        limits: The fullest first.
    """

    dollars: dict[str, float]
    standing: dict[str, float]
    requests_together: float
    messages_in_batch: float
    invocations: float
    shards: int
    limits: list[Limit]

    @property
    def total(self) -> float:
        """Dollars for a million units."""
        return sum(self.dollars.values())


def estimate(load: Load, prices: Prices | None = None, quotas: Quotas | None = None) -> Estimate:
    """Work a load out.

    Args:
        load: What is asked.
        prices: What things cost.
        quotas: What there is.

    Returns:
        Dollars and limits.
    """
    prices, quotas = prices or Prices(), quotas or Quotas()
    # A chain has a create, and requests that finish units and start others.
    per_chain = max(2.0, 1 + load.units_per_chain / load.units_per_request)
    chains_a_second = load.units_per_day / DAY / load.units_per_chain
    requests_a_second = chains_a_second * per_chain
    packed = load.requests_per_message
    message_bytes = packed * request_bytes() + 30
    messages_a_second = requests_a_second / packed
    open_chains = max(1.0, chains_a_second * load.chain_seconds)

    # The pollers share what comes within a window.
    share = messages_a_second / POLLERS
    received = min(10.0, max(1.0, share * RECEIVE_SECONDS))
    gathered = max(share * load.batch_window_seconds, received)
    fits = max(1.0, 6 * MILLION // message_bytes)
    batch = max(1.0, min(load.batch_size, fits, gathered))
    in_batch = batch * packed
    # So many different chains are among requests that come in no order; but no chain is there with
    # more requests than it has.
    distinct = max(_distinct(in_batch, open_chains), in_batch / per_chain, 1.0)
    together = max(1.0, min(in_batch / distinct, per_chain))

    weighed_requests = max(2, min(MOST_WEIGHED, round(per_chain)))
    one = weigh(weighed_requests, max(1, round(min(together, weighed_requests))))
    longer = max(1.0, per_chain / weighed_requests)
    chains = MILLION / load.units_per_chain  # of a million units
    batches = chains * per_chain / in_batch
    # The writes of a chain's requests in this batch; eight chains at a time.
    writes_a_chain = ceil(together / MAX_FOLD)
    busy = 0.01 + in_batch * load.request_seconds
    busy += max(distinct / 8, 1) * writes_a_chain * load.call_seconds * 2
    # Sent, received, deleted: a request for each 64 KB of a call begun.
    queue = _calls(load.messages_per_call, message_bytes) + _calls(received, message_bytes)
    queue = (queue + 1 / min(10, batch)) * chains * per_chain / packed
    hot = max(load.hot_share or 0, 1 / open_chains)
    batches_a_second = messages_a_second / batch
    hot_requests = requests_a_second * hot
    hot_together = max(1.0, min(hot_requests / max(batches_a_second, 1e-12), in_batch))
    hot_writes = hot_requests / min(hot_together, MAX_FOLD)
    busiest = weigh(MOST_WEIGHED, max(1, min(MAX_FOLD, round(hot_together))))
    hot_units = hot_requests * busiest.item_units / MOST_WEIGHED

    def of_a_million(what: str) -> float:
        """Something that is weighed, for a million units: those of the hot chain, and the rest."""
        spread = chains * longer * getattr(one, what)
        in_hot = chains * per_chain * getattr(busiest, what) / MOST_WEIGHED
        share = load.hot_share or 0
        return float((1 - share) * spread + share * in_hot)

    months = load.retention_days / 30
    dollars = {
        "DynamoDB writes": of_a_million("write_units") / MILLION * prices.write_units,
        "DynamoDB reads": of_a_million("read_units") / MILLION * prices.read_units,
        "DynamoDB storage": of_a_million("bytes")
        / 1e9
        * months
        * (prices.storage + prices.backups),
        "SQS": queue / MILLION * prices.queue_requests,
        "Lambda": batches / MILLION * prices.invocations
        + batches * busy * load.memory_mb / 1024 / MILLION * prices.gb_seconds,
        "EventBridge": chains / MILLION * prices.events,
        "Logs": batches * 1_500 / 1e9 * prices.logs,
    }

    a_second = load.units_per_day / DAY / MILLION
    # Half of what a chain takes, so that there is room.
    room = min(1 / load.call_seconds / 2,
               quotas.partition_write_units * busiest.writes / busiest.item_units) / 2  # fmt: skip
    shards = shards_for(hot_requests, hot_together, room)
    units_a_second = a_second * of_a_million("write_units")
    invocations = batches_a_second * busy
    # A batch waits until it is full, at most for the window.
    in_flight = messages_a_second * (min(load.batch_window_seconds, batch / share) + busy)
    index_writes = a_second * of_a_million("index_writes")
    limits = [
        Limit("conditional writes of the busiest chain", hot_writes,
              1 / load.call_seconds / 2, "writes/s",
              "fold more before sending; a longer window; then shard the tag over "
              f"{shards:,} chains"),
        Limit("write units of the busiest chain's partition", hot_units,
              quotas.partition_write_units, "units/s",
              "fold more before sending; then shard the tag over "
              f"{shards:,} chains"),
        Limit("write units of a new on-demand table", units_a_second,
              quotas.new_table_write_units, "units/s",
              "warm throughput before the load comes; it grows by itself, twofold in half an hour"),
        Limit("write units of a table, default quota", units_a_second,
              quotas.table_write_units, "units/s",
              "raise the quota, or several stacks with the tag's hash choosing one"),
        Limit(f"index of deadlines ({DUE_SHARDS} partitions)", index_writes,
              quotas.index_writes, "writes/s",
              "fewer, larger chains; several stacks; more `DUE_SHARDS`"),
        Limit("the consumer's max_concurrency", invocations, load.max_concurrency, "invocations",
              "raise `max_concurrency` (to 1,000), batch size and window; fold"),
        Limit("Lambda's concurrency, default quota", invocations,
              quotas.concurrent_invocations, "invocations",
              "raise the quota; several stacks"),
        Limit("messages in flight", in_flight, quotas.messages_in_flight, "messages",
              "more requests a message; a shorter window; several stacks"),
        Limit("EventBridge PutEvents, default quota", chains_a_second,
              quotas.events_a_second, "events/s",
              "larger chains; raise the quota"),
    ]  # fmt: skip
    limits.sort(key=lambda limit: -limit.share)
    return Estimate(dollars, standing(prices), together, batch, invocations, shards, limits)


def _calls(messages: float, message_bytes: float) -> float:
    """Requests of SQS that a message costs, where a call has so many, as far as they fit."""
    together = max(1.0, min(messages, MAX_BODY_BYTES // message_bytes))
    return ceil(together * message_bytes / CHUNK) / together


def shards_for(requests: float, together: float, writes: float) -> int:
    """Over how many chains to spread one.

    Each batch writes each of the chains that it holds requests of. So while a batch holds enough
    for all, more chains only help where a batch needs more than one write for one chain: fewer,
    larger batches come first.

    Args:
        requests: A second, of the one chain.
        together: Of these, how many come in a batch.
        writes: A second, that each chain may take.

    Returns:
        How many, at least 1.
    """
    few = max(1, ceil(requests / MAX_FOLD / writes))
    each = requests / few / min(max(together / few, 1), MAX_FOLD)
    return few if each <= writes else ceil(requests / writes)


def standing(prices: Prices) -> dict[str, float]:
    """What an acker costs that nobody uses.

    Args:
        prices: What things cost.

    Returns:
        For each service, dollars a month of 30 days.
    """
    sweeps = 30 * 24 * 60
    # A sweep takes some 0.1 s of 1 GB, asks each shard of the index, and logs 2.5 KB; a poller
    # that finds nothing asks three times a minute.
    return {
        "custom metrics": METRICS * prices.metric,
        "dashboard": prices.dashboard,
        "alarms": ALARMS * prices.alarm,
        "polling": POLLERS * 3 * sweeps / MILLION * prices.queue_requests,
        "sweeper": sweeps / MILLION * (prices.invocations + 0.1 * prices.gb_seconds)
        + sweeps * DUE_SHARDS * 0.5 / MILLION * prices.read_units
        + sweeps * 2_500 / 1e9 * prices.logs,
    }


def _distinct(draws: float, kinds: float) -> float:
    """How many different kinds so many draws hit, on average."""
    if kinds <= 1:
        return 1.0
    return kinds * (1 - exp(draws * log1p(-1 / kinds)))


SENDERS = {
    "a request a unit, each by itself": Load(messages_per_call=1),
    "a request a unit, ten a call": Load(),
    "a request a unit, 100 a message": Load(requests_per_message=100),
    "100 units a request": Load(units_per_request=100, units_per_chain=10_000),
    "Spark: a task's units folded, 200 requests a message": Load(
        units_per_request=10_000, units_per_chain=100_000, requests_per_message=200
    ),
}
"""How different senders load an acker, for the tables."""


def tables() -> str:
    """The tables of docs/capacity.md."""
    parts = []
    cost = Table(["sender", "units a day", "window, s", "requests a write",
                  "dollars a million units", "of it DynamoDB", "fullest limit",
                  "used", "others above 1"])  # fmt: skip
    for name, load in SENDERS.items():
        for units in (1e6, 1e9, 1e12):
            for window in (1, 20):
                load_ = replace(load, units_per_day=units, batch_window_seconds=window)
                found = estimate(load_)
                dynamodb = sum(v for k, v in found.dollars.items() if k.startswith("DynamoDB"))
                cost.rows.append(
                    [
                        name,
                        f"{units:.0e}".replace("e+", "e"),
                        str(window),
                        figure(found.requests_together),
                        f"{found.total:.3g}",
                        f"{100 * dynamodb / found.total:.0f} %",
                        found.limits[0].name,
                        f"{figure(found.limits[0].share)} times",
                        str(sum(limit.share > 1 for limit in found.limits[1:]) or "none"),
                    ]
                )
    parts.append(cost.markdown())
    hot = Table(["sender, all to one tag", "units a day", "batch size", "writes/s, of 100",
                 "units/s, of 1,000", "chains"])  # fmt: skip
    for name, load in [*SENDERS.items()][1:]:
        for units in (1e9, 1e12):
            for batch in (1_000, 10_000):
                found = estimate(
                    replace(load, units_per_day=units, hot_share=1.0, batch_size=batch)
                )
                writes, partition = (
                    next(limit for limit in found.limits if limit.name.startswith(start))
                    for start in ("conditional writes", "write units of the busiest")
                )
                hot.rows.append(
                    [
                        name,
                        f"{units:.0e}".replace("e+", "e"),
                        f"{batch:,}",
                        figure(writes.used),
                        figure(partition.used),
                        f"{found.shards:,}",
                    ]
                )
    parts.append(hot.markdown())
    month = standing(Prices())
    parts.append(
        f"Whatever the load: ${sum(month.values()):.2f} a month ("
        + ", ".join(f"{name} {dollars:.2f}" for name, dollars in month.items())
        + ")."
    )
    return "\n\n".join(parts)


def explain(load: Load, found: Estimate) -> str:
    """One load in words."""
    lines = [
        f"{load.units_per_day:,.0f} units a day: ${found.total:.4f} a million units, "
        f"${found.total * load.units_per_day / MILLION:,.2f} a day",
        f"  {figure(found.messages_in_batch)} messages a batch, "
        f"{figure(found.requests_together)} requests of a chain in one write",
    ]
    lines += [f"  {name:<18} ${dollars:.5f}" for name, dollars in found.dollars.items()]
    lines.append(
        f"  and ${sum(found.standing.values()):.2f} a month whatever the load: "
        + ", ".join(f"{name} ${dollars:.2f}" for name, dollars in found.standing.items())
    )
    if found.invocations > POLLERS:
        lines.append(
            f"Lambda starts with {POLLERS} invocations of the consumer and adds at most 300 a "
            f"minute: {figure((found.invocations - POLLERS) / 300)} minutes until there are "
            f"{figure(found.invocations)}"
        )
    lines.append("limits, the fullest first:")
    for limit in found.limits:
        lines.append(
            f"  {100 * limit.share:>12,.2f} %  {limit.name}: {figure(limit.used)} of "
            f"{limit.limit:,.0f} {limit.unit}"
            + (f" -> {limit.remedy}" if limit.share >= 0.5 else "")
        )
    return "\n".join(lines)


def measured_request_seconds(report: Path = REPORT) -> float:
    """The consumer's own seconds for a request, as the bench found them.

    Args:
        report: The raw figures of `make bench`.

    Returns:
        Of the largest batch that was measured over ten chains: seconds outside of AWS calls.

    Raises:
        SystemExit: It was not measured.
    """
    try:
        handler = json.loads(report.read_text(encoding="utf-8"))["sections"]["handler"]
        sizes = [int(name.partition(" ")[0]) for name in handler if name.endswith(" over 10")]
        figures = handler[f"{max(sizes)} over 10"]["one"]
        return float(figures["own_microseconds_a_message"]) / 1e6
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise SystemExit(f"error: {report} has no handler section: make bench ARGS=handler") from (
            None
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print an estimate, or the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.capacity",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="%(prog)s [--tables] [--measured] [--NAME NUMBER ...]",
        allow_abbrev=False,
    )
    parser.add_argument("--tables", action="store_true", help="print them; takes no numbers")
    parser.add_argument(
        "--measured",
        action="store_true",
        help="take request-seconds from docs/benchmarks.json, as this machine took it",
    )
    for kind in (Load, Prices, Quotas):
        group = parser.add_argument_group(kind.__name__.lower())
        told = _told(kind)
        for each in fields(kind):
            group.add_argument(
                f"--{each.name.replace('_', '-')}", type=float, default=argparse.SUPPRESS,
                metavar="NUMBER", help=f"{told[each.name]} (default: {each.default})",
            )  # fmt: skip
    given = vars(parser.parse_args(arguments))
    measured, wants_tables = given.pop("measured"), given.pop("tables")
    if wants_tables:
        if given or measured:
            parser.error("--tables takes no other arguments")
        print(tables())
        return
    if measured:
        if "request_seconds" in given:
            parser.error("--measured and --request-seconds: expected one of them")
        given["request_seconds"] = measured_request_seconds()
    try:
        load, prices, quotas = (
            Load(**_of(Load, given)),
            Prices(**_of(Prices, given)),
            Quotas(**_of(Quotas, given)),
        )
    except ValueError as problem:
        parser.error(str(problem))
    print(explain(load, estimate(load, prices, quotas)))


def _of(kind: type, given: dict[str, float]) -> dict[str, Any]:
    """Those of the arguments that a dataclass takes."""
    return {each.name: given[each.name] for each in fields(kind) if each.name in given}


def _told(kind: type) -> dict[str, str]:
    """What a dataclass's docstring says of each attribute, for argparse."""
    lines = (kind.__doc__ or "").partition("Attributes:")[2].splitlines()
    pairs = (line.strip().partition(": ") for line in lines if line.strip())
    return {name: text.rstrip(".").replace("%", "%%") for name, _, text in pairs}


if __name__ == "__main__":
    main()
