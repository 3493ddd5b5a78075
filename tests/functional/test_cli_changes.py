"""`xorack extend`, and `xorack fail` for several chains or a run, over moto in process."""

import json

import pytest

from tests.support.cli import apply, finish, put_invalid_item, start, store
from xorack import traced
from xorack.aws.clock import milliseconds
from xorack.core.event import rfc3339
from xorack.core.request import Request


def read(stack, tag):
    return store(stack).read([tag])[tag]


@pytest.fixture
def run(stack):
    """Chains of a run, the first finished, and a chain of another run."""
    for number in range(5):
        start(stack, f"run/{number}", timeout=3600)
    finish(stack, "run/0")
    apply(stack, Request("stamp", "run/pending", "s", traced(1), 1))
    start(stack, "run-2/0", timeout=3600)
    stack.events()
    return stack


def test_extend_sets_the_deadline(stack, xorack):
    seconds = 86_400
    start(stack, "a", timeout=3600, idle_timeout=600)
    before = milliseconds()
    status, out, err = xorack("extend", "a", "--timeout", str(seconds))
    chain = read(stack, "a")
    assert 0 <= chain.deadlines.deadline - before - seconds * 1000 < 60_000
    assert (status, err) == (0, [])
    assert out == [f"a: open; its deadline is {rfc3339(chain.deadlines.deadline)}"]
    (result,) = map(json.loads, xorack("extend", "a", "--timeout", "7", "--json")[1])
    assert (result["changed"], result["idle_timeout_seconds"]) == (True, 600)
    assert read(stack, "a").deadlines.idle_timeout == 600_000


@pytest.mark.parametrize("command", ["fail --reason no", "extend --timeout 60"])
def test_one_problem_does_not_stop_the_others(run, xorack, command):
    put_invalid_item(run)
    name, *options = command.split()
    tags = ["run/0", "gone", "foreign", "run/1", "run/1", "run/2"]
    status, out, err = xorack(name, *options, *tags)
    assert status == 1
    assert [line.partition(":")[0] for line in out] == ["run/1", "run/2"]
    assert err == [
        "error: run/0 is acked already: nothing changed",
        "error: tag: 'gone' does not exist",
        "error: tag: 'foreign' is not a chain item: its stamp is of type S, expected a Binary",
    ]
    status, out, err = xorack(name, *options, "--json", "run/0", "gone", "run/3")
    results = [json.loads(line) for line in out]
    assert (status, [one["changed"] for one in results]) == (1, [False, False, True])
    assert (results[1]["error"], results[2]["tag"]) == ("tag: 'gone' does not exist", "run/3")


def test_a_run_is_failed_after_a_question(run, xorack, answer):
    answer("n\n")
    status, (line,), _ = xorack("fail", "--run", "run", "--reason", "withdrawn")
    expected = "Fail 5 unfinished chains of run run? [y/N]: nothing was changed"
    assert (status, line, run.events()) == (1, expected, [])
    answer("y\n")
    status, (line,), _ = xorack("fail", "--run", "run", "--reason", "withdrawn")
    assert (status, line.partition("]: ")[2]) == (0, "5 chains of run run: failed")
    failed = {event["detail"]["tag"]: event["detail"]["reason"] for event in run.events()}
    assert failed == {f"run/{number}": "withdrawn" for number in range(1, 5)}
    assert read(run, "run/pending").failing == "withdrawn"
    assert (read(run, "run/0").status, read(run, "run-2/0").status) == ("acked", "open")
    apply(run, Request("create", "run/pending", "c", traced(2), 1))
    assert xorack("fail", "--run", "run", "--reason", "x") == (
        0,
        ["no unfinished chains of run run"],
        [],
    )


def test_a_chain_of_a_run_that_ends_meanwhile_is_no_error(run, xorack, monkeypatch):
    monkeypatch.setattr("click.confirm", lambda _: finish(run, "run/1") or True)
    status, (line,), err = xorack("fail", "--run", "run", "--reason", "x")
    assert (status, line, err) == (0, "4 chains of run run: failed", [])
    assert read(run, "run/1").status == "acked"
