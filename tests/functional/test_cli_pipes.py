"""Commands behind a pipe whose reader is gone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli import finish, start
from tests.support.dead_letters import put_messages
from xorack.cli import main


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("list", ["stdout"]),
        ("dead-letters show", ["stdout"]),
        ("web", ["stdout"]),
        ("redrive --yes --json", ["stdout", "stderr"]),
    ],
)
def test_a_reader_that_closes_at_once(stack, sqs, capsys, monkeypatch, command, names):
    start(stack)
    start(stack, "done")
    finish(stack, "done")
    put_messages(stack, failed=range(3), malformed=(1,))
    source, target = os.pipe()
    os.close(source)
    # Errors appear at the latest when the file is closed, as at the end of the process.
    with open(target, "w", encoding="utf-8") as file:
        for name in names:
            monkeypatch.setattr(sys, name, file)
        assert main(command.split()) == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if not line.startswith("in the queues: ")] == []


def test_a_full_disk_is_one_line():
    with open("/dev/full", "w", encoding="utf-8") as full:
        command = [sys.executable, "-m", "xorack", "--help"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    said = b"error: cannot write: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, said)


def test_the_shell_completes_commands():
    """docs/operations.md says how a shell asks for it; click answers."""
    variables = {
        "_XORACK_COMPLETE": "bash_complete",
        "COMP_WORDS": "xorack dead-letters s",
        "COMP_CWORD": "2",
    }
    program = Path(sys.executable).with_name("xorack")
    out = subprocess.check_output([program], env={**os.environ, **variables}, text=True)
    assert out.split() == ["plain,send", "plain,show"]
