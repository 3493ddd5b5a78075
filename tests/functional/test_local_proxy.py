"""The proxy injects the configured faults, and the same ones for the same seed."""

from __future__ import annotations

import functools
import json
from contextlib import nullcontext

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError

from tests.support.proxy import FaultProxy, _json_response


class RecordingProxy(FaultProxy):
    """Keeps every forwarded call, and responds to it with its own entries."""

    def __init__(self):
        super().__init__()
        self.arrived = []

    def _forward(self, call):
        action, request = call.target[1], json.loads(call.body)
        self.arrived.append((action, request))
        entries, response = request.get("Entries", []), {}
        if action == "SendMessageBatch":
            response["Successful"] = [{"Id": e["Id"], "MessageId": "m"} for e in entries]
        elif action == "PutEvents":
            response["Entries"] = [{"EventId": e["Detail"]} for e in entries]
            response["FailedEntryCount"] = 0
        return _json_response(200, response)


@pytest.fixture
def proxy():
    with RecordingProxy() as started:
        yield started


def clients_of(proxy):
    config = Config(retries={"total_max_attempts": 1}, proxies={})
    url = proxy.endpoint_url
    return functools.cache(lambda service: boto3.client(service, endpoint_url=url, config=config))


@pytest.fixture
def client(proxy):
    return clients_of(proxy)


def update(client):
    return client("dynamodb").update_item(TableName="t", Key={"tag": {"S": "x"}})


def send(client, body="x"):
    client("sqs").send_message(QueueUrl="http://q/1/q", MessageBody=body)


@pytest.mark.parametrize(("fault", "times"), [("dropped", 0), ("lost", 1), ("twice", 2)])
def test_broken_and_doubled_calls(proxy, client, fault, times):
    proxy.rates = {fault: 1.0}
    with nullcontext() if fault == "twice" else pytest.raises(ConnectionClosedError):
        update(client)
    assert len(proxy.arrived) == times
    assert all(call == proxy.arrived[0] for call in proxy.arrived)
    assert proxy.happened == {("UpdateItem", fault): 1}
    proxy.rates = {}
    update(client)  # a new connection is whole again
    assert len(proxy.arrived) == times + 1


@pytest.mark.parametrize(
    ("call", "fault", "code", "status", "times"),
    [
        (update, "throttled", "ProvisionedThroughputExceededException", 400, 0),
        (send, "throttled", "ThrottlingException", 400, 0),
        (update, "conflict", "TransactionConflictException", 400, 0),
        (update, "5xx", "InternalServerError", 500, 0),
        (update, "5xx applied", "InternalServerError", 500, 1),
    ],
)
def test_error_responses(proxy, client, call, fault, code, status, times):
    proxy.rates = {fault: 1.0}
    with pytest.raises(ClientError) as caught:
        call(client)
    assert caught.value.response["Error"]["Code"] == code
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == status
    assert len(proxy.arrived) == times


def test_withheld_messages_are_reported_and_the_others_arrive(proxy, client):
    proxy.rates = {"entries failed": 1.0}
    entries = [{"Id": str(n), "MessageBody": f"m{n}"} for n in range(10)]
    response = client("sqs").send_message_batch(QueueUrl="http://q/1/q", Entries=entries)
    passed = [e["Id"] for e in proxy.arrived[0][1]["Entries"]]
    assert 0 < len(passed) < 10
    assert [e["Id"] for e in response["Successful"]] == passed
    assert sorted([*passed, *(e["Id"] for e in response["Failed"])]) == [str(n) for n in range(10)]


def test_withheld_events_are_reported_in_their_places(proxy, client):
    proxy.rates = {"entries failed": 1.0}
    entries = [{"Source": "s", "DetailType": "d", "Detail": f"{n}"} for n in range(10)]
    response = client("events").put_events(Entries=entries)
    passed = {e["Detail"] for e in proxy.arrived[0][1]["Entries"]}
    assert 0 < len(passed) < 10
    assert response["FailedEntryCount"] == 10 - len(passed)
    for n, entry in enumerate(response["Entries"]):
        assert entry.get("EventId") == (str(n) if str(n) in passed else None)
        assert ("ErrorCode" in entry) == (str(n) not in passed)


def test_a_fault_affects_only_its_operations(proxy, client):
    proxy.rates = {"conflict": 1.0, "entries failed": 1.0}
    send(client)
    assert proxy.happened == {("SendMessage", ""): 1}
