"""What holds state: the table, the queues, the bus."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .templates import Template, target

Synthesise = Callable[..., Template]


def test_logical_ids_of_what_holds_state_stay(template: Template) -> None:
    # Another id is another resource: CloudFormation would replace it, and what it holds is gone.
    holding = {"AWS::DynamoDB::Table", "AWS::SQS::Queue", "AWS::Events::EventBus"}
    assert {
        name: held["Type"] for name, held in template.resources.items() if held["Type"] in holding
    } == {
        "AckerChainsTable61387BD4": "AWS::DynamoDB::Table",
        "AckerStampsDeadLettersE4652E86": "AWS::SQS::Queue",
        "AckerStampsQueueFC65C606": "AWS::SQS::Queue",
        "AckerEventsBus81E389B8": "AWS::Events::EventBus",
    }


def test_settings_do_not_move_what_holds_state(template: Template, synthesise: Synthesise) -> None:
    other = synthesise(batch_size=10, tracing="true", architecture="x86_64", log_level="DEBUG")
    for kind in ("AWS::DynamoDB::Table", "AWS::SQS::Queue", "AWS::Events::EventBus"):
        assert other.of(kind) == template.of(kind)


def test_nothing_is_named_but_the_bus_which_has_to_be_and_the_dashboard(template: Template) -> None:
    names = {
        (held["Type"], key)
        for held in template.resources.values()
        for key in held["Properties"]
        if key in {
            "TableName", "QueueName", "DashboardName", "LogGroupName", "RoleName", "Name",
            "AlarmName", "ManagedPolicyName",
        } or (key == "FunctionName" and held["Type"] == "AWS::Lambda::Function")
    }  # fmt: skip
    assert names == {
        ("AWS::Events::EventBus", "Name"),
        ("AWS::CloudWatch::Dashboard", "DashboardName"),
    }
    # The CDK makes it of the stack's name, so that two stacks have two.
    assert template.bus()[1]["Name"].startswith("xorackAcker")


def test_two_stacks_have_two_buses(template: Template, synthesise: Synthesise) -> None:
    assert synthesise(stack_name="other").bus()[1]["Name"] != template.bus()[1]["Name"]


@pytest.mark.parametrize("name", ["tag", "file"])
def test_key_of_the_table(synthesise: Synthesise, name: str) -> None:
    _, table = synthesise(partition_key=name).table()
    assert table["KeySchema"] == [{"AttributeName": name, "KeyType": "HASH"}]
    kinds = {kind["AttributeName"]: kind["AttributeType"] for kind in table["AttributeDefinitions"]}
    assert kinds == {name: "S", "due_shard": "N", "due_at": "N"}


def test_table_expires_recovers_and_scales(template: Template) -> None:
    _, table = template.table()
    assert table["TimeToLiveSpecification"] == {"AttributeName": "expires_at", "Enabled": True}
    assert table["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    assert table["BillingMode"] == "PAY_PER_REQUEST"
    assert "ProvisionedThroughput" not in table
    assert "StreamSpecification" not in table


def test_index_of_deadlines_is_sparse_sharded_and_lean(template: Template) -> None:
    _, table = template.table()
    assert table["GlobalSecondaryIndexes"] == [
        {
            "IndexName": "due",
            "KeySchema": [
                {"AttributeName": "due_shard", "KeyType": "HASH"},
                {"AttributeName": "due_at", "KeyType": "RANGE"},
            ],
            "Projection": {"ProjectionType": "KEYS_ONLY"},
        }
    ]


def test_state_is_protected_unless_told_otherwise(
    template: Template, synthesise: Synthesise
) -> None:
    throwaway = synthesise(deletion_protection="false", removal_policy="destroy")
    for made, protected, policy in ((template, True, "Retain"), (throwaway, False, "Delete")):
        assert made.table()[1]["DeletionProtectionEnabled"] is protected
        for kind in ("AWS::DynamoDB::Table", "AWS::SQS::Queue", "AWS::Logs::LogGroup"):
            for held in made.of(kind).values():
                assert held["DeletionPolicy"] == held["UpdateReplacePolicy"] == policy


@pytest.mark.parametrize(
    "settings",
    [{}, {"function_timeout_seconds": "7"}, {"function_timeout_seconds": 900, "batch_size": 10}],
)
def test_visibility_is_at_least_six_times_the_timeout(
    synthesise: Synthesise, settings: dict[str, object]
) -> None:
    made = synthesise(**settings)
    timeout = made.function("consumer")[1]["Timeout"]
    assert timeout == int(settings.get("function_timeout_seconds", 60))
    assert made.queue()[1]["VisibilityTimeout"] >= 6 * timeout


def test_queues_are_encrypted_and_open_to_tls_only(template: Template) -> None:
    queues = template.of("AWS::SQS::Queue")
    refusing = {}
    for policy in template.of("AWS::SQS::QueuePolicy").values():
        (statement,) = policy["Properties"]["PolicyDocument"]["Statement"]
        for queue in policy["Properties"]["Queues"]:
            refusing[target(queue)] = statement
    assert set(refusing) == set(queues)
    for name, queue in queues.items():
        assert queue["Properties"]["SqsManagedSseEnabled"] is True
        assert refusing[name] == {
            "Action": "sqs:*",
            "Effect": "Deny",
            "Principal": {"AWS": "*"},
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
            "Resource": {"Fn::GetAtt": [name, "Arn"]},
        }


@pytest.mark.parametrize(("queue", "dead"), [(4, 14), (1, 2), (13, 14)])
def test_dead_letters_are_kept_longer(synthesise: Synthesise, queue: int, dead: int) -> None:
    made = synthesise(queue_retention_days=queue, dead_letter_retention_days=dead)
    assert made.queue()[1]["MessageRetentionPeriod"] == queue * 86_400
    assert made.dead_letters()[1]["MessageRetentionPeriod"] == dead * 86_400


def test_dead_letters_come_after_the_tries_that_are_set(synthesise: Synthesise) -> None:
    _, queue = synthesise(max_receive_count="3").queue()
    assert queue["RedrivePolicy"]["maxReceiveCount"] == 3
