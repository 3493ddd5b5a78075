"""The command line, over moto in process: its output and its exit status."""

import io
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from socketserver import StreamRequestHandler, TCPServer

import boto3
import pytest

from tests.support.cli import (
    TAG,
    apply,
    assert_error,
    commands_of,
    create_stack,
    finish,
    put_invalid_item,
    start,
    store,
)
from tests.support.in_process import create_resources, locked_aws
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
    values, name = {}, ""
    for line in out:
        name = line[:12].strip() or name
        values[name] = " ".join(filter(None, [values.get(name), line[13:].strip()]))
    return values


def test_show_names_the_outstanding_units(stack, xorack):
    outstanding = start(stack, timeout=3600, detail={"path": "/books"})
    shown = fields(xorack("show", TAG))
    assert (shown["tag"], shown["status"], shown["progress"]) == (TAG, "open", "66.6 %")
    assert (shown["started"], shown["finished"]) == ("6 units", "4 units")
    assert sorted(shown["outstanding"].split()) == sorted(outstanding)
    assert re.fullmatch(r"20\d\d-.*Z, in 59 min \d+ s", shown["deadline"])
    assert "event" not in shown
    (shown,) = map(json.loads, xorack("show", TAG, "--json")[1])
    expected = read_status(store(stack), TAG).to_json()
    assert 0 <= shown["age_seconds"] <= expected["age_seconds"] < 60
    assert {**shown, "age_seconds": expected["age_seconds"]} == expected


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
    for name in ("oil", "7", '[["line", 3]]', '["page 2", "line 1"]'):
        assert re.search(rf" [0-9a-f]{{16}}  {re.escape(name)}$", text, re.MULTILINE), name
    (shown,) = map(json.loads, xorack("show", "order/18", "--json", "--among", names)[1])
    assert list(shown["outstanding_names"]) == shown["outstanding"]
    assert "oil" in shown["outstanding_names"].values()
    names.write_text("wick\n")
    (shown,) = map(json.loads, xorack("show", "order/18", "--json", "--among", names)[1])
    assert set(shown["outstanding_names"].values()) == {None}


@pytest.mark.parametrize("line", ["[", "[]", "[1.5]", '["a", null]', "[true]"])
def test_a_path_that_is_none(stack, xorack, order, tmp_path, line):
    names = tmp_path / "names.txt"
    names.write_text(f"oil\n{line}\n")
    expected = f"line 2: {line!r}, expected a name, or a JSON list of names\n"
    assert_error(xorack("show", "order/18", "--among", names), 2, expected)


def test_show_of_an_acked_chain(stack, xorack):
    start(stack)
    finish(stack)
    shown = fields(xorack("show", TAG))
    assert (shown["status"], shown["progress"], shown["event"]) == ("acked", "100 %", "published")
    assert not {"outstanding", "deadline"} & set(shown)


def test_show_of_a_chain_of_the_npm_package(stack, xorack):
    stack.client("dynamodb").put_item(
        TableName=stack.table_name, Item={"tag": {"S": "theirs"}, "stamp": {"B": b"\x29" * 64}}
    )
    shown = fields(xorack("show", "theirs"))
    assert (shown["status"], shown["progress"], shown["deadline"]) == ("open", "?", "none")
    assert shown["outstanding"] == "some units, this stamp names none"
    assert "age" not in shown


def test_show_finds_the_tables_own_key(xorack):
    with locked_aws() as started:
        aws = create_resources(started, partition_key="id")
        start(aws)
        assert fields(xorack("show", TAG, "--table", aws.table_name))["status"] == "open"


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

    head, *rows = xorack("list")[1]
    assert head.split() == ["TAG", "STATUS", "DONE", "UNITS", "AGE", "TIME", "LEFT", "REASON"]
    assert {row.split()[0]: row.split()[1] for row in rows} == expected
    first, *_, last = sorted(rows)
    assert (" passed" in first, last.endswith("bad")) == (True, True)


def test_list_stops_at_its_limit_and_says_so(stack, xorack):
    apply(stack, *(Request("create", f"chain/{n}", "c", traced(1), 1) for n in range(5)))
    status, out, err = xorack("list", "--limit", "3")
    assert (status, len(out)) == (0, 1 + 3)
    (line,) = err
    assert line.startswith("the first 3; there are more: --limit 0 lists all, the next page is ")
    assert len(xorack("list", "--limit", "3", "--json")[1]) == 3
    for enough in ("5", "0"):
        _, out, err = xorack("list", "--limit", enough)
        assert (len(out), err) == (1 + 5, [])


def test_list_of_an_empty_table(stack, xorack):
    assert xorack("list") == (0, ["no chains"], [])
    assert xorack("list", "--status", "failed")[1] == ["no chains that are failed"]
    assert xorack("list", "--json") == (0, [], [])
    for option, conditions in (
        ("--prefix", "that are open and meet all conditions"),
        ("--run", "of run x that are open"),
    ):
        assert xorack("list", option, "x", "--status", "open")[1] == [f"no chains {conditions}"]


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


