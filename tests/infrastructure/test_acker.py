"""The construct in a user's stack."""

import json
import re
from typing import Any

import jsii
import pytest
from aws_cdk import (
    App,
    Aspects,
    Duration,
    IAspect,
    Stack,
    aws_events,
    aws_iam,
    aws_kms,
    aws_lambda,
    aws_sns,
    aws_sqs,
    aws_stepfunctions,
)
from aws_cdk.aws_events_targets import LambdaFunction, SfnStateMachine, SqsQueue

from infra.synth import ROOT
from xorack.cdk.acker import Acker
from xorack.cdk.grants import IAcker
from xorack.cdk.settings import Settings

from .templates import FUNCTIONS, HERE, Template

THERE = "arn:aws:iam::222222222222:role/loader"
OUR_QUEUE = "arn:aws:sqs:eu-west-1:111111111111:stamps"
OUR_BUS = "arn:aws:events:eu-west-1:111111111111:event-bus/all"
THEIR_BUS = "arn:aws:events:eu-west-1:222222222222:event-bus/all"
READ = {f"dynamodb:{name}" for name in ("BatchGetItem", "DescribeTable", "GetItem", "Scan")}


@pytest.fixture(scope="module")
def mine():
    """A stack with an acker, two grants and two rules."""
    stack = Stack(App(), "Mine")
    acker = Acker(stack, "Acker", settings=Settings(batch_size=7))
    trusted = aws_iam.ServicePrincipal("glue.amazonaws.com")
    acker.grant_send(aws_iam.Role(stack, "Sender", assumed_by=trusted))
    acker.grant_read(aws_iam.Role(stack, "Reader", assumed_by=trusted))
    acker.events.rule("Done", targets=[], statuses=["acked"])
    acker.events.rule("Over", targets=[])
    return stack, acker, Template.of_stack(stack)


def logical_id(construct: Any) -> str:
    return str(Stack.of(construct).get_logical_id(construct.node.default_child))


def supplied(stack: Stack, **properties: Any) -> aws_sqs.Queue:
    timeout = Duration.seconds(361)
    return aws_sqs.Queue(stack, "Mine", **{"visibility_timeout": timeout, **properties})


def for_two_weeks(stack: Stack, name: str) -> aws_sqs.Queue:
    return aws_sqs.Queue(stack, name, retention_period=Duration.days(14))


def redrive_to(queue: aws_sqs.Queue) -> dict[str, Any]:
    return {"dead_letter_queue": aws_sqs.DeadLetterQueue(queue=queue, max_receive_count=3)}


def imported_bus(stack: Stack) -> aws_events.IEventBus:
    return aws_events.EventBus.from_event_bus_arn(stack, "All", OUR_BUS)


def imported(stack: Stack, name: str, arn: str = OUR_QUEUE) -> aws_sqs.IQueue:
    return aws_sqs.Queue.from_queue_arn(stack, name, arn)


def test_a_sender_may_send_a_reader_may_read_and_nothing_else(mine):
    stack, acker, template = mine
    table = logical_id(acker.table)
    sender, reader = (logical_id(stack.node.find_child(name)) for name in ("Sender", "Reader"))
    assert template.granted(sender) == {logical_id(acker.queue): {"sqs:SendMessage"}}
    assert template.granted(reader) == {table: READ, f"{table}/index/due": {"dynamodb:Query"}}


@pytest.mark.parametrize(
    "widen",
    [
        lambda acker: acker.queue.grant_purge(acker.consumer),
        lambda acker: acker.consumer.add_to_role_policy(
            aws_iam.PolicyStatement(actions=["sqs:PurgeQueue"], resources=["*"])
        ),
    ],
)
def test_a_permission_for_a_function_is_an_error(mine, widen):
    stack, acker, template = mine
    with pytest.raises((RuntimeError, ValueError), match="Python/Role takes no further permission"):
        widen(acker)
    assert Template.of_stack(stack).resources == template.resources


