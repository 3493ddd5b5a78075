"""The construct in a user's stack."""

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

from bench import capacity
from xorack.cdk.acker import Acker
from xorack.cdk.function import Network
from xorack.cdk.settings import Settings

from .templates import FUNCTIONS, Template, target

HERE = Environment(account="111111111111", region="eu-west-1")
THERE = "arn:aws:iam::222222222222:role/loader"
IMPORTED_QUEUE = "arn:aws:sqs:eu-west-1:111111111111:stamps"
READ = {"dynamodb:BatchGetItem", "dynamodb:DescribeTable", "dynamodb:GetItem", "dynamodb:Query",
        "dynamodb:Scan"}  # fmt: skip
TWO_WEEKS = Duration.days(14)


@pytest.fixture
def stack():
    return Stack(App(), "Mine")


@pytest.fixture
def here():
    """A stack whose account and region are known."""
    return Stack(App(), "Mine", env=HERE)


@pytest.fixture(scope="module")
def mine():
    """A stack with an acker, two grants and two rules."""
    stack = Stack(App(), "Mine")
    acker = Acker(stack, "Acker", settings=Settings(batch_size=7))
    trusted = aws_iam.ServicePrincipal("glue.amazonaws.com")
    acker.grant_send(aws_iam.Role(stack, "Sender", assumed_by=trusted))
    acker.grant_read(aws_iam.Role(stack, "Reader", assumed_by=trusted))
    queue = aws_events_targets.SqsQueue(aws_sqs.Queue(stack, "Subscriber"))
    acker.events.rule("Done", targets=[queue], statuses=["acked"])
    acker.events.rule("Over", targets=[queue])
    return stack, acker, Template.of_stack(stack)


def logical_id(construct: Any) -> str:
    return str(Stack.of(construct).get_logical_id(construct.node.default_child))


def supplied(stack: Stack, **properties: Any) -> aws_sqs.Queue:
    return aws_sqs.Queue(
        stack, "Mine", **{"visibility_timeout": Duration.seconds(361), **properties}
    )


def test_a_sender_may_send_a_reader_may_read_and_nothing_else(mine):
    stack, acker, template = mine
    table = logical_id(acker.table)
    sender, reader = (logical_id(stack.node.find_child(name)) for name in ("Sender", "Reader"))
    assert template.granted(sender) == {logical_id(acker.queue): {"sqs:SendMessage"}}
    assert template.granted(reader) == {table: READ, f"{table}/index/due": READ}


def test_grants_to_others_do_not_widen_the_functions_roles(mine):
    stack, acker, template = mine
    acker.queue.grant_purge(acker.consumer)
    assert Template.of_stack(stack).resources == template.resources


def test_rules_match_the_requested_statuses(mine):
    _, acker, template = mine
    patterns = [
        rule["EventPattern"]
        for rule in template.of("AWS::Events::Rule").values()
        if rule.get("EventBusName") == {"Ref": logical_id(acker.events.bus)}
    ]
    assert sorted(pattern["detail-type"] for pattern in patterns) == [
        ["acked"],
        ["acked", "failed"],
    ]
    assert all(pattern["source"] == ["xorack"] for pattern in patterns)


@pytest.mark.parametrize("statuses", [["done"], []])
def test_an_unknown_status_is_rejected(mine, statuses):
    with pytest.raises(ValueError, match="expected some of"):
        mine[1].events.rule("Wrong", targets=[], statuses=statuses)


def test_two_ackers_in_one_stack_share_nothing(stack):
    ackers = [Acker(stack, name) for name in ("First", "Second")]
    template = Template.of_stack(stack)
    assert len(template.of("AWS::DynamoDB::Table")) == 2
    assert len({bus["Name"] for bus in template.of("AWS::Events::EventBus").values()}) == 2
    functions = template.of("AWS::Lambda::Function")
    consumers = [functions[logical_id(acker.consumer)]["Environment"] for acker in ackers]
    services = [one["Variables"]["POWERTOOLS_SERVICE_NAME"] for one in consumers]
    assert services == ["Mine-First", "Mine-Second"]
    dashboards = template.of("AWS::CloudWatch::Dashboard").values()
    assert len({json.dumps(one["DashboardName"]) for one in dashboards}) == 2


