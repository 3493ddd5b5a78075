"""What an acker costs and which limit comes next, from a model that anyone can feed.

Counts (capacity units, index writes, bytes of a message) are not written down here: the real loop
and the real packing are driven, and weighed. The rest is arithmetic over prices and limits that are
constants below, each to be changed by an argument::

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

from bench.harness import Table, figure
from bench.marks import NOW, WeighedStore, item_bytes
from xorack.chain import published
from xorack.exactly_once import apply_requests
from xorack.messages import Request, pack
from xorack.retry import RetryPolicy
from xorack.stamps import traced, xor

REPORT = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.json"
DAY = 86_400
MILLION = 1_000_000
CHUNK = 64 * 1024
"""SQS and EventBridge count a request for each 64 KB begun."""
MOST_WEIGHED = 1_000
"""Requests of a chain that are driven for real; longer chains cost per request what these do."""


@dataclass(frozen=True)
class Prices:
    """US dollars, list prices of us-east-1 (2025), without free tiers. Check them before you rely.

    Attributes:
        write_units: A million on-demand write units of DynamoDB.
        read_units: A million on-demand read units.
        storage: A GB and month in DynamoDB.
        queue_requests: A million requests of SQS, standard queue.
        invocations: A million of Lambda.
        gb_seconds: A million GB-seconds of Lambda on arm64.
        events: A million custom events of EventBridge.
        logs: A GB taken in by CloudWatch Logs.
    """

    write_units: float = 0.625
    read_units: float = 0.125
    storage: float = 0.25
    queue_requests: float = 0.40
    invocations: float = 0.20
    gb_seconds: float = 13.3334
    events: float = 1.00
    logs: float = 0.50


@dataclass(frozen=True)
class Load:
    """What is asked of the acker, and how it is set up.

    Attributes:
        units_per_day: Units started and finished.
        units_per_chain: Units of one chain.
        units_per_request: Folding by the sender: how many units one request stands for.
        requests_per_message: Packing by the sender.
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
        for each in fields(self):
            value = getattr(self, each.name)
            low = 0 if each.name in ("batch_window_seconds", "request_seconds") else None
            if value is None:
                continue
            if not value > 0 and value != low:
                raise ValueError(f"{each.name} is {value}: expected a number above 0")
        if self.hot_share is not None and self.hot_share > 1:
            raise ValueError(f"hot_share is {self.hot_share}: expected at most 1")


@dataclass(frozen=True)
class Weighed:
    """What one chain costs DynamoDB, from create to crossed-off event.

    Attributes:
        writes: Conditional writes.
        write_units: Those of the table and the index, copies of marks included.
        read_units: Look-ups of marks, and a read of the chain before each write.
        index_writes: Those of the index of deadlines.
        bytes: What stays in the table until its TTL.
    """

    writes: float
    write_units: float
    read_units: float
    index_writes: float
    bytes: float


