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

_FOLDERS = ("spark", "engines", "conformance", "e2e", "infrastructure", "simulation")
"""Longest tests first: no worker starts a long test at the end."""
_ONE_WORKER = {"spark": "spark", "e2e": "aws", "infrastructure": "aws"}
"""Folders whose tests share an expensive session fixture or import: one worker runs a group."""


def _folder(nodeid: str) -> str:
    return nodeid.split("/")[1]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests by folder, and set the marks that follow from fixtures and folders."""
    order = {folder: rank for rank, folder in enumerate(_FOLDERS)}
    items.sort(key=lambda item: order.get(_folder(item.nodeid), len(order)))
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "embedded_aws" in fixtures:
            item.add_marker("embedded")
        for mark in {"spark", "browser"}.intersection(fixtures):
            item.add_marker(mark)
        # A time-out in a call to Spark's JVM would fail all later tests of the session.
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(1200))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep the tests of a file, or of a group in `_ONE_WORKER`, on one worker, in their order.

    Marks of `--dist loadgroup` have no effect: xdist 3.8 does not see the node ids of pytest 9.2.
    """
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return groups.get(_folder(nodeid)) or super()._split_scope(nodeid)

    groups = dict(_ONE_WORKER)
    if config.option.markexpr == "slow":  # one worker would have a quarter of an hour alone
        del groups["spark"], groups["e2e"]
    config.option.loadscopereorder = False
    return Scheduling(config, log)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give way to the worker of the Spark tests, which has most to do."""
    if hasattr(item.config, "workerinput") and _folder(item.nodeid) != "spark" and os.nice(0) < 10:
        os.nice(10)


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