# -- user-supplied resources -----------------------------------------------------------------------


def test_a_supplied_queue_comes_with_its_dead_letter_queue(stack):
    dead = aws_sqs.Queue(stack, "Letters", retention_period=TWO_WEEKS)
    named = aws_sqs.DeadLetterQueue(queue=dead, max_receive_count=3)
    queue = supplied(stack, dead_letter_queue=named)
    Acker(stack, "Acker", queue=queue)
    template = Template.of_stack(stack)
    assert len(template.of("AWS::SQS::Queue")) == 2
    assert template.queue()[0] == logical_id(queue)
    url = template.environment("consumer")["DEAD_LETTER_QUEUE_URL"]
    assert url == {"Ref": logical_id(dead)}


def test_imported_resources_are_used_and_grants_name_them(stack):
    bus = "arn:aws:events:eu-west-1:111111111111:event-bus/all"
    acker = Acker(
        stack,
        "Acker",
        queue=aws_sqs.Queue.from_queue_arn(stack, "Stamps", IMPORTED_QUEUE),
        bus=aws_events.EventBus.from_event_bus_arn(stack, "All", bus),
    )
    sender = aws_iam.Role(stack, "Sender", assumed_by=aws_iam.AccountRootPrincipal())
    acker.grant_send(sender)
    template = Template.of_stack(stack)
    # The acker creates a queue for rejected requests.
    assert len(template.of("AWS::SQS::Queue")) == 1
    assert not template.of("AWS::Events::EventBus")
    assert template.granted(logical_id(sender)) == {IMPORTED_QUEUE: {"sqs:SendMessage"}}
    assert {bus, IMPORTED_QUEUE} <= set(template.allowed("consumer"))


def test_only_the_consumer_may_use_the_key_of_a_supplied_queue(stack):
    key = aws_kms.Key(stack, "Key")
    queue = supplied(stack, encryption=aws_sqs.QueueEncryption.KMS, encryption_master_key=key)
    Acker(stack, "Acker", queue=queue)
    template = Template.of_stack(stack)
    rights = {name: template.allowed(name).get(logical_id(key)) for name in FUNCTIONS}
    assert rights == {
        "consumer": {"kms:Decrypt", "kms:DescribeKey"},
        "sweeper": None,
        "widget": None,
    }


def test_an_imported_key_encrypts_the_logs_and_keeps_its_policy(stack):
    arn = "arn:aws:kms:eu-west-1:123456789012:key/1234"
    Acker(stack, "Acker", encryption_key=aws_kms.Key.from_key_arn(stack, "Key", arn))
    template = Template.of_stack(stack)
    assert not template.of("AWS::KMS::Key")
    groups = template.of("AWS::Logs::LogGroup").values()
    assert [group["KmsKeyId"] for group in groups] == [arn] * 3


@pytest.mark.parametrize("name", ["here", "stack"])
def test_functions_call_a_bus_of_another_account_by_its_arn(request, name):
    # EventBridge looks for a bare name in this account.
    stack = request.getfixturevalue(name)
    arn = "arn:aws:events:eu-west-1:222222222222:event-bus/all"
    bus = aws_events.EventBus.from_event_bus_arn(stack, "All", arn)
    acker = Acker(stack, "Acker", bus=bus)
    template = Template.of_stack(stack)
    buses = {template.environment(name)["EVENT_BUS_NAME"] for name in ("consumer", "sweeper")}
    assert buses == {arn}
    if name == "here":
        with pytest.raises(ValueError, match="rule: Mine/All is a bus of account 222222222222"):
            acker.events.rule("Done", targets=[])


def test_functions_call_a_bus_of_this_account_by_its_name(here):
    Acker(here, "Acker", bus=aws_events.EventBus.from_event_bus_name(here, "All", "all"))
    template = Template.of_stack(here)
    buses = {template.environment(name)["EVENT_BUS_NAME"] for name in ("consumer", "sweeper")}
    assert buses == {"all"}


