"""Windows of a stream: the snippets of docs/windows.md."""

from __future__ import annotations

import pytest

from tests.spark.acker import Acker
from tests.spark.helpers import ROOT, code_blocks
from tests.support.log_source import LogSource, append

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
    assert names["orders"].open("2026-09-14T15", later).complete
    assert Acker(queue.bodies).statuses() == {"acked": 2}
