"""Broken versions of our jobs, and damaged files: no chain is acked, and somebody is told."""

from __future__ import annotations

import shutil
from functools import partial

import pyarrow.parquet as pq
import pytest

from pipeline import count, repair, stream
from pipeline.data import read
from pipeline.scan import file_id
from tests.spark.helpers import (
    Acker,
    count_words,
    counts_in,
    delete_rows,
    last_summary,
    run_count,
    run_main,
    run_split,
    write_files,
)
from tests.support.queue_server import QueueServer
from xorack import unit_id
from xorack.core.event import noted_units
from xorack.core.message import parse

TEXTS = {"a.txt": "one two three two", "b.txt": "two four", "c.txt": "five five six one"}
TAGS = {f"r1/file/{name}" for name in TEXTS}


def delete_a_row(folder):
    first = pq.read_table(folder).to_pylist()[0]
    delete_rows(folder, lambda row: row == first)


def copy_part(folder):
    part = next(folder.glob("*.parquet"))
    shutil.copy(part, part.with_name("copy.parquet"))


def damaged_read(damage, folder):
    """Return a version of `pipeline.data.read` that damages a folder first."""

    def damage_and_read(spark, place, schema):
        if place == str(folder):
            damage(folder)
        return read(spark, place, schema)

    return damage_and_read


@pytest.fixture(scope="module")
def started(spark, tmp_path_factory):
    """Run the first job; return its folder and its messages."""
    root = write_files(tmp_path_factory.mktemp("started") / "db", TEXTS).parent
    with QueueServer() as server:
        assert run_split(server, root / "db", root / "w", "--keep-units") == 0
        return root, server.bodies


@pytest.fixture
def split(started, queue, tmp_path):
    """Return an acker with the messages of the first job, and the second job on a copy."""
    root, bodies = started
    shutil.copytree(root, tmp_path, dirs_exist_ok=True)
    return Acker(bodies), partial(run_count, queue, tmp_path / "w", tmp_path / "c")


def lose_words(folder):
    """Delete the words `two` and `six`; return the ids of their units by tag."""
    lost: dict[str, set] = {}
    for row in delete_rows(folder, lambda row: row["word"] in ("two", "six")):
        id = unit_id("r1/words", file_id(row["file"]), row["position"])
        lost.setdefault(f"r1/file/{row['file']}", set()).add(id)
    return lost


@pytest.mark.slow
def test_words_that_are_lost_between_the_jobs(spark, split, queue, tmp_path, capfd):
    acker, job = split
    shutil.copytree(tmp_path / "w", tmp_path / "whole")
    lost = lose_words(tmp_path / "w" / "words")
    assert job() == 1
    assert "the job's input lacks 4 rows that were started" in capfd.readouterr().err
    shutil.rmtree(tmp_path / "c", ignore_errors=True)
    assert job("--allow-missing") == 0
    assert last_summary(capfd)["missing"] == 4
    acker.apply(queue.bodies)
    assert acker.statuses() == {"open": 3}
    assert {tag: {*noted_units(chain)} for tag, chain in acker.chains.items()} == lost
    # With the words back, the same run sends what is left.
    shutil.rmtree(tmp_path / "w")
    shutil.move(tmp_path / "whole", tmp_path / "w")
    queue.bodies.clear()
    assert job() == 0
    acker.apply(queue.bodies)
    assert acker.statuses() == {"acked": len(TEXTS)}
    assert counts_in(spark, tmp_path / "c") == count_words(TEXTS.values())


def count_again(split, queue, tmp_path):
    acker, job = split
    return acker, job, count, tmp_path / "c"


def repair_lost_words(split, queue, tmp_path):
    """The second job lost words before; the repair counts them."""
    _, job = split
    lose_words(tmp_path / "w" / "words")
    assert job() == 0
    folders = {"database": "db", "words": "w", "counts": "c", "repaired": "n"}
    options = [f"--{name}={tmp_path / folder}" for name, folder in folders.items()]
    options += [f"--tag={tag}" for tag in TAGS]
    again = partial(run_main, repair, queue, "f1", tmp_path / "records", *options)
    return Acker(), again, repair, tmp_path / "n" / "counts"


def stream_files(split, queue, tmp_path):
    options = ["--available-now", f"--files={tmp_path / 'db'}", f"--out={tmp_path / 'out'}"]
    job = partial(run_main, stream, queue, "s1", tmp_path / "records", *options)
    return Acker(), job, stream, tmp_path / "out" / "counts" / "batch=0"


@pytest.mark.slow
@pytest.mark.parametrize("damage", [delete_a_row, copy_part])
@pytest.mark.parametrize("prepare", [count_again, repair_lost_words, stream_files])
def test_counts_that_are_damaged(
    spark, split, queue, tmp_path, capfd, monkeypatch, prepare, damage
):
    """The job fails with the numbers of units, and sends what it found, in notes."""
    acker, job, module, counts = prepare(split, queue, tmp_path)
    queue.bodies.clear()
    capfd.readouterr()
    with monkeypatch.context() as patch:
        patch.setattr(module, "read", damaged_read(damage, counts))
        assert job() == 1
    error = capfd.readouterr().err
    assert "units of" in error
    assert "the chains that differ stay open" in error
    assert error.count("\n") == 1
    sent = [request for body in queue.bodies for request in parse(body).requests]
    assert "stamp" not in {request.op for request in sent}  # no chain finishes a unit
    # The same job in order acks all chains.
    assert job() == 0
    acker.apply(queue.bodies)
    assert acker.statuses() == {"acked": len(TEXTS)}
    assert counts_in(spark, counts) == count_words(TEXTS.values())
