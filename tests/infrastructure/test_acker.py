"""The construct in somebody else's stack."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from aws_cdk import (
    App,
    Duration,
    Environment,
    Stack,
    aws_ec2,
    aws_events,
    aws_events_targets,
    aws_iam,
    aws_kms,
    aws_sns,
    aws_sqs,
)
from aws_cdk.assertions import Template as Assertions

from bench import capacity
from xorack.cdk.acker import Acker
from xorack.cdk.function import Network
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


# -- what is brought -------------------------------------------------------------------------------


def brought(stack: Stack, **properties: Any) -> aws_sqs.Queue:
    given = {"visibility_timeout": Duration.seconds(361), **properties}
    return aws_sqs.Queue(stack, "Mine", **given)


def test_a_queue_that_is_brought_is_used_with_the_dead_letters_that_it_names() -> None:
    stack = Stack(App(), "Mine")
    letters = aws_sqs.Queue(stack, "Letters", retention_period=Duration.days(14))
    queue = brought(
        stack, dead_letter_queue=aws_sqs.DeadLetterQueue(queue=letters, max_receive_count=3)
    )
    acker = Acker(stack, "Acker", queue=queue)
    template = Assertions.from_stack(stack)
    template.resource_count_is("AWS::SQS::Queue", 2)
    (mapping,) = template.find_resources("AWS::Lambda::EventSourceMapping").values()
    ids = {name: logical_id(stack, held) for name, held in (("q", queue), ("l", letters))}
    assert mapping["Properties"]["EventSourceArn"] == {"Fn::GetAtt": [ids["q"], "Arn"]}
    consumer = template.to_json()["Resources"][logical_id(stack, acker.consumer.function)]
    url = consumer["Properties"]["Environment"]["Variables"]["DEAD_LETTER_QUEUE_URL"]
    assert url == {"Ref": ids["l"]}


def test_what_is_imported_is_used_as_it_is_and_grants_name_it() -> None:
    stack = Stack(App(), "Mine")
    arn = "arn:aws:sqs:eu-west-1:123456789012:stamps"
    bus = "arn:aws:events:eu-west-1:123456789012:event-bus/all"
    acker = Acker(
        stack,
        "Acker",
        queue=aws_sqs.Queue.from_queue_arn(stack, "Stamps", arn),
        bus=aws_events.EventBus.from_event_bus_arn(stack, "All", bus),
    )
    sender = aws_iam.Role(stack, "Sender", assumed_by=aws_iam.AccountRootPrincipal())
    acker.grant_send(sender)
    template = Assertions.from_stack(stack)
    # The refused have to go somewhere: a queue of its own.
    template.resource_count_is("AWS::SQS::Queue", 1)
    template.resource_count_is("AWS::Events::EventBus", 0)
    assert rights(template, logical_id(stack, sender)) == {
        "actions": "sqs:SendMessage",
        "resources": arn,
    }
    allowed = json.dumps(template.find_resources("AWS::IAM::Role"))
    assert bus in allowed
    assert arn in allowed


def test_the_key_of_a_queue_that_is_brought_goes_with_its_rights() -> None:
    stack = Stack(App(), "Mine")
    key = aws_kms.Key(stack, "Key")
    queue = brought(stack, encryption=aws_sqs.QueueEncryption.KMS, encryption_master_key=key)
    acker = Acker(stack, "Acker", queue=queue, settings=Settings(dashboard=False))
    role = acker.consumer.function.role
    assert role is not None
    resources = Assertions.from_stack(stack).to_json()["Resources"]
    statements = [
        statement
        for held in resources.values()
        if held["Type"] == "AWS::IAM::Role"
        for policy in held["Properties"]["Policies"]
        for statement in policy["PolicyDocument"]["Statement"]
        if statement["Resource"] == {"Fn::GetAtt": [logical_id(stack, key), "Arn"]}
    ]
    # The consumer alone reads it.
    assert [statement["Action"] for statement in statements] == [["kms:Decrypt", "kms:DescribeKey"]]


def test_an_imported_key_encrypts_the_logs_too_and_its_policy_is_left_alone() -> None:
    stack = Stack(App(), "Mine")
    arn = "arn:aws:kms:eu-west-1:123456789012:key/1234"
    Acker(stack, "Acker", encryption_key=aws_kms.Key.from_key_arn(stack, "Key", arn))
    template = Assertions.from_stack(stack)
    template.resource_count_is("AWS::KMS::Key", 0)
    groups = template.find_resources("AWS::Logs::LogGroup").values()
    assert [group["Properties"]["KmsKeyId"] for group in groups] == [arn] * 3


def test_without_a_key_logs_have_cloudwatchs(mine: tuple[Stack, Acker, Assertions]) -> None:
    groups = mine[2].find_resources("AWS::Logs::LogGroup").values()
    assert len(groups) == 3
    assert not any("KmsKeyId" in group["Properties"] for group in groups)


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"fifo": True}, "queue: Mine/Mine is a FIFO queue, expected a standard one"),
        (
            {"visibility_timeout": None},
            "the visibility timeout of Mine/Mine is 30 seconds, expected at least 361",
        ),
        (
            {"visibility_timeout": Duration.seconds(60)},
            "the visibility timeout of Mine/Mine is 60 seconds, expected at least 361",
        ),
    ],
)
def test_a_queue_that_cannot_work_is_refused(properties: dict[str, Any], text: str) -> None:
    stack = Stack(App(), "Mine")
    with pytest.raises(ValueError, match=text):
        Acker(stack, "Acker", queue=brought(stack, **properties))


def test_messages_that_outlive_finished_chains_are_refused() -> None:
    stack = Stack(App(), "Mine")
    queue = brought(stack, retention_period=Duration.days(10))
    settings = Settings(retention_days=19)
    with pytest.raises(ValueError, match="come back for 2073600 seconds, expected less than"):
        Acker(stack, "Acker", queue=queue, settings=settings)


def test_a_topic_of_the_same_app_is_told_of_alarms() -> None:
    stack = Stack(App(), "Mine")
    topic = aws_sns.Topic(stack, "OnCall")
    Acker(stack, "Acker", alarm_topic=topic)
    alarms = Assertions.from_stack(stack).find_resources("AWS::CloudWatch::Alarm").values()
    assert len(alarms) >= 10
    for alarm in alarms:
        assert alarm["Properties"]["AlarmActions"] == [{"Ref": logical_id(stack, topic)}]


def test_two_ackers_of_one_stack_are_told_apart_by_their_metrics() -> None:
    stack = Stack(App(), "Mine")
    services = {Acker(stack, name).settings.service_name for name in ("First", "Second")}
    assert services == {"Mine-First", "Mine-Second"}
    resources = Assertions.from_stack(stack).find_resources("AWS::CloudWatch::Dashboard").values()
    assert len({json.dumps(held["Properties"]["DashboardName"]) for held in resources}) == 2


# -- what others bring, and what they mistake ------------------------------------------------------

HERE = Environment(account="111111111111", region="eu-west-1")
THERE = "arn:aws:iam::222222222222:role/loader"


def functions_environments(stack: Stack) -> list[dict[str, Any]]:
    functions = Assertions.from_stack(stack).find_resources("AWS::Lambda::Function").values()
    return [held["Properties"]["Environment"]["Variables"] for held in functions]


@pytest.mark.parametrize("env", [HERE, None])
def test_a_bus_of_another_account_is_called_by_its_arn(env: Environment | None) -> None:
    # By its name alone, EventBridge would look for it in this account.
    stack = Stack(App(), "Mine", env=env)
    arn = "arn:aws:events:eu-west-1:222222222222:event-bus/all"
    bus = aws_events.EventBus.from_event_bus_arn(stack, "All", arn)
    acker = Acker(stack, "Acker", bus=bus)
    named = [held.get("EVENT_BUS_NAME") for held in functions_environments(stack)]
    assert sorted(filter(None, named)) == [arn, arn]
    if env is not None:
        with pytest.raises(ValueError, match="rule: Mine/All is a bus of account 222222222222"):
            acker.events.rule("Done", targets=[])


def test_a_bus_of_this_account_is_called_by_its_name() -> None:
    stack = Stack(App(), "Mine", env=HERE)
    Acker(stack, "Acker", bus=aws_events.EventBus.from_event_bus_name(stack, "All", "all"))
    named = [held.get("EVENT_BUS_NAME") for held in functions_environments(stack)]
    assert sorted(filter(None, named)) == ["all", "all"]


def policy_of(stack: Stack, queue: aws_sqs.IQueue) -> list[dict[str, Any]]:
    """What a queue's own policy allows."""
    mine = {"Ref": logical_id(stack, queue)}
    policies = Assertions.from_stack(stack).find_resources("AWS::SQS::QueuePolicy").values()
    return [
        statement
        for held in policies
        if held["Properties"]["Queues"] == [mine]
        for statement in held["Properties"]["PolicyDocument"]["Statement"]
        if statement["Effect"] == "Allow"
    ]


