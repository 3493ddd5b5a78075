"""The policies of a template, with ARNs in place of CloudFormation's functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

_ACCOUNT: Final = "123456789012"
_REGION: Final = "eu-west-1"
_HERE: Final = f"{_REGION}:{_ACCOUNT}"
_PSEUDO: Final = {
    "AWS::AccountId": _ACCOUNT,
    "AWS::Partition": "aws",
    "AWS::Region": _REGION,
    "AWS::StackName": "stack",
    "AWS::URLSuffix": "amazonaws.com",
}
_ARNS: Final = {
    "AWS::CloudWatch::Alarm": f"arn:aws:cloudwatch:{_HERE}:alarm:{{}}",
    "AWS::CodeDeploy::DeploymentGroup": f"arn:aws:codedeploy:{_HERE}:deploymentgroup:app/{{}}",
    "AWS::DynamoDB::Table": f"arn:aws:dynamodb:{_HERE}:table/{{}}",
    "AWS::Events::EventBus": f"arn:aws:events:{_HERE}:event-bus/{{}}",
    "AWS::Events::Rule": f"arn:aws:events:{_HERE}:rule/{{}}",
    "AWS::IAM::Role": f"arn:aws:iam::{_ACCOUNT}:role/{{}}",
    "AWS::KMS::Key": f"arn:aws:kms:{_HERE}:key/{{}}",
    "AWS::Lambda::Function": f"arn:aws:lambda:{_HERE}:function:{{}}",
    "AWS::Logs::LogGroup": f"arn:aws:logs:{_HERE}:log-group:{{}}:*",
    "AWS::SNS::Topic": f"arn:aws:sns:{_HERE}:{{}}",
    "AWS::SQS::Queue": f"arn:aws:sqs:{_HERE}:{{}}",
}
"""ARNs as `Fn::GetAtt` returns them."""
_REF_IS_ARN: Final = ("AWS::SNS::Topic",)


def policies(template: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the policies of roles and of resources, with the logical ids of their resources.

    Policies that say who may assume a role are left out: they name no resource, which parliament
    takes for an error.

    Raises:
        KeyError: A policy names the ARN of a type that `_ARNS` does not have.
    """
    resources = template["Resources"]
    for name, resource in resources.items():
        properties = dict(resource.get("Properties", {}))
        properties.pop("AssumeRolePolicyDocument", None)
        for policy in _documents(properties):
            yield name, resolved(policy, resources)


def _documents(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if "Statement" in value:
            yield value
        else:
            for inner in value.values():
                yield from _documents(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _documents(inner)


def resolved(value: Any, resources: Mapping[str, Any]) -> Any:
    """Replace CloudFormation's functions by what they might return."""
    match value:
        case {"Ref": name}:
            if name in _PSEUDO:
                return _PSEUDO[name]
            kind = resources[name]["Type"]
            return _ARNS[kind].format(name) if kind in _REF_IS_ARN else name
        case {"Fn::GetAtt": [name, "Arn"]}:
            return _ARNS[resources[name]["Type"]].format(name)
        case {"Fn::GetAtt": [name, _]}:
            return name
        case {"Fn::Join": [separator, parts]}:
            return separator.join(resolved(part, resources) for part in parts)
        case dict():
            return {key: resolved(inner, resources) for key, inner in value.items()}
        case list():
            return [resolved(inner, resources) for inner in value]
    return value
