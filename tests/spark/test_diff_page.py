"""The commands and snippets of docs/diff.md run as they are written there."""

from __future__ import annotations

import json
import shlex
import subprocess

import pytest

from tests.spark.helpers import ROOT, code_blocks
from xorack.cli import main
from xorack.spark import diff

PAGE = (ROOT / "docs" / "diff.md").read_text(encoding="utf-8")


def test_the_example(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    outputs = code_blocks(PAGE, "text")
    blocks = code_blocks(PAGE, "sh")
    assert len(blocks) == len(outputs) == 2
    for block, output in zip(blocks, outputs, strict=True):
        files, _, command = block.rpartition("xorack ")
        subprocess.run(["sh", "-ec", files], check=True)
        capfd.readouterr()
        status = main(shlex.split(command))
        assert capfd.readouterr() == (output, "")
        assert status == (output.splitlines()[0] != "equal")
    (documented,) = code_blocks(PAGE, "json")
    main(["diff", "orders.csv", "copy.csv", "--key", "order,line", "--json"])
    assert json.loads(capfd.readouterr().out) == json.loads(documented)


@pytest.mark.slow
def test_the_repair(spark, tmp_path):
    columns = "order int, line int, price int, loaded_at int"
    left = spark.createDataFrame([(17, 1, 9, 0), (17, 2, 4, 0), (18, 1, 7, 0)], columns)
    right = spark.createDataFrame([(17, 1, 9, 1), (18, 1, 8, 1), (18, 2, 1, 1)], columns)
    names = {"left": left, "right": right, "path": str(tmp_path / "repaired")}
    (snippet,) = code_blocks(PAGE, "python")
    exec(compile(snippet, "diff.md", "exec"), names)
    with diff(left, spark.read.parquet(names["path"]), key=["order", "line"],
              ignore=["loaded_at"]) as d:  # fmt: skip
        assert d.equal


def test_the_merge(spark, tmp_path):
    """Spark's own tables cannot be merged into: only the statement's syntax is tried."""
    (statement,) = code_blocks(PAGE, "sql")
    plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(statement)
    assert plan.getClass().getSimpleName() == "MergeIntoTable"
