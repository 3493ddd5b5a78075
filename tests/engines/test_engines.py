"""Second opinions: chains on other implementations of DynamoDB, by consumers that compete.

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


def violations(store):
    """Let four consumers apply all requests of all chains, each in its own order; check the ends.

    A third of the chains lose their last request: they fail at their deadline.
    """
    plans = {f"t{n}": [*chain(f"t{n}", SIZES[n % len(SIZES)])] for n in range(CHAINS)}
    lost = {tag: plan.pop() for tag, plan in [*plans.items()][::3]}
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
    for days in (2, 3):
        sweep(store, bus, policy=NO_WAIT, now=lambda days=days: NOW + days * DAY)
    events = defaultdict(set)
    for event in bus.events:
        events[event["tag"]].add((event["id"], event["status"]))
    found = [f"{letter.reason}: {letter.body}" for letter in letters.letters]
    for tag, ended in store.read([*plans]).items():
        expected = "failed" if tag in lost else "acked"
        units = SIZES[int(tag[1:]) % len(SIZES)] + 1
        counts = ended.counts.started, ended.counts.finished
        if (ended.status, counts) != (expected, (units, units - (tag in lost))):
            found.append(f"{tag} is {ended.status} with {counts}, expected {expected} of {units}")
        if [status for _, status in events[tag]] != [expected] or ended.undelivered:
            found.append(f"{tag}: {events[tag]}, expected one event {expected}")
    return found


def test_every_chain_ends_as_its_requests_say(store):
    assert violations(store) == []


@pytest.mark.parametrize(
    "broken",
    [
        "the write has no condition",
        "a lost response is retried blindly",
        "spilled marks are not looked up",
    ],
)
@pytest.mark.parametrize("store", ["dynalite"], indirect=True)
def test_a_broken_version_is_caught(broken, store):
    with mutated(broken):
        assert violations(store)
