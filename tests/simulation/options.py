"""Options of a schedule: kinds of faults, sizes, times and named probabilities.

Everything is drawn from the seed alone. Times are milliseconds.
"""

from collections.abc import Mapping
from random import Random
from typing import Any, NamedTuple

from tests.support.fault_kinds import CALLBACK_SERVICES, FAULTS, OUTAGES

DAY_SECONDS = 86_400
DEFAULT_TIMEOUT = 20 * DAY_SECONDS * 1000
PENDING_TIMEOUT = 14 * DAY_SECONDS * 1000
RETENTION = 30 * DAY_SECONDS * 1000
MAX_SKEW = 5_000
"""Largest error of a machine's clock."""
MAX_INDEX_LAG = 4_000
WITHOUT_BUS = 900_000
"""How long the bus is down in schedules of that kind; callbacks fail for a third of it."""
LARGE_EVERY = 400
"""Of this many consecutive seeds, one has a large schedule."""
LARGE_CHAINS = 240


Weights = tuple[tuple[Any, float], ...]


def pick(random: Random, weights: Weights) -> Any:
    """Choose a value by weight."""
    values, numbers = zip(*weights, strict=True)
    return random.choices(values, numbers)[0]


class Options:
    """Sizes and times of one schedule, drawn from its seed, and probabilities of its workload."""

    stamps: Weights = (("plain", 45), ("traced", 12), ("large", 3), ("opaque", 40))
    routes: Weights = (("queue", 86), ("direct", 8), ("both", 6))
    reused_routes: Weights = (("queue", 35), ("direct", 30), ("both", 35))
    units: Weights = ((1, 10), (2, 20), (4, 35), (8, 25), (14, 10))
    unit_counts = 0.85
    merged_units = 0.15
    missing_work = 0.12
    missing_create = 0.03
    tolerance = 0.3
    fail = 0.06
    detail = 0.3
    resume = 0.25
    retried = 0.5
    regrouped = 0.15
    family = 0.3
    cycle = 0.15
    old_child = 0.6
    reused_id = 0.04
    wrong_length = 0.03
    second_create = 0.04
    unserved = 0.03
    note = 0.15
    invalid_request = 0.03
    resend = 0.1
    redrive = 0.3
    stale_read = 0.5
    failed_entry = 0.6
    wrong_counts = 0.03
    reused_tag = 0.2
    same_ids = 0.5
    steady = 0.7
    impatient = 0.3
    future = 0.05
    outage = 0.25
    outages: Weights = (("queues", 1), ("table", 1), ("bus", 1), ("tasks", 0.5))

    def __init__(self, seed: int) -> None:
        random = Random(f"{seed}/options")
        # The bus does not exist at first, as if its name were misspelt.
        self.late_bus = seed % 16 == 7
        # The bus is down for long, and a callback that failed is repeated during the outage.
        self.without_bus = seed % 50 == 41
        self._draw_chains(random, seed)
        self._draw_machines(random)
        self._draw_senders(random)
        if self.without_bus:
            self.chains, self.rounds, self.span = 30, 1, 5_000
            self.spilling_chains, self.months = 0, False
            self.index_page, self.invocation, self.resume = 2, 30, 0.3
            self.sweepers, self.sweep_interval = 1, 60_000
            self.family = self.regrouped = 0
        # Small runs of marks: chains of some hundred requests fill several levels.
        self.top_level = random.choice((1, 2))

    def _draw_chains(self, random: Random, seed: int) -> None:
        few, more, many = random.randint(2, 5), random.randint(6, 14), random.randint(25, 45)
        self.chains = pick(random, ((few, 69), (more, 27), (many, 4)))
        # The first chains may have so many requests that marks leave the item.
        self.spilling_chains = 0
        if seed % LARGE_EVERY == LARGE_EVERY - 1:
            self.chains, self.spilling_chains = LARGE_CHAINS, 1
        elif random.random() < 0.12:
            self.chains, self.spilling_chains = 3, 2
        # The first chain may live for months.
        self.months = self.chains != LARGE_CHAINS and random.random() < 0.06
        if self.months:
            self.chains, self.spilling_chains = 2, 0
        self.rounds = 1 if self.chains > 14 else random.choice((1, 1, 2, 2, 3))
        self.reuse_delay = random.choice((0, 0, 0, 70_000, 3_600_000, 20 * DAY_SECONDS * 1000))
        self.span = random.choice((500, 5_000, 60_000))  # time over which senders send

    def _draw_machines(self, random: Random) -> None:
        self.producers = random.choice((1, 2, 3))
        self.direct_callers = random.choice((1, 2))
        self.consumers = random.choice((1, 2, 2, 3, 4))
        self.sweepers = random.choice((1, 1, 2))
        self.batch_size = random.choice((1, 4, 10, 60))
        self.visibility_timeout = random.choice((2_000, 15_000, 90_000))
        self.max_receives = random.choice((5, 5, 30))
        self.invocation = random.choice((8, 30, 120))  # seconds
        self.index_lag = random.choice((0, MAX_INDEX_LAG))
        self.index_page = random.choice((2, 50))
        self.sweep_interval = random.choice((500, 2_000, 10_000, 60_000))

    def _draw_senders(self, random: Random) -> None:
        short = random.choice((0, 10, 10, 300))
        self.timeouts: Weights = ((None, 70), (30 * DAY_SECONDS, 20), ("short", short))
        if self.months:
            self.timeouts = ((None, 70), (30 * DAY_SECONDS, 30))
            # Messages die, and are redriven when the tombstones may be gone.
            self.outage, self.outages, self.max_receives = 0.7, (("table", 1),), 5
        self.redrive_delay = random.choice((0, 20, 40)) * DAY_SECONDS * 1000 if self.months else 0
        if random.random() < 0.1:
            # Careless senders.
            self.reused_id = self.wrong_length = self.second_create = self.invalid_request = 0.3
            self.unserved = self.note = 0.3
            self.wrong_counts = self.fail = 0.15
            self.outage, self.outages = 0.7, (("queues", 70), ("table", 15), ("bus", 15))
        self.idle_timeout = random.choice((0.02, 0.02, 0.05, 0.5))
        self.extend = random.choice((0.04, 0.04, 0.1, 0.5))


