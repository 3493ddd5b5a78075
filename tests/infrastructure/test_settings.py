"""Settings: where each shows in the template, and the values that it accepts."""

import dataclasses
import inspect
import re

import pytest
from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER

from infra.settings import StackSettings
from infra.synth import ROOT
from xorack.cdk import settings as module
from xorack.cdk.alarms import last_write_seconds
from xorack.cdk.settings import Settings
from xorack.errors import ArgumentError

NAMES = [field.name for field in dataclasses.fields(StackSettings)]
OWN = len(dataclasses.fields(Settings))


NUMBERS = [
    ("function_timeout_seconds", 10, 900, "seconds"),
    ("sweeper_timeout_seconds", 10, 900, "seconds"),
    ("memory_mb", 512, 10_240, "MB"),
    ("batch_size", 1, 10_000, "messages"),
    ("batch_window_seconds", 0, 300, "seconds"),
    ("max_concurrency", 2, 1000, "concurrent invocations"),
    ("min_pollers", 2, 200, "pollers"),
    ("max_pollers", 2, 2000, "pollers"),
    ("sweeper_reserved_concurrency", 1, 100, "concurrent executions"),
    ("max_receive_count", 1, 1000, "receives"),
    ("queue_retention_days", 1, 13, "days"),
    ("dead_letter_retention_days", 2, 14, "days"),
    ("default_timeout_seconds", 1, 315_360_000, "seconds"),
    ("retention_days", 1, 3650, "days"),
    ("failed_chains_threshold", 0, 1_000_000, "failed chains"),
    ("queue_age_threshold_seconds", 60, 1_209_600, "seconds"),
]
TOPIC = "the ARN of an SNS topic"
INVALID = [
    *(({"batch_size": value}, "a whole number from 1 to 10000 (messages)")
      for value in ("10001", "many", 2.5, True, None)),
    ({"function_timeout_seconds": "3"}, "a whole number from 10 to 900 (seconds)"),
    ({"batch_size": 11, "batch_window_seconds": 0}, "1 to 300 seconds, since batch_size is 11"),
    ({"queue_retention_days": 7, "dead_letter_retention_days": 7},
     "more than queue_retention_days (7)"),
    ({"queue_retention_days": 4, "dead_letter_retention_days": 14, "retention_days": 18},
     "more than 18 days (queue_retention_days + dead_letter_retention_days)"),
    ({"log_retention_days": 31}, "one of 1, 3, 5, 7, 14, 30,"),
    ({"log_level": "ERROR"}, "one of DEBUG, INFO"),
    ({"architecture": "arm"}, "one of arm64, x86_64"),
    ({"removal_policy": "keep"}, "one of retain, destroy"),
    ({"removal_policy": "destroy"}, "deletion_protection=false as well"),
    ({"deletion_protection": "maybe"}, "true or false"),
    ({"deletion_protection": 1}, "true or false"),
    ({"tracing": "yes"}, "true or false"),
    ({"monitoring": "none"}, "one of full, minimal"),
    ({"notify_ok": "yes"}, "true or false"),
    *(({"partition_key": value}, "text of 1 to 255 bytes") for value in ("", " tag", "ä" * 128, 7)),
    ({"partition_key": "stamp"}, "not the name of another attribute"),
    ({"table_name": "my chains"}, "the name of a table: 3 to 255 letters, digits, _, - and ."),
    ({"table_name": "arn:aws:dynamodb:eu-west-1:123456789012:table/chains"}, "the name of a table"),
    ({"alarm_topic_arn": "alarms"}, TOPIC),
    ({"alarm_topic_arn": "arn:aws:sqs:eu-west-1:123456789012:alarms"}, TOPIC),
    ({"service": "a b"}, "letters, digits, hyphens and underscores"),
    ({"min_pollers": "2", "max_concurrency": "5"}, "none, since provisioned pollers replace it"),
    ({"max_pollers": "9", "max_concurrency": "5"}, "none, since provisioned pollers replace it"),
    ({"min_pollers": "9", "max_pollers": "8"}, "min_pollers (9) or more"),
    ({"senders": "somebody"}, "accounts (12 digits), ARNs of roles or users, services such as"),
    ({"event_bus_arn": "company"}, "the ARN of an event bus"),
    ({"encryption_key_arn": "arn:aws:kms:eu-west-1:123456789012:alias/mine"}, "not of an alias"),
    ({"vpc_id": "vpc-12345678", "subnet_ids": ""}, "both vpc_id and subnet_ids, or none"),
    ({"parameter_prefix": "xorack"}, "a path such as /xorack"),
    ({"max_concurency": "5"}, "did you mean `max_concurrency`?"),
    ({"batch-size": "5"}, "did you mean `batch_size`?"),
    *(({"stack_name": name}, "1 to 128 letters, digits and hyphens") for name in ("9l", "a b", "")),
]  # fmt: skip


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


