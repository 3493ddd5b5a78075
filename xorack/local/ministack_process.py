"""Runs ministack until its parent process ends, with larger batches.

The Python of ministack's own environment runs this file by its path, so it imports nothing else of
this package. The parent holds the other end of standard input. When the parent ends, the pipe
closes; this process then removes its directory and kills its group, including Lambda workers. If
the parent first sends a line, this process keeps running. Until this process ends, it locks the
file `running`. It makes seven changes to ministack, which tests/e2e checks:

* An event source mapping delivers batches of the template's size after the template's window.
  ministack delivers at most ten messages, at once.
* The parameters of an event source mapping are numbers. ministack keeps them as text, and then does
  not poll.
* A template may contain any alarms. The alarms exist, but nothing evaluates them. ministack rejects
  templates with composite alarms or alarms on expressions.
* A template may contain statements of a bus's policy. The statements are kept, but not enforced.
  ministack rejects such a template.
* CloudFormation cannot create a rule on a bus that does not exist, as on AWS.
* A table has the time to live and the recovery of its template. ministack ignores both.
* The metrics `Invocations` and `Errors` count all invocations of a function. ministack counts only
  those by Lambda's own API.

`GET /_xorack/events/N` returns the events of all buses without the first N. Requests that a web
page can cause are rejected, because such a request could deploy a function, which runs as the user.
"""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

Ministack: TypeAlias = Any  # ministack has no types
App: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]  # ASGI

_EVENT_BYTES = 6_000_000
"""Lambda's limit for the event of an invocation."""
_ENVELOPE_BYTES = 500  # a message's attributes and the JSON around its body


def _end_with_parent(directory: str) -> None:
    if os.read(0, 4096):
        return
    shutil.rmtree(directory, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)


