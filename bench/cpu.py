"""The consumer's processor time: of a call, a request and an ack, boto3's own included.

``python -m bench.cpu`` serves AWS's responses to `measure`: what a server takes must not count.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from threading import Thread
from time import process_time
from typing import Any
from unittest.mock import patch

from bench.handler import handle, make_event, open_handler
from bench.harness import ROOT, Figures, Section, Table, interleaved
from tests.support.in_process import Resources
from xorack.aws.client import make_client
from xorack.core.message import pack
from xorack.core.request import Request
from xorack.core.stamp import traced

VCPU = 1024 / 1769
"""The share of a processor that Lambda gives a function of 1 GiB."""
CALL = "an UpdateItem of boto3"
SINGLE = "a request, each of its own chain"
FOLDED = "a request, 100 of each chain"
ACK = "an ack: a chain created and ended"
_WORKERS = 8
_RESOURCES = Resources(None, "table", "tag", "queue", "dead", "bus", "events")


class _Server(BaseHTTPRequestHandler):
    """Every write succeeds, every read finds nothing, every event is accepted."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two packets

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        entries = [{"EventId": "e"} for _ in request.get("Entries", [])]
        response = {"Responses": {}, "UnprocessedKeys": {}, "FailedEntryCount": 0}
        data = json.dumps({**response, "Entries": entries}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-amz-json-1.0")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def _served() -> Iterator[str]:
    """Run the server in a process of its own; yield its endpoint."""
    command = [sys.executable, "-m", "bench.cpu"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as server:
        assert server.stdin
        assert server.stdout
        yield f"http://127.0.0.1:{server.stdout.readline().strip()}"
        server.stdin.close()


def _acks(batch: int, size: int) -> dict[str, Any]:
    """Make an event of chains that are created and acked in one message each."""
    records = []
    for number in range(size):
        tag, stamp = f"acks-{batch}/{number}", traced((batch << 32) + number + 1)
        create = Request("create", tag, "c", stamp, 1)
        (body,) = pack([create, Request.stamp_(tag, "s", stamp, finished=1)])
        records.append({"messageId": f"m{number}", "body": body, "eventSource": "aws:sqs"})
    return {"Records": records}


def _milliseconds(work: Callable[[], None], times: int) -> float:
    """Run some work; return the processor time of one of so many parts, milliseconds."""
    start = process_time()
    work()
    return (process_time() - start) * 1000 / times


def measure(quick: bool) -> Figures:
    """Measure calls and batches in turn; return milliseconds of processor time.

    Of several rounds it is the least: other work on the machine only adds.
    """
    size, rounds = (100, 1) if quick else (300, 20)
    numbers = count()
    environment = {
        "AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench",
        "AWS_DEFAULT_REGION": "us-east-1",
    }  # fmt: skip
    with (
        _served() as endpoint,
        patch.dict(os.environ, {**environment, "AWS_ENDPOINT_URL": endpoint}),
        open_handler(_RESOURCES, _WORKERS) as (handler, _),
    ):
        client = make_client("dynamodb")
        write = partial(
            client.update_item,
            TableName="table",
            Key={"tag": {"S": "database/file13"}},
            UpdateExpression="SET #stamp = :stamp, #version = :version",
            ConditionExpression="#version = :before",
            ExpressionAttributeNames={"#stamp": "stamp", "#version": "version"},
            ExpressionAttributeValues={
                ":stamp": {"B": traced(1)}, ":version": {"N": "2"}, ":before": {"N": "1"},
            },
        )  # fmt: skip

        def calls() -> None:
            for _ in range(size):
                write()

        events = {
            SINGLE: lambda: make_event(next(numbers), size, size),
            FOLDED: lambda: make_event(next(numbers), size // 100, size),
            ACK: lambda: _acks(next(numbers), size),
        }
        variants = {CALL: lambda: _milliseconds(calls, size)}
        for name, make in events.items():
            variants[name] = lambda make=make: _timed(handler, make(), size)
        for run in variants.values():
            run()  # connections, imports
        return {name: min(of) for name, of in interleaved(variants, rounds).items()}


def _timed(handler: Any, event: dict[str, Any], size: int) -> float:
    return _milliseconds(lambda: handle(handler, event), size)


def describe(figures: Figures) -> Section:
    """Write the section."""
    table = Table(
        ["of", "ms of a processor", "a second at 1 GiB"],
        note=f"*A second at 1 GiB*: Lambda gives a function of 1 GiB {VCPU:.2f} of a processor, "
        "here taken to be as fast as this machine's. An invocation does no more, however fast "
        "DynamoDB responds. An ack is two UpdateItems, a tenth of a PutEvents call, and its "
        "requests. Requests that share a write cost little more than their parsing.",
    )
    for name, milliseconds in figures.items():
        table.add(name, milliseconds, 1000 * VCPU / milliseconds)
    return Section(
        "The consumer's processor time",
        "`lambda_src.consumer.handler` with boto3 over HTTP, without TLS, to a server in another "
        "process. Batches have 300 messages; stamps are traced; eight workers. The least of 20 "
        "rounds.",
        [table],
    )


def _serve() -> None:
    """Serve until standard input ends; print the port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Server)
    print(server.server_port, flush=True)
    Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    _serve()
