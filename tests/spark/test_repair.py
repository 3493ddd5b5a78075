"""From failed chains back to rows: the repair counts what was missed, once, and no more."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from dataclasses import replace

import pytest
from pyspark.sql import functions as F

from pipeline import count, repair
from pipeline.layout import FILES_SCHEMA, TRACKING_SCHEMA, Folder, words_in
from pipeline.words import counted, words
from tests.spark.test_pipeline import Acker, counts_in, prose, run_count, run_split
from tests.support.queue_server import QueueServer
from xorack import traced, unit_id, xor
from xorack.core.errors import InvalidRequest
from xorack.core.message import pack, parse
from xorack.core.transitions import expire, mark_published
from xorack.spark import UnsuitableColumns, rows_of, with_unit

pytestmark = pytest.mark.spark

LOST = 6
LATER = 10**13
"""A time, in ms, when every deadline has passed."""


@pytest.fixture(scope="module")
def texts():
    rng = random.Random(4)
    return {
        "a.txt": "one two three, Two three THREE",
        "a.txt~2": "called as a second attempt would be",
        "deep/b [x].txt": prose(rng, 300),
        "c.txt": prose(rng, 300),
        "none.txt": " -- ",
    }


class Runs:
    """What split and count left, and what they sent."""

    def __init__(self, root, split_sent, count_sent):
        self.words, self.counts = root / "w", root / "c"
        self.split_sent, self.count_sent = split_sent, count_sent

    def acker(self, *, lose=()):
        """Chains as they stand once all came, but count's stamps of some tags, and time is up."""
        acker = Acker()
        acker.apply(self.split_sent)
        kept = [r for body in self.count_sent for r in parse(body).requests if r.tag not in lose]
        acker.apply(list(pack(kept)))
        self.time_is_up(acker)
        return acker

    @staticmethod
    def time_is_up(acker):
        chains = acker.store.chains
        for tag, chain in chains.items():
            if chain.status == "open":
                chains[tag] = expire(replace(chain, deadline=1), LATER)
                acker.bus.publish([chains[tag]])
                chains[tag] = mark_published(chains[tag])


def failed_events(acker):
    return [e for e in acker.bus.events if e["status"] == "failed"]


@pytest.fixture(scope="module")
def runs(spark, texts, tmp_path_factory):
    root = tmp_path_factory.mktemp("repair")
    for name, text in texts.items():
        path = root / "db" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "db" / "bad.txt").write_bytes(b"caf\xe9")
    server = QueueServer()
    try:
        assert run_split(server, root / "db", root / "w") == 0
        split_sent, server.bodies = server.bodies, []
        assert run_count(server, root / "w", root / "c", "--lose", str(LOST)) == 0
        return Runs(root, split_sent, server.bodies)
    finally:
        server.stop()


@pytest.fixture(scope="module")
def expected(texts):
    return sum(map(counted, texts.values()), Counter())


def run_repair(queue, runs, out, *more, run="f1", counts=None):
    return repair.main(
        [
            *("--words", str(runs.words), "--counts", str(counts or runs.counts)),
            *("--repaired", str(out), "--queue-url", queue.queue_url),
            *("--run-id", run, "--json", *more),
        ]
    )


def events_file(tmp_path, events):
    file = tmp_path / "events.jsonl"
    file.write_text("".join(json.dumps(event) + "\n" for event in events))
    return str(file)


