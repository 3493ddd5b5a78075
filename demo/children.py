"""Child processes that end with the demo, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from demo.errors import DemoFailed

_GRACE_SECONDS = 3.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise `KeyboardInterrupt` on the signals that end a program."""

    def interrupt(*_: object) -> NoReturn:
        for number in _SIGNALS:  # a second signal would interrupt the cleaning up
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    # An ignored signal stays ignored, under nohup for example.
    handled = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in handled}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Children:
    """Child processes; leaving this context manager ends them, with their own children."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()
        self._closed = False

    def run(
        self, command: Sequence[str], *, cwd: Path, environ: Mapping[str, str], log: Path
    ) -> str:
        """Run a program to its end and return its stdout; its stderr goes to the log.

        Raises:
            DemoFailed: The program failed; the message is the last line of its stderr.
            KeyboardInterrupt: The context manager was left before.
        """
        # Files and no pipes: a process that the program leaves running would hold a pipe open.
        with (
            log.open("w+", encoding="utf-8", errors="replace") as errors,
            tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output,
        ):
            with self._lock:
                if self._closed:
                    raise KeyboardInterrupt
                process = subprocess.Popen(
                    command,
                    cwd=cwd,
                    env=dict(environ),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=errors,
                    start_new_session=True,
                )
                self._running.append(process)
            try:
                process.wait()
            finally:
                _end(process)
                with self._lock:
                    self._running.remove(process)
            if process.returncode == 0:
                output.seek(0)
                return output.read()
            errors.seek(0)
            lines = [line.strip() for line in errors if line.strip()]
        last = lines[-1] if lines else f"ended with status {process.returncode}"
        raise DemoFailed(f"{last} (all of it: {log})" if len(lines) > 1 else last)

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._closed = True
            running = list(self._running)
        for process in running:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and its group, first with SIGTERM, then with SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        if process.returncode is None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=_GRACE_SECONDS)
