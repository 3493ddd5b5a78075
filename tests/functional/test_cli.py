"""The command line, over moto in process: what it prints, and how it ends."""

import io
import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.support.services import Message, consume
from xorack import traced, unit_id
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.aws.eventbridge import EventBus
from xorack.aws.sqs import DeadLetterQueue
from xorack.cli import main
from xorack.core.clock import milliseconds
from xorack.core.message import pack
from xorack.core.request import Request
from xorack.core.stamp import xor

ROOT = Path(__file__).parents[2]
TAG = "books/moby.txt"
FILE, *WORDS = (unit_id(TAG, n) for n in range(6))


@pytest.fixture
def stack(aws):
    """The fixture's resources under the outputs of a stack named xorack."""
    outputs = {
        "TableName": aws.table_name,
        "QueueUrl": aws.queue_url,
        "DeadLetterQueueUrl": aws.dead_letter_queue_url,
        "EventBusName": aws.bus_name,
    }
    make_stack(aws, "xorack", outputs)
    return aws


def make_stack(aws, name, outputs):
    template = {
        "Resources": {"Queue": {"Type": "AWS::SQS::Queue"}},
        "Outputs": {key: {"Value": value} for key, value in outputs.items()},
    }
    aws.client("cloudformation").create_stack(StackName=name, TemplateBody=json.dumps(template))


@pytest.fixture
def xorack(capsys):
    """Runs a command; answers with its status, the lines of stdout, the lines of stderr."""

    def run(*arguments):
        status = main(arguments)
        printed = capsys.readouterr()
        return status, printed.out.splitlines(), printed.err.splitlines()

    return run


def store(aws):
    return DynamoDBStore(aws.table_name, aws.partition_key, aws.client("dynamodb"))


def apply(aws, *requests):
    done = consume(
        [Message(str(n), body) for n, body in enumerate(pack(requests))],
        store(aws),
        EventBus(aws.bus_name, aws.client("events")),
        DeadLetterQueue(aws.dead_letter_queue_url, aws.client("sqs")),
    )
    assert not done.failed
    assert done.outcomes["rejected"] == 0


def start(aws, tag=TAG, **options):
    """A chain whose file is split into five words, of which three are counted."""
    words = xor(*(traced(word) for word in WORDS))
    apply(
        aws,
        Request("create", tag, "c", traced(FILE), 1, **options),
        Request("stamp", tag, "s", xor(traced(FILE), words), 5, 1),
        Request("stamp", tag, "t", xor(*(traced(word) for word in WORDS[:3])), 0, 3),
    )


def finish(aws, tag=TAG):
    apply(aws, Request("stamp", tag, "u", xor(traced(WORDS[3]), traced(WORDS[4])), 0, 2))


def fields(lines):
    """What `show` prints, by name; what goes on in further lines is joined by blanks."""
    told, name = {}, ""
    for line in lines:
        name = line[:12].strip() or name
        told[name] = " ".join(filter(None, [told.get(name), line[13:].strip()]))
    return told


def test_show_names_what_is_outstanding(stack, xorack):
    start(stack, timeout=3600, detail={"path": "/books"})
    status, out, err = xorack("show", TAG)
    told = fields(out)
    assert (status, err) == (0, [])
    assert told["tag"] == TAG
    assert told["status"] == "open"
    assert told["progress"] == "66.6 %"
    assert told["started"] == "6 units"
    assert told["finished"] == "4 units"
    assert sorted(told["outstanding"].split()) == sorted(f"{word:016x}" for word in WORDS[3:])
    assert re.fullmatch(r"20\d\d-.*Z, in 59 min \d+ s", told["deadline"])
    assert "event" not in told


def test_show_prints_json_for_programs(stack, xorack):
    start(stack)
    status, out, _ = xorack("show", TAG, "--json")
    (told,) = map(json.loads, out)
    assert status == 0
    assert told["status"] == "open"
    assert (told["started"], told["finished"], told["percent"]) == (6, 4, 66.6)
    assert told["outstanding"] == sorted(f"{word:016x}" for word in WORDS[3:])
    assert told["outstanding_complete"] is True
    assert told["event_pending"] is False
    assert told["reason"] is None
    assert 0 <= told["age_seconds"] < 60


