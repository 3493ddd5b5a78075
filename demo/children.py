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
from types import FrameType
from typing import NoReturn

from demo.errors import DemoFailed

__all__ = ["Children", "Interrupted", "interruptible"]

_GRACE_SECONDS = 3.0


class Interrupted(KeyboardInterrupt):
    """The demo was asked to stop, by Ctrl-C or a signal."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Turn the signals that end a program into an exception, so that what it started ends too.

    Yields:
        Nothing.
    """

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        # Once is enough: a second one would interrupt the cleaning up.
        for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(one, signal.SIG_IGN)
        raise Interrupted

    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's
        return
    before = {
        number: signal.signal(number, stop)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        # Of nohup, for example: what is ignored stays ignored.
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Children:
    """Runs programs, each in a process group of its own: what they start ends with them.

    A context manager; leaving it ends what is still running.
    """

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()
        self._closed = False

    def run(
        self, command: Sequence[str], *, cwd: Path, environ: Mapping[str, str], log: Path
    ) -> str:
        """Run a program to its end.

        Args:
            command: The program and its arguments.
            cwd: Where it runs.
            environ: Its whole environment.
            log: The file that its stderr goes to.

        Returns:
            What it printed on stdout.

        Raises:
            DemoFailed: It failed; the message is the last line of its stderr.
        """
        # Files and no pipes: what the program leaves running would hold a pipe open.
        with (
            log.open("w+", encoding="utf-8", errors="replace") as errors,
            tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as told,
        ):
            with self._lock:
                if self._closed:
                    raise Interrupted
                process = subprocess.Popen(
                    command,
                    cwd=cwd,
                    env=dict(environ),
                    stdin=subprocess.DEVNULL,
                    stdout=told,
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
                told.seek(0)
                return told.read()
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
    """End a process and all of its group, kindly first."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        if process.returncode is not None:
            # It is gone; what is left of its group, if anything, need not be asked twice.
            continue
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_GRACE_SECONDS)
