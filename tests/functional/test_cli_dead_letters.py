"""`xorack dead-letters`, and selections of `xorack redrive`, over moto in process."""

import base64
import json

import pytest

from tests.support.cli import deliver, named_lines
from tests.support.dead_letters import bodies, put, put_messages
from tests.support.functions import message
from tests.support.services import Message
from xorack import traced
from xorack.aws.clock import milliseconds
from xorack.core.event import rfc3339
from xorack.core.request import Request

STAMP = base64.b64encode(traced(7)).decode()
INVALID = {"op": "stamp", "tag": "run/b", "id": "s", "stamp": STAMP, "started": "two\x1b\u202e"}
VALID = message(Request("stamp", "t", "i", b"8"))


def malformed(*requests):
    return json.dumps({"version": 1, "requests": requests})


LONG = malformed(INVALID).replace('"two', "9" * 5000 + ', "x": "')


def shown(lines):
    """Return the lines that `show` prints of a message, by name; further lines are joined."""
    return {name: "\n".join(filter(None, those)) for name, those in named_lines(lines).items()}


def as_json(xorack, *arguments):
    status, out, err = xorack("dead-letters", "show", "--json", *arguments)
    assert (status in (0, int(not out)), err) == (True, [])
    return [json.loads(line) for line in out]


def left(aws):
    return sorted(letter["MessageId"] for letter in aws.dead_letters())


def test_a_rejected_request_is_shown(stack, xorack, sqs):
    sent_at = milliseconds() - 90_000
    received = Message("original", malformed(INVALID), 1, sent_at, "AROA:loader")
    deliver(stack, [received])
    (message,) = as_json(xorack)
    expected = {
        "kind": "malformed",
        "field": "started",
        "value": "two\x1b\u202e",
        "tags": ["run/b"],
        "sender": "AROA:loader",
        "message_id": "original",
        "sent_at": rfc3339(sent_at),
        "receives": 1,
    }
    assert message == {**message, **expected}
    assert message["error"].startswith("requests[0].started: 'two\\x1b\\u202e', expected a whole")
    assert json.loads(message["body"])["requests"] == [INVALID]
    assert message["sent_at"] < message["rejected_at"] <= message["first_received_at"]

    status, out, err = xorack("dead-letters", "show")
    text = shown(out)
    assert (status, err) == (0, [])
    assert (text["id"], text["original id"]) == (message["id"], "original")
    assert text["value"] == 'started: "two\\u001b\\u202e"'
    assert (text["tag"], text["sender"]) == ("run/b", "AROA:loader")
    assert text["sent"].startswith(f"{rfc3339(sent_at)}, 1 min ")
    assert text["received"].startswith("2 times, first 20")
    assert f'"stamp": "{STAMP[:24]}… (864 characters)"' in text["body"]
    assert '"started": "two\\u001b\\u202e"' in text["body"]
    assert not any(c in "".join(out) for c in "\x1b\u202e")


@pytest.mark.parametrize(
    ("body", "error", "field", "value"),
    [
        ("x" * 5000, None, "body", "x" * 5000),
        ('{"version": 2}', None, "version", 2),
        (malformed(5), None, "request", 5),
        (malformed({"op": "fail", "tag": "t"}), None, None, None),
        (malformed({"op": "fail", "tag": 5, "id": "i"}), None, "tag", 5),
        (LONG, None, "started", "9" * 5000),
        (VALID, "Buffer lengths are not equal", "stamp", "OA=="),
        (VALID, "tag: 't' already exists", "tag", "t"),
        (VALID, None, None, None),
        ("[" * 100_000, None, "body", "[" * 100_000),
    ],
    ids=range(10),
)
def test_the_invalid_value_is_named(stack, xorack, sqs, body, error, field, value):
    put(stack, body, **({"error": error} if error else {}))
    (one,) = as_json(xorack)
    assert (one["field"], one["value"], one["body"]) == (field, value, body)
    status, out, _ = xorack("dead-letters", "show")
    assert (status, sum(map(len, out)) < 6000) == (0, True)


@pytest.mark.parametrize(
    ("selection", "numbers"),
    [
        ("--reason exists --kind rejected", (3, 4)),
        ("--kind failed --kind rejected", (1, 2, 3, 4)),
        ("--tag books/2", (2,)),
        ("--run books --reason books/4", (4,)),
        ("--run book", ()),
    ],
)
def test_a_selection_is_shown_redriven_or_deleted(stack, xorack, sqs, selection, numbers):
    put_messages(stack, failed=(1, 2), rejected=(3, 4), malformed=(7,))
    chosen = bodies(*numbers)
    found = {one["id"]: one["body"] for one in as_json(xorack, *selection.split())}
    assert sorted(found.values()) == chosen
    listed = json.loads(xorack("dead-letters", "list", "--json", *selection.split())[1][0])
    assert (listed["seen"], listed["complete"]) == (len(numbers), True)
    if not numbers:
        none = (1, [], ["none of 5 messages matches"])
        for command in (("dead-letters", "list"), ("dead-letters", "show"), ("redrive",)):
            assert xorack(*command, *selection.split()) == none
    else:
        _, out, _ = xorack("redrive", "--yes", *found)
        stay = f"; {5 - len(numbers)} stay"
        count = "1 message" if len(numbers) == 1 else f"{len(numbers)} messages"
        assert out[-1].startswith(f"{count} sent back")
        assert stay in out[-1] or len(numbers) == 1
    assert sorted(m["Body"] for m in stack.receive_all(stack.queue_url)) == chosen
    assert len(left(stack)) == 5 - len(numbers)


