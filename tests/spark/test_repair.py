"""From failed chains back to rows: the repair counts lost words once, and no others."""

from __future__ import annotations

import json
import random
import re
import shutil
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from pipeline import count, repair
from pipeline.layout import TRACKING_SCHEMA, Folder, words_in
from pipeline.words import words
from tests.spark.helpers import (
    Acker,
    count_words,
    counts_in,
    file_numbers,
    last_summary,
    prose,
    run_count,
    run_main,
    run_split,
    write_files,
)
from tests.support.queue_server import QueueServer, requests_in
from xorack import traced, unit_id, xor
from xorack.core.errors import InvalidRequest
from xorack.core.message import pack
from xorack.core.transitions import expire, mark_published
from xorack.spark import UnsuitableColumns, rows_of, with_unit

_RNG = random.Random(4)
TEXTS = {
    "a.txt": "one two three, Two three THREE",
    "a.txt~2": "called as a second attempt would be",
    "deep/b [x].txt": prose(_RNG, 300),
    "c.txt": prose(_RNG, 300),
    "none.txt": " -- ",
}
EXPECTED = count_words(TEXTS.values())
LOST = 6
TAG = ("--tag", "db/c.txt")
EVENT = {"tag": "db/c.txt", "status": "failed", "detail": {"run": "of yesterday"}}
LATER = 10**13
"""A time in milliseconds, after every deadline."""


@dataclass
class Runs:
    """Output folders and messages of split and count; count lost some words."""

    words: Path
    counts: Path
    split_sent: list[str]
    count_sent: list[str]

    def acker(self, *, lose=()):
        """Return an acker after all deadlines; it never got the stamps by count for `lose`."""
        acker = Acker(self.split_sent)
        acker.apply(list(pack([r for r in requests_in(self.count_sent) if r.tag not in lose])))
        return time_out(acker)


def time_out(acker):
    for tag, chain in acker.chains.items():
        if chain.status == "open":
            failed = expire(replace(chain, deadline=1), LATER)
            acker.bus.publish([failed])
            acker.chains[tag] = mark_published(failed)
    return acker


def failed_events(acker):
    return [event for event in acker.bus.events if event["status"] == "failed"]


def timed_out_events(acker):
    return [event for event in failed_events(acker) if event["reason"] == "timed out"]


@pytest.fixture(scope="module")
def runs(spark, tmp_path_factory):
    root = tmp_path_factory.mktemp("repair")
    write_files(root / "db", {**TEXTS, "bad.txt": b"caf\xe9"})
    with QueueServer() as server:
        assert run_split(server, root / "db", root / "w") == 0
        split_sent, server.bodies = server.bodies, []
        assert run_count(server, root / "w", root / "c", "--lose", str(LOST)) == 0
        return Runs(root / "w", root / "c", split_sent, server.bodies)


def run_repair(queue, runs, out, *more, run="f1", counts=None):
    folders = ("--words", runs.words, "--counts", counts or runs.counts, "--repaired", out)
    return run_main(repair, queue, run, *folders, *more)


def write_events(folder, *events):
    """Write a file of events; return the option that names it."""
    file = folder / f"{len(list(folder.iterdir()))}.jsonl"
    file.write_text("".join(json.dumps(event) + "\n" for event in events))
    return ("--events", str(file))


