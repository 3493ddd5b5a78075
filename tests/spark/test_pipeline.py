"""The two jobs over real files: right counts, right stamps, whatever happens to the tasks."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from itertools import count as counting

import pytest

from pipeline import count, layout, reading, scan, split
from pipeline.errors import JobError
from pipeline.layout import FILES_SCHEMA, TRACKING_SCHEMA, Folder, words_in
from pipeline.words import counted, words
from tests.support.fakes import NO_WAIT, FakeBus, FakeDeadLetters
from tests.support.services import Message, consume
from xorack import peel, plain, traced, unit_id, xor
from xorack.acker.memory_store import MemoryStore

pytestmark = pytest.mark.spark

SCRIPTS = (
    "the quick, brown Fox—jumps über STRASSE straße ΣΊΣΥΦΟΣ 日本語の文章 naïve don't x1 \U0001f600 "
)


def prose(rng: random.Random, length: int) -> str:
    tokens = SCRIPTS.split(" ")
    return " ".join(
        rng.choice(tokens) + rng.choice(("", "", "\n", "\t", ".")) for _ in range(length)
    )


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """Files of all kinds, and what plain Python says is in those that can be read."""
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
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
    (root / "latin.txt").write_bytes("caf\xe9".encode("latin-1"))
    (root / "bad end.txt").write_bytes(prose(rng, 150_000).encode() + b" \xff")  # in a late piece
    (root / "gone.txt").symlink_to("nowhere")
    (root / "linked.txt").symlink_to("plain.txt")
    (root / ".hidden.txt").write_text("hidden")
    (root / "circle").symlink_to(root)
    os.mkfifo(root / "pipe.txt")
    return root, {**texts, "linked.txt": texts["plain.txt"]}


BAD = {"latin.txt", "bad end.txt", "gone.txt"}


class Acker:
    """Applies what came to the queue, as the consumer does."""

    def __init__(self) -> None:
        self.store, self.bus, self.letters = MemoryStore(), FakeBus(), FakeDeadLetters()
        self._ids = counting()

    def apply(self, bodies: list[str]) -> None:
        messages = [Message(str(next(self._ids)), body) for body in bodies]
        done = consume(messages, self.store, self.bus, self.letters, policy=NO_WAIT)
        assert not done.failed
        assert not self.letters.letters

    def statuses(self) -> Counter:
        return Counter(chain.status for chain in self.store.chains.values())


def run_split(queue, database, out, *more, run="r1"):
    return split.main(
        [
            *("--database", str(database), "--words", str(out), "--queue-url", queue.queue_url),
            *("--run-id", run, "--json", *more),
        ]
    )


def run_count(queue, source, out, *more, run="r1"):
    return count.main(
        [
            *("--words", str(source), "--counts", str(out), "--queue-url", queue.queue_url),
            *("--run-id", run, "--json", *more),
        ]
    )


def counts_in(spark, folder) -> Counter:
    rows = spark.read.parquet(str(folder)).collect()
    return Counter({row["word"]: row["count"] for row in rows})


def requests_of(queue) -> set:
    return {(r.op, r.tag, r.id, r.stamp, r.started, r.finished, r.reason) for r in queue.take()}


def test_files_become_acked_chains(spark, database, queue, tmp_path, capfd):
    root, texts = database
    acker = Acker()
    assert run_split(queue, root, tmp_path / "w", "--timeout", "600") == 0
    summary = json.loads(capfd.readouterr().out)
    total = sum(len(words(text)) for text in texts.values())
    assert summary.pop("seconds") > 0
    assert summary.pop("messages") == len(queue.bodies)
    assert summary.pop("bytes") > 0
    assert summary == {
        "files": len(texts) + 3,
        "words": total,
        "failed": 3,
        "chains": len(texts) + 3,
        "requests": 2 * (len(texts) + 3),
    }
    acker.apply(queue.bodies)
    queue.bodies.clear()
    # Files without words are acked at once; those that cannot be read have failed, and say why.
    assert acker.statuses() == {"acked": 2, "failed": 3, "open": len(texts) - 2}
    reasons = {e["tag"]: e.get("reason", "") for e in acker.bus.events}
    assert (
        "latin.txt is not utf-8: unexpected end of data at byte 3" in reasons["my data/latin.txt"]
    )
    assert "bad end.txt is not utf-8: invalid start byte at byte" in reasons["my data/bad end.txt"]
    assert "gone.txt cannot be read: No such file" in reasons["my data/gone.txt"]
    failed = next(e for e in acker.bus.events if e["tag"] == "my data/latin.txt")
    assert failed["detail"]["path"].endswith("my data/latin.txt")
    # What is left in an open chain is its words, by the ids that plain Python gives them.
    few = acker.store.chains["my data/plain.txt"]
    first = next(row["number"] for row in files_in(spark, tmp_path / "w") if row["tag"] == few.tag)
    assert peel(few.stamp).ids == {unit_id((first << 40) + pos) for pos in range(5)}
    assert few.deadline

    assert run_count(queue, tmp_path / "w", tmp_path / "c") == 0
    summary = json.loads(capfd.readouterr().out)
    expected = sum((counted(text) for text in texts.values()), Counter())
    assert (summary["words"], summary["distinct"]) == (total, len(expected))
    assert counts_in(spark, tmp_path / "c") == expected
    acker.apply(queue.bodies)
    assert acker.statuses() == {"acked": len(texts), "failed": 3}
    for name, text in texts.items():
        chain = acker.store.chains[f"my data/{name}"]
        assert (chain.started, chain.finished) == (len(words(text)) + 1,) * 2
    assert len(acker.bus.events) == len(texts) + 3


def files_in(spark, place):
    return spark.read.schema(FILES_SCHEMA).json(str(place / "files")).collect()


def stumbling(original):
    """Spark's own way of reading, but each task fails once after it has given half of its rows."""

    def scan_words(spark, *given):
        frame, all_said = original(spark, *given)

        def stumble(batches):
            from pyspark import TaskContext

            for batch in batches:
                yield batch
                if TaskContext.get().attemptNumber() == 0:
                    raise RuntimeError("on purpose")

        return frame.mapInArrow(stumble, frame.schema), all_said

    return scan_words


