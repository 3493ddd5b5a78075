"""Checks the templates of four stacks with cdk-nag, and writes them for cfn-lint and checkov.

`make policy-lint` runs all three (docs/security.md). Each accepted finding has an `Answer`: cdk-nag
reads it as an acknowledgement, cfn-lint and checkov read it from the metadata of the resource.

    python -m tools.policy_lint [FOLDER]    # of the templates; by default cdk.out/policy-lint
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from infra.stack import XorackStack  # isort: skip - before aws_cdk, because it finds Node

import cdk_nag
import yaml
from aws_cdk import (
    Acknowledgment,
    App,
    CfnResource,
    Duration,
    Stack,
    Validations,
    aws_dynamodb,
    aws_ec2,
    aws_events,
    aws_kms,
    aws_sqs,
)

from examples.own_stack.app import Warehouse
from infra.settings import StackSettings
from xorack.cdk import Acker, Network

ROOT: Final = Path(__file__).resolve().parent.parent
PACKS: Final[dict[str, Any]] = {
    "AwsSolutions": cdk_nag.AwsSolutionsChecks,
    "HIPAA.Security": cdk_nag.HIPAASecurityChecks,
    "NIST.800.53.R4": cdk_nag.NIST80053R4Checks,
    "NIST.800.53.R5": cdk_nag.NIST80053R5Checks,
    "PCI.DSS.321": cdk_nag.PCIDSS321Checks,
    "Serverless": cdk_nag.ServerlessChecks,
}
_CHECKOV: Final = re.compile("CKV_").match
_CFN_LINT: Final = re.compile(r"[EIW]\d{4}").fullmatch
ARGUMENTS: Final = {
    "defaults": set[str](),
    "settings": {"tracing"},
    "adopting": {"network"},
    "example": {"encryption_key", "network", "tracing"},
}
"""The checked stacks with those of their arguments that an `Answer` can name."""


@dataclass(frozen=True)
class Answer:
    """A reason why findings are accepted: see policy-lint.yml."""

    rules: Sequence[str]
    at: Sequence[str]
    why: str
    gone_with: str = ""

    def covers(self, stack: str, place: str) -> bool:
        gone = self.gone_with in ARGUMENTS.get(stack, ())
        return not gone and any(fnmatchcase(place, pattern) for pattern in self.at)


def answers() -> list[Answer]:
    rows = yaml.safe_load(Path(__file__).with_name("policy-lint.yml").read_text(encoding="utf-8"))
    return [Answer(**row) for row in rows]


@dataclass(frozen=True)
class Resource:
    """A resource of a checked stack. `place` is its path without the path of the acker."""

    stack: str
    place: str
    construct: CfnResource


def resources(app: App) -> Iterator[Resource]:
    for construct in app.node.find_all():
        if CfnResource.is_cfn_resource(construct):
            stack, _, path = construct.node.path.removesuffix("/Resource").partition("/")
            inside = path.removeprefix("Acker/")
            yield Resource(stack, inside if inside != path else f"{stack}/{path}", construct)


def answer(app: App) -> None:
    every = answers()
    for resource in resources(app):
        covering = [each for each in every if each.covers(resource.stack, resource.place)]
        reasons = {rule: each.why for each in covering for rule in each.rules}
        if skipped := [{"id": r, "comment": why} for r, why in reasons.items() if _CHECKOV(r)]:
            resource.construct.add_metadata("checkov", {"skip": skipped})
        if ignored := [rule for rule in reasons if _CFN_LINT(rule)]:
            resource.construct.add_metadata("cfn-lint", {"config": {"ignore_checks": ignored}})
        named = [(f"{pack}-{rule}", why) for pack in PACKS for rule, why in reasons.items()]
        if named:
            acknowledged = [Acknowledgment(id=rule, reason=why) for rule, why in named]
            Validations.of(resource.construct).acknowledge(*acknowledged)


def adopting(app: App) -> None:
    """Add a stack whose acker adopts a table, queues, a bus and a network."""
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


def apps(folder: Path) -> list[App]:
    """Build the checked stacks: this project's with two sets of settings, and users' stacks."""
    ours, example = (
        App(
            context={
                **json.loads((ROOT / source).read_text(encoding="utf-8"))["context"],
                "aws:cdk:enable-path-metadata": True,
            },
            outdir=str(folder / name),
            tree_metadata=False,
        )
        for name, source in (("ours", "cdk.json"), ("example", "examples/own_stack/cdk.json"))
    )
    XorackStack(ours, StackSettings(stack_name="defaults"))
    settings = StackSettings(
        stack_name="settings",
        alarm_topic_arn="arn:aws:sns:eu-west-1:123456789012:alarms",
        architecture="x86_64",
        deletion_protection=False,
        removal_policy="destroy",
        resume="all",
        tracing=True,
    )
    XorackStack(ours, settings)
    adopting(ours)
    Warehouse(example, "example")
    return [ours, example]


def main() -> int:
    """Synthesise the stacks. Return 1 if a finding of cdk-nag has no answer."""
    folder = Path(sys.argv[1]) if sys.argv[1:] else ROOT / "cdk.out" / "policy-lint"
    status = 0
    for app in apps(folder):
        answer(app)
        Validations.of(app).add_plugins(*(pack(app) for pack in PACKS.values()))
        try:
            app.synth()
        except RuntimeError as error:  # the CDK has printed the findings
            print(f"error: {str(error).splitlines()[0]}", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
