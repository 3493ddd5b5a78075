"""`xorack doctor` in the embedded AWS: a test breaks a resource, and only its line fails."""

import json
from contextlib import contextmanager, suppress
from functools import partial

import pytest
from botocore.client import BaseClient
from botocore.exceptions import ClientError

from tests.e2e.conftest import python
from tests.support.cli import check_schema
from xorack.aws.schema import ALIAS, DUE_INDEX, EXPIRES_AT
from xorack.aws.stack import describe_stack
from xorack.cli import doctor as cli
from xorack.cli import main
from xorack.local.deploy import deploy
from xorack.local.embedded import EmbeddedAWS
from xorack.ops.doctor.checks import check_all
from xorack.ops.doctor.reading import Reader
from xorack.ops.doctor.trial import Trial


@contextmanager
def deployed(assembly):
    """A stack in an AWS of its own, with a topic for its alarms and a rule for its events."""
    with EmbeddedAWS() as aws:
        stack = deploy(aws, assembly)
        sns, cloudwatch = aws.client("sns"), aws.client("cloudwatch")
        topic = sns.create_topic(Name="alarms")["TopicArn"]
        sns.subscribe(TopicArn=topic, Protocol="email", Endpoint="a@example.org")
        alarms = cloudwatch.describe_alarms(AlarmTypes=["MetricAlarm", "CompositeAlarm"])
        for alarm in alarms["MetricAlarms"]:
            put_alarm(stack, alarm, AlarmActions=[topic])
        for one in alarms["CompositeAlarms"]:
            names = ("AlarmName", "AlarmRule", "AlarmDescription")
            cloudwatch.put_composite_alarm(
                **{name: one[name] for name in names}, AlarmActions=[topic]
            )
        put_rule(stack, "listener", target=True)
        yield stack


@pytest.fixture(scope="module")
def examined(assembly):
    with deployed(assembly) as stack:
        yield stack


def put_alarm(stack, alarm, **changes):
    names = ("AlarmName", "AlarmDescription", "EvaluationPeriods", "Threshold", "Statistic")
    kept = {name: alarm[name] for name in names} | {
        "ComparisonOperator": "GreaterThanThreshold",
        "Namespace": "tests",
        "MetricName": "none",
        "Period": 60,
        "ActionsEnabled": alarm.get("ActionsEnabled", True),
        "AlarmActions": alarm["AlarmActions"],
    }
    stack.client("cloudwatch").put_metric_alarm(**{**kept, **changes})


def put_rule(stack, name, *, target, state="ENABLED"):
    events, pattern = stack.client("events"), json.dumps({"source": ["xorack"]})
    where = {"EventBusName": stack.bus_name}
    events.put_rule(Name=name, EventPattern=pattern, State=state, **where)
    if target:
        arn = "arn:aws:sqs:us-east-1:123456789012:listener"
        events.put_targets(Rule=name, Targets=[{"Id": "1", "Arn": arn}], **where)


@pytest.fixture
def doctor(examined, monkeypatch, capsys):
    """Run the command on the stack; return its status and the checks by their names."""
    for name, value in examined.aws.environ().items():
        monkeypatch.setenv(name, value)

    def run(*arguments):
        status = main(["doctor", "--json", *arguments])
        report = json.loads(capsys.readouterr().out)
        check_schema("doctor", report)
        return status, {check["name"]: check for check in report["checks"]}

    return run


def failed(checks):
    return {name for name, check in checks.items() if check["verdict"] == "failed"}


def check(stack):
    """Make all checks but those that send chains, by clients that exist already."""
    facts = Reader(describe_stack(stack.name, stack.client), stack.client).facts()
    return {check.name: check._asdict() for check in check_all(facts)}


