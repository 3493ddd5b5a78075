"""The command line, over moto in process: its output and its exit status."""

import io
import json
import re
import sys

import pytest

from tests.support.cli import (
    TAG,
    apply,
    assert_error,
    commands_of,
    finish,
    named_lines,
    start,
    store,
)
from xorack import Token, Tracker, traced, unit_id
from xorack.aws.clock import milliseconds
from xorack.cli import main
from xorack.cli.commands import cli
from xorack.core.request import Request
from xorack.ops.status import read_status

ANSI = re.compile(r"\x1b\[[0-9;]*m")


def fields(result):
    """Return what `show` prints, by name; further lines of a value are joined by blanks."""
    status, out, err = result
    assert (status, err) == (0, [])
    return {name: " ".join(filter(None, lines)) for name, lines in named_lines(out).items()}


def test_show_names_the_outstanding_units(stack, xorack):
    outstanding = start(stack, timeout=3600, detail={"path": "/books"})
    apply(stack, Request("note", TAG, "n", text="All 2 missing rows have line = 7"))
    shown = fields(xorack("show", TAG))
    assert shown["note"] == "All 2 missing rows have line = 7"
    assert " ago, 20" in shown["last stamp"]
    assert (shown["tag"], shown["status"]) == (TAG, "open")
    assert shown["progress"] == "66.6 %, 4 of 6 units"
    assert sorted(shown["outstanding"].split()) == sorted(outstanding)
    assert re.fullmatch(r"in 59 min \d+ s, 20\d\d-.*Z", shown["deadline"])
    assert "event" not in shown
    (shown,) = map(json.loads, xorack("show", TAG, "--json")[1])
    assert shown.pop("outstanding_names") == dict.fromkeys(shown["outstanding"])
    assert shown.pop("dead_letters") == []
    assert shown.keys() == read_status(store(stack), TAG).to_dict().keys()


@pytest.fixture
def order(stack):
    """A chain whose outstanding units have a name, a number, two parts and a parent."""
    tracker = Tracker(stack.queue_url)
    root = Token(unit_id("order/18"), ("order/18",))
    step = tracker.step(root)
    children = step.child("oil"), step.child(7), step.child("line", 3), step.child("page 2")
    below = tracker.step(children[3])
    below.child("line 1")
    create = Request.create("order/18", "create", traced(root.unit))
    apply(stack, create, *step.requests(), *below.requests())


def test_show_names_units_among_candidates(stack, xorack, order, tmp_path):
    names = tmp_path / "names.txt"
    paths = '[["line", 3]]\n["page 2", "line 1"]\n["page 3", "line 1"]\n'
    names.write_text(f"wick\noil\r\n\n7\n{paths}")
    text = "\n".join(xorack("show", "order/18", "--among", names)[1])
    for name in ("oil", "7", "line 3", "page 2 / line 1"):
        assert re.search(rf" [0-9a-f]{{16}}  {re.escape(name)}$", text, re.MULTILINE), name
    (shown,) = map(json.loads, xorack("show", "order/18", "--json", "--among", names)[1])
    assert list(shown["outstanding_names"]) == shown["outstanding"]
    assert "oil" in shown["outstanding_names"].values()
    names.write_text("wick\n")
    _, (line,), (hint,) = xorack("show", "order/18", "--json", "--among", names)
    assert set(json.loads(line)["outstanding_names"].values()) == {None}
    assert hint == "outstanding units without a name: no --among candidate matches"


@pytest.mark.parametrize("line", ["[", "[]", "[1.5]", '["a", null]', "[true]"])
def test_an_invalid_path_is_refused(stack, xorack, order, tmp_path, line):
    names = tmp_path / "names.txt"
    names.write_text(f"oil\n{line}\n")
    expected = f"line 2: {line!r}, expected a name, or a JSON list of names\n"
    assert_error(xorack("show", "order/18", "--among", names), 2, expected)