def test_lost_words_are_found_counted_and_finished(
    spark, runs, texts, expected, queue, tmp_path, capfd
):
    capfd.readouterr()
    acker = runs.acker()
    events = [e for e in failed_events(acker) if e["reason"] == "timed out"]
    named = {(e["tag"], one) for e in events for one in e["outstanding"]}
    assert len(named) == LOST
    assert len(events) > 1
    assert all(e["outstanding_complete"] for e in events)
    assert acker.statuses() == {"acked": len(texts) - len(events), "failed": 1 + len(events)}
    assert counts_in(spark, runs.counts).total() == expected.total() - LOST

    assert run_repair(queue, runs, tmp_path / "n", "--events", events_file(tmp_path, events)) == 0
    summary = json.loads(capfd.readouterr().out)
    assert counts_in(spark, tmp_path / "n") == expected
    assert (summary["words"], summary["distinct"]) == (expected.total(), len(expected))
    assert (summary["missing"], summary["chains"]) == (LOST, len(events))
    assert summary["skipped"] == summary["never_started"] == []
    # The very words of the events, with file, position and text.
    attempts = {one["tag"]: one["repairs"] for one in summary["repaired"]}
    assert {(attempts[one["tag"]], one["id"]) for one in summary["named"]} == named
    for one in summary["named"]:
        name = attempts[one["tag"]].removeprefix("db/")
        assert one["path"].endswith(f"/db/{name}")
        assert words(texts[name])[one["position"]] == one["word"]
        number = file_number(spark, runs, f"db/{name}")
        assert one["id"] == f"{unit_id((number << 40) + one['position']):016x}"

    first = dict(acker.store.chains)
    acker.apply(queue.bodies)
    for event in events:
        tag = event["tag"] + "~2"
        chain = acker.store.chains[tag]
        assert (chain.status, chain.started) == ("acked", len(event["outstanding"]))
        told = next(e for e in acker.bus.events if e["tag"] == tag)["detail"]
        assert (told["repairs"], told["attempt"], told["run"]) == (event["tag"], 2, "f1")
        assert told["missing"] == len(event["outstanding"])
    # Again: the same requests, and nothing counts twice.
    once, queue.bodies = queue.bodies, []
    shutil.move(runs.counts, tmp_path / "gone")  # what it made is all that it needs
    try:
        again = run_repair(
            queue, runs, tmp_path / "n", "--events", events_file(tmp_path, [*events, *events])
        )
    finally:
        shutil.move(tmp_path / "gone", runs.counts)
    assert again == 0
    assert {**json.loads(capfd.readouterr().out), "seconds": 0} == {**summary, "seconds": 0}
    assert [parse(b).requests for b in queue.bodies] == [parse(b).requests for b in once]
    assert counts_in(spark, tmp_path / "n") == expected
    # Late stamps of the first attempt, even those of a count that missed nothing: no change.
    queue.bodies.clear()
    assert run_count(queue, runs.words, tmp_path / "c2", run="late") == 0
    before = dict(acker.store.chains)
    acker.apply(queue.bodies + once + runs.count_sent)
    assert acker.store.chains == before
    assert first.items() <= before.items()


def test_stamps_that_were_lost_are_no_words_that_were_lost(
    spark, runs, expected, queue, tmp_path, capfd
):
    # The counts of c.txt are there, but what count sent of it never came.
    acker = runs.acker(lose={"db/c.txt"})
    events = [e for e in failed_events(acker) if e["reason"] == "timed out"]
    assert run_repair(queue, runs, tmp_path / "n", "--events", events_file(tmp_path, events)) == 0
    assert counts_in(spark, tmp_path / "n") == expected
    acker.apply(queue.bodies)
    assert {acker.store.chains[e["tag"] + "~2"].status for e in events} == {"acked"}
    # And again, of what was repaired, though nothing is missing: the root unit alone.
    queue.bodies.clear()
    capfd.readouterr()
    more = ("--tag", "db/none.txt", "--tag", "db/c.txt~2")
    done = run_repair(queue, runs, tmp_path / "n2", *more, run="f2", counts=tmp_path / "n")
    assert done == 0
    summary = json.loads(capfd.readouterr().out)
    assert summary["missing"] == 0
    assert summary["repaired"] == [
        {"tag": "db/c.txt~3", "repairs": "db/c.txt~2"},
        {"tag": "db/none.txt~2", "repairs": "db/none.txt"},
    ]
    assert counts_in(spark, tmp_path / "n2") == expected
    acker.apply(queue.bodies)
    for tag in ("db/c.txt~3", "db/none.txt~2"):
        chain = acker.store.chains[tag]
        assert (chain.status, chain.started, chain.finished) == ("acked", 1, 1)
    create = next(r for body in queue.bodies for r in parse(body).requests if r.op == "create")
    assert create.stamp == traced(unit_id(create.tag))


