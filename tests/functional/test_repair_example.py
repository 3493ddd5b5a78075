"""The example of a repair: what a failed order lacks is done again under a new tag."""

import json
from functools import partial

import pytest

from examples.repair_orders import repair
from examples.track_orders import ORDERS, pack, take_orders
from tests.support.cli import apply, store
from tests.support.services import Message, consume
from xorack import Tracker
from xorack.aws.eventbridge import EventBus
from xorack.aws.sqs import send_rejected
from xorack.core.request import Request
from xorack.ops.status import read_status

TAG = "order/18"


@pytest.fixture
def deliver(stack):
    def apply_all():
        received = stack.receive_all(stack.queue_url)
        messages = [Message(one["MessageId"], one["Body"]) for one in received]
        bus = EventBus(stack.bus_name, stack.client("events"))
        letters = partial(send_rejected, stack.dead_letter_queue_url, stack.client("sqs"))
        return consume(messages, store(stack), bus, letters, default_timeout_ms=86_400_000)

    return apply_all


def test_a_failed_order_is_repaired(stack, sqs, deliver):
    tracker = Tracker(stack.queue_url, client=stack.client("sqs"))
    for event in take_orders(tracker):
        if "oil" not in event:
            pack(tracker, event)
    deliver()
    apply(stack, Request("fail", TAG, "f", reason="out of stock"))
    failed = next(e["detail"] for e in stack.events() if e["detail"]["status"] == "failed")
    # Repeated, the repair sends the same requests: the worker's events count once.
    (event,) = repair(tracker, failed, ORDERS[TAG])
    assert repair(tracker, failed, ORDERS[TAG]) == [event]
    work = json.loads(event)
    assert work["line"] == "oil"
    with tracker.step(work["token"]):
        pass
    assert deliver().outcomes["rejected"] == 0
    repaired = read_status(store(stack), f"{TAG}/repair-1")
    assert (repaired.chain.status, repaired.chain.finished) == ("acked", 2)
    assert repaired.detail == {"customer": "Ahab", "repairs": TAG}
    # Where the event does not name all, all is done again.
    everything = repair(tracker, {**failed, "outstanding_complete": False}, ORDERS[TAG], 2)
    assert len(everything) == len(ORDERS[TAG])