def test_the_queue_and_the_key_allow_senders_from_elsewhere(here):
    key = aws_kms.Key(here, "Key")
    acker = Acker(here, "Acker", encryption_key=key)
    acker.grant_send(aws_iam.Role.from_role_arn(here, "Loader", THERE))
    acker.grant_send(aws_iam.ServicePrincipal("scheduler.amazonaws.com"))
    template = Template.of_stack(here)
    principals = [{"AWS": THERE}, {"Service": "scheduler.amazonaws.com"}]
    policies = {
        target(policy["Queues"][0]): policy["PolicyDocument"]["Statement"]
        for policy in template.of("AWS::SQS::QueuePolicy").values()
    }
    allowed = [one for one in policies[logical_id(acker.queue)] if one["Effect"] == "Allow"]
    assert [(one["Action"], one["Principal"]) for one in allowed] == [
        ("sqs:SendMessage", principal) for principal in principals
    ]
    (properties,) = template.of("AWS::KMS::Key").values()
    statements = properties["KeyPolicy"]["Statement"]
    for principal in principals:
        (statement,) = (one for one in statements if one["Principal"] == principal)
        assert statement["Action"] == ["kms:Decrypt", "kms:GenerateDataKey"]


# -- user errors -----------------------------------------------------------------------------------


def test_a_grant_without_effect_is_rejected(here):
    there = aws_iam.Role.from_role_arn(here, "There", THERE)
    service = aws_iam.ServicePrincipal("scheduler.amazonaws.com")
    imported = aws_sqs.Queue.from_queue_arn(here, "Q", IMPORTED_QUEUE)
    acker = Acker(here, "Acker", queue=imported)
    for grantee, name in ((there, "Mine/There"), (service, "scheduler.amazonaws.com")):
        line = f"grant_send: the policy of Mine/Q cannot be changed.* allow {name} itself"
        with pytest.raises(ValueError, match=line):
            acker.grant_send(grantee)
        line = re.escape(f"grant_read: {name}") + ".* expected a role, user or group of"
        with pytest.raises(ValueError, match=line):
            acker.grant_read(grantee)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"settings": {"batch_size": 5}}, "settings is {'batch_size': 5}: expected a Settings"),
        ({"queue": "https://q"}, "queue is 'https://q': expected an IQueue"),
        ({"dead_letters": "arn"}, "dead_letters is 'arn': expected an IQueue"),
        ({"bus": "all"}, "bus is 'all': expected an IEventBus"),
        ({"encryption_key": "alias/x"}, "encryption_key is 'alias/x': expected an IKey"),
        ({"alarm_topic": "arn"}, "alarm_topic is 'arn': expected an ITopic"),
        ({"network": "vpc-1"}, "network is 'vpc-1': expected a Network"),
        ({"topic": None}, "Acker has no argument 'topic'"),
    ],
)
def test_an_argument_of_the_wrong_kind_is_named(stack, arguments, line):
    with pytest.raises(TypeError, match=re.escape(line)):
        Acker(stack, "Acker", **arguments)


@pytest.mark.parametrize("grant", ["grant_send", "grant_read"])
@pytest.mark.parametrize("grantee", [None, THERE])
def test_an_invalid_grantee_is_named(mine, grant, grantee):
    line = re.escape(f"grantee is {grantee!r}: expected an IGrantable, such as a role")
    with pytest.raises(TypeError, match=line):
        getattr(mine[1], grant)(grantee)


def test_a_vpc_alone_is_not_a_network(stack):
    with pytest.raises(TypeError, match="vpc is 'vpc-1': expected an IVpc"):
        Network(vpc="vpc-1")  # type: ignore[arg-type]
    vpc = aws_ec2.Vpc(stack, "Vpc")
    with pytest.raises(TypeError, match=r"network is .*: expected a Network"):
        Acker(stack, "Acker", network=vpc)  # type: ignore[arg-type]


