"""Broken versions of our jobs, and damaged files: no chain is acked, and somebody is told."""

from __future__ import annotations

import shutil
from functools import partial

import pyarrow.parquet as pq
import pytest

from pipeline import count, repair, stream
from pipeline.data import counts_of, read, words_in
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
from xorack import peel, unit_id

TEXTS = {"a.txt": "one two three two", "b.txt": "two four", "c.txt": "five five six one"}
TAGS = {f"r1/file/{name}" for name in TEXTS}


def delete_a_row(folder):
    first = pq.read_table(folder).to_pylist()[0]
    delete_rows(folder, lambda row: row == first)


def lose_part(folder):
    next(folder.glob("*.parquet")).unlink()


def copy_part(folder):
    part = next(folder.glob("*.parquet"))
    shutil.copy(part, part.with_name("copy.parquet"))


def lose_all(folder):
    for part in folder.glob("*.parquet"):
        part.unlink()


DAMAGES = [delete_a_row, lose_part, copy_part, lose_all]


@pytest.fixture(scope="module")
def started(spark, tmp_path_factory):
    """Run the first job; return its folder and its messages."""
    root = write_files(tmp_path_factory.mktemp("started") / "db", TEXTS).parent
    with QueueServer() as server:
        assert run_split(server, root / "db", root / "w") == 0
        return root, server.bodies


@pytest.fixture
def split(started, queue, tmp_path):
    """Return an acker with the messages of the first job, and the second job on a copy."""
    root, bodies = started
    shutil.copytree(root, tmp_path, dirs_exist_ok=True)
    return Acker(bodies), partial(run_count, queue, tmp_path / "w", tmp_path / "c")


def check_told(queue, capfd, acker, job):
    """The job fails with the numbers of units, and sends nothing."""
    assert job() == 1
    error = capfd.readouterr().err
    assert "units of 'words'" in error
    assert "nothing was sent" in error
    assert error.count("\n") == 1
    assert queue.bodies == []
    assert acker.statuses()["acked"] == 0


def check_repeated(spark, queue, capfd, acker, job, counts):
    """The same job in order acks all chains."""
    assert job() == 0
    assert last_summary(capfd)["missing"] == 0
    acker.apply(queue.bodies)
    assert {chain.status for chain in acker.chains.values()} == {"acked"}
    assert counts_in(spark, counts) == count_words(TEXTS.values())


def damaged_read(damage, folder):
    """Return a version of `pipeline.data.read` that damages a folder first."""

    def damage_and_read(spark, place, schema):
        if place == str(folder):
            damage(folder)
        return read(spark, place, schema)

    return damage_and_read


@pytest.mark.parametrize("damage", DAMAGES)
def test_counts_that_are_damaged_on_disk(split, queue, tmp_path, capfd, monkeypatch, damage):
    acker, job = split
    with monkeypatch.context() as patch:
        patch.setattr(count, "read", damaged_read(damage, tmp_path / "c"))
        check_told(queue, capfd, acker, job)


