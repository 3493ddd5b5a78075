"""The two jobs over real files: right counts and right stamps, whatever happens to the tasks."""

from __future__ import annotations

import json
import os
import random
from functools import partial

import pytest

from pipeline import count, layout, reading, scan
from pipeline.errors import JobError
from pipeline.layout import TRACKING_SCHEMA, Folder, words_in
from pipeline.words import words
from tests.spark.helpers import (
    Acker,
    count_words,
    counts_in,
    fail_first_attempt,
    file_numbers,
    prose,
    received,
    run_count,
    run_split,
    write_files,
)
from xorack import peel, plain, traced, unit_id, xor


@pytest.fixture(scope="module")
def database(spark, tmp_path_factory):
    """Write files of all kinds; return their folder and the texts of the readable ones."""
    root = tmp_path_factory.mktemp("database") / "my data"
    rng = random.Random(3)
    texts = {
        "plain.txt": "one two  Two, three_four",
        "empty.txt": "",
        "no words.txt": " \n\t--- ... \n",
        "deep/er/file.txt": prose(rng, 500),
        "name with 100%, [x] and *.txt": prose(rng, 50),
        "ünï:çødé\nnew line.txt": prose(rng, 50),
        "bom.txt": "\ufeffbeginning with a mark",
        "large.txt": prose(rng, 420_000),  # four pieces
    }
    unreadable = {
        "latin.txt": "caf\xe9".encode("latin-1"),
        "bad end.txt": prose(rng, 150_000).encode() + b" \xff",  # in a late piece
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
    summary = json.loads(capfd.readouterr().out)
    total = sum(len(words(text)) for text in texts.values())
    files = len(texts) + 3
    assert summary.pop("seconds") > 0
    assert summary.pop("messages") == len(queue.bodies)
    assert summary.pop("bytes") > 0
    assert summary == {
        "files": files, "words": total, "failed": 3, "chains": files, "requests": 2 * files,
    }  # fmt: skip
    acker = Acker(queue.bodies)
    queue.bodies.clear()
    # Files without words are acked at once; unreadable ones fail with a reason.
    assert acker.statuses() == {"acked": 2, "failed": 3, "open": len(texts) - 2}
    events = {event["tag"].removeprefix("my data/"): event for event in acker.bus.events}
    for name, reason in {
        "latin.txt": "latin.txt is not utf-8: unexpected end of data at byte 3",
        "bad end.txt": "bad end.txt is not utf-8: invalid start byte at byte",
        "gone.txt": "gone.txt cannot be read: No such file",
    }.items():
        assert reason in events[name]["reason"]
        assert events[name]["detail"]["path"].endswith(f"my data/{name}")
    # An open chain's stamp holds its words, under the ids that plain Python computes.
    few = acker.chains["my data/plain.txt"]
    first = file_numbers(spark, tmp_path / "w")[few.tag]
    assert peel(few.stamp).ids == {unit_id((first << 40) + pos) for pos in range(5)}
    assert few.deadline

    assert run_count(queue, tmp_path / "w", tmp_path / "c") == 0
    summary = json.loads(capfd.readouterr().out)
    expected = count_words(texts.values())
    assert (summary["words"], summary["distinct"]) == (total, len(expected))
    assert counts_in(spark, tmp_path / "c") == expected
    acker.apply(queue.bodies)
    assert acker.statuses() == {"acked": len(texts), "failed": 3}
    for name, text in texts.items():
        chain = acker.chains[f"my data/{name}"]
        assert (chain.started, chain.finished) == (len(words(text)) + 1,) * 2
    assert len(acker.bus.events) == files


def test_retries_and_another_task_layout_give_the_same_requests(
    spark, database, queue, tmp_path, monkeypatch, capfd
):
    root, _ = database
    assert run_split(queue, root, tmp_path / "w1") == 0
    assert run_count(queue, tmp_path / "w1", tmp_path / "c1") == 0
    first = received(queue)
    original = scan.scan_words

    def scan_words(*arguments):
        frame, results = original(*arguments)
        return frame.mapInArrow(fail_first_attempt, frame.schema), results

    monkeypatch.setattr(scan, "scan_words", scan_words)
    monkeypatch.setattr(scan, "_TASK_BYTES", reading.PIECE)
    monkeypatch.setattr(scan, "_TASK_FILES", 2)
    assert run_split(queue, root, tmp_path / "w2", "--send-from", "tasks") == 0
    assert run_count(queue, tmp_path / "w2", tmp_path / "c2", "--send-from", "tasks") == 0
    assert received(queue) == first
    assert counts_in(spark, tmp_path / "c1") == counts_in(spark, tmp_path / "c2")


def test_a_crashed_run_can_be_repeated(spark, database, queue, tmp_path, crash_and_reject):
    root, texts = database
    acker, out = Acker(), tmp_path / "w"
    for name, job, source, made in (
        ("split", run_split, root, out),
        ("count", run_count, out, tmp_path / "c"),
    ):
        run = partial(job, queue, source, made)
        crash_and_reject(run, f"pipeline.{name}._write", made)
        for _ in range(2):
            assert run() == 0
            acker.apply(queue.bodies)
    assert acker.statuses() == {"acked": len(texts), "failed": 3}
    assert counts_in(spark, tmp_path / "c") == count_words(texts.values())


def test_count_sends_nothing_before_its_output_is_durable(
    database, queue, tmp_path, monkeypatch, capfd, check_error
):
    root, _ = database
    assert run_split(queue, root, tmp_path / "w", "--glob", "plain.txt") == 0
    queue.bodies.clear()
    capfd.readouterr()

    def fail(*arguments):
        raise RuntimeError("disk full\n\tat java.lang")

    monkeypatch.setattr(count, "_write", fail)
    assert run_count(queue, tmp_path / "w", tmp_path / "c") == 1
    check_error("count: disk full\n", tmp_path / "c")


@pytest.mark.parametrize("encoding", ["latin-1", "utf-8-sig", "utf-16", "shift_jis"])
def test_encodings(spark, queue, tmp_path, encoding, capfd):
    text = prose(random.Random(1), 300).encode(encoding, "ignore").decode(encoding)
    write_files(tmp_path / "db", {"a.txt": text.encode(encoding)})
    assert run_split(queue, tmp_path / "db", tmp_path / "w", "--encoding", encoding) == 0
    assert json.loads(capfd.readouterr().out)["failed"] == 0
    rows = words_in(spark, Folder(spark, str(tmp_path / "w"))).orderBy("at").collect()
    assert [(row["at"], row["word"]) for row in rows] == list(enumerate(words(text)))


@pytest.mark.parametrize(
    ("options", "stamp"),
    [
        (("--stamps", "traced"), traced),
        (("--cells", "256"), partial(traced, cells=256)),
        (("--stamps", "plain"), plain),
    ],
)
def test_stamps_equal_those_of_plain_python(database, queue, tmp_path, options, stamp):
    root, _ = database
    given = ("--glob", "plain.txt", "--name", "db", *options)
    assert run_split(queue, root, tmp_path / "w", *given) == 0
    assert run_count(queue, tmp_path / "w", tmp_path / "c") == 0
    requests = {(r.op, r.started): r.stamp for r in queue.take()}
    root_stamp = stamp(unit_id("db/plain.txt"))
    word_stamps = [stamp(unit_id(pos)) for pos in range(5)]  # the only file: number 0
    assert requests == {
        ("create", 1): root_stamp,
        ("stamp", 5): xor(root_stamp, *word_stamps),
        ("stamp", 0): xor(*word_stamps),
    }


def test_words_on_a_file_system_that_only_spark_can_read(database, queue, tmp_path, monkeypatch):
    root, texts = database
    monkeypatch.setattr("xorack.spark.files.can_read", lambda uri: False)
    # With words of unreadable files, which do not count, and without.
    for number, glob in enumerate(("*", "plain.txt")):
        assert run_split(queue, root, tmp_path / f"w{number}", "--glob", glob, "--name", glob) == 0
        assert run_count(queue, tmp_path / f"w{number}", tmp_path / f"c{number}") == 0
    acker = Acker(queue.bodies)
    acked = {tag for tag, chain in acker.chains.items() if chain.status == "acked"}
    assert acked == {f"*/{name}" for name in texts} | {"plain.txt/plain.txt"}


@pytest.mark.parametrize("kind", ["traced", pytest.param("plain", marks=pytest.mark.slow)])
def test_lost_words_stay_outstanding(spark, database, queue, tmp_path, monkeypatch, kind):
    """A file of words disappears between the jobs: the chain's stamp is that of its words."""
    root, _ = database
    monkeypatch.setattr(scan, "_TASK_BYTES", reading.PIECE)
    some = ["--glob", "[lp]*.txt", "--exclude", "la[!r]*", "--stamps", kind]
    assert run_split(queue, root, tmp_path / "w", *some) == 0
    large = file_numbers(spark, tmp_path / "w")["my data/large.txt"]

    def places():
        rows = words_in(spark, Folder(spark, str(tmp_path / "w"))).where(f"number = {large}")
        return {row["at"] for row in rows.select("at").collect()}

    before = places()
    parts = sorted((tmp_path / "w" / "words").glob("*.parquet"))
    assert len(parts) >= 4
    parts[1].unlink()
    left = places()
    lost = before - left
    assert left
    assert lost
    assert run_count(queue, tmp_path / "w", tmp_path / "c") == 0
    acker = Acker(queue.bodies)
    chain = acker.chains["my data/large.txt"]
    assert chain.started - chain.finished == len(lost)
    stamp = traced if kind == "traced" else plain
    assert chain.stamp == xor(*(stamp(unit_id(at)) for at in lost))
    assert acker.statuses() == {"open": 1, "acked": 2}
    assert counts_in(spark, tmp_path / "c").total() == len(left) + 2 * 5


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--database", "/no/such/folder"], "split: database /no/such/folder: No such file"),
        (["--glob", "*.nothing"], "has no files of the pattern '*.nothing'"),
        (["--encoding", "klingon"], "split: encoding 'klingon' is not known"),
        (["--encoding", "base64"], "split: encoding 'base64' is not one of text files"),
        (["--timeout", "0"], "split: --timeout must be above 0 seconds"),
        (["--queue-url", "nothing"], "split: --queue-url: 'nothing' is no queue's URL"),
        (["--queue-url", "{endpoint}/1/other"], "there is no queue http"),
    ],
)
def test_an_invalid_argument_is_one_line_on_stderr(
    database, queue, tmp_path, check_error, more, message
):
    root, _ = database
    given = [argument.format(endpoint=queue.endpoint) for argument in more]
    assert run_split(queue, root, tmp_path / "w", *given) == 1
    check_error(message, tmp_path / "w")


