"""The construct in somebody else's stack."""

from __future__ import annotations

from typing import Any

import pytest
from aws_cdk import App, Stack, aws_events_targets, aws_iam, aws_sqs
from aws_cdk.assertions import Template as Assertions

from xorack.cdk.acker import Acker
from xorack.cdk.settings import SettingError, Settings


def rights(template: Assertions, role: str) -> dict[str, Any]:
    """Actions by resource of the one policy that is attached to a role."""
    policies = template.find_resources(
        "AWS::IAM::Policy", {"Properties": {"Roles": [{"Ref": role}]}}
    )
    (policy,) = policies.values()
    (statement,) = policy["Properties"]["PolicyDocument"]["Statement"]
    assert statement["Effect"] == "Allow"
    return {"actions": statement["Action"], "resources": statement["Resource"]}


@pytest.fixture(scope="module")
def mine() -> tuple[Stack, Acker, Assertions]:
    stack = Stack(App(), "Mine")
    acker = Acker(stack, "Acker", settings=Settings(batch_size=7))
    trusted = aws_iam.ServicePrincipal("glue.amazonaws.com")
    acker.grant_send(aws_iam.Role(stack, "Sender", assumed_by=trusted))
    acker.grant_read(aws_iam.Role(stack, "Reader", assumed_by=trusted))
    subscriber = aws_sqs.Queue(stack, "Subscriber")
    acker.events.rule("Done", targets=[aws_events_targets.SqsQueue(subscriber)], statuses=["acked"])
    acker.events.rule("Over", targets=[aws_events_targets.SqsQueue(subscriber)])
    return stack, acker, Assertions.from_stack(stack)


def logical_id(stack: Stack, construct: Any) -> str:
    return str(stack.get_logical_id(construct.node.default_child))


def test_a_sender_may_send_and_nothing_else(mine: tuple[Stack, Acker, Assertions]) -> None:
    stack, acker, template = mine
    queue = logical_id(stack, acker.queue.queue)
    assert rights(template, logical_id(stack, stack.node.find_child("Sender"))) == {
        "actions": "sqs:SendMessage",
        "resources": {"Fn::GetAtt": [queue, "Arn"]},
    }


def test_a_reader_may_read_and_nothing_else(mine: tuple[Stack, Acker, Assertions]) -> None:
    stack, acker, template = mine
    table = {"Fn::GetAtt": [logical_id(stack, acker.table.table), "Arn"]}
    assert rights(template, logical_id(stack, stack.node.find_child("Reader"))) == {
        "actions": [
            "dynamodb:BatchGetItem",
            "dynamodb:DescribeTable",
            "dynamodb:GetItem",
            "dynamodb:Query",
            "dynamodb:Scan",
        ],
        "resources": [table, {"Fn::Join": ["", [table, "/index/due"]]}],
    }


def test_grants_to_others_do_not_widen_the_functions_roles(
    mine: tuple[Stack, Acker, Assertions],
) -> None:
    stack, acker, template = mine
    acker.queue.queue.grant_purge(acker.consumer.function)
    before = template.to_json()
    after = Assertions.from_stack(stack).to_json()
    assert before["Resources"] == after["Resources"]


def test_rules_listen_to_the_statuses_that_are_asked_for(
    mine: tuple[Stack, Acker, Assertions],
) -> None:
    stack, acker, template = mine
    bus = {"Ref": logical_id(stack, acker.events.bus)}
    rules = template.find_resources("AWS::Events::Rule", {"Properties": {"EventBusName": bus}})
    assert sorted(rule["Properties"]["EventPattern"]["detail-type"] for rule in rules.values()) == [
        ["acked"],
        ["acked", "failed"],
    ]
    assert {tuple(rule["Properties"]["EventPattern"]["source"]) for rule in rules.values()} == {
        ("xorack",)
    }


@pytest.mark.parametrize("statuses", [["done"], []])
def test_a_status_that_there_is_not_is_refused(
    mine: tuple[Stack, Acker, Assertions], statuses: list[str]
) -> None:
    with pytest.raises(ValueError, match="expected some of"):
        mine[1].events.rule("Wrong", targets=[], statuses=statuses)


def test_typed_settings_are_checked_without_any_context() -> None:
    with pytest.raises(SettingError, match="setting `batch_size` is 0"):
        Acker(Stack(App(), "Mine"), "Acker", settings=Settings(batch_size=0))


def test_two_ackers_fit_into_one_stack() -> None:
    stack = Stack(App(), "Mine")
    Acker(stack, "First")
    Acker(stack, "Second")
    template = Assertions.from_stack(stack)
    template.resource_count_is("AWS::DynamoDB::Table", 2)
    buses = template.find_resources("AWS::Events::EventBus").values()
    assert len({bus["Properties"]["Name"] for bus in buses}) == 2
