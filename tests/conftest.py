"""What tests of every kind share."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from xorack.local.isolation import isolation

# A busy machine is no failure: no test of a law is about time.
settings.register_profile("xorack", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("xorack")


@pytest.fixture(autouse=True, scope="session")
def _no_real_aws():
    """No test finds the developer's AWS account, not even by mistake."""
    with isolation():
        yield


@pytest.fixture
def aws():
    """The stack's table, queues and bus on moto in process; see `xorack.local.in_process`."""
    from xorack.local.in_process import create_resources, locked_aws

    with locked_aws() as started:
        yield create_resources(started)
