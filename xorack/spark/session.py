"""A Spark session for a command: the one that it runs under, or else one in this process."""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import glob
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

from xorack.core.errors import LocalError
from xorack.spark.java import java_home

__all__ = ["bytes_in", "open_session"]

_CONFIGURED = ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS")
"""Variables of an installation that has settings of its own."""
_CGROUP = Path("/sys/fs/cgroup/memory.max")
_GIB = 2**30
_SMALL_BYTES = 2**26
"""Up to here, the optimising compiler takes more time than it saves: 20 s of 35 for two lines."""
_CONNECT_SECONDS = 20
_PARTITIONS = 200
_PARTITION_BYTES = 2**24
_PROBLEM = re.compile("error|exception|not ", re.IGNORECASE)


@contextmanager
def open_session(
    name: str, *, remote: str | None = None, input_bytes: int | None = None, verbose: bool = False
) -> Iterator[tuple[Any, bool]]:
    """Open a session, and stop it at the end if this call started it.

    Uses Spark Connect with ``remote`` or ``$SPARK_REMOTE``, else the session that runs (as under
    spark-submit), else starts one. Its settings are those of ``$SPARK_HOME``, ``$SPARK_CONF_DIR``
    or ``$PYSPARK_SUBMIT_ARGS``; without these it runs on all cores of this machine.

    Args:
        name: The name of the application.
        remote: The URL of a Connect server, ``sc://host:port``.
        input_bytes: The size of what it will read: little of it needs no optimised code.
        verbose: Print Java's log on stderr.

    Yields:
        The session, and whether it runs in this process.

    Raises:
        ImportError: PySpark is missing, or a package that Connect needs.
        LocalError: There is no Java that can run Spark, or no Connect server; or Spark did not
            start, and the message has Java's last line.
    """
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    url = remote or os.environ.get("SPARK_REMOTE")
    if url:
        if url.startswith("sc://"):
            _check_server(url)
        session = builder.remote(url).getOrCreate()
        try:
            yield session, False
        except KeyboardInterrupt:
            with suppress(Exception):
                session.interruptAll()
            raise
        finally:
            with suppress(Exception):
                session.stop()
    elif "PYSPARK_GATEWAY_PORT" in os.environ or SparkSession.getActiveSession():
        session = builder.getOrCreate()
        yield session, _is_local(session)
    else:
        with tempfile.TemporaryDirectory(prefix="xorack-", ignore_cleanup_errors=True) as folder:
            settings = _settings(Path(folder), input_bytes)
            session = _start(name, settings, None if verbose else Path(folder, "spark.log"))
            try:
                yield session, _is_local(session)
            finally:
                with suppress(Exception), catch_warnings():
                    simplefilter("ignore")  # Ctrl-C ends Java, too
                    session.stop()


def _check_server(url: str) -> None:
    """Fail early where no Connect server answers: PySpark tries again for ten minutes."""
    import grpc
    from pyspark.sql.connect import client

    # PySpark 4, and 3.5.
    builder: Any = getattr(client, "DefaultChannelBuilder", None) or client.ChannelBuilder
    connection = builder(url)
    with connection.toChannel() as channel:
        try:
            grpc.channel_ready_future(channel).result(_CONNECT_SECONDS)
        except grpc.FutureTimeoutError:
            raise LocalError(
                f"there is no Spark Connect server at {connection.endpoint}, after "
                f"{_CONNECT_SECONDS} s"
            ) from None


def _start(name: str, settings: dict[str, str], log: Path | None) -> Any:
    """Start Java and a session; what Java prints goes to the log, or to stderr."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf().setAppName(name)
    if not any(map(os.environ.get, _CONFIGURED)):
        conf.setAll(list(settings.items()))
    with open(log or os.devnull, "wb") as file:
        output: dict[str, Any] = {"stdout": file if log else 2, "stderr": file if log else 2}
        try:
            with _interrupt_held():
                gateway = launch_gateway(conf, output)  # type: ignore[no-untyped-call]
                context = SparkContext(conf=conf, gateway=gateway)
            return SparkSession(context)
        except Exception as error:
            printed = log.read_text(errors="replace") if log else ""
            lines = [*printed.splitlines(), *str(error).splitlines()]
            problem = next(filter(_PROBLEM.search, lines), lines[-1] if lines else "")
            raise LocalError(f"Spark did not start: {problem.strip()}") from error


def _is_local(session: Any) -> bool:
    return str(session.sparkContext.master).startswith("local")


@contextmanager
def _interrupt_held() -> Iterator[None]:
    """Hold the first Ctrl-C back: a Java that is interrupted while it starts never ends.

    This also replaces PySpark's handler of it, which fails where Python waits for Java.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[bool] = []

    def hold(*_: object) -> None:
        if held:
            raise KeyboardInterrupt
        held.append(True)

    before = signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if held:
        raise KeyboardInterrupt


def _settings(folder: Path, input_bytes: int | None) -> dict[str, str]:
    """Return the settings of a session on this machine alone."""
    memory = max(_GIB, min(_memory() // 2, 16 * _GIB)) // 2**20
    java = "-Djava.net.preferIPv4Stack=true -XX:+UseParallelGC"
    partitions = _PARTITIONS
    if input_bytes is not None:
        partitions = min(_PARTITIONS, 2 * (os.cpu_count() or 1) + input_bytes // _PARTITION_BYTES)
        if input_bytes < _SMALL_BYTES:
            java += " -XX:TieredStopAtLevel=1"
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": java,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": os.environ.get("SPARK_DRIVER_MEMORY", f"{memory}m"),
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def bytes_in(*names: str) -> int | None:
    """Return the bytes of local files, folders and patterns, or None if one is something else."""
    total = 0
    for name in names:
        paths = glob(name) or [name]
        if not all(map(os.path.exists, paths)):
            return None
        files = [
            Path(path, one) for path in paths for path, _, some in os.walk(path) for one in some
        ]
        total += sum(file.stat().st_size for file in [*files, *map(Path, paths)] if file.is_file())
    return total


def _memory() -> int:
    """Return the bytes of memory of this machine, or of its container."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(machine, int(_CGROUP.read_text()))
    except (OSError, ValueError):  # not in a container, or without a limit: "max"
        return machine