def test_retried_tasks_and_other_tasks_make_the_same_requests(
    spark, database, queue, tmp_path, monkeypatch, capfd
):
    root, _ = database
    assert run_split(queue, root, tmp_path / "w1") == 0
    assert run_count(queue, tmp_path / "w1", tmp_path / "c1") == 0
    first = requests_of(queue)
    monkeypatch.setattr(scan, "scan_words", stumbling(scan.scan_words))
    monkeypatch.setattr(scan, "_TASK_BYTES", reading.PIECE)
    monkeypatch.setattr(scan, "_TASK_FILES", 2)
    assert run_split(queue, root, tmp_path / "w2", "--send-from", "tasks") == 0
    assert run_count(queue, tmp_path / "w2", tmp_path / "c2", "--send-from", "tasks") == 0
    assert requests_of(queue) == first
    assert counts_in(spark, tmp_path / "c1") == counts_in(spark, tmp_path / "c2")


def test_a_run_that_died_is_repeated(spark, database, queue, tmp_path, monkeypatch, capfd):
    root, texts = database
    acker = Acker()
    # Before anything was durable: a leaving of the same run, as a killed process leaves it.
    out = tmp_path / "w"
    monkeypatch.setattr(split, "_write", lambda *a: (_ for _ in ()).throw(RuntimeError("died")))
    monkeypatch.setattr("pipeline.layout.Folder.delete", lambda self: None)
    assert run_split(queue, root, out) == 1
    monkeypatch.undo()
    assert out.exists()
    assert queue.bodies == []
    # After that, but with some of the messages on their way.
    queue.refuse = lambda sent: sent >= 0
    assert run_split(queue, root, out) == 1
    assert "not sent" in capfd.readouterr().err
    queue.refuse = lambda sent: False
    for _ in range(2):
        assert run_split(queue, root, out) == 0
        acker.apply(queue.bodies)
    queue.bodies.clear()
    queue.refuse = lambda sent: True
    assert run_count(queue, out, tmp_path / "c") == 1
    queue.refuse = lambda sent: False
    for _ in range(2):
        assert run_count(queue, out, tmp_path / "c") == 0
        acker.apply(queue.bodies)
    assert acker.statuses() == {"acked": len(texts), "failed": 3}
    assert counts_in(spark, tmp_path / "c") == sum(map(counted, texts.values()), Counter())