class Outage(NamedTuple):
    """A time, milliseconds since 1970, when a service answers badly."""

    kind: str
    operations: tuple[str, ...]
    begin: int
    end: int


def draw_outages(random: Random, options: Options, now: int) -> list[Outage]:
    """Draw the outages of a round that begins now."""
    outages = []
    if options.without_bus:
        kind = OUTAGES[-1]
        bus = Outage(kind, CALLBACK_SERVICES["bus"], now, now + WITHOUT_BUS)
        return [bus, Outage(kind, CALLBACK_SERVICES["tasks"], now, now + WITHOUT_BUS // 3)]
    while random.random() < options.outage:
        kind, operations = random.choice(OUTAGES), CALLBACK_SERVICES[pick(random, options.outages)]
        begin = now + random.randrange(options.span + 30_000)
        duration = random.choice((5_000, 60_000, 300_000))
        outages.append(Outage(kind, operations, begin, begin + duration))
    return outages


def draw_fault_rates(seed: int) -> Mapping[str, float]:
    """Draw the rate of each kind of fault: a seed has few kinds, or all (swarm testing)."""
    if Options(seed).without_bus:
        return {}
    random = Random(f"{seed}/0/faults")
    intensity = random.choice((0.0, 0.02, 0.06, 0.06, 0.12, 0.25))
    share = random.choice((0.2, 0.5, 1.0))
    rates = {
        kind: min(0.4, intensity * random.uniform(0.2, 1) * fault.weight)
        for kind, fault in FAULTS.items()
        if random.random() < share
    }
    scale = min(1.0, 0.5 / (sum(rates.values()) or 1))
    return {kind: rate * scale for kind, rate in rates.items()}
