"""The functions over services that accept connections and never answer: real sockets, real time.

tests/unit/test_time.py has the same laws by a clock of its own.
"""

import socket
import time

import pytest

from lambda_src import environment
from tests.support.functions import Context, Functions, acked, message
from xorack.core.request import Request

pytestmark = pytest.mark.slow

SECONDS = 20
"""Of an invocation: what does not wait must end within its reserve, on a busy machine too."""


@pytest.fixture
def silent():
    """The URL of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def hanging(aws, monkeypatch, silent):
    """Return the functions with one silent service; the others respond."""
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")

    def functions(service):
        monkeypatch.setenv(f"AWS_ENDPOINT_URL_{service}", silent)
        environment._services.cache_clear()
        return Functions(aws, monkeypatch)

    yield functions
    environment._services.cache_clear()


@pytest.mark.parametrize(
    ("service", "failed"), [("DYNAMODB", ["m0", "m1"]), ("EVENTBRIDGE", []), ("SQS", ["m1"])]
)
def test_the_consumer_returns_within_its_time(hanging, service, failed):
    functions, context = hanging(service), Context(SECONDS, clock=time.monotonic)
    requests = [request for n in range(20) for request in acked(f"t{n}")]
    invalid = message(Request.stamp_("other", "s", b"\1"), Request.stamp_("other", "t", b"\1\2"))
    assert functions.consume(message(*requests), invalid, context=context) == failed
    assert context.get_remaining_time_in_millis() > 0
    if service != "DYNAMODB":
        assert functions.item("t19")["status"] == {"S": "acked"}
