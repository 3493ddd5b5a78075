"""PySpark's daemon, whose workers fail at the worst moments of tracking, each failure once."""

import os
import time
from pathlib import Path

from pyspark import TaskContext
from pyspark.daemon import manager

import xorack.spark.sending  # noqa: F401
from tests.support.cluster_job import FOLDER, kill_executor, once
from xorack.aws import sqs

_folder = Path(os.environ[FOLDER])
_send = sqs.send


def send(queue_url, requests, client, group):
    """Fail after the queue accepted the requests."""
    requests = list(requests)
    sent = _send(queue_url, requests, client, group=group)
    step = "start" if '"op":"create"' in "".join(requests) else "finish"
    partition = TaskContext.get().partitionId()
    if partition == 2 and once(_folder, f"{step}-killed-after-sending"):
        kill_executor()
    if partition == 0 and once(_folder, f"{step}-hung"):
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            if (_folder / f"{step}-overtaken").exists():
                time.sleep(60)  # Spark kills the overtaken task
            time.sleep(0.1)
    elif partition == 0 and (_folder / f"{step}-hung").exists():
        once(_folder, f"{step}-overtaken")
    return sent


sqs.send = send

if __name__ == "__main__":
    manager()
