"""The demo's output, its view of the chains, and the words that it loses."""

import io
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from demo.chains import ChainMonitor, named_words, why_unacked
from demo.database import DemoFailed
from demo.display import Display, Result, print_result
from demo.loss import LostWord, lose_words
from tests.support.chains import make_chain


def result(*, words=12_345, lost=0, errors=0, **fields):
    good = Result(
        split={"files": 3, "words": 12_345},
        count={"words": words, "distinct": 678, "missing": lost},
        acked=3,
        unacked=[],
        named=[],
        usage={"messages": 2, "invocations": 4, "errors": errors, "writes": 9},
        counts=Path.cwd() / ".demo" / "counts",
        commonest=[("self", 1000), ("is", 20)],
        seconds={"set up": 1.0, "split": 2.0, "count": 3.0, "all": 6.54},
    )
    return replace(good, **fields)


def printed(result):
    out = Console(file=io.StringIO(), markup=False, highlight=False, soft_wrap=True)
    print_result(out, result)
    return out.file.getvalue().splitlines()


def test_the_table_at_the_end():
    assert result().ok
    rows = {line[:20].strip(): line[20:] for line in printed(result()) if line[18:20] == "  "}
    assert rows == {
        "files": "3",
        "words": "12,345 (678 different)",
        "chains acked": "3 of 3",
        "SQS messages": "2",
        "Lambda invocations": "4",
        "DynamoDB writes": "9",
        "seconds": "6.5 (set up 1.0, split 2.0, count 3.0)",
        "counts": ".demo/counts",
    }
    assert printed(result())[-3:] == ["commonest words", "  1,000  self", "     20  is"]
    wrong = result(words=12_342)
    assert not wrong.ok
    assert "words               12,342 (678 different): 3 too few" in printed(wrong)


def test_unacked_chains_are_listed_with_their_reasons():
    bad = [(f"db/{n}\x1b[1m", "failed", "not UTF-8\nat 3") for n in range(25)]
    failed = result(acked=0, unacked=bad, errors=2, commonest=())
    assert not failed.ok
    lines = printed(failed)
    assert "Lambda errors       2" in lines
    at = lines.index("not acked")
    assert lines[at + 1] == "  db/0\\x1b[1m: failed: not UTF-8\\nat 3"
    assert len(lines) == at + 1 + 20 + 1
    assert lines[-1] == "  and 5 more"


def test_the_table_has_the_first_lost_words():
    named = [LostWord("a\tb", position, "wo\nrd") for position in range(1234, 1264)]
    lossy = result(words=12_314, lost=31, acked=2, named=named)
    lines = printed(lossy)
    assert lossy.ok
    assert "words               12,314 (678 different): 31 lost" in lines
    at = lines.index("lost words: the failed events name 30 of 31")
    assert lines[at + 1] == f"  {named[0].id}  a\\tb, position 1,234: wo\\nrd"
    assert len(lines) == at + 1 + 20 + 1
    assert lines[-1] == "  and 10 more"


def test_plain_lines_are_few(capsys):
    display = Display(Console(soft_wrap=True))
    display.begin("split", "files to words")
    display.end("split", "done\x1b[1m")
    for acked in range(0, 100):
        display.chains(Counter(acked=acked, failed=1), 100)
    lines = capsys.readouterr().out.splitlines()
    assert all(float(line[:6]) >= 0 and line[6:10] == " s  " for line in lines)
    texts = [line[10:] for line in lines]
    assert texts[0] == "split: files to words ..."
    assert "split: done\\x1b[1m" in texts
    assert texts[2:] == [f"chains: {n} of 100 acked, 1 failed" for n in (0, 99)]


class FakeStack:
    """Gives each event once, and raises once it is broken."""

    def __init__(self, *events):
        self.all = events
        self.broken = False

    def events(self, position):
        if self.broken:
            raise ConnectionError("the stack is gone")
        return self.all[position:], len(self.all)


EVENTS = {"a": "acked", "b": "failed"}


