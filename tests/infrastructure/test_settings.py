"""Settings: where each shows in the template, and the values that it accepts."""

import dataclasses
import re

import pytest
from aws_cdk import CfnParameter, Duration, RemovalPolicy
from aws_cdk.aws_lambda import Architecture
from aws_cdk.aws_logs import RetentionDays
from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER

from infra.settings import StackSettings
from xorack.cdk import settings as module
from xorack.cdk.settings import Settings
from xorack.core.budget import Budget, TimeOuts
from xorack.errors import ArgumentError

NAMES = [field.name for field in dataclasses.fields(StackSettings)]
EXPECTED = {one.name: one.metadata["expected"] for one in dataclasses.fields(StackSettings)}


TOPIC = "the ARN of an SNS topic"
INVALID = [
    *(
        ({"batch_size": value}, "a whole number from 1 to 10000 (messages)")
        for value in ("10001", "many", 2.5, True)
    ),
    ({"function_timeout_seconds": "3"}, "a whole number from 10 to 900 (seconds)"),
    ({"batch_size": 11, "batch_window_seconds": 0}, "1 to 300 seconds, because batch_size is 11"),
    ({"profile": "fast"}, "one of low-cost, low-latency"),
    ({"log_retention_days": 31}, "one of 1, 3, 5, 7, 14, 30,"),
    ({"removal_policy": "destroy"}, "also deletion_protection=false"),
    ({"deletion_protection": "maybe"}, "true or false"),
    ({"deletion_protection": 1}, "true or false"),
    *(({"partition_key": value}, "text of 1 to 255 bytes") for value in ("", " tag", "ä" * 128, 7)),
    ({"partition_key": "stamp"}, "not the name of another attribute"),
    ({"table_name": "my chains"}, "the name of a table: 3 to 255 letters, digits, _, - and ."),
    ({"table_name": "arn:aws:dynamodb:eu-west-1:123456789012:table/chains"}, "the name of a table"),
    ({"alarm_topic_arn": "arn:aws:sqs:eu-west-1:123456789012:alarms"}, TOPIC),
    *(({"mask": names}, "names of fields, such as") for names in ("a,,b", "a, ")),
    ({"senders": "somebody"}, "accounts (12 digits), ARNs of roles or users, services such as"),
    ({"event_bus_arn": "company"}, "the ARN of an event bus"),
    ({"encryption_key_arn": "arn:aws:kms:eu-west-1:123456789012:alias/mine"}, "not of an alias"),
    ({"resume": "step_functions,lambda"}, "one of none, step_functions, lambda, all"),
    ({"max_concurency": "5"}, "did you mean `max_concurrency`?"),
    ({"batch-size": "5"}, "did you mean `batch_size`?"),
    *(({"stack_name": name}, "1 to 128 letters, digits and hyphens") for name in ("9l", "a b", "")),
]


@pytest.mark.parametrize(("settings", "expected"), INVALID)
def test_an_invalid_setting_is_named(settings, expected):
    name, value = list(settings.items())[-1]
    with pytest.raises(ArgumentError) as caught:
        StackSettings.from_context(settings)
    message = str(caught.value)
    assert re.match(rf"setting {name}: \S.*, expected ", message)
    assert ascii(str(value))[1:-1][:70] in message
    assert expected in message
    assert "\n" not in message
    assert caught.value.field == f"setting {name}"


@pytest.mark.parametrize("name", [one for one in NAMES if "whole number" in EXPECTED[one]])
def test_a_whole_number_has_the_range_that_the_error_names(name):
    low, high = map(int, re.findall(r"\d+", EXPECTED[name]))
    besides = {"batch_size": 10} if name == "batch_window_seconds" else {}
    for value in (high, low):
        assert getattr(Settings(**{name: value, **besides}), name) == value
    for value in (low - 1, high + 1):
        with pytest.raises(ArgumentError, match=re.escape(f"{name}: {value}, expected a whole")):
            Settings(**{name: value})


def test_the_shortest_timeout_leaves_the_consumer_time_to_write():
    # With less than what it reserves, it writes nothing, and every message comes back for ever.
    shortest = int(re.findall(r"\d+", EXPECTED["function_timeout_seconds"])[0])
    budget = Budget(lambda: shortest, TimeOuts.within(shortest), later_steps=2)
    assert budget.left() >= 4


