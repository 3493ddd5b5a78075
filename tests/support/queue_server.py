"""An SQS queue on the loopback address, for jobs that run in processes of their own.

It implements the part of SQS's JSON protocol that senders need.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from xorack.core.message import parse
from xorack.core.request import Request


class QueueServer:
    """A queue named ``stamps`` in any account.

    It counts the messages that it received, and unless told otherwise keeps their bodies, in order.
    """

    def __init__(self, *, keep: bool = True) -> None:
        self.messages = 0
        self.bodies: list[str] = []
        self.groups: set[str | None] = set()
        self.refuse: Callable[[int], bool] = lambda count: False
        """Gets the number of messages so far; True fails the batch for good."""
        self._keep = keep
        self._lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                operation = self.headers["X-Amz-Target"].partition(".")[2]
                status, response = server.respond(operation, request)
                data = json.dumps(response).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/x-amz-json-1.0")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._http.server_port}"
        self.queue_url = f"{self.endpoint}/123456789012/stamps"
        # stop() waits for the next poll: the default of half a second would be most of a test.
        threading.Thread(target=self._http.serve_forever, args=[0.01], daemon=True).start()

    def __enter__(self) -> QueueServer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def respond(self, operation: str, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
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
            self.bodies += bodies.values() if self._keep else ()
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
