"""The functions: permissions, triggers, environment, runtime, logs."""

import json
import re

import pytest

from infra.synth import ROOT

from .templates import FUNCTIONS, target


@pytest.mark.parametrize("function", FUNCTIONS)
def test_lambda_may_log_and_read_the_queue_and_no_more(template, function):
    # The functions' own calls: test_least_privilege.py.
    receive = {f"sqs:{name}" for name in ("DeleteMessage", "GetQueueAttributes", "ReceiveMessage")}
    group, queue = template.log_group(function), template.queue()[0]
    allowed = template.allowed(function)
    assert allowed[group] == {"logs:CreateLogStream", "logs:PutLogEvents"}
    assert allowed.get(queue) == (receive if function == "consumer" else None)


def test_each_function_has_its_role_and_there_are_no_other_roles(template):
    roles = sorted(target(template.function(name)[1]["Role"]) for name in FUNCTIONS)
    assert sorted(template.of("AWS::IAM::Role")) == roles
    for kind in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy", "AWS::IAM::RolePolicy"):
        assert not template.of(kind)
    for role in template.of("AWS::IAM::Role").values():
        statements = role["AssumeRolePolicyDocument"]["Statement"]
        assert [one["Principal"] for one in statements] == [{"Service": "lambda.amazonaws.com"}]


def test_no_policy_of_a_resource_allows_anybody(template):
    # The queues' policies deny only; the permission lets the rule invoke the sweeper.
    kinds = {resource["Type"] for resource in template.resources.values()}
    kinds = {kind for kind in kinds if kind.endswith(("Policy", "Permission", "Url", "Grant"))}
    assert kinds == {"AWS::SQS::QueuePolicy", "AWS::Lambda::Permission"}
    for policy in template.of("AWS::SQS::QueuePolicy").values():
        assert {one["Effect"] for one in policy["PolicyDocument"]["Statement"]} == {"Deny"}
    for resource in template.resources.values():
        assert not {"ResourcePolicy", "Policy"} & set(resource["Properties"]), resource["Type"]
    _, permission = template.one("AWS::Lambda::Permission")
    assert permission["Principal"] == "events.amazonaws.com"


def test_wildcards_are_for_x_ray(varied):
    # By default there is none: test_least_privilege.py.
    for name in FUNCTIONS:
        rights = varied.allowed(name)
        assert rights["*"] == {"xray:PutTraceSegments", "xray:PutTelemetryRecords"}
        assert not any("*" in action for some in rights.values() for action in some)


def test_mapping_of_queue_to_consumer(template):
    _, mapping = template.one("AWS::Lambda::EventSourceMapping")
    # The name comes out of the alias's ARN, so the alias exists before.
    assert target(mapping["FunctionName"]) == template.alias("consumer") + ":live"
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_environment(varied, name):
    publishing = {
        "TABLE_ARN": {"Fn::GetAtt": [varied.table()[0], "Arn"]},
        "EVENT_BUS_NAME": {"Ref": varied.bus()[0]},
        "RESUME": "step_functions,lambda",
    }
    assert varied.environment(name) == {
        "TABLE_NAME": {"Ref": varied.table()[0]},
        "PARTITION_KEY": "file",
        **({} if name == "widget" else publishing),
        "DEAD_LETTER_QUEUE_URL": {"Ref": varied.dead_letters()[0]},
        "DEFAULT_TIMEOUT_SECONDS": "60",
        "PENDING_TIMEOUT_SECONDS": str(13 * 86_400),
        "RETENTION_SECONDS": str(40 * 86_400),
        "POWERTOOLS_SERVICE_NAME": "other",
        "POWERTOOLS_METRICS_NAMESPACE": "xorack",
        "TRACING": "true",
    }


def test_each_function_logs_json_to_its_own_group(template, varied):
    for made, level, days in ((template, "INFO", 30), (varied, "DEBUG", 90)):
        # A higher level would drop metrics: to Lambda, lines without a level are INFO.
        expected = {
            "LogFormat": "JSON", "ApplicationLogLevel": level, "SystemLogLevel": "INFO",
        }  # fmt: skip
        for name in FUNCTIONS:
            logging = made.function(name)[1]["LoggingConfig"]
            assert logging == {**expected, "LogGroup": {"Ref": made.log_group(name)}}
        groups = made.of("AWS::Logs::LogGroup")
        assert sorted(groups) == sorted(map(made.log_group, FUNCTIONS))
        assert list(groups.values()) == [{"RetentionInDays": days}] * 3


def test_the_sweeper_runs_each_minute_without_retries(template):
    sweeper = template.alias("sweeper")
    rule_id, rule = template.one("AWS::Events::Rule")
    assert (rule["ScheduleExpression"], rule["State"]) == ("rate(1 minute)", "ENABLED")
    assert [target(one["Arn"]) for one in rule["Targets"]] == [sweeper]
    _, permission = template.one("AWS::Lambda::Permission")
    assert target(permission["FunctionName"]) == sweeper
    assert target(permission["SourceArn"]) == rule_id
    _, invoke = template.one("AWS::Lambda::EventInvokeConfig")
    assert target(invoke["FunctionName"]) == template.function("sweeper")[0]
    assert target(invoke["Qualifier"]) == sweeper
    assert invoke["MaximumRetryAttempts"] == 0
    (delivery,) = (one["RetryPolicy"] for one in rule["Targets"])
    assert delivery == {"MaximumEventAgeInSeconds": 60, "MaximumRetryAttempts": 0}


def test_outputs(template):
    outputs = {name: output["Value"] for name, output in template.body["Outputs"].items()}
    assert outputs.pop("RetentionSeconds") == str(30 * 86_400)
    shared = ("Table", "Queue", "DeadLetterQueue", "EventBus", "Consumer", "Sweeper")
    arns = {name: outputs.pop(f"{name}Arn") for name in shared}
    named = {name: outputs.get(f"{name}Name", outputs.get(f"{name}Url")) for name in arns}
    assert {name: arn["Fn::GetAtt"][0] for name, arn in arns.items()} == {
        name: value["Ref"] for name, value in named.items()
    }
    assert {name: value["Ref"] for name, value in outputs.items()} == {
        "TableName": template.table()[0],
        "QueueUrl": template.queue()[0],
        "DeadLetterQueueUrl": template.dead_letters()[0],
        "EventBusName": template.bus()[0],
        "ConsumerName": template.function("consumer")[0],
        "SweeperName": template.function("sweeper")[0],
        "DashboardName": template.one("AWS::CloudWatch::Dashboard")[0],
    }


def test_the_template_names_no_account_region_or_machine(template):
    text = json.dumps(template.body)
    assert str(ROOT) not in text
    assert not re.search(r"\b\d{12}\b|\b[a-z]{2}-[a-z]+-\d\b", text)
