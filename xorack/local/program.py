"""A program that runs to its end, and takes all that it has started with it."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from xorack.core.errors import LocalError

_GRACE_SECONDS = 3.0


def run_program(command: Sequence[str], *, cwd: Path, environ: Mapping[str, str], log: Path) -> str:
    """Run a program to its end and return its stdout; its stderr goes to the log.

    Processes that it has started end with it, also after Ctrl-C. If it fails, the last line of its
    stderr is a LocalError.
    """
    # Files and no pipes: a process that the program leaves running would hold a pipe open.
    with (
        log.open("w+", encoding="utf-8", errors="replace") as errors,
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output,
    ):
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,  # a process group that ends together
        )
        try:
            process.wait()
        finally:
            _end(process)
        if process.returncode == 0:
            output.seek(0)
            return output.read()
        errors.seek(0)
        lines = [line.strip() for line in errors if line.strip()]
    last = lines[-1].removeprefix("error: ") if lines else f"ended with status {process.returncode}"
    raise LocalError(f"{last} (all of it: {log})" if len(lines) > 1 else last)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and its group, first with SIGTERM, then with SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        if process.returncode is None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=_GRACE_SECONDS)