def test_existing_and_missing_folders(database, queue, tmp_path, capfd):
    root, _ = database
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "mine.txt").write_text("precious")
    some = ("--glob", "plain.txt")
    assert run_split(queue, root, tmp_path / "w2", *some) == 0
    for job, source, out, more, message in (
        (run_split, root, "w", {}, "exists already: give another folder"),
        (run_count, tmp_path / "w", "c", {}, "is not what split writes, or split has not ended"),
        (run_count, tmp_path / "nowhere", "c", {}, "nowhere: there is no such folder"),
        (run_split, root, "w2", {"run": "r2"}, "exists already"),
    ):
        arguments = some if job is run_split else ()
        assert job(queue, source, tmp_path / out, *arguments, **more) == 1
        assert message in capfd.readouterr().err
    assert (tmp_path / "w" / "mine.txt").read_text() == "precious"
    assert run_split(queue, root, tmp_path / "w2", "--glob", "e*.txt") == 1
    assert "of the run 'r1' but with another glob" in capfd.readouterr().err


def test_tasks_without_a_result_are_an_error(spark, database):
    """A task reports its files when it succeeds; before that, split lists none of them."""
    root, texts = database
    path, size = os.fsencode(root / "plain.txt"), len(texts["plain.txt"])
    tasks = [[scan.Part(number, path, 0, size, size)] for number in range(2)]
    encoding = reading.encoding_named("UTF-8")
    rows, results = scan.scan_words(spark, tasks, encoding, {"kind": "plain"})
    with pytest.raises(RuntimeError, match="0 of 2 tasks said what they read"):
        results()
    assert rows.count() == 10
    assert [result[number].words for number, result in enumerate(results())] == [5, 5]


