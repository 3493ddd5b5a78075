"""A campaign: the programs, the faults and the kills, phase by phase, and the evidence.

Calls to the engine and calls to SQS and EventBridge go through a proxy each. Both inject faults
until everything was sent and done. The evidence is read past them.
"""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.engines.engine import client
from tests.engines.plan import last, make_plan, must_end, planned
from tests.simulation.options import DEFAULT_TIMEOUT
from tests.simulation.senders import message_body
from tests.simulation.workload import ChainWorkload
from tests.support.in_process import Definitions, Resources, create_resources, definitions
from tests.support.proxy import RATES, FaultProxy
from xorack.local.embedded import EmbeddedAWS

ROOT = Path(__file__).parents[2]
VISIBILITY_SECONDS = 4
PENDING_SECONDS = 40
_TEAM = (("consumer", 3), ("sweeper", 2))
_ENDLESS = {program for program, _ in _TEAM}


class Recorder(FaultProxy):
    """A proxy that keeps the messages sent to a queue, and counts what the queue delivers."""

    def __init__(self, target: str, *, seed: int) -> None:
        super().__init__(target, seed=seed)
        self.queue_url = ""
        self.sent: list[str] = []
        self.deliveries = 0

    def _forward(self, call):
        response = super()._forward(call)
        action = call.target[1]
        if action not in ("SendMessageBatch", "ReceiveMessage") or response.status != 200:
            return response
        asked, answer = json.loads(call.body), json.loads(response.body)
        if asked["QueueUrl"] == self.queue_url:
            arrived = {entry["Id"] for entry in answer.get("Successful", [])}
            entries = asked.get("Entries", [])
            self.sent += [entry["MessageBody"] for entry in entries if entry["Id"] in arrived]
            for message in answer.get("Messages", []):
                self.deliveries += message["Body"].count('"op":')
        return response


@dataclass
class Evidence:
    """All that a campaign left behind, and its figures.

    Attributes:
        bodies: Distinct bodies of messages that reached the queue.
        items: The table's items, by key.
        events: Events as a subscriber got them.
        dead: Messages of the dead-letter queue: body and the attribute with the reason.
        crashes: Programs that ended with an error, each with the end of the log.
        unfinished: What the campaign still waited for when its patience ended; "" for nothing.
    """

    plan: list[ChainWorkload]
    bodies: set[str] = field(default_factory=set)
    items: dict[str, dict[str, Any]] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    dead: list[tuple[str, dict[str, str] | None]] = field(default_factory=list)
    crashes: list[str] = field(default_factory=list)
    unfinished: str = ""
    deliveries: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    kills: Counter[str] = field(default_factory=Counter)
    seconds: float = 0

    def figures(self) -> str:
        """Return the figures in three lines."""
        faults = ", ".join(f"{kind} {n}" for kind, n in sorted(self.faults.items()))
        kills = ", ".join(f"{program} {n}" for program, n in sorted(self.kills.items()))
        ends = Counter(item["status"]["S"] for item in self.items.values() if "status" in item)
        requests = sum(len(chain.submissions) for chain in self.plan)
        return (
            f"{len(self.plan)} chains ({dict(sorted(ends.items()))}), {requests} "
            f"requests, {self.deliveries} deliveries, {len(self.dead)} dead-lettered messages, "
            f"{len(self.events)} events, {self.seconds:.0f} s\n"
            f"{sum(self.faults.values())} faults: {faults}\n"
            f"{sum(self.kills.values())} kills: {kills}"
        )


