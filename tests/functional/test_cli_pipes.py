"""Commands behind a reader that closes the pipe early: `| head -1`."""

import os
import sys
import threading

import pytest

from tests.support.cli import apply, finish, start
from tests.support.dead_letters import put, put_messages
from xorack import traced
from xorack.cli import main
from xorack.core.request import Request


class Pipe:
    """A pipe as stdout, and perhaps stderr; its reader closes it after so many bytes."""

    def __init__(self, monkeypatch, size, names):
        self.read = b""
        source, target = os.pipe()
        # Errors appear at the latest when the file is closed, as at the end of the process.
        self.file = open(target, "w", encoding="utf-8")  # noqa: SIM115
        for name in names:
            monkeypatch.setattr(sys, name, self.file)
        self.reader = threading.Thread(target=self._read, args=(source, size), daemon=True)
        self.reader.start()
        if not size:
            self.reader.join()

    def _read(self, source, size):
        with open(source, "rb", buffering=0) as file:
            self.read = file.read(size)


@pytest.mark.thorough
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
    pipe = Pipe(monkeypatch, 0, names)
    assert main(command.split()) == 1
    pipe.file.close()
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if not line.startswith("in the queues: ")] == []


@pytest.mark.thorough
@pytest.mark.parametrize(
    "command",
    ["list --json", pytest.param("dead-letters show --limit 100", marks=pytest.mark.slow)],
)
def test_a_reader_of_a_large_output_that_closes_early(stack, sqs, capsys, monkeypatch, command):
    """More than a pipe holds: what fits may be written before the reader closes."""
    detail = {"text": "x" * 3900}
    tags = [f"{n}".zfill(900) for n in range(40)]
    apply(stack, *(Request("create", tag, "c", traced(1), 1, detail=detail) for tag in tags))
    for _ in range(40):
        put(stack, "x" * 10_000)
    pipe = Pipe(monkeypatch, 10, ["stdout"])
    assert main(command.split()) == 1
    pipe.file.close()
    pipe.reader.join()
    assert len(pipe.read) == 10
    assert capsys.readouterr().err == ""
