"""Runs ministack for as long as the process that started it lives, and adds two things to it.

Run by the Python of ministack's own environment, by path; nothing else of this package is imported.
The parent holds the other end of this process's standard input. When the parent ends, however it
does, the pipe closes, and then the whole process group goes, Lambda workers included, and with it
the directory where all of its state is.

Added, and held by tests/e2e/test_embedded.py:

* An event source mapping hands over batches as large as the template says, after the window that
  it says. ministack's are of ten messages at most, and it never waits.
* It counts: every call by its action, the messages sent to each queue, the invocations of each
  function. `GET /_xorack/usage` tells. These are the calls that arrived and what became of them,
  whoever made them, so that what the demo reports does not rest on what the code says of itself.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias
from urllib.parse import parse_qs

Ministack: TypeAlias = Any  # has no types
App: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]  # ASGI

_EVENT_BYTES = 6_000_000
"""How much Lambda hands over in one invocation: 6 MB."""

_lock = threading.RLock()
_calls: Counter[str] = Counter()
_refused: Counter[str] = Counter()
_messages: Counter[str] = Counter()
_invocations: Counter[str] = Counter()
_errors: Counter[str] = Counter()


def _watch(directory: str) -> None:
    while os.read(0, 4096):
        pass
    # The log goes too: a parent that wants it has read it before it closed the pipe.
    shutil.rmtree(directory, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)


def _correct_batches(sqs: Ministack, functions: Ministack) -> None:
    def window_seconds(queue_arn: str) -> float:
        windows = [
            float(mapping.get("MaximumBatchingWindowInSeconds") or 0)
            for _, _, mapping in functions._iter_all_esms()
            if mapping.get("EventSourceArn") == queue_arn
        ]
        return max(windows, default=0.0)

    def receive(queue_url: str, count: int) -> list[Ministack]:
        with sqs._queues_lock:
            queue = sqs._get_q(queue_url)
            sqs._expire_retained(queue)
            sqs._dlq_sweep(queue)
            now = time.time()
            fits, size, oldest = 0, 0, now
            for message in queue["messages"]:
                if message["visible_at"] > now:
                    continue
                size += len(message["body"]) + 500  # its attributes and the JSON around it
                if fits and size > _EVENT_BYTES:
                    break
                fits += 1
                oldest = min(oldest, message["visible_at"])
                if fits >= count:
                    break
            full = fits >= count or size > _EVENT_BYTES
            waited = now - oldest
            if not fits or (not full and waited < window_seconds(queue["attributes"]["QueueArn"])):
                return []
            visible = float(queue["attributes"].get("VisibilityTimeout", "30"))
            batch: list[Ministack] = sqs._collect_msgs(queue, fits, visible)
            return batch

    sqs._receive_messages_for_esm = receive


def _count_invocations(functions: Ministack) -> None:
    original = functions._emit_lambda_logs  # the one thing done once for every invocation

    def emit(
        func: Ministack,
        request_id: str,
        text: str,
        error: bool,
        *args: Ministack,
        **more: Ministack,
    ) -> None:
        name = str((func.get("config") or func).get("FunctionName"))
        with _lock:
            _invocations[name] += 1
            _errors[name] += bool(error)
        original(func, request_id, text, error, *args, **more)

    functions._emit_lambda_logs = emit


def _counting(app: App) -> App:
    async def counted(scope: Ministack, receive: Ministack, send: Ministack) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        if scope["path"] == "/_xorack/usage":
            await _tell(send)
            return
        headers = dict(scope["headers"])
        action = headers.get(b"x-amz-target", b"").decode("latin-1").rpartition(".")[2]
        keeps_body = action in ("", "SendMessage", "SendMessageBatch", "BatchWriteItem")
        body, status = bytearray(), 0

        async def hear() -> Ministack:
            message = await receive()
            if keeps_body and message["type"] == "http.request" and scope["method"] == "POST":
                body.extend(message.get("body", b""))
            return message

        async def say(message: Ministack) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                # Before the answer is out, so that whoever has it finds it counted.
                status = message["status"]
                _count(action, bytes(body), status, headers)
            await send(message)

        await app(scope, hear, say)

    return counted


def _count(action: str, body: bytes, status: int, headers: dict[bytes, bytes]) -> None:
    if not action and b"form" in headers.get(b"content-type", b""):
        action = parse_qs(body.decode("utf-8", "replace")).get("Action", [""])[0]  # older SDKs
    if not action:
        return
    with _lock:
        (_calls if status < 400 else _refused)[action] += 1
        if status >= 400 or not body.startswith(b"{"):
            return
        asked = json.loads(body)
        if action in ("SendMessage", "SendMessageBatch"):
            queue = str(asked.get("QueueUrl", "")).rpartition("/")[2]
            _messages[queue] += len(asked.get("Entries", [None]))
        elif action == "BatchWriteItem":
            _calls["BatchWriteItem.items"] += sum(map(len, asked["RequestItems"].values()))


async def _tell(send: Ministack) -> None:
    with _lock:
        told = {
            "calls": _calls,
            "rejected": _refused,
            "messages": _messages,
            "invocations": _invocations,
            "errors": _errors,
        }
        body = json.dumps(told).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def main() -> None:
    """Runs ministack in the foreground."""
    (directory,) = sys.argv[1:]
    sys.argv[1:] = []
    threading.Thread(target=_watch, args=(directory,), daemon=True).start()
    ministack: Ministack = importlib.import_module("ministack.app")
    sqs: Ministack = importlib.import_module("ministack.services.sqs")
    functions: Ministack = importlib.import_module("ministack.services.lambda_svc")
    _correct_batches(sqs, functions)
    _count_invocations(functions)
    ministack.app = _counting(ministack.app)
    ministack.main()


if __name__ == "__main__":
    main()
