"""A proxy that injects the faults of networks and busy services into calls to an AWS.

It forwards POST requests, all that AWS's JSON protocols use, and knows their actions
(`UpdateItem`, `SendMessageBatch`, ...) by a header. A seed and a call's number within its action
choose its fault: every run with that seed does the same to the tenth `UpdateItem`.
"""

from __future__ import annotations

import json
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import urllib3
from botocore import xform_name

from tests.support.fault_kinds import CALLS, ERRORS, FAULTS
from tests.support.http_server import Handler, Server

_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "expect", "content-length"}
_JSON = {"Content-Type": "application/x-amz-json-1.0"}
_SLOW_SECONDS = 0.3
RATES = {
    "dropped": 0.03,
    "lost": 0.07,
    "twice": 0.06,
    "throttled": 0.03,
    "5xx": 0.02,
    "5xx applied": 0.05,
    "slow": 0.05,
    "conflict": 0.04,
    "entries failed": 0.4,
}
"""Rates of the faults of a busy network, by the names of `tests.support.fault_kinds.FAULTS`."""


_Response = tuple[int, Mapping[str, str], bytes]
"""Status, headers and body."""


class FaultProxy(Server):
    """The proxy of an address, a context manager; tests/engines shows its use.

    Attributes:
        rates: Rates of faults, each from 0 to 1, by kind; a call meets at most one. `FAULTS` says
            which operations a kind affects. May change at any time.
        happened: Number of calls by `(action, fault)`; the fault of a forwarded call is empty.
    """

    def __init__(self, target: str, *, seed: int) -> None:
        super().__init__(_Handler)
        self.target = target
        self.rates: Mapping[str, float] = {}
        self.happened: Counter[tuple[str, str]] = Counter()
        self._seed = seed
        self._calls: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._upstream = urllib3.PoolManager(maxsize=64, retries=False, timeout=60)

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._upstream.clear()

    def answer(self, path: str, headers: dict[str, str], body: bytes) -> _Response | None:
        """Forward a call, with a fault or without; None breaks the connection."""
        # For example DynamoDB_20120810.UpdateItem.
        service, _, action = headers.get("x-amz-target", "").rpartition(".")
        headers = {name: value for name, value in headers.items() if name not in _HOP_BY_HOP}

        def forward(body: bytes) -> _Response:
            url = f"{self.target}{path}"
            options = {"body": body, "headers": headers, "decode_content": False}
            response = self._upstream.request("POST", url, **options)
            kept = {n: v for n, v in response.headers.items() if n.lower() not in _HOP_BY_HOP}
            return response.status, kept, response.data

        with self._lock:
            chance = random.Random(f"{self._seed}/{action}/{self._calls[action]}")
            self._calls[action] += 1
            fault = self._choose(chance, action)
            self.happened[action, fault] += 1
        if fault == "dropped":
            return None
        if fault == "entries failed":
            return _forward_partly(forward, action, json.loads(body), chance)
        if fault == "slow":
            time.sleep(chance.random() * _SLOW_SECONDS)
        if fault in ("twice", "5xx applied"):
            forward(body)
        if fault == "throttled" and not service.startswith("DynamoDB"):
            return _error("ThrottlingException", 400)
        if fault in ERRORS:
            return _error(*ERRORS[fault])
        response = forward(body)
        return None if fault == "lost" else response

    def _choose(self, chance: random.Random, action: str) -> str:
        """Choose the fault of a call; an empty string for none."""
        operation, point = xform_name(action), chance.random()
        for kind, rate in self.rates.items():
            operations = FAULTS[kind].operations
            if action and (operations is CALLS or operation in operations):
                point -= rate
                if point < 0:
                    return kind
        return ""


def _forward_partly(
    forward: Callable[[bytes], _Response], action: str, request: Any, chance: random.Random
) -> _Response:
    """Forward about half of a call's entries; report the others, at least one, as failed."""
    entries, result = request["Entries"], {}
    withheld = {n for n in range(len(entries)) if chance.random() < 0.5}
    withheld.add(chance.randrange(len(entries)))
    if passed := [entry for n, entry in enumerate(entries) if n not in withheld]:
        response = forward(json.dumps({**request, "Entries": passed}).encode())
        if response[0] != 200:
            return response
        result = json.loads(response[2])
    if action == "SendMessageBatch":
        failure = {"SenderFault": False, "Code": "InternalError", "Message": "try again"}
        failed = [{"Id": entries[n]["Id"], **failure} for n in sorted(withheld)]
        result["Failed"] = result.get("Failed", []) + failed
    else:
        forwarded = iter(result.get("Entries", []))
        failure = {"ErrorCode": "InternalFailure", "ErrorMessage": "try again"}
        result["Entries"] = [
            failure if n in withheld else next(forwarded) for n in range(len(entries))
        ]
        result["FailedEntryCount"] = result.get("FailedEntryCount", 0) + len(withheld)
    return 200, _JSON, json.dumps(result).encode()


def _error(name: str, status: int) -> _Response:
    body = {"__type": f"com.amazonaws#{name}", "message": "a fault of the test"}
    return status, {**_JSON, "x-amzn-errortype": name}, json.dumps(body).encode()


class _Handler(Handler):
    server: FaultProxy

    def do_POST(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            response = self.server.answer(self.path, headers, self.body())
        except urllib3.exceptions.HTTPError as error:
            self.send_error(502, f"cannot reach the target: {error}")
            return
        if response is not None:
            status, headers, body = response
            self.respond(status, body, headers)
            return
        # Break the connection with a reset, as a dying peer does.
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