def test_a_healthy_stack_passes_every_check_and_loses_nothing_under_load(examined):
    """The doctor runs as its user starts it; only its chains stay."""
    arguments = ("--load", "100/s", "--for", "6", "--yes")
    done = python("-m", "xorack.cli", "doctor", *arguments, **examined.aws.environ())
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    checks = lines[: lines.index("")]
    assert len(checks) == 23
    assert all(line.startswith("✓ ") for line in checks), done.stdout
    assert "its event names the unit that is missing: " in checks[-2]
    assert "55 chains, " in checks[-1]
    assert "of them with lost units" in checks[-1]
    assert lines[-1] == "all is well"
    rules = examined.client("events").list_rules(EventBusName=examined.bus_name)["Rules"]
    assert [rule["Name"] for rule in rules] == ["listener"]
    assert not examined.client("sqs").list_queues(QueueNamePrefix="doctor-").get("QueueUrls")


# -- faults that are undone ------------------------------------------------------------------------


@contextmanager
def queue(stack, url="QueueUrl", **attributes):
    sqs, where = stack.client("sqs"), {"QueueUrl": stack.outputs[url]}
    before = sqs.get_queue_attributes(**where, AttributeNames=["All"])["Attributes"]
    sqs.set_queue_attributes(**where, Attributes=attributes)
    yield
    sqs.set_queue_attributes(**where, Attributes={n: before.get(n, "") for n in attributes})


def redrive(stack, **changes):
    """Change the redrive policy of the queue."""
    where = {"QueueUrl": stack.queue_url, "AttributeNames": ["RedrivePolicy"]}
    attributes = stack.client("sqs").get_queue_attributes(**where)["Attributes"]
    policy = json.loads(attributes["RedrivePolicy"])
    return queue(stack, RedrivePolicy=json.dumps({**policy, **changes}))


@contextmanager
def elsewhere(stack):
    """Let SQS move dead letters to a queue that is not the stack's."""
    sqs = stack.client("sqs")
    url = sqs.create_queue(QueueName="elsewhere")["QueueUrl"]
    arn = stack.outputs["QueueArn"].rpartition(":")[0] + ":elsewhere"
    with redrive(stack, deadLetterTargetArn=arn):
        yield
    sqs.delete_queue(QueueUrl=url)


@contextmanager
def letter(stack):
    sqs, url = stack.client("sqs"), stack.dead_letter_queue_url
    sqs.send_message(QueueUrl=url, MessageBody="bad")
    yield
    sqs.purge_queue(QueueUrl=url)


@contextmanager
def key(stack):
    kms = stack.client("kms")
    made = kms.create_key()["KeyMetadata"]["KeyId"]
    kms.disable_key(KeyId=made)
    with queue(stack, KmsMasterKeyId=made):
        yield


@contextmanager
def switched_off(operation, feature, switch, stack, **more):
    """Switch a feature of the table off, and on again."""
    change = partial(getattr(stack.client("dynamodb"), operation), TableName=stack.table_name)
    change(**{feature: {switch: False, **more}})
    yield
    change(**{feature: {switch: True, **more}})


@contextmanager
def mapping(stack, **changes):
    client, where = stack.client("lambda"), {"EventSourceArn": stack.outputs["QueueArn"]}
    (one,) = client.list_event_source_mappings(**where)["EventSourceMappings"]
    client.update_event_source_mapping(UUID=one["UUID"], **changes)
    yield
    usual = {
        "Enabled": True,
        "FunctionName": one["FunctionArn"],
        "FunctionResponseTypes": ["ReportBatchItemFailures"],
        "FilterCriteria": {"Filters": []},
    }
    client.update_event_source_mapping(UUID=one["UUID"], **usual)


@contextmanager
def thief(stack):
    client = stack.client("lambda")
    made = client.create_event_source_mapping(
        EventSourceArn=stack.outputs["QueueArn"],
        FunctionName=stack.outputs["SweeperName"],
        Enabled=False,
    )
    yield
    client.delete_event_source_mapping(UUID=made["UUID"])


@contextmanager
def concurrency(stack, output):
    client, where = stack.client("lambda"), {"FunctionName": stack.outputs[output]}
    client.put_function_concurrency(**where, ReservedConcurrentExecutions=0)
    yield
    client.delete_function_concurrency(**where)


def point_alias(client, function, version):
    client.update_alias(FunctionName=function, Name=ALIAS, FunctionVersion=version)


