"""The chain of a Spark run: drivers at the same time, crashes, and messages in any order."""

import json
import os
import random
import threading
from functools import partial, reduce
from operator import xor

import pytest

from tests.support.functions import message
from tests.support.services import World
from xorack.core.hashing import unit_id
from xorack.core.request import Request
from xorack.errors import StateError
from xorack.spark import Tracking, run_chain
from xorack.spark.outcome import Agrees, Finished


class Crash(Exception):
    """A driver died; its call is repeated."""


class Folder:
    """A folder in memory. A seed decides which thread makes the next access, and which one dies."""

    def __init__(self, draw):
        self.texts, self.draw = {}, draw
        self.turn, self.waiting, self.running = threading.Condition(), set(), 0

    def take_turn(self):
        with self.turn:
            me = threading.current_thread().name
            self.waiting.add(me)
            self._choose()
            self.turn.wait_for(lambda: self.chosen == me)
            self.waiting.discard(me)
            self.chosen = None
            if self.draw.random() < 0.05:
                raise Crash

    chosen = None

    def _choose(self):
        """Choose a thread once all running threads wait."""
        if self.chosen is None and self.waiting and len(self.waiting) == self.running:
            self.chosen = self.draw.choice(sorted(self.waiting))
            self.turn.notify_all()

    def run(self, calls):
        """Make calls at the same time; return the result or the error of each."""
        results = {}

        def make(name):
            while name not in results:
                try:
                    results[name] = calls[name]()
                except StateError as error:
                    results[name] = error
                except Crash:
                    continue
            with self.turn:
                self.running -= 1
                self._choose()

        threads = [threading.Thread(target=make, args=(name,), name=name) for name in calls]
        self.running = len(threads)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results

    def write(self, _, place, text):
        self.take_turn()
        self.texts[place] = text

    def read(self, _, __):
        self.take_turn()
        return [json.loads(text) for text in self.texts.values()]


class Run:
    """A run of some names with two chains each; messages are kept until they are delivered."""

    def __init__(self, keep_open):
        self.tracking = Tracking(None, "http://q/q", "run", "/records", keep_open=keep_open)
        self.world, self.messages, self.started = World(), [], set()

    def rows(self, name):
        return self.tracking.rows(name, chain="c", unit="u", label=name)

    def start(self, name, draw):
        run_chain.check_open(self.rows(name))
        tags = [f"run/{name}/{n}" for n in range(2)]
        units = [unit_id("of the run", tag) for tag in tags]
        header = {
            "summary": {"count": 2, "chains": 2, "all_chains": 2, "fingerprint": reduce(xor, units)}
        }
        requests = run_chain.start_of_rows(self.rows(name), header)
        self.started.add(name)
        creates = [
            Request.create(
                tag, "c", starts=[5], cells=0, parents=[run_chain.parent_of(self.tracking, unit)]
            )
            for tag, unit in zip(tags, units, strict=True)
        ]
        self._send(draw, [*creates, *requests])

    def finish(self, name, draw):
        outcome = Agrees(Finished(None, 2, 2))
        stamps = [Request.stamp_(f"run/{name}/{n}", "f", finishes=[5], cells=0) for n in range(2)]
        self._send(draw, [*run_chain.finish_requests(self.rows(name), "written", outcome), *stamps])

    def close(self, draw):
        self._send(draw, run_chain.close_requests(self.tracking))

    def _send(self, draw, requests):
        """Send requests, and perhaps crash after some of them: then the call is repeated."""
        if draw.random() < 0.3:
            self.messages += requests[: draw.randrange(len(requests))]
        self.messages += requests

    def deliver(self, draw):
        draw.shuffle(self.messages)
        for request in self.messages:
            self.world.consume(message(request))
            self.check()
        self.messages = []

    def check(self):
        """Check that the run is not acked before all chains of names that were started."""
        if "run" in self.world.tags():
            acked = {tag for tag in self.world.tags() if "/" in tag}
            assert acked == {f"run/{name}/{n}" for name in self.started for n in range(2)}


def attack(seed, keep_open, patch):
    """Start and finish names in several drivers; return how many starts were refused."""
    draw = random.Random(seed)
    folder, run, refused = Folder(draw), Run(keep_open), 0
    patch.setattr(run_chain, "write_text", folder.write)
    patch.setattr(run_chain, "json_texts", folder.read)
    todo = [(step, n) for n in "abcd"[: draw.randint(1, 4)] for step in ("start", "finish")]
    while todo:
        # Steps of different names run at the same time.
        ready = {name: step for step, name in reversed(todo)}
        names = draw.sample(sorted(ready), draw.randint(1, len(ready)))
        calls = {name: partial(getattr(run, ready[name]), name, draw) for name in names}
        for name, result in folder.run(calls).items():
            todo.remove((ready[name], name))
            if isinstance(result, StateError):  # the run is closed without this name
                refused += 1
                todo.remove(("finish", name))
        if draw.random() < 0.3:
            run.deliver(draw)
    if keep_open:
        folder.run({"close": partial(run.close, draw)})
    else:  # a finish is repeated, as after a race with a start that was refused
        folder.run({"again": partial(run.finish, min(run.started), draw)})
    run.deliver(draw)
    assert run.world.store.chains["run"].status == "acked", seed
    assert run.world.tags().count("run") == 1
    return refused


SEEDS = int(os.environ.get("RUN_SEEDS", "60"))
"""Number of schedules: RUN_SEEDS=1000 runs a thousand."""


@pytest.mark.parametrize("keep_open", [False, True])
def test_a_run_is_acked_after_all_of_its_chains_and_then_for_sure(keep_open, monkeypatch):
    refused = sum(attack(seed, keep_open, monkeypatch) for seed in range(SEEDS))
    assert (refused == 0) is keep_open
