"""Fixtures for all tests."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings
from jsonschema import Draft202012Validator

from tests.support.mutants import Replaced
from xorack.core import event
from xorack.local.isolation import isolated

# No deadline: a busy machine must not fail a test, and no property concerns time.
settings.register_profile("xorack", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("xorack")

# With the models of AWS's services in memory, a full collection takes long: a fifth of all tests.
gc.set_threshold(100_000, 50, 1000)

# The CDK's own validation takes 4 s a process: a slow test of test_offline.py has it.
os.environ["CDK_VALIDATION"] = "false"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Group the tests of a file, and those of Spark: another Java takes 45 s of processor time."""
    for item in items:
        file = item.nodeid.partition("::")[0]
        group = "spark" if file.startswith("tests/spark/") else file
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(autouse=True, scope="session")
def _no_real_aws() -> Iterator[None]:
    """Hide the developer's AWS account from all tests."""
    with patch.dict(os.environ, isolated(os.environ), clear=True):
        yield


@pytest.fixture(autouse=True, scope="session")
def _events_have_their_schema() -> Iterator[None]:
    """Validate every event that a test makes in this process against the schema."""
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
