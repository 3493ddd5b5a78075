"""Killed executors, speculative copies, repeated jobs: the table afterwards.

The job is `tests.support.cluster_job`; the Lambda consumer's handler applies its messages. If a
retry counted twice, chains would be acked too early, or never.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.spark.helpers import (
    ROOT,
    apply,
    chains_in,
    duplicates_in,
    totals,
)
from tests.support.cluster_job import CHAINS, UNITS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TAGS = {f"r/file/{chain}" for chain in range(CHAINS)}
MISHAPS = {
    f"{step}-{what}" for step in ("start", "finish") for what in ("killed-after-sending", "hung")
}
HANGS = {name for name in MISHAPS if name.endswith("-hung")}


def run_job(queue, folder, spared=frozenset(), master="local-cluster[2,1,1024]"):
    """Run the job; return the messages that start units and those that finish them."""
    queue.bodies.clear()
    folder.mkdir(exist_ok=True)
    for mishap in spared:
        (folder / mishap).touch()
    (folder / "started").unlink(missing_ok=True)
    command = [sys.executable, "-m", "tests.support.cluster_job", master, queue.queue_url]
    log = folder / "log"
    with (
        log.open("wb") as out,
        subprocess.Popen([*command, str(folder)], cwd=ROOT, stdout=out, stderr=out) as process,
    ):
        starts = None
        while process.poll() is None:
            if starts is None and (folder / "started").exists():
                starts = len(queue.bodies)
            time.sleep(0.02)
    assert process.returncode == 0, log.read_text()[-6000:]
    assert {path.name for path in folder.iterdir()} >= MISHAPS
    return queue.bodies[:starts], queue.bodies[starts:]


def check(functions, starts, ends):
    """Apply all messages: chains stay open after all starts, and are acked after all ends."""
    aws = functions.aws
    apply(functions, starts)
    assert totals(chains_in(aws)) == dict.fromkeys(TAGS, ("open", UNITS, 0))
    apply(functions, ends)
    assert totals(chains_in(aws)) == dict.fromkeys(TAGS, ("acked", UNITS, UNITS))
    assert functions.events().keys() == TAGS
    apply(functions, starts + ends)
    assert totals(chains_in(aws)) == dict.fromkeys(TAGS, ("acked", UNITS, UNITS))
    assert aws.events() == []
    assert aws.dead_letters() == []


def test_killed_executors_and_a_repeated_job(functions, queue, tmp_path):
    starts, ends = run_job(queue, tmp_path / "run", HANGS)
    assert duplicates_in(starts) > 0
    assert duplicates_in(ends) > 0
    again = run_job(queue, tmp_path / "run", MISHAPS)
    # Starts of both runs first: if they counted twice, they would cancel out.
    assert duplicates_in(starts + again[0]) >= CHAINS
    check(functions, starts + again[0], ends + again[1])


@pytest.fixture
def two_hosts(tmp_path):
    """Start a standalone cluster: Spark speculates only on another host; local-cluster has one."""
    import pyspark

    from xorack.local.java import java_home

    with ExitStack() as stack:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        java = java_home() / "bin" / "java"
        jars = Path(pyspark.__file__).parent / "jars"
        scala = next(jars.glob("spark-core_*.jar")).name.split("_")[1].split("-")[0]
        on_path = ["-cp", f"{jars}/*"]
        log = stack.enter_context((tmp_path / "cluster.log").open("wb"))

        def start(host, *arguments):
            process = subprocess.Popen(
                [java, "-Xmx256m", "-Djava.net.preferIPv4Stack=true", *on_path, *arguments],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={
                    **os.environ,
                    "SPARK_LOCAL_IP": host,
                    "SPARK_HOME": str(jars.parent),
                    "SPARK_SCALA_VERSION": scala,  # otherwise it looks for a source tree
                    "PYTHONPATH": str(ROOT),
                    "JAVA_HOME": str(java.parent.parent),
                },
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)

        at = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        start("127.0.0.1", "org.apache.spark.deploy.master.Master", *at)
        for host in ("127.0.0.2", "127.0.0.3"):
            place = ["--work-dir", str(tmp_path / host), "--webui-port", "0"]
            size = ["--host", host, "--cores", "1", "--memory", "1g"]
            worker = "org.apache.spark.deploy.worker.Worker"
            start(host, worker, *size, *place, f"spark://127.0.0.1:{port}")
        yield f"spark://127.0.0.1:{port}"


def test_speculative_copies_send_too(functions, queue, tmp_path, two_hosts):
    starts, ends = run_job(queue, tmp_path / "run", master=two_hosts)
    assert (tmp_path / "run" / "start-overtaken").exists()
    assert (tmp_path / "run" / "finish-overtaken").exists()
    assert duplicates_in(starts) > 0
    assert duplicates_in(ends) > 0
    check(functions, starts, ends)