def test_repaired_in_steps_and_a_file_called_as_an_attempt(
    spark, runs, texts, expected, queue, tmp_path, capfd
):
    acker = runs.acker()
    hurt = [e["tag"] for e in failed_events(acker) if e["reason"] == "timed out"]
    place, sent = runs.counts, []
    for number, tag in enumerate([*hurt, "db/a.txt"]):
        out = tmp_path / f"n{number}"
        assert run_repair(queue, runs, out, "--tag", tag, run=f"f{number}", counts=place) == 0
        place = out
        sent.append(json.loads(capfd.readouterr().out.splitlines()[-1])["repaired"][0]["tag"])
    assert counts_in(spark, place) == expected
    # db/a.txt~2 is another file's chain.
    assert sent[-1] in ("db/a.txt~3", "db/a.txt~4")
    acker.apply(queue.bodies)
    assert {acker.store.chains[tag].status for tag in sent} == {"acked"}
    assert acker.store.chains["db/a.txt~2"].created_at is not None
    assert acker.store.chains["db/a.txt~2"].started == 1 + len(words(texts["a.txt~2"]))


def test_a_run_that_died_is_repeated(spark, runs, expected, queue, tmp_path, capfd, monkeypatch):
    acker = runs.acker()
    events = events_file(tmp_path, failed_events(acker))
    out = tmp_path / "n"
    # Before all was durable; a process that is killed cannot tidy up.
    with monkeypatch.context() as patched:
        patched.setattr(repair, "_counted", lambda one: (_ for _ in ()).throw(RuntimeError("died")))
        patched.setattr("pipeline.layout.Folder.delete", lambda self: None)
        assert run_repair(queue, runs, out, "--events", events) == 1
    assert (out / "_missing").is_dir()
    assert queue.bodies == []
    # After that, with nothing sent.
    queue.refuse = lambda sent: True
    assert run_repair(queue, runs, out, "--events", events) == 1
    assert "not sent" in capfd.readouterr().err
    queue.refuse = lambda sent: False
    assert run_repair(queue, runs, out, "--events", events) == 0
    # The file that could not be read has failed for a reason that counting does not mend.
    (skipped,) = json.loads(capfd.readouterr().out)["skipped"]
    assert skipped["tag"] == "db/bad.txt"
    assert "utf-8" in skipped["why"]
    acker.apply(queue.bodies)
    assert counts_in(spark, out) == expected
    assert "db/bad.txt~2" not in acker.store.chains
    assert run_repair(queue, runs, out, "--tag", "db/c.txt") == 1
    assert "of the run 'f1' but with another tags" in capfd.readouterr().err


def test_ids_that_were_never_started_are_told(runs, queue, tmp_path, capfd):
    event = failed_events(runs.acker(lose={"db/c.txt"}))[-1]
    root = f"{unit_id(event['tag']):016x}"
    event = {**event, "outstanding": [*event["outstanding"], root, "00000000000000ff"]}
    capfd.readouterr()
    assert run_repair(queue, runs, tmp_path / "n", "--events", events_file(tmp_path, [event])) == 0
    summary = json.loads(capfd.readouterr().out)
    assert summary["never_started"] == [{"tag": event["tag"], "id": "00000000000000ff"}]


@pytest.fixture
def others(queue, runs, spark, tmp_path):
    """Counts of the same words, in which one chain's record is another."""

    def make(tag, **columns):
        place = tmp_path / "others"
        shutil.copytree(runs.counts, place)
        tracking = spark.read.schema(TRACKING_SCHEMA).json(str(runs.counts / "_tracking"))
        rest = tracking.where(F.col("tag") != tag)
        for name, value in columns.items():
            tracking = tracking.withColumn(name, value)
        changed = tracking.where(F.col("tag") == tag)
        rest.unionByName(changed.select(*rest.columns)).write.mode("overwrite").json(
            str(place / "_tracking")
        )
        return place

    return make


def without(units):
    """A column of the stamp without these units."""
    left = xor(bytes(648), *map(traced, units))
    return F.udf(lambda stamp: bytearray(xor(bytes(stamp), left)), "binary")("stamp")


