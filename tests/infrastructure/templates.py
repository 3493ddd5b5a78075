"""A synthesised template, and questions to it; processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aws_cdk import Environment, Stack
from aws_cdk.assertions import Template as Assertions

from infra.synth import ROOT

HERE = Environment(account="111111111111", region="eu-west-1")
FUNCTIONS = ("consumer", "sweeper")
STATEFUL = (
    "AWS::DynamoDB::Table",
    "AWS::SQS::Queue",
    "AWS::Events::EventBus",
    "AWS::Logs::LogGroup",
)


@dataclass(frozen=True)
class Template:
    """A synthesised template and its file."""

    path: Path
    body: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> Template:
        return cls(path, json.loads(path.read_text(encoding="utf-8")))

    @classmethod
    def of_stack(cls, stack: Stack) -> Template:
        return cls(Path(), Assertions.from_stack(stack).to_json())

    @property
    def resources(self) -> Mapping[str, Any]:
        return self.body["Resources"]

    @property
    def code_folder(self) -> Path:
        """The only asset with code, beside the template."""
        name = self.path.name.replace(".template.json", ".assets.json")
        files = json.loads(self.path.with_name(name).read_text())["files"].values()
        (folder,) = {f["source"]["path"] for f in files if f["source"]["packaging"] == "zip"}
        return self.path.parent / folder

    def of(self, kind: str) -> dict[str, dict[str, Any]]:
        """The properties of the resources of a type, by logical id."""
        return {
            name: resource.get("Properties", {})
            for name, resource in self.resources.items()
            if resource["Type"] == kind
        }

    def one(self, kind: str, **properties: Any) -> tuple[str, dict[str, Any]]:
        """The id and the properties of the only resource of a type that has these properties."""
        (resource,) = [
            (name, found)
            for name, found in self.of(kind).items()
            if all(found.get(key) == value for key, value in properties.items())
        ]
        return resource

    def function(self, name: str) -> tuple[str, dict[str, Any]]:
        """The function `consumer` or `sweeper`."""
        return self.one("AWS::Lambda::Function", Handler=f"lambda_src.{name}.handler")

    def environment(self, name: str) -> dict[str, Any]:
        return self.function(name)[1]["Environment"]["Variables"]

    def table(self) -> tuple[str, dict[str, Any]]:
        return self.one("AWS::DynamoDB::Table")

    def dead_letters(self) -> tuple[str, dict[str, Any]]:
        """The dead-letter queue of the queue."""
        name = target(self.queue()[1]["RedrivePolicy"]["deadLetterTargetArn"])
        return name, self.of("AWS::SQS::Queue")[name]

    def queue(self) -> tuple[str, dict[str, Any]]:
        """The queue that the consumer reads."""
        name = target(self.one("AWS::Lambda::EventSourceMapping")[1]["EventSourceArn"])
        return name, self.of("AWS::SQS::Queue")[name]

    def bus(self) -> tuple[str, dict[str, Any]]:
        return self.one("AWS::Events::EventBus")

    def log_group(self, function: str) -> str:
        return target(self.function(function)[1]["LoggingConfig"]["LogGroup"])

    def statements(self, function: str) -> list[dict[str, Any]]:
        """The statements of a function's role."""
        role = self.of("AWS::IAM::Role")[target(self.function(function)[1]["Role"])]
        assert "ManagedPolicyArns" not in role
        return in_policies(role["Policies"])

    def allowed(self, function: str) -> dict[str, set[str]]:
        """The actions that a function's role allows, by resource."""
        return rights(self.statements(function))

    def granted(self, role: str) -> dict[str, set[str]]:
        """The actions that the policies attached to a role allow, by resource."""
        policies = self.of("AWS::IAM::Policy").values()
        return rights(in_policies(one for one in policies if {"Ref": role} in one["Roles"]))


def run(*command: str, cwd: Path = ROOT, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command with just this environment."""
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)


def python(code: str, *arguments: str, cwd: Path, **env: str) -> str:
    """Run Python code without this process's settings; return what it prints."""
    hidden = ("AWS_", "POWERTOOLS_", "PYTHONPATH")
    inherited = {key: os.environ[key] for key in os.environ if not key.startswith(hidden)}
    process = run(sys.executable, "-B", "-c", code, *arguments, cwd=cwd, **{**inherited, **env})
    assert process.returncode == 0, process.stderr
    return process.stdout.strip()


def in_policies(policies: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The statements of policies."""
    return [one for policy in policies for one in policy["PolicyDocument"]["Statement"]]


def rights(statements: Iterable[Mapping[str, Any]]) -> dict[str, set[str]]:
    """The actions that statements allow, by resource; a key, a bus and grants have conditions."""
    actions: dict[str, set[str]] = {}
    for statement in statements:
        if statement["Effect"] == "Deny":
            continue  # see test_policies.py
        known = ("kms:", "events:PutEvents", "dynamodb:Select")
        conditional = any(one in str(statement) for one in known)
        conditions = {"Condition"} if conditional else set()
        assert set(statement) - conditions == {"Action", "Effect", "Resource"}
        for resource in as_list(statement["Resource"]):
            actions.setdefault(target(resource), set()).update(as_list(statement["Action"]))
    return actions


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def target(value: Any) -> str:
    """The logical id that an intrinsic refers to, and the text after it."""
    match value:
        case {"Ref": name} | {"Fn::GetAtt": [name, _]}:
            return name
        case {"Fn::Select": [_, {"Fn::Split": [_, joined]}]}:
            return target(joined)
        case {"Fn::Join": ["", [first, *rest]]}:
            return target(first) + "".join(map(str, rest))
    return str(value)