def test_show_of_an_acked_chain(stack, xorack):
    start(stack)
    finish(stack)
    status, out, _ = xorack("show", TAG)
    told = fields(out)
    assert status == 0
    assert (told["status"], told["progress"], told["event"]) == ("acked", "100 %", "published")
    assert "outstanding" not in told
    assert "deadline" not in told


def test_show_of_an_event_that_is_owed(stack, xorack):
    start(stack)
    chain = store(stack).read([TAG])[TAG]
    stack.client("dynamodb").update_item(
        TableName=stack.table_name,
        Key={"tag": {"S": TAG}},
        UpdateExpression="SET #s = :f, event_pending = :one, ended_at = :now",
        ExpressionAttributeNames={"#s": "status"},
        ExpressionAttributeValues={
            ":f": {"S": "failed"},
            ":one": {"N": "1"},
            ":now": {"N": str(chain.created_at + 5000)},
        },
    )
    told = fields(xorack("show", TAG)[1])
    assert (told["event"], told["took"]) == ("pending", "5.0 s")
    assert json.loads(xorack("show", TAG, "--json")[1][0])["event_pending"] is True


def test_show_of_a_chain_of_the_npm_package(stack, xorack):
    stack.client("dynamodb").put_item(
        TableName=stack.table_name,
        Item={"tag": {"S": "theirs"}, "stamp": {"B": b"\x29" * 64}},
    )
    status, out, _ = xorack("show", "theirs")
    told = fields(out)
    assert status == 0
    assert (told["status"], told["progress"], told["deadline"]) == ("open", "?", "none")
    assert told["outstanding"] == "some units, not to be named from such stamps"
    assert "age" not in told


def test_show_of_more_than_can_be_named(stack, xorack):
    units = [unit_id("many", n) for n in range(500)]
    apply(
        stack,
        Request("create", "many", "c", xor(*(traced(unit) for unit in units)), len(units)),
    )
    assert "500 units, too many to be named" in fields(xorack("show", "many")[1])["outstanding"]


def test_show_of_a_chain_that_is_not_there(stack, xorack):
    assert xorack("show", "nobody/knows") == (
        1,
        [],
        ["error: tag: 'nobody/knows' does not exist"],
    )


def test_show_finds_the_tables_own_key(xorack):
    from tests.support.in_process import create_resources, locked_aws

    with locked_aws() as started:
        aws = create_resources(started, partition_key="id")
        start(aws)
        status, out, _ = xorack("show", TAG, "--table", aws.table_name)
    assert (status, fields(out)["status"]) == (0, "open")


def test_what_a_tag_holds_does_not_steer_the_terminal(stack, xorack):
    evil = "evil\x1b[2J\n[red]tag"
    start(stack, evil)
    apply(stack, Request("fail", evil, "f", reason="so\x07 it\nis"))
    for arguments in (("show", evil), ("list",)):
        _, out, _ = xorack(*arguments)
        text = "\n".join(out)
        assert "evil\\x1b[2J\\n[red]tag" in text
        assert "so\\x07 it\\nis" in text
    assert json.loads(xorack("show", evil, "--json")[1][0])["tag"] == evil