MUTANTS = {
    "before": lambda rows, words: counts_of(rows.where("word <> 'two'"), words),
    "after": lambda rows, words: counts_of(rows, words).where("word <> 'two'"),
    "twice": lambda rows, words: counts_of(rows.unionByName(rows.where("word = 'six'")), words),
    "a file": lambda rows, words: counts_of(rows.where("file <> 'b.txt'"), words),
    "none": lambda rows, words: counts_of(rows.limit(0), words),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_count_that_loses_rows(split, queue, capfd, monkeypatch, mutant):
    acker, job = split
    with monkeypatch.context() as patch:
        patch.setattr(count, "counts_of", MUTANTS[mutant])
        check_told(queue, capfd, acker, job)


def test_counts_of_yesterday(spark, split, queue, tmp_path, capfd, monkeypatch):
    acker, job = split
    write_files(tmp_path / "old" / "db", {**TEXTS, "a.txt": "one two three four"})
    assert run_split(queue, tmp_path / "old" / "db", tmp_path / "old" / "w", run="r0") == 0
    counts = tmp_path / "old" / "c"
    assert run_count(queue, tmp_path / "old" / "w", counts, run="r0") == 0
    queue.bodies.clear()
    capfd.readouterr()

    def replace(folder):
        lose_all(folder)
        shutil.copytree(counts, folder, dirs_exist_ok=True)

    with monkeypatch.context() as patch:
        patch.setattr(count, "read", damaged_read(replace, tmp_path / "c"))
        check_told(queue, capfd, acker, job)
    (tmp_path / "c" / "_run").write_text("r1")
    check_repeated(spark, queue, capfd, acker, job, tmp_path / "c")


def lose_words(folder):
    """Delete the words `two` and `six`; return the ids of their units by tag."""
    lost: dict[str, set] = {}
    for row in delete_rows(folder, lambda row: row["word"] in ("two", "six")):
        id = unit_id("r1/words", row["file"], row["position"], row["word"])
        lost.setdefault(f"r1/file/{row['file']}", set()).add(id)
    return lost


def test_words_that_are_lost_between_the_jobs(spark, split, queue, tmp_path, capfd):
    acker, job = split
    shutil.copytree(tmp_path / "w", tmp_path / "whole")
    lost = lose_words(tmp_path / "w" / "words")
    assert job() == 0
    assert last_summary(capfd)["missing"] == 4
    acker.apply(queue.bodies)
    assert acker.statuses() == {"open": 3}
    assert {tag: peel(chain.stamp).ids for tag, chain in acker.chains.items()} == lost
    # With the words back, the same run sends what is left.
    shutil.rmtree(tmp_path / "w")
    shutil.move(tmp_path / "whole", tmp_path / "w")
    queue.bodies.clear()
    check_repeated(spark, queue, capfd, acker, job, tmp_path / "c")


def test_a_count_that_reads_too_few_words(spark, split, queue, tmp_path, capfd, monkeypatch):
    acker, job = split

    def few(*given):
        return words_in(*given).where("file <> 'a.txt' AND word <> 'six'")

    with monkeypatch.context() as patch:
        patch.setattr(count, "words_in", few)
        assert job() == 0
    assert last_summary(capfd)["missing"] == 5
    acker.apply(queue.bodies)
    assert acker.statuses() == {"open": 2, "acked": 1}
    queue.bodies.clear()
    check_repeated(spark, queue, capfd, acker, job, tmp_path / "c")


@pytest.mark.slow
@pytest.mark.parametrize("damage", [lose_part, copy_part])
def test_a_repair_whose_counts_are_damaged(
    spark, split, queue, tmp_path, capfd, monkeypatch, damage
):
    acker, job = split
    lose_words(tmp_path / "w" / "words")
    assert job() == 0
    queue.bodies.clear()
    capfd.readouterr()
    folders = {"database": "db", "words": "w", "counts": "c", "repaired": "n"}
    options = [f"--{name}={tmp_path / folder}" for name, folder in folders.items()]
    options += [f"--tag={tag}" for tag in TAGS]
    again = partial(run_main, repair, queue, "f1", tmp_path / "records", *options)
    with monkeypatch.context() as patch:
        patch.setattr(repair, "read", damaged_read(damage, tmp_path / "n" / "counts"))
        assert again() == 1
    assert "nothing was sent for what differs" in capfd.readouterr().err
    acker = Acker(queue.bodies)
    assert acker.statuses() == {"open": 3}
    assert again() == 0
    acker.apply(queue.bodies)
    assert acker.statuses() == {"acked": 3}
    assert counts_in(spark, tmp_path / "n" / "counts") == count_words(TEXTS.values())


@pytest.mark.slow
@pytest.mark.parametrize("damage", [delete_a_row, copy_part])
def test_a_stream_whose_counts_are_damaged(spark, queue, tmp_path, capfd, monkeypatch, damage):
    write_files(tmp_path / "files", TEXTS)
    options = ["--available-now", f"--files={tmp_path / 'files'}", f"--out={tmp_path / 'out'}"]
    job = partial(run_main, stream, queue, "r1", tmp_path / "records", *options)
    with monkeypatch.context() as patch:
        folder = tmp_path / "out" / "counts" / "batch=0"
        patch.setattr(stream, "read", damaged_read(damage, folder))
        assert job() == 1
    assert "nothing was sent for what differs" in capfd.readouterr().err
    acker = Acker(queue.bodies)
    assert acker.statuses() == {"open": 3}
    assert job() == 0
    acker.apply(queue.bodies)
    assert acker.statuses() == {"acked": 3}
