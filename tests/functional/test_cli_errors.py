"""Errors of the command line: one line on stderr, and the exit status."""

import os
import subprocess
import sys

import boto3
import pytest
from botocore.parsers import ResponseParserError

from tests.support.cli import TAG, apply, assert_error, put_invalid_item, start, store
from xorack import Token, Tracker, traced, unit_id
from xorack.aws.client import make_client
from xorack.aws.sqs import queue_client
from xorack.cli.options import Duration, Target
from xorack.core.errors import ArgumentError
from xorack.core.message import pack
from xorack.core.request import Request

ORDERS = "there is no stack orders in us-east-1: name yours with --stack"
TAG_LENGTH = "expected a string of 1 to 1024 UTF-8 bytes without NUL"


@pytest.mark.parametrize(
    ("status", "arguments", "line"),
    [
        (1, "show typo", "tag: 'typo' does not exist; if it is a run: xorack explain --run typo\n"),
        (1, "show run/typo", "tag: 'run/typo' does not exist; xorack explain run/typo says more\n"),
        (1, "show typo --table gone", "there is no table gone in us-east-1\n"),
        (1, "list --table gone --region eu-west-1", "there is no table gone in eu-west-1\n"),
        (1, "redrive --stack orders", ORDERS),
        (1, "show typo --stack orders", f"{ORDERS}, or its table with --table"),
        (1, "list --stack shop", "stack shop is CREATE_COMPLETE and has no output QueueUrl, "),
        (2, "show ", f"tag: '', {TAG_LENGTH}"),
        (2, f"fail {TAG} b --reason {'x' * 1025}", "reason: 'xxx"),
        (2, "extend a\0 --timeout 1", "tag: 'a\\x00', expected a string"),
    ],
    ids=range(10),
)
def test_an_error_of_a_request_is_one_line(stack, stacks, xorack, status, arguments, line):
    stacks["shop"] = {"TableName": "customers"}
    assert_error(xorack(*arguments.split(" ")), status, line)
    assert list(store(stack).scan()) == []


def test_times_have_units():
    times = {"90": 90, "1.5h": 5400, "1h30m": 5400, "2 min": 120, "1d 1s": 86_401, "1e2": 100}
    assert {text: Duration().convert(text, None, None) for text in times} == times


@pytest.mark.parametrize("command", [f"show {TAG} --among", "dead-letters send"])
def test_a_file_that_is_no_text_is_named(stack, xorack, tmp_path, command):
    start(stack)
    binary = tmp_path / "names"
    binary.write_bytes(b"rope\n\xff\xfe")
    assert_error(xorack(*command.split(), str(binary)), 1, f"{binary}: expected UTF-8: ")


def test_the_stack_may_come_from_the_environment(aws, stacks, xorack, monkeypatch):
    monkeypatch.setenv("XORACK_TABLE", aws.table_name)
    assert xorack("list") == (0, ["no chains"], [])
    monkeypatch.setenv("XORACK_STACK", "of-the-environment")
    assert "no stack of-the-environment" in xorack("list")[2][0]  # which has more than the table
    assert xorack("list", "--table", aws.table_name) == (0, ["no chains"], [])
    monkeypatch.setenv("XORACK_QUEUE_URL", "https://sqs.us-east-1.amazonaws.com/1/orders")
    assert "no stack of-the-environment" in xorack("list")[2][0]
    monkeypatch.delenv("XORACK_STACK")
    assert "AWS rejected ListQueueTags" in xorack("list")[2][0]


def test_files_of_windows_are_read_as_those_of_others(stack, xorack, tmp_path):
    """A byte order mark is no part of the first name, and a carriage return of none."""
    (names := tmp_path / "names.txt").write_bytes("\ufeffoil\r\nwick\r\n".encode())
    tracker, token = Tracker(stack.queue_url), Token(unit_id("order/1"), ("order/1",))
    apply(stack, Request.create("order/1", "c", traced(token.unit), timeout=3600))
    step = tracker.step(token)
    step.child("oil")
    apply(stack, *step.requests())
    shown = xorack("show", "order/1", "--among", str(names))[1]
    assert any(line.endswith("  oil") for line in shown)
    (body,) = pack([Request("note", TAG, "n", text="seen")])
    (letters := tmp_path / "letters.json").write_bytes(f"\ufeff{body}\r\n\r\n".encode())
    assert xorack("dead-letters", "send", str(letters))[1] == ["1 request sent"]


def test_the_package_runs_as_the_command_line():
    command = [sys.executable, "-m", "xorack", "--version"]
    assert b"xorack" in subprocess.run(command, capture_output=True, check=True).stdout