@contextmanager
def function(stack, output, **changes):
    """Deploy a version with another configuration, as a wrong update would."""
    client, name = stack.client("lambda"), stack.outputs[output]
    before = client.get_alias(FunctionName=name, Name=ALIAS)["FunctionVersion"]
    now = client.get_function_configuration(FunctionName=name)
    client.update_function_configuration(FunctionName=name, **changes)
    client.get_waiter("function_updated_v2").wait(FunctionName=name, WaiterConfig={"Delay": 1})
    point_alias(client, name, client.publish_version(FunctionName=name)["Version"])
    yield
    client.update_function_configuration(FunctionName=name, **{key: now[key] for key in changes})
    point_alias(client, name, before)


def variables(stack, output, **changes):
    name = stack.outputs[output]
    now = stack.client("lambda").get_function_configuration(FunctionName=name)
    variables = {**now["Environment"]["Variables"], **changes}
    return function(stack, output, Environment={"Variables": variables})


@contextmanager
def schedule(stack, *, has_target=True, **changes):
    events, name = stack.client("events"), rule_of_sweeper(stack)
    (target,) = events.list_targets_by_rule(Rule=name)["Targets"]
    usual = {"Name": name, "ScheduleExpression": "rate(1 minute)", "State": "ENABLED"}
    events.put_rule(**{**usual, **changes})
    if not has_target:
        events.remove_targets(Rule=name, Ids=[target["Id"]])
    yield
    events.put_rule(**usual)
    events.put_targets(Rule=name, Targets=[target])


def rule_of_sweeper(stack):
    (rule,) = stack.client("events").list_rules()["Rules"]
    return rule["Name"]


@contextmanager
def rule(stack, **options):
    put_rule(stack, "broken", **options)
    yield
    events, where = stack.client("events"), {"EventBusName": stack.bus_name}
    with suppress(ClientError):
        events.remove_targets(Rule="broken", Ids=["1"], **where)
    events.delete_rule(Name="broken", **where)


@contextmanager
def alarm(stack, **changes):
    cloudwatch = stack.client("cloudwatch")
    alarms = cloudwatch.describe_alarms(AlarmTypes=["MetricAlarm"])["MetricAlarms"]
    one = next(one for one in alarms if "DeadLettersNew" in one["AlarmName"])
    if changes.pop("delete", False):
        cloudwatch.delete_alarms(AlarmNames=[one["AlarmName"]])
    elif state := changes.pop("state", ""):
        cloudwatch.set_alarm_state(AlarmName=one["AlarmName"], StateValue=state, StateReason="t")
    else:
        put_alarm(stack, one, **changes)
    yield
    put_alarm(stack, one)
    cloudwatch.set_alarm_state(AlarmName=one["AlarmName"], StateValue="OK", StateReason="t")


@contextmanager
def unheard_topic(stack):
    topic = stack.client("sns").create_topic(Name="unheard")["TopicArn"]
    with alarm(stack, AlarmActions=[topic]):
        yield


@contextmanager
def errors(stack):
    """Count errors of the sweeper, as Lambda does."""
    name = [{"Name": "FunctionName", "Value": stack.outputs["SweeperName"]}]
    for count in (3, -3):
        datum = {"MetricName": "Errors", "Dimensions": name, "Value": count}
        stack.client("cloudwatch").put_metric_data(Namespace="AWS/Lambda", MetricData=[datum])
        if count > 0:
            yield


DEAD_LETTERS, MAPPING = "DeadLetterQueueUrl", "event source mapping"
TIME_TO_LIVE = "TimeToLiveSpecification", "Enabled"
RECOVERY = "PointInTimeRecoverySpecification", "PointInTimeRecoveryEnabled"