def test_list_filters(stack, xorack):
    start(stack, "a")
    start(stack, "b")
    finish(stack, "b")
    apply(stack, Request("stamp", "c", "s", traced(1), 1))
    apply(stack, Request("create", "d", "c", traced(1), 1), Request("fail", "d", "f", reason="bad"))
    expected = {"a": "open", "b": "acked", "c": "pending", "d": "failed"}

    status, out, err = xorack("list", "--json")
    assert (status, err) == (0, [])
    assert {one["tag"]: one["status"] for one in map(json.loads, out)} == expected

    chosen = ("list", "--json", "--status", "open", "--status", "failed")
    assert {json.loads(line)["tag"] for line in xorack(*chosen)[1]} == {"a", "d"}

    head, *rows = xorack("list")[1]
    assert head.split() == ["TAG", "STATUS", "DONE", "UNITS", "AGE", "TIME", "LEFT", "REASON"]
    assert {row.split()[0]: row.split()[1] for row in rows} == expected
    (failed,) = (row for row in rows if row.startswith("d "))
    assert failed.endswith("bad")


def test_list_stops_at_its_limit_and_says_so(stack, xorack):
    for number in range(5):
        start(stack, f"chain/{number}")
    status, out, err = xorack("list", "--limit", "3")
    assert (status, len(out)) == (0, 1 + 3)
    assert err == ["the first 3; there are more: --limit 0 lists all"]
    assert len(xorack("list", "--limit", "3", "--json")[1]) == 3
    for enough in ("5", "0"):
        _, out, err = xorack("list", "--limit", enough)
        assert (len(out), err) == (1 + 5, [])


def test_list_says_that_there_are_none(stack, xorack):
    assert xorack("list") == (0, ["no chains"], [])
    assert xorack("list", "--status", "failed")[1] == ["no chains that are failed"]
    assert xorack("list", "--json") == (0, [], [])


def test_a_pipe_gets_whole_lines_without_colour(stack, xorack):
    long = "books/" + "very" * 60 + ".txt"
    start(stack, long)
    for arguments in (("list",), ("show", long)):
        text = "\n".join(xorack(*arguments)[1])
        assert long in text
        assert "\x1b" not in text