def test_single_messages_are_deleted_after_a_question(stack, xorack, sqs, answer):
    put_messages(stack, failed=(1, 2, 3))
    one, *others = sorted(found["id"] for found in as_json(xorack))
    answer("n\n")
    status, out, _ = xorack("dead-letters", "delete", one)
    assert (status, out[-1].endswith("nothing was deleted")) == (1, True)
    assert out[1].split()[:2] == ["1", "failed"]
    answer("")
    assert xorack("dead-letters", "delete", one)[0] == 1
    status, out, _ = xorack("dead-letters", "delete", one, "--json")
    assert (status, json.loads(out[0])) == (0, {"selected": [one], "deleted": 0})
    answer("y\n")
    assert xorack("dead-letters", "delete", one)[1][-1].endswith("1 message deleted")
    status, out, _ = xorack("dead-letters", "delete", *others[:1], "--json", "--yes")
    assert json.loads(out[0]) == {"selected": others[:1], "deleted": 1}
    assert left(stack) == others[1:]


def test_messages_that_arrive_after_the_list_are_not_deleted(stack, xorack, sqs, monkeypatch):
    put_messages(stack, failed=(1, 2))
    late = []

    def confirm(question):
        late.append(put(stack, *bodies(3)))
        return True

    monkeypatch.setattr("click.confirm", confirm)
    assert xorack("dead-letters", "delete", "--all")[1][-1] == "2 messages deleted"
    assert left(stack) == late


def test_an_empty_queue(stack, xorack, sqs):
    for arguments in ((), ("--all", "--kind", "failed")):
        status, out, (line,) = xorack("dead-letters", "delete", *arguments)
        assert (status, out, "--all" in line) == (2, [], True)
    for command in ("list", "show", "delete --all", "redrive"):
        assert xorack("dead-letters", *command.split()) == (0, ["no dead-lettered messages"], [])
    assert as_json(xorack) == []


def test_corrected_messages_are_sent(stack, xorack, sqs, tmp_path):
    """Every request that is still invalid is reported, and nothing is sent then."""
    put(stack, malformed(INVALID, {**INVALID, "tag": 5}))
    (letter,) = as_json(xorack)
    file = tmp_path / "letters.json"
    file.write_text(json.dumps(letter) + "\n\n[1]\n")
    status, out, err = xorack("dead-letters", "send", str(file))
    assert (status, out, len(err)) == (1, [], 1)
    for problem in (
        "nothing was sent:",
        "line 1: requests[0].started: ",
        "requests[1].",
        "line 3: ",
    ):
        assert problem in err[0]
    assert stack.receive_all(stack.queue_url) == []
    letter["body"] = malformed({**INVALID, "started": 2})
    file.write_text(json.dumps(letter) + "\n" + letter["body"])
    assert xorack("dead-letters", "send", str(file)) == (0, ["2 requests sent"], [])
    # A corrected dead letter keeps its time; a bare body is a new message.
    again, new = sorted(
        stack.receive_all(stack.queue_url), key=lambda one: "MessageAttributes" not in one
    )
    for sent in (again, new):
        assert json.loads(sent["Body"])["requests"] == json.loads(letter["body"])["requests"]
    time = int(again["MessageAttributes"]["sent_at"]["StringValue"])
    assert rfc3339(time) == letter["sent_at"]
    assert "MessageAttributes" not in new


@pytest.mark.parametrize("stack", [{"RetentionSeconds": str(2 * 86_400)}], indirect=True)
def test_a_letter_that_is_too_old_is_not_sent_as_a_new_one(stack, xorack, sqs, tmp_path):
    put(stack, VALID, error="tag: 't' already exists", sent_at=str(milliseconds() - 3 * 86_400_000))
    (letter,) = as_json(xorack)
    assert letter["kind"] == "expired"
    file = tmp_path / "letters.json"
    for sent_at, problem in (
        (letter["sent_at"], f"sent_at: {letter['sent_at']}: too old to accept"),
        ("soon", "sent_at: 'soon', expected a time such as"),
        (5, "sent_at: 5, expected a time"),
    ):
        file.write_text(json.dumps({**letter, "sent_at": sent_at}))
        status, _, err = xorack("dead-letters", "send", str(file))
        assert (status, problem in err[0]) == (1, True)
    assert stack.receive_all(stack.queue_url) == []


def test_what_the_consumer_finds_too_old_is_expired_whatever_the_retention_is_now(
    stack, xorack, sqs
):
    put(stack, VALID, error="sent_at: 5, expected a time", sent_at=str(milliseconds() - 1000))
    assert [one["kind"] for one in as_json(xorack)] == ["expired"]
