"""Redriving: dead-lettered messages go back to the queue.

SQS moves all messages of a queue by itself. To move some, each is received, sent and then deleted.
A crash in between leaves a message in both queues. This is harmless: a request takes effect once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Literal, NamedTuple

from botocore.exceptions import BotoCoreError, ClientError

from xorack.aws.client import error_code
from xorack.aws.sqs import send_bodies
from xorack.core.clock import milliseconds
from xorack.core.errors import SendFailed, XorAckError
from xorack.core.retry import RetryPolicy
from xorack.ops.dead_letters import KINDS, DeadMessage, Kind
from xorack.ops.stack import ResourceNotFound
from xorack.ops.text import plural

__all__ = ["Group", "MoveFailed", "MoveResult", "Progress", "Redrive", "Survey"]

Progress = Callable[[int, int], None]
"""A callback that gets the number of moved messages and the approximate total."""

_HOLD_SECONDS = 120
"""A received message is hidden from others for this time."""
_WAIT_SECONDS = 1
"""A long poll asks all of a queue's servers, so an empty response means an empty queue."""
_POLL_SECONDS = 2.0
_POLICY = RetryPolicy(attempts=8)


class MoveFailed(XorAckError):
    """SQS's own move of the messages stopped, or its progress is unknown."""


@dataclass
class Group:
    """Dead-lettered messages with the same reason; the example is the tag of one of them."""

    kind: Kind
    reason: str
    count: int = 0
    example: str | None = None


@dataclass
class Survey:
    """The content of a dead-letter queue.

    Attributes:
        groups: The messages read by reason, the most frequent first.
        total: Messages in the queue; SQS's approximate count if not all were read.
        complete: True if all messages were read.
        packed: True if the body of one of the messages read is compressed.
    """

    groups: list[Group]
    total: int
    complete: bool
    packed: bool

    def count(self, *kinds: Kind) -> int:
        """Count the messages read of these kinds."""
        return sum(group.count for group in self.groups if group.kind in kinds)

    @property
    def seen(self) -> int:
        """The number of messages read."""
        return self.count(*KINDS)

    def expected(self, *kinds: Kind) -> int:
        """Estimate how many messages of these kinds the queue holds."""
        return self.count(*kinds) if self.complete else self.total


class MoveResult(NamedTuple):
    """The numbers of messages sent back and left, and the way they went.

    Attributes:
        by: ``task`` if SQS moved the messages itself, ``hand`` if they went one by one.
        task_error: The error code if SQS did not start its own move.
    """

    moved: int
    left: int = 0
    by: Literal["task", "hand"] = "hand"
    task_error: str | None = None


