"""The stacks that are judged: this project's with several settings, and stacks of users."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from infra.synth import ROOT, build  # isort: skip - before aws_cdk: it finds node

from aws_cdk import App, Duration, Stack, aws_dynamodb, aws_ec2, aws_events, aws_kms, aws_sqs

from examples.own_stack.app import Warehouse
from xorack.cdk.acker import Acker
from xorack.cdk.function import Network

_WITH_PATHS: Final = {"aws:cdk:enable-path-metadata": True}


@dataclass(frozen=True)
class Judged:
    """A stack to judge.

    Attributes:
        name: Its name in messages, and before the names of resources that are not the acker's.
        stack: The stack.
        given: The settings and arguments that it has, of those that the table names.
    """

    name: str
    app: App
    stack: Stack
    given: frozenset[str] = frozenset()

    @cached_property
    def template(self) -> dict[str, Any]:
        """The synthesised template."""
        assembly = self.app.synth()
        path = assembly.get_stack_by_name(self.stack.stack_name).template_full_path
        return dict(json.loads(Path(path).read_text(encoding="utf-8")))

    @property
    def plain(self) -> dict[str, Any]:
        """The template without the metadata of its resources."""
        resources = {
            name: {key: value for key, value in resource.items() if key != "Metadata"}
            for name, resource in self.template["Resources"].items()
        }
        return {**self.template, "Resources": resources}

    def named(self, logical_id: str) -> str:
        """Return a resource's name in the table, by its logical id."""
        resource = self.template["Resources"].get(logical_id, {})
        return self.placed(resource.get("Metadata", {}).get("aws:cdk:path", logical_id))

    def placed(self, path: str) -> str:
        """Return a resource's name in the table, by its construct's path."""
        place = path.removeprefix(f"{self.stack.node.id}/").removesuffix("/Resource")
        inside = place.removeprefix("Acker/")
        return inside if inside != place else f"{self.name}:{place}"


def with_settings(name: str, given: set[str], **settings: object) -> Judged:
    """Build this project's stack with settings."""
    return Judged(name, *build({**settings, **_WITH_PATHS}), frozenset(given))


def example() -> Judged:
    """Build the example of a stack with an acker, a key, a network, a bus and a topic."""
    text = (ROOT / "examples" / "own_stack" / "cdk.json").read_text(encoding="utf-8")
    app = _app(json.loads(text)["context"])
    given = {"alarm_topic", "encryption_key", "network", "tracing"}
    return Judged("example", app, Warehouse(app, "warehouse"), frozenset(given))


def adopted() -> Judged:
    """Build a stack whose acker adopts a table, queues, a bus and a network."""
    app = _app(json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))["context"])
    stack = Stack(app, "adopting")
    key = aws_kms.Key(stack, "Key", enable_key_rotation=True)
    encrypted: dict[str, Any] = {
        "encryption": aws_sqs.QueueEncryption.KMS,
        "encryption_master_key": key,
        "enforce_ssl": True,
    }
    letters = aws_sqs.Queue(stack, "Letters", retention_period=Duration.days(14), **encrypted)
    queue = aws_sqs.Queue(
        stack,
        "Stamps",
        retention_period=Duration.days(4),
        visibility_timeout=Duration.minutes(7),
        dead_letter_queue=aws_sqs.DeadLetterQueue(queue=letters, max_receive_count=5),
        **encrypted,
    )
    bus = aws_events.EventBus.from_event_bus_name(stack, "Bus", "company")
    vpc = aws_ec2.Vpc.from_vpc_attributes(
        stack,
        "Vpc",
        vpc_id="vpc-12345678",
        availability_zones=["eu-west-1a", "eu-west-1b"],
        private_subnet_ids=["subnet-12345678", "subnet-23456789"],
        private_subnet_route_table_ids=["rtb-12345678", "rtb-23456789"],
    )
    table = aws_dynamodb.Table.from_table_name(stack, "Chains", "chains")
    Acker(stack, "Acker", table=table, queue=queue, bus=bus, network=Network(vpc=vpc))
    return Judged("adopting", app, stack, frozenset({"network"}))


def judged_stacks() -> list[Judged]:
    """Build all stacks; it takes some seconds."""
    return [
        with_settings("defaults", set()),
        with_settings(
            "settings",
            {"alarm_topic", "tracing"},
            alarm_topic_arn="arn:aws:sns:eu-west-1:123456789012:alarms",
            architecture="x86_64",
            deletion_protection=False,
            removal_policy="destroy",
            resume="all",
            rollout="canary",
            sweeper_reserved_concurrency=2,
            tracing=True,
        ),
        adopted(),
        example(),
    ]


def _app(context: Mapping[str, object]) -> App:
    return App(context={**context, **_WITH_PATHS}, tree_metadata=False)