class _Programs:
    """The processes of a campaign, forked by one that has imported everything."""

    def __init__(self, log: Path, job: dict[str, Any], environ: dict[str, str]) -> None:
        self.kills: Counter[str] = Counter()
        self.crashes: list[str] = []
        self._job = {**job, "log": str(log), "environ": environ}
        self._started = 0
        self._running: dict[int, dict[str, Any]] = {}
        self._log = log
        with log.open("w") as file:
            self._forks = subprocess.Popen(
                [sys.executable, "-m", "tests.engines.programs"], cwd=ROOT, text=True,
                env={**os.environ, "PYTHONPATH": str(ROOT), **environ}, start_new_session=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file,
            )  # fmt: skip

    def _ask(self, question: object) -> Any:
        self._forks.stdin.write(json.dumps(question) + "\n")
        self._forks.stdin.flush()
        line = self._forks.stdout.readline()
        assert line, self._log.read_text()[-3000:]
        return json.loads(line)

    def start(self, program: str, **job: Any) -> None:
        self._started += 1
        job = {**self._job, "program": program, **job}
        self._running[self._ask({**job, "number": self._started})] = job

    def kill(self, chance: random.Random) -> None:
        """Kill one of the programs and start it again.

        Senders and direct callers start from the beginning: they are killed ever less often.
        """
        pids = sorted(self._running)
        weights = [(1 + self._running[pid].get("killed", 0)) ** -2 for pid in pids]
        (pid,) = chance.choices(pids, weights)
        os.kill(pid, signal.SIGKILL)
        job = self._running.pop(pid)
        self.kills[job["program"]] += 1
        if job["program"] not in _ENDLESS:
            job["killed"] = job.get("killed", 0) + 1
        self.start(**job)

    def working(self) -> bool:
        """Return True if programs are left that end by themselves."""
        for pid, status in self._ask(None):
            job = self._running.pop(pid, None)  # None: killed
            if job is not None and status:
                log = self._log.read_text(errors="replace")
                self.crashes.append(f"{job['program']}: {log.rpartition(' crashed')[2][-1500:]}")
        return any(job["program"] not in _ENDLESS for job in self._running.values())

    def stop(self) -> None:
        """Kill all programs; a second call does nothing."""
        with suppress(ProcessLookupError):
            os.killpg(self._forks.pid, signal.SIGKILL)
        self._forks.wait()
        self._forks.stdin.close()
        self._forks.stdout.close()


