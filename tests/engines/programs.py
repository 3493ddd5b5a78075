"""The programs of a campaign. Each runs in a process of its own that may be killed at any time.

The fork server of multiprocessing imports this module once, and forks a process for each program.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from multiprocessing import parent_process
from typing import Any

import botocore.session
from botocore.exceptions import BotoCoreError, ClientError

import lambda_src.consumer
import lambda_src.sweeper
from tests.simulation.mutants import mutated
from tests.support.functions import Context
from xorack.aws.client import is_transient, make_client
from xorack.compat.dynamodb_acker import DynamoDBAcker
from xorack.core import transitions
from xorack.core.errors import SendError, StaleLocalData, TagNotFound
from xorack.core.request import Request
from xorack.ops.doctor.load import Load, Sender

_INVOCATION_SECONDS = 12.0
_FORGET_DELETE = 0.05

botocore.session.create_loader = cache(botocore.session.create_loader)
for _service in ("dynamodb", "sqs", "events"):
    make_client(_service, region_name="us-east-1")  # every fork has the services' models then


@dataclass(frozen=True)
class Job:
    """What all programs of a campaign share; `broken` is a mutant of tests/simulation."""

    load: Load
    run: str
    queue_url: str
    table_name: str
    environ: dict[str, str]
    log: str
    broken: str | None


def _context() -> Context:
    return Context(_INVOCATION_SECONDS, clock=time.monotonic)


def consumer(job: Job, chance: random.Random) -> None:
    """Take messages off the queue as Lambda's pollers do, and hand them to the handler."""
    sqs = make_client("sqs")
    while True:
        messages: list[dict[str, Any]] = []
        with suppress(ClientError, BotoCoreError):
            for _ in range(chance.randint(1, 3)):
                wait = 0 if messages else 1
                response = sqs.receive_message(
                    QueueUrl=job.queue_url, MaxNumberOfMessages=10, WaitTimeSeconds=wait
                )
                messages += response.get("Messages", [])
        if not messages:
            continue
        records = [{"messageId": str(n), "body": m["Body"]} for n, m in enumerate(messages)]
        try:
            response = lambda_src.consumer.handler({"Records": records}, _context())
        except Exception:
            logging.exception("the consumer raised")
            continue  # the batch becomes visible again
        failed = {int(failure["itemIdentifier"]) for failure in response["batchItemFailures"]}
        done = [
            {"Id": str(n), "ReceiptHandle": message["ReceiptHandle"]}
            for n, message in enumerate(messages)
            if n not in failed and chance.random() >= _FORGET_DELETE
        ]
        with suppress(ClientError, BotoCoreError):
            for at in range(0, len(done), 10):
                sqs.delete_message_batch(QueueUrl=job.queue_url, Entries=done[at : at + 10])


def sweeper(job: Job, chance: random.Random) -> None:
    """Sweep all the time."""
    while True:
        try:
            lambda_src.sweeper.handler({}, _context())
        except Exception:
            logging.exception("the sweeper raised")
        time.sleep(0.5)


def sender(job: Job, chance: random.Random) -> None:
    """Send all of the load, in messages of another size."""
    load = replace(job.load, tick_seconds=chance.choice((0.03, 0.1)))
    while True:
        with suppress(SendError):
            Sender(load, job.run, job.queue_url, make_client("sqs")).send()
            return


def direct(job: Job, chance: random.Random) -> None:
    """Apply the stamps of some chains with `DynamoDBAcker`, which also come through the queue."""
    acker = DynamoDBAcker(job.table_name)
    shared = [plan for plan in job.load.plans(job.run) if plan.number % 3 == 0]
    stamps = [one for plan in shared for one in plan.requests() if one.op == "stamp"]
    chance.shuffle(stamps)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(partial(_apply, acker), stamps))


def _apply(acker: DynamoDBAcker, one: Request) -> None:
    """Apply a stamp again and again, under the same id, until the outcome is known."""
    counts = {"started": one.started, "finished": one.finished}
    while True:
        try:
            acker.stamp(one.tag, one.stamp, **counts, request_id=one.id)
            return
        except (StaleLocalData, TagNotFound):
            time.sleep(0.05)  # the chain may not have begun
        except (ClientError, BotoCoreError) as error:
            if not is_transient(error):
                raise


ENDLESS = ("consumer", "sweeper")
PROGRAMS = {program.__name__: program for program in (consumer, sweeper, sender, direct)}


def main(name: str, job: Job, number: int) -> None:
    """Run a program in a process of its own, broken if the job says so."""
    log = os.open(job.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.environ.update(job.environ)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # A writer that is killed leaves its event to the sweeper, which waits a minute for it.
    transitions.PUBLISH_GRACE_MS = 2_000
    with mutated(job.broken):
        PROGRAMS[name](job, random.Random(number))


def _end_with_parent() -> None:
    parent_process().join()
    os._exit(1)
