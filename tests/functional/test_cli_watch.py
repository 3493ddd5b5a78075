"""`xorack watch` and the library behind it, over moto in process."""

import json
import os
import re
import sys

import pytest

from tests.support.cli import TAG, apply, finish, put_invalid_item, start, store
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


def test_a_chain_that_ended_is_told_once(stack):
    start(stack, "a", timeout=60)
    start(stack, "b", timeout=90)
    watcher = ChainWatcher(store(stack), limit=1)
    first = watcher.poll()
    assert tags(first.chains) == ["a"]
    finish(stack, "a")
    second = watcher.poll()
    assert tags(second.chains) == tags(second.changed) == ["b", "a"]
    third = watcher.poll()
    assert (third.changed, tags(third.chains)) == ([], ["b"])
    # A chain that moves behind a nearer deadline has not ended.
    start(stack, "sooner", timeout=60)
    fourth = watcher.poll()
    assert tags(fourth.chains) == ["sooner"]


def test_a_named_item_that_is_not_a_chain_does_not_stop_the_others(stack, xorack, sleeps):
    start(stack)
    put_invalid_item(stack)
    sleeps.append(lambda: finish(stack))
    status, out, err = xorack("watch", TAG, "foreign")
    assert (status, len(out)) == (1, 2)
    assert err == ["foreign: cannot be read: its stamp is of type S, expected a Binary"]


def test_no_chains(stack, xorack, sleeps):
    assert xorack("watch") == (0, [], [])


def test_it_ends_without_a_reader(stack, xorack, sleeps, monkeypatch):
    start(stack, timeout=3600)
    reader, writer = os.pipe()
    sleeps += [lambda: os.close(reader), lambda: pytest.fail("it goes on")]
    with os.fdopen(writer, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        monkeypatch.setattr(sys, "stderr", sys.stderr)  # click wraps it
        assert xorack("watch")[0] == 1
