"""A proxy in front of an AWS, real or embedded, that does what networks and busy services do.

It looks at calls by their action (`UpdateItem`, `SendMessageBatch`, ...; AWS's JSON protocols name
it in a header) and spoils some: see `Faults`. The rest, and what has no such header, passes.

Which calls are spoilt follows from the seed: the tenth `UpdateItem` that arrives meets the same
fate in every run with that seed, whatever the threads do in between.
"""

from __future__ import annotations

import http.client
import json
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from xorack.local.embedded import HOST

_UPSTREAM_SECONDS = 60
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade"}
_PARTIAL = {"SendMessageBatch", "PutEvents", "BatchWriteItem"}


@dataclass(frozen=True)
class Faults:
    """How likely what is to happen to a call, each from 0 to 1; at most one happens to it.

    Attributes:
        drop: It never arrives; the connection breaks.
        lose: It arrives and takes effect; the connection breaks before the answer is back.
        twice: It arrives twice, as when something on the way repeats it; the later answer comes
            back.
        throttle: It is refused for going too fast, without effect.
        error: It is answered with an internal error (500), without effect.
        error_after: It takes effect, and is answered with an internal error all the same.
        conflict: An `UpdateItem` is refused for a transaction that is under way, without effect.
        partial: Of the entries of a `SendMessageBatch`, `PutEvents` or `BatchWriteItem` about half
            are taken, and the others reported as not.
        delay: It is late.
        delay_seconds: By at most how much.
    """

    drop: float = 0.0
    lose: float = 0.0
    twice: float = 0.0
    throttle: float = 0.0
    error: float = 0.0
    error_after: float = 0.0
    conflict: float = 0.0
    partial: float = 0.0
    delay: float = 0.0
    delay_seconds: float = 0.5

    def __post_init__(self) -> None:
        chances = {name: getattr(self, name) for name in _kinds()}
        wrong = [name for name, chance in chances.items() if not 0 <= chance <= 1]
        if wrong or sum(chances.values()) > 1:
            raise ValueError(f"{', '.join(wrong) or 'the sum of faults'}: expected 0 to 1")

    def choose(self, chance: random.Random, action: str) -> str:
        """Chooses what happens to a call.

        Args:
            chance: Where the choice comes from.
            action: What is called.

        Returns:
            Name of the fault; empty for none.
        """
        point = chance.random()
        for kind in _kinds():
            point -= getattr(self, kind)
            if point < 0:
                if (kind == "partial" and action not in _PARTIAL) or (
                    kind == "conflict" and action != "UpdateItem"
                ):
                    return ""
                return kind
        return ""


def _kinds() -> list[str]:
    return [field.name for field in fields(Faults) if field.name != "delay_seconds"]


class _Call(NamedTuple):
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def target(self) -> tuple[str, str]:
        """The service and the action, as `DynamoDB_20120810` and `UpdateItem`; or empty."""
        service, _, action = self.headers.get("x-amz-target", "").rpartition(".")
        return service, action


class _Answer(NamedTuple):
    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes


