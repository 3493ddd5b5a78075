"""The roles allow what the functions were seen to call, and nothing that they were not."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from botocore.client import BaseClient

from lambda_src import consumer, sweeper, widget
from xorack.aws import dynamodb_store as table
from xorack.cdk.settings import RESERVED_ATTRIBUTES
from xorack.cdk.table import INDEX_NAME, TTL_ATTRIBUTE
from xorack.core.message import pack
from xorack.core.request import Request
from xorack.core.stamp import plain

from .templates import Template
from .test_functions import allowed

Calls = set[tuple[str, str]]


@pytest.fixture
def calls(aws: Any, monkeypatch: pytest.MonkeyPatch) -> Calls:
    """The calls made so far, each as the IAM action and what it was done to."""
    for name, value in aws.environ().items():
        monkeypatch.setenv(name, value)
    made: Calls = set()
    original = BaseClient._make_api_call
    on = {
        ("dynamodb", aws.table_name): "table",
        ("dynamodb", INDEX_NAME): "index",
        ("sqs", aws.dead_letter_queue_url): "dead letters",
        ("events", aws.bus_name): "bus",
    }

    def recorded(client: Any, operation: str, given: dict[str, Any]) -> Any:
        service = client.meta.service_model.service_name
        match given:
            case {"IndexName": name} | {"TableName": name} | {"QueueUrl": name}:
                resources = {name}
            case {"RequestItems": asked}:
                resources = set(asked)
            case {"Entries": entries}:
                resources = {entry["EventBusName"] for entry in entries}
            case _:
                resources = {json.dumps(given, default=str)}
        action = {"SendMessageBatch": "SendMessage"}.get(operation, operation)
        made.update((f"{service}:{action}", on.get((service, name), name)) for name in resources)
        return original(client, operation, given)

    monkeypatch.setattr(BaseClient, "_make_api_call", recorded)
    return made


def rights(template: Template, function: str, service_prefixes: tuple[str, ...]) -> Calls:
    """What a role allows on the same resources, in the same words."""
    table, _ = template.table()
    on = {
        table: "table",
        f"{table}/index/{INDEX_NAME}": "index",
        template.dead_letters()[0]: "dead letters",
        template.bus()[0]: "bus",
    }
    return {
        (action, on[resource])
        for resource, actions in allowed(template, function).items()
        for action in actions
        if resource in on and action.startswith(service_prefixes)
    }


def consume(*requests: Request, bodies: tuple[str, ...] = ()) -> None:
    event = {
        "Records": [
            {"messageId": f"m{i}", "body": body, "eventSource": "aws:sqs", "attributes": {}}
            for i, body in enumerate((*pack(requests), *bodies))
        ]
    }
    assert consumer.handler(event, None) == {"batchItemFailures": []}


def stamps(tag: str, first: int, count: int) -> list[Request]:
    return [
        Request.stamp_(tag, f"r{i}", plain(i + 1), started=1) for i in range(first, first + count)
    ]


def test_consumer(template: Template, calls: Calls) -> None:
    consume(Request.create("many", "r", plain(1 << 40)), *stamps("many", 0, 40))
    consume(*stamps("many", 40, 40))  # more marks than the item keeps: the older ones move out
    consume(*stamps("many", 7, 1))  # and are looked up, one
    consume(*stamps("many", 8, 3))  # or several
    consume(
        Request.create("done", "a", plain(5)), Request.stamp_("done", "b", plain(5), finished=1)
    )
    consume(bodies=("not JSON",))
    assert calls == rights(template, "consumer", ("dynamodb:", "sqs:", "events:"))


def test_sweeper(template: Template, calls: Calls) -> None:
    # Enough for each shard of the index to have several, and one alone besides.
    consume(*(Request.create(f"late{i}", "a", plain(5), timeout=0.01) for i in range(60)))
    time.sleep(0.05)
    calls.clear()
    swept = sweeper.handler({}, None)
    assert swept["ChainsTimedOut"] == 60
    swept_many = set(calls)
    consume(Request.create("alone", "a", plain(5), timeout=0.01))
    time.sleep(0.05)
    calls.clear()
    assert sweeper.handler({}, None)["ChainsTimedOut"] == 1
    assert calls | swept_many == rights(template, "sweeper", ("dynamodb:", "sqs:", "events:"))


def test_widget(template: Template, calls: Calls) -> None:
    consume(*(Request.create(f"open{i}", "a", plain(5)) for i in range(3)))
    calls.clear()
    assert "3 unfinished chains." in widget.handler({}, None)  # several
    consume(*(Request.fail(f"open{i}", "b") for i in range(2)))
    assert "1 unfinished chain." in widget.handler({}, None)  # and one alone
    seen = {call for call in calls if call[0] not in ("dynamodb:UpdateItem", "events:PutEvents")}
    assert seen == rights(template, "widget", ("dynamodb:", "sqs:", "events:"))


def test_the_library_and_the_stack_agree_on_names() -> None:
    assert table.DUE_INDEX == INDEX_NAME
    assert TTL_ATTRIBUTE in table._ATTRIBUTES
    assert table._ATTRIBUTES == RESERVED_ATTRIBUTES
