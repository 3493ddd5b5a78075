"""`xorack local`: an embedded AWS in the background, with the stack in it.

A folder of the user contains all its files: the process's lock, files and log, and a description of
the stack. `stop` removes the folder. Several embedded AWS can run at once, each with its own name
and folder.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xorack.errors import LocalError, NotRunningError
from xorack.local import assembly, environment
from xorack.local.deploy import Stack, deploy, iso_time
from xorack.local.embedded import LOG_NAME, EmbeddedAWS
from xorack.local.isolation import isolated

_STOP_SECONDS = 10.0
_POLL_SECONDS = 0.05
NAME = "XORACK_LOCAL_NAME"
"""The variable that names one of several embedded AWSs."""
Notify = Callable[[str], object]


@dataclass(frozen=True)
class Background:
    """The embedded AWS in the background, and the stack in it; see `Stack`.

    `instance` distinguishes several embedded AWS of one user. `pid` is also the id of the process
    group.
    """

    pid: int
    port: int
    started_at: float
    name: str
    outputs: dict[str, str]
    functions: dict[str, str]
    instance: str = ""

    @property
    def log(self) -> Path:
        """The log of the embedded AWS and of the functions."""
        return _home(self.instance) / LOG_NAME

    @property
    def stack(self) -> Stack:
        return Stack(EmbeddedAWS(self.port), self.name, self.outputs, self.functions)

    def to_dict(self) -> dict[str, Any]:
        stack = self.stack
        return {
            **({"name": self.instance} if self.instance else {}),
            "endpoint_url": stack.aws.endpoint_url,
            "stack": stack.name,
            "queue_url": stack.queue_url,
            "dead_letter_queue_url": stack.dead_letter_queue_url,
            "table_name": stack.table_name,
            "event_bus_name": stack.bus_name,
            "pid": self.pid,
            "started_at": iso_time(self.started_at),
            "log": str(self.log),
        }

    def environ(self) -> dict[str, str | None]:
        """Return the variables by which boto3 and xorack find this AWS.

        None means that a variable is to be unset.
        """
        aws, stack = isolated(os.environ), self.stack
        foreign = {name for name in os.environ if name.startswith("AWS_") and name not in aws}
        return {
            **dict.fromkeys(sorted(foreign)),
            NAME: self.instance or None,
            **{name: aws[name] for name in isolated({})},
            "AWS_ENDPOINT_URL": stack.aws.endpoint_url,
            "XORACK_STACK": stack.name,
            "XORACK_QUEUE_URL": stack.queue_url,
            "XORACK_DEAD_LETTER_QUEUE_URL": stack.dead_letter_queue_url,
            "XORACK_TABLE": stack.table_name,
            "XORACK_EVENT_BUS_NAME": stack.bus_name,
        }

    def events(self, position: int = 0) -> tuple[list[dict[str, Any]], int]:
        """Return `Stack.events`, or raise LocalError if the embedded AWS does not respond."""
        try:
            return self.stack.events(position)
        except OSError as error:
            find(self.instance)
            text = "run `xorack local stop` and start it again"
            raise LocalError(f"xorack local does not respond: {error}; {text}") from error


@contextmanager
def _os_errors_named() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        place = error.filename or "the state folder of xorack local"
        raise LocalError(f"{place}: {error.strerror or error}") from error


def state_folder(instance: str = "") -> Path:
    """Return the user's folder for `xorack local`, or for the instance of this name."""
    # A relative path is ignored, as XDG specifies.
    configured = os.environ.get("XDG_STATE_HOME", "")
    state = Path(configured) if os.path.isabs(configured) else Path.home() / ".local" / "state"
    return state / "xorack" / f"local{instance and f'-{instance}'}"


def _command(name: str, instance: str) -> str:
    return f"xorack local {name}" + (f" --name {instance}" if instance else "")


def _home(instance: str) -> Path:
    """Return the folder, which exists only while the embedded AWS runs."""
    return state_folder(instance) / "aws"


@_os_errors_named()
def find(instance: str = "") -> Background:
    """Return the embedded AWS in the background; raise NotRunningError if there is none."""
    home, start_ = _home(instance), _command("start", instance)
    if _pid(home):
        with suppress(OSError, ValueError, TypeError):
            return Background(**json.loads((home / "state.json").read_text(encoding="utf-8")))
        stop_ = _command("stop", instance)
        problem = f"is starting, or its start was interrupted: {stop_} ends it"
    elif (home / "state.json").exists():
        log = f"(log: {home / LOG_NAME})"
        problem = f"has ended unexpectedly: {start_} starts it again, without its data {log}"
    else:
        problem = f"is not running: {start_} starts it"
    raise NotRunningError(f"xorack local {problem}")


@_os_errors_named()
def start(notify: Notify = lambda _: None, instance: str = "") -> tuple[Background, bool]:
    """Start an embedded AWS in the background, deploy the stack and wait until it is ready.

    If the start fails or is interrupted, nothing keeps running. `notify` is called with a line
    before each step that may take long. Returns the embedded AWS, and whether it was just started.
    """
    with _lock(instance, notify):
        with suppress(NotRunningError):
            running = find(instance)
            if running.stack.aws.answers():
                return running, False
            problem = f"process {running.pid} and does not respond (log: {running.log})"
            advice = f"run `{_command('stop', instance)}` first"
            raise LocalError(f"xorack local runs as {problem}: {advice}")
        home = _home(instance)
        _remove(home)
        python = environment.ensure(notify=notify)
        template = assembly.find_template(notify)
        with EmbeddedAWS(python=python, folder=home) as aws:
            notify(f"deploying the stack into {aws.endpoint_url}")
            stack = deploy(aws, template)
            assert aws.port is not None
            running = Background(
                pid=_pid(home),
                port=aws.port,
                started_at=time.time(),
                name=stack.name,
                outputs=dict(stack.outputs),
                functions=dict(stack.functions),
                instance=instance,
            )
            state = json.dumps(dataclasses.asdict(running), indent=2)
            (home / "state.json").write_text(state, encoding="utf-8")
            aws.detach()
        return running, True


@_os_errors_named()
def stop(notify: Notify = lambda _: None, instance: str = "") -> bool:
    """Stop the embedded AWS with its functions and remove its files; return whether it ran."""
    with _lock(instance, notify):
        return _remove(_home(instance))


def _remove(home: Path) -> bool:
    """End the process if it runs, and remove its files; return whether it ran."""
    ran = pid = _pid(home)
    if pid:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        deadline = time.monotonic() + _STOP_SECONDS
        while _pid(home):
            if time.monotonic() > deadline:
                raise LocalError(f"process {pid} of xorack local does not end: kill it")
            time.sleep(_POLL_SECONDS)
    shutil.rmtree(home, ignore_errors=True)
    if home.exists():  # a function that was ending may have written another file
        shutil.rmtree(home)
    return bool(ran)


def _pid(home: Path) -> int:
    """Return the id of the process that holds the folder's lock, or 0."""
    with suppress(FileNotFoundError, NotADirectoryError), (home / "running").open() as file:
        try:
            # The lock is shared. Otherwise two callers could take each other for the embedded AWS.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(file.read() or 0)
    return 0


@contextmanager
def _lock(instance: str, notify: Notify) -> Iterator[None]:
    """Allow only one command at a time to start or stop."""
    folder = state_folder(instance)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            notify("waiting for another start or stop of xorack local")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