def test_rules_match_the_requested_statuses(mine):
    _, acker, template = mine
    bus = {"Ref": logical_id(acker.events.bus)}
    rules = template.of("AWS::Events::Rule").values()
    patterns = [rule["EventPattern"] for rule in rules if rule.get("EventBusName") == bus]
    table = {"Fn::GetAtt": [logical_id(acker.table), "Arn"]}  # another acker may share the bus
    account = {"Ref": "AWS::AccountId"}  # anybody may put any resource on a bus of yours
    expected = {"account": [account], "source": ["xorack"], "resources": [table]}
    statuses = [["acked", "failed"], ["acked"]]
    assert sorted(patterns, key=str) == [{**expected, "detail-type": some} for some in statuses]
    for wrong in (["done"], []):
        with pytest.raises(ValueError, match="expected some of"):
            acker.events.rule("Wrong", targets=[], statuses=wrong)


def test_two_stacks_of_one_app_and_two_ackers_of_one_stack_have_no_name_in_common():
    """What has a physical name at all: test_state.py."""
    names = []
    for stage in ("dev", "prod"):
        stack = Stack(App(), "Warehouse", stack_name=f"warehouse-{stage}")
        full = Settings(monitoring="full")
        acker, other = (Acker(stack, name, settings=full) for name in ("Acker", "Other"))
        acker.add_outputs()
        other.add_outputs(prefix="Other")
        template = Template.of_stack(stack)
        functions = template.of("AWS::Lambda::Function").values()
        found = {one["Environment"]["Variables"]["POWERTOOLS_SERVICE_NAME"] for one in functions}
        assert found == {acker.service, other.service} == {acker.name, other.name}
        assert re.fullmatch(f"warehouse-{stage}-Acker-[0-9A-F]{{8}}", acker.name)
        assert found == {bus["Name"] for bus in template.of("AWS::Events::EventBus").values()}
        dashboards = template.of("AWS::CloudWatch::Dashboard").values()
        found |= {json.dumps(one["DashboardName"]) for one in dashboards}
        assert len(found) == 4
        outputs = template.body["Outputs"].values()
        names.append({one["Export"]["Name"] for one in outputs} | found)
    assert len(names[0]) > 24
    assert not names[0] & names[1]


def test_names_differ_where_stack_and_path_read_the_same_and_are_short_enough():
    names = {
        Acker(Stack(App(), "Mine", stack_name=stack_name), construct_id).name
        for stack_name, construct_id in (
            ("orders", "prod-Acker"),
            ("orders-prod", "Acker"),
            ("o" * 128, "Acker"),
            ("o" * 128, "Other"),
        )
    }
    assert len(names) == 4
    assert max(map(len, names)) <= 128


# -- user-supplied resources -----------------------------------------------------------------------


@pytest.mark.parametrize("named_twice", [False, True])
def test_a_supplied_queue_comes_with_its_dead_letter_queue_and_only_the_consumer_uses_its_key(
    stack, named_twice
):
    key = aws_kms.Key(stack, "Key")
    encrypted = {"encryption": aws_sqs.QueueEncryption.KMS, "encryption_master_key": key}
    dead = for_two_weeks(stack, "Letters")
    queue = supplied(stack, **redrive_to(dead), **encrypted)
    Acker(stack, "Acker", queue=queue, dead_letters=dead if named_twice else None)
    template = Template.of_stack(stack)
    assert len(template.of("AWS::SQS::Queue")) == 2
    assert template.queue()[0] == logical_id(queue)
    url = template.environment("consumer")["DEAD_LETTER_QUEUE_URL"]
    assert url == {"Ref": logical_id(dead)}
    rights = {name: template.allowed(name).get(logical_id(key)) for name in FUNCTIONS}
    read = {"kms:Decrypt", "kms:DescribeKey"}
    assert rights == {"consumer": read, "sweeper": None}


def test_imported_resources_are_used_and_grants_name_them(stack):
    bus = aws_events.EventBus.from_event_bus_arn(stack, "All", OUR_BUS)
    acker = Acker(stack, "Acker", queue=imported(stack, "Stamps"), bus=bus)
    sender = aws_iam.Role(stack, "Sender", assumed_by=aws_iam.AccountRootPrincipal())
    acker.grant_send(sender)
    template = Template.of_stack(stack)
    # The acker creates a queue for rejected requests.
    assert len(template.of("AWS::SQS::Queue")) == 1
    assert not template.of("AWS::Events::EventBus")
    assert template.granted(logical_id(sender)) == {OUR_QUEUE: {"sqs:SendMessage"}}
    assert {OUR_BUS, OUR_QUEUE} <= set(template.allowed("consumer"))
    # Nobody knows how long the queue keeps a message: a chain waits for its create as long as any.
    assert template.environment("consumer")["PENDING_TIMEOUT_SECONDS"] == str(14 * 86_400)


