"""`xorack watch` and the service behind it, over moto in process."""

import json
import os
import re
import sys
import time
from types import SimpleNamespace

import pytest
from rich.console import Console

from tests.functional.test_cli import (  # noqa: F401
    TAG,
    apply,
    finish,
    put_strange,
    stack,
    start,
    store,
    xorack,
)
from xorack import traced
from xorack.cli import watch as shown
from xorack.core.ports import Unavailable
from xorack.core.request import Request
from xorack.ops.watch import Watcher


@pytest.fixture
def naps(monkeypatch):
    """What happens between looks: one action a nap, after the last of them Ctrl-C."""
    actions = []

    def sleep(_):
        if not actions:
            raise KeyboardInterrupt
        actions.pop(0)()

    # The module's own clock: other threads of this process sleep by the real one.
    clock = SimpleNamespace(**{**vars(time), "sleep": sleep})
    monkeypatch.setattr(shown, "time", clock)
    return actions


def test_a_pipe_gets_a_line_for_each_change(stack, xorack, naps):  # noqa: F811
    start(stack, timeout=3600)
    naps += [lambda: None, lambda: finish(stack)]
    status, out, err = xorack("watch")
    assert (status, err) == (0, [])
    assert [re.sub(r"^\d\d:\d\d:\d\dZ  ", "", line) for line in out] == [
        f"open     66.6 %  4/6  {TAG}",
        f"acked     100 %  6/6  {TAG}",
    ]


def test_named_chains_are_watched_until_they_end(stack, xorack, naps):  # noqa: F811
    start(stack, "a")
    start(stack, "b")
    naps += [lambda: finish(stack, "a"), lambda: finish(stack, "b")]
    status, out, _ = xorack("watch", "a", "b", "--json")
    assert status == 0
    told = [json.loads(line) for line in out]
    assert [(one["tag"], one["status"]) for one in told] == [
        ("a", "open"),
        ("b", "open"),
        ("a", "acked"),
        ("b", "acked"),
    ]
    assert all(one["at"].endswith("Z") for one in told)


def test_a_named_chain_that_failed_is_status_1(stack, xorack, naps):  # noqa: F811
    start(stack)
    naps.append(lambda: apply(stack, Request("fail", TAG, "f", reason="bad")))
    status, out, _ = xorack("watch", TAG)
    assert (status, out[-1].endswith(f"{TAG}: bad")) == (1, True)


def test_a_named_chain_is_waited_for_and_ctrl_c_is_status_130(stack, xorack, naps):  # noqa: F811
    naps += [lambda: None, lambda: start(stack)]
    status, out, err = xorack("watch", TAG)
    assert status == 130
    assert len(out) == 1
    assert list(filter(None, err)) == [f"{TAG}: not there yet", "interrupted"]


def test_a_short_trouble_is_told_and_outlived(stack, xorack, naps, monkeypatch):  # noqa: F811
    start(stack)
    look, troubles = Watcher.look, []

    def sometimes(watcher):
        if troubles:
            raise Unavailable(troubles.pop())
        return look(watcher)

    monkeypatch.setattr(Watcher, "look", sometimes)
    naps += [lambda: troubles.append(OSError("cut off")), lambda: finish(stack)]
    status, out, err = xorack("watch", TAG)
    assert (status, len(out)) == (0, 2)
    assert err == ["trying again: cut off"]


def test_what_a_tag_holds_does_not_steer_the_terminal(stack, xorack, naps):  # noqa: F811
    start(stack, "evil\x1b[2J\nx", timeout=60)
    assert xorack("watch")[1][0].endswith("evil\\x1b[2J\\nx")


def test_one_that_ended_is_kept_in_sight(stack):  # noqa: F811
    start(stack, "a", timeout=60)
    start(stack, "b", timeout=90)
    watcher = Watcher(store(stack), limit=1)
    first = watcher.look()
    assert [one.chain.tag for one in first.chains] == ["a"]
    assert first.more
    finish(stack, "a")
    second = watcher.look()
    assert [one.chain.tag for one in second.chains] == ["b"]
    assert [one.chain.tag for one in second.ended] == ["a"]
    assert {one.chain.tag for one in second.changed} == {"a", "b"}
    third = watcher.look()
    assert third.changed == ()
    assert [one.chain.tag for one in third.ended] == ["a"]