def unit_ids(spark, runs, tag, most):
    first = file_number(spark, runs, tag) << 40
    rows = words_in(spark, Folder(spark, str(runs.words))).where(
        F.col("at").between(first, first + (1 << 40) - 1)
    )
    return [unit_id(row["at"]) for row in rows.orderBy("at").limit(most).collect()]


def file_number(spark, runs, tag):
    files = spark.read.schema(FILES_SCHEMA).json(str(runs.words / "files"))
    return files.where(F.col("tag") == tag).first()["number"]


def test_too_many_missing_words_are_no_guess(runs, others, spark, queue, tmp_path, capfd):
    left = unit_ids(spark, runs, "db/c.txt", 200)
    counts = others("db/c.txt", stamp=without(left), finished=F.col("finished") - len(left))
    assert run_repair(queue, runs, tmp_path / "n", "--tag", "db/c.txt", counts=counts) == 1
    said = capfd.readouterr().err.splitlines()[-1]
    assert "too many words are missing in 'db/c.txt' (" in said
    assert f"with the run id that {counts} has ('r1') and without --lose" in said
    assert queue.bodies == []
    assert not (tmp_path / "n").exists()
    # What it says helps: counted whole, nothing is missing.
    assert run_count(queue, runs.words, tmp_path / "c") == 0
    queue.bodies.clear()
    assert run_repair(queue, runs, tmp_path / "n", "--tag", "db/c.txt", counts=tmp_path / "c") == 0
    acker = runs.acker(lose={"db/c.txt"})
    acker.apply(queue.bodies)
    assert acker.store.chains["db/c.txt~2"].status == "acked"


def test_plain_stamps(runs, spark, texts, queue, tmp_path, capfd):
    acker = Acker()
    source, root = tmp_path / "w", runs.words.parent / "db"
    plain = ("--stamps", "plain", "--glob", "[ac].txt")
    assert run_split(queue, root, source, *plain) == 0
    of = Runs(tmp_path, queue.bodies, [])
    tags = ("--tag", "db/a.txt", "--tag", "db/c.txt")
    both = counted(texts["a.txt"]) + counted(texts["c.txt"])
    # One of the two files is missing more than one word, and eight bytes name one at most.
    assert run_count(queue, source, tmp_path / "c1", "--lose", "9") == 0
    assert run_repair(queue, of, tmp_path / "n1", *tags, counts=tmp_path / "c1") == 1
    assert "too many words are missing in 'db/" in capfd.readouterr().err.splitlines()[-1]
    # But where nothing was counted at all, all of it is missing.
    queue.bodies.clear()
    assert run_split(queue, root, source, *plain) == 0
    assert run_count(queue, source, tmp_path / "c2", "--lose", str(10**6)) == 0
    assert counts_in(spark, tmp_path / "c2") == {}
    acker.apply(queue.bodies)
    Runs.time_is_up(acker)
    assert acker.statuses() == {"failed": 2}
    queue.bodies.clear()
    assert run_repair(queue, of, tmp_path / "n2", *tags, counts=tmp_path / "c2") == 0
    assert counts_in(spark, tmp_path / "n2") == both
    acker.apply(queue.bodies)
    chain = acker.store.chains["db/c.txt~2"]
    assert (chain.status, chain.started) == ("acked", len(words(texts["c.txt"])))


