"""No value of a masked field stands in any output: events, table, queues, logs, commands, pages."""

import base64
import json
import logging
from random import Random

import pytest

from tests.support.fakes import FakeQueue
from tests.support.functions import message, receive_bodies
from tests.support.web import request, serving
from xorack import Token, Tracker, fan_out, traced
from xorack.core.errors import ArgumentError
from xorack.core.masking import mask_of, masked, masked_dead_letter, masked_fields, masked_path
from xorack.core.message import parse
from xorack.core.request import Request
from xorack.core.transitions import Limits, apply

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
    again = {"op": "create", "tag": "run/1", "id": "c2", "stamp": "AQ=="}
    letters = [{**again, "detail": {"Customer": secret}}, {**again, "customer": secret}]
    return [json.dumps({"version": version, "requests": letters}) for version in (1, 2)]


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
    with pytest.raises(ArgumentError) as no_pair, tracker.step(token) as step:
        fan_out(step, [SECRET], aws.queue_url)
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


VALUE = "AHAB7731"
MASKED_NAMES = ("customer", "Customer", "CUSTOMER", "e-mail")
OTHERS = ("x", "", 5, 1.5, None, True, [], {}, "soon", ", expected ")
ENCODED_BODIES = (
    *[str] * 6,
    json.dumps,
    lambda body: json.dumps(json.dumps(body)),
    lambda body: "\ufeff" + body,
    lambda body: body[:-1],
    lambda body: body + ",",
    lambda body: body.replace('"', "'"),
    lambda body: body.replace("AHAB", "\\u0041HAB"),
    lambda body: f"[{body}]",
    lambda body: body.replace('"version": 1', '"version": NaN'),
    lambda body: '{"x":' * 200 + body + "}" * 200,
    lambda body: body.replace('"op"', f'"detail": {{"customer": "{VALUE}"}}, "op"'),
)


class Senders:
    """Senders of messages in which the value stands under a masked name or in an invalid place."""

    def __init__(self, seed):
        self.random = Random(seed)

    def held(self):
        """Return JSON with the value under a masked name, at some depth, encoded or not."""
        value = self.random.choice((VALUE, {"mail": VALUE}, [VALUE, {"x": [VALUE]}]))
        held = {self.random.choice(MASKED_NAMES): value}
        for _ in range(self.random.randrange(5)):
            held = self.random.choice(
                (
                    {"a": held, "b": self.random.choice(OTHERS)},
                    [self.random.choice(OTHERS), held],
                    json.dumps(held),
                    "\ufeff " + json.dumps(held),
                )
            )
        return held

    def invalid(self):
        """Return what no field of a request takes, though it may be a text."""
        return self.random.choice((self.held(), {"x": VALUE}, [VALUE], f"{VALUE}, expected é"))

    def request(self):
        valid = {"op": "create", "tag": "t", "id": "i", "stamp": "AQ==", "detail": self.held()}
        for name in self.random.sample(
            ("stamp", "timeout", "cells", "starts", "missing", "customer", "details", "op"),
            self.random.randrange(4),
        ):
            valid[name] = self.invalid()
        for name in self.random.sample(("tag", "id", "reason", "text", "resume"), 1):
            valid |= {name: [self.held()]} if self.random.random() < 0.3 else {}
        return valid

    def body(self):
        message = {"version": 1, "requests": [self.request() for _ in range(3)]}
        for name in ("version", "requests", "customer", "other"):
            message |= {name: self.invalid()} if self.random.random() < 0.1 else {}
        return self.random.choice(ENCODED_BODIES)(json.dumps(message))


def contains_value(text):
    """Whether a text has the value, also escaped or in base64."""
    decoded = text.encode().decode("unicode_escape", "replace")
    forms = (VALUE, base64.b64encode(VALUE.encode()).decode().rstrip("="))
    return any(form in one for form in forms for one in (text, decoded))


@pytest.mark.parametrize("seed", range(5))
def test_a_masked_value_is_in_no_dead_letter_no_reason_and_no_chain(seed):
    senders, mask, applied = Senders(seed), mask_of("customer, e-mail"), 0
    for _ in range(100):
        body = senders.body()
        assert VALUE[1:] in body, "the test would prove nothing"
        requests, rejected = parse(body, hide_values=True)
        chains = [apply(None, [one], now=0, limits=Limits(mask=mask)).chain for one in requests]
        details = [chain.detail for chain in chains if chain.detail]
        applied += len(details)
        bodies = [masked_dead_letter(one.body, mask) for one in rejected]
        for text in (*bodies, *(one.reason for one in rejected), *details):
            assert not contains_value(text), (body, text)
    assert applied, "some requests are valid"


def test_a_rejected_message_keeps_what_is_valid():
    request = {"op": "create", "tag": "t", "id": "i", "stamp": "AQ==", "detail": {"order": 7}}
    other = {"op": "fail", "tag": "t", "id": "f", "reason": "no more", "timeout": "soon"}
    body = json.dumps({"version": 1, "requests": [request, other]})
    expected = {"version": 1, "requests": [request, {**other, "timeout": masked("soon")}]}
    assert json.loads(masked_dead_letter(body, {"customer"})) == expected
    assert masked_dead_letter(body, ()) == body
    (rejected,) = parse(body, hide_values=True).rejected
    assert rejected.reason.startswith("requests[1].timeout: …, expected no such field: fail has")
    hidden = masked_dead_letter("no JSON", {"customer"})
    assert hidden == f"{masked('no JSON')} (7 characters that are no JSON)"


def test_errors_of_a_tracker_that_masks_quote_no_name():
    tracker = Tracker("queue", FakeQueue(), mask=["customer"])
    step = tracker.step(Token(5, ("t",)))
    assert step.requests()
    for call in (
        lambda: tracker.start("t", detail=VALUE),
        lambda: tracker.start("t", detail=[VALUE]),
        lambda: tracker.start("t", f"{VALUE}\ud800"),
        lambda: step.child(f"{VALUE}\ud800"),
        lambda: step.child({VALUE}),
        lambda: fan_out(step, {"a": VALUE}, stream="s", client=object()),
    ):
        with pytest.raises(ArgumentError) as raised:
            call()
        assert VALUE not in str(raised.value)


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("s3a://b/customer=AHAB7731/x=1/f", f"s3a://b/customer={masked(VALUE)}/x=1/f"),
        ("b/Customer=a%2Fb/f", f"b/Customer={masked('a/b')}/f"),
        ("b/c%75stomer=AHAB7731", f"b/c%75stomer={masked(VALUE)}"),
        ("b/order=AHAB7731", "b/order=AHAB7731"),
    ],
)
def test_a_path_shows_hashes_of_partitions_that_are_masked(path, shown):
    assert masked_path(path, {"customer"}) == shown
