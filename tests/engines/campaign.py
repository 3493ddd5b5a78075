"""A campaign: a trial of `xorack doctor` whose programs are killed and whose calls fail.

Calls of the programs go through two proxies, to the engine and to SQS and EventBridge. Both inject
faults, and programs are killed, until nothing is left to do. The verifier is the doctor's; it reads
past the proxies.
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
import threading
import time
import uuid
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from tests.engines import programs
from tests.engines.engine import client
from tests.support.in_process import create_resources
from tests.support.proxy import RATES, FaultProxy
from xorack.aws.stack import StackOutputs
from xorack.core.chain import Chain
from xorack.local.embedded import EmbeddedAWS
from xorack.ops.doctor.load import Load, Sender, Sent
from xorack.ops.doctor.trial import Trial

_PROGRAM_SECONDS = 600
_TEAM = ("consumer",) * 3 + ("sweeper",) * 2 + ("sender", "direct") * 2
_LOAD: dict[str, Any] = {
    # Chains of 140 units have marks outside their item.
    "sizes": (1, 8, 8, 8, 8, 30, 30, 30, 140),
    "rate": 300.0,
    "tick_seconds": 0.05,
    "losing": 0.25,
    "reordered": 0.3,
    "repeated": 0.2,
}


class Evidence(NamedTuple):
    """What a campaign found, and how often each fault was injected and each program killed."""

    violations: list[str]
    faults: Counter[str]
    kills: Counter[str]


class Programs:
    """The programs of a campaign, each with a thread that kills it now and then."""

    def __init__(self, job: programs.Job) -> None:
        self.kills: Counter[str] = Counter()
        self.crashes: list[str] = []
        self._job = job
        self._processes = get_context("forkserver")
        self._processes.set_forkserver_preload([programs.__name__])
        # Starting a process polls all others, and a status can be read once.
        self._lock = threading.Lock()
        self.calm, self._over = threading.Event(), threading.Event()
        self._threads = [
            (name, threading.Thread(target=self._keep_running, args=(name, number)))
            for number, name in enumerate(_TEAM)
        ]

    def __enter__(self) -> Programs:
        for _, thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for _, thread in self._threads:
            thread.join()

    def await_ends(self) -> None:
        """Wait for the programs that end by themselves."""
        deadline = time.monotonic() + _PROGRAM_SECONDS
        for name, thread in self._threads:
            if name not in programs.ENDLESS:
                thread.join(max(0.0, deadline - time.monotonic()))
                if thread.is_alive():
                    self.crashes.append(f"{name} did not end within {_PROGRAM_SECONDS} s")

    def _keep_running(self, name: str, number: int) -> None:
        """Run a program until it ends by itself, or all is over; kill it now and then."""
        chance = random.Random(f"{self._job.load.seed}/{number}")
        for start in count():
            given = (name, self._job, 1000 * number + start)
            process = self._processes.Process(target=programs.main, args=given, daemon=True)
            with self._lock:
                process.start()
            # Senders and direct callers start from the beginning: they get ever more time.
            seconds = chance.uniform(1, 8) * (1 if name in programs.ENDLESS else (1 + start) ** 2)
            end = time.monotonic() + seconds
            status = None
            while status is None and not self._over.wait(0.2):
                with self._lock:
                    status = process.exitcode
                    if status is None and time.monotonic() > end and not self.calm.is_set():
                        process.kill()
                        process.join()
                        status = process.exitcode
                        self.kills[name] += 1
            if status is None:
                process.kill()
                process.join()
            if not status:
                return
            if status != -signal.SIGKILL:
                log = Path(self._job.log).read_text(errors="replace")
                self.crashes.append(f"{name} ended with an error: {log[-1500:]}")


@dataclass
class Campaign(Trial):
    """A trial with programs, proxies and kills."""

    programs: Programs | None = None
    proxies: tuple[FaultProxy, ...] = ()

    def send_load(self, sender: Sender) -> Sent:
        """Send all messages while programs send them, too, in other messages."""
        for proxy in self.proxies:
            proxy.rates = RATES
        sent = sender.send()
        self.programs.await_ends()
        sent.times.clear()  # others may send what ends a chain before
        return sent

    def settle(self) -> dict[str, Chain]:
        """End the faults; wait until no event is pending; read all chains."""
        self.programs.calm.set()  # no program is killed any more
        for proxy in self.proxies:
            proxy.rates = {}
        return super().settle()


def run(
    aws: EmbeddedAWS, engine_url: str, *, seed: int, chains: int, broken: str | None = None
) -> Evidence:
    """Run a campaign: the queues and the bus of one AWS, the table of an engine.

    The seed determines the chains, and the faults of the n-th call of each action. `broken` is the
    name of a mutant of tests/simulation, to run instead of the code.
    """
    lines: list[str] = []
    load = Load(seed=seed, chains=chains, **_LOAD)
    name = f"engines-{uuid.uuid4().hex[:8]}"
    with ExitStack() as stack:
        resources = create_resources(
            _Split(aws, engine_url),
            ttl_attribute="",
            visibility_seconds=4,
            max_receives=1000,  # a message that is given up proves nothing
        )
        urls = (aws.endpoint_url, engine_url)
        others, engine = (stack.enter_context(FaultProxy(url, seed=seed)) for url in urls)
        environ = {
            **os.environ,
            **resources.environ(),
            "AWS_ENDPOINT_URL": others.endpoint_url,
            "AWS_ENDPOINT_URL_DYNAMODB": engine.endpoint_url,
        }
        log = Path(stack.enter_context(tempfile.TemporaryDirectory()), "log")
        log.touch()
        table, queue = resources.table_name, resources.queue_url
        job = programs.Job(load, name, queue, table, environ, str(log), broken)
        running = stack.enter_context(Programs(job))
        outputs = StackOutputs(table, queue, resources.dead_letter_queue_url, resources.bus_name)
        campaign = Campaign(
            load,
            name,
            outputs,
            resources.client,
            lines.append,
            patience_seconds=12 if broken else 60,
            programs=running,
            proxies=(others, engine),
        )
        _, outcome = campaign.conduct()
        gave_up = [line for line in lines if line.startswith("gave up")]
        violations = [*gave_up, *running.crashes, *outcome.all_violations()]
    faults: Counter[str] = Counter()
    for proxy in (others, engine):
        for (_, fault), number in proxy.happened.items():
            faults[fault] += number
    del faults[""]
    ends = Counter(chain.status for chain in outcome.chains.values())
    print(f"chains {dict(ends)}, faults {dict(faults)}, kills {dict(running.kills)}", *violations)
    return Evidence(violations, faults, running.kills)


class _Split:
    """The AWS of the queues, with another DynamoDB."""

    def __init__(self, aws: EmbeddedAWS, engine_url: str) -> None:
        self._aws = aws
        self._dynamodb = client(engine_url)

    def client(self, service: str, **options: Any) -> Any:
        return self._dynamodb if service == "dynamodb" else self._aws.client(service, **options)