class FaultProxy:
    """The proxy; a context manager.

    Start it first, give its `endpoint_url` to whoever is to suffer, then say where calls go::

        with FaultProxy(seed=7) as proxy:
            with EmbeddedAWS(environ={"AWS_ENDPOINT_URL": proxy.endpoint_url}) as aws:
                proxy.target = aws.endpoint_url
                stack = deploy(aws, template)  # in peace
                proxy.faults = {"UpdateItem": Faults(lose=0.1), "*": Faults(drop=0.05)}

    Attributes:
        target: Where calls go.
        faults: What happens to them, by action; `*` for the actions that are not named. May be
            changed at any time.
        happened: How often which fault happened to which action, keyed `(action, fault)`; the
            fault of a call that passed is empty.
    """

    def __init__(self, target: str | None = None, *, seed: int = 0, port: int = 0) -> None:
        """Says how it will be; nothing happens before it is entered.

        Args:
            target: Where calls go, for example `EmbeddedAWS.endpoint_url`; may be set later.
            seed: What is spoilt follows from it.
            port: The port to listen on; a free one by default.
        """
        self.target = target
        self.faults: Mapping[str, Faults] = {}
        self.happened: Counter[tuple[str, str]] = Counter()
        self._seed = seed
        self._port = port
        self._seen: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._server: ThreadingHTTPServer | None = None

    @property
    def endpoint_url(self) -> str:
        """Where it is, for `endpoint_url` and `AWS_ENDPOINT_URL`."""
        return f"http://{HOST}:{self._port}"

    def __enter__(self) -> FaultProxy:
        proxy = self

        class Handler(_Handler):
            owner = proxy

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request: object, client_address: object) -> None:
                """Says nothing: connections that break are what this is for."""

        self._server = Server((HOST, self._port), Handler)
        self._port = self._server.server_address[1]
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        ).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def _fate(self, action: str) -> tuple[str, random.Random, Faults]:
        with self._lock:
            number = self._seen[action]
            self._seen[action] += 1
            faults = self.faults.get(action, self.faults.get("*", Faults()))
        chance = random.Random(f"{self._seed}/{action}/{number}")
        fault = faults.choose(chance, action) if action else ""
        with self._lock:
            self.happened[action, fault] += 1
        return fault, chance, faults

    def _answer(self, call: _Call, link: _Upstream) -> _Answer | None:
        """Lets a call meet its fate; None for a connection that is to break."""
        service, action = call.target
        fault, chance, faults = self._fate(action)
        if fault == "drop":
            return None
        if fault == "throttle":
            dynamodb = service.startswith("DynamoDB")
            name = "ProvisionedThroughputExceededException" if dynamodb else "ThrottlingException"
            return _refusal(400, name, "too fast")
        if fault == "conflict":
            return _refusal(400, "TransactionConflictException", "a transaction is under way")
        if fault == "error":
            return _refusal(500, "InternalServerError", "try again")
        if fault == "partial":
            return _partial(call, link, action, chance)
        if fault == "delay":
            time.sleep(chance.random() * faults.delay_seconds)
        answer = link.ask(call)
        if fault == "twice":
            answer = link.ask(call)
        if fault == "error_after":
            return _refusal(500, "InternalServerError", "try again")
        return None if fault == "lose" else answer


def total(happened: Mapping[tuple[str, str], int], faults: Iterable[str] | None = None) -> int:
    """Adds up how often faults happened.

    Args:
        happened: `FaultProxy.happened`.
        faults: Which; all of them by default.

    Returns:
        How often.
    """
    wanted = set(faults or _kinds())
    return sum(count for (_, fault), count in happened.items() if fault in wanted)


