"""Tokens are checked: a sender that can write to a work queue must not ack chains."""

import json
import logging
from itertools import pairwise
from types import SimpleNamespace

import pytest

from tests.support.events import record_of
from tests.support.fakes import FakeQueue
from xorack import Token, Tracker, fan_in, step_of, token_of
from xorack.client.token import KEY_VARIABLE, Keys
from xorack.core.errors import ArgumentError

OLD, NEW, THEIRS = "old key 16 bytes", b"new key of 16 bytes", "their key of 16 bytes"


def tracker(**options):
    return Tracker("https://queue", FakeQueue(), **options)


def finished(ours):
    """Return the tags of the sent requests, without creates."""
    return [one["tag"] for one in ours.client.requests if one["op"] != "create"]


def record(token, name="m"):
    text = token if isinstance(token, str) else json.dumps(token.to_json())
    attributes = {"xorack": {"StringValue": text, "DataType": "String"}}
    message = {"MessageId": name, "ReceiptHandle": "h", "Body": "text"}
    return record_of({**message, "MessageAttributes": attributes})


def finish(ours, token, **options):
    with step_of(ours, record(token), **options):
        pass
    return finished(ours)


def test_a_token_names_few_chains():
    """134 KB of 9,000 tags became 8.6 MB of requests."""
    token = {"v": 1, "unit": "938f21e4bfad2991", "kind": "traced"}
    tags = [f"victim/{n:04}" for n in range(9_000)]
    assert len(json.dumps({**token, "tags": tags})) > 130_000
    ours = tracker()
    for many in (tags, tags[:17]):
        with pytest.raises(ArgumentError, match=r"tags: a list of \d+, expected a list of 1 to 16"):
            finish(ours, json.dumps({**token, "tags": many}))
    assert finished(ours) == []
    assert finish(ours, json.dumps({**token, "tags": tags[:16]})) == tags[:16]


def test_a_child_has_no_more_chains_than_a_token_may_name():
    two = [Token(n, tuple(f"{n}/{m}" for m in range(9))) for n in (1, 2)]
    with tracker().step(*two) as step, pytest.raises(ArgumentError, match="at most 16 chains"):
        step.child()
    assert len(step.requests()) == 18


KEYED = Keys(NEW).sign(Token(255, ("order/17", "run/1")))


def changed(**fields):
    return json.dumps({**KEYED.to_json(), **fields})


FORGED = {
    "without a MAC": str(Token(255, ("order/17",))),
    "of a victim": changed(tags=["order/18", "run/1"]),
    "of fewer chains": changed(tags=["order/17"]),
    "of joined tags": changed(tags=["order/17/run/1"]),
    "in another order": changed(tags=["run/1", "order/17"]),
    "of another unit": changed(unit="00000000000000fe"),
    "of another size": changed(cells=64),
    "of another kind": changed(kind="plain"),
    "cut off": changed(mac=KEYED.mac[:16]),
    "empty": changed(mac=""),
    "in capitals": changed(mac=KEYED.mac.upper()),
    "no text": changed(mac=5),
    "by chance": changed(mac="0" * 32),
    "of another key": str(Keys(THEIRS).sign(KEYED)),
    "of a key that is not used any more": str(Keys(OLD).sign(KEYED)),
}


@pytest.mark.parametrize("how", FORGED)
def test_with_a_key_a_forged_token_is_an_error(how, caplog):
    ours = tracker(token_key=NEW)
    for use in (
        lambda token: finish(ours, token),
        lambda token: token_of(record(token), token_key=NEW),
        ours.step,
        lambda token: ours.fail(token, "no"),
        lambda token: ours.extend(token, 60),
    ):
        with pytest.raises(ArgumentError, match="token mac: ") as raised:
            use(FORGED[how])
        assert not any(key in str(raised.value) for key in ("16 bytes", KEYED.mac))
    assert finished(ours) == []
    assert {line.message.partition(": token mac: ")[0] for line in caplog.records} == {
        "token refused"
    }
    # Nobody else signs for a key, and nobody without one verifies it.
    assert finish(ours, KEYED) == ["order/17", "run/1"]
    assert finish(tracker(), KEYED) == ["order/17", "run/1"]


