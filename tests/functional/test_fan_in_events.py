"""Fan-in for what is no batch of SQS: events of EventBridge, SNS and S3, dead-lettered messages."""

import json
import sys
from types import SimpleNamespace

import pytest

from tests.functional.test_fan_in import acked, nothing
from xorack import Tracker, fan_in, fan_out, step_of
from xorack.aws.client import CONFIG
from xorack.aws.sqs import group_id
from xorack.core.hashing import child_id


@pytest.fixture
def tracker(aws):
    return Tracker(aws.queue_url, aws.client("sqs", config=CONFIG))


def by_event_bridge(token):
    detail = {"order": 17, "xorack": token.to_json()}
    return {"id": "e-1", "source": "shop", "detail-type": "order", "detail": detail}


def by_sns(token):
    attributes = {"xorack": {"Type": "String", "Value": str(token)}}
    sns = {"Type": "Notification", "MessageId": "n-1", "Message": "text"}
    return {"Records": [{"Sns": {**sns, "MessageAttributes": attributes}}]}


def once(tracker, event, *, fails=False):
    """Handle an event as the function in docs/fan-in.md does."""
    with step_of(tracker, event, bodies=True) as step:
        if fails:
            raise ZeroDivisionError
        assert step is not None


@pytest.mark.parametrize("form", [by_event_bridge, by_sns])
def test_an_event_finishes_its_unit_once(tracker, functions, form):
    with tracker.step(tracker.start("t")) as step:
        event = json.loads(json.dumps(form(step.child("a"))))
    with pytest.raises(ZeroDivisionError):
        once(tracker, event, fails=True)
    assert not acked(functions)
    once(tracker, event)
    once(tracker, event)  # Lambda invokes a function of events again at times
    assert acked(functions) == 2


def test_a_fan_out_sends_text_as_it_is_other_bodies_as_json_and_all_in_one_group(tracker):
    calls = []
    client = SimpleNamespace(send_message_batch=lambda **call: calls.append(call) or {})
    with tracker.step(tracker.start("t")) as step:
        messages = [("a", "text"), (("b", 1), {"n": 1}), *((n, "") for n in range(10))]
        assert fan_out(step, messages, "https://work", client, name="trace", group="t 1") == 12
        again = [step.tokens[0].unit, "b", 1]
    entries = [entry for call in calls for entry in call["Entries"]]
    assert [len(call["Entries"]) for call in calls] == [10, 2]
    assert [entry["MessageBody"] for entry in entries[:3]] == ["text", '{"n": 1}', ""]
    assert {entry["MessageGroupId"] for entry in entries} == {group_id("t 1")}
    token = json.loads(entries[1]["MessageAttributes"]["trace"]["StringValue"])
    assert int(token["unit"], 16) == child_id(*again)


def test_without_powertools_the_decorator_says_what_to_install(tracker, monkeypatch):
    monkeypatch.setitem(sys.modules, "aws_lambda_powertools.utilities.batch", None)
    with pytest.raises(ModuleNotFoundError, match="with the extra fan-in"):
        fan_in(tracker)
    assert fan_in(tracker, processor=object())(nothing)
