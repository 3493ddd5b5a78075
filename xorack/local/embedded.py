"""ministack as a child process: an AWS that deploys the stack's template and runs its functions."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, TypeAlias

from xorack.errors import LocalError
from xorack.local import environment
from xorack.local.isolation import ACCOUNT, REGION, isolated

Client: TypeAlias = Any  # boto3 makes its clients at run time, without types

HOST = "127.0.0.1"
LOG_NAME = "ministack.log"
_READY_SECONDS = 60.0
_POLL_SECONDS = 0.1
_TAIL_LINES = 15


class ClientCache:
    """boto3 clients, which are made once. Threads may share the cache and its clients."""

    def __init__(self, make: Callable[..., Client]) -> None:
        self._make = make
        self._clients: dict[str, Client] = {}
        self._lock = threading.Lock()

    def client(self, service: str, **options: Any) -> Client:
        """Return a boto3 client. With options for `boto3.client`, each call makes a new client."""
        with self._lock:
            if options:
                return self._make(service, **options)
            if service not in self._clients:
                self._clients[service] = client = self._make(service)
                # boto3 makes these classes at their first use, without a lock. So use them here,
                # before threads start.
                _ = client.exceptions
            return self._clients[service]


class EmbeddedAWS(ClientCache):
    """An AWS on the loopback interface. It starts empty, and leaves nothing when it stops.

    The object is a context manager. The embedded AWS ends with the process that started it, even if
    that process is killed.

    Attributes:
        port: The port on which it listens. None before the start, unless a port was requested.
    """

    def __init__(
        self, port: int | None = None, *, python: Path | None = None, folder: Path | None = None
    ) -> None:
        """Store the options. Nothing runs before `start`.

        By default, it listens on a free port, and runs in the environment that
        `xorack.local.environment` makes. Its files and its log are in a temporary folder.
        """
        super().__init__(self._make_client)
        self.port = port
        self._requested_port = port
        self._python = python
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._directory: Path | None = None

    @property
    def endpoint_url(self) -> str:
        """The address, for `endpoint_url` and `AWS_ENDPOINT_URL`."""
        if self.port is None:
            raise LocalError("the embedded AWS has not been started: call start() first")
        return f"http://{HOST}:{self.port}"

    def environ(self) -> dict[str, str]:
        """Return an environment in which boto3 finds only this AWS."""
        return {**isolated(os.environ), "AWS_ENDPOINT_URL": self.endpoint_url}

    def fetch(self, path: str, timeout_seconds: float = 30) -> bytes:
        """Get a page of the embedded AWS itself, without any proxy that the environment names."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(self.endpoint_url + path, timeout=timeout_seconds) as response:
            return bytes(response.read())

    def answers(self) -> bool:
        try:
            self.fetch("/_ministack/ready", timeout_seconds=2)
        except OSError:
            return False
        return True

    def _make_client(self, service: str, **options: Any) -> Client:
        import botocore.config
        import botocore.session

        # This session does not read the user's configuration.
        session = botocore.session.Session(session_vars={"profile": (None, None, None, None)})
        session.set_config_variable("config_file", os.devnull)
        session.set_config_variable("credentials_file", os.devnull)
        retries = {"mode": "standard", "max_attempts": 5}
        options.setdefault("endpoint_url", self.endpoint_url)
        options.setdefault("config", botocore.config.Config(retries=retries, proxies={}))
        return session.create_client(
            service,
            region_name=REGION,
            aws_access_key_id="local",
            aws_secret_access_key="local",  # noqa: S106 - the embedded AWS accepts any key
            **options,
        )

    def start(self) -> EmbeddedAWS:
        """Start the embedded AWS and wait until it is ready. An error shows the end of its log."""
        python = self._python or environment.ensure()
        self.port = _free_port(self._requested_port or 0)
        with ExitStack() as failed:
            failed.callback(self.stop)
            self._launch(python)
            self._wait()
            failed.pop_all()
        return self

    def _launch(self, python: Path) -> None:
        if self._folder is not None:
            self._folder.mkdir(mode=0o700)
        self._directory = directory = self._folder or Path(tempfile.mkdtemp(prefix="xorack-aws-"))
        # Functions must find the modules of their own code, and not the modules of the checkout.
        excluded = ("PYTHON", "VIRTUAL_ENV", "MINISTACK_")
        environ = {
            **{n: v for n, v in isolated(os.environ).items() if not n.startswith(excluded)},
            "BIND_HOST": HOST,
            "MINISTACK_HOST": HOST,
            "GATEWAY_PORT": str(self.port),
            "MINISTACK_ACCOUNT_ID": ACCOUNT,
            "MINISTACK_REGION": REGION,
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "TMPDIR": str(directory),
            "STATE_DIR": str(directory / "state"),
            "S3_DATA_DIR": str(directory / "s3"),
            "HOME": str(directory),
            "PERSIST_STATE": "0",
            # By default, ministack listens on further ports for these services.
            "SFTP_ENABLED": "0",
            "IOT_MTLS_ENABLED": "0",
            # By default, ministack connects to Docker, which it does not need here.
            "DOCKER_HOST": f"unix://{directory}/no-docker",
        }
        script = Path(__file__).with_name("ministack_process.py")
        with (directory / LOG_NAME).open("wb") as log:
            self._process = subprocess.Popen(
                [str(python), "-I", str(script), str(directory)],
                cwd=directory,
                env=environ,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # the process group can be ended as a whole
            )

    def _wait(self) -> None:
        assert self._process is not None
        assert self._directory is not None
        deadline = time.monotonic() + _READY_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            if self.answers():
                return
            time.sleep(_POLL_SECONDS)
        problem = f"ended with status {self._process.returncode}"
        if self._process.returncode is None:
            problem = f"was not ready within {_READY_SECONDS:g} s"
        lines = (self._directory / LOG_NAME).read_text(errors="replace").splitlines()
        end = "\n".join(["the end of its log:", *lines[-_TAIL_LINES:]])
        raise LocalError(f"the embedded AWS {problem}; {end if lines else 'its log is empty'}")

    def detach(self) -> None:
        """Let the embedded AWS and its files outlive this process. Then `stop` has no effect."""
        assert self._process is not None
        assert self._process.stdin is not None
        with self._process.stdin as pipe:
            pipe.write(b"run on\n")
        self._process.returncode = 0  # so that Python does not wait for the process
        self._process = self._directory = None

    def stop(self) -> None:
        """Stop the embedded AWS with its Lambda workers, and remove its files.

        A second call does nothing.
        """
        process, self._process = self._process, None
        directory, self._directory = self._directory, None
        self._clients.clear()
        self.port = self._requested_port
        if process is not None:
            with process, suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # kills the process and its workers
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)

    def __enter__(self) -> EmbeddedAWS:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def _free_port(port: int) -> int:
    """Check that the port is free, and return it. For 0, choose a free port."""
    with socket.socket() as probe:
        # A port whose connections are closing counts as free, as it does for a server.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            text = "choose another port or stop the other program"
            raise LocalError(f"port {port} is taken: {error.strerror}; {text}") from error
        return int(probe.getsockname()[1])
