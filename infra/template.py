"""The stack as one CloudFormation template with parameters, and its functions' code as a zip.

`python -m infra.template --out cdk.out/template -c resume=all` prints both paths. Their deployment
needs neither the CDK nor its bootstrap; see docs/deploy.md.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from aws_cdk import (
    Aws,
    CfnCondition,
    CfnParameter,
    DefaultStackSynthesizer,
    Duration,
    Fn,
    Stack,
)
from constructs import Construct

from infra.settings import StackSettings
from infra.stack import DESCRIPTION, add_acker
from infra.synth import app_in, main
from xorack.cdk.acker import Acker
from xorack.cdk.code import assemble_code
from xorack.cdk.permissions import acknowledge
from xorack.core.errors import ArgumentError
from xorack.local.deploy import zip_folder

DAY_SECONDS: Final = 86_400
PARAMETERS: Final[Mapping[str, tuple[str, str]]] = {
    "BatchSize": ("batch_size", "Maximum messages of an invocation"),
    "MaxConcurrency": ("max_concurrency", "Maximum concurrent consumers"),
    "MemoryMb": ("memory_mb", "Memory of each function"),
    "DefaultTimeoutSeconds": ("default_timeout_seconds", "Deadline of chains that set none"),
    "RetentionSeconds": ("retention_days", "Life of finished chains, above that of messages"),
    "FailedChainsThreshold": (
        "failed_chains_threshold",
        "Failed chains in five minutes without an alarm",
    ),
    "LogRetentionDays": ("log_retention_days", "Life of the logs"),
}
"""Maps the name of a parameter to the setting that it replaces, and a description."""


def _parameter(stack: Stack, name: str, **properties: Any) -> CfnParameter:
    """Create a parameter of exactly this name, even if an output has the same name."""
    scope: Any = stack.node.try_find_child("Parameters") or Construct(stack, "Parameters")
    parameter = CfnParameter(scope, name, **properties)
    parameter.override_logical_id(name)
    return parameter


def with_parameters(stack: Stack, settings: StackSettings) -> StackSettings:
    """Return settings whose values are parameters of a stack. `settings` has their defaults."""
    topic = _parameter(
        stack,
        "AlarmTopicArn",
        default="",
        allowed_pattern="|arn:aws[a-z-]*:sns:.+",
        description="ARN of the SNS topic for alarms; nobody is notified without one",
    )
    values: dict[str, Any] = {"alarm_topic_arn": topic.value_as_string}
    for name, (setting, description) in PARAMETERS.items():
        if name == "BatchSize" and not settings.batch_window_seconds:
            continue  # Lambda collects more than ten messages only within a window
        default = getattr(settings, setting)
        (limits,) = (
            field.metadata["limits"] for field in fields(settings) if field.name == setting
        )
        if name == "RetentionSeconds":
            # The parameter is in seconds, because the functions read seconds and CloudFormation
            # cannot multiply.
            default *= DAY_SECONDS
            limits = {limit: days * DAY_SECONDS for limit, days in limits.items()}
        parameter = _parameter(
            stack, name, type="Number", default=str(default), description=description, **limits
        )
        number = parameter.value_as_number
        values[setting] = Duration.seconds(number) if name == "RetentionSeconds" else number
    return replace(settings, **values)


def _notify_if_there_is_a_topic(stack: Stack, acker: Acker) -> None:
    """Remove the actions of the alarms if the deployment names no topic."""
    is_empty = Fn.condition_equals(Fn.ref("AlarmTopicArn"), "")
    CfnCondition(stack, "HasAlarmTopic", expression=Fn.condition_not(is_empty))
    for alarm in acker.alarms.values():
        resource: Any = alarm.node.default_child
        if actions := stack.resolve(resource.alarm_actions):
            either = {"Fn::If": ["HasAlarmTopic", actions, {"Ref": "AWS::NoValue"}]}
            resource.add_property_override("AlarmActions", either)
    # The CDK's check would reject the empty default, because it does not evaluate the condition.
    reason = "The condition HasAlarmTopic removes an action whose ARN is empty"
    acknowledge(stack, "CloudFormation-Validate::F3033", reason)


def _take_code_from_bucket(stack: Stack, acker: Acker, default_key: str) -> None:
    """Take the place of the functions' code from parameters, and let aliases name that code."""
    bucket = _parameter(stack, "CodeBucket", description="Bucket of the code, in this region")
    key = _parameter(stack, "CodeKey", default=default_key, description="Key of the code")
    code = {"S3Bucket": bucket.value_as_string, "S3Key": key.value_as_string}
    for function in (acker.consumer, acker.sweeper):
        resource: Any = function.node.default_child
        resource.add_property_override("Code", code)
        # The reference to the function's role is a sufficient dependency.
        resource.add_deletion_override("DependsOn")
        # CloudFormation makes a version once for a logical id, so changed code would not reach it.
        function.node.try_remove_child("CurrentVersion")
        alias: Any = function.node.find_child("Aliaslive").node.default_child
        alias.function_version = "$LATEST"


def write(outdir: Path, context: Mapping[str, str]) -> list[Path]:
    settings = StackSettings.from_context(context)
    for name in ("stack_name", "alarm_topic_arn"):
        if getattr(settings, name) != getattr(StackSettings(), name):
            value = getattr(settings, name)
            raise ArgumentError(f"setting {name}", value, "no value, as the deployment decides")
    outdir.mkdir(parents=True, exist_ok=True)
    packed = zip_folder(assemble_code())
    # CloudFormation updates a function's code only if the key of the code changes.
    target = outdir / f"xorack-functions-{hashlib.sha256(packed).hexdigest()[:16]}.zip"
    target.write_bytes(packed)
    with TemporaryDirectory() as folder:
        app = app_in(Path(folder), context)
        without_bootstrap = DefaultStackSynthesizer(generate_bootstrap_version_rule=False)
        stack = Stack(
            app, settings.stack_name, description=DESCRIPTION, synthesizer=without_bootstrap
        )
        acker = add_acker(stack, with_parameters(stack, settings), Aws.STACK_NAME)
        _notify_if_there_is_a_topic(stack, acker)
        _take_code_from_bucket(stack, acker, target.name)
        body = app.synth().get_stack_by_name(settings.stack_name).template
    template = outdir / "xorack.template.json"
    template.write_text(json.dumps(body, separators=(",", ":")) + "\n", encoding="utf-8")
    return [template, target]


if __name__ == "__main__":
    sys.exit(main(make=write))
