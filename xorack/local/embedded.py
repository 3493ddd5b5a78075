"""ministack as a child process: an AWS that takes the stack's template and runs its functions."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

from xorack.local import environment
from xorack.local.errors import PortTaken, StartFailed
from xorack.local.isolation import ACCOUNT, REGION, isolated

Client: TypeAlias = Any  # boto3 makes its clients at run time and has no types for them
Option: TypeAlias = Any

HOST = "127.0.0.1"
_ATTEMPTS = 3
_TAIL_LINES = 15


class EmbeddedAWS:
    """An AWS on the loopback interface, empty when it starts, gone without a trace when it stops.

    It ends with the process that started it, even where that is killed. Use it as a context
    manager, or call `start` and `stop`::

        with EmbeddedAWS() as aws:
            stack = deploy(aws, template, assets)

    Attributes:
        port: The port it listens on; None until it is started, unless one was asked for.
        log: Where it logs, while it runs.
    """

    def __init__(
        self,
        port: int | None = None,
        *,
        python: Path | None = None,
        deadline_seconds: float = 60.0,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """Says how it will be; nothing happens before `start`.

        Args:
            port: The port to listen on; a free one by default.
            python: Python of an environment with ministack; by default the one of
                `xorack.local.environment`, made where it is missing.
            deadline_seconds: How long it may take until it is ready.
            environ: Variables for ministack itself, on top of its own; what is here, its Lambda
                functions see as well.
        """
        self.port = port
        self.log: Path | None = None
        self._asked = port
        self._python = python
        self._deadline_seconds = deadline_seconds
        self._extra = dict(environ or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._directory: Path | None = None
        self._clients: dict[str, Client] = {}
        self._lock = threading.Lock()

    @property
    def endpoint_url(self) -> str:
        """Where it is, for `endpoint_url` and `AWS_ENDPOINT_URL`."""
        if self.port is None:
            raise StartFailed("the embedded AWS has not been started")
        return f"http://{HOST}:{self.port}"

    def environ(self, endpoint_url: str | None = None) -> dict[str, str]:
        """Returns an environment in which boto3, and so a child process, finds this AWS alone.

        Args:
            endpoint_url: Where to find it instead, for example at a proxy in front of it.

        Returns:
            A whole environment: this process's, without any `AWS_` variables but these.
        """
        return {**isolated(os.environ), "AWS_ENDPOINT_URL": endpoint_url or self.endpoint_url}

    def client(self, service: str, **options: Option) -> Client:
        """Returns a boto3 client for it; safe to call, and its result to use, from many threads.

        Args:
            service: Name of the service, for example `sqs`.
            **options: What `boto3.client` takes; a client with options is made anew each time.

        Returns:
            The client.
        """
        with self._lock:
            if options:
                return self._make_client(service, **options)
            if service not in self._clients:
                self._clients[service] = self._make_client(service)
                # Made when first looked at, by two threads twice: an `except` then catches nothing.
                _ = self._clients[service].exceptions
            return self._clients[service]

    def _make_client(self, service: str, **options: Option) -> Client:
        import botocore.config
        import botocore.session

        # A session of its own, told everything: nothing of the user's configuration is read.
        session = botocore.session.Session(session_vars={"profile": (None, None, None, None)})
        session.set_config_variable("config_file", os.devnull)
        session.set_config_variable("credentials_file", os.devnull)
        options.setdefault("endpoint_url", self.endpoint_url)
        options.setdefault(
            "config",
            botocore.config.Config(retries={"mode": "standard", "max_attempts": 5}, proxies={}),
        )
        return session.create_client(
            service,
            region_name=REGION,
            aws_access_key_id="local",
            aws_secret_access_key="local",  # noqa: S106 - the embedded AWS asks for any
            **options,
        )

    def start(self) -> EmbeddedAWS:
        """Starts it and waits until it answers.

        Returns:
            Itself.

        Raises:
            PortTaken: Another program listens on the port asked for.
            StartFailed: It ended, or was not ready in time; the message ends with its log's tail.
            EnvironmentFailed: Its environment could not be made.
        """
        if self._process is not None:
            raise StartFailed("the embedded AWS is running already")
        python = self._python or environment.ensure()
        if self._asked is not None:
            _check_free(self._asked)
        for attempt in range(_ATTEMPTS):
            self.port = self._asked or _free_port()
            try:
                self._launch(python)
                self._wait()
            except BaseException as error:
                tail = self._tail()
                self.stop()
                if not isinstance(error, StartFailed):
                    raise
                # Between our look and its start another program may have taken the port.
                if "already in use" in tail or "address already" in tail.lower():
                    if self._asked is not None:
                        raise PortTaken(f"port {self._asked} is taken") from error
                    if attempt + 1 < _ATTEMPTS:
                        continue
                raise StartFailed(f"{error}; the end of its log:\n{tail}") from error
            return self
        raise AssertionError("unreachable")

    def _launch(self, python: Path) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="xorack-aws-"))
        self.log = self._directory / "ministack.log"
        # Nothing that makes one Python find another's modules: the functions must run on what is in
        # their own code, and there the checkout is not.
        clean = {
            name: value
            for name, value in isolated(os.environ).items()
            if not name.startswith(("PYTHON", "VIRTUAL_ENV", "MINISTACK_"))
        }
        environ = {
            **clean,
            "BIND_HOST": HOST,
            "MINISTACK_HOST": HOST,
            "GATEWAY_PORT": str(self.port),
            "MINISTACK_ACCOUNT_ID": ACCOUNT,
            "MINISTACK_REGION": REGION,
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "TMPDIR": str(self._directory),
            "STATE_DIR": str(self._directory / "state"),
            "S3_DATA_DIR": str(self._directory / "s3"),
            "HOME": str(self._directory),
            "PERSIST_STATE": "0",
            # It would listen for these too, on ports that are not ours to take.
            "SFTP_ENABLED": "0",
            "IOT_MTLS_ENABLED": "0",
            # And it looks for a Docker that it does not need.
            "DOCKER_HOST": f"unix://{self._directory}/no-docker",
            **self._extra,
        }
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    str(python),
                    "-I",
                    str(Path(__file__).with_name("ministack_process.py")),
                    str(self._directory),
                ],
                cwd=self._directory,
                env=environ,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a process group: what is to end with it
            )

    def _wait(self) -> None:
        process = self._process
        assert process is not None
        deadline = time.monotonic() + self._deadline_seconds
        pause = 0.05
        while True:
            if process.poll() is not None:
                raise StartFailed(f"the embedded AWS ended with status {process.returncode}")
            if _answers(f"{self.endpoint_url}/_ministack/ready"):
                return
            if time.monotonic() > deadline:
                took = f"{self._deadline_seconds:g}"
                raise StartFailed(f"the embedded AWS was not ready within {took} s")
            time.sleep(pause)
            pause = min(pause * 1.5, 0.5)

    def _tail(self) -> str:
        with suppress(OSError, AttributeError):
            assert self.log is not None
            lines = self.log.read_text(errors="replace").splitlines()
            return "\n".join(lines[-_TAIL_LINES:])
        return ""

    @property
    def running(self) -> bool:
        """Whether it is started and has not ended by itself."""
        return self._process is not None and self._process.poll() is None

    def kill_workers(self) -> int:
        """Kills the processes that run Lambda functions, in the middle of whatever they do.

        The invocations fail, as when a function is killed on AWS; later ones get new processes.

        Returns:
            How many there were.
        """
        if self._process is None:
            return 0
        listed = subprocess.run(
            ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
        )
        pairs = [line.split() for line in listed.stdout.splitlines()]
        killed = 0
        for pid in (int(pid) for pid, parent in pairs if int(parent) == self._process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
        return killed

    def stop(self) -> None:
        """Stops it, with its Lambda workers, and removes all that it kept. May be called twice."""
        process, self._process = self._process, None
        directory, self._directory = self._directory, None
        self._clients.clear()
        self.port, self.log = self._asked, None
        if process is not None:
            assert process.stdin is not None
            with suppress(OSError):
                process.stdin.close()  # what it waits for: see ministack_process.py
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=10)
            # The group outlives its leader while a worker is left in it.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)

    def __enter__(self) -> EmbeddedAWS:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _check_free(port: int) -> None:
    with socket.socket() as probe:
        # As a server binds: a port whose last connections are still closing is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise PortTaken(f"port {port} is taken: {error.strerror}") from error
        except OverflowError as error:
            raise PortTaken(f"{port} is not a port: expected 1 to 65535") from error


def _answers(url: str) -> bool:
    # Not through a proxy that the user's environment may name.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False