def test_lost_words_are_named_counted_and_acked(spark, runs, queue, tmp_path, capfd):
    acker = runs.acker()
    events = timed_out_events(acker)
    named = {(event["tag"], id) for event in events for id in event["outstanding"]}
    assert len(named) == LOST
    assert len(events) > 1
    assert all(event["outstanding_complete"] for event in events)
    assert acker.statuses() == {"acked": len(TEXTS) - len(events), "failed": 1 + len(events)}
    assert counts_in(spark, runs.counts).total() == EXPECTED.total() - LOST

    assert run_repair(queue, runs, tmp_path / "n", *write_events(tmp_path, *events)) == 0
    summary = last_summary(capfd)
    assert counts_in(spark, tmp_path / "n") == EXPECTED
    assert (summary["words"], summary["distinct"]) == (EXPECTED.total(), len(EXPECTED))
    assert (summary["missing"], summary["chains"]) == (LOST, len(events))
    assert summary["skipped"] == summary["never_started"] == []
    # The words of the events, with file, position and text.
    attempts = {one["tag"]: one["repairs"] for one in summary["repaired"]}
    assert {(attempts[one["tag"]], one["id"]) for one in summary["named"]} == named
    numbers = file_numbers(spark, runs.words)
    for one in summary["named"]:
        name = attempts[one["tag"]].removeprefix("db/")
        assert one["path"].endswith(f"/db/{name}")
        assert words(TEXTS[name])[one["position"]] == one["word"]
        assert one["id"] == f"{unit_id((numbers[f'db/{name}'] << 40) + one['position']):016x}"

    first = dict(acker.chains)
    acker.apply(queue.bodies)
    for event in events:
        tag = event["tag"] + "~2"
        chain = acker.chains[tag]
        assert (chain.status, chain.started) == ("acked", len(event["outstanding"]))
        detail = next(e for e in acker.bus.events if e["tag"] == tag)["detail"]
        assert (detail["repairs"], detail["attempt"], detail["run"]) == (event["tag"], 2, "f1")
        assert detail["missing"] == len(event["outstanding"])
    # A second repair sends the same requests. It needs only the output of the first.
    once, queue.bodies = queue.bodies, []
    shutil.move(runs.counts, tmp_path / "gone")
    try:
        twice = write_events(tmp_path, *events, *events)
        assert run_repair(queue, runs, tmp_path / "n", *twice) == 0
    finally:
        shutil.move(tmp_path / "gone", runs.counts)
    assert {**last_summary(capfd), "seconds": 0} == {**summary, "seconds": 0}
    assert requests_in(queue.bodies) == requests_in(once)
    assert counts_in(spark, tmp_path / "n") == EXPECTED
    # Late stamps of a complete count change nothing.
    queue.bodies.clear()
    assert run_count(queue, runs.words, tmp_path / "c2", run="late") == 0
    before = dict(acker.chains)
    acker.apply(queue.bodies + once + runs.count_sent)
    assert acker.chains == before
    assert first.items() <= before.items()


def test_lost_stamps_are_not_lost_words(spark, runs, queue, tmp_path, capfd):
    # The counts of c.txt exist, but the stamps of count for it never arrived.
    acker = runs.acker(lose={"db/c.txt"})
    events = timed_out_events(acker)
    assert run_repair(queue, runs, tmp_path / "n", *write_events(tmp_path, *events)) == 0
    assert counts_in(spark, tmp_path / "n") == EXPECTED
    acker.apply(queue.bodies)
    assert {acker.chains[event["tag"] + "~2"].status for event in events} == {"acked"}
    # A repair of the repaired counts misses nothing: each new chain is its root unit alone.
    queue.bodies.clear()
    capfd.readouterr()
    more = ("--tag", "db/none.txt", "--tag", "db/c.txt~2")
    assert run_repair(queue, runs, tmp_path / "n2", *more, run="f2", counts=tmp_path / "n") == 0
    summary = last_summary(capfd)
    assert summary["missing"] == 0
    assert summary["repaired"] == [
        {"tag": "db/c.txt~3", "repairs": "db/c.txt~2"},
        {"tag": "db/none.txt~2", "repairs": "db/none.txt"},
    ]
    assert counts_in(spark, tmp_path / "n2") == EXPECTED
    acker.apply(queue.bodies)
    for tag in ("db/c.txt~3", "db/none.txt~2"):
        chain = acker.chains[tag]
        assert (chain.status, chain.started, chain.finished) == ("acked", 1, 1)
    create = next(r for r in queue.take() if r.op == "create")
    assert create.stamp == traced(unit_id(create.tag))


def test_chains_are_repaired_one_by_one_beside_a_file_named_like_an_attempt(
    spark, runs, queue, tmp_path, capfd
):
    acker = runs.acker()
    tags = [event["tag"] for event in timed_out_events(acker)]
    place, sent = runs.counts, []
    for number, tag in enumerate([*tags, "db/a.txt"]):
        out = tmp_path / f"n{number}"
        assert run_repair(queue, runs, out, "--tag", tag, run=f"f{number}", counts=place) == 0
        place = out
        sent.append(last_summary(capfd)["repaired"][0]["tag"])
    assert counts_in(spark, place) == EXPECTED
    assert sent[-1] in ("db/a.txt~3", "db/a.txt~4")  # db/a.txt~2 is the chain of another file
    acker.apply(queue.bodies)
    assert {acker.chains[tag].status for tag in sent} == {"acked"}
    other = acker.chains["db/a.txt~2"]
    assert other.created_at is not None
    assert other.started == 1 + len(words(TEXTS["a.txt~2"]))