class Redrive:
    """A dead-letter queue and the queue that its messages go back to."""

    def __init__(self, dead_letters_url: str, queue_url: str, client: Any) -> None:
        self.dead_letters_url = dead_letters_url
        self.queue_url = queue_url
        self._client = client

    def swapped(self) -> bool:
        """Return True if the queue is the dead-letter queue of the dead-letter queue.

        Raises:
            ResourceNotFound: One of the queues does not exist.
        """
        self._redrive_policy(self.queue_url)
        target: str = self._redrive_policy(self.dead_letters_url).get("deadLetterTargetArn", "")
        # An ARN and a URL both end in account and name.
        return target.split(":")[-2:] == self.queue_url.split("/")[-2:]

    def survey(self, limit: int = 1000) -> Survey:
        """Read the dead-letter queue and leave all messages in it.

        Messages are hidden from other readers meanwhile. Stops after `limit` messages.
        """
        groups: dict[tuple[Kind, str], Group] = {}
        handles: dict[str, str] = {}
        complete, packed = True, False
        try:
            for messages in self._receive():
                for message in messages:
                    if message.id not in handles:
                        key = (message.kind, message.reason)
                        group = groups.setdefault(key, Group(*key))
                        group.count += 1
                        group.example = group.example or message.tag
                        packed = packed or message.packed
                    handles[message.id] = message.handle
                if len(handles) >= limit:
                    complete = False
                    break
        finally:
            self._release(list(handles.values()))
        total = len(handles)
        if not complete:
            count = self._attribute(self.dead_letters_url, "ApproximateNumberOfMessages")
            total = max(total, int(count))
        by_count = sorted(groups.values(), key=lambda group: (-group.count, group.reason))
        return Survey(by_count, total, complete, packed)

    def move(
        self,
        kinds: Collection[Kind],
        survey: Survey,
        progress: Progress = lambda moved, total: None,
    ) -> MoveResult:
        """Send dead-lettered messages back to the queue.

        If all messages read failed and can go as they are, SQS moves the whole queue, including
        messages beyond the survey's limit, of whatever kind. Otherwise, or if SQS rejects that (it
        does one move of a queue at a time), they go one by one. Messages that arrive meanwhile
        stay then: what is rejected again must not go round in circles.

        Raises:
            SendFailed: The queue rejects the messages; those not moved stay where they are.
            MoveFailed: SQS stopped; the messages not moved stay where they are.
        """
        task_error = None
        if survey.seen and survey.count("failed") == survey.seen and not survey.packed:
            try:
                task = self._start_task()
            except ClientError as error:
                task_error = error_code(error)
            else:
                return MoveResult(self._await_task(*task, survey.total, progress), by="task")
        moved, left = self._move_by_hand(kinds, survey.expected(*kinds), progress)
        return MoveResult(moved, left, task_error=task_error)

    def _start_task(self) -> tuple[str, str]:
        """Start SQS's own move; return the source's ARN and the task's handle."""
        source = self._attribute(self.dead_letters_url, "QueueArn")
        # Messages that the consumer itself dead-lettered have no source queue known to SQS.
        target = self._attribute(self.queue_url, "QueueArn")
        task = self._client.start_message_move_task(SourceArn=source, DestinationArn=target)
        return source, task["TaskHandle"]

    def _await_task(self, source: str, handle: str, total: int, progress: Progress) -> int:
        """Wait for SQS's own move; return how many messages it moved. Ctrl-C cancels it."""
        try:
            while True:
                try:
                    response = self._client.list_message_move_tasks(SourceArn=source, MaxResults=1)
                except ClientError as error:
                    reason = f"SQS goes on to move them, but its progress is unknown: {error}"
                    raise MoveFailed(reason) from error
                # The newest task comes first; a task that ended has no handle to find it by.
                task = response["Results"][0]
                moved = int(task.get("ApproximateNumberOfMessagesMoved", 0))
                total = int(task.get("ApproximateNumberOfMessagesToMove") or total)
                progress(moved, max(total, moved))
                status = task["Status"]
                if status == "COMPLETED":
                    return moved
                if status not in ("RUNNING", "CANCELLING"):
                    reason = task.get("FailureReason", "no reason given")
                    messages = plural(moved, "message")
                    raise MoveFailed(f"SQS moved {messages} and stopped ({status}): {reason}")
                time.sleep(_POLL_SECONDS)
        except KeyboardInterrupt:
            self._client.cancel_message_move_task(TaskHandle=handle)
            raise

    def _move_by_hand(
        self, kinds: Collection[Kind], total: int, progress: Progress
    ) -> tuple[int, int]:
        """Move messages one by one; return how many went and how many stay."""
        held: dict[str, str] = {}
        sent: set[str] = set()
        started_at: int | None = None
        try:
            for messages in self._receive():
                if started_at is None:
                    started_at = self._server_time()
                # A message that comes again stays, or was sent but not deleted.
                chosen = [
                    m
                    for m in messages
                    if m.id in sent or (m.kind in kinds and m.sent_at <= started_at)
                ]
                if not chosen and all(message.id in held for message in messages):
                    break
                held.update((message.id, message.handle) for message in messages)
                self._send([message for message in chosen if message.id not in sent])
                for message in chosen:
                    sent.add(message.id)
                    del held[message.id]
                # A message that cannot be deleted comes again.
                self._batch(self._client.delete_message_batch, [m.handle for m in chosen])
                progress(len(sent), max(total, len(sent)))
        finally:
            self._release(list(held.values()))
        return len(sent), len(held)

    def _receive(self) -> Iterator[list[DeadMessage]]:
        """Receive messages until all are hidden."""
        while True:
            response = self._client.receive_message(
                QueueUrl=self.dead_letters_url,
                MaxNumberOfMessages=10,
                VisibilityTimeout=_HOLD_SECONDS,
                WaitTimeSeconds=_WAIT_SECONDS,
                MessageAttributeNames=["All"],
                AttributeNames=["SentTimestamp"],
            )
            if not (messages := response.get("Messages")):
                return
            yield [DeadMessage.read(message) for message in messages]

    def _send(self, messages: Sequence[DeadMessage]) -> None:
        bodies = [body for message in messages for body in message.bodies]
        if problems := send_bodies(self.queue_url, bodies, self._client, policy=_POLICY):
            reason = next(iter(problems.values()))
            raise SendFailed(self.queue_url, reason, [bodies[position] for position in problems])

    def _release(self, handles: Sequence[str]) -> None:
        """Show messages to others at once; if that fails, they reappear by themselves."""
        with suppress(ClientError, BotoCoreError):
            self._batch(self._client.change_message_visibility_batch, handles, VisibilityTimeout=0)

    def _batch(self, call: Callable[..., Any], handles: Sequence[str], **fields: Any) -> None:
        """Call SQS for dead-lettered messages, ten at a time."""
        for at in range(0, len(handles), 10):
            entries = [
                {"Id": str(number), "ReceiptHandle": handle, **fields}
                for number, handle in enumerate(handles[at : at + 10])
            ]
            call(QueueUrl=self.dead_letters_url, Entries=entries)

    def _redrive_policy(self, queue_url: str) -> dict[str, Any]:
        try:
            return dict(json.loads(self._attribute(queue_url, "RedrivePolicy") or "{}"))
        except ClientError as error:
            # The code's name depends on the protocol that boto3 speaks.
            code = error_code(error)
            if "NonExistentQueue" not in code and "QueueDoesNotExist" not in code:
                raise
            region = self._client.meta.region_name
            raise ResourceNotFound(f"queue {queue_url} does not exist in {region}") from error

    def _attributes(self, queue_url: str, name: str) -> dict[str, Any]:
        return dict(self._client.get_queue_attributes(QueueUrl=queue_url, AttributeNames=[name]))

    def _attribute(self, queue_url: str, name: str) -> str:
        return str(self._attributes(queue_url, name).get("Attributes", {}).get(name, ""))

    def _server_time(self) -> int:
        """Return the time of SQS's clock, milliseconds since 1970, rounded up to a second."""
        response = self._attributes(self.dead_letters_url, "QueueArn")
        try:
            date = response["ResponseMetadata"]["HTTPHeaders"]["date"]
            return int(parsedate_to_datetime(date).timestamp() + 1) * 1000
        except (KeyError, ValueError):
            return milliseconds()
