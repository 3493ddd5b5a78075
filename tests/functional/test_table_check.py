"""A table that the stack did not create is checked before the functions first write to it."""

import pytest

from lambda_src import environment
from tests.support.faults import failing
from tests.support.functions import Functions, message
from tests.support.in_process import create_resources, locked_aws
from xorack.core.errors import ArgumentError
from xorack.core.request import Request

CHECKS = {"DescribeTable", "DescribeTimeToLive"}
CREATE = message(Request.create("t", "c", b"\1"))


@pytest.fixture
def adopt(monkeypatch):
    """A function that starts the functions over a table, by default as the stack's."""
    with locked_aws() as aws:

        def start(**changed):
            monkeypatch.setenv("CHECK_TABLE", "true")
            monkeypatch.setattr(environment, "_process", None)
            functions = Functions(create_resources(aws, **changed), monkeypatch)
            monkeypatch.setenv("PARTITION_KEY", "tag")
            return functions

        yield start


def test_a_right_table_is_checked_once_by_each_function(adopt, sqs):
    functions = adopt()
    sqs.names.clear()
    for _ in range(3):
        assert functions.consume(CREATE) == []
        assert functions.sweep()["SweepProblems"] == 0
    assert {name: sqs.names.count(name) for name in CHECKS} == dict.fromkeys(CHECKS, 1)


def test_nothing_is_written_to_a_wrong_table(adopt, sqs):
    """tests/unit/test_table_check.py has what else can be wrong."""
    functions = adopt(ttl_attribute="ttl")
    name = functions.aws.table_name
    for run in (lambda: functions.consume(CREATE), functions.sweep):
        sqs.names.clear()
        with pytest.raises(ArgumentError) as caught:
            run()
        assert str(caught.value) == f"time to live of table {name}: 'ttl', expected expires_at"
        assert set(sqs.names) <= CHECKS
    assert functions.aws.client("dynamodb").scan(TableName=name)["Items"] == []


def test_a_table_that_does_not_exist_is_named(adopt, monkeypatch):
    functions = adopt()
    monkeypatch.setenv("TABLE_NAME", "gone")
    line = "table_name: 'gone', expected a table of this account and region"
    with pytest.raises(ArgumentError, match=f"^{line}$"):
        functions.consume(CREATE)


@pytest.mark.parametrize("operation", sorted(CHECKS))
def test_chains_go_on_while_the_check_cannot_be_made(adopt, sqs, operation):
    functions = adopt()
    with failing(operation, "ThrottlingException"):
        assert functions.consume(CREATE) == []
    sqs.names.clear()
    functions.sweep()
    functions.sweep()
    assert sqs.names.count(operation) == 1