def test_show_of_a_chain_of_the_npm_package(stack, xorack):
    stack.client("dynamodb").put_item(
        TableName=stack.table_name, Item={"tag": {"S": "theirs"}, "stamp": {"B": b"\x29" * 64}}
    )
    shown = fields(xorack("show", "theirs"))
    assert (shown["status"], shown["deadline"]) == ("open", "none")
    assert shown["progress"] == "its senders report no counts"
    assert shown["outstanding"] == "an unknown number of units, this stamp names none"
    assert "age" not in shown


def test_a_tag_does_not_steer_the_terminal(stack, xorack):
    evil = "evil\x1b[2J\n[red]tag"
    start(stack, evil)
    apply(stack, Request("fail", evil, "f", reason="so\x07 it\nis"))
    for arguments in (("show", evil), ("list",)):
        text = "\n".join(xorack(*arguments)[1])
        assert "evil\\x1b[2J\\n[red]tag" in text
        assert "so\\x07 it\\nis" in text
    assert json.loads(xorack("show", evil, "--json")[1][0])["tag"] == evil


def test_list_filters(stack, xorack):
    assert xorack("list") == (0, ["no chains"], [])
    assert xorack("list", "--run", "x")[1] == ["no chains that meet all conditions"]
    assert xorack("list", "--json") == (0, [], [])
    start(stack, "a", timeout=0.001)
    start(stack, "b")
    finish(stack, "b")
    apply(stack, Request("stamp", "c", "s", traced(1), 1))
    apply(stack, Request("create", "d", "c", traced(1), 1), Request("fail", "d", "f", reason="bad"))
    expected = {"a": "open", "b": "acked", "c": "pending", "d": "failed"}

    status, out, err = xorack("list", "--json")
    assert (status, err) == (0, [])
    assert {one["tag"]: one["status"] for one in map(json.loads, out)} == expected

    _, out, _ = xorack("list", "--json", "--status", "open", "--status", "failed")
    assert {json.loads(line)["tag"] for line in out} == {"a", "d"}
    more = "the first 3; there are more: --limit 0 lists all"
    for limit, count, err in (("3", 3, [more]), ("4", 4, []), ("0", 4, [])):
        status, out, said = xorack("list", "--json", "--limit", limit)
        assert (status, len(out), said) == (0, count, err)

    head, *rows = xorack("list")[1]
    assert head.split() == ["TAG", "STATUS", "DONE", "UNITS", "AGE", "TIME", "LEFT", "REASON"]
    assert {row.split()[0]: row.split()[1] for row in rows} == expected
    first, *_, last = sorted(rows)
    assert (" passed" in first, last.endswith("bad")) == (True, True)


def test_fail_ends_a_chain_and_publishes_its_event(stack, xorack):
    start(stack)
    ended = (0, [f"{TAG}: failed; event published"], [])
    assert xorack("fail", TAG, "--reason", "withdrawn") == ended
    (event,) = stack.events()
    assert event["detail-type"] == "failed"
    assert event["detail"]["reason"] == "withdrawn"
    assert len(event["detail"]["outstanding"]) == 2
    assert fields(xorack("show", TAG))["event"] == "published"

    unchanged = (1, [], [f"error: {TAG} is failed already: nothing changed"])
    assert xorack("fail", TAG, "--reason", "again") == unchanged
    assert stack.events() == []

    start(stack, "other")
    result = json.loads(xorack("fail", "other", "--reason", "withdrawn", "--json")[1][0])
    assert (result["event_pending"], result["changed"]) == (False, True)


def test_fail_of_a_chain_that_is_not_created_yet(stack, xorack):
    apply(stack, Request("stamp", "early", "s", traced(1), 1))
    status, out, _ = xorack("fail", "early", "--reason", "no")
    assert (status, out) == (0, ["early: pending; it fails as soon as it is created"])
    apply(stack, Request("create", "early", "c", traced(2), 1))
    assert store(stack).read(["early"])["early"].status == "failed"


