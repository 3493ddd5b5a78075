"""Windows of a stream: the snippets of docs/windows.md, and processes that are killed."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from tests.spark.acker import Acker
from tests.spark.helpers import ROOT, code_blocks, run_process
from tests.support.log_source import LogSource, append

pytestmark = pytest.mark.spark

PAGE = (ROOT / "docs" / "windows.md").read_text(encoding="utf-8")
JOB, OPENS = code_blocks(PAGE, "python")[:2]
SOLD = {"time": 1_789_393_000, "sku": "s"}


def snippets(spark, root, queue_url):
    """Run the job's snippet; return its names and a stream of the log."""
    spark.dataSource.register(LogSource)
    names = {"spark": spark, "queue_url": queue_url}
    exec(compile(JOB.replace("s3://bucket", str(root)), "windows.md", "exec"), names)
    options = {"path": f"{root}/log", "most": "100"}
    return names, spark.readStream.format("log").options(**options).load()


def test_the_snippets(spark, queue, tmp_path, capsys):
    (tmp_path / "log").mkdir()
    append(tmp_path / "log", "orders", 0, [SOLD] * 45)
    append(tmp_path / "log", "orders", 1, [SOLD] * 30 + [None])
    names, stream = snippets(spark, tmp_path, queue.queue_url)
    names["run"](stream)
    exec(compile(OPENS, "windows.md", "exec"), names)
    assert capsys.readouterr().out == f"False {OPENS.rpartition('# ')[2].partition(': part')[0]}\n"
    append(tmp_path / "log", "orders", 1, [None] * 4)
    append(tmp_path / "log", "orders", 2, [None, SOLD])  # a partition that is added
    names["run"](stream)
    acker = Acker(queue.bodies)
    assert acker.statuses() == {"acked": 1}
    assert (
        "5 positions without a row: 5 of orders/1" in acker.chains["shop/orders/2026-09-14T14"].note
    )
    later = {"orders": {"0": 45, "1": 35, "2": 2}}
    assert names["orders"].open("2026-09-14T15", later).whole
    assert Acker(queue.bodies).statuses() == {"acked": 2}


# Runs the stream of the snippet; kills itself at the n-th call of a function (DIE=function:n).
RUN = """
import os, signal, sys
from pathlib import Path
from pipeline.session import session
from tests.spark import test_windows_stream as here
from xorack.spark import windows
place, count = (os.environ["DIE"] + ":0").split(":")[:2]
def dying(owner, name):
    real, calls = getattr(owner, name), []
    def call(*given, **options):
        calls.append(1)
        if name == place and len(calls) == int(count):
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*given, **options)
    setattr(owner, name, call)
dying(windows, "check_unchanged")  # the output is written
dying(windows._Folder, "windows")  # the proof is kept
dying(windows, "send_few")
with session("killed") as spark:
    names, stream = here.snippets(spark, Path(sys.argv[1]), sys.argv[2])
    names["run"](stream)
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_killed_stream_acks_what_is_whole_and_nothing_else(spark, queue, tmp_path):
    (tmp_path / "log").mkdir()
    names, _ = snippets(spark, tmp_path, queue.queue_url)
    orders, opened, size = names["orders"], {}, 0
    # A run repeats the batch that died, or reads what is new.
    kills = ["check_unchanged:1", "windows:1", "send_few:1", "", "windows:1", "", ""]
    for hour, die in enumerate(kills):
        for partition in range(3 if hour < 6 else 0):
            append(tmp_path / "log", "orders", partition, [SOLD, None, SOLD] * (5 + partition))
        size += 5
        ends = {"orders": {str(n): 3 * (size + n * (hour + 1)) for n in range(3)}}
        if hour % 2:
            opened[f"h{hour}"] = orders.open(f"h{hour}", ends).window
        words = [sys.executable, "-c", RUN, str(tmp_path), queue.queue_url]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "DIE": die}
        run_process(words, env=environment, status=-signal.SIGKILL if die else 0)
        if hour in (0, 2, 4):
            opened[f"h{hour}"] = orders.open(f"h{hour}", ends).window
        acked = {tag for tag, c in Acker(queue.bodies).chains.items() if c.status == "acked"}
        bills = spark.read.parquet(f"{tmp_path}/bills") if (tmp_path / "bills").exists() else None
        written = bills.groupBy().sum("xorack_orders_count").first()[0] if bills else 0
        for name, window in opened.items():
            if f"shop/orders/{name}" in acked:
                assert written >= sum(window.ends.values()) * 2 // 3
                assert orders.status(name).whole
    assert acked == {f"shop/orders/{name}" for name in opened}
    assert written == 2 * 6 * (5 + 6 + 7)
