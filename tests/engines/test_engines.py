"""Consumers that compete write chains to other implementations of DynamoDB.

ENGINES_SEED and ENGINES_CHAINS select other chains and faults.
"""

import os
import random
from collections import defaultdict

import pytest
from botocore.exceptions import ReadTimeoutError

from tests.engines.engine import ENGINES, EngineMissing, client, engine
from tests.simulation.mutants import mutated
from tests.support.fakes import NO_WAIT, FakeBus, FakeDeadLetters
from tests.support.functions import chain, message
from tests.support.in_process import table_definition
from tests.support.services import DAY, NOW, Message, consume, sweep
from tests.support.threads import in_threads
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.core.hashing import unit_id
from xorack.core.request import Request
from xorack.core.stamp import sum_of
from xorack.local.embedded import EmbeddedAWS

pytestmark = pytest.mark.slow

SEED = int(os.environ.get("ENGINES_SEED", "1"))
CHAINS = int(os.environ.get("ENGINES_CHAINS", "21"))
SIZES = (1, 8, 8, 8, 30, 30, 140)
"""Numbers of units; the marks of the largest chains are spilled out of their items."""


@pytest.fixture(scope="module")
def aws(_no_real_aws):
    """The embedded AWS, which is one of the engines."""
    with EmbeddedAWS() as started:
        yield started


@pytest.fixture(params=ENGINES)
def store(request, aws):
    """An empty table of an engine; one response in ten to a write is lost."""
    chance = random.Random(SEED)

    def lose(**_):
        if chance.random() < 0.1:
            raise ReadTimeoutError(endpoint_url=request.param)

    try:
        with engine(request.param, aws) as url:
            dynamodb = client(url)
            dynamodb.create_table(
                TableName="engines", BillingMode="PAY_PER_REQUEST", **table_definition()
            )
            dynamodb.get_waiter("table_exists").wait(TableName="engines")
            dynamodb.meta.events.register("after-call.dynamodb.UpdateItem", lose)
            yield DynamoDBStore("engines", client=dynamodb)
            dynamodb.delete_table(TableName="engines")
    except EngineMissing as error:
        pytest.skip(str(error))


def family():
    """Return the requests of all chains by tag, and how each chain ends: status and counts.

    A third of the chains lose their last request: they fail at their deadline. All are units of the
    run `all`, and the other two thirds are units of the run `most`.
    """
    plans, ends, of_run = {}, {}, defaultdict(list)
    for n in range(CHAINS):
        tag, size, is_lost = f"t{n}", SIZES[n % len(SIZES)], n % 3 == 0
        runs = ["all"] if is_lost else ["all", "most"]
        for run in runs:
            of_run[run].append(unit_id("run", n))
        parents = [{"unit": f"{unit_id('run', n):016x}", "tags": runs}]
        plans[tag] = [*chain(tag, size, timeout=3600, parents=parents)][: -1 if is_lost else None]
        ends[tag] = "failed" if is_lost else "acked", size + 1, size + 1 - is_lost
    for run, units in of_run.items():
        plans[run] = [Request.create(run, "create", sum_of(units, 16), started=len(units))]
        is_acked = run == "most"
        ends[run] = "acked" if is_acked else "failed", len(units), len(of_run["most"])
    return plans, ends


def violations(store):
    """Let four consumers apply all requests, each in its own order; check the ends of chains."""
    plans, ends = family()
    bus, letters = FakeBus(), FakeDeadLetters()

    def run(number):
        chance = random.Random(f"{SEED}/{number}")
        queue = [request for plan in plans.values() for request in plan]
        chance.shuffle(queue)
        while queue:
            parts = [queue[at : at + 8] for at in range(0, min(len(queue), 80), 8)]
            batch = [Message(str(n), message(*part)) for n, part in enumerate(parts)]
            options = {"policy": NO_WAIT, "default_timeout_ms": DAY, "now": lambda: NOW}
            failed = consume(batch, store, bus, letters, **options).failed
            queue = queue[80:] + [one for id in failed for one in parts[int(id)]]

    in_threads(run, range(4))
    for hours in (2, 48, 72):  # the chains fail before their runs do
        sweep(store, bus, policy=NO_WAIT, now=lambda hours=hours: NOW + hours * 3_600_000)
    events = defaultdict(set)
    for event in bus.events:
        events[event["tag"]].add((event["id"], event["status"]))
    found = [f"{letter.reason}: {letter.body}" for letter in letters.letters]
    for tag, ended in store.read([*plans]).items():
        outcome = ended.status, ended.counts.started, ended.counts.finished
        if outcome != ends[tag]:
            found.append(f"{tag} is {outcome}, expected {ends[tag]}")
        if [status for _, status in events[tag]] != [ends[tag][0]] or ended.pending_reports:
            found.append(f"{tag}: {events[tag]}, expected one event {ends[tag][0]}")
    return found


def test_every_chain_ends_as_its_requests_say(store):
    assert violations(store) == []


@pytest.mark.parametrize(
    "broken",
    [
        "the write has no condition",
        "a lost response is retried blindly",
        "spilled marks are not looked up",
        "a failed child finishes its parents' unit",
    ],
)
@pytest.mark.parametrize("store", ["dynalite"], indirect=True)
def test_a_broken_version_is_caught(broken, store):
    with mutated(broken):
        assert violations(store)