@dataclass
class _Campaign:
    evidence: Evidence
    resources: Resources
    programs: _Programs
    chance: random.Random
    deadline: float
    patience_at_end: float = math.inf

    def hold(self, wait_for: Callable[[], str], *, kill: bool = True) -> bool:
        """Wait until nothing is left to wait for, and kill programs meanwhile.

        Returns:
            False if patience ended.
        """
        while left := "programs" if self.programs.working() else wait_for():
            if time.monotonic() > self.deadline:
                self.evidence.unfinished = left
                return False
            time.sleep(self.chance.uniform(0.1, 0.8))
            if kill:
                self.programs.kill(self.chance)
        return True

    def messages(self) -> str:
        """Return a text if messages are in the queue or on their way."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        queue = self.resources.client("sqs").get_queue_attributes(
            QueueUrl=self.resources.queue_url, AttributeNames=names
        )
        left = sum(int(queue["Attributes"][name]) for name in names)
        return f"{left} messages" if left else ""

    def items(self) -> dict[str, dict[str, Any]]:
        """Return the table's items; those of marks have keys with a NUL."""
        pages = self.resources.client("dynamodb").get_paginator("scan")
        found = pages.paginate(TableName=self.resources.table_name, ConsistentRead=True)
        return {item["tag"]["S"]: item for page in found for item in page["Items"]}

    def open(self) -> list[ChainWorkload]:
        """Return the chains that have not ended and must end."""
        items, final = self.items(), ("acked", "failed")
        status = {tag: item.get("status", {}).get("S") for tag, item in items.items()}
        chains = filter(must_end, self.evidence.plan)
        return [chain for chain in chains if status.get(chain.tag) not in final]

    def unended(self) -> str:
        """Return a text if a message is left, or a chain that must end has not ended."""
        if left := self.messages():
            return left
        tags = [chain.tag for chain in self.open()]
        return f"the end of {', '.join(tags)}" if tags else ""

    def unpublished(self) -> str:
        """Return a text if anything is left to do."""
        tags = [tag for tag, item in self.items().items() if "event_pending" in item]
        return self.unended() or (f"the event of {', '.join(tags)}" if tags else "")

    def send(self, raws: list[Any]) -> None:
        """Send requests past the faults."""
        sqs, url = self.resources.client("sqs"), self.resources.queue_url
        for at in range(0, len(raws), 50):
            body = message_body(raws[at : at + 50])
            sqs.send_message(QueueUrl=url, MessageBody=body)
            self.evidence.bodies.add(body)

    def phases(self) -> bool:
        """Run all phases; return False if patience ended in one."""
        plan = self.evidence.plan
        for program, number in _TEAM:
            for _ in range(number):
                self.programs.start(program)
        for share in range(2):
            self.programs.start("sender", share=share, shares=2)
            self.programs.start("direct")
        if not self.hold(self.messages):
            return False
        # What is still open lacks work: its time ends now.
        self.send([last(chain, "end").raw for chain in self.open()])
        if not self.hold(self.messages):
            return False
        patience = self.deadline
        self.deadline = min(patience, time.monotonic() + self.patience_at_end)
        if not self.hold(self.unended):
            return False
        self.deadline = patience
        # Some requests come again, and creates come, when their chains have ended.
        queued = [one for chain in plan for one in planned(chain) if one.request and not one.direct]
        again = self.chance.sample(queued, len(queued) // 10)
        late = [last(chain, "too late?") for chain in plan if must_end(chain)]
        self.send([one.raw for one in again + late])
        return self.hold(self.messages)


def run(
    aws: EmbeddedAWS,
    engine_url: str,
    *,
    seed: int = 1,
    chains: int = 54,
    broken: str | None = None,
    patience: float = 200,
) -> Evidence:
    """Run a campaign.

    Args:
        aws: The queues and the bus.
        engine_url: The table's engine.
        seed: Determines the chains, and the faults of the n-th call of each action.
        chains: Number of chains.
        broken: The name of a broken version of the code, to run instead of the code. Then each
            chain has its create, which makes it shorter.
        patience: Seconds after which it stops waiting.
    """
    began = time.monotonic()
    plan = {"seed": seed, "count": chains, "orphans": broken is None}
    evidence = Evidence(make_plan(**plan))
    with ExitStack() as stack:
        resources = _resources(aws, engine_url)
        engine = stack.enter_context(FaultProxy(engine_url, seed=seed))
        proxy = stack.enter_context(Recorder(aws.endpoint_url, seed=seed))
        proxy.queue_url = resources.queue_url
        environ = {
            **resources.environ(),
            "PENDING_TIMEOUT_SECONDS": str(PENDING_SECONDS),
            "DEFAULT_TIMEOUT_SECONDS": str(DEFAULT_TIMEOUT // 1000),
            "AWS_ENDPOINT_URL": proxy.endpoint_url,
            "AWS_ENDPOINT_URL_DYNAMODB": engine.endpoint_url,
        }
        log = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "log"
        job = {
            "plan": plan, "broken": broken, "queue_url": resources.queue_url,
            "table_name": resources.table_name,
        }  # fmt: skip
        programs = _Programs(log, job, environ)
        stack.callback(programs.stop)
        campaign = _Campaign(
            evidence, resources, programs, random.Random(seed), began + patience,
            math.inf if broken is None else 15,  # its chains may never end
        )  # fmt: skip
        engine.rates = proxy.rates = RATES
        ended = campaign.phases()
        engine.rates = proxy.rates = {}
        if ended:
            campaign.hold(campaign.unpublished, kill=False)
        programs.stop()
        evidence.items = campaign.items()
        evidence.events = resources.events()
        evidence.dead = [
            (
                message["Body"],
                message.get("MessageAttributes", {}).get("error", {}).get("StringValue"),
            )
            for message in resources.dead_letters()
        ]
        evidence.bodies |= set(proxy.sent)
        evidence.deliveries, evidence.kills = proxy.deliveries, programs.kills
        evidence.crashes = programs.crashes
        for happened in (engine.happened, proxy.happened):
            for (_, fault), count in happened.items():
                evidence.faults[fault] += count
        del evidence.faults[""]
    evidence.seconds = time.monotonic() - began
    return evidence


class _Split:
    """The AWS of the queues, with another DynamoDB."""

    def __init__(self, aws: EmbeddedAWS, engine_url: str) -> None:
        self._aws = aws
        self._dynamodb = client(engine_url)

    def client(self, service: str, **options: Any) -> Any:
        return self._dynamodb if service == "dynamodb" else self._aws.client(service, **options)


def _resources(aws: EmbeddedAWS, engine_url: str) -> Resources:
    described = Definitions(
        definitions().table,
        ttl_attribute="",
        queue={"VisibilityTimeout": str(VISIBILITY_SECONDS)},
        max_receive_count=1000,  # a message that is given up proves nothing
    )
    return create_resources(_Split(aws, engine_url), described)
