"""The snippets of docs/spark.md run as they are written there, in their order."""

from __future__ import annotations

import json
import re

import pytest
from pyspark.sql import functions as F

from tests.spark.conftest import EACH_SESSION
from tests.spark.helpers import ROOT, Acker, block_with, code_blocks, totals
from xorack import unit_id
from xorack.spark import Tracking

GUIDE = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
SNIPPETS = code_blocks(GUIDE, "python")
ORDERS = "order long, line int, parcel int, sku string, amount long"
ROWS = [
    (order, line, line // 2, f"sku {line % 3}", line - 1)
    for order in (17, 18, 91)
    for line in range(6)
]
ORDER_TAGS = [f"2026-01-31/order/{order}" for order in (17, 18, 91)]


@pytest.fixture
def run(session, queue, tmp_path):
    """Return a function that runs a snippet and returns the messages that it sent."""
    spark = session
    for folder in ("arriving", "stream/lines"):
        (tmp_path / folder).mkdir(parents=True)
    spark.sql(f"CREATE DATABASE guide LOCATION '{tmp_path}/warehouse'")
    spark.sql("USE guide")
    names = {
        "spark": spark,
        "F": F,
        "Tracking": Tracking,
        "queue_url": queue.queue_url,
        "orders": spark.createDataFrame(ROWS, ORDERS),
        "database_url": "jdbc:derby:memory:guide;create=true",
        "event": {"detail": {"outstanding": [f"{unit_id('2026-01-31/lines', 18, 4):016x}"]}},
        "files": spark.readStream.schema("file string, line int, sku string, amount long")
        .option("maxFileAge", "36500d")
        .json(str(tmp_path / "arriving")),
    }

    def run_snippet(text):
        code = block_with(SNIPPETS, text).replace("s3://bucket", str(tmp_path))
        exec(compile(code, "spark.md", "exec"), names)
        return take()

    def take():
        bodies, queue.bodies = queue.bodies, []
        return bodies

    run_snippet.names, run_snippet.take = names, take
    yield run_snippet
    spark.sql("USE default")
    spark.sql("DROP DATABASE guide CASCADE")


FINISHES = ("report = ", "observed = ", "[billed, rejected]", "createOrReplaceTempView")


PUBLISHES = "publish=True"
"""In the snippet that tests/spark/test_publish.py runs: it needs Iceberg."""


def test_every_snippet_has_a_test_here():
    texts = ("lines.start(path)", *FINISHES, PUBLISHES, "advance", "chains=known", "day.close")
    texts = (*texts, "foreachBatch")
    texts = (*texts, "missing_rows", "outstanding")
    assert [block_with(SNIPPETS, text) for text in texts] == SNIPPETS


@pytest.mark.slow
@pytest.mark.parametrize("session", ["connect"], indirect=True)
def test_batch_jobs(run, tmp_path, capsys):
    """On Connect alone: test_tracking.py makes the same calls on the classic session."""
    started = run("lines.start(path)")
    assert totals(Acker(started).chains) == dict.fromkeys(ORDER_TAGS, ("open", 6, 0))
    for text in FINISHES:
        # Each way to finish acks the chains by itself.
        acked = Acker([*started, *run(text)])
        assert totals(acked.chains) == dict.fromkeys(ORDER_TAGS, ("acked", 6, 6)), text
    assert run.names["report"].proof == "written"
    advanced = Acker([*started, *run("advance")])
    assert totals(advanced.chains) == dict.fromkeys(ORDER_TAGS, ("open", 9, 6))
    run.names["parcels"].finish(read=run.names["spark"].read.parquet(f"{tmp_path}/parcels"))
    advanced.apply(run.take())
    assert totals(advanced.chains) == dict.fromkeys(ORDER_TAGS, ("acked", 9, 9))
    known = Acker(run("chains=known"))
    assert totals(known.chains) == {
        "2026-02-01/order/17": ("open", 6, 0),
        "2026-02-01/order/18": ("open", 6, 0),
        "2026-02-01/order/90": ("acked", 1, 1),
        "2026-02-01/order/91": ("failed", 1, 0),
    }
    assert json.loads(known.chains["2026-02-01/order/17"].detail) == {"customer": "Ahab"}
    day = Acker(run("day.close")).all_chains["2026-02-02"]
    assert (day.status, day.counts.outstanding) == ("open", 2 * len(ORDER_TAGS))
    run("missing_rows")
    assert "missing rows can be named" in capsys.readouterr().out
    again = Acker(run("outstanding"))
    assert totals(again.chains) == {"2026-01-31-again/order/18": ("open", 1, 0)}
    assert re.search(r"^\|   18\|   4\|", capsys.readouterr().out, re.MULTILINE)


@EACH_SESSION
@pytest.mark.each_version
def test_streams(run, tmp_path):
    for file in ("a", "b"):
        rows = [{"file": file, "line": line, "sku": "s", "amount": line} for line in range(3)]
        text = "\n".join(map(json.dumps, rows))
        (tmp_path / "arriving" / f"{file}.json").write_text(text)
    acker = Acker(run("foreachBatch"))
    assert totals(acker.chains) == {f"orders/file/{file}": ("acked", 3, 3) for file in ("a", "b")}