@pytest.mark.parametrize(
    ("name", "called"), [("here", THEIR_BUS), ("stack", THEIR_BUS), ("here", "all")]
)
def test_functions_call_a_bus_of_another_account_by_its_arn(request, name, called):
    # EventBridge looks for a bare name in this account.
    stack, buses = request.getfixturevalue(name), aws_events.EventBus
    make = buses.from_event_bus_arn if called == THEIR_BUS else buses.from_event_bus_name
    settings = Settings(policies_ready=True)
    acker = Acker(stack, "Acker", bus=make(stack, "All", called), settings=settings)
    template = Template.of_stack(stack)
    for function in ("consumer", "sweeper"):
        assert template.environment(function)["EVENT_BUS_NAME"] == called
    if (name, called) == ("here", THEIR_BUS):
        with pytest.raises(ValueError, match="rule: Mine/All is in the account 2222"):
            acker.events.rule("Done", targets=[])


# -- user errors -----------------------------------------------------------------------------------


def test_a_grant_without_effect_is_rejected(here):
    there = aws_iam.Role.from_role_arn(here, "There", THERE)
    service = aws_iam.ServicePrincipal("scheduler.amazonaws.com")
    acker = Acker(here, "Acker", queue=imported(here, "Q"))
    for grantee, name in ((there, THERE), (service, "scheduler.amazonaws.com")):
        with pytest.raises(ValueError, match="grant_send: the policy of Mine/Q cannot be changed"):
            acker.grant_send(grantee)
        with pytest.raises(ValueError, match=f"grant_read: .*{name}.* expected a role, user or"):
            acker.grant_read(grantee)


OUR_KEY = "arn:aws:kms:eu-west-1:111111111111:key/1234"


def statement_in(message):
    """The JSON of a statement in a message."""
    return json.JSONDecoder().raw_decode(message[message.index("{") :])[0]


@pytest.fixture(scope="module")
def with_our_key():
    """Ackers with an imported key: its policy is not ready, and it is."""
    stack = Stack(App(), "Mine", env=HERE)
    key = aws_kms.Key.from_key_arn(stack, "Key", OUR_KEY)
    return [
        Acker(stack, f"Acker{ready}", encryption_key=key, settings=Settings(policies_ready=ready))
        for ready in (False, True)
    ]


@pytest.mark.parametrize(
    ("grantee", "principal"),
    [
        (aws_iam.ServicePrincipal("events.amazonaws.com"), "events.amazonaws.com"),
        (aws_iam.AccountPrincipal("222222222222"), "222222222222:root"),
        (aws_iam.ArnPrincipal(THERE), THERE),
    ],
)
def test_an_imported_key_does_not_let_a_grant_fall_silent(with_our_key, grantee, principal):
    acker, ready = with_our_key
    assert ready.grant_send(grantee).success
    assert "xorack:imported-key" not in str([one.data for one in ready.node.metadata])
    with pytest.raises(ValueError, match="grant_send: the policy of Mine/Key cannot be") as caught:
        acker.grant_send(grantee)
    statement = statement_in(str(caught.value))
    assert statement["Action"] == ["kms:Decrypt", "kms:GenerateDataKey"]
    assert (statement["Effect"], statement["Resource"]) == ("Allow", "*")
    assert principal in json.dumps(statement["Principal"])
    template = Template.of_stack(Stack.of(acker))
    assert not template.of("AWS::KMS::Key")
    assert {one["KmsKeyId"] for one in template.of("AWS::Logs::LogGroup").values()} == {OUR_KEY}
    (warning,) = [one.data for one in acker.node.metadata if "Mine/Key" in str(one.data)]
    assert "kms:EncryptionContext:aws:logs:arn" in str(statement_in(warning))


# -- an acker of another stack or app --------------------------------------------------------------

ELSEWHERE = {
    "table_arn": "arn:aws:dynamodb:eu-west-1:111111111111:table/chains",
    "queue_arn": OUR_QUEUE,
    "event_bus_arn": OUR_BUS,
}


