"""Runs a program to its end, and ends all processes that it has started."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from xorack.errors import LocalError

_GRACE_SECONDS = 3.0
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals with which people and systems end a program."""


def run_program(command: Sequence[str], *, cwd: Path, environ: Mapping[str, str], log: Path) -> str:
    """Run a program to its end and return its stdout. Its stderr goes to the log.

    The processes that the program started end with it, even after Ctrl-C. If the program fails, a
    LocalError has the last line of its stderr.
    """
    # Files are used instead of pipes, because a child that outlives the program would keep a pipe
    # open.
    with (
        log.open("w+", encoding="utf-8", errors="replace") as errors,
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output,
    ):
        process = None
        try:
            with _signals_held():
                process = subprocess.Popen(
                    command,
                    cwd=cwd,
                    env=dict(environ),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=errors,
                    start_new_session=True,  # the process group can be ended as a whole
                )
            process.wait()
        finally:
            if process is not None:
                with _signals_held():
                    _end(process)
        if process.returncode == 0:
            output.seek(0)
            return output.read()
        errors.seek(0)
        lines = [line.strip() for line in errors if line.strip()]
    last = lines[-1].removeprefix("error: ") if lines else f"ended with status {process.returncode}"
    raise LocalError(f"{last} (all of it: {log})" if len(lines) > 1 else last)


@contextmanager
def _signals_held() -> Iterator[None]:
    """Delay signals until the end of the block, because within it a child could be left behind.

    The signals are not masked, because the child would inherit the mask.
    """
    came: list[signal.Signals] = []
    handlers = {}
    if threading.current_thread() is threading.main_thread():
        handlers = {n: h for n in SIGNALS if callable(h := signal.getsignal(n))}
    try:
        for number in handlers:
            signal.signal(number, lambda number, _: came.append(signal.Signals(number)))
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if came:
        signal.raise_signal(came[0])


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and its group with SIGTERM, and after a time with SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        if process.returncode is None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=_GRACE_SECONDS)
