"""An SQS queue on the loopback address, for jobs that run in processes of their own.

It implements the part of SQS's JSON protocol that senders need.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable
from typing import Any

from tests.support.http_server import Handler, Server
from xorack.core.message import parse
from xorack.core.request import Request

JSON = {"Content-Type": "application/x-amz-json-1.0"}


class _Handler(Handler):
    def do_POST(self) -> None:
        operation = self.headers["X-Amz-Target"].partition(".")[2]
        self.server.ports.append(self.client_address[1])
        status, response = self.server.answer(operation, json.loads(self.body()))
        self.respond(status, json.dumps(response).encode(), JSON)


class QueueServer(Server):
    """A queue named ``stamps`` in any account.

    It counts the messages that it received, and keeps their bodies, in order.
    """

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.queue_url = f"{self.endpoint_url}/123456789012/stamps"
        self.messages = 0
        self.bodies: list[str] = []
        self.groups: set[str | None] = set()
        self.ports: list[int] = []
        """The senders' ports, one a call: calls from one port share a connection."""
        self.refuse: Callable[[int], bool] = lambda count: False
        """Gets the number of messages so far; True fails the batch for good."""
        self._lock = threading.Lock()

    def answer(self, operation: str, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if not request["QueueUrl"].endswith("/stamps"):
            message = "The specified queue does not exist."
            return 400, {"__type": "com.amazonaws.sqs#QueueDoesNotExist", "message": message}
        if operation == "GetQueueAttributes":
            return 200, {"Attributes": {"QueueArn": "arn:aws:sqs:eu-west-1:123456789012:stamps"}}
        assert operation == "SendMessageBatch", operation
        bodies = {entry["Id"]: entry["MessageBody"] for entry in request["Entries"]}
        assert 1 <= len(bodies) == len(request["Entries"]) <= 10
        assert sum(map(len, bodies.values())) <= 1 << 20
        with self._lock:
            if self.refuse(len(self.bodies)):
                return 403, {"__type": "AccessDeniedException", "message": "not you"}
            self.messages += len(bodies)
            self.groups |= {entry.get("MessageGroupId") for entry in request["Entries"]}
            self.bodies += bodies.values()
        digests = {id: hashlib.md5(body.encode()).hexdigest() for id, body in bodies.items()}
        sent = [{"Id": id, "MessageId": id, "MD5OfMessageBody": md5} for id, md5 in digests.items()]
        return 200, {"Successful": sent, "Failed": []}

    def take(self) -> list[Request]:
        """Return the requests since the last call, in order; all of them must be valid."""
        with self._lock:
            bodies, self.bodies = self.bodies, []
        return requests_in(bodies)


def requests_in(bodies: list[str]) -> list[Request]:
    """Parse messages; all their requests must be valid."""
    parsed = [parse(body) for body in bodies]
    assert not any(message.rejected for message in parsed)
    return [request for message in parsed for request in message.requests]