class _Upstream:
    """The connection from the proxy to its target that belongs to one client's connection."""

    def __init__(self, target: str) -> None:
        self._host = urlsplit(target).netloc
        self._connection: http.client.HTTPConnection | None = None

    def ask(self, call: _Call) -> _Answer:
        fresh = self._connection is None
        try:
            return self._ask(call)
        except (http.client.RemoteDisconnected, ConnectionError):
            self.close()
            if fresh:
                raise
            # Kept open too long, and closed at the other end before this call.
            return self._ask(call)

    def _ask(self, call: _Call) -> _Answer:
        if self._connection is None:
            self._connection = http.client.HTTPConnection(self._host, timeout=_UPSTREAM_SECONDS)
            self._connection.connect()
            # Headers and body are two packets, and the second must not wait for the first's ack.
            self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        headers = {name: value for name, value in call.headers.items() if name not in _HOP_BY_HOP}
        headers.pop("expect", None)
        headers["content-length"] = str(len(call.body))
        self._connection.request(call.method, call.path, call.body, headers)
        answer = self._connection.getresponse()
        body = answer.read()
        kept = [(n, v) for n, v in answer.getheaders() if n.lower() not in _HOP_BY_HOP]
        return _Answer(answer.status, kept, body)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _Handler(BaseHTTPRequestHandler):
    owner: FaultProxy
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # an answer goes out whole

    def setup(self) -> None:
        super().setup()
        self._upstream: _Upstream | None = None

    def finish(self) -> None:
        if self._upstream is not None:
            self._upstream.close()
        super().finish()

    def _serve(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        if "transfer-encoding" in headers:
            self.send_error(411)
            self.close_connection = True
            return
        body = self.rfile.read(int(headers.get("content-length", 0)))
        if self.owner.target is None:
            self.send_error(502, "no target yet")
            return
        self._upstream = self._upstream or _Upstream(self.owner.target)
        call = _Call(self.command, self.path, headers, body)
        try:
            answer = self.owner._answer(call, self._upstream)
        except (OSError, http.client.HTTPException) as error:
            self.send_error(502, f"cannot reach the target: {error}")
            return
        if answer is None:
            self._break()
            return
        self.send_response_only(answer.status)
        for name, value in answer.headers:
            if name.lower() != "content-length":
                self.send_header(name, value)
        # The length of what HEAD would have sent is told, and nothing sent.
        told = {n.lower(): v for n, v in answer.headers}.get("content-length")
        head = self.command == "HEAD"
        length = told if head and told else str(len(answer.body))
        self.send_header("Content-Length", length)
        self.end_headers()
        if not head:
            self.wfile.write(answer.body)
        self.wfile.flush()

    def _break(self) -> None:
        """Breaks the connection as a dying peer does: with a reset, not in good order."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_PATCH = _serve

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing: `FaultProxy.happened` tells."""


def _refusal(status: int, name: str, message: str) -> _Answer:
    body = json.dumps({"__type": f"com.amazonaws#{name}", "message": message}).encode()
    headers = [("Content-Type", "application/x-amz-json-1.0"), ("x-amzn-errortype", name)]
    return _Answer(status, headers, body)


def _partial(call: _Call, link: _Upstream, action: str, chance: random.Random) -> _Answer:
    """Lets about half of a call's entries through, one at least withheld."""
    asked = json.loads(call.body)
    entries: list[Any] = asked.get("Entries", [])
    if action == "BatchWriteItem":
        tables = asked["RequestItems"]
        entries = [(table, write) for table, writes in tables.items() for write in writes]
    withheld = {n for n in range(len(entries)) if chance.random() < 0.5}
    withheld.add(chance.randrange(len(entries)))
    passed = [entry for n, entry in enumerate(entries) if n not in withheld]
    kept = [entry for n, entry in enumerate(entries) if n in withheld]

    answer = _Answer(200, [("Content-Type", "application/x-amz-json-1.0")], b"{}")
    if passed:
        field, value = (
            ("Entries", passed)
            if action != "BatchWriteItem"
            else ("RequestItems", _by_table(passed))
        )
        answer = link.ask(call._replace(body=json.dumps({**asked, field: value}).encode()))
        if answer.status != 200:
            return answer
    told: dict[str, Any] = json.loads(answer.body)
    if action == "BatchWriteItem":
        unprocessed = told.get("UnprocessedItems", {})
        for table, writes in _by_table(kept).items():
            unprocessed.setdefault(table, []).extend(writes)
        told["UnprocessedItems"] = unprocessed
    elif action == "SendMessageBatch":
        failed = {"SenderFault": False, "Code": "InternalError", "Message": "try again"}
        told.setdefault("Successful", [])
        told["Failed"] = [*told.get("Failed", []), *({"Id": e["Id"], **failed} for e in kept)]
    else:
        taken = iter(told.get("Entries", []))
        error = {"ErrorCode": "InternalFailure", "ErrorMessage": "try again"}
        told["Entries"] = [error if n in withheld else next(taken) for n in range(len(entries))]
        told["FailedEntryCount"] = told.get("FailedEntryCount", 0) + len(kept)
    # What the target said of its own body does not hold for this one.
    stale = ("content-length", "x-amz-crc32")
    headers = [(name, value) for name, value in answer.headers if name.lower() not in stale]
    return _Answer(200, headers, json.dumps(told).encode())


def _by_table(writes: Iterable[tuple[str, Any]]) -> dict[str, list[Any]]:
    tables: dict[str, list[Any]] = {}
    for table, write in writes:
        tables.setdefault(table, []).append(write)
    return tables