ORDERS = "there is no stack orders in us-east-1: name yours with --stack"
TAG_LENGTH = "expected a string of 1 to 1024 UTF-8 bytes without NUL"


@pytest.mark.parametrize(
    ("status", "arguments", "line"),
    [
        (1, "show typo", "tag: 'typo' does not exist\n"),
        (1, "fail typo --reason x", "tag: 'typo' does not exist\n"),
        (1, "show typo --table gone", "there is no table gone in us-east-1\n"),
        (1, "list --table gone --region eu-west-1", "there is no table gone in eu-west-1\n"),
        (1, "redrive --stack orders", ORDERS),
        (1, "show typo --stack orders", f"{ORDERS}, or its table with --table"),
        (
            1,
            "list --stack shop",
            "stack shop is CREATE_COMPLETE and has no output QueueUrl, ",
        ),
        (2, "show ", f"tag: '', {TAG_LENGTH}"),
        (2, "watch ", f"tag: '', {TAG_LENGTH}"),
        (2, f"fail {TAG} b --reason {'x' * 1025}", "reason: 'xxx"),
        (2, "extend a\0 --timeout 1", "tag: 'a\\x00', expected a string"),
        (
            2,
            "list --order age --after x",
            "after: 'x', expected the position of a list in the order of",
        ),
    ],
    ids=range(12),
)
def test_an_error_of_a_request_is_one_line(stack, xorack, status, arguments, line):
    create_stack(stack, "shop", {"TableName": "customers"})
    assert_error(xorack(*arguments.split(" ")), status, line)
    assert list(store(stack).scan()) == []


def test_the_stack_may_come_from_the_environment(aws, xorack, monkeypatch):
    monkeypatch.setenv("XORACK_STACK", "of-the-environment")
    assert "no stack of-the-environment" in xorack("list")[2][0]
    monkeypatch.setenv("XORACK_TABLE", aws.table_name)
    assert xorack("list") == (0, ["no chains"], [])


