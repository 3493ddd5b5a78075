"""No value of a masked field stands in any output: events, table, queues, logs, commands, pages."""

import json
import logging

import pytest

from tests.support.functions import message, receive_bodies
from tests.support.web import request, serving
from xorack import Tracker, fan_out, traced
from xorack.core.errors import ArgumentError
from xorack.core.masking import mask_of, masked, masked_fields, masked_letter
from xorack.core.request import Request

SECRET = "ahab@pequod.example"
DETAIL = {"Customer": SECRET, "order": 7, "lines": [{"customer": {"mail": SECRET}, "n": 1}]}


@pytest.fixture
def outputs(functions, stack, xorack, sqs, caplog):
    """A function that returns all that shows a chain and its dead letters, by name."""
    caplog.set_level(logging.DEBUG, "xorack")

    def read(tag):
        found = {"item": functions.item(tag), "events": functions.events()}
        for name, *command in (
            ("show", "show", tag),
            ("show --json", "show", tag, "--json"),
            ("list", "list", "--json"),
            ("explain", "explain", tag),
            ("explain --run", "explain", "--run", tag.partition("/")[0]),
            ("dead letters", "dead-letters", "show"),
            ("dead letters --json", "dead-letters", "show", "--json"),
        ):
            status, out, err = xorack(*command)
            assert status == 0, (name, out, err)
            found[name] = out
        with serving(stack) as server:
            for path in ("", f"chain?tag={tag}", "dead-letters"):
                page = request(server, path)
                assert page.status == 200, path
                found[f"page {path}"] = page.text
        found["letters"] = stack.dead_letters()
        found["log"] = [[line.getMessage(), vars(line)] for line in caplog.records]
        return {name: repr(value) for name, value in found.items()}

    return read


def rejected(secret):
    """Return messages that are rejected: in part invalid, of a used tag, of no version."""
    again = {"op": "create", "tag": "run/1", "id": "c2", "stamp": "AQ==", "detail": {}}
    letters = [
        {**again, "detail": {"Customer": secret}},
        {**again, "detail": {"Customer": secret}, "timeout": "soon"},
        {**again, "detail": [{"customer": secret}]},
        {**again, "detail": secret},
        {**again, "customer": secret},
        {**again, "details": {"customer": secret}},
    ]
    bodies = [{"version": 1, "requests": letters}, {"version": 2, "requests": letters}]
    beside = {"version": 2, "requests": [again], "customer": secret, "by": {"customer": secret}}
    twice = json.dumps({"version": 2, "requests": [again]})
    twice = twice.replace('"detail": {}', f'"detail": {{"customer": "{secret}"}}, "detail": {{}}')
    return [*map(json.dumps, [*bodies, beside]), twice]


def test_what_the_acker_masks_is_in_no_output(functions, outputs, monkeypatch):
    monkeypatch.setenv("MASK", "customer, other")
    created = Request.create("run/1", "c", traced(1), detail=DETAIL)
    functions.consume(message(created), *rejected(SECRET))
    functions.consume(message(created))  # a copy, as SQS may deliver it
    functions.consume(message(Request.fail("run/1", "f", "no harpoon")))
    found = outputs("run/1")
    assert [name for name, text in found.items() if SECRET in text] == []
    hashed = [name for name, text in found.items() if masked(SECRET) in text]
    assert {"item", "events", "show", "show --json", "letters", "page chain?tag=run/1"} <= {*hashed}
    assert "'order': 7" in found["events"]


def test_what_a_tracker_masks_leaves_it_as_a_hash(functions, aws, caplog):
    caplog.set_level(logging.DEBUG, "xorack")
    tracker = Tracker(aws.queue_url, aws.client("sqs"), mask=["customer"])
    token = tracker.start("run/1", detail=DETAIL)

    def repeat():
        with tracker.step(token) as step:
            fan_out(step, [((SECRET, 1), "a"), ((SECRET, 1), "b")], aws.queue_url)

    with pytest.raises(ArgumentError) as raised:
        repeat()
    with pytest.raises(ArgumentError) as no_pair:
        fan_out(tracker.step(token), [SECRET], aws.queue_url)
    tracker.fail(token, "twice")
    sent = receive_bodies(aws, aws.queue_url)
    assert functions.consume(*sent) == []
    event = functions.events()["run/1"]
    for text in (
        str(raised.value),
        str(no_pair.value),
        *sent,
        json.dumps(event),
        caplog.text,
        repr(tracker),
    ):
        assert SECRET not in text
    hashed = {"Customer": masked(SECRET), "order": 7}
    assert event["detail"].items() >= hashed.items()
    assert event["detail"]["lines"] == [{"customer": masked({"mail": SECRET}), "n": 1}]
    assert event["status"] == "failed"


def test_equal_values_have_equal_hashes_and_a_hash_is_its_own():
    assert masked("a") == masked(masked("a")) == "#ca978112ca1b"  # SHA-256 of it begins so
    assert masked({"x": 1, "y": [None]}) == masked({"y": [None], "x": 1})
    assert masked(None) is None
    assert len({masked(value) for value in ("", 0, 1.5, True, [], {}, "\ud800", "0.0")}) == 8
    assert masked_fields(DETAIL, ()) is DETAIL


@pytest.mark.parametrize("names", [5, [""], ["a", 5], "a,,b", " ", {"a": 1}.keys() | {""}])
def test_a_mask_is_of_names(names):
    with pytest.raises(ArgumentError, match=r"mask: .*expected names of fields"):
        mask_of(names)


LETTERS = ["no JSON", "[", "[1]", *(f'{{"requests": {x}}}' for x in ("5", "[5]", '[{"op": 1}]'))]


@pytest.mark.parametrize("name", ["mail", "$mail", "e-mail", "a.b"])
def test_a_reason_does_not_quote_a_masked_field(name):
    reason = f"requests[0]: {name}: 'secret', expected a name; mailbox: 'b', expected c"
    expected = f"requests[0]: {name}: …, expected a name; mailbox: 'b', expected c"
    assert masked_letter("", reason, {name}) == ("", expected)


@pytest.mark.parametrize("body", LETTERS)
def test_a_message_without_masked_values_stays_as_it_is(body):
    reason = "requests[0].timeout: 'soon', expected seconds; op: 'a', expected create"
    assert masked_letter(body, reason, {"a"}) == (body, reason)
