"""A function in AWS's own runtime client for Python, `awslambdaric`, as on Lambda.

A server on this machine is its Runtime API and, at the same address, all of AWS: every call to a
service is denied, but for the read of the acker's retentions.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.http_server import Handler, Server

ROOT = Path(__file__).resolve().parents[2]
DENIED = b'{"__type": "com.amazon.coral.service#AccessDeniedException", "message": "denied"}'
JSON = {"Content-Type": "application/json"}
_INVOCATION = "/2018-06-01/runtime/invocation/"


def run_function(name, event, *, service="xorack", level="INFO") -> list[dict[str, Any]]:
    """Invoke a function of `lambda_src` in a process of its own; return its log."""
    pytest.importorskip("awslambdaric", reason="AWS has built it for Linux only")
    with _Server(event) as server:
        endpoint = server.endpoint_url
        process = subprocess.Popen(
            [sys.executable, "-B", "-m", "awslambdaric", f"lambda_src.{name}.handler"],
            cwd=ROOT,
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": str(ROOT),
                "AWS_LAMBDA_RUNTIME_API": endpoint.removeprefix("http://"),
                "AWS_LAMBDA_FUNCTION_NAME": name,
                "AWS_LAMBDA_LOG_FORMAT": "JSON",
                "AWS_LAMBDA_LOG_LEVEL": level,
                "AWS_REGION": "eu-west-1",
                "AWS_DEFAULT_REGION": "eu-west-1",
                "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
                "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG",
                "AWS_SESSION_TOKEN": "session-token-of-the-role",
                "AWS_ENDPOINT_URL": endpoint,
                "TABLE_NAME": "chains",
                "TABLE_ARN": "arn:aws:dynamodb:eu-west-1:123456789012:table/chains",
                "EVENT_BUS_NAME": "bus",
                "DEAD_LETTER_QUEUE_URL": f"{endpoint}/123456789012/dead",
                "POWERTOOLS_SERVICE_NAME": service,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        server.kill = process.kill
        try:
            printed, _ = process.communicate(timeout=600)
        finally:
            process.kill()
    assert server.responses == 1, printed
    return [json.loads(line) for line in printed.splitlines()]


class _Server(Server):
    kill: Callable[[], None]

    def __init__(self, event: Any) -> None:
        super().__init__(_Handler)
        self.events, self.responses = [event], 0


class _Handler(Handler):
    def do_GET(self) -> None:
        if not self.server.events:
            self.server.kill()  # the function would wait for another invocation
            return
        headers = {
            "Lambda-Runtime-Aws-Request-Id": "request-0",
            "Lambda-Runtime-Deadline-Ms": str(int(time.time() * 1000) + 30_000),
            "Lambda-Runtime-Invoked-Function-Arn": "arn:aws:lambda:eu-west-1:1:function:f",
        }
        self.respond(200, json.dumps(self.server.events.pop()).encode(), {**JSON, **headers})

    def do_POST(self) -> None:
        body = self.body()
        if self.path.startswith(_INVOCATION):
            self.server.responses += 1
            self.respond(202, b"{}", JSON)
        elif b"\\u0000retention" in body:
            self.respond(200, b"{}", JSON)
        else:
            self.respond(400, DENIED, {**JSON, "x-amzn-RequestId": "id-of-the-call"})
