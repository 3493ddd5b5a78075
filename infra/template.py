"""The stack as one CloudFormation template with parameters, and its functions' code as a zip.

`python -m infra.template --out cdk.out/template -c resume=all` prints both paths. Deploying them
needs neither the CDK nor its bootstrap: docs/deploy.md. A parameter stands wherever its setting
shows: the synthesis gets values that occur nowhere else, and each is replaced.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from infra.settings import StackSettings
from infra.synth import main, synth
from xorack.core.errors import ArgumentError
from xorack.local.deploy import zip_folder

_NAME: Final = "XorackStackName"
_TOPIC: Final = "arn:aws:sns:eu-west-1:123456789012:XorackAlarmTopic"
_TOPIC_PARAMETER: Final = {
    "Type": "String",
    "Default": "",
    "AllowedPattern": "|arn:aws[a-z-]*:sns:.+",
    "Description": "ARN of the SNS topic for alarms; nobody is notified without one",
}


@dataclass(frozen=True)
class Parameter:
    """A parameter of the template, in place of a setting.

    Attributes:
        value: A value of the setting that shows nowhere else.
        factor: The parameter is the setting's multiple, as in seconds of a day.
    """

    setting: str
    value: int
    description: str
    factor: int = 1

    @property
    def shown(self) -> str:
        return str(self.value * self.factor)

    def declared(self, settings: StackSettings) -> dict[str, Any]:
        (found,) = (field for field in fields(settings) if field.name == self.setting)
        limits = {name: limit * self.factor for name, limit in found.metadata["limits"].items()}
        default = getattr(settings, self.setting) * self.factor
        return {"Type": "Number", "Default": default, "Description": self.description, **limits}


PARAMETERS: Final[Mapping[str, Parameter]] = {
    "BatchSize": Parameter("batch_size", 7_919, "Maximum messages of an invocation"),
    "MaxConcurrency": Parameter("max_concurrency", 983, "Maximum concurrent consumers"),
    "MemoryMb": Parameter("memory_mb", 6_871, "Memory of each function"),
    "DefaultTimeoutSeconds": Parameter(
        "default_timeout_seconds", 86_413, "Deadline of chains that set none"
    ),
    "RetentionSeconds": Parameter(
        "retention_days", 3_001, "Life of finished chains, above that of messages", factor=86_400
    ),
    "FailedChainsThreshold": Parameter(
        "failed_chains_threshold", 7_477, "Failed chains in five minutes without an alarm"
    ),
    "LogRetentionDays": Parameter("log_retention_days", 2_557, "Life of the logs"),
}


def standalone(synthesised: Mapping[str, Any], settings: StackSettings, key: str) -> dict[str, Any]:
    """Return the template of a synthesised one, with parameters and without the CDK's parts.

    It was synthesised with `sentinels`. `settings` has the parameters' defaults, and `key` is that
    of the code's key.
    """
    body = _replaced(synthesised)
    resources = {
        name: _plain(resource)
        for name, resource in body["Resources"].items()
        # A version is made once for a logical id: a changed parameter would never reach it.
        if resource["Type"] != "AWS::Lambda::Version"
    }
    parameters = {
        name: parameter.declared(settings) for name, parameter in _parameters(settings).items()
    }
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": body["Description"],
        "Parameters": {
            "CodeBucket": {"Type": "String", "Description": "Bucket of the code, in this region"},
            "CodeKey": {"Type": "String", "Default": key, "Description": "Key of the code"},
            "AlarmTopicArn": _TOPIC_PARAMETER,
            **parameters,
        },
        "Conditions": {
            **body.get("Conditions", {}),
            "HasAlarmTopic": {"Fn::Not": [{"Fn::Equals": [{"Ref": "AlarmTopicArn"}, ""]}]},
        },
        "Resources": resources,
        "Outputs": body["Outputs"],
    }


def sentinels(settings: StackSettings) -> dict[str, str]:
    """Return the settings whose values `standalone` replaces."""
    values = {
        parameter.setting: str(parameter.value) for parameter in _parameters(settings).values()
    }
    return {**values, "stack_name": _NAME, "alarm_topic_arn": _TOPIC}


def _parameters(settings: StackSettings) -> dict[str, Parameter]:
    """Return the parameters of the template; batches of over ten messages need a window."""
    left_out = "" if settings.batch_window_seconds else "BatchSize"
    return {name: parameter for name, parameter in PARAMETERS.items() if name != left_out}


def _plain(resource: Mapping[str, Any]) -> dict[str, Any]:
    """Return a resource without metadata, its code by parameters, its alias on the latest code."""
    made = {name: part for name, part in resource.items() if name != "Metadata"}
    if resource["Type"] == "AWS::Lambda::Function":
        made.pop("DependsOn", None)  # its role, which it names
        code = {"S3Bucket": {"Ref": "CodeBucket"}, "S3Key": {"Ref": "CodeKey"}}
        made["Properties"] = {**made["Properties"], "Code": code}
    elif resource["Type"] == "AWS::Lambda::Alias":
        made["Properties"] = {**made["Properties"], "FunctionVersion": "$LATEST"}
    return made


_REFERENCES: Final = {
    _NAME: "AWS::StackName",
    _TOPIC: "AlarmTopicArn",
    **{parameter.shown: name for name, parameter in PARAMETERS.items()},
}
_SHOWN: Final = re.compile(
    "|".join(
        # No part of another number, a hash or a logical id.
        rf"(?<![0-9A-Za-z]){shown}(?![0-9A-Za-z])" if shown.isdigit() else re.escape(shown)
        for shown in _REFERENCES
    )
)


def _replaced(value: Any) -> Any:
    """Replace the values of settings everywhere in a part of a template."""
    if value == [_TOPIC]:
        return {"Fn::If": ["HasAlarmTopic", [{"Ref": "AlarmTopicArn"}], {"Ref": "AWS::NoValue"}]}
    if isinstance(value, dict):
        # A logical id may have the stack's name in it.
        return {name.replace(_NAME, ""): _replaced(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_replaced(part) for part in value]
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return value
    text = str(value)
    if text in _REFERENCES:
        return {"Ref": _REFERENCES[text]}
    if not _SHOWN.search(text):
        return value
    escaped = text.replace("${", "${!")
    return {"Fn::Sub": _SHOWN.sub(lambda found: f"${{{_REFERENCES[found[0]]}}}", escaped)}


def write(outdir: Path, context: Mapping[str, str]) -> list[Path]:
    settings = StackSettings.from_context(context)
    for name in ("stack_name", "alarm_topic_arn"):
        if getattr(settings, name) != getattr(StackSettings(), name):
            value = getattr(settings, name)
            raise ArgumentError(f"setting {name}", value, "none: the deployment decides")
    outdir.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as folder:
        made = synth(Path(folder), {**context, **sentinels(settings)})
        synthesised = json.loads(made.read_text(encoding="utf-8"))
        (code,) = (path for path in made.parent.glob("asset.*") if path.is_dir())
        packed = zip_folder(code)
    # CloudFormation updates the code of a function if its key changes.
    target = outdir / f"xorack-functions-{hashlib.sha256(packed).hexdigest()[:16]}.zip"
    target.write_bytes(packed)
    template = outdir / "xorack.template.json"
    body = standalone(synthesised, settings, target.name)
    template.write_text(json.dumps(body, separators=(",", ":")) + "\n", encoding="utf-8")
    return [template, target]


if __name__ == "__main__":
    sys.exit(main(make=write))
