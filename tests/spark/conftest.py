"""One Spark session for all tests that need one: starting it costs more than using it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support.queue_server import QueueServer


@pytest.fixture(scope="session")
def spark(_no_real_aws):
    """A local session that tries tasks again, as a cluster does."""
    from pyspark.sql import SparkSession

    from xorack.local.java import java_home

    os.environ["JAVA_HOME"] = str(java_home())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # What tests hand to the workers is found there by name.
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
    log = Path(__file__).resolve().parents[2] / "pipeline" / "log4j2.properties"
    started = (
        SparkSession.builder.master("local[2,4]")
        .appName("xorack tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config(
            "spark.driver.extraJavaOptions",
            "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.net.preferIPv4Stack=true "
            f"-Dlog4j2.configurationFile={log}",
        )
        .getOrCreate()
    )
    yield started
    started.stop()


@pytest.fixture
def queue():
    """A queue that jobs can reach; see `QueueServer`."""
    server = QueueServer()
    yield server
    server.stop()