def test_nothing_is_sent_before_the_counts_are_durable(
    spark, database, queue, tmp_path, monkeypatch, capfd
):
    root, _ = database
    assert run_split(queue, root, tmp_path / "w", "--glob", "plain.txt") == 0
    queue.bodies.clear()

    def breaks(*arguments):
        raise RuntimeError("disk full\n\tat java.lang")

    monkeypatch.setattr(count, "_write", breaks)
    assert run_count(queue, tmp_path / "w", tmp_path / "c") == 1
    assert capfd.readouterr().err == "count: disk full\n"
    assert queue.bodies == []
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    "encoding", ["latin-1", "utf-8-sig", "utf-16", "utf-16-be", "utf-32", "shift_jis", "cp1252"]
)
def test_encodings(spark, queue, tmp_path, encoding, capfd):
    text = prose(random.Random(1), 300).encode(encoding, "ignore").decode(encoding)
    (tmp_path / "db").mkdir()
    (tmp_path / "db" / "a.txt").write_bytes(text.encode(encoding))
    assert run_split(queue, tmp_path / "db", tmp_path / "w", "--encoding", encoding) == 0
    assert json.loads(capfd.readouterr().out)["failed"] == 0
    found = words_in(spark, Folder(spark, str(tmp_path / "w"))).orderBy("at").collect()
    assert [row["word"] for row in found] == words(text)
    assert [row["at"] for row in found] == list(range(len(found)))


def test_plain_stamps(spark, database, queue, tmp_path, capfd):
    root, texts = database
    acker = Acker()
    assert run_split(queue, root, tmp_path / "w", "--stamps", "plain") == 0
    assert run_count(queue, tmp_path / "w", tmp_path / "c") == 0
    assert {len(r.stamp) for r in queue_requests(queue) if r.stamp} == {8}
    acker.apply(queue.bodies)
    assert acker.statuses() == {"acked": len(texts), "failed": 3}


def queue_requests(queue):
    bodies = list(queue.bodies)
    requests = queue.take()
    queue.bodies = bodies
    return requests


def test_words_in_a_place_that_spark_alone_can_read(
    spark, database, queue, tmp_path, monkeypatch, capfd
):
    root, texts = database
    acker = Acker()
    monkeypatch.setattr("xorack.spark.files.can_read", lambda uri: False)
    for number, glob in enumerate(("*", "plain.txt")):  # with words that do not count, and without
        assert run_split(queue, root, tmp_path / f"w{number}", "--glob", glob, "--name", glob) == 0
        assert run_count(queue, tmp_path / f"w{number}", tmp_path / f"c{number}") == 0
    acker.apply(queue.bodies)
    acked = {tag for tag, chain in acker.store.chains.items() if chain.status == "acked"}
    assert acked == {f"*/{name}" for name in texts} | {"plain.txt/plain.txt"}


@pytest.mark.parametrize("kind", ["traced", pytest.param("plain", marks=pytest.mark.slow)])
def test_words_that_are_gone_stay_outstanding(
    spark, database, queue, tmp_path, monkeypatch, kind, capfd
):
    """Some of the words that were written are not there to be counted: the chain says which."""
    root, _ = database
    monkeypatch.setattr(scan, "_TASK_BYTES", reading.PIECE)
    acker = Acker()
    some = ["--glob", "[lp]*.txt", "--exclude", "la[!r]*", "--stamps", kind]
    assert run_split(queue, root, tmp_path / "w", *some) == 0
    large = next(f for f in files_in(spark, tmp_path / "w") if f["tag"] == "my data/large.txt")
    all_words = words_in(spark, Folder(spark, str(tmp_path / "w")))
    all_words = all_words.where(f"number = {large['number']}").select("at").collect()
    parts = sorted((tmp_path / "w" / "words").glob("*.parquet"))
    assert len(parts) >= 4
    parts[1].unlink()
    left = words_in(spark, Folder(spark, str(tmp_path / "w")))
    left = {row["at"] for row in left.where(f"number = {large['number']}").collect()}
    gone = {row["at"] for row in all_words} - left
    assert left
    assert gone
    assert run_count(queue, tmp_path / "w", tmp_path / "c") == 0
    acker.apply(queue.bodies)
    chain = acker.store.chains["my data/large.txt"]
    assert (chain.started - chain.finished) == len(gone)
    stamp = traced if kind == "traced" else plain
    assert chain.stamp == xor(*(stamp(unit_id(at)) for at in gone))
    assert acker.statuses() == {"open": 1, "acked": 2}
    assert sum(counts_in(spark, tmp_path / "c").values()) == len(left) + 2 * 5


