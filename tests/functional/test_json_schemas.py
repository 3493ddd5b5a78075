"""Each command prints with --json exactly the fields of docs/commands.schema.json."""

import json

import pytest
from jsonschema import Draft202012Validator

from tests.functional.test_cli_windows import open_windows
from tests.support.cli import SCHEMA, TAG, apply, check_schema, commands_of, finish, start
from tests.support.dead_letters import put, put_messages
from xorack.cli.commands import cli
from xorack.core.message import pack
from xorack.core.request import Request

COMMANDS = {
    "list": "list",
    "show": f"show {TAG}",
    "explain": "explain run/1",
    "explain --run": "explain --run run",
    "status": "status",
    "wait": "wait done run/1",
    "extend": f"extend {TAG} gone --timeout 2h",
    "windows": "windows",
    "dead-letters list": "dead-letters list",
    "dead-letters show": "dead-letters show",
    "redrive": "redrive --yes",
    "dead-letters delete": "dead-letters delete --all --yes",
}
ELSEWHERE = {"doctor", "local start", "local status"}
"""Commands whose output the tests of their own check: it needs a stack, or one that runs."""
SAME = {"fail": "extend"}


def test_every_command_with_json_has_a_schema():
    have = {
        " ".join(path)
        for path, command in commands_of(cli)
        if any(parameter.name == "as_json" for parameter in command.params)
    }
    named = {name for name in COMMANDS if "--" not in name}
    named |= {f"dead-letters {name}" for name in named & {"redrive"}}
    assert have == named | ELSEWHERE | SAME.keys()
    assert {*COMMANDS, *ELSEWHERE, *SAME.values()} <= SCHEMA["$defs"].keys()
    Draft202012Validator.check_schema(SCHEMA)


@pytest.fixture
def full(stack, sqs):
    """Chains of all states with dead letters, notes and windows."""
    start(stack, timeout=3600, detail={"ship": "Pequod"}, idle_timeout=600)
    start(stack, "done")
    finish(stack, "done")
    open_windows(stack)
    for number in range(6):
        start(stack, f"run/{number}")
        apply(stack, Request("note", f"run/{number}", "n", text="lost", missing_count=1))
        apply(stack, Request("fail", f"run/{number}", "f", reason=f"row {number} is bad"))
    put_messages(stack, failed=(1,), malformed=(1,))
    (body,) = pack([Request("note", TAG, "n", text="late")])
    put(stack, body, error="id: 'n' is used")
    return stack


def test_each_command_prints_what_its_schema_says(full, xorack):
    for name, command in COMMANDS.items():
        lines = xorack(*command.split(), "--json")[1]
        assert lines, name
        for line in lines:
            check_schema(name, json.loads(line))
