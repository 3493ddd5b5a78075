"""The two jobs over real files: right counts and right stamps, whatever happens to the tasks."""

from __future__ import annotations

import os
import random
import re

import pytest

from pipeline import stream
from pipeline.reading import PIECE
from pipeline.scan import file_id
from tests.spark.helpers import (
    Acker,
    count_words,
    counts_in,
    last_summary,
    prose,
    run_count,
    run_main,
    run_split,
    write_files,
)
from tests.support.plain_words import words
from xorack import plain, unit_id, xor

PLAIN = "one two  Two, three_four"


@pytest.fixture(scope="module")
def database(spark, tmp_path_factory):
    """Write files of all kinds; return their folder and the texts of the readable ones."""
    root = tmp_path_factory.mktemp("database") / "my data"
    rng = random.Random(3)
    texts = {
        "plain.txt": PLAIN,
        "empty.txt": "",
        "no words.txt": " \n\t--- ... \n",
        "deep/er/file.txt": prose(rng, 500),
        "name with 100%, [x] and *.txt": prose(rng, 50),
        "ünï:çødé\nnew line.txt": prose(rng, 50),
        "bom.txt": "\ufeffbeginning with a mark",
        "large.txt": "-" * (PIECE - 50_000) + prose(rng, 20_000),  # two pieces
    }
    unreadable = {
        "latin.txt": "caf\xe9".encode("latin-1"),
        "bad end.txt": b"-" * PIECE + b" \xff",  # in a late piece
    }
    write_files(root, {**texts, **unreadable, ".hidden.txt": "hidden"})
    (root / "gone.txt").symlink_to("nowhere")
    (root / "linked.txt").symlink_to("plain.txt")
    (root / "circle").symlink_to(root)
    os.mkfifo(root / "pipe.txt")
    return root, {**texts, "linked.txt": texts["plain.txt"]}


def test_readable_files_become_acked_chains(spark, database, queue, tmp_path, capfd):
    root, texts = database
    assert run_split(queue, root, tmp_path / "w", "--timeout", "600") == 0
    summary = last_summary(capfd)
    total = sum(len(words(text)) for text in texts.values())
    files = len(texts) + 3
    assert summary.pop("seconds") > 0
    assert summary.pop("outputs") == []
    assert summary.pop("messages") == len(queue.bodies)
    assert summary.pop("bytes") == sum(map(len, queue.bodies))
    # A create a file; another request ends those without words, or without readable ones.
    assert summary == {
        **{"proof": "written", "chains": len(texts) - 2, "units": total, "missing": 0},
        **{"files": files, "skipped": 3, "words": total, "failed": 3, "requests": files + 7},
        "tolerated": 0,
    }
    acker = Acker(queue.bodies)
    queue.bodies.clear()
    assert acker.statuses() == {"acked": 2, "failed": 3, "open": len(texts) - 2}
    events = {event["tag"].removeprefix("r1/file/"): event for event in acker.bus.events}
    for name, reason in {
        "latin.txt": "latin.txt is not utf-8: unexpected end of data, from byte 3",
        "bad end.txt": "bad end.txt is not utf-8: invalid start byte, from byte",
        "gone.txt": "gone.txt cannot be read: No such file",
    }.items():
        assert reason in events[name]["reason"]
        assert events[name]["detail"]["path"].endswith(f"my data/{name}")
    # An open chain's stamp holds its words, under the ids that plain Python computes.
    few = acker.chains["r1/file/plain.txt"]
    file, positions = file_id("plain.txt"), range(len(words(texts["plain.txt"])))
    assert few.stamp == xor(*(plain(unit_id("r1/words", file, at)) for at in positions))
    assert few.deadlines.deadline

    compact(spark, tmp_path / "w" / "words")
    assert run_count(queue, tmp_path / "w", tmp_path / "c") == 0
    summary = last_summary(capfd)
    expected = count_words(texts.values())
    assert (summary["words"], summary["distinct"]) == (total, len(expected))
    assert (summary["missing"], summary["chains"]) == (0, len(texts) - 2)
    assert counts_in(spark, tmp_path / "c") == expected
    check_acked(acker, queue.bodies, texts)


def check_acked(acker, bodies, texts):
    """Apply the messages of count: the chains of readable files are acked."""
    acker.apply(bodies)
    assert acker.statuses() == {"acked": len(texts), "failed": 3}
    for name, text in texts.items():
        chain = acker.chains[f"r1/file/{name}"]
        assert chain.counts.started == chain.counts.finished == (len(words(text)) or 1)
    assert len(acker.bus.events) == len(texts) + 3