def test_fail_with_the_table_alone_leaves_the_event_to_the_sweeper(stack, xorack):
    start(stack)
    status, out, _ = xorack("fail", TAG, "--reason", "x", "--table", stack.table_name, "--json")
    result = json.loads(out[0])
    assert (status, result["status"]) == (0, "failed")
    assert (result["event_pending"], result["changed"]) == (True, True)
    assert stack.events() == []
    shown = fields(xorack("show", TAG))
    assert (shown["event"], "took" in shown) == ("pending", True)
    assert store(stack).read([TAG])[TAG].due_at <= milliseconds() + 120_000


def test_help_has_an_example_for_every_command(xorack, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    status, out, _ = xorack("--help")
    commands = "\n".join(out).partition("Commands:")[2]
    assert (status, "Example" in commands, "..." in commands) == (0, True, False)
    names = re.findall(r"^  ([\w-]+)  ", commands, re.MULTILINE)
    assert names == sorted(name for (name,), _ in commands_of(cli, deep=False))
    assert xorack() == (2, [], out)
    for path, command in commands_of(cli):
        status, out, _ = xorack(*path, "--help")
        group = hasattr(command, "commands")
        example = "Commands:" if group else f"Example: xorack {path[-1]}"
        if group:
            assert xorack(*path) in ((2, [], out), (2, out, []))
        shown = re.sub("xorack (dead-letters|local) ", "xorack ", "\n".join(out))
        assert (status, example in shown, "..." in shown.partition("Commands:")[2]) == (
            0,
            True,
            False,
        )


def test_a_pipe_gets_whole_lines_without_colour(stack, xorack):
    long = "long" * 200
    start(stack, long)
    start(stack, "short")
    listed = xorack("list")[1]
    for lines in (listed, xorack("show", long)[1]):
        assert long in "\n".join(lines)
        assert "\x1b" not in "\n".join(lines)
    # One long tag leaves the other lines readable.
    lines = {line.split()[0]: line for line in listed}
    assert len(lines["short"]) < 140
    assert lines["short"].index("open") == lines["TAG"].index("STATUS")


@pytest.fixture
def terminal(monkeypatch):
    """A function that sets the columns of a terminal."""
    given = {"TTY_COMPATIBLE": "1", "NO_COLOR": "1", "TERM": "xterm-256color"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    return lambda columns: monkeypatch.setenv("COLUMNS", str(columns))


@pytest.mark.parametrize("columns", [30, 80])
def test_no_terminal_is_too_narrow_for_a_table(stack, xorack, terminal, columns):
    reason = "the source was withdrawn by its owner; " * 6
    start(stack, "books/failed", timeout=86_400)
    apply(stack, Request("fail", "books/failed", "f", reason=reason))
    apply(stack, Request("create", "books/large", "c", traced(1), 12_345, timeout=599))
    terminal(columns)
    out = ANSI.sub("", "\n".join(xorack("list")[1]))
    for whole in ("books/failed", "books/large", "0/12,345", "66.6 %"):
        assert whole in out
    assert re.search(r"\b\d min \d+ s\b", out)  # of the deadline: an hour would be cut as "1 h"
    assert re.sub(r"\s", "", out).count("withdrawn") == 6


@pytest.mark.parametrize(
    ("terminal", "shown"),
    [(True, "ü\\u202ee\\u009b2J".encode()), (False, "ü\u202ee\x9b2J".encode())],
)
def test_json_for_a_terminal_does_not_steer_it(stack, monkeypatch, terminal, shown):
    """Some characters turn the direction of text, or are commands of a terminal."""
    start(stack, "ü\u202ee\x9b2J")
    printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr(printed, "isatty", lambda: terminal)
    monkeypatch.setattr(sys, "stdout", printed)
    assert main(["list", "--json"]) == 0
    assert shown in printed.buffer.getvalue()