def test_python_and_spark_read_the_rows_that_the_driver_wrote(spark, tmp_path, monkeypatch):
    tag = 'a "b"\n\u2028é\U0001f600'
    rows = [
        {"chain": -(1 << 63), "tag": tag, "attempt": 1, "finished": 1 << 40, "stamp": None},
        {"chain": 7, "tag": "", "attempt": 2, "finished": 0, "stamp": bytes(range(256)) * 3},
    ]
    monkeypatch.setattr(layout, "_AT_A_TIME", 100)  # less than a line
    folder = layout.Folder(spark, str(tmp_path / "a [b]*"))
    folder.write_rows(iter(rows))
    assert folder.is_whole()
    assert list(folder.read_rows(TRACKING_SCHEMA)) == rows
    assert list(folder.read_rows("tag string")) == [{"tag": row["tag"]} for row in rows]
    read = layout.rows_in(spark, folder, TRACKING_SCHEMA).orderBy("chain").collect()
    assert [row.asDict() for row in read] == rows
    part = tmp_path / "a [b]*" / "part-00000.json"
    part.write_bytes(part.read_bytes()[:-2])
    (tmp_path / "a [b]*" / ".part-00000.json.crc").unlink()
    with pytest.raises(JobError, match=r"the last line of part-00000\.json is cut off"):
        list(folder.read_rows(TRACKING_SCHEMA))