def test_log_retention_has_the_choices_of_cloudwatch():
    kind = PROVIDER_SCHEMA_MANAGER.get_resource_schema("us-east-1", "AWS::Logs::LogGroup")
    choices = kind.schema["properties"]["RetentionInDays"]["enum"]
    assert choices == [*module._LOG_RETENTION.values()]
    names = [one.name for one in RetentionDays if one is not RetentionDays.INFINITE]
    assert names == [*module._LOG_RETENTION]


def test_values_of_the_cdk_are_the_numbers_and_the_text_of_the_command_line():
    given = Settings(
        function_timeout_seconds=Duration.minutes(2),
        retention_days=Duration.hours(480),
        log_retention_days=RetentionDays.ONE_WEEK,
        removal_policy=RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE,
        architecture=Architecture.X86_64,
        mask=["customer", "email"],
    )
    plain = {
        "function_timeout_seconds": "120",
        "retention_days": "20",
        "log_retention_days": "7",
        "removal_policy": "retain",
        "architecture": "x86_64",
        "mask": "customer,email",
    }
    assert given == Settings.from_context(plain)
    assert dataclasses.replace(given, tracing=True).log_retention_days == 7
    for wrong, line in (
        ({"retention_days": Duration.hours(492)}, "days: 20.5, expected a whole number from 19"),
        ({"default_timeout_seconds": Duration.millis(1500)}, "seconds: 1.5, expected a whole"),
        ({"default_timeout_seconds": Duration.days(4000)}, "345600000, expected a whole number"),
        ({"removal_policy": RemovalPolicy.SNAPSHOT}, "'snapshot', expected one of retain, destroy"),
        ({"log_retention_days": RetentionDays.INFINITE}, "'INFINITE', expected one of 1, 3, 5"),
    ):
        with pytest.raises(ArgumentError, match=line):
            Settings(**wrong)


def test_a_token_is_taken_where_the_deployment_may_decide_and_named_elsewhere(stack):
    number = CfnParameter(stack, "Number", type="Number").value_as_number
    text = CfnParameter(stack, "Text").value_as_string
    late = Settings(
        batch_size=number,
        max_concurrency=number,
        memory_mb=number,
        default_timeout_seconds=Duration.seconds(number),
        retention_days=Duration.seconds(number),
        log_retention_days=number,
        failed_chains_threshold=number,
        alarm_topic_arn=text,
    )
    assert stack.resolve(late.retention_seconds) == {"Ref": "Number"}
    for wrong, line in (
        (
            {"function_timeout_seconds": number},
            "10 to 900 .seconds., not a token, because the synthesis",
        ),
        (
            {"max_receive_count": number},
            "receives., not a token, because the synthesis needs its value",
        ),
        (
            {"table_name": text},
            r"table_name: '\$\{Token\[TOKEN.*, not a token, because the synthesis",
        ),
        ({"retention_days": number}, "a number of days, or `Duration.seconds` of a token"),
        ({"batch_size": number, "batch_window_seconds": 0}, "expected 1 to 300 seconds, because"),
    ):
        with pytest.raises(ArgumentError, match=line):
            Settings(**wrong)


def test_a_profile_sets_the_batches_and_settings_replace_it():
    quick = Settings(profile="low-latency")
    assert (quick.batch_size, quick.batch_window_seconds) == (10, 0)
    assert quick.visibility_timeout_seconds == 6 * 60
    assert Settings(profile="low-latency", batch_size=3).batch_size == 3
    assert (Settings().batch_size, Settings().batch_window_seconds) == (1_000, 1)


def test_the_context_is_text_and_the_settings_are_typed():
    assert Settings.from_context({}) == Settings()
    read = Settings.from_context(
        {
            "batch_size": "20",
            "tracing": "True",
            "deletion_protection": "false",
            "removal_policy": "destroy",
            "partition_key": "file",
            "alarm_topic_arn": "",
            "@aws-cdk/core:newStyleStackSynthesis": "true",
            "vpc-provider:account=1": {},
            "somebody's own": 3,
        }
    )
    typed = {"batch_size": 20, "tracing": True, "deletion_protection": False}
    assert read == Settings(**typed, removal_policy="destroy", partition_key="file")
