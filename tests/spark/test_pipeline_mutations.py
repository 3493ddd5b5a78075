"""Words that are lost between our jobs: no chain is acked, and an error says so."""

from __future__ import annotations

import shutil

import pytest

from pipeline.scan import file_id
from tests.spark.helpers import (
    Acker,
    count_words,
    counts_in,
    delete_rows,
    last_summary,
    run_count,
    run_split,
    write_files,
)
from xorack import unit_id
from xorack.core.event import noted_units

TEXTS = {"a.txt": "one two three two", "b.txt": "two four", "c.txt": "five five six one"}


@pytest.mark.slow
def test_words_that_are_lost_between_the_jobs(spark, queue, tmp_path, capfd):
    write_files(tmp_path / "db", TEXTS)
    assert run_split(queue, tmp_path / "db", tmp_path / "w") == 0
    acker = Acker(queue.bodies)
    queue.bodies.clear()
    shutil.copytree(tmp_path / "w", tmp_path / "backup")
    lost = {
        f"r1/file/{row['file']}": unit_id("r1/words", file_id(row["file"]), row["position"])
        for row in delete_rows(tmp_path / "w" / "words", lambda row: row["word"] in ("two", "six"))
        if row["file"] != "a.txt"  # which lost two words
    }
    assert run_count(queue, tmp_path / "w", tmp_path / "c") == 1
    error = capfd.readouterr().err
    assert "the job's input lost 4 rows that were started" in error
    assert error.count("\n") == 1
    shutil.rmtree(tmp_path / "c", ignore_errors=True)
    assert run_count(queue, tmp_path / "w", tmp_path / "c", "--allow-missing") == 0
    assert last_summary(capfd)["missing"] == 4
    acker.apply(queue.bodies)
    assert acker.statuses() == {"open": 3}
    named = {tag: id for tag, chain in acker.chains.items() for id in noted_units(chain)}
    assert named == lost
    # With the words back, the same run sends what is left.
    shutil.rmtree(tmp_path / "w")
    shutil.move(tmp_path / "backup", tmp_path / "w")
    queue.bodies.clear()
    assert run_count(queue, tmp_path / "w", tmp_path / "c") == 0
    acker.apply(queue.bodies)
    assert acker.statuses() == {"acked": len(TEXTS)}
    assert counts_in(spark, tmp_path / "c") == count_words(TEXTS.values())
