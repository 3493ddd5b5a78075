"""Fixtures and ordering for all tests."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings
from jsonschema import Draft202012Validator

from tests.support.mutants import Replaced
from xorack.core import event
from xorack.local.isolation import isolated

# No deadline: a busy machine must not fail a test, and no property is about time.
settings.register_profile("xorack", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("xorack")

# With the models of AWS's services in memory, a full collection takes long: a fifth of all tests.
gc.set_threshold(100_000, 50, 1000)

# The CDK's own validation takes 4 s a process: a slow test of test_offline.py has it.
os.environ["CDK_VALIDATION"] = "false"

_ORDER = ("spark", "e2e", "simulation", "infrastructure", "functional", "property", "unit")
"""Folders, longest tests first: no worker starts a long test at the end."""
_ONE_WORKER = {"spark": 0, "e2e": 1, "infrastructure": 1}
"""The worker that runs a folder's tests: they share an expensive session fixture, and imports."""


def pytest_configure(config: pytest.Config) -> None:
    """Let the worker of the Spark tests, which has most to do, have the processors first."""
    if getattr(config, "workerinput", {}).get("workerid", "gw0") != "gw0":
        os.nice(10)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave to its worker what one worker runs: the CDK alone takes 10 s to import."""
    runs = _ONE_WORKER.get(collection_path.name)
    if runs is None or not hasattr(config, "workerinput") or config.args != ["tests"]:
        return None
    worker, workers = int(config.workerinput["workerid"][2:]), config.workerinput["workercount"]
    # One that replaces a crashed worker has a higher number, and may have to run anything.
    return (worker < workers and worker != runs % workers) or None


def _rank(folder: str) -> int:
    return _ORDER.index(folder) if folder in _ORDER else 0


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests by folder, and set the marks that follow from fixtures and folders."""
    tests = Path(__file__).parent

    def folder(item: pytest.Item) -> str:
        return item.path.relative_to(tests).parts[0]

    items.sort(key=lambda item: _rank(folder(item)))
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "embedded_aws" in fixtures:
            item.add_marker("embedded")
        for mark in {"spark", "browser"}.intersection(fixtures):
            item.add_marker(mark)
        if folder(item) == "simulation":
            item.add_marker("simulation")
        # A time-out in a call to Spark's JVM would fail all later tests of the session.
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(1200))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep the tests of a file, or of a folder in `_ONE_WORKER`, on one worker.

    Marks of `--dist loadgroup` have no effect: xdist 3.8 does not see the node ids of pytest 9.2.
    """
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = Path(nodeid.partition("::")[0])
            folder = file.parent.name
            return folder if folder in _ONE_WORKER else str(file)

        def add_node_collection(self, node: Any, collection: list[str]) -> None:
            """Note what a worker has collected; xdist expects all to have all."""
            self.registered_collections[node] = list(collection)

        def schedule(self) -> None:
            """Give each worker tests that it has collected."""
            collections = self.registered_collections
            self.own = {n: {*map(self._split_scope, of)} for n, of in collections.items()}
            if self.collection is None:
                collected = {one: None for of in collections.values() for one in of}
                self.collection = sorted(collected, key=lambda one: _rank(Path(one).parts[1]))
                for one in self.collection:
                    self.workqueue.setdefault(self._split_scope(one), {})[one] = False
            self.config.pluginmanager.getplugin("dsession")._session.testscollected = len(
                self.collection
            )
            for node in self.nodes:
                self._reschedule(node)

        def _reschedule(self, node: Any) -> None:
            own = self.own.get(node, ())
            scope = next((one for one in self.workqueue if one in own), None)
            if node.shutting_down or (scope and self._pending_of(self.assigned_work[node]) > 2):
                return
            if scope is None:
                node.shutdown()
                return
            self.workqueue.move_to_end(scope, last=False)
            self._assign_work_unit(node)
            self._reschedule(node)

    return Scheduling(config, log)


@pytest.fixture(autouse=True, scope="session")
def _no_real_aws() -> Iterator[None]:
    """Hide the developer's AWS account from all tests."""
    with patch.dict(os.environ, isolated(os.environ), clear=True):
        yield


@pytest.fixture(autouse=True, scope="session")
def _events_have_their_schema() -> Iterator[None]:
    """Hold the schema against every event that a test makes in this process."""
    schema = json.loads((Path(event.__file__).parents[1] / "aws/event.schema.json").read_text())
    check = Draft202012Validator(schema).validate

    def checked(event_detail, chain):
        detail = event_detail(chain)
        check(detail)
        return detail

    with Replaced(event.event_detail, checked):
        yield


@pytest.fixture
def aws():
    """Create the stack's table, queues and bus on moto, in process."""
    from tests.support.in_process import create_resources, locked_aws

    with locked_aws() as started:
        yield create_resources(started)
