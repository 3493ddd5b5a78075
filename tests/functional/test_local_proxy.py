"""The proxy injects the configured faults, and the same ones for the same seed."""

from __future__ import annotations

import functools
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError, EndpointConnectionError

from tests.support.proxy import FaultProxy, Faults, total


class Target(BaseHTTPRequestHandler):
    """Responds to every call with the call's own entries, and keeps it."""

    protocol_version = "HTTP/1.1"
    arrived: list[tuple[str, dict]]

    def do_POST(self):
        action = self.headers["x-amz-target"].rpartition(".")[2]
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.arrived.append((action, request))
        entries = request.get("Entries", [])
        answer = {}
        if action == "SendMessageBatch":
            answer["Successful"] = [{"Id": e["Id"], "MessageId": "m"} for e in entries]
        elif action == "PutEvents":
            answer["Entries"] = [{"EventId": e["Detail"]} for e in entries]
            answer["FailedEntryCount"] = 0
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-amz-json-1.0")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


@pytest.fixture
def arrived():
    return []


@pytest.fixture
def proxy(arrived):
    handler = type("Handler", (Target,), {"arrived": arrived})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    with server, FaultProxy(f"http://127.0.0.1:{server.server_address[1]}") as started:
        yield started
        server.shutdown()


def clients_of(proxy):
    config = Config(retries={"total_max_attempts": 1}, proxies={})
    url = proxy.endpoint_url
    return functools.cache(lambda service: boto3.client(service, endpoint_url=url, config=config))


@pytest.fixture
def client(proxy):
    return clients_of(proxy)


def update(client):
    return client("dynamodb").update_item(TableName="t", Key={"tag": {"S": "x"}})


def test_calls_without_faults_pass(proxy, client, arrived):
    update(client)
    client("sqs").send_message(QueueUrl="http://q/1/q", MessageBody="ü" * 100_000)
    assert [action for action, _ in arrived] == ["UpdateItem", "SendMessage"]
    assert arrived[1][1]["MessageBody"] == "ü" * 100_000
    assert proxy.happened == {("UpdateItem", ""): 1, ("SendMessage", ""): 1}


@pytest.mark.parametrize(("fault", "times"), [("drop", 0), ("lose", 1)])
def test_broken_connections(proxy, client, arrived, fault, times):
    proxy.faults = {"UpdateItem": Faults(**{fault: 1.0})}
    with pytest.raises(ConnectionClosedError):
        update(client)
    assert len(arrived) == times
    assert proxy.happened == {("UpdateItem", fault): 1}
    proxy.faults = {}
    update(client)  # a new connection is whole again
    assert len(arrived) == times + 1


@pytest.mark.parametrize(
    ("fault", "code", "status", "times"),
    [
        ("throttle", "ProvisionedThroughputExceededException", 400, 0),
        ("conflict", "TransactionConflictException", 400, 0),
        ("error", "InternalServerError", 500, 0),
        ("error_after", "InternalServerError", 500, 1),
    ],
)
def test_error_responses(proxy, client, arrived, fault, code, status, times):
    proxy.faults = {"UpdateItem": Faults(**{fault: 1.0})}
    with pytest.raises(ClientError) as caught:
        update(client)
    assert caught.value.response["Error"]["Code"] == code
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == status
    assert len(arrived) == times


def test_a_call_that_arrives_twice(proxy, client, arrived):
    proxy.faults = {"*": Faults(twice=1.0)}
    update(client)
    assert len(arrived) == 2
    assert arrived[0] == arrived[1]


def test_throttled_queues_have_an_error_of_their_own(proxy, client):
    proxy.faults = {"*": Faults(throttle=1.0)}
    with pytest.raises(ClientError, match="ThrottlingException"):
        client("sqs").send_message(QueueUrl="http://q/1/q", MessageBody="x")


def test_withheld_messages_are_reported_and_the_others_arrive(proxy, client, arrived):
    proxy.faults = {"*": Faults(partial=1.0)}
    entries = [{"Id": str(n), "MessageBody": f"m{n}"} for n in range(10)]
    answer = client("sqs").send_message_batch(QueueUrl="http://q/1/q", Entries=entries)
    passed = [e["Id"] for e in arrived[0][1]["Entries"]]
    assert 0 < len(passed) < 10
    assert [e["Id"] for e in answer["Successful"]] == passed
    assert sorted([*passed, *(e["Id"] for e in answer["Failed"])]) == [str(n) for n in range(10)]


def test_withheld_events_are_reported_in_their_places(proxy, client, arrived):
    proxy.faults = {"*": Faults(partial=1.0)}
    entries = [{"Source": "s", "DetailType": "d", "Detail": f"{n}"} for n in range(10)]
    answer = client("events").put_events(Entries=entries)
    passed = {e["Detail"] for e in arrived[0][1]["Entries"]}
    assert 0 < len(passed) < 10
    assert answer["FailedEntryCount"] == 10 - len(passed)
    for n, entry in enumerate(answer["Entries"]):
        assert entry.get("EventId") == (str(n) if str(n) in passed else None)
        assert ("ErrorCode" in entry) == (str(n) not in passed)


def test_the_same_seed_chooses_the_same_faults(proxy, client, arrived):
    proxy.faults = {"UpdateItem": Faults(error=0.3, throttle=0.3)}

    def run(client):
        for _ in range(30):
            try:
                update(client)
                yield ""
            except ClientError as error:
                yield error.response["Error"]["Code"]

    first = list(run(client))
    assert len(set(first)) == 3
    assert total(proxy.happened) == 30 - first.count("")
    with FaultProxy(proxy.target, seed=0) as again:
        again.faults = proxy.faults
        assert list(run(clients_of(again))) == first


def test_invalid_probabilities_are_rejected():
    with pytest.raises(ValueError, match="lose"):
        Faults(lose=1.5)
    with pytest.raises(ValueError, match="sum"):
        Faults(lose=0.6, drop=0.6)


def test_an_unreachable_target_is_named(client, proxy):
    proxy.target = "http://127.0.0.1:1"
    with pytest.raises((ClientError, EndpointConnectionError), match="502"):
        update(client)
