"""From failed chains back to rows: the repair counts lost words once, and no others."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from pipeline import repair
from pipeline.scan import file_id
from tests.spark.helpers import (
    Acker,
    count_words,
    counts_in,
    delete_rows,
    last_summary,
    prose,
    run_count,
    run_main,
    run_split,
    write_files,
)
from tests.support.queue_server import QueueServer, requests_in
from xorack import unit_id
from xorack.core.message import pack
from xorack.core.transitions import expire, mark_delivered

pytestmark = pytest.mark.slow

_RNG = random.Random(4)
LONG = "/".join(["long" * 50] * 6) + ".txt"
TEXTS = {
    "a.txt": "one two three, Two three THREE",
    "deep/b [x].txt": prose(_RNG, 300),
    "c.txt": prose(_RNG, 300),
    LONG: "its tag is cut one",
    "none.txt": " -- ",
}
EXPECTED = count_words(TEXTS.values())
FEW, MANY = "one", "strasse"
LATER = 10**13
"""A time in milliseconds, after every deadline."""


@dataclass
class Runs:
    """Folders and messages of split and count; some words were lost between them."""

    folder: Path
    split_sent: list[str]
    count_sent: list[str]
    lost: set[tuple[str, int, str]]

    def acker(self, *, lose=()):
        """Return an acker after all deadlines; it never got the stamps by count for `lose`."""
        acker = Acker(self.split_sent)
        acker.apply(list(pack([r for r in requests_in(self.count_sent) if r.tag not in lose])))
        for tag, chain in acker.chains.items():
            if chain.status == "open":
                failed = expire(replace(chain, deadline=1), LATER)
                acker.bus.publish([failed])
                acker.chains[tag] = mark_delivered(failed, ["event"], now=failed.ended_at)
        return acker


def failed_events(acker, reason="timed out"):
    return [event for event in acker.bus.events if event.get("reason", "").endswith(reason)]


@pytest.fixture(scope="module")
def runs(spark, tmp_path_factory):
    root = tmp_path_factory.mktemp("repair")
    write_files(root / "db", {**TEXTS, "bad.txt": b"caf\xe9"})
    with QueueServer() as server:
        assert run_split(server, root / "db", root / "w") == 0
        split_sent, server.bodies = server.bodies, []
        gone = delete_rows(root / "w" / "words", lambda row: row["word"] in (FEW, MANY))
        lost = {(row["file"], row["position"], row["word"]) for row in gone}
        assert run_count(server, root / "w", root / "c", "--allow-missing") == 0
        return Runs(root, split_sent, server.bodies, lost)


def run_repair(queue, runs, out, *more, run="f1"):
    """Run the job; its records are beside its output."""
    place = runs.folder
    folders = ("--database", place / "db", "--words", place / "w", "--counts", place / "c")
    return run_main(repair, queue, run, out.parent / "rec", *folders, "--repaired", out, *more)


def write_events(folder, *events):
    """Write a file of events, as EventBridge delivers them; return the option that names it."""
    file = folder / f"{len(list(folder.iterdir()))}.jsonl"
    lines = [{"source": "xorack", "detail-type": "failed", "detail": event} for event in events]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return ("--events", file)


def test_lost_words_are_named_counted_and_acked(spark, runs, queue, tmp_path, capfd):
    acker = runs.acker()
    events = failed_events(acker)
    notes = [event["note"]["missing_count"] for event in events if event["note"]]
    assert sum(notes) == len(runs.lost)
    assert acker.statuses() == {"acked": 1, "failed": 5}
    assert run_repair(queue, runs, tmp_path / "n", *write_events(tmp_path, *events)) == 0
    summary = last_summary(capfd)
    assert counts_in(spark, tmp_path / "n" / "counts") == EXPECTED
    assert (summary["words"], summary["distinct"]) == (EXPECTED.total(), len(EXPECTED))
    assert (summary["missing"], summary["unknown"]) == (len(runs.lost), [])
    assert summary["repaired"] == sorted(event["tag"] for event in events)
    # The words of the events, with file, position and text.
    named = {(one["file"], one["position"], one["word"]) for one in summary["named"]}
    assert named == runs.lost
    ids = {one["id"] for one in summary["named"]}
    assert ids == {f"{unit_id('r1/words', file_id(file), at):016x}" for file, at, _ in runs.lost}
    assert ids >= {id for event in events for id in event["outstanding"]}

    acker.apply(queue.bodies)
    for event in events:
        file = event["detail"]["path"].partition("/db/")[2]
        repaired = next(e for e in acker.bus.events if e["detail"].get("repairs") == event["tag"])
        assert repaired["status"] == "acked"
        assert repaired["started"] == sum(one[0] == file for one in runs.lost)
    assert acker.chains["f1/file/c.txt"].status == "acked"


def test_lost_stamps_are_not_lost_words_and_repairs_can_be_repaired(
    spark, runs, queue, tmp_path, capfd
):
    # The counts of c.txt exist, but the stamps of count for it never arrived.
    acker = runs.acker(lose={"r1/file/c.txt"})
    event, *rest = sorted(failed_events(acker), key=lambda event: "c.txt" not in event["tag"])
    event["outstanding"].append("00000000000000ff")
    assert run_repair(queue, runs, tmp_path / "n", *write_events(tmp_path, event)) == 0
    summary = last_summary(capfd)
    assert {one["file"] for one in summary["named"]} == {"c.txt"}
    assert "00000000000000ff" in summary["unknown"]
    acker.apply(queue.bodies)
    assert acker.chains["f1/file/c.txt"].status == "acked"
    # The second repair knows what the first one counted.
    tags = [f"--tag={one['tag']}" for one in rest if "long" not in one["tag"]]
    more = ("--words", tmp_path / "n", "--counts", tmp_path / "n" / "counts", *tags)
    more += ("--tag", "r1/file/none.txt", "--tag", "f1/file/c.txt")
    assert run_repair(queue, runs, tmp_path / "n2", *more, run="f2") == 0
    summary = last_summary(capfd)
    assert {one["file"] for one in summary["named"]} == {"a.txt", "deep/b [x].txt"}
    acker.apply(queue.bodies)
    assert {acker.chains[f"f2/file/{name}"].status for name in TEXTS if name != LONG} == {"acked"}
    counts = counts_in(spark, tmp_path / "n2" / "counts")
    assert counts == EXPECTED - count_words(["one"])


def test_a_file_that_was_mended_is_counted_and_a_changed_one_is_not(
    spark, runs, queue, tmp_path, capfd
):
    acker = runs.acker()
    (bad,) = failed_events(acker, "from byte 3 on")
    database = shutil.copytree(runs.folder / "db", tmp_path / "db")
    again = write_events(tmp_path, bad)
    assert run_repair(queue, runs, tmp_path / "n1", *again, run="f1") == 0
    write_files(database, {"bad.txt": "café", "a.txt": "one"})
    (database / "c.txt").unlink()
    more = ("--database", database, "--tag", "r1/file/a.txt", "--tag", "r1/file/c.txt", *again)
    assert run_repair(queue, runs, tmp_path / "n2", *more, run="f2") == 0
    acker.apply(queue.bodies)
    reasons = {
        event["tag"]: event.get("reason", "").replace(f"{database}/", "")
        for event in acker.bus.events
        if event["tag"][0] == "f"
    }
    assert "from byte 3 on" in reasons.pop("f1/file/bad.txt")
    assert reasons == {
        "f2/file/a.txt": f"a.txt changed: from {len(TEXTS['a.txt'])} to 3 bytes",
        "f2/file/bad.txt": "",
        "f2/file/c.txt": f"{runs.folder}/db/c.txt is not in the database",
    }
    before = counts_in(spark, runs.folder / "c")
    assert counts_in(spark, tmp_path / "n2" / "counts") == before + count_words(["café"])


FAILED = {"tag": "r1/file/a.txt", "status": "failed"}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ([], "repair: which chains? give --tag or --events"),
        (["--events", "/no/such"], "--events /no/such: No such file or directory"),
        (["--tag", "r1/file/b"], "'r1/file/b' is not a chain of --words"),
        (["--tag", "r1/file/a.txt", "--counts", "{folder}/w/words"], "are not those of"),
        (["--tag", "r1/file/a.txt", "--counts", "{old}"], "are not those of --words {folder}/w"),
        (["--tag", "r1/file/a.txt", "--words", "{folder}/c"], "is not what split writes"),
        (["--tag", "r1/file/a.txt", "--repaired", "{folder}/c"], "c exists already"),
        (["--events", "{list}"], "event 2 is not an event of xorack"),
        (["--events", "{id}"], "event 1 is not an event of xorack"),
        (["--events", "{acked}"], "'r1/file/a.txt' has not failed"),
    ],
)
def test_an_invalid_argument_is_one_line_on_stderr(runs, queue, tmp_path, capfd, more, message):
    files = {
        "list": json.dumps(FAILED) + "\n\n[1]",
        "acked": json.dumps({**FAILED, "status": "acked"}),
        "id": json.dumps({**FAILED, "outstanding": ["xyz"]}),
    }
    names = {name: write_files(tmp_path, files) / name for name in files}
    old = shutil.copytree(runs.folder / "c", tmp_path / "old")
    next(old.glob("*.parquet")).unlink()
    names |= {"folder": runs.folder, "old": old}
    capfd.readouterr()
    assert run_repair(queue, runs, tmp_path / "n", *(text.format(**names) for text in more)) == 1
    printed, errors = capfd.readouterr()
    assert message.format(**names) in errors
    assert (printed, errors.count("\n")) == ("", 1)
    assert not (tmp_path / "n").exists()
    assert queue.bodies == []