def test_an_imported_acker_has_grants_rules_and_metrics(here):
    acker = Acker.from_attributes(
        here, "Acker", **ELSEWHERE, service="xorack-Acker", encryption_key_arn=OUR_KEY
    )
    assert isinstance(acker, IAcker)
    role = aws_iam.Role(here, "Role", assumed_by=aws_iam.AccountRootPrincipal())
    assert acker.grant_send(role).success
    assert acker.grant_read(role).success
    acker.events.rule("Done", targets=[])
    acker.events.archive("Archive", retention=Duration.days(7))
    acker.metric_failed().create_alarm(here, "Lost", threshold=1, evaluation_periods=1)
    template = Template.of_stack(here)
    granted = template.granted(logical_id(role))
    assert granted[OUR_QUEUE] == {"sqs:SendMessage"}
    assert granted[ELSEWHERE["table_arn"]] == READ
    key = {"kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKey"}
    assert granted[OUR_KEY] == key
    _, rule = template.one("AWS::Events::Rule")
    assert rule["EventPattern"]["account"] == ["111111111111"]
    assert rule["EventPattern"]["resources"] == [ELSEWHERE["table_arn"]]
    _, archive = template.one("AWS::Events::Archive")
    assert archive["EventPattern"]["resources"] == [ELSEWHERE["table_arn"]]
    assert (archive["RetentionDays"], archive["SourceArn"]) == (7, OUR_BUS)
    _, alarm = template.one("AWS::CloudWatch::Alarm")
    assert (alarm["Namespace"], alarm["MetricName"]) == ("xorack", "ChainsFailed")
    assert alarm["Dimensions"] == [{"Name": "service", "Value": "xorack-Acker"}]
    with pytest.raises(ValueError, match="grant_send: the policy of Mine/Acker/Queue cannot be"):
        acker.grant_send(aws_iam.ServicePrincipal("events.amazonaws.com"))


def test_an_acker_is_found_by_what_its_stack_exports():
    there, here = Stack(App(), "There", stack_name="prod"), Stack(App(), "Here")
    Acker(there, "Acker").add_outputs()
    outputs = Template.of_stack(there).body["Outputs"].values()
    acker = Acker.from_stack_outputs(here, "Acker", "prod")
    role = aws_iam.Role(here, "Role", assumed_by=aws_iam.AccountRootPrincipal())
    acker.grant_send(role)
    acker.grant_read(role)
    acker.grant_operate(role)
    acker.events.rule("Done", targets=[])
    acker.metric_oldest_pending().create_alarm(here, "Late", threshold=1, evaluation_periods=1)
    imported = set(
        re.findall(r'"Fn::ImportValue": "([^"]+)"', json.dumps(Template.of_stack(here).body))
    )
    assert imported == {
        f"prod-{name}"
        for name in ("QueueArn", "TableArn", "EventBusArn", "DeadLetterQueueArn", "Service")
    }
    assert imported <= {one["Export"]["Name"] for one in outputs}


def test_an_imported_acker_has_the_metrics_of_its_account_and_region(here):
    there = {name: arn.replace("1" * 12, "2" * 12) for name, arn in ELSEWHERE.items()}
    metric = Acker.from_attributes(here, "There", **there, service="xorack").metric_failed()
    assert (metric.account, metric.region) == ("2" * 12, "eu-west-1")
    for number, name in enumerate(("queue_arn", "dead_letters_arn")):
        line = rf"{name}: .* is in the account 1{{12}}, expected 2{{12}}, where table_arn is"
        with pytest.raises(ValueError, match=line):
            Acker.from_attributes(here, f"Mixed{number}", **{**there, name: OUR_QUEUE})
    with pytest.raises(ValueError, match="encryption_key_arn: Mine/Alias/Key is an alias"):
        Acker.from_attributes(
            here, "Alias", **ELSEWHERE, encryption_key_arn=OUR_KEY.replace("key/", "alias/")
        )
    with pytest.raises(TypeError, match="role_names is 'acker': expected a list of names"):
        Acker.from_attributes(here, "Roles", **ELSEWHERE, role_names="acker")
    bus = OUR_BUS.replace("eu-west-1", "us-east-1")
    far = Acker.from_attributes(here, "Far", **{**ELSEWHERE, "event_bus_arn": bus})
    with pytest.raises(ValueError, match=r"rule: .* is in the region us-east-1, expected eu"):
        far.events.rule("Done", targets=[])