RUN_LENGTH = f"Invalid value for '--run': '', {TAG_LENGTH}"
INVALID = [
    ("show", "Missing argument 'TAG' (see: xorack show --help)"),
    ("shwo tag", "No such command"),
    ("fail tag", "Missing option '--reason' (see: xorack fail --help)"),
    ("fail --reason x", "Missing TAG or --run"),
    ("fail --run r --reason x --json", "--json with --run requires --yes"),
    ("extend a --run r --timeout 1", "TAG and --run cannot be used together"),
    ("extend a --timeout 1e999", "Invalid value for '--timeout': inf is not in the range"),
    *(
        (f"extend a --timeout {text}", f"Invalid value for '--timeout': '{text}', expected seconds")
        for text in ("1x", "1h30", "h", "1.h")
    ),
    ("extend a --timeout nan", "Invalid value for '--timeout': nan is not a number"),
    ("list --status done", "Invalid value for '--status': 'done' is not one"),
    (f"list --limit {'9' * 20}", "Invalid value for '--limit': 99999999999999999999 "),
    ("list --run / ", "Invalid value for '--run': '/', expected the run's name alone"),
    (
        "list --run run1/",
        "Invalid value for '--run': 'run1/', expected the run's name alone, "
        "without a slash: run1 (see",
    ),
    (
        "show -tag",
        "No such option '-t'; put -- before an argument with a dash: xorack show -- -t…",
    ),
    ("list -tag", "No such option '-t' (see: xorack list --help)"),
    ("wait a --interval 0", "Invalid value for '--interval': 0.0 is not in the"),
    ("wait", "expected TAGs or --window (see: xorack wait --help)"),
    ("list --run=", RUN_LENGTH),
    ("redrive --queue x", "--dead-letters and --queue must be used together (see: xorack redrive "),
    ("web --port 65536", "Invalid value for '--port'"),
    # As of `--stack "$STACK"` where the shell has no such variable.
    ("list --stack=", "Invalid value for '--stack': expected a value that is not empty (see: "),
    (
        "redrive --dead-letters=",
        "Invalid value for '--dead-letters': expected a value that is not empty (see: ",
    ),
]


@pytest.mark.parametrize(("arguments", "line"), INVALID)
def test_invalid_arguments_are_one_line_and_status_2(xorack, arguments, line):
    assert_error(xorack(*arguments.split()), 2, line)


KEYS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
PLACE = dict.fromkeys(["AWS_REGION", "AWS_DEFAULT_REGION"], "eu-west-1")
BOTH = {**KEYS, **PLACE}


@pytest.fixture
def configure(monkeypatch):
    """A function that sets the only AWS configuration that the process has."""

    def only(environ):
        others = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        files = dict.fromkeys(["AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"], os.devnull)
        complete = {**others, **files, "AWS_EC2_METADATA_DISABLED": "true", **environ}
        monkeypatch.setattr(os, "environ", complete)
        monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)

    return only


@pytest.mark.parametrize(
    ("environ", "line"),
    [
        (PLACE, "no AWS credentials: log in"),
        (KEYS, "no AWS region: pass --region, or set AWS_REGION"),
        ({**PLACE, "AWS_PROFILE": "gone"}, "The config profile (gone) could not be found"),
        ({**BOTH, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "Could not connect to the endpoint"),
        ({**BOTH, "AWS_ENDPOINT_URL": "nonsense"}, "Invalid endpoint: nonsense"),
    ],
    ids=["credentials", "region", "profile", "network", "endpoint"],
)
def test_a_faulty_configuration_is_one_line(xorack, configure, environ, line):
    configure(environ)
    assert_error(xorack("list", "--table", "t"), 1, line)


@pytest.mark.parametrize(
    ("environ", "chosen", "region"),
    [
        ({"AWS_REGION": "eu-west-1"}, None, "eu-west-1"),
        ({"AWS_DEFAULT_REGION": "us-east-2"}, None, "us-east-2"),
        # As the AWS CLI and the CDK, not as boto3.
        ({"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "us-east-2"}, None, "eu-west-1"),
        ({"AWS_REGION": "", "AWS_DEFAULT_REGION": "us-east-2"}, None, "us-east-2"),
        ({"AWS_REGION": "eu-west-1"}, "eu-north-1", "eu-north-1"),
    ],
)
def test_the_region_is_that_of_the_aws_cli(configure, environ, chosen, region):
    configure({**KEYS, **environ})
    assert Target("stack", chosen).client("sqs").meta.region_name == region
    if chosen:
        boto3.setup_default_session(region_name=chosen)
    assert make_client("sqs").meta.region_name == region


def test_a_region_of_the_environment_that_is_none_is_named(configure):
    configure({**KEYS, "AWS_REGION": "eu west"})
    with pytest.raises(
        ArgumentError, match=r"region: expected a region such as eu-west-1: .*'eu west'"
    ):
        queue_client("http://queue.test:4566/1/q")


def test_a_response_that_is_not_from_aws_is_one_line(stack, xorack, sqs):
    def log_in_first(_):  # a proxy, or a network that wants a login
        raise ResponseParserError("invalid XML received")

    sqs.before["DescribeTable"] = log_in_first
    assert_error(xorack("list"), 1, "the response is not from AWS")


def test_an_item_that_is_not_a_chain_is_one_line(stack, xorack):
    put_invalid_item(stack)
    apply(stack, *(Request("create", f"chain/{n}", "c", traced(1), 1) for n in range(3)))
    line = "error: tag: 'foreign' is not a chain item: its stamp is of type S, expected a Binary"
    chains = {"show foreign": 0, "fail foreign --reason x": 0, "list": 3, "list --json": 3}
    for arguments, count in chains.items():
        status, out, err = xorack(*arguments.split())
        assert (status, err, sum("chain/" in row for row in out)) == (1, [line], count)


@pytest.mark.parametrize(("arguments", "extra"), [(("list",), "cli"), (("local", "env"), "local")])
def test_a_missing_package_names_its_extra(xorack, monkeypatch, arguments, extra):
    monkeypatch.setattr("xorack.cli.find_spec", lambda name: None if name == "jinja2" else name)
    line = f"error: the command line needs jinja2: install xorack with the extra {extra}"
    assert xorack(*arguments) == (1, [], [line])
