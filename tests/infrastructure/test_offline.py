"""Synthesis needs no network, no node of the machine's and no CDK command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Each process writes a line when it starts, and one for each connection that it tries, which fails.
WATCH_PYTHON = """
import os, socket, sys
def note(text):
    with open(os.environ["WATCH_LOG"], "a") as log:
        log.write("python " + text + "\\n")
def refuse(self, address, *rest):
    note(f"connects to {address}")
    raise OSError("no network here")
socket.socket.connect = socket.socket.connect_ex = refuse
def unknown(host, *rest, **options):
    note(f"asks for {host}")
    raise OSError("no network here")
socket.getaddrinfo = unknown
note("starts")
"""
WATCH_NODE = """
const fs = require('fs'), net = require('net'), dns = require('dns'), dgram = require('dgram');
const note = (text) => fs.appendFileSync(process.env.WATCH_LOG, 'node ' + text + '\\n');
const refuse = (what) => (...given) => {
  note(what + ' ' + JSON.stringify(given[0]));
  throw new Error('no network here');
};
net.Socket.prototype.connect = refuse('connects to');
dns.lookup = refuse('asks for');
dns.promises.lookup = refuse('asks for');
dgram.Socket.prototype.send = refuse('sends');
note('starts');
"""


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine without node on PATH and without a network."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "watch").mkdir()
    (tmp_path / "watch" / "sitecustomize.py").write_text(WATCH_PYTHON)
    (tmp_path / "watch.js").write_text(WATCH_NODE)
    kept = {name: os.environ[name] for name in ("HOME", "TMPDIR", "LANG") if name in os.environ}
    return {
        **kept,
        "PATH": str(tmp_path / "bin"),
        "PYTHONPATH": str(tmp_path / "watch"),
        "NODE_OPTIONS": f"--require {tmp_path / 'watch.js'}",
        "WATCH_LOG": str(tmp_path / "log"),
        "CDK_OUTDIR": str(tmp_path / "out"),
    }


def app(machine: dict[str, str], **settings: str) -> subprocess.CompletedProcess[str]:
    """Run app.py as the CDK's command line does: settings come in the environment."""
    return subprocess.run(
        [sys.executable, "app.py"],
        env={**machine, "CDK_CONTEXT_JSON": json.dumps(settings)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_app_runs_without_network_and_node(machine: dict[str, str]) -> None:
    ran = app(machine, batch_size="77")
    assert ran.returncode == 0, ran.stderr
    log = Path(machine["WATCH_LOG"]).read_text().splitlines()
    assert set(log) == {"python starts", "node starts"}
    template = json.loads(Path(machine["CDK_OUTDIR"], "xorack.template.json").read_text())
    (mapping,) = (
        held["Properties"]
        for held in template["Resources"].values()
        if held["Type"] == "AWS::Lambda::EventSourceMapping"
    )
    assert mapping["BatchSize"] == 77
    # cdk.json's context is there, though no command line has passed it on.
    assert "CDKMetadata" not in template["Resources"]


def test_the_watch_would_tell(machine: dict[str, str]) -> None:
    from xorack.cdk import _point_jsii_at_node

    _point_jsii_at_node()
    node = os.environ["JSII_NODE"]
    python_code = "import socket; socket.create_connection(('192.0.2.1', 9), timeout=1)"
    node_code = "require('net').connect(9, '192.0.2.1')"
    for command in ([sys.executable, "-c", python_code], [node, "-e", node_code]):
        ran = subprocess.run(command, env=machine, capture_output=True, text=True, check=False)
        assert ran.returncode != 0
    log = Path(machine["WATCH_LOG"]).read_text()
    assert "python asks for 192.0.2.1" in log
    assert "node connects to" in log


def test_a_setting_that_makes_no_sense_is_one_line(machine: dict[str, str]) -> None:
    ran = app(machine, batch_size="20000")
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert ran.stderr == (
        "error: setting `batch_size` is 20000: expected a whole number from 1 to 10000 (messages)\n"
    )
    assert not list(Path(machine["CDK_OUTDIR"]).glob("*.template.json"))


@pytest.mark.parametrize("name", ["9lives", "a b", ""])
def test_a_stack_name_that_cloudformation_refuses_is_named(
    machine: dict[str, str], name: str
) -> None:
    ran = app(machine, stack_name=name)
    assert ran.returncode == 2
    assert ran.stderr.startswith(f"error: setting `stack_name` is {name!r}: expected 1 to 128")
    assert ran.stderr.count("\n") == 1


def test_node_of_the_users_choice_is_left_alone(machine: dict[str, str]) -> None:
    code = "import infra, os; print(os.environ['JSII_NODE'])"
    for given in ({"JSII_NODE": "/somewhere/node"}, {}):
        ran = subprocess.run(
            [sys.executable, "-c", code],
            env={**machine, **given},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        if given:
            assert ran.stdout.strip() == given["JSII_NODE"]
        else:
            assert Path(ran.stdout.strip()).is_relative_to(Path(sys.prefix))


def test_the_command_line_reports_and_asks_nobody() -> None:
    held = json.loads((ROOT / "cdk.json").read_text())
    assert held["notices"] is False
    assert held["versionReporting"] is False
    assert held["context"]["cli-telemetry"] is False


def test_the_command_line_is_pinned() -> None:
    wanted = json.loads((ROOT / "package.json").read_text())["devDependencies"]
    locked = json.loads((ROOT / "package-lock.json").read_text())["packages"]
    assert wanted == {"aws-cdk": "2.1148.1"}
    assert locked["node_modules/aws-cdk"]["version"] == wanted["aws-cdk"]
    for package in locked.values():
        assert package.get("resolved", "https://registry.npmjs.org/").startswith(
            "https://registry.npmjs.org/"
        )
