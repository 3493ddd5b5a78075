"""An invalid setting stops the synthesis with a line that names it."""

import dataclasses
import inspect
import re
from pathlib import Path

import pytest
from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER

from lambda_src import environment
from xorack.cdk import settings as module
from xorack.cdk.settings import SettingError, Settings

ROOT = Path(__file__).resolve().parents[2]
NAMES = [field.name for field in dataclasses.fields(Settings)]


def test_the_defaults_are_valid():
    assert Settings.from_context({}) == Settings()


@pytest.mark.parametrize(
    ("given", "name", "text"),
    [
        ({"batch_size": 0}, "batch_size", "a whole number from 1 to 10000 (messages)"),
        *(
            ({"batch_size": value}, "batch_size", "a whole number from 1 to 10000 (messages)")
            for value in ("10001", "many", 2.5, True, None)
        ),
        ({"batch_window_seconds": 301}, "batch_window_seconds", "from 0 to 300 (seconds)"),
        (
            {"batch_window_seconds": 0, "batch_size": 11},
            "batch_window_seconds",
            "1 to 300 seconds, since batch_size is 11",
        ),
        ({"max_concurrency": 1}, "max_concurrency", "from 2 to 1000"),
        ({"max_concurrency": 1001}, "max_concurrency", "from 2 to 1000"),
        ({"max_receive_count": 0}, "max_receive_count", "from 1 to 1000"),
        ({"function_timeout_seconds": 3}, "function_timeout_seconds", "from 10 to 900 (seconds)"),
        ({"function_timeout_seconds": "9"}, "function_timeout_seconds", "from 10 to 900 (seconds)"),
        ({"function_timeout_seconds": 901}, "function_timeout_seconds", "from 10 to 900 (seconds)"),
        ({"sweeper_timeout_seconds": 5}, "sweeper_timeout_seconds", "from 10 to 900 (seconds)"),
        ({"memory_mb": 64}, "memory_mb", "from 128 to 10240 (MB)"),
        ({"queue_retention_days": 14}, "queue_retention_days", "from 1 to 13 (days)"),
        (
            {"queue_retention_days": 7, "dead_letter_retention_days": 7},
            "dead_letter_retention_days",
            "more than queue_retention_days (7)",
        ),
        (
            {"queue_retention_days": 4, "dead_letter_retention_days": 14, "retention_days": 18},
            "retention_days",
            "more than 18 days (queue_retention_days + dead_letter_retention_days)",
        ),
        ({"default_timeout_seconds": 0}, "default_timeout_seconds", "(seconds)"),
        ({"log_retention_days": 31}, "log_retention_days", "one of 1, 3, 5, 7, 14, 30,"),
        ({"log_level": "ERROR"}, "log_level", "one of DEBUG, INFO"),
        ({"architecture": "arm"}, "architecture", "one of arm64, x86_64"),
        ({"removal_policy": "keep"}, "removal_policy", "one of retain, destroy"),
        ({"removal_policy": "destroy"}, "removal_policy", "deletion_protection=false as well"),
        ({"deletion_protection": "maybe"}, "deletion_protection", "true or false"),
        ({"deletion_protection": 1}, "deletion_protection", "true or false"),
        ({"tracing": "yes"}, "tracing", "true or false"),
        ({"partition_key": ""}, "partition_key", "1 to 255 bytes"),
        ({"partition_key": " tag"}, "partition_key", "1 to 255 bytes"),
        ({"partition_key": "ä" * 128}, "partition_key", "1 to 255 bytes"),
        ({"partition_key": "stamp"}, "partition_key", "no other attribute"),
        ({"partition_key": 7}, "partition_key", "expected text"),
        ({"powertools_version": "latest"}, "powertools_version", "such as 3.37.0"),
        ({"powertools_version": "2.9.1"}, "powertools_version", "from 3.0.0 on"),
        ({"alarm_topic_arn": "alarms"}, "alarm_topic_arn", "the ARN of an SNS topic"),
        (
            {"alarm_topic_arn": "arn:aws:sqs:eu-west-1:123456789012:alarms"},
            "alarm_topic_arn",
            "the ARN of an SNS topic",
        ),
        ({"failed_chains_threshold": -1}, "failed_chains_threshold", "from 0 to 1000000"),
        ({"dashboard": "no"}, "dashboard", "true or false"),
        ({"service": "a b"}, "service", "letters, digits, hyphens and underscores"),
        ({"max_concurency": "5"}, "max_concurency", "did you mean `max_concurrency`?"),
        ({"batch-size": "5"}, "batch-size", "did you mean `batch_size`?"),
    ],
)
def test_an_invalid_setting_is_named(given, name, text):
    with pytest.raises(SettingError) as caught:
        Settings.from_context(given)
    message = str(caught.value)
    assert re.match(rf"setting `{re.escape(name)}` is \S.*: expected ", message)
    assert str(given[name]) in message
    assert text in message
    assert "\n" not in message
    assert caught.value.name == name


def test_every_whole_number_accepts_the_ends_of_its_range():
    # Other settings that make an end valid.
    besides = {
        ("batch_window_seconds", 0): {"batch_size": 10},
        ("dead_letter_retention_days", 2): {"queue_retention_days": 1},
        ("queue_retention_days", 13): {"dead_letter_retention_days": 14},
    }
    for field in dataclasses.fields(Settings):
        if field.type != "int" or field.name in {"log_retention_days", "retention_days"}:
            continue
        (ends,) = re.findall(r"a whole number from (\d+) to (\d+)", field.metadata["expected"])
        for value in map(int, ends):
            settings = {field.name: value, **besides.get((field.name, value), {})}
            assert getattr(Settings(**settings), field.name) == value


def test_the_shortest_timeout_leaves_the_consumer_time_to_write():
    # With less than what it reserves, it writes nothing, and every message comes back for ever.
    assert Settings(function_timeout_seconds=10)
    assert 10 - environment._AFTER_WRITES_SECONDS >= 5


def test_log_retention_has_the_choices_of_cloudwatch():
    kind = PROVIDER_SCHEMA_MANAGER.get_resource_schema("us-east-1", "AWS::Logs::LogGroup")
    choices = kind.schema["properties"]["RetentionInDays"]["enum"]
    assert tuple(choices) == module._LOG_RETENTION_DAYS


def test_the_context_is_text_and_the_settings_are_typed():
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
    assert read == Settings(
        batch_size=20,
        tracing=True,
        deletion_protection=False,
        removal_policy="destroy",
        partition_key="file",
    )


def test_each_setting_is_described():
    # getdoc: before Python 3.13, a docstring keeps its indentation.
    described = re.findall(r"^    (\w+): ", inspect.getdoc(Settings) or "", re.MULTILINE)
    assert described[: len(NAMES)] == NAMES


def test_the_layer_is_the_powertools_that_the_tests_use():
    requirements = (ROOT / "requirements.txt").read_text().splitlines()
    assert f"aws-lambda-powertools=={Settings().powertools_version}" in requirements


def test_the_handbook_has_every_setting_with_its_default():
    handbook = (ROOT / "docs" / "operations.md").read_text().partition("## Settings")[2]
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| \S.*\|$", handbook, re.MULTILINE)
    words = {"None": "none", "True": "`true`", "False": "`false`"}
    defaults = {
        field.name: words.get(str(field.default), f"`{field.default}`")
        for field in dataclasses.fields(Settings)
    }
    assert [name for name, _ in rows] == NAMES
    assert dict(rows) == {**defaults, "service": "the stack's name"}