def test_a_sender_of_another_account_is_let_in_by_the_queue_and_the_key() -> None:
    stack = Stack(App(), "Mine", env=HERE)
    key = aws_kms.Key(stack, "Key")
    acker = Acker(stack, "Acker", encryption_key=key)
    acker.grant_send(aws_iam.Role.from_role_arn(stack, "Loader", THERE))
    (statement,) = policy_of(stack, acker.queue.queue)
    assert statement["Action"] == "sqs:SendMessage"
    assert statement["Principal"] == {"AWS": THERE}
    (held,) = Assertions.from_stack(stack).find_resources("AWS::KMS::Key").values()
    allowed = held["Properties"]["KeyPolicy"]["Statement"]
    assert [one["Action"] for one in allowed if one["Principal"] == {"AWS": THERE}] == [
        ["kms:Decrypt", "kms:GenerateDataKey"]
    ]


def test_a_service_that_sends_is_let_in_by_the_queue() -> None:
    stack = Stack(App(), "Mine", env=HERE)
    acker = Acker(stack, "Acker")
    acker.grant_send(aws_iam.ServicePrincipal("scheduler.amazonaws.com"))
    (statement,) = policy_of(stack, acker.queue.queue)
    assert statement["Principal"] == {"Service": "scheduler.amazonaws.com"}