def test_stamps_are_what_plain_python_makes(spark, database, queue, tmp_path, capfd):
    root, _ = database
    assert run_split(queue, root, tmp_path / "w", "--glob", "plain.txt", "--name", "db") == 0
    assert run_count(queue, tmp_path / "w", tmp_path / "c") == 0
    by_step = {(r.op, r.started): r for r in queue.take()}
    key = unit_id("db/plain.txt")
    units = [traced(unit_id(pos)) for pos in range(5)]  # of the first file, the only one
    assert by_step["create", 1].stamp == traced(key)
    assert by_step["stamp", 5].stamp == xor(traced(key), *units)
    assert by_step["stamp", 0].stamp == xor(*units)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--database", "/no/such/folder"], "split: database /no/such/folder: No such file"),
        (["--glob", "*.nothing"], "has no files of the pattern '*.nothing'"),
        (["--encoding", "klingon"], "split: encoding 'klingon' is not known"),
        (["--encoding", "base64"], "split: encoding 'base64' is not one of text files"),
        (["--timeout", "0"], "split: --timeout must be above 0 seconds"),
        (["--queue-url", "nothing"], "split: --queue-url: 'nothing' is no queue's URL"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(database, queue, tmp_path, capfd, more, message):
    root, _ = database
    assert run_split(queue, root, tmp_path / "w", *more) == 1
    said = capfd.readouterr()
    assert message in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""
    assert not (tmp_path / "w").exists()
    assert queue.bodies == []


def test_a_queue_that_is_not_there(spark, database, queue, tmp_path, capfd):
    root, _ = database
    assert run_split(queue, root, tmp_path / "w", "--queue-url", queue.endpoint + "/1/other") == 1
    assert "there is no queue http" in capfd.readouterr().err
    assert not (tmp_path / "w").exists()


def test_folders_that_are_in_the_way_or_missing(spark, database, queue, tmp_path, capfd):
    root, _ = database
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "mine.txt").write_text("precious")
    assert run_split(queue, root, tmp_path / "w") == 1
    assert "exists already: give another folder" in capfd.readouterr().err
    assert (tmp_path / "w" / "mine.txt").read_text() == "precious"
    assert run_count(queue, tmp_path / "w", tmp_path / "c") == 1
    assert "is not what split writes, or split has not ended" in capfd.readouterr().err
    assert run_count(queue, tmp_path / "nowhere", tmp_path / "c") == 1
    assert "nowhere: there is no such folder" in capfd.readouterr().err
    assert run_split(queue, root, tmp_path / "w2", "--glob", "plain.txt") == 0
    assert run_split(queue, root, tmp_path / "w2", "--glob", "plain.txt", run="r2") == 1
    assert "exists already" in capfd.readouterr().err
    assert run_split(queue, root, tmp_path / "w2", "--glob", "e*.txt") == 1
    assert "of the run 'r1' but with another glob" in capfd.readouterr().err


def test_a_task_that_says_nothing_is_no_file_without_words(spark, database):
    """What tasks say of files reaches the driver with their success; if not, nothing is listed."""
    root, texts = database
    path, size = os.fsencode(root / "plain.txt"), len(texts["plain.txt"])
    tasks = [[scan.Part(number, path, 0, size, size)] for number in range(2)]
    rows, all_said = scan.scan_words(spark, tasks, reading.encoding_named("UTF-8"), "plain")
    with pytest.raises(RuntimeError, match="0 of 2 tasks said what they read"):
        all_said()
    assert rows.count() == 10
    assert [said[number].words for number, said in enumerate(all_said())] == [5, 5]


def test_rows_that_are_written_are_read_by_python_and_by_spark(spark, tmp_path, monkeypatch):
    rows = [
        {"chain": -(1 << 63), "tag": 'a "b"\n\u2028é\U0001f600', "attempt": 1, "finished": 1 << 40},
        {"chain": 7, "tag": "", "attempt": 2, "finished": 0, "stamp": bytes(range(256)) * 3},
    ]
    for row in rows:
        row.setdefault("stamp", None)
    monkeypatch.setattr(layout, "_AT_A_TIME", 100)  # lines are longer than what goes at a time
    folder = layout.Folder(spark, str(tmp_path / "a [b]*"))
    folder.write_rows(iter(rows))
    assert folder.is_whole()
    assert list(folder.read_rows(TRACKING_SCHEMA)) == rows
    assert list(folder.read_rows("tag string")) == [{"tag": row["tag"]} for row in rows]
    found = layout.rows_in(spark, folder, TRACKING_SCHEMA).orderBy("chain").collect()
    assert [row.asDict() for row in found] == rows
    part = tmp_path / "a [b]*" / "part-00000.json"
    part.write_bytes(part.read_bytes()[:-2])
    (tmp_path / "a [b]*" / ".part-00000.json.crc").unlink()
    with pytest.raises(JobError, match=r"the last line of part-00000\.json is cut off"):
        list(folder.read_rows(TRACKING_SCHEMA))
