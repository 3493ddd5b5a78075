"""`xorack watch` and the library behind it, over moto in process."""

import json
import os
import re
import sys

import pytest
from rich.console import Console

from tests.support.cli import TAG, apply, finish, start, store
from xorack import traced
from xorack.cli import watch
from xorack.core.request import Request
from xorack.ops.watch import ChainWatcher

pytestmark = pytest.mark.thorough


def test_a_pipe_gets_a_line_for_each_change(stack, xorack, sleeps):
    tag = "evil\x1b[2J\nx"
    start(stack, tag, timeout=3600)
    sleeps += [lambda: None, lambda: finish(stack, tag)]
    status, out, err = xorack("watch")
    assert (status, err) == (0, [])
    assert [re.sub(r"^\d\d:\d\d:\d\dZ  ", "", line) for line in out] == [
        r"open     66.6 %  4/6  evil\x1b[2J\nx",
        r"acked     100 %  6/6  evil\x1b[2J\nx",
    ]


def test_named_chains_are_watched_until_they_end(stack, xorack, sleeps):
    start(stack, "a")
    start(stack, "b")
    sleeps += [lambda: finish(stack, "a"), lambda: finish(stack, "b")]
    status, out, _ = xorack("watch", "a", "b", "--json")
    assert status == 0
    changes = [json.loads(line) for line in out]
    expected = [("a", "open"), ("b", "open"), ("a", "acked"), ("b", "acked")]
    assert [(one["tag"], one["status"]) for one in changes] == expected
    assert all(one["at"].endswith("Z") for one in changes)


def test_a_named_chain_is_awaited_and_a_failed_one_is_status_1(stack, xorack, sleeps):
    sleeps += [lambda: None, lambda: start(stack)]
    status, out, err = xorack("watch", TAG)  # ends by Ctrl-C
    assert (status, len(out)) == (130, 1)
    assert list(filter(None, err)) == [f"{TAG}: does not exist yet", "interrupted"]
    sleeps.append(lambda: apply(stack, Request("fail", TAG, "f", reason="bad")))
    status, out, _ = xorack("watch", TAG)
    assert (status, out[-1].endswith(f"{TAG}: bad")) == (1, True)


def tags(statuses):
    return [status.chain.tag for status in statuses]


def test_a_chain_that_ended_stays_in_the_table(stack):
    start(stack, "a", timeout=60)
    start(stack, "b", timeout=90)
    watcher = ChainWatcher(store(stack), limit=1)
    first = watcher.poll()
    assert (tags(first.snapshot.chains), first.snapshot.more) == (["a"], True)
    finish(stack, "a")
    second = watcher.poll()
    assert (tags(second.snapshot.chains), tags(second.ended)) == (["b"], ["a"])
    assert set(tags(second.changed)) == {"a", "b"}
    third = watcher.poll()
    assert (third.changed, tags(third.ended)) == ((), ["a"])
    # A chain that moves behind a nearer deadline has not ended.
    start(stack, "sooner", timeout=60)
    fourth = watcher.poll()
    assert (tags(fourth.snapshot.chains), tags(fourth.ended)) == (["sooner"], ["a"])


def screen(update, *, width=100, height=20, error=""):
    out = Console(width=width, height=height, color_system=None, force_terminal=True)
    with out.capture() as captured:
        out.print(watch._draw(update, error, width, height))
    return [line.rstrip() for line in captured.get().splitlines()]


def test_the_table_on_a_terminal(stack):
    start(stack, timeout=3600)
    apply(stack, Request("stamp", "early", "s", traced(1)))
    update = ChainWatcher(store(stack), [TAG, "early", "gone"]).poll()
    head, names, *rows, last = screen(update, error="cut off")
    assert head.startswith("0 of 3 ended, 1 do not exist yet   ")
    assert names.split() == ["TAG", "STATUS", "DONE", "UNITS", "AGE", "TIME", "LEFT"]
    assert re.match(rf"{TAG} +open +━+.* 66.6 % +4/6 +.* +59 min \d+ s$", rows[0])
    assert re.match(r"early +pending +\? ", rows[1])
    assert rows[2].split() == ["gone", "-"]
    assert last == "retrying: cut off"


@pytest.mark.parametrize(
    ("term", "first", "last"),
    [("xterm-256color", "0 of 1 ended", "1 of 1 ended"), ("dumb", f"4/6  {TAG}", f"6/6  {TAG}")],
)
def test_a_terminal_gets_a_live_table_if_its_cursor_can_move(
    stack, xorack, sleeps, monkeypatch, term, first, last
):
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", term)
    start(stack)
    sleeps.append(lambda: finish(stack))
    status, out, _ = xorack("watch", TAG)
    assert status == 0
    assert re.search(f"{first}(.|\n)*{last}", "\n".join(out))
    assert term != "dumb" or len(out) == 2


@pytest.mark.parametrize("width", [40, 200])
def test_the_table_fits_any_terminal(stack, width):
    tags = [f"{'long' * 80}/{number}" for number in range(12)]
    apply(stack, *(Request("create", tag, "c", traced(1), timeout=3600) for tag in tags))
    lines = screen(ChainWatcher(store(stack)).poll(), width=width, height=10)
    assert max(map(len, lines)) <= width
    assert len(lines) < 10
    assert lines[-1].startswith("and 6 more")


def test_no_chains(stack, xorack, sleeps):
    assert xorack("watch") == (0, [], [])
    (head,) = screen(ChainWatcher(store(stack)).poll())
    assert head.startswith("no unfinished chain has a deadline")


@pytest.mark.parametrize("width", [30, 60])
def test_no_time_is_cut(stack, width):
    start(stack, "a", timeout=1001)
    start(stack, "b", timeout=86_399)
    _, _, *rows = screen(ChainWatcher(store(stack)).poll(), width=width)
    for row, time_left in zip(rows, (r"16 min \d+ s", "23 h 59 min"), strict=True):
        assert re.match(rf"[ab] +open +.*{time_left}$", row)


def test_it_ends_without_a_reader(stack, xorack, sleeps, monkeypatch):
    start(stack, timeout=3600)
    reader, writer = os.pipe()
    sleeps += [lambda: os.close(reader), lambda: pytest.fail("it goes on")]
    with os.fdopen(writer, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        monkeypatch.setattr(sys, "stderr", sys.stderr)  # click wraps it
        assert xorack("watch")[0] == 1
