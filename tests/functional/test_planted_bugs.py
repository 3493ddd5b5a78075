"""Bugs of producers, workers and operators: the answer of `xorack explain` leads to each bug."""

import json
from datetime import datetime, timedelta, timezone

import pytest

from tests.support.chains import changed
from tests.support.cli import apply, deliver, named_lines, store
from tests.support.dead_letters import put
from tests.support.functions import message
from tests.support.services import Message
from xorack import Token, Tracker, traced, unit_id
from xorack.aws.clock import milliseconds
from xorack.aws.item import encode
from xorack.core.message import pack
from xorack.core.request import Request
from xorack.core.transitions import expire

HOUR_MS = 3_600_000
TAG = "order/17"


class Plant:
    """An application around a stack: its producer, its queue, its workers, and time."""

    def __init__(self, stack):
        self.stack, self.sqs = stack, stack.client("sqs")
        self.tracker = Tracker(stack.queue_url, client=self.sqs)

    def consume(self):
        """Let the acker's consumer run until the queue is empty."""
        received = self.stack.receive_all(self.stack.queue_url)
        deliver(self.stack, [Message(one["MessageId"], one["Body"]) for one in received])

    def split(self, token, *children, send=True):
        """Run the first step: it starts children, and sends its request unless it is killed."""
        step = self.tracker.step(token)
        tokens = [step.child(*parts) for parts in children]
        if send:
            self.send(step)
        return tokens

    def work(self, token):
        self.send(self.tracker.step(token))

    def send(self, step):
        with step:
            pass

    def later(self, tag, hours=2):
        """Let time pass: the chain becomes older, and ends if its deadline has passed."""
        self.consume()
        chain = store(self.stack).read([tag])[tag]
        shift = round(hours * HOUR_MS)
        names = ("first_seen_at", "created_at", "last_stamp_at", "deadline")
        before = chain.attributes()
        times = {name: before[name] - shift for name in names if before[name] is not None}
        if chain.deadlines.pending_deadline is not None:
            times["pending_deadline"] = chain.deadlines.pending_deadline - 100 * 24 * HOUR_MS
        chain = changed(chain, **times)
        chain = expire(chain, milliseconds())
        item = encode(chain, self.stack.partition_key, 30 * 24 * HOUR_MS)
        self.stack.client("dynamodb").put_item(TableName=self.stack.table_name, Item=item)


LINES = [("line", number) for number in range(5)]


def swallowed_messages(plant):
    """A worker deletes the messages of one kind without working on them."""
    for number in range(6):
        tag = f"order/{number}"
        kinds = ("oil", "wick", "lamp")
        children = plant.split(plant.tracker.start(tag, timeout=3600), *((k,) for k in kinds))
        for kind, token in zip(kinds, children, strict=True):
            if number % 2 or kind != "oil":
                plant.work(token)
        plant.later(tag)
    return "order/2"


def killed_after_publishing(plant):
    for token in plant.split(plant.tracker.start(TAG, timeout=3600), *LINES, send=False):
        plant.work(token)
    plant.later(TAG)


def other_children_on_a_retry(plant):
    token = plant.tracker.start(TAG, timeout=3600)
    first = plant.split(token, ("page", 1), ("page", 2), send=False)  # killed here
    plant.split(token, ("page", "one"), ("page", "two"))
    for one in first:
        plant.work(one)
    plant.later(TAG)


def splitter_that_ran_twice(plant):
    token = plant.tracker.start(TAG, timeout=3600)
    plant.split(token, ("page", 1))
    plant.split(token, ("page", "one"))
    plant.consume()


def worker_with_a_name_of_its_own(plant):
    """A worker makes its token from the line's name, which it writes in another way."""
    token = plant.tracker.start(TAG, timeout=3600)
    plant.split(token, *LINES)
    for number in range(5):
        plant.work(plant.tracker.step(token).child("LINE", number))
    plant.later(TAG)