def event(tag, status):
    return {"detail": {"tag": tag, "status": status}}


@pytest.mark.thorough
def test_the_monitor_counts_ended_chains_once():
    ended = [make_chain(tag, status=status, created_at=1) for tag, status in EVENTS.items()]
    chains = [*ended, make_chain("c", status="open", created_at=1, started=9, finished=7)]
    table = SimpleNamespace(scan=lambda: iter(chains))
    stack = FakeStack(*(event(*one) for one in EVENTS.items()), event("a", "acked"))
    shown = []
    with ChainMonitor(stack, table, 3, lambda *numbers: shown.append(numbers)) as monitor:
        assert monitor.wait(60, outstanding=2)
        assert monitor.incomplete() == ["c"]
        assert shown[-1] == (monitor.ended, 3) == (Counter(acked=1, failed=1), 3)
        assert monitor.events["b"] == event("b", "failed")
        assert not monitor.wait(0.01, outstanding=1)
        for chain in (make_chain("a", status="acked", event_pending=True), make_chain("d")):
            chains[2:] = [chain]
            assert not monitor.wait(0.01, outstanding=2)
        stack.broken = True
        with pytest.raises(ConnectionError, match="the stack is gone"):
            monitor.wait(60)


@pytest.mark.parametrize(
    ("chain", "has_event", "reason"),
    [
        (make_chain("t", status="acked"), True, None),
        (make_chain("t", status="acked"), False, "acked, but its event did not come"),
        (make_chain("t", status="failed", reason="bad"), True, "bad"),
        (make_chain("t", b"", "open", 1200, 1), False, "1,199 of 1,200 units outstanding"),
    ],
)
def test_why_a_chain_is_not_acked(chain, has_event, reason):
    assert why_unacked(chain, has_event) == reason


def test_the_events_name_just_the_lost_words():
    lost = [LostWord("b", 2, "two"), LostWord("a", 1, "one"), LostWord("a", 7, "seven")]
    events = [{"detail": {"outstanding": [word.id]}} for word in lost[:2]] + [event("c", "failed")]
    assert named_words(events, lost) == [lost[1], lost[0]]
    with pytest.raises(DemoFailed, match="events name 1 unit that were not lost"):
        named_words(events, lost[1:])


WORDS = [
    *({"file": "a", "position": at, "word": f"a{at}"} for at in range(6)),
    {"file": "bad", "position": 0, "word": "lost already"},
    {"file": "bad", "position": -1, "word": None},
    {"file": "c", "position": 0, "word": "c0"},
    *({"file": "d", "position": at, "word": f"d{at}"} for at in range(3)),
]
GOOD = sorted((row["file"], row["position"], row["word"]) for row in WORDS if row["file"] != "bad")


@pytest.fixture
def written(tmp_path):
    """A folder as split leaves it; the words of a file are in several parts."""
    folder = tmp_path / "run=1"
    schema = pa.schema({"file": pa.string(), "position": pa.int64(), "word": pa.string()})
    for part, rows in enumerate((WORDS[:4], WORDS[4:], [])):
        (folder / "words").mkdir(parents=True, exist_ok=True)
        path = folder / "words" / f"part-0000{part}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, schema), path)
    files = [{"file": name, "error": "?" if name == "bad" else None} for name in (*"acd", "bad")]
    (folder / "files").mkdir()
    pq.write_table(pa.Table.from_pylist(files), folder / "files" / "part-00000.parquet")
    return folder


def words_left(folder):
    parts = (folder / "words").glob("part-*.parquet")
    return [row for part in sorted(parts) for row in pq.ParquetFile(part).read().to_pylist()]


@pytest.mark.parametrize(("number", "count"), [(1, 1), (3, 3), (11, 3)])
def test_lost_words_are_gone_from_the_disk(written, number, count):
    lost = lose_words(written, number)
    left = [row for row in WORDS if (row["file"], row["position"], row["word"]) not in lost]
    assert words_left(written) == left
    assert set(lost) <= set(GOOD)
    assert len({word.file for word in lost}) == count
