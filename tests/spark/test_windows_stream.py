"""Windows of a stream: the snippets of docs/windows.md."""

from __future__ import annotations

import os
import sys

import pytest

from tests.spark.acker import Acker
from tests.spark.helpers import ROOT, code_blocks, run_process
from tests.support.log_source import LogSource, append
from xorack.spark import Tracking

pytestmark = pytest.mark.spark

PAGE = (ROOT / "docs" / "windows.md").read_text(encoding="utf-8")
JOB, OPENS = code_blocks(PAGE, "python")[:2]
SOLD = {"time": 1_789_393_000, "sku": "s"}


def snippets(spark, root, queue_url, source=LogSource, options=()):
    """Run the job's snippet; return its names and a stream of the log."""
    spark.dataSource.register(source)
    names = {"spark": spark, "queue_url": queue_url}
    exec(compile(JOB.replace("s3://bucket", str(root)), "windows.md", "exec"), names)
    options = {"path": f"{root}/log", "most": "100", **dict(options)}
    return names, spark.readStream.format(source.name()).options(**options).load()


@pytest.mark.slow
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


# Kills the executor of a batch's first task, and another one between its write and `finish`.
CLUSTER = """
import sys
from pathlib import Path
from pipeline.session import session
from tests.spark.test_windows_stream import snippets
from tests.support.cluster_job import kill_executor, once
from xorack.spark.windows import windows
root, queue_url = sys.argv[1:]
def kills(name):
    def task(batches):
        for batch in batches:
            if once(Path(root), name):
                kill_executor()
            yield batch
    return task
def finish(orders, *given, **options):
    lost = spark.range(2).mapInArrow(kills(f"finish-{orders.batch_id}"), "id long")
    assert lost.count() == 2
    return real(orders, *given, **options)
real, windows.Windows.finish = windows.Windows.finish, finish
spark = session("windows")
names, stream = snippets(spark, root, queue_url, options={"most": "20"})
for _ in range(2):  # a run of this source has one batch
    names["run"](stream.mapInArrow(kills("write"), stream.schema))
"""


@pytest.mark.slow
def test_executors_that_are_killed_while_and_after_a_batch_is_written(spark, queue, tmp_path):
    (tmp_path / "log").mkdir()
    append(tmp_path / "log", "orders", 0, [SOLD] * 40)
    append(tmp_path / "log", "orders", 1, [SOLD] * 20 + [None, SOLD])
    words = [sys.executable, "-c", CLUSTER, str(tmp_path), queue.queue_url]
    master = "local-cluster[2,1,1024]"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SPARK_MASTER": master}
    run_process(words, env={**environment, "SPARK_LOCAL_IP": "127.0.0.1"})
    assert {path.name for path in tmp_path.iterdir()} >= {"write", "finish-0", "finish-1"}
    tracking = Tracking(spark, queue.queue_url, "shop", f"{tmp_path}/xorack")
    orders = tracking.windows("orders", partition=["topic", "partition"], position="offset")
    status = orders.open("h14", {"orders": {"0": 40, "1": 22}})
    assert (status.whole, status.gaps) == (True, {"orders/1": 1})
    assert Acker(queue.bodies).statuses() == {"acked": 1}
    assert spark.read.parquet(f"{tmp_path}/bills").agg({"amount": "sum"}).first()[0] == sum(
        [*range(40), *range(20), 21]
    )
