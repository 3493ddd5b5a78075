"""`xorack wait`, over moto in process."""

import json

from tests.support.cli import apply, finish, put_invalid_item, start
from xorack import traced
from xorack.aws import dynamodb_store
from xorack.cli import wait as waiting
from xorack.core.request import Request
from xorack.errors import UnavailableError

RUN = "2026-01-31"


def nothing():
    pass


def end(stack, *tags):
    for tag in tags:
        start(stack, tag, timeout=3600)
        finish(stack, tag)


def test_a_run_is_waited_for_by_one_item_a_poll(stack, xorack, sleeps, monkeypatch):
    """The run is a chain, of which its chains are units."""
    for name in ("scan", "scan_part", "first_due"):
        monkeypatch.delattr(dynamodb_store.DynamoDBStore, name)
    parent = {"unit": f"{5:016x}", "tags": [RUN], "kind": "plain"}
    create = Request.create(f"{RUN}/order/1", "c", starts=[7], parents=[parent])
    sleeps += [
        lambda: apply(stack, create),
        lambda: apply(stack, Request.create(RUN, "c", starts=[5], cells=0)),
        lambda: apply(stack, Request.stamp_(f"{RUN}/order/1", "s", finishes=[7])),
    ]
    waits = f"{RUN} does not exist yet: waiting for it"
    assert xorack("wait", RUN) == (0, ["1 chain: 1 acked"], [waits])
    assert sleeps == []


def test_failed_chains_are_status_1(stack, xorack, sleeps):
    tags = [f"{RUN}/order/{number:02}" for number in range(12)]
    apply(stack, *(Request("create", tag, "c", traced(1), 1, timeout=3600) for tag in tags))
    apply(stack, *(Request("fail", tag, "f", reason="so\x07bad") for tag in tags))
    end(stack, "acked")
    put_invalid_item(stack, "odd", status={"S": "done"})
    status, out, err = xorack("wait", "acked", "odd", *tags)
    assert (status, out) == (1, ["14 chains: 1 acked, 12 failed, 1 invalid"])
    assert (len(err), err[-1]) == (11, "and 3 more")
    assert {line.removesuffix(r": so\x07bad") for line in err[:-1]} < set(tags)
    status, (line,), err = xorack("wait", "acked", *tags, "--json")
    result = json.loads(line)
    failures = result.pop("failures")
    assert (status, err, len(failures)) == (1, [], 10)
    assert failures[0] == {"tag": failures[0]["tag"], "reason": "so\x07bad"}
    zeros = {"open": 0, "pending": 0, "invalid": 0, "not_found": 0}
    assert result == {"ended": True, "chains": 13, "acked": 1, "failed": 12, **zeros}


def test_a_time_out_is_status_3(stack, xorack, sleeps):
    start(stack, f"{RUN}/a", timeout=3600)
    end(stack, f"{RUN}/b")
    sleeps += [nothing, nothing, nothing]  # polls at 0, 2, 4 and 5 seconds
    timed_out = (3, ["2 chains: 1 acked, 1 open"], ["timed out"])
    assert xorack("wait", f"{RUN}/a", f"{RUN}/b", "--timeout", "5") == timed_out
    assert (sleeps, waiting.time.clock.now) == ([], 5)


def test_named_chains_are_waited_for(stack, xorack, sleeps):
    start(stack, "a")
    waiting = "b does not exist yet: waiting for it"
    absent = (3, ["1 chain: 1 open, 1 not found"], [waiting, "timed out"])
    assert xorack("wait", "a", "b", "--timeout", "0m") == absent
    sleeps += [lambda: finish(stack, "a"), lambda: end(stack, "b")]
    assert xorack("wait", "b", "a", "--timeout", "1.5h") == (0, ["2 chains: 2 acked"], [waiting])
    apply(stack, Request("create", "c", "c", traced(1), 1), Request("fail", "c", "f", reason="bad"))
    assert xorack("wait", "a", "c") == (1, ["2 chains: 1 acked, 1 failed"], ["c: bad"])


def test_an_interrupt_and_a_failed_poll(stack, xorack, sleeps, monkeypatch):
    read = dynamodb_store.DynamoDBStore.read

    def fail_once(*_, **__):
        monkeypatch.setattr(dynamodb_store.DynamoDBStore, "read", read)
        raise UnavailableError(OSError("cut off"))

    sleeps.append(lambda: monkeypatch.setattr(dynamodb_store.DynamoDBStore, "read", fail_once))
    sleeps.append(nothing)
    status, out, err = xorack("wait", RUN)
    assert (status, out, err[-3:]) == (130, [], ["retrying: cut off", "", "interrupted"])
