"""The stack, the command line, the page and the Lambda functions, over AWS in this process."""

import io
from types import SimpleNamespace

import pytest
from botocore.client import BaseClient

from tests.support.cli import Stacks, outputs_of
from tests.support.dead_letters import Calls
from tests.support.functions import Functions
from tests.support.web import serving
from xorack.aws import schema
from xorack.cli import main, options, wait
from xorack.ops import redrive


@pytest.fixture(autouse=True)
def _few_shards(monkeypatch):
    """Divide the index into few partitions: of all 40, moto reads each by a call of its own."""
    monkeypatch.setattr(schema, "DUE_SHARDS", 3)


@pytest.fixture
def stacks(monkeypatch):
    """The outputs of the stacks that the command line finds, by name."""
    found = Stacks()
    monkeypatch.setattr(options, "make_client", found.make_client)
    return found


@pytest.fixture
def stack(aws, stacks, request):
    """The resources of `aws`, and a test's parameter, as the outputs of a stack named xorack."""
    stacks["xorack"] = {**outputs_of(aws), **getattr(request, "param", {})}
    return aws


@pytest.fixture
def functions(aws, monkeypatch):
    """The Lambda functions over `aws`."""
    return Functions(aws, monkeypatch)


@pytest.fixture
def xorack(capsys):
    """A function that runs a command; it returns the status and the lines of stdout and stderr."""

    def run(*arguments):
        status = main(arguments)
        printed = capsys.readouterr()
        return status, printed.out.splitlines(), printed.err.splitlines()

    return run


@pytest.fixture
def sleeps(monkeypatch):
    """The actions between polls: one for each sleep, then Ctrl-C. The clock goes on by sleeps."""
    actions = []
    clock = SimpleNamespace(now=0.0)

    def sleep(seconds):
        if not actions:
            raise KeyboardInterrupt
        clock.now += seconds
        actions.pop(0)()

    # Only the module's clock: other threads of this process sleep by the real one.
    fake = SimpleNamespace(sleep=sleep, monotonic=lambda: clock.now, clock=clock)
    monkeypatch.setattr(wait, "time", fake)
    return actions


@pytest.fixture
def sqs(monkeypatch):
    """Record every call of AWS; polls of empty queues return at once."""
    monkeypatch.setattr(redrive, "_WAIT_SECONDS", 0)
    calls, original = Calls(), BaseClient._make_api_call

    def call(client, operation, arguments):
        calls.names.append(operation)
        if operation in calls.before:
            calls.before[operation](arguments)
        return original(client, operation, arguments)

    monkeypatch.setattr(BaseClient, "_make_api_call", call)
    return calls


@pytest.fixture
def web(aws, sqs):
    """The page of `aws`; polls of empty queues return at once."""
    with serving(aws) as server:
        yield server


@pytest.fixture
def answer(monkeypatch):
    """A function that puts lines on stdin."""
    return lambda text: monkeypatch.setattr("sys.stdin", io.StringIO(text))
