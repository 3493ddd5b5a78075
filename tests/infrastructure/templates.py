"""A synthesised template that answers questions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Template:
    """A synthesised template.

    Attributes:
        path: Where it lies.
        body: What it says.
    """

    path: Path
    body: Mapping[str, Any]

    @property
    def resources(self) -> Mapping[str, Any]:
        return self.body["Resources"]

    def of(self, kind: str) -> dict[str, dict[str, Any]]:
        """The resources of a type, by logical id."""
        return {name: held for name, held in self.resources.items() if held["Type"] == kind}

    def one(self, kind: str, **properties: Any) -> tuple[str, dict[str, Any]]:
        """The id and the properties of the only resource of a type that has these properties."""
        found = [
            (name, held.get("Properties", {}))
            for name, held in self.of(kind).items()
            if all(held["Properties"].get(key) == value for key, value in properties.items())
        ]
        assert len(found) == 1, f"{len(found)} resources of {kind} with {properties}"
        return found[0]

    def function(self, name: str) -> tuple[str, dict[str, Any]]:
        """The function `consumer`, `sweeper` or `widget`."""
        return self.one("AWS::Lambda::Function", Handler=f"lambda_src.{name}.handler")

    def table(self) -> tuple[str, dict[str, Any]]:
        return self.one("AWS::DynamoDB::Table")

    def dead_letters(self) -> tuple[str, dict[str, Any]]:
        """The dead-letter queue: the one that another queue names as such."""
        _, queue = self.queue()
        name = target(queue["RedrivePolicy"]["deadLetterTargetArn"])
        return name, self.resources[name]["Properties"]

    def queue(self) -> tuple[str, dict[str, Any]]:
        """The queue that the consumer reads."""
        _, mapping = self.one("AWS::Lambda::EventSourceMapping")
        name = target(mapping["EventSourceArn"])
        return name, self.resources[name]["Properties"]

    def bus(self) -> tuple[str, dict[str, Any]]:
        return self.one("AWS::Events::EventBus")


def target(value: Any) -> str:
    """The logical id that an intrinsic refers to; what follows it is put behind."""
    match value:
        case {"Ref": name}:
            return name
        case {"Fn::GetAtt": [name, _]}:
            return name
        case {"Fn::Join": ["", [first, *rest]]}:
            return target(first) + "".join(map(str, rest))
    return str(value)
