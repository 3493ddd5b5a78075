"""The demo's output, its view of the chains, and the repair of lost words."""

import io
import json
from contextlib import suppress
from pathlib import Path

import pytest
from rich.console import Console

from demo.chains import ChainMonitor, Progress, check_repair, incomplete_chains, why_unacked
from demo.display import Display, Result, open_display, print_result
from demo.errors import DemoFailed
from xorack.cli.commands import run as run_command
from xorack.core.chain import Chain
from xorack.local.deploy import Usage

ID, OTHER = "00000000000000aa", "00000000000000bb"


def lost_word(unit, position=1234, word="w"):
    return {"tag": "db/a~2", "id": unit, "path": "/db/a", "position": position, "word": word}


def summary(*words, missing, repaired=1):
    chains = [{"tag": f"db/{n}~2", "repairs": f"db/{n}"} for n in range(repaired)]
    return {"missing": missing, "named": words, "repaired": chains}


def result(*, words=12_345, repair=None, errors=0, **fields):
    return Result(
        **{
            "split": {"files": 3, "words": 12_345},
            "count": {"words": words, "distinct": 678, **(repair or {})},
            "acked": 3,
            "unacked": [],
            "usage": Usage(messages=2, invocations=4, errors=errors, writes=9),
            "counts": Path.cwd() / ".demo" / "counts",
            "commonest": [("self", 1000), ("is", 20)],
            "seconds": {"set up": 1.0, "split": 2.0, "count": 3.0, "all": 6.54},
            **fields,
        }
    )


def printed(result):
    out = Console(file=io.StringIO(), markup=False, highlight=False, soft_wrap=True)
    print_result(out, result)
    return out.file.getvalue().splitlines()


def test_the_table_at_the_end():
    assert result().ok
    assert printed(result()) == [
        "",
        "files               3",
        "words               12,345 (678 different)",
        "chains acked        3 of 3",
        "SQS messages        2",
        "Lambda invocations  4",
        "DynamoDB writes     9",
        "seconds             6.5 (set up 1.0, split 2.0, count 3.0)",
        "counts              .demo/counts",
        "",
        "commonest words",
        "  1,000  self",
        "     20  is",
    ]


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


def test_the_table_has_the_repair_and_the_first_lost_words():
    lost = [lost_word(ID, position, "wo\nrd") for position in range(1234, 1264)]
    repaired = result(repair=summary(*lost, missing=31, repaired=2))
    lines = printed(repaired)
    assert repaired.ok
    assert "chains acked        3 of 3, 2 by their repair" in lines
    at = lines.index("lost, named by the failed chains' events, counted by the repair")
    assert lines[at + 1] == f"  {ID}  /db/a, position 1,234: wo\\nrd"
    assert len(lines) == at + 1 + 20 + 1
    assert lines[-1] == "  and 11 more"


def test_uncounted_words_are_a_failure():
    wrong = result(words=12_342)
    assert not wrong.ok
    assert "words               12,342 (678 different): 3 too few" in printed(wrong)


def test_plain_lines_are_few(capsys):
    display = Display()
    display.begin("split", "files to words")
    for opened in range(0, 101):
        display.chains(Progress(opened), 100)
    display.end("split", "done")
    for acked in range(0, 100):
        display.chains(Progress(100, acked, 1), 100)
    display.chains(Progress(100, 99, 1), 100)
    lines = capsys.readouterr().out.splitlines()
    assert all(float(line[:6]) >= 0 and line[6:10] == " s  " for line in lines)
    texts = [line[10:] for line in lines]
    assert texts[0] == "split: files to words ..."
    assert "split: done" in texts
    assert texts[-1] == "chains: 100 of 100 opened, 99 acked, 1 failed"
    assert "chains: 100 of 100 opened, 0 acked" in texts
    assert len(texts) < 8


@pytest.mark.parametrize(
    ("error", "last"), [(None, "split     files to [words] … 0 s"), (DemoFailed("x"), "✗ split")]
)
def test_a_terminal_shows_steps_and_bars_and_where_it_stopped(monkeypatch, error, last):
    monkeypatch.setenv("TERM", "xterm")
    terminal = Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None)
    with suppress(DemoFailed), open_display(terminal) as display:
        display.begin("Java", "looking")
        display.end("Java", "/usr/lib/[java]")
        display.begin("split", "files to [words]")
        display.chains(Progress(7, 3, 1), 10)
        if error:
            raise error
    output = terminal.file.getvalue()
    for shown in ("✓ Java      /usr/lib/[java]", "7 of 10", "3 of 10 1 failed", last):
        assert shown in output


