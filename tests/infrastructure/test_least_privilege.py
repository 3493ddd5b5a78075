"""The roles allow the calls that the functions make, and no others."""

import json
import time
from typing import Any

import pytest
from aws_cdk import App, Stack, aws_iam
from botocore.client import BaseClient

from lambda_src import sweeper
from xorack.aws.schema import DUE_INDEX
from xorack.aws.stack import open_table
from xorack.cdk.acker import Acker
from xorack.core.request import Request
from xorack.core.stamp import plain
from xorack.ops.browse import nearest_deadlines
from xorack.ops.changes import change_chain, unfinished_tags
from xorack.ops.run_chains import RunChains
from xorack.ops.status import read_status

from .conftest import consume
from .templates import Template

Calls = set[tuple[str, str]]


@pytest.fixture
def calls(deployed, template, monkeypatch):
    """The calls made so far: the IAM action and the logical id of its resource."""
    recorded: Calls = set()
    original = BaseClient._make_api_call
    table, _ = template.table()
    names = {
        ("dynamodb", deployed.table_name): table,
        ("dynamodb", DUE_INDEX): f"{table}/index/{DUE_INDEX}",
        ("sqs", deployed.dead_letter_queue_url): template.dead_letters()[0],
        ("events", deployed.bus_name): template.bus()[0],
    }

    def record(client: Any, operation: str, parameters: dict[str, Any]) -> Any:
        service = client.meta.service_model.service_name
        match parameters:
            case {"IndexName": name} | {"TableName": name} | {"QueueUrl": name}:
                resources = {name}
            case {"RequestItems": items}:
                resources = set(items)
            case {"Name": name} if operation == "DescribeEventBus":
                resources = {name}
            case {"Entries": entries}:
                resources = {entry["EventBusName"] for entry in entries}
            case _:
                resources = {json.dumps(parameters, default=str)}
        action = {"SendMessageBatch": "SendMessage"}.get(operation, operation)
        for name in resources:
            recorded.add((f"{service}:{action}", names.get((service, name), name)))
        return original(client, operation, parameters)

    monkeypatch.setattr(BaseClient, "_make_api_call", record)
    return recorded


def rights(template: Template, function: str) -> Calls:
    """The calls that a role allows, except those that Lambda makes."""
    by_lambda = (template.queue()[0], template.log_group(function))
    allowed = template.allowed(function).items()
    return {(name, on) for on, names in allowed if on not in by_lambda for name in names}


def stamps(tag: str, first: int, count: int) -> list[Request]:
    numbers = range(first, first + count)
    return [Request.stamp_(tag, f"r{i}", plain(i + 1), started=1) for i in numbers]


def test_consumer(template, calls):
    consume(Request.create("many", "r", plain(1 << 40)), *stamps("many", 0, 40))
    consume(*stamps("many", 40, 40))  # more marks than fit the item: the oldest are spilled
    consume(*stamps("many", 7, 1))  # reads one spilled mark
    consume(*stamps("many", 8, 1), *stamps("other", 0, 1))  # reads several chains
    end = Request.stamp_("done", "b", plain(5), finished=1)
    consume(Request.create("done", "a", plain(5)), end, bodies=("not JSON",))
    assert calls == rights(template, "consumer")


def test_sweeper(template, calls):
    sweeps: Calls = set()
    # Of 20 chains, some shard of the index has several.
    for chains in (20, 1):
        tags = (f"{chains}-{i}" for i in range(chains))
        consume(*(Request.create(tag, "a", plain(5), timeout=0.01) for tag in tags))
        time.sleep(0.05)
        calls.clear()
        assert sweeper.handler({}, None)["ChainsTimedOut"] == chains
        sweeps |= calls
    assert sweeps == rights(template, "sweeper")


@pytest.mark.parametrize("function", ["consumer", "sweeper"])
def test_the_check_of_an_adopted_table(template, adopted, calls, monkeypatch, function):
    monkeypatch.setenv("CHECK_TABLE", "true")
    if function == "consumer":
        consume(Request.create("t", "r", plain(1)))
    else:
        sweeper.handler({}, None)
    table, _ = template.table()
    check = {(f"dynamodb:{name}", table) for name in ("DescribeTable", "DescribeTimeToLive")}
    assert check <= calls
    more, own = (set().union(*one.allowed(function).values()) for one in (adopted, template))
    assert more == own | {name for name, _ in check}


def test_readers_name_all_attributes_but_the_token_and_writers_keep_it(deployed, monkeypatch):
    stack = Stack(App(), "Mine")
    role = aws_iam.Role(stack, "Reader", assumed_by=aws_iam.AccountRootPrincipal())
    Acker(stack, "Acker").grant_read(role)
    policy = Template.of_stack(stack).one("AWS::IAM::Policy")[1]["PolicyDocument"]["Statement"]
    (limits,) = (one["Condition"] for one in policy if "dynamodb:Scan" in one["Action"])
    allowed = limits["ForAllValues:StringEquals"]["dynamodb:Attributes"]
    assert limits["Null"] == {"dynamodb:Attributes": "false"}  # a read of all is denied
    monkeypatch.setenv("RESUME", "step_functions")
    resume = {"step_functions": "secret-token"}
    for tag in ("a", "b"):
        consume(Request.create(tag, "r", plain(1), resume=resume))
    read: list[set[str]] = []
    original = BaseClient._make_api_call

    def record(client: Any, operation: str, parameters: dict[str, Any]) -> Any:
        answer = original(client, operation, parameters)
        if operation in ("GetItem", "BatchGetItem", "Scan"):
            (named,) = parameters.get("RequestItems", {"": parameters}).values()
            names = named["ExpressionAttributeNames"]
            assert set(named["ProjectionExpression"].split(", ")) <= names.keys()
            read.append(set(names.values()))
            assert "secret-token" not in str(answer)
        return answer

    with monkeypatch.context() as patched:
        patched.setattr(BaseClient, "_make_api_call", record)
        store = open_table(deployed.table_name, deployed.client("dynamodb"))
        assert read_status(store, "a").chain.status == "open"
        assert store.status("a") == "open"
        assert len(store.read(["a", "b"])) == len([*store.scan()]) == 2
        assert len(nearest_deadlines(store, 9, pytest.fail)) == 2
        assert unfinished_tags(store, RunChains("none"), pytest.fail) == []
    assert all(names <= {*allowed} for names in read)
    assert read[0] == {*allowed}
    # A change of a chain reads the whole item, so a task that waits is resumed.
    change_chain(store, Request.fail("a", "f", "stop"))
    assert deployed.item("a")["resume_pending"] == {"N": "1"}
    assert "secret-token" in deployed.item("a")["resume"]["S"]