def test_a_metric_that_nobody_emits_is_an_error(mine, stack):
    acker = mine[1]
    metric = acker.metric_acked(period=Duration.hours(1))
    assert (metric.metric_name, metric.statistic) == ("ChainsAcked", "Sum")
    assert metric.dimensions == {"service": acker.name}
    assert acker.metric("AckLatency", statistic="p99").statistic == "p99"
    quiet = Acker(stack, "Quiet", settings=Settings(monitoring="minimal"))
    unknown = Acker.from_attributes(stack, "Unknown", **ELSEWHERE)
    for one, name, line in (
        (acker, "ChainsAckd", "'ChainsAckd', expected one of AckLatency, "),
        (quiet, "ChainsAcked", "metric: Mine/Quiet emits none"),
        (unknown, "ChainsAcked", "pass its `service` to the import"),
    ):
        with pytest.raises(ValueError, match=line):
            one.metric(name)


def test_a_resource_in_another_region_is_rejected(here):
    for number, (argument, arn, place) in enumerate(
        (
            ("queue", OUR_QUEUE.replace("eu-west-1", "us-east-1"), "region us-east-1, expected eu"),
            ("queue", OUR_QUEUE.replace("1" * 12, "2" * 12), "account 2{12}, expected 1{12}"),
            (
                "dead_letters",
                OUR_QUEUE.replace("1" * 12, "2" * 12),
                "account 2{12}, expected 1{12}",
            ),
        )
    ):
        there = imported(here, f"There{number}", arn)
        with pytest.raises(ValueError, match=f"{argument}: Mine/There{number} is in the {place}"):
            Acker(here, f"Acker{number}", **{argument: there})
    # Without a role, nobody knows who would get the permission.
    unknown = aws_lambda.Function.from_function_arn(
        here, "Unknown", "arn:aws:lambda:eu-west-1:111111111111:function:f"
    )
    with pytest.raises(RuntimeError, match="Mine/Unknown, resource imported without a role"):
        Acker(here, "Reader").grant_read(unknown)
    topic = Settings(alarm_topic_arn="arn:aws:sns:us-east-1:111111111111:alarms")
    with pytest.raises(
        ValueError, match=r"alarm_topic: .* is in the region us-east-1, expected eu"
    ):
        Acker(here, "Alarmed", settings=topic)
    with pytest.raises(ValueError, match=r"alarm_topic: Mine/Topic was passed, and the setting"):
        Acker(here, "Twice", settings=topic, alarm_topic=aws_sns.Topic(here, "Topic"))


def test_the_deployment_fails_if_an_imported_bus_of_the_account_does_not_exist(here, stack):
    """CloudFormation creates a rule only on a bus that exists; that one is disabled."""
    buses, settings = aws_events.EventBus, Settings(policies_ready=True)
    for number, (where, arn, has_rule, condition) in enumerate(
        (
            (here, OUR_BUS, True, None),
            (here, THEIR_BUS, False, None),
            # Only the deployment knows the account of this stack.
            (stack, OUR_BUS, True, {"Fn::Equals": ["1" * 12, {"Ref": "AWS::AccountId"}]}),
        )
    ):
        app = Stack(App(), "Mine", env=HERE if where is here else None)
        Acker(
            app, "Acker", bus=buses.from_event_bus_arn(app, f"Bus{number}", arn), settings=settings
        )
        template = Template.of_stack(app)
        rules = [one for one in template.of("AWS::Events::Rule").items() if "BusExists" in one[0]]
        assert len(rules) == has_rule
        for name, rule in rules:
            assert (rule["State"], rule["EventBusName"]) == ("DISABLED", "all")
            assert "Targets" not in rule
            named = template.resources[name].get("Condition")
            assert template.body.get("Conditions", {}).get(named) == condition
    newer = OUR_BUS.replace(":event-bus/", ":event-busv2/")
    with pytest.raises(ValueError, match="is a custom event bus of AWS::EventsV2, expected a bus"):
        Acker(here, "Newer", bus=buses.from_event_bus_arn(here, "Newer-Bus", newer))
    with pytest.raises(ValueError, match="is a custom event bus of AWS::EventsV2"):
        Acker.from_attributes(here, "Far", **{**ELSEWHERE, "event_bus_arn": newer})


