"""What tests of every kind share."""

from __future__ import annotations

import os
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings

from xorack.local.isolation import isolated

# A busy machine is no failure: no test of a law is about time.
settings.register_profile("xorack", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("xorack")

# The CDK's own validation takes 4 s a process. test_offline.py keeps it; cfn-lint checks the rest.
os.environ["CDK_VALIDATION"] = "false"


_LONGEST = (
    "spark/test_repair.py",
    "e2e/test_demo.py",
    "simulation/test_schedules.py",
    "spark/test_sink.py",
    "e2e/test_embedded.py",
    "spark/test_pipeline.py",
    "simulation/test_mutants.py",
    "e2e/test_faults.py",
    "functional/test_local_environment.py",
    "functional/test_faults_in_process.py",
    "functional/test_dynamodb_acker.py",
    "spark/test_parquet.py",
    "spark/test_runs.py",
    "functional/test_moto_lock.py",
    "functional/test_handlers.py",
    "e2e/test_examples.py",
)
"""The files that take longest: run first, so that no worker is left with one at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first; `make test` hands files to its workers in this order."""
    tests = Path(__file__).parent
    rank = {tests / name: place for place, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: rank.get(item.path, len(rank)))


@pytest.fixture(autouse=True, scope="session")
def _no_real_aws():
    """No test finds the developer's AWS account, not even by mistake."""
    with patch.dict(os.environ, isolated(os.environ), clear=True):
        yield


@pytest.fixture
def aws():
    """The stack's table, queues and bus on moto in process; see `tests.support.in_process`."""
    from tests.support.in_process import create_resources, locked_aws

    with locked_aws() as started:
        yield create_resources(started)
