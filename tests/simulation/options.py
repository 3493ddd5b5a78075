"""Options of a schedule: kinds of faults, sizes, times and named probabilities.

`Options.draw` and `draw_fault_rates` draw them from the seed alone. Times are milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Any, NamedTuple

DAY_SECONDS = 86_400
DEFAULT_TIMEOUT = 20 * DAY_SECONDS * 1000
RETENTION = 60 * DAY_SECONDS * 1000
MAX_SKEW = 5_000
"""Largest error of a machine's clock."""
MAX_INDEX_LAG = 4_000
LARGE_EVERY = 400
"""Of this many consecutive seeds, one has a large schedule."""
LARGE_CHAINS = 240


class Fault(NamedTuple):
    """A kind of fault.

    Attributes:
        description: What the fault does.
        operations: Operations that it affects; all calls to AWS if empty.
        weight: Rate relative to other kinds.
    """

    description: str
    operations: tuple[str, ...] = ()
    weight: float = 1.0


FAULTS: dict[str, Fault] = {
    "dropped": Fault("the call does not arrive: connect time-out"),
    "lost": Fault("the call takes effect and its response is lost: read time-out"),
    "late": Fault("read time-out, and the call takes effect up to a minute later"),
    "twice": Fault("the call takes effect twice and returns the second response"),
    "throttled": Fault("the call is throttled"),
    "5xx": Fault("an internal error; the call has no effect"),
    "5xx applied": Fault("an internal error; the call takes effect"),
    "denied": Fault("an error that is not retryable", weight=0.3),
    "stalled": Fault("the machine pauses for up to 90 seconds before the call", weight=0.4),
    "crash before": Fault("the machine crashes before the call", weight=0.3),
    "crash after": Fault("the machine crashes after the call took effect", weight=0.4),
    "conflict": Fault("a transaction holds the item: conflict error", ("update_item",)),
    "no item": Fault("the response to a failed condition lacks the item", ("update_item",)),
    "unprocessed": Fault(
        "a batch call leaves some keys out", ("batch_get_item", "batch_write_item"), 3
    ),
    "entries failed": Fault(
        "a 200 response has failed entries", ("put_events", "send_message_batch")
    ),
    "redelivered": Fault("a message is delivered while it is in flight", ("receive",), 3),
    "delete lost": Fault("a processed message stays in the queue", ("delete",), 3),
    "timed out": Fault("the invocation runs out of time", ("invocation",)),
}
CRASHES = ("crash before", "crash after")

Weights = tuple[tuple[Any, float], ...]


def pick(random: Random, weights: Weights) -> Any:
    """Choose a value by weight."""
    values, numbers = zip(*weights, strict=True)
    return random.choices(values, numbers)[0]


@dataclass(frozen=True)
class Options:
    """Sizes and times of one schedule, and the probabilities of its workload.

    Attributes:
        spilling_chains: Chains with so many requests that marks are moved out of the item.
        span: Time over which senders spread the requests.
        invocation: Time that an invocation may take.
    """

    chains: int
    spilling_chains: int
    span: int
    producers: int
    direct_callers: int
    consumers: int
    sweepers: int
    batch_size: int
    visibility_timeout: int
    max_receives: int
    invocation: int
    index_lag: int
    index_page: int
    sweep_interval: int
    timeouts: Weights

    stamps: Weights = (("plain", 45), ("traced", 12), ("opaque", 43))
    routes: Weights = (("queue", 86), ("direct", 6), ("mixed", 5), ("foreign", 3))
    units: Weights = ((1, 10), (2, 20), (4, 35), (8, 25), (14, 10))
    unit_counts: float = 0.85
    merged_units: float = 0.15
    missing_work: float = 0.12
    missing_create: float = 0.03
    fail: float = 0.06
    extend: float = 0.08
    idle_timeout: float = 0.06
    detail: float = 0.3
    reused_id: float = 0.04
    wrong_length: float = 0.03
    second_create: float = 0.04
    invalid_request: float = 0.03
    resend: float = 0.1
    redrive: float = 0.3
    stale_read: float = 0.5
    failed_entry: float = 0.6

    @staticmethod
    @lru_cache(maxsize=1024)
    def draw(seed: int) -> Options:
        """Draw the options of a seed."""
        random = Random(f"{seed}/options")
        chains, spilling = pick(
            random,
            (
                ((random.randint(2, 5), 0), 602),
                ((random.randint(6, 14), 0), 270),
                ((random.randint(25, 45), 0), 40),
                ((3, 2), 88),
            ),
        )
        if seed % LARGE_EVERY == LARGE_EVERY - 1:
            chains, spilling = LARGE_CHAINS, 1
        return Options(
            chains=chains,
            spilling_chains=spilling,
            span=random.choice((500, 5_000, 60_000)),
            producers=random.choice((1, 2, 3)),
            direct_callers=random.choice((1, 2)),
            consumers=random.choice((1, 2, 2, 3, 4)),
            sweepers=random.choice((1, 1, 2)),
            batch_size=random.choice((1, 4, 10, 60)),
            visibility_timeout=random.choice((2_000, 15_000, 90_000)),
            max_receives=random.choice((5, 5, 30)),
            invocation=random.choice((8_000, 30_000, 120_000)),
            index_lag=random.choice((0, MAX_INDEX_LAG)),
            index_page=random.choice((2, 50)),
            sweep_interval=random.choice((200, 2_000, 10_000, 60_000)),
            timeouts=(
                (None, 70),
                (30 * DAY_SECONDS, 20),
                ("short", random.choice((0, 10, 10, 300))),
            ),
        )


def draw_fault_rates(seed: int, salt: int) -> Mapping[str, float]:
    """Draw the rate of each kind of fault: some seeds have few kinds, some all (swarm testing)."""
    random = Random(f"{seed}/{salt}/faults")
    intensity = random.choice((0.0, 0.02, 0.06, 0.06, 0.12, 0.25))
    share = random.choice((0.2, 0.5, 1.0))
    rates = {
        kind: min(0.4, intensity * random.uniform(0.2, 1) * fault.weight)
        for kind, fault in FAULTS.items()
        if random.random() < share
    }
    scale = min(1.0, 0.5 / (sum(rates.values()) or 1))
    return {kind: rate * scale for kind, rate in rates.items()}
