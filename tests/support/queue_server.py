"""A queue that takes messages over HTTP, for jobs that run in processes of their own.

It speaks as much of SQS's JSON protocol as a sender needs, on the loopback address.
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

NO_QUEUE = "com.amazonaws.sqs#QueueDoesNotExist"


class QueueServer:
    """Queues that exist by being named ``stamps``; what was sent is kept in order."""

    def __init__(self) -> None:
        self.bodies: list[str] = []
        self.refuse: Callable[[int], bool] = lambda count: False
        """Told how many messages came before, says whether the next batch fails for good."""
        self._lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                asked = json.loads(self.rfile.read(length))
                status, answer = server.answer(self.headers["X-Amz-Target"], asked)
                data = json.dumps(answer).encode()
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
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def answer(self, target: str, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if not asked["QueueUrl"].endswith("/stamps"):
            return 400, {"__type": NO_QUEUE, "message": "The specified queue does not exist."}
        operation = target.partition(".")[2]
        if operation == "GetQueueAttributes":
            return 200, {"Attributes": {"QueueArn": "arn:aws:sqs:eu-west-1:123456789012:stamps"}}
        assert operation == "SendMessageBatch", operation
        entries = asked["Entries"]
        assert 1 <= len(entries) <= 10
        assert sum(len(entry["MessageBody"]) for entry in entries) <= 1 << 20
        with self._lock:
            if self.refuse(len(self.bodies)):
                return 403, {"__type": "AccessDeniedException", "message": "not you"}
            self.bodies += [entry["MessageBody"] for entry in entries]
        return 200, {
            "Successful": [
                {
                    "Id": entry["Id"],
                    "MessageId": entry["Id"],
                    "MD5OfMessageBody": hashlib.md5(entry["MessageBody"].encode()).hexdigest(),
                }
                for entry in entries
            ],
            "Failed": [],
        }

    def take(self) -> list[Request]:
        """The requests that came since the last call, in their order; none may be refused."""
        with self._lock:
            bodies, self.bodies = self.bodies, []
        requests = []
        for body in bodies:
            parsed = parse(body)
            assert not parsed.refused, parsed.refused
            requests += parsed.requests
        return requests