@pytest.mark.parametrize(("name", "low", "high", "unit"), NUMBERS)
def test_a_whole_number_has_a_range(name, low, high, unit):
    # Other settings that make an end valid.
    besides = {
        ("batch_window_seconds", 0): {"batch_size": 10},
        ("dead_letter_retention_days", 2): {"queue_retention_days": 1},
    }
    for value in (low, high):
        if (name, value) != ("retention_days", 1):  # always less than the queues'
            settings = Settings(**{name: value, **besides.get((name, value), {})})
            assert getattr(settings, name) == value
    for value in (low - 1, high + 1):
        expected = f"{name}: {value}, expected a whole number from {low} to {high} ({unit})"
        with pytest.raises(ArgumentError, match=re.escape(expected)):
            Settings(**{name: value})


def test_the_numbers_are_all_settings_of_that_type():
    numbers = {f.name for f in dataclasses.fields(Settings) if f.type.startswith("int")}
    others = {"log_retention_days", "pending_timeout_seconds"}
    assert numbers == others | {name for name, *_ in NUMBERS}


def test_the_shortest_timeout_leaves_the_consumer_time_to_write():
    # With less than what it reserves, it writes nothing, and every message comes back for ever.
    least = {name: low for name, low, *_ in NUMBERS}["function_timeout_seconds"]
    assert last_write_seconds(least) >= 4


def test_log_retention_has_the_choices_of_cloudwatch():
    kind = PROVIDER_SCHEMA_MANAGER.get_resource_schema("us-east-1", "AWS::Logs::LogGroup")
    choices = kind.schema["properties"]["RetentionInDays"]["enum"]
    assert tuple(choices) == module._LOG_RETENTION_DAYS


def test_the_context_is_text_and_the_settings_are_typed():
    assert Settings.from_context({}) == Settings()
    read = Settings.from_context({
        "batch_size": "20",
        "tracing": "True",
        "deletion_protection": "false",
        "removal_policy": "destroy",
        "partition_key": "file",
        "alarm_topic_arn": "",
        "@aws-cdk/core:newStyleStackSynthesis": "true",
        "vpc-provider:account=1": {},
        "somebody's own": 3,
    })  # fmt: skip
    typed = {"batch_size": 20, "tracing": True, "deletion_protection": False}
    assert read == Settings(**typed, removal_policy="destroy", partition_key="file")


def test_each_setting_is_described():
    # getdoc: before Python 3.13, a docstring keeps its indentation.
    described = []
    for kind, names in ((Settings, NAMES[:OWN]), (StackSettings, NAMES[OWN:])):
        found = re.findall(r"^    (\w+): ", inspect.getdoc(kind) or "", re.MULTILINE)
        described += found[: len(names)]
    assert described == NAMES


def test_the_handbook_has_every_setting_with_its_default():
    handbook = (ROOT / "docs" / "operations.md").read_text().partition("## Settings")[2]
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| \S.*\|$", handbook, re.MULTILINE)
    words = {"None": "none", "True": "`true`", "False": "`false`"}
    defaults = {
        field.name: words.get(str(field.default), f"`{field.default}`")
        for field in dataclasses.fields(StackSettings)
    }
    assert [name for name, _ in rows] == NAMES
    named = {
        "service": "the stack's name",
        "pending_timeout_seconds": "the queue's retention",
        "max_concurrency": "`5`",
    }
    assert dict(rows) == {**defaults, **named}