class FakeTable:
    def __init__(self, *chains):
        self.chains = chains

    def scan(self):
        return iter(self.chains)


class FakeQueue:
    """Delivers each event once, and raises once it is broken."""

    def __init__(self, *events):
        self.messages = [{"Body": json.dumps(event), "ReceiptHandle": "h"} for event in events]
        self.broken = False

    def receive_message(self, **_):
        if self.broken:
            raise ConnectionError("the queue is gone")
        messages, self.messages = self.messages, []
        return {"Messages": messages}

    def delete_message_batch(self, **_):
        pass


def event(tag, status):
    return {"detail": {"tag": tag, "status": status}}


def test_the_monitor_counts_opened_and_ended_chains_once():
    table = FakeTable(*(Chain(tag, status="open", created_at=1) for tag in "abc"))
    queue = FakeQueue(event("a", "acked"), event("b", "failed"), event("a", "acked"))
    shown = []
    with ChainMonitor(table, "url", queue, 3, lambda *numbers: shown.append(numbers)) as monitor:
        assert monitor.wait(10, ended=2)
        assert monitor.progress == Progress(3, 1, 1)
        assert shown[-1] == (monitor.progress, 3)
        assert monitor.events["b"] == event("b", "failed")
        assert not monitor.wait(0.01)
        table.chains = [Chain("a", status="acked", event_pending=True)]
        assert not monitor.wait(0.01, ended=2)  # an event is pending
        queue.broken = True
        with pytest.raises(ConnectionError, match="the queue is gone"):
            monitor.wait(10)


@pytest.mark.parametrize(
    ("chain", "has_event", "reason"),
    [
        (Chain("t", status="acked"), True, None),
        (Chain("t", status="acked"), False, "acked, but its event did not come"),
        (Chain("t", status="failed", reason="bad"), True, "bad"),
        (Chain("t", b"", "open", 1200, 1), False, "1,199 of 1,200 units are outstanding"),
    ],
)
def test_why_a_chain_is_not_acked(chain, has_event, reason):
    assert why_unacked(chain, has_event) == reason


def test_the_repair_finds_the_units_that_the_events_name():
    events = [{"detail": {"outstanding": [unit]}} for unit in (ID, OTHER)] + [{"detail": {}}]
    check_repair(summary(lost_word(ID), lost_word(OTHER), missing=2), events)
    with pytest.raises(DemoFailed, match=OTHER):
        check_repair(summary(lost_word(ID), missing=1), events)
    # The summary lists only the first of very many words.
    check_repair(summary(lost_word(ID), missing=5000), events)


def test_chains_with_fewer_counted_words_are_incomplete(tmp_path):
    files = {"db/a": {"words": 3}, "db/b": {"words": 2}, "db/c": {"words": 1}, "db/d": {"words": 0}}
    files["db/bad"] = {"words": 0, "error": "cannot be read"}
    (tmp_path / "w" / "files").mkdir(parents=True)
    (tmp_path / "c" / "_tracking").mkdir(parents=True)
    lines = [json.dumps({"tag": tag, **row}) for tag, row in files.items()]
    (tmp_path / "w" / "files" / "part-0.json").write_text("\n".join(lines))
    for part, (tag, finished) in enumerate((("db/a", 3), ("db/b", 1))):  # of several Spark tasks
        line = json.dumps({"tag": tag, "finished": finished}) + "\n"
        (tmp_path / "c" / "_tracking" / f"part-{part}.json").write_text(line)
    assert incomplete_chains(tmp_path / "w", tmp_path / "c") == ["db/b", "db/c"]


@pytest.mark.parametrize("lose", ["", "-1", "some", "1.5", "99999999"])
def test_an_invalid_number_of_words_is_rejected(lose, capsys):
    assert run_command(["demo", "--lose", lose]) == 2
    assert "--lose" in capsys.readouterr().err
