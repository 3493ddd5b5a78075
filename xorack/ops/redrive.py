"""Redriving: dead-lettered messages go back to the queue.

Each message is received, sent and then deleted. A crash in between leaves a message in both queues.
This is harmless: a request takes effect once, as long as the acker keeps the chain. So messages
older than that stay. SQS's own StartMessageMoveTask is not used: it loses the first send's time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from xorack.acker.parallel import Workers
from xorack.aws.client import error_code
from xorack.aws.sqs import send_bodies
from xorack.core.clock import milliseconds
from xorack.core.errors import SendFailed
from xorack.core.ports import DEFAULT_RETENTION_MS
from xorack.core.retry import RetryPolicy
from xorack.ops.dead_letters import KINDS, DeadMessage, Kind
from xorack.ops.stack import ResourceNotFound

__all__ = ["Group", "MoveResult", "Progress", "Redrive", "Survey"]

_Item = TypeVar("_Item")
Progress = Callable[[int, int], None]
"""A callback that gets the number of moved messages and the approximate total."""

_HOLD_SECONDS = 120
"""A received message is hidden from others for this time."""
_WAIT_SECONDS = 1
"""A long poll asks all of a queue's servers, so an empty response means an empty queue."""
_CALLS = 8
"""Concurrent calls, each for ten messages at most."""
_WORKERS = Workers(_CALLS)
_POLICY = RetryPolicy(attempts=8)


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
    """

    groups: list[Group]
    total: int
    complete: bool

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
    """The numbers of messages sent back and left."""

    moved: int
    left: int = 0


class Redrive:
    """A dead-letter queue and the queue that its messages go back to."""

    def __init__(
        self,
        dead_letters_url: str,
        queue_url: str,
        client: Any,
        retention: int = DEFAULT_RETENTION_MS,
    ) -> None:
        """Use these queues.

        Args:
            dead_letters_url: The dead-letter queue.
            queue_url: The acker's queue.
            client: A boto3 SQS client.
            retention: Milliseconds for which the acker keeps finished chains. Messages that were
                first sent longer ago are never sent back.
        """
        self.dead_letters_url = dead_letters_url
        self.queue_url = queue_url
        self.retention = retention
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

        Messages are hidden from other readers meanwhile. Stops after about `limit` messages.
        """
        groups: dict[tuple[Kind, str], Group] = {}
        handles: dict[str, str] = {}
        complete = True
        try:
            for messages in self._receive():
                for message in messages:
                    if message.id not in handles:
                        key = (message.kind, message.reason)
                        group = groups.setdefault(key, Group(*key))
                        group.count += 1
                        group.example = group.example or message.tag
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
        return Survey(by_count, total, complete)

    def move(
        self,
        kinds: Collection[Kind],
        survey: Survey,
        progress: Progress = lambda moved, total: None,
    ) -> MoveResult:
        """Send dead-lettered messages back to the queue, with the time of their first send.

        Expired messages stay, whatever the kinds. So do messages that arrive meanwhile: what is
        rejected again must not go round in circles.

        Args:
            kinds: The kinds of messages to send.
            survey: What `survey` returned.
            progress: Called after each page of messages.

        Raises:
            SendFailed: The queue rejects the messages; those not moved stay where they are.
        """
        kinds = set(kinds) - {"expired"}
        total = survey.expected(*kinds)
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
                    if m.id in sent or (m.kind in kinds and m.queued_at <= started_at)
                ]
                if not chosen and all(message.id in held for message in messages):
                    break
                held.update((message.id, message.handle) for message in messages)
                _by_tens(partial(self._move_ten, held, sent), chosen)
                progress(len(sent), max(total, len(sent)))
        finally:
            self._release(list(held.values()))
        return MoveResult(len(sent), len(held))

    def _receive(self) -> Iterator[list[DeadMessage]]:
        """Receive pages of messages until all are hidden."""
        oldest = self._server_time() - self.retention

        def receive(_: int) -> list[dict[str, Any]]:
            response = self._client.receive_message(
                QueueUrl=self.dead_letters_url,
                MaxNumberOfMessages=10,
                VisibilityTimeout=_HOLD_SECONDS,
                WaitTimeSeconds=_WAIT_SECONDS,
                MessageAttributeNames=["All"],
                AttributeNames=["SentTimestamp", "MessageGroupId"],
            )
            return list(response.get("Messages", []))

        while any(pages := _WORKERS.map(receive, range(_CALLS))):
            # Concurrent calls may get the same message twice.
            messages = {message["MessageId"]: message for page in pages for message in page}
            yield [DeadMessage.read(message, oldest) for message in messages.values()]

    def _move_ten(
        self, held: dict[str, str], sent: set[str], messages: Sequence[DeadMessage]
    ) -> None:
        """Send ten messages, except those that are sent, and delete them."""
        unsent = [message for message in messages if message.id not in sent]
        bodies = [(body, m.sent_at, m.group) for m in unsent for body in m.bodies]
        if problems := send_bodies(self.queue_url, bodies, self._client, policy=_POLICY):
            reason = next(iter(problems.values()))
            left = [bodies[position][0] for position in problems]
            raise SendFailed(self.queue_url, reason, left)
        for message in messages:
            sent.add(message.id)
            del held[message.id]
        # A message that cannot be deleted comes again.
        handles = [message.handle for message in messages]
        self._call_for_ten(self._client.delete_message_batch, {}, handles)

    def _release(self, handles: Sequence[str]) -> None:
        """Show messages to others at once; if that fails, they reappear by themselves."""
        with suppress(ClientError, BotoCoreError):
            call = self._client.change_message_visibility_batch
            _by_tens(partial(self._call_for_ten, call, {"VisibilityTimeout": 0}), handles)

    def _call_for_ten(
        self, call: Callable[..., Any], fields: dict[str, Any], handles: Sequence[str]
    ) -> None:
        """Call SQS for ten dead-lettered messages."""
        entries = [
            {"Id": str(number), "ReceiptHandle": handle, **fields}
            for number, handle in enumerate(handles)
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


def _by_tens(work: Callable[[Sequence[_Item]], None], items: Sequence[_Item]) -> None:
    """Work on ten items at a time, in concurrent calls."""
    parts = [items[at : at + 10] for at in range(0, len(items), 10)]
    _WORKERS.map(work, parts)