def test_a_right_that_cannot_be_given_is_not_silently_left_out() -> None:
    stack = Stack(App(), "Mine", env=HERE)
    there = aws_iam.Role.from_role_arn(stack, "There", THERE)
    mine = Acker(stack, "Acker")
    theirs = Acker(
        stack,
        "Theirs",
        queue=aws_sqs.Queue.from_queue_arn(stack, "Q", "arn:aws:sqs:eu-west-1:111111111111:q"),
    )
    with pytest.raises(ValueError, match=r"grant_send: the policy of .*Mine/Q cannot be changed"):
        theirs.grant_send(there)
    service = aws_iam.ServicePrincipal("scheduler.amazonaws.com")
    for grantee, name in ((there, "Mine/There"), (service, "scheduler.amazonaws.com")):
        line = re.escape(f"grant_read: {name}") + ".* expected a role, user or group of"
        with pytest.raises(ValueError, match=line):
            mine.grant_read(grantee)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"settings": {"batch_size": 5}}, "settings is {'batch_size': 5}: expected a Settings"),
        ({"queue": "https://q"}, "queue is 'https://q': expected an IQueue"),
        ({"dead_letters": "arn"}, "dead_letters is 'arn': expected an IQueue"),
        ({"bus": "all"}, "bus is 'all': expected an IEventBus"),
        ({"encryption_key": "alias/x"}, "encryption_key is 'alias/x': expected an IKey"),
        ({"alarm_topic": "arn"}, "alarm_topic is 'arn': expected an ITopic"),
        ({"network": "vpc-1"}, "network is 'vpc-1': expected a Network"),
    ],
)
def test_what_is_of_the_wrong_kind_is_named(given: dict[str, Any], line: str) -> None:
    with pytest.raises(TypeError, match=re.escape(line)):
        Acker(Stack(App(), "Mine"), "Acker", **given)


@pytest.mark.parametrize("grant", ["grant_send", "grant_read"])
@pytest.mark.parametrize("grantee", [None, THERE])
def test_a_grantee_that_is_none_is_named(
    mine: tuple[Stack, Acker, Assertions], grant: str, grantee: Any
) -> None:
    line = re.escape(f"grantee is {grantee!r}: expected an IGrantable, such as a role")
    with pytest.raises(TypeError, match=line):
        getattr(mine[1], grant)(grantee)


def test_a_vpc_alone_is_no_network() -> None:
    stack = Stack(App(), "Mine")
    with pytest.raises(TypeError, match="vpc is 'vpc-1': expected an IVpc"):
        Network(vpc="vpc-1")  # type: ignore[arg-type]
    vpc = aws_ec2.Vpc(stack, "Vpc")
    with pytest.raises(TypeError, match=r"network is .*: expected a Network"):
        Acker(stack, "Acker", network=vpc)  # type: ignore[arg-type]