def worker_that_hangs(plant):
    """A message that expires, or stays in a dead-letter queue, has the same effect."""
    for token in plant.split(plant.tracker.start(TAG, timeout=3600), *LINES)[1:]:
        plant.work(token)
    plant.later(TAG)


def two_producers_with_one_tag(plant):
    plant.tracker.start(TAG, timeout=3600, detail={"shop": "Nantucket"})
    plant.tracker.start(TAG, timeout=7200, detail={"shop": "New Bedford"})
    plant.consume()


def wrong_queue_of_the_producer(plant):
    other = plant.sqs.create_queue(QueueName="other-stack")["QueueUrl"]
    Tracker(other, client=plant.sqs).start(TAG)


def wrong_queue_of_the_workers(plant):
    other = plant.sqs.create_queue(QueueName="other-stack")["QueueUrl"]
    tokens = plant.split(plant.tracker.start(TAG, timeout=3600), *LINES)
    elsewhere = Tracker(other, client=plant.sqs)
    for token in tokens:
        with elsewhere.step(token):
            pass
    plant.later(TAG)


def stopped_consumer(plant):
    plant.tracker.start(TAG)
    plant.stack.client("cloudwatch").put_metric_data(
        Namespace="AWS/SQS",
        MetricData=[
            {
                "MetricName": "ApproximateAgeOfOldestMessage",
                "Dimensions": [
                    {"Name": "QueueName", "Value": plant.stack.queue_url.rpartition("/")[2]}
                ],
                "Timestamp": datetime.now(timezone.utc) - timedelta(minutes=2),
                "Value": 840.0,
            }
        ],
    )


def time_out_too_short(plant):
    (token,) = plant.split(plant.tracker.start(TAG, timeout=60), ("page", 1))
    plant.later(TAG, 0.05)
    plant.work(token)
    plant.consume()


def idle_time_out(plant):
    (token, _) = plant.split(plant.tracker.start(TAG, timeout=9000, idle_timeout=600), *LINES[:2])
    plant.work(token)
    plant.later(TAG, 0.5)


def producer_died_before_its_create(plant):
    plant.split(Token(unit_id(TAG), (TAG,)), *LINES)
    plant.consume()


def worker_of_the_first_step_is_gone(plant):
    plant.tracker.start(TAG, timeout=3600)
    plant.later(TAG)


def job_that_did_not_finish(plant, tag=TAG, hours=2):
    stamp = traced(12345)
    create = Request("create", tag, "c", stamp, 400, timeout=3600)
    for body in pack([create]):
        plant.sqs.send_message(QueueUrl=plant.stack.queue_url, MessageBody=body)
    plant.later(tag, hours)


def rows_that_a_job_lost(plant):
    plant.tracker.note(
        Token(unit_id(TAG), (TAG,)), "all 400 rows have sku = NULL", missing_count=400
    )
    job_that_did_not_finish(plant)


def malformed_request(plant):
    request = {"op": "create", "tag": TAG, "id": "c", "timeout": "1h"}
    body = json.dumps({"version": 1, "requests": [request]})
    plant.sqs.send_message(QueueUrl=plant.stack.queue_url, MessageBody=body)
    plant.consume()


def twice_a_day(plant):
    """A scheduler starts a chain again that has ended, under the tag of the day."""
    plant.work(plant.tracker.start(TAG))
    plant.consume()
    plant.tracker.start(TAG)
    plant.tracker.start(TAG, detail={"attempt": 2})
    plant.consume()


def job_of_a_run_that_did_not_finish(plant):
    """No row of three orders was finished, and two orders were withdrawn."""
    for number in range(5):
        job_that_did_not_finish(plant, f"run/order/{number}", hours=2 if number < 3 else 0)
    plant.consume()
    failed = [Request.fail(f"run/order/{n}", "f", f"order {n} was withdrawn") for n in (3, 4)]
    apply(plant.stack, *failed)
    return "--run", "run"