def test_a_terminal_gets_colour_and_a_bar(stack, xorack, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    start(stack)
    shown = "\n".join(xorack("show", TAG)[1])
    assert "\x1b[36mopen" in shown
    assert "━" * 24 in re.sub(r"\x1b\[[0-9;]*m", "", shown)


def test_fail_ends_a_chain_and_tells(stack, xorack):
    start(stack)
    assert xorack("fail", TAG, "--reason", "withdrawn") == (
        0,
        [f"{TAG}: failed; its event is published"],
        [],
    )
    (event,) = stack.events()
    assert event["detail-type"] == "failed"
    assert event["detail"]["reason"] == "withdrawn"
    assert len(event["detail"]["outstanding"]) == 2
    chain = store(stack).read([TAG])[TAG]
    assert (chain.status, chain.event_pending) == ("failed", False)

    assert xorack("fail", TAG, "--reason", "again") == (
        1,
        [],
        [f"error: {TAG} is failed already: nothing changed"],
    )
    assert stack.events() == []


def test_fail_of_a_chain_that_is_not_there_makes_none(stack, xorack):
    assert xorack("fail", "typo", "--reason", "x") == (1, [], ["error: tag: 'typo' does not exist"])
    assert list(store(stack).scan()) == []


def test_fail_of_a_chain_that_is_not_created_yet(stack, xorack):
    apply(stack, Request("stamp", "early", "s", traced(1), 1))
    status, out, _ = xorack("fail", "early", "--reason", "no")
    assert (status, out) == (0, ["early: pending; it fails as soon as it is created"])
    apply(stack, Request("create", "early", "c", traced(2), 1))
    assert store(stack).read(["early"])["early"].status == "failed"


def test_fail_by_the_table_alone_leaves_the_event_to_the_sweeper(stack, xorack):
    start(stack)
    status, out, _ = xorack("fail", TAG, "--reason", "x", "--table", stack.table_name, "--json")
    told = json.loads(out[0])
    assert (status, told["status"], told["event_pending"], told["changed"]) == (
        0,
        "failed",
        True,
        True,
    )
    assert stack.events() == []
    chain = store(stack).read([TAG])[TAG]
    assert chain.event_pending
    assert chain.due_at is not None
    assert chain.due_at <= milliseconds() + 120_000


def test_a_stack_that_is_not_there_is_named(aws, xorack):
    assert xorack("show", TAG, "--stack", "orders") == (
        1,
        [],
        [
            "error: there is no stack orders in us-east-1: name yours with --stack, or its table "
            "with --table"
        ],
    )


def test_a_stack_of_something_else_is_named(aws, xorack):
    make_stack(aws, "shop", {"TableName": "customers"})
    status, _, (line,) = xorack("list", "--stack", "shop")
    assert status == 1
    assert line.startswith(
        "error: stack shop is CREATE_COMPLETE and has no output QueueUrl, DeadLetterQueueUrl"
    )


def test_the_stack_may_come_from_the_environment(aws, xorack, monkeypatch):
    monkeypatch.setenv("XORACK_STACK", "of-the-environment")
    assert "no stack of-the-environment" in xorack("list")[2][0]
    monkeypatch.setenv("XORACK_TABLE", aws.table_name)
    assert xorack("list") == (0, ["no chains"], [])


def test_a_table_that_is_not_there_is_named(aws, xorack):
    line = "error: there is no table gone in us-east-1"
    assert xorack("show", TAG, "--table", "gone") == (1, [], [line])
    _, _, err = xorack("list", "--table", "gone", "--region", "eu-west-1")
    assert err == ["error: there is no table gone in eu-west-1"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["show"], "error: Missing argument 'TAG' (see: xorack show --help)"),
        (["show", TAG, "--jsno"], "error: No such option"),
        (["shwo", TAG], "error: No such command"),
        (["list", "--status", "done"], "error: Invalid value for '--status': 'done' is not one"),
        (["list", "--limit", "-1"], "error: Invalid value for '--limit': -1 is not in the range"),
        (["fail", TAG], "error: Missing option '--reason' (see: xorack fail --help)"),
        (["demo", "--dir", "/not/there"], "error: Invalid value for --dir: /not/there: No such"),
        (["demo", "--dir", ""], "error: Invalid value for --dir: it is empty"),
        (["demo", "--dir", __file__], "error: Invalid value for --dir: "),
        (["watch", "--interval", "0"], "error: Invalid value for '--interval': 0.0 is not in the"),
        (
            ["watch", "--limit", "101"],
            "error: Invalid value for '--limit': 101 is not in the range",
        ),
        (
            ["redrive", "--queue", "x"],
            "error: --dead-letters and --queue go together (see: xorack ",
        ),
        (["watch", "--interval", "nan"], "error: Invalid value for '--interval': nan is no number"),
        (
            ["list", "--limit", "9" * 20],
            "error: Invalid value for '--limit': 99999999999999999999 ",
        ),
        (
            ["demo", "--encoding", "utf-9"],
            "error: Invalid value for '--encoding': 'utf-9' is not known",
        ),
        (["demo", "--port", "0"], "error: Invalid value for '--port': 0 is not in the range"),
    ],
)
def test_a_mistake_in_the_arguments_is_one_line_and_status_2(xorack, arguments, line):
    status, out, err = xorack(*arguments)
    assert (status, out) == (2, [])
    assert len(err) == 1
    assert err[0].startswith(line)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["show", ""], "error: tag: '', expected a string of 1 to 1024 UTF-8 bytes without NUL"),
        (["fail", TAG, "--reason", "x" * 1025], "error: reason: "),
    ],
)
def test_what_the_protocol_does_not_allow_is_one_line(stack, xorack, arguments, line):
    status, out, err = xorack(*arguments)
    assert (status, out) == (1, [])
    assert len(err) == 1
    assert err[0].startswith(line)


