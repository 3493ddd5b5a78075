"""Second opinions: the acker on other implementations of DynamoDB, by programs that are killed.

Consumers, sweepers, senders and direct callers run in processes of their own. Two proxies lose,
repeat, delay, throttle and fail their calls. ENGINES_SEED and ENGINES_CHAINS select others.
"""

import os

import pytest

from tests.engines.campaign import run
from tests.engines.engine import ENGINES, EngineMissing, engine
from tests.support.proxy import RATES
from xorack.local.embedded import EmbeddedAWS

pytestmark = pytest.mark.slow

SEED = int(os.environ.get("ENGINES_SEED", "1"))
CHAINS = int(os.environ.get("ENGINES_CHAINS", "20"))


@pytest.fixture(scope="module")
def aws(_no_real_aws):
    """The queues and the bus."""
    with EmbeddedAWS() as started:
        yield started


@pytest.fixture(scope="module", params=ENGINES)
def endpoint_url(request, aws):
    """The address of each engine."""
    try:
        with engine(request.param, aws) as url:
            yield url
    except EngineMissing as error:
        pytest.skip(str(error))


def test_every_chain_ends_as_its_requests_say(endpoint_url, aws):
    evidence = run(aws, endpoint_url, seed=SEED, chains=CHAINS)
    assert evidence.violations == []
    # Without faults and kills the test would prove nothing.
    for fault in RATES:
        assert evidence.faults[fault], fault
    assert {"consumer", "sweeper", "sender", "direct"} <= evidence.kills.keys()


@pytest.mark.parametrize(
    ("broken", "violation"),
    [
        ("the write has no condition", "units finished"),
        ("a lost response is retried blindly", "units finished"),
        ("spilled marks are not looked up", "units finished"),
        ("failed entries of PutEvents are ignored", "lost event: "),
    ],
)
def test_a_broken_version_is_caught(broken, violation, aws):
    try:
        with engine("dynalite", aws) as url:
            evidence = run(aws, url, seed=SEED, chains=25, broken=broken)
    except EngineMissing as error:
        pytest.skip(str(error))
    assert any(violation in found for found in evidence.violations)
