"""The guide's streams: killed between sending and committing, and started again."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter

import pytest

from tests.spark.helpers import ROOT, Acker, block_with, code_blocks, duplicates_in, run_process
from tests.support.queue_server import requests_in

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

# Runs the streams; kills itself right after a query sent its n-th batch (DIE_AFTER=step:n).
RUN = """
import os, signal, sys
from collections import Counter
from pipeline.session import session
from pyspark.sql import functions as F
from xorack.spark import TrackedRows, Tracking
queue_url, arriving, guide = sys.argv[1:]
sent = Counter()
def dying(step):
    real = getattr(TrackedRows, step)
    def send(*given, **options):
        done = real(*given, **options)
        sent[step] += 1
        if f"{step}:{sent[step]}" == os.environ.get("DIE_AFTER"):
            os.kill(os.getpid(), signal.SIGKILL)
        return done
    setattr(TrackedRows, step, send)
dying("start")
dying("finish")
spark = session("stream")
schema = "file string, line long, sku string, amount long"
files = spark.readStream.schema(schema).option("maxFilesPerTrigger", 3).json(arriving)
exec(compile(open(guide).read(), guide, "exec"))
"""


@pytest.fixture
def run(queue, tmp_path):
    """Run the guide's streams to their end, on files that have arrived."""
    page = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
    guide = tmp_path / "guide.py"
    block = block_with(code_blocks(page, "python"), "def bill(batch, batch_id)")
    guide.write_text(block.replace("s3://bucket", str(tmp_path)))
    arriving = tmp_path / "arriving"
    arriving.mkdir()

    def run(files=(), status=0, die_after=""):
        for name, skus in dict(files).items():
            rows = [
                {"file": name, "line": line, "sku": sku, "amount": line + 1}
                for line, sku in enumerate(skus.split())
            ]
            text = "".join(f"{json.dumps(row)}\n" for row in rows)
            (tmp_path / name).write_text(text)
            (tmp_path / name).rename(arriving / name)
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "DIE_AFTER": die_after}
        command = [sys.executable, "-c", RUN, queue.queue_url, str(arriving), str(guide)]
        run_process(command, env=environment, status=status)

    return run


def test_every_chain_is_acked_once_although_the_process_is_killed_twice(
    spark, queue, run, tmp_path
):
    first = {f"a{n}.json": "rope lamp " * (n + 1) for n in range(5)}
    later = {f"b{n}.json": "oil " * (n + 1) for n in range(4)}
    run(first, -signal.SIGKILL, "start:1")
    run(later, -signal.SIGKILL, "finish:1")
    run()
    before = list(queue.bodies)
    run()  # nothing new: nothing is sent
    assert queue.bodies == before
    assert duplicates_in(queue.bodies) > 0  # both kills repeated a batch
    creates = {r.tag for r in requests_in(queue.bodies) if r.op == "create"}
    assert len(creates) == len(first) + len(later)
    acker = Acker(queue.bodies)
    assert acker.statuses() == {"acked": len(creates)}
    assert len(acker.bus.events) == len(creates)
    bills = spark.read.parquet(str(tmp_path / "stream" / "bills")).groupBy("sku").sum("amount")
    expected: Counter[str] = Counter()
    for skus in (*first.values(), *later.values()):
        for line, sku in enumerate(skus.split()):
            expected[sku] += line + 1
    assert dict(bills.collect()) == expected
