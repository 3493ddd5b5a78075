"""The Spark session that all tests share, and a queue that jobs can reach."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pyspark
import pytest

from tests.spark.orders import Run
from tests.support import iceberg
from tests.support.functions import Functions
from tests.support.queue_server import QueueServer

ROOT = Path(__file__).resolve().parents[2]
CONNECT = any(Path(pyspark.__file__).parent.glob("jars/spark-connect_*.jar"))
"""Whether PySpark brings the Connect server, as it does from 4.0 on."""
collect_ignore = ["test_publish.py" if CONNECT else "test_windows_stream.py"]
"""Only PySpark 3.5 has a runtime of Iceberg, and only PySpark 4 has data sources in Python."""


@pytest.fixture(scope="session")
def spark(_no_real_aws, request, tmp_path_factory):
    """Start a local session that retries failed tasks, as a cluster does."""
    from pyspark.sql import SparkSession

    from xorack.local.java import java_home

    os.environ["JAVA_HOME"] = str(java_home())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Python workers import the functions of the tests by name.
    os.environ["PYTHONPATH"] = str(ROOT)
    options = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.daemon.module": "tests.support.spark_daemon",
        "spark.sql.shuffle.partitions": "2",
        # A third of the time of small queries; the demo and the tests of clusters have it on.
        "spark.sql.adaptive.enabled": "false",
        # Compiling takes longer than the small frames of tests; test_units compiles its columns.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        # It looks for the caller's line at each call: a twentieth of the time of these tests.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
        "-Djava.net.preferIPv4Stack=true "
        f"-Dlog4j2.configurationFile={ROOT / 'pipeline' / 'log4j2.properties'}",
    }
    # The same JVM serves the fixture `connect`, which slow tests alone have.
    if CONNECT and any(item.get_closest_marker("slow") for item in request.session.items):
        options |= {
            "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": "0",
        }
    if not CONNECT and (jars := iceberg.jars(tmp_path_factory.mktemp("jars"))):
        options |= iceberg.settings(jars, tmp_path_factory.mktemp("warehouse"))
    builder = SparkSession.builder.master("local[2,2]").appName("xorack tests")
    session = builder.config(map=options).getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def _connect_session(spark):
    """Start a Connect session on the server in the JVM of `spark`."""
    if not CONNECT:
        pytest.skip("this PySpark comes without the Connect server")
    from pyspark.sql.connect.session import SparkSession

    service = getattr(spark._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    port = getattr(service, "MODULE$").localPort()
    session = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").create()
    yield session
    session.stop()


@pytest.fixture
def connect(_connect_session, monkeypatch):
    """Return a Connect session; the functions of `pyspark.sql` are its own for this test."""
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    return _connect_session


EACH_SESSION = pytest.mark.parametrize(
    "session", ["classic", pytest.param("connect", marks=pytest.mark.slow)], indirect=True
)
"""Runs a test on Spark Connect, too."""


@pytest.fixture
def session(spark, request):
    """Return the classic session, or the Connect session."""
    on_connect = getattr(request, "param", "") == "connect"
    return request.getfixturevalue("connect") if on_connect else spark


@pytest.fixture
def run(session, queue, tmp_path):
    """Return a run of a user's jobs."""
    return Run(session, queue, tmp_path)


@pytest.fixture(scope="session")
def _started(spark, tmp_path_factory):
    with QueueServer() as queue:
        run = Run(spark, queue, tmp_path_factory.mktemp("started"))
        run.rows.start(run.write_lines())
        yield run


@pytest.fixture
def started(_started):
    """Return a run whose lines were started, and of which no call has finished a chain.

    Tests of all files share its lines, and do not change them. To start other rows, a test needs
    another run_id, because an earlier test may have finished all rows of this run.
    """
    for record in (_started.root / "records").rglob("finished*"):
        shutil.rmtree(record)
    _started.sent()
    return _started.again()


@pytest.fixture
def configure(spark):
    """Return a function that sets options of the session until the test ends."""
    before = {}

    def set_option(option, value):
        before.setdefault(option, spark.conf.get(option, None))
        spark.conf.set(option, value)

    yield set_option
    for option, value in reversed(before.items()):
        spark.conf.unset(option) if value is None else spark.conf.set(option, value)


@pytest.fixture
def functions(aws, monkeypatch):
    return Functions(aws, monkeypatch)


@pytest.fixture
def queue():
    """Start a `QueueServer`."""
    with QueueServer() as server:
        yield server


@pytest.fixture
def check_error(queue, capfd):
    """Return a check: a job wrote one line on stderr, no output folder and no message."""

    def check(message, out):
        printed, errors = capfd.readouterr()
        assert message in errors
        assert (printed, errors.count("\n")) == ("", 1)
        assert not out.exists()
        assert queue.bodies == []

    return check
