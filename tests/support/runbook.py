"""Commands of the documentation, run without the AWS CLI: its words, botocore's calls."""

from __future__ import annotations

import json
import re
import shlex
from string import Template
from typing import Any

import jmespath
from botocore import xform_name

_CLI_OPTIONS = ("query", "output", "cli-binary-format")


def commands(page: str, heading: str) -> list[str]:
    """Return the commands in the ``bash`` blocks of a section."""
    (section,) = re.findall(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", page, re.M | re.S)
    blocks = re.findall(r"^```bash\n(.*?)^```", section, re.M | re.S)
    return [line for block in blocks for line in block.splitlines()]


class Shell:
    """Runs commands: assignments, `aws` by botocore, all others by a method of their name.

    Attributes:
        client: Returns the client of a service.
        variables: The variables that the commands set.
        printed: The output of the last command.
    """

    def __init__(self, client) -> None:
        self.client, self.variables, self.printed = client, {}, ""

    def run(self, line: str) -> None:
        """Run one command."""
        name, _, value = line.partition("=")
        if not re.fullmatch("[A-Z_]+", name):
            words = shlex.split(line, comments=True)
            program, *words = (Template(word).substitute(self.variables) for word in words)
            getattr(self, program)(words)
        elif value.startswith("$("):
            self.run(value[2:-1])
            self.variables[name] = self.printed
        else:
            self.variables[name] = value

    def aws(self, words: list[str]) -> None:
        """Call an operation; print what the AWS CLI prints."""
        service, operation, *rest = words
        client = self.client(service)
        if waiter := rest.pop(0) if operation == "wait" else None:
            operation = "describe-table"
        method = operation.replace("-", "_")
        name = client.meta.method_to_api_mapping[method]
        shape = client.meta.service_model.operation_model(name).input_shape
        members = {xform_name(name, "-"): (name, of) for name, of in shape.members.items()}
        arguments, cli = {}, {}
        while rest:
            option = rest.pop(0)
            if not option.startswith("--"):
                continue  # the file for a payload
            option = option[2:]
            if option in _CLI_OPTIONS:
                cli[option] = rest.pop(0)
                continue
            name, of = members[option.removeprefix("no-")]
            boolean = of.type_name == "boolean"
            arguments[name] = not option.startswith("no-") if boolean else _value(of, rest.pop(0))
        if waiter:
            client.get_waiter(waiter.replace("-", "_")).wait(**arguments)
            return
        response = getattr(client, method)(**arguments)
        if "Payload" in response:
            self.printed = response["Payload"].read().decode()
            return
        found = jmespath.search(cli["query"], response) if "query" in cli else None
        if cli.get("output") == "text":
            self.printed = "\t".join(found) if isinstance(found, list) else str(found)
        else:
            self.printed = json.dumps(found)


def _value(shape: Any, text: str) -> Any:
    """Return an option's value: JSON, the CLI's shorthand, or text."""
    if shape.type_name == "structure":
        pairs = (pair.split("=", 1) for pair in text.split(","))
        return {name: _value(shape.members[name], value) for name, value in pairs}
    if shape.type_name == "boolean":
        return {"true": True, "false": False}[text]
    return text.encode() if shape.type_name == "blob" else text