def child(*arguments, **environ):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    clean["AWS_CONFIG_FILE"] = clean["AWS_SHARED_CREDENTIALS_FILE"] = os.devnull
    clean["AWS_EC2_METADATA_DISABLED"] = "true"
    done = subprocess.run(
        [sys.executable, "-m", "xorack.cli", *arguments],
        env={**clean, **environ},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout.splitlines(), done.stderr.splitlines()


KEYS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
PLACE = {"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "eu-west-1"}


@pytest.mark.parametrize(
    ("environ", "line"),
    [
        (PLACE, "error: no AWS credentials: log in"),
        (KEYS, "error: no AWS region: give --region, or set AWS_REGION"),
        ({**PLACE, "AWS_PROFILE": "gone"}, "error: The config profile (gone) could not be found"),
        (
            {**KEYS, **PLACE, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"},
            "error: cannot reach http://127.0.0.1:9",
        ),
        (
            {**KEYS, **PLACE, "AWS_ENDPOINT_URL": "nonsense"},
            "error: Invalid endpoint: nonsense",
        ),
    ],
    ids=["credentials", "region", "profile", "network", "endpoint"],
)
def test_what_is_missing_of_the_configuration_is_one_line(environ, line):
    status, out, err = child("list", "--table", "t", **environ)
    assert (status, out) == (1, [])
    assert len(err) == 1
    assert err[0].startswith(line)


def test_help_has_an_example_for_every_command(xorack):
    status, out, _ = xorack("--help")
    assert status == 0
    commands = re.findall(r"^  (\w+)  ", "\n".join(out).partition("Commands:")[2], re.MULTILINE)
    assert {"demo", "show", "list", "fail", "watch", "redrive"} <= set(commands)
    for command in commands:
        status, out, _ = xorack(command, "--help")
        assert status == 0
        assert f"Example: xorack {command}" in "\n".join(out)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_completes(shell):
    status, out, err = child(_XORACK_COMPLETE=f"{shell}_source")
    assert (status, err) == (0, [])
    assert f"_XORACK_COMPLETE={shell}_complete" in "\n".join(out)
    words = {"COMP_WORDS": "xorack re", "COMP_CWORD": "1" if shell != "fish" else "re"}
    status, out, err = child(_XORACK_COMPLETE=f"{shell}_complete", **words)
    assert (status, err) == (0, [])
    assert any("redrive" in line for line in out)


def test_a_reader_that_has_read_enough_is_no_trouble():
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "xorack.cli", "--help"],
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, "")


def test_signs_that_the_terminal_does_not_know_are_no_trouble(stack, monkeypatch):
    start(stack, "Bücher/☃")
    for arguments, shown in (
        (["list"], b"B\\xfccher/\\u2603"),
        (["show", "Bücher/☃"], b"B\\xfccher/\\u2603"),
        (["show", "Bücher/☃", "--json"], b"B\\u00fccher/\\u2603"),
    ):
        printed = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
        monkeypatch.setattr(sys, "stdout", printed)
        assert main(arguments) == 0
        assert shown in printed.buffer.getvalue()


# -- items that are no chains ----------------------------------------------------------------------


def put_strange(aws, tag="strange"):
    """What some other program may have written into the table."""
    aws.client("dynamodb").put_item(
        TableName=aws.table_name, Item={"tag": {"S": tag}, "stamp": {"S": "text"}}
    )


STRANGE = "error: tag: 'strange' is an item that is no chain: its stamp is of type S, expected a Bi"


@pytest.mark.parametrize(
    "arguments", [("show", "strange"), ("fail", "strange", "--reason", "x")], ids=["show", "fail"]
)
def test_an_item_that_is_no_chain_is_one_line(stack, xorack, arguments):
    put_strange(stack)
    status, out, err = xorack(*arguments)
    assert (status, out, len(err)) == (1, [], 1)
    assert err[0].startswith(STRANGE)


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_list_shows_the_chains_beside_an_item_that_is_none(stack, xorack, options):
    put_strange(stack)
    for number in range(3):
        start(stack, f"chain/{number}")
    status, out, err = xorack("list", *options)
    assert status == 1
    assert sum("chain/" in line for line in out) == 3
    assert len(err) == 1
    assert err[0].startswith(STRANGE)


# -- tables ----------------------------------------------------------------------------------------


@pytest.fixture
def terminal(monkeypatch):
    """Makes stdout a terminal of that many columns, as far as its reader can tell."""

    def of(columns, term="xterm-256color"):
        monkeypatch.setenv("TTY_COMPATIBLE", "1")
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setenv("TERM", term)
        monkeypatch.setenv("COLUMNS", str(columns))

    return of


@pytest.mark.parametrize("columns", [30, 40, 80, 120])
def test_no_terminal_is_too_narrow_for_a_table(stack, xorack, terminal, columns):
    reason = "the source was withdrawn by its owner; " * 6
    start(stack, "books/failed", timeout=86_400)
    apply(stack, Request("fail", "books/failed", "f", reason=reason))
    apply(stack, Request("create", "books/large", "c", traced(1), 12_345, timeout=599))
    terminal(columns)
    out = re.sub("\x1b\\[[0-9;]*m", "", "\n".join(xorack("list")[1]))
    for whole in ("books/failed", "books/large", "0/12,345", "66.6 %"):
        assert whole in out
    assert re.search(r"\b\d min \d+ s\b", out)  # of the deadline: an hour would be cut as "1 h"
    # What is long may go on in further lines; nothing of it is missing.
    assert re.sub(r"\s", "", out).count("withdrawn") == 6


def test_one_long_tag_leaves_the_other_lines_readable(stack, xorack):
    start(stack, "short")
    start(stack, "long" * 200)
    _, out, _ = xorack("list")
    lines = {line.split()[0]: line for line in out}
    assert len(lines["short"]) < 140
    assert lines["short"].index("open") == lines["TAG"].index("STATUS")
    assert "long" * 200 in lines


def test_list_says_that_a_deadline_has_passed(stack, xorack):
    start(stack, timeout=0.001)
    assert " passed" in xorack("list")[1][1]


# -- what a shell may do ---------------------------------------------------------------------------


def test_without_a_command_there_is_the_help(xorack):
    status, out, err = xorack()
    assert (status, out) == (2, [])
    assert err == xorack("--help")[1]


def test_the_list_of_commands_says_what_each_is_for(xorack, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = "\n".join(xorack("--help")[1])
    assert "..." not in text.partition("Commands:")[2]
    assert "Example" in text


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("list", "--stack"),
        ("list", "--table"),
        ("show", "--region"),
        ("redrive", "--stack"),
        ("redrive", "--dead-letters"),
        ("redrive", "--queue"),
    ],
)
def test_an_option_that_is_empty_is_named(xorack, command, option):
    # As of `--stack "$STACK"` where there is no such variable.
    status, out, err = xorack(command, *([TAG] if command == "show" else []), option, "")
    assert (status, out) == (2, [])
    assert err == [
        f"error: Invalid value for '{option}': it is empty (see: xorack {command} --help)"
    ]


def shell(line, **environ):
    """Runs a line of a shell in which `xorack` is the command line."""
    command = f"xorack() {{ '{sys.executable}' -m xorack.cli \"$@\"; }}; {line}"
    done = subprocess.run(
        ["bash", "-c", command],
        env={**os.environ, **environ},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout.splitlines(), done.stderr.splitlines()


def test_a_closed_stdout_is_no_trouble():
    assert shell("xorack --help >&-") == (0, [], [])
    assert shell("xorack shwo >&- 2>&-") == (2, [], [])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_one_line():
    assert shell("xorack --help >/dev/full") == (
        1,
        [],
        ["error: cannot write: No space left on device"],
    )


def test_an_answer_that_is_not_of_aws_is_one_line():
    # As of a proxy, or a Wi-Fi that wants one to log in.
    class Portal(BaseHTTPRequestHandler):
        def do_POST(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html><body>Please log in<br></html>")

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Portal) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        place = {**KEYS, **PLACE, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}"}
        status, out, err = child("list", **place)
        server.shutdown()
    assert (status, out, len(err)) == (1, [], 1)
    assert err[0].startswith("error: what answered is not AWS")