def test_counts_of_other_words_are_noticed(runs, others, spark, queue, tmp_path, capfd):
    # A unit that no word has was counted in the place of one that is there.
    (one,) = unit_ids(spark, runs, "db/c.txt", 1)
    counts = others("db/c.txt", stamp=without([one, 255]))
    assert run_repair(queue, runs, tmp_path / "n", "--tag", "db/c.txt", counts=counts) == 1
    said = capfd.readouterr().err.splitlines()[-1]
    assert "'db/c.txt'" in said
    assert "--counts are not those of --words" in said
    assert queue.bodies == []
    assert not (tmp_path / "n").exists()


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ([], "repair: which chains? give --tag or --events"),
        (["--events", "/no/such"], "--events /no/such: No such file or directory"),
        (["--tag", "db/a.txt", "--words", "/no/such"], "--words /no/such: there is no such folder"),
        (["--tag", "a.txt", "--tag", "b~2"], "no file of --words has the tag 'a.txt', 'b~2'"),
        (["--tag", "db/bad.txt"], "of 'db/bad.txt' the files could not be read"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(runs, queue, tmp_path, capfd, more, why):
    capfd.readouterr()
    assert run_repair(queue, runs, tmp_path / "n", *more) == 1
    said = capfd.readouterr()
    assert why in said.err
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert not (tmp_path / "n").exists()
    assert queue.bodies == []


def test_folders_and_events_that_do_not_fit(runs, queue, tmp_path, capfd):
    def fails(*more, **keys):
        capfd.readouterr()
        assert run_repair(queue, runs, tmp_path / "n", *more, **keys) == 1
        assert queue.bodies == []
        return capfd.readouterr().err

    tag = ("--tag", "db/c.txt")
    assert "is not what count writes" in fails(*tag, counts=runs.words)
    assert "is not what split writes" in fails(*tag, "--words", str(runs.counts))
    assert "exists already" in fails(*tag, "--repaired", str(runs.counts))
    event = {"tag": "db/c.txt", "status": "failed", "detail": {"run": "of yesterday"}}
    why = fails("--events", events_file(tmp_path, [event]))
    assert "'db/c.txt': its event is of the run 'of yesterday' of split" in why
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    assert "is not UTF-8" in fails("--events", str(tmp_path / "latin"))
    event = {**event, "status": "acked"}
    why = fails("--events", events_file(tmp_path, [event]))
    assert "'db/c.txt' has not failed, its status is 'acked'" in why


def test_lost_words_are_the_same_each_time(spark, runs, queue, tmp_path):
    assert run_count(queue, runs.words, tmp_path / "c", "--lose", str(LOST), run="r2") == 0
    assert counts_in(spark, tmp_path / "c") == counts_in(spark, runs.counts)
    with pytest.raises(SystemExit):
        count.parser().parse_args(["--lose=-1"])
    with pytest.raises(SystemExit):
        count.parser().parse_args(["--lose=some"])


# -- rows_of ---------------------------------------------------------------------------------------


def test_rows_of_any_frame_by_ids(spark):
    frame = spark.createDataFrame([(at, f"name {at}") for at in range(-50, 50)], "n int, s string")
    ids = {at: unit_id(at, f"name {at}") for at in (-50, -1, 0, 7, 49)}
    stranger = unit_id("stranger")
    forms = [
        ids[-50],
        f"{ids[-1]:016x}",
        f"{ids[0]:016X}",
        ids[7] - (ids[7] >> 63 << 64),
        ids[49],
        ids[49],
        stranger,
    ]
    found = rows_of(frame, forms, "n", "s")
    assert {(row["n"], row["unit"] % 2**64) for row in found.rows.collect()} == set(ids.items())
    assert found.unknown == {stranger}
    found.rows.unpersist()
    carried = rows_of(with_unit(frame, "n", "s"), [ids[7]])
    assert [row["s"] for row in carried.rows.collect()] == ["name 7"]
    nothing = rows_of(frame, [], "n", "s")
    assert (nothing.rows.count(), nothing.unknown) == (0, frozenset())


@pytest.mark.parametrize(
    "wrong", [0, 2**64, -(2**63) - 1, True, 1.5, None, "ff", "0x000000000000ff", "0" * 16, b"x" * 8]
)
def test_what_is_no_id_is_named(spark, wrong):
    with pytest.raises(InvalidRequest, match=r"^id: .* expected a unit's id"):
        rows_of(spark.range(3), [1, wrong], "id")


def test_frames_without_units_are_named(spark):
    with pytest.raises(UnsuitableColumns, match=r"no column unit \(bigint\): it has id"):
        rows_of(spark.range(3), [1])
    with pytest.raises(UnsuitableColumns, match="unit columns x are not in the frame"):
        rows_of(spark.range(3), [1], "x")