class _Store(WeighedStore):
    def __init__(self) -> None:
        super().__init__()
        self.made = self.index = 0

    def write(self, before: object, after: object) -> None:  # type: ignore[override]
        charged, of_table = self.writes, 0.0
        old = 0 if before is None else item_bytes(self.shape.to_item(before))  # type: ignore[arg-type]
        of_table = ceil(max(old, item_bytes(self.shape.to_item(after))) / 1024)  # type: ignore[arg-type]
        super().write(before, after)  # type: ignore[arg-type]
        self.made += 1
        self.index += int(self.writes - charged - of_table)


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
    return Weighed(store.made, store.writes, store.reads + reads, store.index, stays)


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
        requests_together: Requests of a chain that one write applies.
        messages_in_batch: Messages that an invocation gets.
        limits: The fullest first.
    """

    dollars: dict[str, float]
    requests_together: float
    messages_in_batch: float
    limits: list[Limit]

    @property
    def total(self) -> float:
        """Dollars for a million units."""
        return sum(self.dollars.values())


def estimate(load: Load, prices: Prices | None = None) -> Estimate:
    """Work a load out.

    Args:
        load: What is asked.
        prices: What things cost.

    Returns:
        Dollars and limits.
    """
    prices = prices or Prices()
    # A chain has a create, and requests that finish units and start others.
    per_chain = max(2.0, 1 + load.units_per_chain / load.units_per_request)
    chains_a_second = load.units_per_day / DAY / load.units_per_chain
    requests_a_second = chains_a_second * per_chain
    packed = load.requests_per_message
    message_bytes = packed * request_bytes() + 30
    messages_a_second = requests_a_second / packed
    open_chains = max(1.0, chains_a_second * load.chain_seconds)

    # Lambda starts with five pollers, which share what comes within a window.
    gathered = messages_a_second * load.batch_window_seconds / 5
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
    writes_a_chain = ceil(together / 128)
    busy = 0.01 + in_batch * load.request_seconds
    busy += max(distinct / 8, 1) * writes_a_chain * load.call_seconds * 2
    # Sent, received, deleted: ten messages a call, 64 KB a request.
    queue = 3 * max(0.1, message_bytes / CHUNK) * chains * per_chain / packed
    months = load.retention_days / 30
    dollars = {
        "DynamoDB writes": chains * longer * one.write_units / MILLION * prices.write_units,
        "DynamoDB reads": chains * longer * one.read_units / MILLION * prices.read_units,
        "DynamoDB storage": chains * longer * one.bytes / 1e9 * months * prices.storage,
        "SQS": queue / MILLION * prices.queue_requests,
        "Lambda": batches / MILLION * prices.invocations
        + batches * busy * load.memory_mb / 1024 / MILLION * prices.gb_seconds,
        "EventBridge": chains / MILLION * prices.events,
        "Logs": batches * 1_500 / 1e9 * prices.logs,
    }

    hot = max(load.hot_share or 0, 1 / open_chains)
    batches_a_second = messages_a_second / batch
    hot_requests = requests_a_second * hot
    hot_together = max(1.0, min(hot_requests / max(batches_a_second, 1e-12), in_batch))
    hot_writes = hot_requests / min(hot_together, 128)
    hot_units = hot_requests * weigh(
        MOST_WEIGHED, max(1, min(128, round(hot_together)))
    ).write_units / MOST_WEIGHED  # fmt: skip
    units_a_second = chains_a_second * longer * one.write_units
    invocations = batches_a_second * busy
    in_flight = messages_a_second * (load.batch_window_seconds + busy)
    index_writes = chains_a_second * longer * one.index_writes
    limits = [
        Limit("conditional writes of the busiest chain", hot_writes,
              1 / load.call_seconds / 2, "writes/s",
              "fold more before sending; a longer window; then shard the tag"),
        Limit("write units of the busiest chain's partition", hot_units, 1_000, "units/s",
              "fold more before sending; then shard the tag"),
        Limit("write units of a new on-demand table", units_a_second, 4_000, "units/s",
              "warm throughput before the load comes; it grows by itself, twofold in half an hour"),
        Limit("write units of a table, default quota", units_a_second, 40_000, "units/s",
              "raise the quota, or several stacks with the tag's hash choosing one"),
        Limit("index of deadlines (8 partitions)", index_writes, 8_000, "writes/s",
              "fewer, larger chains; several stacks; more `DUE_SHARDS`"),
        Limit("the consumer's max_concurrency", invocations, load.max_concurrency, "invocations",
              "raise `max_concurrency` (to 1,000), batch size and window; fold"),
        Limit("Lambda's concurrency, default quota", invocations, 1_000, "invocations",
              "raise the quota; several stacks"),
        Limit("messages in flight", in_flight, 120_000, "messages",
              "more requests a message; a shorter window; several stacks"),
        Limit("EventBridge PutEvents, default quota", chains_a_second, 10_000, "events/s",
              "larger chains; raise the quota"),
    ]  # fmt: skip
    limits.sort(key=lambda limit: -limit.share)
    return Estimate(dollars, together, batch, limits)


def _distinct(draws: float, kinds: float) -> float:
    """How many different kinds so many draws hit, on average."""
    if kinds <= 1:
        return 1.0
    return kinds * (1 - exp(draws * log1p(-1 / kinds)))


SENDERS = {
    "a request a unit": Load(),
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
                  "used"])  # fmt: skip
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
                    ]
                )
    parts.append(cost.markdown())
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
    except (OSError, ValueError, KeyError):
        raise SystemExit(f"error: {report} has no handler section: make bench ARGS=handler") from (
            None
        )
    sizes = [int(name.partition(" ")[0]) for name in handler if name.endswith(" over 10")]
    figures: dict[str, float] = handler[f"{max(sizes)} over 10"]["one"]
    return figures["own_microseconds_a_message"] / 1e6


def main(arguments: Sequence[str] | None = None) -> None:
    """Print an estimate, or the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.capacity",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--tables", action="store_true")
    parser.add_argument(
        "--measured",
        action="store_true",
        help="take request-seconds from docs/benchmarks.json, as this machine took it",
    )
    for kind in (Load, Prices):
        group = parser.add_argument_group(kind.__name__.lower())
        for each in fields(kind):
            group.add_argument(
                f"--{each.name.replace('_', '-')}", type=float, default=each.default,
                help=f"default: {each.default}",
            )  # fmt: skip
    given = vars(parser.parse_args(arguments))
    if given.pop("measured"):
        given["request_seconds"] = measured_request_seconds()
    if given.pop("tables"):
        print(tables())
        return
    try:
        load = Load(**{each.name: given[each.name] for each in fields(Load)})
    except ValueError as problem:
        parser.error(str(problem))
    prices = Prices(**{each.name: given[each.name] for each in fields(Prices)})
    print(explain(load, estimate(load, prices)))


if __name__ == "__main__":
    main()