def test_what_is_in_another_region_is_refused() -> None:
    stack = Stack(App(), "Mine", env=HERE)
    other = "us-east-1:111111111111"
    given = {
        "queue": aws_sqs.Queue.from_queue_arn(stack, "Q", f"arn:aws:sqs:{other}:q"),
        "dead_letters": aws_sqs.Queue.from_queue_arn(stack, "D", f"arn:aws:sqs:{other}:d"),
        "bus": aws_events.EventBus.from_event_bus_arn(
            stack, "B", f"arn:aws:events:{other}:event-bus/b"
        ),
        "encryption_key": aws_kms.Key.from_key_arn(stack, "K", f"arn:aws:kms:{other}:key/k"),
        "alarm_topic": aws_sns.Topic.from_topic_arn(stack, "T", f"arn:aws:sns:{other}:t"),
    }
    for name, held in given.items():
        line = f"{name}: .* is in us-east-1, expected eu-west-1"
        with pytest.raises(ValueError, match=line):
            Acker(stack, f"With-{name}", **{name: held})  # type: ignore[arg-type]


def test_an_alias_is_no_key_for_roles() -> None:
    # A statement on an alias allows nothing: the functions would be denied when they run.
    stack = Stack(App(), "Mine")
    alias = aws_kms.Alias.from_alias_name(stack, "Alias", "alias/mine")
    with pytest.raises(
        ValueError, match="encryption_key: Mine/Alias is an alias, expected the key"
    ):
        Acker(stack, "Acker", encryption_key=alias)
    queue = brought(stack, encryption_master_key=alias)
    with pytest.raises(ValueError, match="queue: Mine/Alias is an alias, expected the key"):
        Acker(stack, "Other", queue=queue)


def test_a_queue_is_not_its_own_dead_letters() -> None:
    # What is refused would come back, and be refused, for ever.
    stack = Stack(App(), "Mine")
    queue = brought(stack)
    with pytest.raises(ValueError, match="dead_letters: Mine/Mine is the queue itself"):
        Acker(stack, "Acker", queue=queue, dead_letters=queue)
    arn = "arn:aws:sqs:eu-west-1:111111111111:q"
    one, same = (aws_sqs.Queue.from_queue_arn(stack, name, arn) for name in ("One", "Same"))
    with pytest.raises(ValueError, match="dead_letters: Mine/Same is the queue itself"):
        Acker(stack, "Imported", queue=one, dead_letters=same)


def test_dead_letters_that_the_queue_does_not_use_are_refused() -> None:
    # Alarms and `xorack redrive` would look at one queue, while SQS moves messages to another.
    stack = Stack(App(), "Mine")
    used, other = (
        aws_sqs.Queue(stack, name, retention_period=Duration.days(14)) for name in ("Used", "Other")
    )
    queue = brought(
        stack, dead_letter_queue=aws_sqs.DeadLetterQueue(queue=used, max_receive_count=3)
    )
    with pytest.raises(ValueError, match=r"dead_letters: Mine/Other .* Mine/Mine are Mine/Used"):
        Acker(stack, "Acker", queue=queue, dead_letters=other)
    Acker(stack, "Fitting", queue=queue, dead_letters=used)


def test_dead_letters_that_go_as_soon_as_they_come_are_refused() -> None:
    stack = Stack(App(), "Mine")
    letters = aws_sqs.Queue(stack, "Letters")
    with pytest.raises(
        ValueError, match=r"dead_letters: .* 345600 seconds, expected more than the"
    ):
        Acker(stack, "Acker", dead_letters=letters)


def test_a_queue_without_dead_letters_is_warned_of() -> None:
    stack = Stack(App(), "Mine")
    acker = Acker(stack, "Acker", queue=brought(stack))
    (said,) = acker.queue.node.metadata
    assert said.type == "aws:cdk:warning"
    assert said.data.startswith("Mine/Mine has no dead-letter queue")
    assert not Acker(stack, "Own").queue.node.metadata


def test_the_model_of_cost_counts_the_alarms_that_there_are(
    mine: tuple[Stack, Acker, Assertions],
) -> None:
    alarms = mine[2].find_resources("AWS::CloudWatch::Alarm").values()
    # An alarm is paid for by the metrics that it looks at.
    looked_at = [
        sum("MetricStat" in one for one in held["Properties"].get("Metrics", [{"MetricStat": 1}]))
        for held in alarms
    ]
    assert sum(looked_at) == capacity.ALARMS
    mine[2].resource_count_is("AWS::CloudWatch::Dashboard", 1)