BREAKS = {
    "no redrive policy": ("queue", lambda s: queue(s, RedrivePolicy="")),
    "few receives": ("queue", lambda s: redrive(s, maxReceiveCount=3)),
    "dead letters elsewhere": ("queue", elsewhere),
    "small messages": ("queue", lambda s: queue(s, MaximumMessageSize="1024")),
    "plain messages": ("queue", lambda s: queue(s, SqsManagedSseEnabled="false")),
    "a dead letter": ("dead letters", letter),
    "small dead letters": (
        "dead letters",
        lambda s: queue(s, DEAD_LETTERS, MaximumMessageSize="262144"),
    ),
    "a delay": ("queue", lambda s: queue(s, DelaySeconds="900")),
    "a disabled key": ("keys", key),
    "a short visibility time-out": (
        "visibility time-out",
        lambda s: queue(s, VisibilityTimeout="60"),
    ),
    "dead letters for a day": (
        "retention",
        lambda s: queue(s, DEAD_LETTERS, MessageRetentionPeriod="86400"),
    ),
    "messages for a minute": ("retention", lambda s: queue(s, MessageRetentionPeriod="60")),
    "messages for 14 days": ("retention", lambda s: queue(s, MessageRetentionPeriod="1209600")),
    "chains for a day": (
        "retention",
        lambda s: variables(s, "ConsumerName", RETENTION_SECONDS="86400"),
    ),
    "no time to live": (
        "time to live",
        partial(switched_off, "update_time_to_live", *TIME_TO_LIVE, AttributeName=EXPIRES_AT),
    ),
    "no recovery": ("recovery", partial(switched_off, "update_continuous_backups", *RECOVERY)),
    "a disabled mapping": (MAPPING, partial(mapping, Enabled=False)),
    "batches that fail as a whole": (MAPPING, partial(mapping, FunctionResponseTypes=[])),
    "a filter that deletes messages": (
        MAPPING,
        partial(mapping, FilterCriteria={"Filters": [{"Pattern": '{"body": {"tag": ["a"]}}'}]}),
    ),
    "code that no alias names": (
        MAPPING,
        lambda s: mapping(s, FunctionName=s.outputs["ConsumerName"]),
    ),
    "a second mapping": (MAPPING, thief),
    "a consumer that may not run": ("consumer", lambda s: concurrency(s, "ConsumerName")),
    "a sweeper that may not run": ("sweeper", lambda s: concurrency(s, "SweeperName")),
    "a small memory": ("consumer", lambda s: function(s, "ConsumerName", MemorySize=128)),
    "a short time-out": ("sweeper", lambda s: function(s, "SweeperName", Timeout=3)),
    "another table": ("consumer", lambda s: variables(s, "ConsumerName", TABLE_NAME="another")),
    "another bus": ("sweeper", lambda s: variables(s, "SweeperName", EVENT_BUS_NAME="misspelt")),
    "a disabled schedule": ("schedule", lambda s: schedule(s, State="DISABLED")),
    "a schedule without a target": ("schedule", lambda s: schedule(s, has_target=False)),
    "a sweep a day": ("schedule", lambda s: schedule(s, ScheduleExpression="rate(1 day)")),
    "a disabled rule": ("rules", lambda s: rule(s, target=True, state="DISABLED")),
    "a rule without a target": ("rules", lambda s: rule(s, target=False)),
    "a deleted alarm": ("alarms", lambda s: alarm(s, delete=True)),
    "an alarm that is on": ("alarms", lambda s: alarm(s, state="ALARM")),
    "disabled actions": ("alarms", lambda s: alarm(s, ActionsEnabled=False)),
    "an alarm without a recipient": ("recipients", lambda s: alarm(s, AlarmActions=[])),
    "a topic without subscribers": ("recipients", unheard_topic),
    "errors of the sweeper": ("last errors", errors),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_break_is_named_by_its_line_alone(examined, name):
    line, broken = BREAKS[name]
    with broken(examined):
        checks = check(examined)
    assert failed(checks) == {line}, checks
    assert checks[line]["finding"]
    assert checks[line]["advice"]


# -- faults that cannot be undone ------------------------------------------------------------------


def remove_alias(stack):
    stack.client("lambda").delete_alias(FunctionName=stack.outputs["SweeperName"], Name=ALIAS)


def remove_table(stack):
    where, dynamodb = {"TableName": stack.table_name}, stack.client("dynamodb")
    dynamodb.update_table(**where, DeletionProtectionEnabled=False)
    dynamodb.delete_table(**where)


def remove_index(stack):
    change = [{"Delete": {"IndexName": DUE_INDEX}}]
    stack.client("dynamodb").update_table(
        TableName=stack.table_name, GlobalSecondaryIndexUpdates=change
    )


def remove_mapping(stack):
    client = stack.client("lambda")
    for one in client.list_event_source_mappings()["EventSourceMappings"]:
        client.delete_event_source_mapping(UUID=one["UUID"])


def remove_bus(stack):
    events, where = stack.client("events"), {"EventBusName": stack.bus_name}
    events.remove_targets(Rule="listener", Ids=["1"], **where)
    events.delete_rule(Name="listener", **where)
    events.delete_event_bus(Name=stack.bus_name)


REMOVALS = {
    "queue": lambda s: s.client("sqs").delete_queue(QueueUrl=s.queue_url),
    "dead letters": lambda s: s.client("sqs").delete_queue(QueueUrl=s.dead_letter_queue_url),
    "table": remove_table,
    "table, index": remove_index,
    "event source mapping": remove_mapping,
    "consumer": lambda s: s.client("lambda").delete_function(
        FunctionName=s.outputs["ConsumerName"]
    ),
    "sweeper, alias": remove_alias,
    "bus": remove_bus,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REMOVALS)
def test_what_is_gone_is_named_by_its_line_alone(assembly, name):
    line = name.partition(",")[0]
    with deployed(assembly) as stack:
        REMOVALS[name](stack)
        checks = check(stack)
    assert failed(checks) == {line}, checks
    assert checks[line]["advice"]


# -- chains ----------------------------------------------------------------------------------------


def test_what_you_may_not_read_is_no_finding(doctor, monkeypatch):
    original = BaseClient._make_api_call

    def call(client, operation, arguments):
        if operation in ("DescribeTable", "ListRules"):
            error = {"Code": "AccessDeniedException", "Message": "no"}
            raise ClientError({"Error": error}, operation)
        return original(client, operation, arguments)

    monkeypatch.setattr(BaseClient, "_make_api_call", call)
    status, checks = doctor("--no-chains")
    assert (status, failed(checks)) == (1, {"permissions"})
    assert "dynamodb:DescribeTable, events:ListRules" in checks["permissions"]["finding"]
    assert checks["table"]["verdict"] == checks["rules"]["verdict"] == "not checked"
    assert doctor("--no-chains", "--except", "permissions")[0] == 0


def test_no_chain_is_sent_if_none_can_end(examined, doctor):
    with queue(examined, RedrivePolicy=""):
        status, checks = doctor("--load", "200/s", "--yes")
    assert (status, failed(checks)) == (1, {"queue"})
    assert checks["load"]["verdict"] == "not checked"
    assert checks["acked chain"]["verdict"] == "not checked"
    assert checks["acked chain"]["finding"] == "no chain can end: first repair queue"


def test_a_sweeper_that_fails_is_quoted(examined, doctor, monkeypatch):
    monkeypatch.setattr(cli, "Trial", partial(Trial, patience_seconds=3.0))
    with variables(examined, "SweeperName", RETENTION_SECONDS="soon"):
        status, checks = doctor()
    assert status == 1
    # The schedule may invoke the sweeper during the test, which Lambda counts as an error.
    assert failed(checks) - {"last errors"} == {"failed chain"}
    assert "not ended: open" in checks["failed chain"]["finding"]
    assert "RETENTION_SECONDS: 'soon'" in checks["failed chain"]["finding"]


@pytest.mark.slow
def test_the_proof_that_it_deploys_leaves_nothing(stack):
    """The command of the workflow `deployed`."""
    arguments = ("-m", "tools.deployed", "--stack", "proof", "--load", "100/s", "--for", "2")
    ran = python(*arguments, **stack.aws.environ())
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.rstrip().endswith("all is well")
    stacks = stack.client("cloudformation").list_stacks()["StackSummaries"]
    left = [other["StackName"] for other in stacks if "DELETE" not in other["StackStatus"]]
    left += [bucket["Name"] for bucket in stack.client("s3").list_buckets()["Buckets"]]
    left += stack.client("dynamodb").list_tables()["TableNames"]
    assert not [name for name in left if name.startswith("proof")]
