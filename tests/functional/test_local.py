"""`xorack local` without its process: the stacks that it finds, its messages and its variables."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli import check_schema
from xorack.cli.commands import cli
from xorack.errors import LocalError
from xorack.local import background, java
from xorack.local.background import Background

QUEUES = "http://127.0.0.1:1/123456789012"
STATE = Background(
    pid=2**22 + 1,  # no process has it
    port=1,
    started_at=0.5,
    name="xorack",
    outputs={
        "QueueUrl": f"{QUEUES}/queue",
        "DeadLetterQueueUrl": f"{QUEUES}/dead",
        "TableName": "table",
        "EventBusName": "bus",
    },
    functions={},
)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """The folder that exists while it runs."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "xorack" / "local" / "aws"


@pytest.fixture
def ended(home):
    """The files of a stack whose process has ended."""
    home.mkdir(parents=True)
    (home / "running").write_text(f"{STATE.pid}\n")
    (home / "state.json").write_text(json.dumps(dataclasses.asdict(STATE)))
    return home


@pytest.fixture
def running(ended):
    """The files of a stack that runs and does not respond; the test holds the process's lock."""
    with (ended / "running").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield ended


COMMANDS = [["local", "status"], ["local", "env"], ["--local", "list"]]


@pytest.mark.parametrize("command", COMMANDS)
def test_one_that_does_not_run_is_one_line(xorack, command):
    line = "error: xorack local is not running: xorack local start starts it"
    assert xorack(*command) == (1, [], [line])
    status, (line,), err = xorack("local", "status", "--json")
    assert (status, err, json.loads(line)["running"]) == (1, [], False)
    check_schema("local status", json.loads(line))


@pytest.mark.parametrize("command", COMMANDS)
def test_one_that_was_killed_is_one_line_with_its_log(xorack, ended, command):
    status, out, (line,) = xorack(*command)
    assert (status, out) == (1, [])
    assert line.startswith("error: xorack local has ended unexpectedly: xorack local start")
    assert str(ended / "ministack.log") in line


def test_stop_removes_what_a_killed_one_left_and_kills_nobody(xorack, ended, monkeypatch):
    monkeypatch.setattr(os, "killpg", lambda *_: pytest.fail("killed"))
    # Another program that looks at the lock is not the process.
    with (ended / "running").open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        assert xorack("local", "stop") == (0, ["not running"], [])
    assert not ended.exists()
    assert xorack("local", "stop") == (0, ["not running"], [])


def test_one_that_does_not_respond(xorack, running):
    status, (line,), err = xorack("local", "status", "--json")
    shown = json.loads(line)
    assert (status, err) == (1, [])
    assert (shown["running"], shown["responds"], shown["pid"]) == (True, False, STATE.pid)
    assert shown["started_at"] == "1970-01-01T00:00:00Z"
    check_schema("local status", shown)
    status, _, (line,) = xorack("local", "start")
    assert status == 1
    assert f"runs as process {STATE.pid} and does not respond (log: " in line
    assert line.endswith(": run `xorack local stop` first")
    status, _, (line,) = xorack("local", "events")
    assert line.startswith("error: xorack local does not respond: ")


@pytest.mark.parametrize("instance", ["", "orders"])
def test_a_start_prints_its_addresses_as_json(xorack, monkeypatch, instance):
    running = dataclasses.replace(STATE, instance=instance)
    monkeypatch.setattr(background, "start", lambda notify, name: (running, True))
    _, (line,), _ = xorack("local", "start", "--json")
    check_schema("local start", json.loads(line))


@pytest.mark.parametrize("state", ["", "{}", "[1]", '{"pid": 1}'])
def test_one_whose_start_was_interrupted(xorack, running, state):
    (running / "state.json").write_text(state)
    line = "xorack local is starting, or its start was interrupted: xorack local stop ends it"
    assert xorack("local", "status") == (1, [], [f"error: {line}"])


def test_the_environment_hides_the_users_account_from_a_shell(running, monkeypatch, xorack):
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("XORACK_TABLE", "chains")
    monkeypatch.setattr(java, "java_home", lambda: Path("/a b/java's"))
    status, lines, err = xorack("local", "env")
    assert (status, err) == (0, [])
    code = "import json, os; print(json.dumps(dict(os.environ)))"
    script = "\n".join([*lines, shlex.join([sys.executable, "-c", code])])
    seen = json.loads(subprocess.check_output(["sh", "-c", script]))
    assert seen["AWS_ENDPOINT_URL"] == "http://127.0.0.1:1"
    assert seen["AWS_ACCESS_KEY_ID"] == "local"
    assert seen["XORACK_QUEUE_URL"] == f"{QUEUES}/queue"
    assert seen["XORACK_DEAD_LETTER_QUEUE_URL"] == f"{QUEUES}/dead"
    assert (seen["XORACK_TABLE"], seen["XORACK_EVENT_BUS_NAME"]) == ("table", "bus")
    assert (seen["JAVA_HOME"], seen["PYSPARK_PYTHON"]) == ("/a b/java's", sys.executable)
    assert "AWS_PROFILE" not in seen


def test_the_environment_without_a_java(running, monkeypatch, xorack):
    def fail():
        raise LocalError("no Java 17 found")

    monkeypatch.setattr(java, "java_home", fail)
    status, lines, err = xorack("local", "env")
    assert (status, err) == (0, ["Spark: no Java 17 found"])
    assert "PYSPARK_PYTHON" not in "\n".join(lines)


def test_one_of_several_is_named(running, monkeypatch, xorack):
    line = "error: xorack local is not running: xorack local start --name orders starts it"
    assert xorack("local", "status", "--name", "orders") == (1, [], [line])
    state = dataclasses.replace(STATE, instance="orders")
    named = running.parents[1] / "local-orders" / "aws"
    named.mkdir(parents=True)
    (named / "state.json").write_text(json.dumps(dataclasses.asdict(state)))
    (named / "running").write_text(str(STATE.pid))
    with (named / "running").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        shown = json.loads(xorack("local", "status", "--name", "orders", "--json")[1][0])
        assert (shown["name"], shown["log"]) == ("orders", str(named / "ministack.log"))
        monkeypatch.setenv("XORACK_LOCAL_NAME", "orders")
        assert "export XORACK_LOCAL_NAME=orders" in xorack("local", "env")[1]
    assert xorack("local", "stop") == (0, ["not running"], [])  # it has ended by itself
    assert (named.exists(), running.exists()) == (False, True)
    monkeypatch.setenv("XORACK_LOCAL_NAME", "../x")
    assert xorack("--local", "list")[0] == 2


@pytest.mark.parametrize("by", ["option", "variable"])
def test_commands_use_it(running, monkeypatch, xorack, by):
    seen = {}

    @cli.command("probe")
    def probe():
        seen.update(os.environ)

    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("XORACK_STACK", "production")
    if by == "variable":
        monkeypatch.setenv("XORACK_LOCAL", "1")
    try:
        assert xorack(*["--local"] * (by == "option"), "probe") == (0, [], [])
    finally:
        del cli.commands["probe"]
    assert (seen["AWS_ENDPOINT_URL"], seen["XORACK_STACK"]) == ("http://127.0.0.1:1", "xorack")
    assert "AWS_PROFILE" not in seen
    assert os.environ["AWS_PROFILE"] == os.environ["XORACK_STACK"] == "production"
