"""The programs of a campaign. Each runs in a process of its own that may be killed at any time.

`python -m tests.engines.programs` imports everything once and forks a process for each program that
it is asked for, in JSON lines on its standard input. It ends, and all programs with it, when its
input ends.
"""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import Any

import botocore.session
from botocore.exceptions import BotoCoreError, ClientError

import lambda_src.consumer
import lambda_src.sweeper
from tests.engines.plan import make_plan, planned, track
from tests.simulation.mutants import mutated
from tests.simulation.senders import message_body
from xorack.aws.client import is_transient, make_client
from xorack.aws.sqs import send
from xorack.client.tracker import Tracker
from xorack.compat.dynamodb_acker import DynamoDBAcker
from xorack.core import transitions
from xorack.core.errors import SendError, StaleLocalData, TagNotFound
from xorack.core.request import Request

_INVOCATION_SECONDS = 12.0
_FORGET_DELETE = 0.05

botocore.session.create_loader = cache(botocore.session.create_loader)


class _Context:
    """A Lambda context with a clock."""

    function_name = "function"
    memory_limit_in_mb = 256
    invoked_function_arn = "arn:aws:lambda:us-east-1:123456789012:function:function"
    aws_request_id = "request"

    def __init__(self) -> None:
        self._end = time.monotonic() + _INVOCATION_SECONDS

    def get_remaining_time_in_millis(self) -> int:
        return int((self._end - time.monotonic()) * 1000)


def consumer(job: dict[str, Any]) -> None:
    """Take messages off the queue as Lambda's pollers do, and hand them to the handler."""
    sqs, chance = make_client("sqs"), random.Random(job["number"])
    queue_url = job["queue_url"]
    while True:
        messages: list[dict[str, Any]] = []
        with suppress(ClientError, BotoCoreError):
            for _ in range(chance.randint(1, 3)):
                wait = 0 if messages else 1
                response = sqs.receive_message(
                    QueueUrl=queue_url, MaxNumberOfMessages=10, WaitTimeSeconds=wait
                )
                messages += response.get("Messages", [])
        if not messages:
            continue
        records = [{"messageId": str(n), "body": m["Body"]} for n, m in enumerate(messages)]
        try:
            response = lambda_src.consumer.handler({"Records": records}, _Context())
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
                sqs.delete_message_batch(QueueUrl=queue_url, Entries=done[at : at + 10])


def sweeper(job: dict[str, Any]) -> None:
    """Sweep all the time."""
    while True:
        try:
            lambda_src.sweeper.handler({}, _Context())
        except Exception:
            logging.exception("the sweeper raised")
        time.sleep(0.5)


def sender(job: dict[str, Any]) -> None:
    """Send this sender's share, each request several times in any order; then end."""
    plan, chance = make_plan(**job["plan"]), random.Random(job["number"])
    sqs, queue_url = make_client("sqs"), job["queue_url"]
    mine = [one for chain in plan for one in planned(chain) if not one.direct]
    mine = mine[job["share"] :: job["shares"]]
    tracked = {one.tag for one in mine if one.tag.startswith("tracker")}
    for tag in sorted(tracked):
        for _ in range(chance.randint(1, 2)):
            _surely(lambda tag=tag: track(tag, Tracker(queue_url, sqs)))
    copies = [
        one for one in mine if one.tag not in tracked for _ in range(chance.choice((1, 2, 2, 3)))
    ]
    # Many stamps overtake their create, but not by so much that the chain ends without it.
    copies.sort(key=lambda one: -chance.random() * (0.4 if one.name == "create" else 1.0))
    while copies:
        part = [copies.pop() for _ in range(min(len(copies), chance.randint(1, 60)))]
        bodies = [one.raw for one in part if isinstance(one.raw, str)]
        raws = [
            one.sent(chance).to_json() if one.request else one.raw
            for one in part
            if not isinstance(one.raw, str)
        ]
        if chance.random() < 0.5 and all(one.request for one in part):
            requests = [one.sent(chance) for one in part]
            size = chance.choice((1024, 5_000, 250_000))
            _surely(lambda r=requests, s=size: send(queue_url, r, sqs, max_bytes=s))
        else:
            _send_raw(queue_url, sqs, [message_body(raws), *bodies])


def _surely(call: Callable[[], Any]) -> None:
    while True:
        with suppress(SendError):
            return call()


def _send_raw(queue_url: str, sqs: Any, bodies: Iterable[str]) -> None:
    """Send bodies until all are accepted."""
    left = dict(enumerate(bodies))
    while left:
        entries = [{"Id": str(n), "MessageBody": body} for n, body in left.items()]
        with suppress(ClientError, BotoCoreError):
            response = sqs.send_message_batch(QueueUrl=queue_url, Entries=entries)
            failed = {int(entry["Id"]) for entry in response.get("Failed", [])}
            left = {n: body for n, body in left.items() if n in failed}


def direct(job: dict[str, Any]) -> None:
    """Apply requests with `DynamoDBAcker`: again, under the same id, until the outcome is known."""
    plan, chance = make_plan(**job["plan"]), random.Random(job["number"])
    acker = DynamoDBAcker(job["table_name"])
    requests = [one.request for chain in plan for one in chain.submissions if one.direct]
    # Both programs do all the work, whoever comes first.
    chance.shuffle(requests)
    requests.sort(key=lambda request: request.op != "create")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda request: _apply(acker, request), requests))


def _apply(acker: DynamoDBAcker, request: Request) -> None:
    call = acker.create if request.op == "create" else acker.stamp
    counts = {"started": request.started, "finished": request.finished}
    while True:
        try:
            call(request.tag, request.stamp, **counts, request_id=request.id)
            return
        except (StaleLocalData, TagNotFound):
            time.sleep(0.05)  # a mixed chain may not have begun
        except (ClientError, BotoCoreError) as error:
            if not is_transient(error):
                raise


_PROGRAMS = {program.__name__: program for program in (consumer, sweeper, sender, direct)}


def _run(job: dict[str, Any]) -> None:
    """Run a program in a process just forked, broken if the job says so."""
    log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.environ.update(job["environ"])
    random.seed(job["number"])
    # A writer that is killed leaves its event to the sweeper, which waits a minute for it.
    transitions.PUBLISH_GRACE_MS = 2_000
    with mutated(job["broken"]):
        _PROGRAMS[job["program"]](job)


def main() -> None:
    """Fork programs on demand."""
    for service in ("dynamodb", "sqs", "events"):
        make_client(service)  # every fork has the services' models then
    for line in sys.stdin:
        job = json.loads(line)
        if job is None:
            ended = []
            with suppress(ChildProcessError):
                while (one := os.waitpid(-1, os.WNOHANG))[0]:
                    ended.append([one[0], os.waitstatus_to_exitcode(one[1])])
            print(json.dumps(ended), flush=True)
            continue
        pid = os.fork()
        if pid == 0:
            os.close(0)
            status = 1
            try:
                _run(job)
                status = 0
            except BaseException:
                logging.exception("%s crashed", job["program"])
            finally:
                logging.shutdown()
                os._exit(status)
        print(json.dumps(pid), flush=True)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)


if __name__ == "__main__":
    main()
