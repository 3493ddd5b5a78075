"""What runs: the consumer, the sweeper, the widget, and what they may do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from .templates import Template, target

Synthesise = Callable[..., Template]
FUNCTIONS = ("consumer", "sweeper", "widget")


def allowed(template: Template, name: str) -> dict[str, set[str]]:
    """What a function may do: actions by the resource that they are allowed on."""
    _, function = template.function(name)
    role = template.resources[target(function["Role"])]["Properties"]
    assert "ManagedPolicyArns" not in role
    found: dict[str, set[str]] = {}
    for policy in role["Policies"]:
        for statement in policy["PolicyDocument"]["Statement"]:
            assert statement["Effect"] == "Allow"
            assert set(statement) == {"Action", "Effect", "Resource"}
            for resource in as_list(statement["Resource"]):
                found.setdefault(target(resource), set()).update(as_list(statement["Action"]))
    return found


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def log_group(template: Template, name: str) -> str:
    return target(template.function(name)[1]["LoggingConfig"]["LogGroup"])


def test_consumer_may_do_what_it_does_and_no_more(template: Template) -> None:
    assert allowed(template, "consumer") == {
        log_group(template, "consumer"): {"logs:CreateLogStream", "logs:PutLogEvents"},
        template.table()[0]: {
            "dynamodb:BatchGetItem",
            "dynamodb:BatchWriteItem",
            "dynamodb:GetItem",
            "dynamodb:UpdateItem",
        },
        template.queue()[0]: {
            "sqs:DeleteMessage",
            "sqs:GetQueueAttributes",
            "sqs:ReceiveMessage",
        },
        template.dead_letters()[0]: {"sqs:SendMessage"},
        template.bus()[0]: {"events:PutEvents"},
    }


def test_sweeper_may_do_what_it_does_and_no_more(template: Template) -> None:
    table, _ = template.table()
    assert allowed(template, "sweeper") == {
        log_group(template, "sweeper"): {"logs:CreateLogStream", "logs:PutLogEvents"},
        table: {"dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:UpdateItem"},
        f"{table}/index/due": {"dynamodb:Query"},
        template.bus()[0]: {"events:PutEvents"},
    }


def test_widget_may_look_and_no_more(template: Template) -> None:
    table, _ = template.table()
    assert allowed(template, "widget") == {
        log_group(template, "widget"): {"logs:CreateLogStream", "logs:PutLogEvents"},
        table: {"dynamodb:BatchGetItem", "dynamodb:GetItem"},
        f"{table}/index/due": {"dynamodb:Query"},
    }


def test_no_role_is_shared_and_nobody_else_may_anything(template: Template) -> None:
    roles = {target(template.function(name)[1]["Role"]) for name in FUNCTIONS}
    assert set(template.of("AWS::IAM::Role")) == roles
    assert len(roles) == len(FUNCTIONS)
    for kind in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy", "AWS::IAM::RolePolicy"):
        assert not template.of(kind)
    for role in roles:
        document = template.resources[role]["Properties"]["AssumeRolePolicyDocument"]
        assert [statement["Principal"] for statement in document["Statement"]] == [
            {"Service": "lambda.amazonaws.com"}
        ]


def test_no_policy_of_a_resource_lets_anybody_in(template: Template) -> None:
    # Besides those of roles: the queues', which refuse only, and who may call the sweeper.
    kinds = {held["Type"] for held in template.resources.values()}
    assert {kind for kind in kinds if kind.endswith(("Policy", "Permission", "Url", "Grant"))} == {
        "AWS::SQS::QueuePolicy",
        "AWS::Lambda::Permission",
    }
    for policy in template.of("AWS::SQS::QueuePolicy").values():
        statements = policy["Properties"]["PolicyDocument"]["Statement"]
        assert {statement["Effect"] for statement in statements} == {"Deny"}
    for held in template.resources.values():
        assert not {"ResourcePolicy", "Policy"} & set(held["Properties"]), held["Type"]
    _, permission = template.one("AWS::Lambda::Permission")
    assert permission["Principal"] == "events.amazonaws.com"


@pytest.mark.parametrize("tracing", [False, True])
def test_the_only_wildcard_is_x_rays(synthesise: Synthesise, tracing: bool) -> None:
    made = synthesise(tracing=tracing)
    for name in FUNCTIONS:
        rights = allowed(made, name)
        assert rights.get("*", set()) == (
            {"xray:PutTraceSegments", "xray:PutTelemetryRecords"} if tracing else set()
        )
        assert not any("*" in action for actions in rights.values() for action in actions)
        mode = made.function(name)[1].get("TracingConfig", {"Mode": "PassThrough"})
        assert mode == {"Mode": "Active" if tracing else "PassThrough"}


def test_mapping_of_queue_to_consumer(synthesise: Synthesise) -> None:
    made = synthesise(batch_size="250", batch_window_seconds="5", max_concurrency="40")
    _, mapping = made.one("AWS::Lambda::EventSourceMapping")
    assert target(mapping["EventSourceArn"]) == made.queue()[0]
    assert target(mapping["FunctionName"]) == made.function("consumer")[0]
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert mapping["BatchSize"] == 250
    assert mapping["MaximumBatchingWindowInSeconds"] == 5
    assert mapping["ScalingConfig"] == {"MaximumConcurrency": 40}


def test_environment_of_each(synthesise: Synthesise) -> None:
    made = synthesise(
        partition_key="file", default_timeout_seconds="60", retention_days="40", log_level="DEBUG"
    )
    telling = {
        "EVENT_BUS_NAME": {"Ref": made.bus()[0]},
        "DEAD_LETTER_QUEUE_URL": {"Ref": made.dead_letters()[0]},
    }
    for name in FUNCTIONS:
        assert made.function(name)[1]["Environment"]["Variables"] == {
            "TABLE_NAME": {"Ref": made.table()[0]},
            "PARTITION_KEY": "file",
            **({} if name == "widget" else telling),
            "DEFAULT_TIMEOUT_SECONDS": "60",
            "RETENTION_SECONDS": str(40 * 86_400),
            "POWERTOOLS_SERVICE_NAME": "xorack",
            "POWERTOOLS_METRICS_NAMESPACE": "xorack",
            "POWERTOOLS_LOG_LEVEL": "DEBUG",
        }


@pytest.mark.parametrize("architecture", ["arm64", "x86_64"])
def test_runtime_and_its_layer_fit_together(synthesise: Synthesise, architecture: str) -> None:
    made = synthesise(architecture=architecture, powertools_version="3.30.0", memory_mb="512")
    for name in FUNCTIONS:
        _, function = made.function(name)
        assert function["Runtime"] == "python3.13"
        assert function["Architectures"] == [architecture]
        assert function["MemorySize"] == 512
        (layer,) = function["Layers"]
        assert made.body["Parameters"][target(layer)] == {
            "Type": "AWS::SSM::Parameter::Value<String>",
            "Default": f"/aws/service/powertools/python/{architecture}/python3.13/3.30.0",
        }


@pytest.mark.parametrize("level", ["DEBUG", "INFO"])
def test_each_function_logs_json_to_its_own_group_which_is_kept_for_a_while(
    synthesise: Synthesise, level: str
) -> None:
    made = synthesise(log_retention_days="90", log_level=level)
    groups = {log_group(made, name) for name in FUNCTIONS}
    assert groups == set(made.of("AWS::Logs::LogGroup"))
    assert len(groups) == len(FUNCTIONS)
    for name in FUNCTIONS:
        logging = made.function(name)[1]["LoggingConfig"]
        assert logging["LogFormat"] == "JSON"
        # Anything quieter would drop metrics: to Lambda's filter, lines without a level are INFO.
        assert (logging["ApplicationLogLevel"], logging["SystemLogLevel"]) == (level, "INFO")
        assert made.resources[log_group(made, name)]["Properties"]["RetentionInDays"] == 90


def test_every_log_retention_that_is_allowed_has_its_name() -> None:
    from xorack.cdk.function import _RETENTIONS
    from xorack.cdk.settings import _LOG_RETENTION_DAYS

    assert tuple(_RETENTIONS) == _LOG_RETENTION_DAYS
    from aws_cdk import aws_logs

    assert set(_RETENTIONS.values()) == set(aws_logs.RetentionDays) - {
        aws_logs.RetentionDays.INFINITE
    }


def test_sweeper_runs_each_minute_and_is_not_retried(template: Template) -> None:
    sweeper, _ = template.function("sweeper")
    rule_id, rule = template.one("AWS::Events::Rule")
    assert rule["ScheduleExpression"] == "rate(1 minute)"
    assert rule["State"] == "ENABLED"
    assert [target(to["Arn"]) for to in rule["Targets"]] == [sweeper]
    _, permission = template.one("AWS::Lambda::Permission")
    assert target(permission["FunctionName"]) == sweeper
    assert permission["Principal"] == "events.amazonaws.com"
    assert target(permission["SourceArn"]) == rule_id
    _, invoke = template.one("AWS::Lambda::EventInvokeConfig")
    assert target(invoke["FunctionName"]) == sweeper
    assert invoke["MaximumRetryAttempts"] == 0


def test_outputs(template: Template) -> None:
    outputs = {name: held["Value"] for name, held in template.body["Outputs"].items()}
    assert outputs == {
        "TableName": {"Ref": template.table()[0]},
        "QueueUrl": {"Ref": template.queue()[0]},
        "DeadLetterQueueUrl": {"Ref": template.dead_letters()[0]},
        "EventBusName": {"Ref": template.bus()[0]},
        "ConsumerName": {"Ref": template.function("consumer")[0]},
        "SweeperName": {"Ref": template.function("sweeper")[0]},
        "DashboardName": {"Ref": template.one("AWS::CloudWatch::Dashboard")[0]},
    }


def strings(value: Any) -> Iterator[str]:
    """Every string in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, held in value.items():
            yield key
            yield from strings(held)
    elif isinstance(value, list):
        for held in value:
            yield from strings(held)


def test_the_template_names_no_account_region_or_machine(template: Template) -> None:
    import re
    from pathlib import Path

    home = str(Path(__file__).resolve().parents[2])
    for text in strings(template.body):
        assert home not in text
        assert not re.search(r"\b\d{12}\b|\b[a-z]{2}-[a-z]+-\d\b", text), text