def test_one_that_is_only_out_of_sight_has_not_ended(stack):  # noqa: F811
    start(stack, "a", timeout=600)
    watcher = Watcher(store(stack), limit=1)
    watcher.look()
    start(stack, "sooner", timeout=60)
    look = watcher.look()
    assert [one.chain.tag for one in look.chains] == ["sooner"]
    assert look.ended == ()


def test_a_named_item_that_is_no_chain_is_told_and_the_others_are_watched(stack, xorack, naps):  # noqa: F811
    start(stack)
    put_strange(stack)
    naps.append(lambda: finish(stack))
    status, out, err = xorack("watch", TAG, "strange")
    assert (status, len(out)) == (1, 2)
    assert err == ["strange: cannot be read: its stamp is of type S, expected a Binary"]


def screen(look, *, width=100, height=20, named=False):
    out = Console(width=width, height=height, color_system=None, force_terminal=True)
    with out.capture() as captured:
        out.print(shown._Screen(look, named, ""))
    return [line.rstrip() for line in captured.get().splitlines()]


def test_the_table_on_a_terminal(stack):  # noqa: F811
    start(stack, timeout=3600)
    apply(stack, Request("stamp", "early", "s", traced(1)))
    watcher = Watcher(store(stack), [TAG, "early", "gone"])
    head, names, *rows = screen(watcher.look(), named=True)
    assert head.startswith("0 of 3 ended, 1 not there yet   ")
    assert names.split() == ["TAG", "STATUS", "DONE", "UNITS", "AGE", "TIME", "LEFT"]
    assert re.match(rf"{TAG} +open +━+.* 66.6 % +4/6 +.* +59 min 5\d s$", rows[0])
    assert re.match(r"early +pending +\? ", rows[1])
    assert rows[2].split() == ["gone", "-"]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_table_fits_any_terminal(stack, width):  # noqa: F811
    for number in range(12):
        start(stack, f"{'long' * 80}/{number}", timeout=3600)
    lines = screen(Watcher(store(stack)).look(), width=width, height=10)
    assert max(map(len, lines)) <= width
    assert len(lines) < 10
    assert lines[-1].startswith("and 6 more")


def test_no_chains(stack, xorack, naps):  # noqa: F811
    assert xorack("watch") == (0, [], [])
    assert screen(Watcher(store(stack)).look())[0].startswith("no unfinished chain that has")


def test_a_wrong_tag_is_one_line(stack, xorack):  # noqa: F811
    status, out, err = xorack("watch", "")
    assert (status, out) == (1, [])
    assert err[0].startswith("error: tag: ''")


@pytest.mark.parametrize("width", [30, 40, 60, 80])
def test_no_time_is_cut(stack, width):  # noqa: F811
    start(stack, "a", timeout=1001)
    start(stack, "b", timeout=86_399)
    lines = screen(Watcher(store(stack)).look(), width=width)
    assert [re.search(r"16 min \d+ s$|23 h 59 min$", line) is not None for line in lines[2:]] == [
        True
    ] * 2
    assert all(re.match(r"[ab] +open +", line) for line in lines[2:])


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(stack, xorack, naps, monkeypatch):  # noqa: F811
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "dumb")
    start(stack, timeout=3600)
    naps.append(lambda: finish(stack))
    status, out, _ = xorack("watch")
    assert (status, len(out)) == (0, 2)
    assert out[1].endswith(f"6/6  {TAG}")


def test_who_reads_no_more_is_not_waited_for(stack, xorack, naps, monkeypatch):  # noqa: F811
    start(stack, timeout=3600)
    reader, writer = os.pipe()
    naps += [lambda: os.close(reader), lambda: pytest.fail("it goes on")]
    with os.fdopen(writer, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        monkeypatch.setattr(sys, "stderr", sys.stderr)  # click wraps it
        assert xorack("watch")[0] == 1
