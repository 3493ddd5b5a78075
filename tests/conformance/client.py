"""A scenario for the client of Python: reads it from standard input, prints what it sent.

What it sends goes to the acker's queue, too, if the scenario names one.
"""

import json
import sys
from contextlib import suppress
from unittest.mock import Mock

from aws_lambda_powertools.utilities.batch.exceptions import BatchProcessingError

from xorack import Tracker, fan_in, fan_out
from xorack.aws.retry import RetryPolicy
from xorack.aws.sqs import queue_client
from xorack.client.token import Token
from xorack.core.errors import SendError


class Client:
    """A client of SQS that keeps what it sends; the acker's queue may refuse it."""

    def __init__(self, queue_url):
        self.sent, self.messages, self.refused = [], [], False
        self.real = queue_client(queue_url) if queue_url != "acker" else None
        self.meta = Mock()

    def send_message_batch(self, QueueUrl, Entries):
        if self.refused:
            return {"Failed": [{"Id": one["Id"], "SenderFault": True} for one in Entries]}
        if QueueUrl == "work":
            self.messages += Entries
            return {}
        self.sent += [entry["MessageBody"] for entry in Entries]
        return self.real.send_message_batch(QueueUrl=QueueUrl, Entries=Entries) if self.real else {}


class Program:
    """The calls of scenarios."""

    def __init__(self, queue_url):
        self.client = Client(queue_url)
        policy = RetryPolicy(attempts=2, sleep=lambda seconds: None)
        self.tracker = Tracker(queue_url, self.client, policy=policy)
        self.tokens, self.failures = {}, []

    def start(self, tag, options, name):
        self.tokens[name] = self.tracker.start(tag, **options)

    def step(self, units, children, raises=False):
        with suppress(ZeroDivisionError), self.tracker.step(*map(self.tokens.get, units)) as step:
            for name, parts in children.items():
                self.tokens[name] = step.child(*parts)
            if raises:
                raise ZeroDivisionError

    def fan_in(self, event, raising, refused=False, bodies=False):
        units = [self.tokens[name].unit for name in raising]

        def handle(record, step):
            if step.tokens[0].unit in units:
                raise OSError("a bad day")

        self.client.refused = refused
        try:
            answer = fan_in(self.tracker, bodies=bodies, required=True)(handle)(event, None)
            failed = [one["itemIdentifier"] for one in answer["batchItemFailures"]]
        except (BatchProcessingError, SendError):  # Lambda counts an error
            failed = "raised"
        self.client.refused = False
        self.failures.append(failed)

    def fan_out(self, units, messages, name):
        pairs = [
            (tuple(child) if isinstance(child, list) else child, body) for child, body in messages
        ]
        with self.tracker.step(*map(self.tokens.get, units)) as step:
            fan_out(step, pairs, "work", self.client)
        for one, entry in zip(name, self.client.messages[-len(name) :], strict=True):
            token = entry["MessageAttributes"]["xorack"]["StringValue"]
            self.tokens[one] = Token.from_json(token)

    def fail(self, unit, reason):
        self.tracker.fail(self.tokens[unit], reason)

    def note(self, unit, text):
        self.tracker.note(self.tokens[unit], text)


given = json.load(sys.stdin)
program = Program(given.get("queue_url", "acker"))
for one in given["calls"]:
    call = getattr(program, one.pop("call"))
    call(**{"name" if key == "as" else key: value for key, value in one.items()})
done = {
    "sent": program.client.sent,
    "tokens": {name: token.to_json() for name, token in program.tokens.items()},
    "failures": program.failures,
    "messages": [entry["MessageBody"] for entry in program.client.messages],
}
print(json.dumps(done))
