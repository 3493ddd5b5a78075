"""A table that the stack did not create is checked before the functions first write to it."""

from collections import Counter
from contextlib import contextmanager
from dataclasses import replace

import pytest

from lambda_src import widget
from lambda_src.environment import _services
from tests.support.faults import failing, on_the_wire
from tests.support.functions import Context, Functions, message
from tests.support.in_process import create_resources, definitions, locked_aws
from xorack.core.errors import ArgumentError
from xorack.core.request import Request

CHECKS = {"DescribeTable", "DescribeTimeToLive"}
CREATE = message(Request.create("t", "c", b"\1"))


@pytest.fixture
def adopt(monkeypatch):
    """A function that starts the functions over a table with changed definitions."""

    def start(aws, described=None):
        monkeypatch.setenv("CHECK_TABLE", "true")
        _services.cache_clear()
        functions = Functions(create_resources(aws, described), monkeypatch)
        monkeypatch.setenv("PARTITION_KEY", "tag")
        return functions

    with locked_aws() as aws:
        yield lambda described=None: start(aws, described)


@contextmanager
def counted():
    calls = Counter()

    def count(operation, deliver, request):
        calls[operation] += 1
        return deliver()

    with on_the_wire(count):
        yield calls


def without_time_to_live(name=""):
    return replace(definitions(), ttl_attribute=name)


def test_a_right_table_is_checked_once_by_each_function(adopt):
    functions = adopt()
    with counted() as calls:
        for _ in range(3):
            assert functions.consume(CREATE) == []
            assert functions.sweep()["SweepProblems"] == 0
    assert {name: calls[name] for name in CHECKS} == dict.fromkeys(CHECKS, 1)


def test_the_stacks_own_table_is_not_checked(functions):
    with counted() as calls:
        assert functions.consume(CREATE) == []
    assert CHECKS.isdisjoint(calls)


def test_nothing_is_written_to_a_wrong_table(adopt):
    """tests/unit/test_table_check.py has what else can be wrong."""
    functions = adopt(without_time_to_live("ttl"))
    name = functions.aws.table_name
    for run in (lambda: functions.consume(CREATE), functions.sweep):
        with counted() as calls, pytest.raises(ArgumentError) as caught:
            run()
        assert str(caught.value) == f"time to live of table {name}: 'ttl', expected expires_at"
        assert set(calls) <= CHECKS
    assert functions.aws.client("dynamodb").scan(TableName=name)["Items"] == []


def test_a_repaired_table_needs_no_deployment(adopt):
    functions = adopt(without_time_to_live())
    with pytest.raises(ArgumentError):
        functions.consume(CREATE)
    functions.aws.client("dynamodb").update_time_to_live(
        TableName=functions.aws.table_name,
        TimeToLiveSpecification={"Enabled": True, "AttributeName": "expires_at"},
    )
    assert functions.consume(CREATE) == []


def test_a_table_that_does_not_exist_is_named(adopt, monkeypatch):
    functions = adopt()
    monkeypatch.setenv("TABLE_NAME", "gone")
    line = "table_name: 'gone', expected a table of this account and region"
    with pytest.raises(ArgumentError, match=f"^{line}$"):
        functions.consume(CREATE)


@pytest.mark.parametrize("operation", sorted(CHECKS))
def test_chains_go_on_while_the_check_cannot_be_made(adopt, operation):
    functions = adopt()
    with failing(operation, "ThrottlingException"):
        assert functions.consume(CREATE) == []
    with counted() as calls:
        functions.sweep()
        functions.sweep()
    assert calls[operation] == 1


def test_a_denied_check_fails_the_invocation(adopt):
    functions = adopt()
    with (
        failing("DescribeTable", "AccessDeniedException"),
        pytest.raises(Exception, match="AccessDenied"),
    ):
        functions.consume(CREATE)


def test_the_widget_reads_without_a_check(adopt):
    adopt(without_time_to_live())
    with counted() as calls:
        assert "No unfinished chain" in widget.handler({}, Context())
    assert CHECKS.isdisjoint(calls)
