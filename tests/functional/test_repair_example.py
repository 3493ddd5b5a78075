"""The example of a repair: what is missing of a failed order is done again under a new tag."""

import json

from examples.repair_orders import repair
from examples.track_orders import ORDERS, pack, take_orders
from tests.support.cli import apply, deliver, store
from tests.support.services import Message
from xorack import Tracker
from xorack.core.request import Request
from xorack.ops.status import read_status

TAG = "order/18"


def deliver_all(stack):
    received = stack.receive_all(stack.queue_url)
    return deliver(stack, [Message(one["MessageId"], one["Body"]) for one in received])


def test_a_failed_order_is_repaired(stack, sqs):
    tracker = Tracker(stack.queue_url, client=stack.client("sqs"))
    for event in take_orders(tracker):
        if "oil" not in event:
            pack(tracker, event)
    deliver_all(stack)
    apply(stack, Request("fail", TAG, "f", reason="out of stock"))
    failed = next(e["detail"] for e in stack.events() if e["detail"]["status"] == "failed")
    # Repeated, the repair sends the same requests: the worker's events count once.
    (event,) = repair(tracker, failed, ORDERS[TAG])
    assert repair(tracker, failed, ORDERS[TAG]) == [event]
    work = json.loads(event)
    assert work["line"] == "oil"
    with tracker.step(work["token"]):
        pass
    assert deliver_all(stack).outcomes["rejected"] == 0
    repaired = read_status(store(stack), f"{TAG}/repair-1")
    assert (repaired.chain.status, repaired.chain.counts.finished) == ("acked", 2)
    assert repaired.detail == {"customer": "Ahab", "repairs": TAG}
    # Where the event does not name all, all is done again.
    everything = repair(tracker, {**failed, "outstanding_complete": False}, ORDERS[TAG], 2)
    assert len(everything) == len(ORDERS[TAG])