def test_all_tokens_of_a_tracker_with_a_key_have_macs():
    ours = tracker(token_key=NEW)
    with ours.step(ours.start("t")) as step:
        child = step.child("a")
    assert child != Keys(OLD).sign(child) == tracker(token_key=OLD).keys.sign(child)
    assert finish(ours, child) == ["t", "t"]
    assert "16 bytes" not in repr(ours)


def test_keys_rotate_without_a_lost_token():
    """First all accept the new key, then all use it, then nobody accepts the old one."""
    stages = [OLD, (OLD, NEW), (NEW, OLD), NEW]
    for before, after in pairwise(stages):
        for sender, worker in ((before, after), (after, before)):
            assert finish(tracker(token_key=worker), tracker(token_key=sender).start("t")) == ["t"]
    assert tracker(token_key=(NEW, OLD)).start("t") == tracker(token_key=NEW).start("t")
    with pytest.raises(ArgumentError, match="token mac: of another key"):
        finish(tracker(token_key=NEW), tracker(token_key=OLD).start("t"))


@pytest.mark.parametrize(
    "key", ["", "15 bytes secret", b"", (), [NEW, OLD, THEIRS], [NEW, "short"], 5, [None]]
)
def test_a_key_that_is_lost_or_weak_does_not_turn_verification_off(key, monkeypatch):
    with pytest.raises(ArgumentError, match="token_key: expected one key of at least 16") as raised:
        tracker(token_key=key)
    assert "secret" not in str(raised.value)
    for text in ("", "short", f"{OLD},", f"{OLD},{THEIRS},{OLD}"):
        monkeypatch.setenv(KEY_VARIABLE, text)
        with pytest.raises(ArgumentError, match=f"{KEY_VARIABLE}: expected one key"):
            tracker()


@pytest.mark.parametrize("other", ["shipment/1", "orders/17", "Order/17", "order"])
def test_tokens_of_other_chains_are_refused_and_logged(other, caplog):
    ours, tags = tracker(), "order/"
    for token in (Token(255, (other,)), Token(255, ("order/17", other))):
        for use in (
            lambda token: finish(ours, token, tags=tags),
            lambda token: token_of(record(token), tags=tags),
        ):
            with pytest.raises(ArgumentError, match="token tags: "):
                use(token)
    assert finished(ours) == []
    assert {line.tag for line in caplog.records} == {other}
    assert f"token refused: token tags: {other!a}"[:60] in caplog.text
    assert finish(ours, Token(255, ("order/17", "order/18")), tags=tags) == ["order/17", "order/18"]


@pytest.mark.parametrize("tags", ["", 5, ["order/"]])
def test_tags_are_a_prefix(tags):
    for use in (
        lambda: token_of({}, tags=tags),
        lambda: step_of(tracker(), {}, tags=tags),
        lambda: fan_in(tracker(), tags=tags),
    ):
        with pytest.raises(ArgumentError, match="a prefix of tags"):
            use()


def test_a_refused_message_fails_alone_and_touches_no_chain(caplog):
    ours, handled = tracker(token_key=NEW), []
    mine, theirs = ours.start("order/17"), ours.start("victim/1")
    records = [record(mine, "mine"), record(theirs, "theirs"), record(FORGED["of a victim"], "b")]
    records.append({**records[0], "messageId": "lost", "messageAttributes": {}})
    handle = fan_in(ours, tags="order/")(lambda one, step: handled.append(one.message_id))
    failed = handle({"Records": records}, SimpleNamespace())["batchItemFailures"]
    assert [one["itemIdentifier"] for one in failed] == ["theirs", "b"]
    assert (handled, finished(ours)) == (["mine", "lost"], ["order/17"])
    lines = {(line.levelno, line.message.partition(":")[0]) for line in caplog.records}
    assert lines == {(logging.WARNING, "token refused"), (logging.WARNING, "messages not tracked")}