def _hold_lock(directory: str) -> None:
    # No worker inherits the handle, so the lock ends with this process.
    handle = os.open(os.path.join(directory, "running"), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(handle, fcntl.LOCK_EX)
    os.write(handle, b"%d\n" % os.getpid())


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
            visible = [m for m in queue["messages"] if m["visible_at"] <= now]
            fits = size = 0
            for message in visible[:count]:
                size += len(message["body"]) + _ENVELOPE_BYTES
                if fits and size > _EVENT_BYTES:
                    break
                fits += 1
            if not fits:
                return []
            waited = now - min(message["visible_at"] for message in visible[:fits])
            full = fits == count or size > _EVENT_BYTES
            if not full and waited < window_seconds(queue["attributes"]["QueueArn"]):
                return []
            timeout = float(queue["attributes"].get("VisibilityTimeout", "30"))
            batch: list[Ministack] = sqs._collect_msgs(queue, fits, timeout)
            return batch

    sqs._receive_messages_for_esm = receive


def _accept_alarms(provisioners: Ministack, cloudwatch: Ministack) -> None:
    """Let CloudFormation create and delete alarms of all kinds, which nothing evaluates."""
    kinds = {
        "Alarm": (cloudwatch._put_metric_alarm, cloudwatch._alarms),
        "CompositeAlarm": (cloudwatch._put_composite_alarm, cloudwatch._composite_alarms),
    }
    cloudwatch._evaluate_alarm = lambda alarm: None
    for kind, (put, alarms) in kinds.items():

        def create(
            logical_id: str, properties: Any, stack: str, put: Any = put, alarms: Any = alarms
        ) -> tuple[str, Ministack]:
            name = f"{stack}-{logical_id}"
            # CloudFormation adds tags that callers may not set.
            put({}, {**properties, "AlarmName": name, "Tags": []}, True)
            return name, {"Arn": alarms[name]["AlarmArn"]}

        def delete(name: str, properties: Any, alarms: Any = alarms) -> None:
            alarms.pop(name, None)

        provisioners._RESOURCE_HANDLERS[f"AWS::CloudWatch::{kind}"] = {
            "create": create,
            "update": lambda name, old, new, stack: (name, {}),
            "delete": delete,
        }


def _accept_bus_policies(provisioners: Ministack, events: Ministack) -> None:
    """Let CloudFormation add statements to a bus's policy, and remove them."""

    def create(logical_id: str, properties: Any, stack: str) -> tuple[str, Ministack]:
        bus, statement = properties.get("EventBusName", "default"), properties["StatementId"]
        remove(bus, statement)
        policy = events._event_bus_policies.setdefault(bus, {"Version": "2012-10-17"})
        policy.setdefault("Statement", []).append({**properties["Statement"], "Sid": statement})
        return f"{stack}-{logical_id}", {}

    def remove(bus: str, statement: str) -> None:
        events._remove_permission({"EventBusName": bus, "StatementId": statement})

    def update(name: str, old: Any, new: Any, stack: str) -> tuple[str, Ministack]:
        create("", new, stack)
        return name, {}

    def delete(name: str, properties: Any) -> None:
        remove(properties.get("EventBusName", "default"), properties["StatementId"])

    handlers = {"create": create, "update": update, "delete": delete}
    provisioners._RESOURCE_HANDLERS["AWS::Events::EventBusPolicy"] = handlers


def _refuse_rules_without_bus(provisioners: Ministack, events: Ministack) -> None:
    """Make CloudFormation fail for a rule on a bus that does not exist, as AWS does."""
    handler = provisioners._RESOURCE_HANDLERS["AWS::Events::Rule"]
    original = handler["create"]

    def create(logical_id: str, properties: Any, *rest: Any) -> Any:
        bus = str(properties.get("EventBusName", "default")).rpartition("/")[2]
        if bus != "default" and bus not in events._event_buses:
            raise ValueError(f"Event bus {bus} does not exist.")
        return original(logical_id, properties, *rest)

    handler["create"] = create


def _complete_tables(provisioners: Ministack, dynamodb: Ministack) -> None:
    """Let CloudFormation set a table's time to live and recovery."""
    handler = provisioners._RESOURCE_HANDLERS["AWS::DynamoDB::Table"]
    original = handler["create"]

    def create(logical_id: str, properties: Any, *rest: Any) -> Any:
        made = original(logical_id, properties, *rest)
        for setting, change in (
            ("TimeToLiveSpecification", dynamodb._update_ttl),
            ("PointInTimeRecoverySpecification", dynamodb._update_continuous_backups),
        ):
            if setting in properties:
                change({"TableName": made[0], setting: properties[setting]})
        return made

    handler["create"] = create


def _read_numbers(provisioners: Ministack) -> None:
    """Make event source mappings read the parameters of a template as numbers."""

    def read(part: Any) -> Any:
        if isinstance(part, dict):
            return {name: read(value) for name, value in part.items()}
        return int(part) if isinstance(part, str) and part.isdecimal() else part

    handler = provisioners._RESOURCE_HANDLERS["AWS::Lambda::EventSourceMapping"]
    create = handler["create"]
    handler["create"] = lambda name, properties, *rest: create(name, read(properties), *rest)


def _count_invocations(functions: Ministack, cloudwatch: Ministack) -> None:
    """Emit Lambda's metrics where ministack writes a function's log: once an invocation."""
    original = functions._emit_lambda_logs

    def count(name: str, metric: str, value: int) -> None:
        dimensions = {"FunctionName": name}
        cloudwatch.record_metric("AWS/Lambda", metric, value, "Count", dimensions)

    def count_throttle(name: str, *, throttle: bool, **_: Any) -> None:
        if throttle:  # `emit` counts the other invocations
            count(name, "Throttles", 1)

    def emit(
        func: Ministack, request_id: str, text: str, error: bool, *rest: Any, **more: Any
    ) -> None:
        name = str((func.get("config") or func).get("FunctionName"))
        count(name, "Invocations", 1)
        count(name, "Errors", int(bool(error)))
        original(func, request_id, text, error, *rest, **more)

    functions._emit_lambda_logs = emit
    functions._emit_lambda_metrics = count_throttle


def _extend(app: App, events: Ministack) -> App:
    async def extended(scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"] if scope["type"] == "http" else ""
        if path and _is_of_a_page(dict(scope.get("headers", ()))):
            await _respond(send, "rejected: the request comes from a web page", status=403)
        elif path.startswith("/_xorack/events/"):
            first = int(path.rpartition("/")[2])
            await _respond(send, json.dumps(events._events_log_list()[first:]))
        else:
            await app(scope, receive, send)

    return extended


def _is_of_a_page(headers: dict[bytes, bytes]) -> bool:
    # Through DNS rebinding, a page can send a request without Origin, but then Host is the page's
    # own name.
    host = headers.get(b"host", b"localhost").decode("latin-1").partition(":")[0]
    ours = host in ("127.0.0.1", "localhost") or host.endswith(".localhost")
    return not ours or b"origin" in headers or b"sec-fetch-mode" in headers


async def _respond(send: Any, text: str, status: int = 200) -> None:
    body = text.encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def main() -> None:
    (directory,) = sys.argv[1:]
    sys.argv[1:] = []
    _hold_lock(directory)
    threading.Thread(target=_end_with_parent, args=(directory,), daemon=True).start()
    ministack: Ministack = importlib.import_module("ministack.app")
    names = ("sqs", "lambda_svc", "eventbridge", "dynamodb", "cloudwatch")
    modules = (importlib.import_module(f"ministack.services.{name}") for name in names)
    sqs, functions, events, dynamodb, cloudwatch = modules
    provisioners = importlib.import_module("ministack.services.cloudformation.provisioners")
    _correct_batches(sqs, functions)
    _accept_alarms(provisioners, cloudwatch)
    _accept_bus_policies(provisioners, events)
    _refuse_rules_without_bus(provisioners, events)
    _complete_tables(provisioners, dynamodb)
    _read_numbers(provisioners)
    _count_invocations(functions, cloudwatch)
    ministack.app = _extend(ministack.app, events)
    ministack.main()


if __name__ == "__main__":
    main()
