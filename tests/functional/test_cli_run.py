"""`xorack wait`, over moto in process."""

import json

import pytest

from tests.support.cli import apply, finish, put_invalid_item, start, store
from xorack import traced
from xorack.aws import dynamodb_store
from xorack.cli import wait as waiting
from xorack.core.request import Request
from xorack.errors import UnavailableError
from xorack.ops.run_chains import RunChains

RUN = "2026-01-31"


def nothing():
    pass


def end(stack, *tags):
    for tag in tags:
        start(stack, tag, timeout=3600)
        finish(stack, tag)


@pytest.fixture
def yesterday(stack):
    """Chains that end no wait of today: of another day, and of a longer name."""
    end(stack, "2026-01-30/order/1", f"{RUN}-again/order/1", RUN)
    start(stack, f"{RUN}b/order/2", timeout=1)
    return stack


def test_a_run_is_waited_for(yesterday, xorack, sleeps):
    stack = yesterday
    one, two = (f"{RUN}/order/{number}" for number in (1, 2))
    sleeps += [
        nothing,  # no chain yet
        lambda: start(stack, one),
        # A stamp before its create: nothing is open, and the run has not ended.
        lambda: (finish(stack, one), apply(stack, Request("stamp", two, "s", traced(1), 0, 1))),
        nothing,
        lambda: apply(stack, Request("create", two, "c", traced(1), 1)),
    ]
    assert xorack("wait", "--run", RUN) == (0, [f"{RUN}: 2 chains: 2 acked"], [])
    assert sleeps == []


def test_more_chains_than_expected_are_an_error(stack, xorack, sleeps):
    end(stack, f"{RUN}/a", f"{RUN}/b")
    status, _, err = xorack("wait", "--run", RUN, "--chains", "1")
    expected = f"error: chains: 1, expected the number of chains of run {RUN}: it has 2"
    assert (status, err[-1]) == (1, expected)


def test_a_job_that_started_no_chain_has_ended(stack, xorack, sleeps):
    assert xorack("wait", "--run", RUN, "--chains", "0") == (0, [f"{RUN}: 0 chains"], [])


def test_failed_chains_are_status_1(stack, xorack, sleeps):
    tags = [f"{RUN}/order/{number:02}" for number in range(12)]
    apply(stack, *(Request("create", tag, "c", traced(1), 1, timeout=3600) for tag in tags))
    apply(stack, *(Request("fail", tag, "f", reason="so\x07bad") for tag in tags))
    end(stack, f"{RUN}/order/acked")
    status, out, err = xorack("wait", "--run", RUN)
    assert (status, out) == (1, [f"{RUN}: 13 chains: 1 acked, 12 failed"])
    assert (len(err), err[-1]) == (11, "and 2 more")
    assert {line.removesuffix(r": so\x07bad") for line in err[:-1]} < set(tags)

    status, (line,), err = xorack("wait", "--run", RUN, "--json")
    result = json.loads(line)
    failures = result.pop("failures")
    assert (status, err, len(failures)) == (1, [], 10)
    assert failures[0] == {"tag": failures[0]["tag"], "reason": "so\x07bad"}
    zeros = {"open": 0, "pending": 0, "invalid": 0, "not_found": 0}
    assert result == {"run": RUN, "ended": True, "chains": 13, "acked": 1, "failed": 12, **zeros}


def test_an_item_of_a_run_that_is_not_a_chain_is_status_1(stack, xorack, sleeps):
    end(stack, f"{RUN}/a")
    put_invalid_item(stack, f"{RUN}/b", status={"S": "done"})
    status, out, (reason,) = xorack("wait", "--run", RUN)
    assert (status, out) == (1, [f"{RUN}: 2 chains: 1 acked, 1 invalid"])
    assert reason.startswith(f"{RUN}/b: its status is 'done', expected pending or open")


def test_a_time_out_is_status_3(yesterday, xorack, sleeps):
    stack = yesterday
    start(stack, f"{RUN}/a", timeout=3600)
    end(stack, f"{RUN}/b")
    sleeps += [nothing, nothing, nothing]  # polls at 0, 2, 4 and 5 seconds
    counts = "1 acked, 1 open"
    timed_out = (3, [f"{RUN}: 2 of 3 chains: {counts}"], ["timed out"])
    assert xorack("wait", "--run", RUN, "--chains", "3", "--timeout", "5") == timed_out
    assert (sleeps, waiting.time.clock.now) == ([], 5)
    assert xorack("wait", "--run", "none", "--timeout", "0")[:2] == (3, ["none: 0 chains"])
    finish(stack, f"{RUN}/a")
    assert xorack("wait", "--run", RUN, "--timeout", "0")[0] == 0


@pytest.mark.parametrize("chains", [(), ("--chains", "2")])
@pytest.mark.parametrize("status", ["open", "pending"])
def test_a_chain_missing_in_the_index_is_awaited(stack, xorack, sleeps, status, chains):
    """The index lags behind the table, and has no chain without a deadline."""
    end(stack, f"{RUN}/a")
    item = {"tag": {"S": f"{RUN}/b"}, "stamp": {"B": b"x"}, "status": {"S": status}}
    stack.client("dynamodb").put_item(TableName=stack.table_name, Item=item)
    expected = f"{RUN}: 2 chains: 1 acked, 1 {status}"
    assert xorack("wait", "--run", RUN, "--timeout", "0", *chains) == (3, [expected], ["timed out"])


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
    scan = dynamodb_store.DynamoDBStore.scan

    def fail_once(*_, **__):
        monkeypatch.setattr(dynamodb_store.DynamoDBStore, "scan", scan)
        raise UnavailableError(OSError("cut off"))

    sleeps.append(lambda: monkeypatch.setattr(dynamodb_store.DynamoDBStore, "scan", fail_once))
    sleeps.append(nothing)
    status, out, err = xorack("wait", "--run", RUN)
    assert (status, out, err[-3:]) == (130, [], ["retrying: cut off", "", "interrupted"])


def test_the_table_is_read_for_the_end_only_and_with_pauses(stack, xorack, sleeps, monkeypatch):
    """While the index has unfinished chains of the run, no scan; then one tenth of the time."""
    clock, scan, scans = waiting.time.clock, dynamodb_store.DynamoDBStore.scan, []

    def slow_scan(*arguments, **options):
        scans.append(clock.now)
        clock.now += 10
        return scan(*arguments, **options)

    monkeypatch.setattr(dynamodb_store.DynamoDBStore, "scan", slow_scan)
    one, two = (f"{RUN}/order/{number}" for number in (1, 2))
    start(stack, one, timeout=3600)
    sleeps += [nothing, nothing, lambda: finish(stack, one), lambda: end(stack, two)]
    assert xorack("wait", "--run", RUN, "--chains", "2")[0] == 0
    assert scans == [6, 6 + 10 + 90]


@pytest.mark.slow
def test_the_index_is_searched_page_by_page(stack, monkeypatch):
    monkeypatch.setattr(dynamodb_store, "_SEARCH_PAGE", 2)
    others = [Request("create", f"other/{n}", "c", traced(1), 1, timeout=60) for n in range(40)]
    mine = [Request("create", f"{RUN}/{n}", "c", traced(1), 1, timeout=3600) for n in range(12)]
    apply(stack, *others, *mine)
    prefix = RunChains(RUN).prefix
    tags, more = store(stack).first_due(12, prefix)
    assert (sorted(tags), more) == (sorted(request.tag for request in mine), False)
    assert store(stack).first_due(8, prefix)[1]
    assert store(stack).first_due(1, "none/") == ([], False)