def test_resources_in_another_region_are_rejected(here):
    arn = "arn:aws:{}:us-east-1:111111111111:{}"
    resources = {
        "queue": aws_sqs.Queue.from_queue_arn(here, "Q", arn.format("sqs", "q")),
        "dead_letters": aws_sqs.Queue.from_queue_arn(here, "D", arn.format("sqs", "d")),
        "bus": aws_events.EventBus.from_event_bus_arn(
            here, "B", arn.format("events", "event-bus/b")
        ),
        "encryption_key": aws_kms.Key.from_key_arn(here, "K", arn.format("kms", "key/k")),
        "alarm_topic": aws_sns.Topic.from_topic_arn(here, "T", arn.format("sns", "t")),
    }
    for name, resource in resources.items():
        line = f"{name}: .* is in us-east-1, expected eu-west-1"
        with pytest.raises(ValueError, match=line):
            Acker(here, f"With-{name}", **{name: resource})  # type: ignore[misc]


def test_an_alias_is_rejected_as_a_key(stack):
    # A statement on an alias allows nothing: the functions would be denied their calls.
    alias = aws_kms.Alias.from_alias_name(stack, "Alias", "alias/mine")
    queue = supplied(stack, encryption_master_key=alias)
    for name, value in (("encryption_key", alias), ("queue", queue)):
        with pytest.raises(ValueError, match=f"{name}: Mine/Alias is an alias, expected its key"):
            Acker(stack, f"With-{name}", **{name: value})  # type: ignore[misc]


@pytest.mark.parametrize(
    ("properties", "line"),
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
        ({"retention_period": Duration.days(10)}, "come back for 2073600 seconds, expected less"),
    ],
)
def test_a_queue_that_cannot_work_is_rejected(stack, properties, line):
    queue = supplied(stack, **properties)
    with pytest.raises(ValueError, match=line):
        Acker(stack, "Acker", queue=queue, settings=Settings(retention_days=19))


def test_a_queue_is_not_its_own_dead_letter_queue(stack):
    # Rejected requests would come back for ever.
    queue = supplied(stack)
    with pytest.raises(ValueError, match="dead_letters: Mine/Mine is the queue itself"):
        Acker(stack, "Acker", queue=queue, dead_letters=queue)
    one, same = (
        aws_sqs.Queue.from_queue_arn(stack, name, IMPORTED_QUEUE) for name in ("One", "Same")
    )
    with pytest.raises(ValueError, match="dead_letters: Mine/Same is the queue itself"):
        Acker(stack, "Imported", queue=one, dead_letters=same)


def test_a_dead_letter_queue_that_the_queue_does_not_use_is_rejected(stack):
    # Alarms and `xorack redrive` would look at one queue, while SQS moves messages to another.
    used, other = (
        aws_sqs.Queue(stack, name, retention_period=TWO_WEEKS) for name in ("Used", "Other")
    )
    named = aws_sqs.DeadLetterQueue(queue=used, max_receive_count=3)
    queue = supplied(stack, dead_letter_queue=named)
    line = "dead_letters: got Mine/Other, but Mine/Mine uses Mine/Used"
    with pytest.raises(ValueError, match=line):
        Acker(stack, "Acker", queue=queue, dead_letters=other)
    Acker(stack, "Fitting", queue=queue, dead_letters=used)


def test_dead_letters_that_expire_too_early_are_rejected(stack):
    dead = aws_sqs.Queue(stack, "Letters")
    line = r"dead_letters: .* 345600 seconds, expected more than the"
    with pytest.raises(ValueError, match=line):
        Acker(stack, "Acker", dead_letters=dead)


def test_a_queue_without_dead_letters_gives_a_warning(stack):
    warnings = {}
    for name, queue in (("Supplied", supplied(stack)), ("Own", None)):
        acker = Acker(stack, name, queue=queue)
        warnings[name] = acker.node.find_child("Stamps").node.metadata
    (warning,) = warnings["Supplied"]
    assert warning.type == "aws:cdk:warning"
    assert warning.data.startswith("Mine/Mine has no dead-letter queue")
    assert not warnings["Own"]


def test_the_model_of_cost_counts_the_alarms(mine):
    _, _, template = mine
    # AWS charges for each metric of an alarm.
    metrics = [
        sum("MetricStat" in one for one in alarm.get("Metrics", [{"MetricStat": 1}]))
        for alarm in template.of("AWS::CloudWatch::Alarm").values()
    ]
    assert sum(metrics) == capacity.ALARMS
    assert len(template.of("AWS::CloudWatch::Dashboard")) == 1