@pytest.mark.parametrize("has_key", [False, True])
def test_an_operator_may_do_what_the_handbook_lists(here, has_key):
    key = aws_kms.Key(here, "Key") if has_key else None
    acker = Acker(here, "Acker", encryption_key=key)
    role = aws_iam.Role(here, "OnCall", assumed_by=aws_iam.AccountRootPrincipal())
    assert acker.grant_operate(role).success
    granted = Template.of_stack(here).granted(logical_id(role))
    page = (ROOT / "docs" / "dead-letters.md").read_text(encoding="utf-8")
    section = page.partition("## Options and permissions")[2]
    listed = set(re.findall(r"`(?:\w+:)?([A-Z]\w+)`", section.partition("| without")[0]))
    actions = {one.partition(":")[2] for names in granted.values() for one in names}
    # The sweeper publishes; a list needs the index.
    assert listed - {"PutEvents"} == actions - {"Query", "Decrypt", *KEY_ACTIONS}
    assert (logical_id(key) in granted) if has_key else len(granted) == 5
    other = Acker.from_attributes(here, "Other", **ELSEWHERE)
    with pytest.raises(ValueError, match=r"grant_operate: .* imported without `dead_letters_arn`"):
        other.grant_operate(role)
    with pytest.raises(ValueError, match=r"grant_operate: .* cannot read in this account"):
        acker.grant_operate(aws_iam.Role.from_role_arn(here, "Loader", THERE))


KEY_ACTIONS = {
    *("DescribeKey", "Encrypt", "GenerateDataKey", "GenerateDataKeyWithoutPlaintext"),
    *("ReEncryptFrom", "ReEncryptTo"),
}


CANNOT_WORK = [
    # A statement on an alias allows nothing: the functions would be denied their calls.
    (
        lambda s: {"encryption_key": aws_kms.Alias.from_alias_name(s, "Alias", "alias/mine")},
        "encryption_key: Mine/Alias is an alias, expected its",
    ),
    (lambda s: {"queue": supplied(s, fifo=True)}, "queue: Mine/Mine is a FIFO queue, expected a"),
    (
        lambda s: {"queue": supplied(s, visibility_timeout=None)},
        "the visibility timeout of Mine/Mine is 30 seconds, expected at least 361",
    ),
    (
        lambda s: {"queue": supplied(s, retention_period=Duration.days(10))},
        "can stay in the queues for 2073600 seconds, expected less",
    ),
    # Rejected requests would come back for ever.
    (
        lambda s: dict.fromkeys(("queue", "dead_letters"), supplied(s)),
        "dead_letters: Mine/Mine is the queue itself",
    ),
    # Alarms and `xorack redrive` would look at one queue, while SQS moves messages to another.
    (
        lambda s: {
            "queue": supplied(s, **redrive_to(for_two_weeks(s, "Used"))),
            "dead_letters": for_two_weeks(s, "Other"),
        },
        "dead_letters: got Mine/Other, but Mine/Mine uses Mine/Used",
    ),
    (
        lambda s: {
            "dead_letters": aws_sqs.Queue(
                s, "Letters", retention_period=Duration.days(14), max_message_size_bytes=262_144
            )
        },
        "dead_letters: Mine/Letters accepts 262144 bytes, expected at least 1048576",
    ),
    (
        lambda s: {"queue": Acker(s, "First").queue},
        "queue: another acker uses Mine/First/Stamps/Queue: give each acker its own",
    ),
    (
        lambda s: {"encryption_key": aws_kms.Key.from_key_arn(s, "K", OUR_KEY[:-8] + "alias/a")},
        "encryption_key: Mine/K is an alias, expected its",
    ),
    (
        lambda s: {"service": "orders/prod", "bus": imported_bus(s)},
        "service: 'orders/prod', expected 1 to 128 letters, digits, _ and -, because the bus",
    ),
    (
        lambda s: {"dead_letters": aws_sqs.Queue(s, "Letters")},
        "dead_letters: .* 345600 seconds, expected more than the",
    ),
]


@pytest.mark.parametrize(("arguments", "line"), CANNOT_WORK)
def test_a_resource_that_cannot_work_is_rejected(stack, arguments, line):
    with pytest.raises(ValueError, match=line):
        Acker(stack, "Acker", settings=Settings(retention_days=19), **arguments(stack))