RUN_LENGTH = f"Invalid value for '--run': '', {TAG_LENGTH}"
INVALID = [
    ("show", "Missing argument 'TAG' (see: xorack show --help)"),
    ("show tag --jsno", "No such option"),
    ("shwo tag", "No such command"),
    ("fail tag", "Missing option '--reason' (see: xorack fail --help)"),
    ("fail --reason x", "Missing TAG or --run"),
    ("fail --run r --reason x --json", "--json with --run requires --yes"),
    ("extend a --run r --timeout 1", "TAG and --run cannot be used together"),
    ("extend a --timeout 1e999", "Invalid value for '--timeout': inf is not in the range"),
    ("list --status done", "Invalid value for '--status': 'done' is not one"),
    (f"list --limit {'9' * 20}", "Invalid value for '--limit': 99999999999999999999 "),
    ("list --run / ", "Invalid value for '--run': '/', expected the run's name alone"),
    ("list --run a --prefix b", "--run and --prefix cannot be used together"),
    ("watch --interval 0", "Invalid value for '--interval': 0.0 is not in the"),
    ("watch --run a/b", "Invalid value for '--run': 'a/b', expected the run's name alone"),
    ("wait", "Missing TAG or --run (see: xorack wait --help)"),
    ("wait --run=", RUN_LENGTH),
    ("wait --run a b", "TAG and --run cannot be used together (see: xorack wait --help)"),
    ("wait a --chains 1", "--chains requires --run (see: xorack wait --help)"),
    ("redrive --queue x", "--dead-letters and --queue must be used together (see: xorack redrive "),
    ("demo --dir /not/there", "Invalid value for --dir: /not/there: No such"),
    ("demo --dir=", "Invalid value for --dir: it is empty"),
    (f"demo --dir {__file__}", "Invalid value for --dir: "),
    ("demo --encoding utf-9", "Invalid value for '--encoding': 'utf-9' is not known"),
    ("local start -c resume", "Invalid value for '-c': 'resume', expected NAME=VALUE"),
    *(
        (f"{command} --{option} nan", f"Invalid value for '--{option}': nan is not a number")
        for command, option in (
            ("watch", "interval"),
            ("extend a", "timeout"),
            ("wait --run a", "timeout"),
        )
    ),
    ("list --older-than nan", "Invalid value for '--older-than'"),
    # As of `--stack "$STACK"` where the shell has no such variable.
    *(
        (f"{command} --{option}=", f"Invalid value for '--{option}': the value is empty (see: ")
        for command, options in (
            ("list", ("stack", "table", "prefix", "after")),
            ("show tag", ("region",)),
            ("redrive", ("stack", "dead-letters", "queue")),
        )
        for option in options
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
        (KEYS, "no AWS region: give --region, or set AWS_REGION"),
        ({**PLACE, "AWS_PROFILE": "gone"}, "The config profile (gone) could not be found"),
        ({**BOTH, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "cannot reach http://127.0.0.1:9"),
        ({**BOTH, "AWS_ENDPOINT_URL": "nonsense"}, "Invalid endpoint: nonsense"),
    ],
    ids=["credentials", "region", "profile", "network", "endpoint"],
)
def test_a_faulty_configuration_is_one_line(xorack, configure, environ, line):
    configure(environ)
    assert_error(xorack("list", "--table", "t"), 1, line)


def test_a_response_that_is_not_from_aws_is_one_line(xorack, configure):
    class Portal(StreamRequestHandler):
        """A proxy, or a network that wants a login first."""

        def handle(self):
            received = b""
            while b"StackName=" not in received:
                received += self.request.recv(65536)
            self.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n<html><body>Please log in<br></html>")

    with TCPServer(("127.0.0.1", 0), Portal) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        configure({**BOTH, "AWS_ENDPOINT_URL": url})
        assert_error(xorack("list"), 1, "the response is not from AWS")


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


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_completes(xorack, monkeypatch, shell):
    printed = {"source": f"_XORACK_COMPLETE={shell}_complete", "complete": "redrive"}
    monkeypatch.setenv("COMP_WORDS", "xorack re")
    monkeypatch.setenv("COMP_CWORD", "re" if shell == "fish" else "1")
    for step, text in printed.items():
        monkeypatch.setenv("_XORACK_COMPLETE", f"{shell}_{step}")
        status, out, err = xorack()
        assert (status, err) == (0, [])
        assert text in "\n".join(out)


def test_an_item_that_is_not_a_chain_is_one_line(stack, xorack):
    put_invalid_item(stack)
    apply(stack, *(Request("create", f"chain/{n}", "c", traced(1), 1) for n in range(3)))
    line = "error: tag: 'foreign' is not a chain item: its stamp is of type S, expected a Binary"
    chains = {"show foreign": 0, "fail foreign --reason x": 0, "list": 3, "list --json": 3}
    for arguments, count in chains.items():
        status, out, err = xorack(*arguments.split())
        assert (status, err, sum("chain/" in row for row in out)) == (1, [line], count)


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


def test_a_terminal_gets_colour_and_a_bar(stack, xorack, monkeypatch):
    for name, value in {"FORCE_COLOR": "1", "NO_COLOR": "", "TERM": "xterm-256color"}.items():
        monkeypatch.setenv(name, value)
    start(stack)
    shown = "\n".join(xorack("show", TAG)[1])
    assert "\x1b[36mopen" in shown
    assert "━" * 24 in ANSI.sub("", shown)


@pytest.mark.parametrize("columns", [30, 80])
def test_no_terminal_is_too_narrow_for_a_table(stack, xorack, monkeypatch, columns):
    reason = "the source was withdrawn by its owner; " * 6
    start(stack, "books/failed", timeout=86_400)
    apply(stack, Request("fail", "books/failed", "f", reason=reason))
    apply(stack, Request("create", "books/large", "c", traced(1), 12_345, timeout=599))
    terminal = {"TTY_COMPATIBLE": "1", "NO_COLOR": "1", "TERM": "xterm-256color"}
    for name, value in {**terminal, "COLUMNS": str(columns)}.items():
        monkeypatch.setenv(name, value)
    out = ANSI.sub("", "\n".join(xorack("list")[1]))
    for whole in ("books/failed", "books/large", "0/12,345", "66.6 %"):
        assert whole in out
    assert re.search(r"\b\d min \d+ s\b", out)  # of the deadline: an hour would be cut as "1 h"
    # A long cell may continue in further lines, complete.
    assert re.sub(r"\s", "", out).count("withdrawn") == 6


def test_characters_outside_the_terminals_encoding(stack, monkeypatch):
    start(stack, "Bücher/☃")
    for arguments, shown in (
        (["list"], rb"B\xfccher/\u2603"),
        (["show", "Bücher/☃", "--json"], rb"B\u00fccher/\u2603"),
    ):
        printed = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
        monkeypatch.setattr(sys, "stdout", printed)
        assert main(arguments) == 0
        assert shown in printed.buffer.getvalue()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("line", "status", "err"),
    [
        ("xorack --help >&-", 0, []),
        ("xorack shwo >&- 2>&-", 2, []),
        # The reader of the pipe is gone.
        ("set -o pipefail; exec 3> >(exit); wait $!; xorack --help >&3", 1, []),
        ("xorack --help >/dev/full", 1, ["error: cannot write: No space left on device"]),
    ],
    ids=["closed", "both closed", "no reader", "full"],
)
def test_an_output_that_cannot_be_written(line, status, err):
    if "/dev/full" in line and not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    command = f"xorack() {{ '{sys.executable}' -m xorack.cli \"$@\"; }}; {line}"
    root = Path(__file__).parents[2]
    ended = subprocess.run(["bash", "-c", command], cwd=root, capture_output=True, check=False)
    assert (ended.returncode, ended.stdout) == (status, b"")
    assert ended.stderr.decode().splitlines() == err
