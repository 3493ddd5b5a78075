"""Synthesis needs no network, no node on PATH and no CDK command line."""

import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from infra.synth import ROOT

from .templates import Template, run

# Each process logs its start and each connection, which fails.
WATCH_PYTHON = """
import os, socket, sys
def note(text):
    with open(os.environ["WATCH_LOG"], "a") as log:
        log.write("python " + text + "\\n")
def fail(text):
    note(text)
    raise OSError("no network here")
socket.socket.connect = lambda self, address: fail(f"connects to {address}")
socket.socket.connect_ex = socket.socket.connect
socket.getaddrinfo = lambda host, *rest, **options: fail(f"asks for {host}")
note("starts")
"""
WATCH_NODE = """
const fs = require('fs'), net = require('net'), dns = require('dns'), dgram = require('dgram');
const note = (text) => fs.appendFileSync(process.env.WATCH_LOG, 'node ' + text + '\\n');
const fail = (text) => (...given) => {
  note(text + ' ' + JSON.stringify(given[0]));
  throw new Error('no network here');
};
net.Socket.prototype.connect = fail('connects to');
dns.lookup = fail('asks for');
dns.promises.lookup = fail('asks for');
dgram.Socket.prototype.send = fail('sends');
note('starts');
"""


@pytest.fixture
def machine(tmp_path):
    """The environment of a machine without node on PATH and without a network."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "sitecustomize.py").write_text(WATCH_PYTHON)
    (tmp_path / "watch.js").write_text(WATCH_NODE)
    inherited = ("HOME", "TMPDIR", "LANG")
    return {
        **{name: os.environ[name] for name in inherited if name in os.environ},
        "PATH": str(tmp_path / "bin"),
        "PYTHONPATH": str(tmp_path),
        "NODE_OPTIONS": f"--require {tmp_path / 'watch.js'}",
        "WATCH_LOG": str(tmp_path / "log"),
        "CDK_OUTDIR": str(tmp_path / "out"),
    }


@pytest.mark.slow
@pytest.mark.parametrize("validation", ["false", "true"])
def test_the_app_runs_without_network_and_node(machine, validation):
    context = {"CDK_VALIDATION": validation, "CDK_CONTEXT_JSON": '{"batch_size": "77"}'}
    process = run(sys.executable, "app.py", **machine, **context)
    assert (process.returncode, process.stdout) == (0, ""), process.stderr  # `cdk ls` has its own
    log = Path(machine["WATCH_LOG"]).read_text().splitlines()
    assert set(log) == {"python starts", "node starts"}
    template = Template.read(Path(machine["CDK_OUTDIR"], "xorack.template.json"))
    _, mapping = template.one("AWS::Lambda::EventSourceMapping")
    assert mapping["BatchSize"] == 77
    # The app reads cdk.json's context itself.
    assert "CDKMetadata" not in template.resources


@pytest.fixture
def clone(tmp_path):
    """A fresh clone, in which nothing was installed yet."""
    folder = tmp_path / "clone"
    folder.mkdir()
    for name in ("app.py", "cdk.json"):
        shutil.copy(ROOT / name, folder)
    for name in ("infra", "xorack"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def run_app(clone, *python):
    """Run what `cdk deploy` runs, with a Python that has no packages."""
    command = json.loads((clone / "cdk.json").read_text())["app"]
    assert command == "python3 app.py"
    return run(*python, "app.py", cwd=clone)


def test_a_fresh_clone_says_in_one_line_what_to_run(clone):
    ran = run_app(clone, sys.executable, "-S")
    line = r"error: .*: run `make venv`, then `cdk deploy` again\n"
    assert (ran.returncode, ran.stdout) == (1, "")
    assert re.fullmatch(line, ran.stderr)


def test_the_app_runs_with_the_packages_of_the_checkouts_environment(clone):
    python = clone / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!{sys.executable}\nimport sys\nprint(*sys.argv[1:])\n")
    python.chmod(0o755)
    ran = run_app(clone, sys.executable, "-S")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "app.py\n", "")


def test_without_the_cdk_it_says_what_to_install():
    code = "import sys; sys.modules['aws_cdk'] = sys.modules['constructs'] = None; "
    code += "import xorack.cdk; print(xorack.cdk.Settings().batch_size); xorack.cdk.Acker"
    ran = run(sys.executable, "-c", code, **os.environ)
    assert (ran.returncode, ran.stdout) == (1, "1000\n")
    line = "ModuleNotFoundError: xorack.cdk needs aws_cdk: install xorack with the extra cdk\n"
    assert ran.stderr.endswith(line)