def compact(spark, folder):
    """Sort the words and put them into one file, as somebody may who knows nothing of chains."""
    rows = spark.read.parquet(str(folder)).toPandas().sort_values("word")
    for part in folder.glob("*.parquet"):
        part.unlink()
    rows.to_parquet(folder / "compacted.parquet")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--database", "/no/such/folder"], "split: database /no/such/folder: No such file"),
        (["--encoding", "klingon"], "split: encoding 'klingon' is unknown"),
        (["--timeout", "0"], "split: --timeout: 0.0"),
        (["--queue-url", "nothing"], "split: --queue-url: 'nothing', expected the URL"),
        (["--run-id", "a/b"], "split: --run-id: 'a/b', expected a name"),
    ],
)
def test_an_invalid_argument_is_one_line_on_stderr(
    database, queue, tmp_path, check_error, more, message
):
    root, _ = database
    assert run_split(queue, root, tmp_path / "w", *more) == 1
    check_error(message, tmp_path / "w")


@pytest.mark.slow
def test_folders_of_others_are_left_alone(queue, tmp_path, capfd):
    root, other = tmp_path / "db", tmp_path / "other"
    write_files(root, {"plain.txt": PLAIN})
    write_files(other, {"empty.txt": ""})
    write_files(tmp_path / "mine", {"mine.txt": "precious"})
    assert run_split(queue, root, tmp_path / "w") == 0
    assert run_count(queue, tmp_path / "w", tmp_path / "c") == 0
    queue.bodies.clear()
    for job, source, out, run, message in (
        (run_split, root, "mine", "r1", "mine already exists: name another folder"),
        (run_split, root, "w", "r2", "w already exists, from the run 'r1'"),
        (run_count, tmp_path / "w", "mine", "r1", "mine already exists"),
        (run_count, tmp_path / "w", "c", "r2", "c already exists, from the run 'r1'"),
        (run_count, tmp_path / "mine", "c2", "r1", "was not written by split, or split has not"),
        (run_count, tmp_path / "w", "c3", "r2", "run 'r2' has not started rows named 'words'"),
    ):
        assert job(queue, source, tmp_path / out, run=run) == 1
        assert message in capfd.readouterr().err
    assert [path.read_text() for path in (tmp_path / "mine").iterdir()] == ["precious"]
    assert run_split(queue, other, tmp_path / "w") == 1
    assert "run 'r1' started 5 rows named 'words' in 1 chain before" in capfd.readouterr().err
    assert queue.bodies == []


def run_stream(queue, files, out):
    folders = ("--files", files, "--out", out, "--available-now")
    return run_main(stream, queue, "r1", out.parent / "records", *folders)


def test_the_stream_processes_or_counts_odd_names(queue, tmp_path, capfd):
    """A folder's name is no pattern, and each name that has no chain is counted."""
    files = tmp_path / "arriving [1]"
    texts = {"a=1/x.txt": "one", "a=2/x.txt": "two", "sub [x]/*.txt": "three"}
    hidden = ("_a.txt", ".b.txt", "c.txt._COPYING_", "_temporary/0/d.txt")
    utf_16 = "call me ishmael".encode("utf-16-le")
    write_files(files, {**texts, **dict.fromkeys(hidden, "hidden")})
    write_files(files, {"empty.txt": "", "utf-16.txt": utf_16})
    (write_files(tmp_path / "other", {"e.txt": "linked"}) / "f.txt").write_text("four")
    (files / "linked").symlink_to(tmp_path / "other")
    (files / "f.txt").symlink_to(tmp_path / "other" / "f.txt")
    (files / "gone.txt").symlink_to("nowhere")
    with open(os.fsencode(files) + b"/caf\xe9.txt", "w") as file:
        file.write("five")
    assert run_stream(queue, files, tmp_path / "out") == 0
    assert (
        "stream: left out: 1 broken link, such as 'gone.txt'; 1 empty file, such as 'empty.txt'; "
        "1 name that is not UTF-8, such as 'caf\\\\xe9.txt'; 4 hidden names, such as '.b.txt'; "
        "1 link to a folder, such as 'linked'\n"
    ) in capfd.readouterr().err
    acker = Acker(queue.bodies)
    found = {tag.removeprefix("r1/file/"): chain for tag, chain in acker.chains.items()}
    assert found.pop("utf-16.txt").status == "failed"
    assert {name: chain.status for name, chain in found.items()} == dict.fromkeys(
        [*texts, "f.txt"], "acked"
    )


@pytest.mark.parametrize(
    ("name", "out", "message"),
    [
        ("12:00.txt", "o", "--files: the name '12:00.txt' has a colon, and Spark cannot read such"),
        ("a.txt", "o [1]", r"--out \S+/o \[1\] has characters of Spark's patterns"),
    ],
)
def test_a_name_that_the_stream_cannot_read_is_refused(queue, tmp_path, capfd, name, out, message):
    write_files(tmp_path / "arriving", {name: "one"})
    assert run_stream(queue, tmp_path / "arriving", tmp_path / out) == 1
    assert re.search(message, capfd.readouterr().err)
    assert (queue.bodies, (tmp_path / out).exists()) == ([], False)