def test_a_crashed_repair_can_be_repeated(spark, runs, queue, tmp_path, capfd, crash_and_reject):
    acker, out = runs.acker(), tmp_path / "n"
    job = partial(run_repair, queue, runs, out, *write_events(tmp_path, *failed_events(acker)))
    crash_and_reject(job, "pipeline.repair._counted", out / "_missing")
    assert job() == 0
    # Counting does not help an unreadable file.
    (skipped,) = last_summary(capfd)["skipped"]
    assert skipped["tag"] == "db/bad.txt"
    assert "utf-8" in skipped["why"]
    acker.apply(queue.bodies)
    assert counts_in(spark, out) == EXPECTED
    assert "db/bad.txt~2" not in acker.chains
    assert run_repair(queue, runs, out, *TAG) == 1
    assert "of the run 'f1' but with another tags" in capfd.readouterr().err


def test_outstanding_ids_that_no_word_has_are_listed(runs, queue, tmp_path, capfd):
    event = failed_events(runs.acker(lose={"db/c.txt"}))[-1]
    root = f"{unit_id(event['tag']):016x}"
    event = {**event, "outstanding": [*event["outstanding"], root, "00000000000000ff"]}
    assert run_repair(queue, runs, tmp_path / "n", *write_events(tmp_path, event)) == 0
    never_started = last_summary(capfd)["never_started"]
    assert never_started == [{"tag": event["tag"], "id": "00000000000000ff"}]


@pytest.mark.parametrize(
    ("lost", "others", "finished", "message"),
    [
        (
            *(200, [], 200),
            r"too many words are missing in 'db/c\.txt' \(.*"
            r"with the run id that {counts} has \('r1'\) and without --lose",
        ),
        # count finished a unit that no word has, instead of one that exists.
        (1, [255], 0, r"'db/c\.txt'.*--counts are not those of --words"),
    ],
)
def test_a_tracking_record_without_some_words_is_an_error(
    runs, spark, queue, tmp_path, capfd, lost, others, finished, message
):
    """Take units, and a number of words, out of the record of one chain."""
    first = file_numbers(spark, runs.words)["db/c.txt"] << 40
    rows = words_in(spark, Folder(spark, str(runs.words)))
    rows = rows.where(F.col("at").between(first, first + (1 << 40) - 1)).orderBy("at").limit(lost)
    units = [*(unit_id(row["at"]) for row in rows.collect()), *others]
    removed = xor(bytes(648), *map(traced, units))
    without = F.udf(lambda stamp: bytearray(xor(bytes(stamp), removed)), "binary")
    mine = F.col("tag") == "db/c.txt"
    counts = tmp_path / "others"
    shutil.copytree(runs.counts, counts)
    tracking = spark.read.schema(TRACKING_SCHEMA).json(str(runs.counts / "_tracking"))
    tracking.withColumns(
        {
            "stamp": F.when(mine, without("stamp")).otherwise(F.col("stamp")),
            "finished": F.col("finished") - F.when(mine, finished).otherwise(0),
        }
    ).write.mode("overwrite").json(str(counts / "_tracking"))
    assert run_repair(queue, runs, tmp_path / "n", *TAG, counts=counts) == 1
    error = capfd.readouterr().err.splitlines()[-1]
    assert re.search(message.format(counts=re.escape(str(counts))), error)
    assert queue.bodies == []
    assert not (tmp_path / "n").exists()


def test_after_a_complete_count_nothing_is_missing(runs, queue, tmp_path):
    """The advice of the error about too many words helps."""
    assert run_count(queue, runs.words, tmp_path / "c") == 0
    queue.bodies.clear()
    assert run_repair(queue, runs, tmp_path / "n", *TAG, counts=tmp_path / "c") == 0
    acker = runs.acker(lose={"db/c.txt"})
    acker.apply(queue.bodies)
    assert acker.chains["db/c.txt~2"].status == "acked"