def messages_after_the_end_of_a_run(plant):
    """All chains are acked; two requests came late, and two others were rejected."""
    for number in range(2):
        tag = f"run/order/{number}"
        token = plant.tracker.start(tag)
        plant.work(token)
        plant.consume()
        apply(plant.stack, Request.stamp_(tag, "late", finishes=[number + 1]))
        body = message(Request.stamp_(tag, "again", finishes=[number + 1]))
        put(
            plant.stack, body, error=f"id: 'again-{number}' is used, at 2026-01-31T10:0{number}:00Z"
        )
    return "--run", "run"


def disabled_rule(plant):
    plant.work(plant.tracker.start(TAG))
    plant.consume()


def producer_that_nothing_follows(plant):
    """A consumer that has just stopped; no metric knows it yet."""
    plant.tracker.start(TAG)


BUGS = {
    swallowed_messages: [
        "3 of 6 chains of run order failed for the same reason",
        "oil",
    ],
    killed_after_publishing: [
        "5 units finished that no step started: their step was killed after publishing"
    ],
    other_children_on_a_retry: [
        "2 units finished that no step started",
        "or their step was repeated with other children",
    ],
    worker_with_a_name_of_its_own: [
        "5 units finished that no step started: a worker used other names",
        "10 units without a name",
    ],
    worker_that_hangs: [
        "1 of 6 units did not finish: look for messages that wait, expired or became dead letters"
    ],
    splitter_that_ran_twice: ["1 dead letter of it: rejected: id: 'step-", "token passed on"],
    two_producers_with_one_tag: ["1 dead letter of it: rejected: ", "already exists"],
    wrong_queue_of_the_producer: [f"stack xorack has no chain '{TAG}'", "to another queue"],
    wrong_queue_of_the_workers: [
        "its first step ended, but none of its 5 children: their workers did not run, got no "
        "token, refused it, or sent to another queue",
        "silent since its first second: check your queue and workers",
    ],
    stopped_consumer: [
        "the consumer takes no messages: 1 message in the queue, the oldest for 14 min"
    ],
    time_out_too_short: ["1 request came after its time-out", "the time-out is too short"],
    idle_time_out: ["no step ended for 10 min, its idle time-out"],
    producer_died_before_its_create: ["steps of it arrived, but its create has not arrived"],
    worker_of_the_first_step_is_gone: ["its first step did not end"],
    job_that_did_not_finish: ["none of its 400 units was finished: the job that finishes them"],
    rows_that_a_job_lost: ["a sender noted: all 400 rows have sku = NULL; 400 units missing"],
    malformed_request: ["1 dead letter of it: malformed: requests[0].timeout: '1h'"],
    job_of_a_run_that_did_not_finish: [
        "3 timed out: none of its 400 units was finished: the job that finishes them",
        "3  timed out\n2  order … was withdrawn",
    ],
    messages_after_the_end_of_a_run: [
        "2  rejected: id: '…' is used, at …",
        "2 late requests",
    ],
    twice_a_day: ["acked: all of its units are finished; 1 repeated create came after its end"],
    disabled_rule: [
        "its event is published: if no event arrived, xorack doctor examines the rules on the bus"
    ],
    producer_that_nothing_follows: ["1 message waits in the acker's queue: if it stays"],
}
SAID = "why", "reasons", "outstanding", "dead letters", "after end"
LEADS = {
    # Statements that would lead away from the cause.
    swallowed_messages: ["silent", "none of its"],
    job_that_did_not_finish: ["child", "workers"],
    job_of_a_run_that_did_not_finish: ["child", "workers"],
    rows_that_a_job_lost: ["silent", "none of its"],
}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_what_is_said_leads_to_the_bug(stack, xorack, tmp_path, bug):
    (names := tmp_path / "names.txt").write_text("oil\nwick\nlamp\n")
    chains = bug(Plant(stack)) or TAG
    arguments = [chains] if isinstance(chains, str) else chains
    said = named_lines(xorack("explain", *arguments, "--among", names)[1])
    why = "\n".join(line for name in SAID for line in said.get(name, ()))
    assert [words for words in BUGS[bug] if words not in why] == [], why
    assert [words for words in LEADS.get(bug, []) if words in why] == []