def warnings(scope: Any) -> list[str]:
    entries = (entry for one in scope.node.find_all() for entry in one.node.metadata)
    return [str(entry.data) for entry in entries if entry.type == "aws:cdk:warning"]


def test_a_queue_of_few_attempts_or_small_messages_gives_a_warning(stack):
    small = {"max_message_size_bytes": 262_144}
    dead = aws_sqs.Queue(stack, "Dead", retention_period=Duration.days(14), **small)
    queue = supplied(stack, **redrive_to(dead), **small)
    found = warnings(Acker(stack, "Acker", queue=queue).node.find_child("Stamps"))
    assert "Mine/Mine dead-letters a message after 3 attempts" in found[0]
    assert "Mine/Mine accepts messages of 262144 bytes" in found[1]


def test_a_grant_to_a_role_that_takes_no_policy_gives_a_warning(here):
    acker, roles = Acker(here, "Acker"), aws_iam.Role
    arn = "arn:aws:iam::111111111111:role/{}"
    own = roles(here, "Own", assumed_by=aws_iam.AccountRootPrincipal())
    before = warnings(acker)
    for role in (
        roles.from_role_arn(here, "Fixed", arn.format("a"), mutable=False),
        own.without_policy_updates(),
        roles.from_role_arn(here, "Sso", arn.format("aws-reserved/sso.amazonaws.com/x")),
        roles.from_role_arn(here, "Usual", arn.format("b")),
    ):
        acker.grant_send(role)
    found = [line for line in warnings(acker) if line not in before]
    assert len(found) == 3
    assert all("allow it sqs:SendMessage" in line for line in found)


def test_an_aspect_may_add_a_managed_policy_to_all_roles(here):
    @jsii.implements(IAspect)
    class Organisation:
        def visit(self, node):
            if isinstance(node, aws_iam.Role):
                name = "AWSDenyAll"
                node.add_managed_policy(aws_iam.ManagedPolicy.from_aws_managed_policy_name(name))

    acker = Acker(here, "Acker")
    Aspects.of(here).add(Organisation())
    roles = Template.of_stack(here).of("AWS::IAM::Role").values()
    assert all("AWSDenyAll" in str(role["ManagedPolicyArns"]) for role in roles)
    assert sum("gets the managed policy" in line for line in warnings(acker)) == len(roles)


def test_a_stack_with_the_targets_and_the_waiting_executions_depends_on_the_ackers_alone():
    """Each would depend on the other, if the acker's stack had the ARNs of both."""
    app = App()
    stack, other = Stack(app, "Acker"), Stack(app, "Work")
    acker = Acker(stack, "Acker")
    acker.events.rule("Done", targets=[SqsQueue(aws_sqs.Queue(other, "Done"))])
    function = aws_lambda.Function(
        other,
        "Worker",
        runtime=aws_lambda.Runtime.PYTHON_3_13,
        handler="index.handler",
        code=aws_lambda.Code.from_inline("handler = print"),
    )
    acker.events.rule("Both", targets=[LambdaFunction(function)], scope=other)
    machine = aws_stepfunctions.StateMachine(
        other,
        "Orders",
        definition_body=aws_stepfunctions.DefinitionBody.from_chainable(
            aws_stepfunctions.Pass(other, "Pass")
        ),
    )
    for waiting in (function, machine):
        acker.grant_send(waiting)
        acker.grant_resume(waiting)
    acker.events.rule("Next", targets=[SfnStateMachine(machine)])
    app.synth()
    assert [one.node.id for one in other.dependencies] == ["Acker"]
    assert stack.dependencies == []
    template = Template.of_stack(other)
    policies = template.of("AWS::IAM::Policy").values()
    attached = [
        str(role)
        for policy in policies
        for role in policy["Roles"]
        for statement in policy["PolicyDocument"]["Statement"]
        if "SendTaskSuccess" in str(statement) or "CallbackSuccess" in str(statement)
    ]
    assert len(attached) == 4
    assert sum("ConsumerPythonRole" in role for role in attached) == 2
    assert len(template.of("AWS::Events::Rule")) == 3
    assert Template.of_stack(stack).environment("consumer")["RESUME"] == "step_functions,lambda"