def test_plain_stamps(runs, spark, queue, tmp_path, capfd):
    source, root = tmp_path / "w", runs.words.parent / "db"
    plain = ("--stamps", "plain", "--glob", "[ac].txt")
    assert run_split(queue, root, source, *plain) == 0
    acker = Acker(queue.bodies)
    runs = replace(runs, words=source)
    tags = ("--tag", "db/a.txt", "--tag", "db/c.txt")
    # At least one of the two files lost more than one word; a plain stamp names one at most.
    assert run_count(queue, source, tmp_path / "c1", "--lose", "9") == 0
    assert run_repair(queue, runs, tmp_path / "n1", *tags, counts=tmp_path / "c1") == 1
    assert "too many words are missing in 'db/" in capfd.readouterr().err.splitlines()[-1]
    # If count finished no word of a file, all its words are missing.
    assert run_count(queue, source, tmp_path / "c2", "--lose", str(10**6)) == 0
    assert counts_in(spark, tmp_path / "c2") == {}
    assert time_out(acker).statuses() == {"failed": 2}
    queue.bodies.clear()
    assert run_repair(queue, runs, tmp_path / "n2", *tags, counts=tmp_path / "c2") == 0
    both = count_words([TEXTS["a.txt"], TEXTS["c.txt"]])
    assert counts_in(spark, tmp_path / "n2") == both
    acker.apply(queue.bodies)
    chain = acker.chains["db/c.txt~2"]
    assert (chain.status, chain.started) == ("acked", len(words(TEXTS["c.txt"])))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ([], "repair: which chains? give --tag or --events"),
        (["--events", "/no/such"], "--events /no/such: No such file or directory"),
        (["--tag", "db/a.txt", "--words", "/no/such"], "--words /no/such: there is no such folder"),
        (["--tag", "a.txt", "--tag", "b~2"], "no file of --words has the tag 'a.txt', 'b~2'"),
        (["--tag", "db/bad.txt"], "of 'db/bad.txt' the files could not be read"),
        ([*TAG, "--counts", "{words}"], "is not what count writes"),
        ([*TAG, "--words", "{counts}"], "is not what split writes"),
        ([*TAG, "--repaired", "{counts}"], "exists already"),
        (["--events", __file__], "line 1 is no JSON"),
        (["--events", "{latin}"], "is not UTF-8"),
        (["--events", "{event}"], "'db/c.txt': its event is of the run 'of yesterday' of split"),
        (["--events", "{acked}"], "'db/c.txt' has not failed, its status is 'acked'"),
    ],
)
def test_an_invalid_argument_is_one_line_on_stderr(
    runs, queue, tmp_path, capfd, check_error, more, message
):
    acked = json.dumps({**EVENT, "status": "acked"})
    files = {"latin": b"caf\xe9", "event": json.dumps(EVENT), "acked": acked}
    names = {name: write_files(tmp_path, files) / name for name in files}
    given = [argument.format(words=runs.words, counts=runs.counts, **names) for argument in more]
    capfd.readouterr()
    assert run_repair(queue, runs, tmp_path / "n", *given) == 1
    check_error(message, tmp_path / "n")


def test_the_option_lose_is_deterministic(spark, runs, queue, tmp_path):
    assert run_count(queue, runs.words, tmp_path / "c", "--lose", str(LOST), run="r2") == 0
    assert counts_in(spark, tmp_path / "c") == counts_in(spark, runs.counts)
    for value in ("-1", "some"):
        with pytest.raises(SystemExit):
            count.parser().parse_args([f"--lose={value}"])


# -- rows_of ---------------------------------------------------------------------------------------


def test_rows_of_finds_rows_by_ids_in_any_form(spark):
    frame = spark.createDataFrame([(at, f"name {at}") for at in range(-50, 50)], "n int, s string")
    ids = {at: unit_id(at, f"name {at}") for at in (-50, -1, 0, 7, 49)}
    stranger = unit_id("stranger")
    forms = [
        *(ids[-50], f"{ids[-1]:016x}", f"{ids[0]:016X}", ids[7] - (ids[7] >> 63 << 64)),
        *(ids[49], ids[49], stranger),
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
def test_an_invalid_id_is_named(spark, wrong):
    with pytest.raises(InvalidRequest, match=r"^id: .* expected a unit's id"):
        rows_of(spark.range(3), [1, wrong], "id")


def test_frames_without_units_are_named(spark):
    with pytest.raises(UnsuitableColumns, match=r"no column unit \(bigint\): it has id"):
        rows_of(spark.range(3), [1])
    with pytest.raises(UnsuitableColumns, match="unit columns x are not in the frame"):
        rows_of(spark.range(3), [1], "x")
