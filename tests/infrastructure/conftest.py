"""Synthesised templates, shared by all tests here."""

import json
from typing import Any

import pytest

import infra  # noqa: F401 - tells jsii which node to run, before aws_cdk starts one

# isort: split
from aws_cdk import App, Stack

from infra.synth import synth
from lambda_src import consumer
from xorack.core.message import pack
from xorack.core.request import Request

from .templates import HERE, Template

VARIED = {
    "stack_name": "other",
    "partition_key": "file",
    "default_timeout_seconds": "60",
    "mask": "customer,email",
    "function_timeout_seconds": "100",
    "memory_mb": "512",
    "architecture": "x86_64",
    "batch_size": "250",
    "batch_window_seconds": "5",
    "max_concurrency": "30",
    "max_receive_count": "3",
    "retention_days": "40",
    "deletion_protection": "false",
    "removal_policy": "destroy",
    "tracing": "true",
    "log_retention_days": "90",
    "alarm_topic_arn": "arn:aws:sns:eu-west-1:123456789012:alarms",
    "failed_chains_threshold": "25",
    "contributor_insights": "true",
    "resume": "all",
    "monitoring": "full",
    "deny_forged_events": "false",
}


@pytest.fixture(scope="session")
def synthesise(tmp_path_factory):
    """Synthesise with settings, once for each set of settings."""
    templates: dict[str, Template] = {}

    def with_settings(**settings: Any) -> Template:
        key = json.dumps(settings, sort_keys=True)
        if key not in templates:
            templates[key] = Template.read(synth(tmp_path_factory.mktemp("cdk"), settings))
        return templates[key]

    return with_settings


@pytest.fixture
def stack():
    return Stack(App(), "Mine")


@pytest.fixture
def here():
    """A stack whose account and region are known."""
    return Stack(App(), "Mine", env=HERE)


def synthesised(**settings: Any) -> Any:
    """A fixture: the template of these settings."""

    @pytest.fixture(scope="session")
    def made(synthesise):
        return synthesise(**settings)

    return made


template = synthesised()
varied = synthesised(**VARIED)
"""A stack in which nearly every setting differs from its default."""
adopted = synthesised(table_name="chains")
full = synthesised(monitoring="full")
minimal = synthesised(
    monitoring="minimal",
    batch_size=10,
    tracing="true",
    architecture="x86_64",
    alarm_topic_arn=VARIED["alarm_topic_arn"],
)
"""Little monitoring, and settings that change no stateful resource."""


@pytest.fixture
def deployed(aws, monkeypatch):
    """The resources of `aws`, named by the functions' environment."""
    for name, value in aws.environ().items():
        monkeypatch.setenv(name, value)
    return aws


def consume(*requests: Request, bodies: tuple[str, ...] = ()) -> None:
    """Invoke the consumer with requests, and with other messages."""
    records = [
        {"messageId": f"m{i}", "body": body, "eventSource": "aws:sqs", "attributes": {}}
        for i, body in enumerate((*pack(requests), *bodies))
    ]
    assert consumer.handler({"Records": records}, None) == {"batchItemFailures": []}
