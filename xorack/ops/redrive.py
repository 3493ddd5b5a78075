"""Reads the dead-letter queue, sends its messages back to the queue, and deletes them.

Each message is received, sent and then deleted. A crash in between leaves the message in both
queues. This is harmless while the acker keeps the chain, because a request takes effect once. So
older messages are not sent back. SQS's StartMessageMoveTask is not used, because it loses the time
of the first send.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from xorack.acker.parallel import Workers
from xorack.aws.clock import milliseconds
from xorack.aws.retry import RetryPolicy
from xorack.aws.sqs import Entry, make_message, send_messages, size_of
from xorack.core.message import MAX_BODY_BYTES
from xorack.core.ports import DEFAULT_RETENTION_MS
from xorack.ops.dead_letters import KINDS, DeadMessage, Group, Kind, Selector, add_to_groups

_Item = TypeVar("_Item")
_Forward = Callable[[Sequence[DeadMessage]], None]

MAX_READ = 100_000
"""The most messages that one reader hides at a time. SQS permits 120,000."""
_HOLD_SECONDS = 120
"""How long a received message is hidden from other readers."""
_WAIT_SECONDS = 1
"""A long poll asks all servers of a queue, so that an empty response means an empty queue."""
_CALLS = 8
"""The number of concurrent calls, each for at most ten messages."""
_WORKERS = Workers(_CALLS)
_POLICY = RetryPolicy(attempts=8)


@dataclass
class Survey:
    """The selected messages of a dead-letter queue by reason, the most frequent reason first.

    `total` is the number of messages in the queue. It is SQS's estimate unless all messages were
    read. `messages` are the first selected messages, as many as the caller wants.
    """

    groups: list[Group] = field(default_factory=list)
    total: int = 0
    complete: bool = True
    selector: Selector = field(default_factory=Selector)
    read: int = 0
    ids: set[str] = field(default_factory=set)
    messages: list[DeadMessage] = field(default_factory=list)
    at: int = field(default_factory=milliseconds)

    def count(self, *kinds: Kind) -> int:
        return sum(group.count for group in self.groups if group.kind in kinds)

    @property
    def seen(self) -> int:
        return self.count(*KINDS)

    @property
    def selects_nothing(self) -> bool:
        """Return whether there is a selection, and no message matches it."""
        return not self.seen and self.selector != Selector()


class MoveResult(NamedTuple):
    """The numbers of messages that were moved or deleted, and of messages that were left.

    `undeleted` counts moved messages that SQS did not delete, so that they appear again.
    """

    moved: int
    left: int = 0
    undeleted: int = 0


@dataclass
class Redrive:
    """A dead-letter queue, and the queue to which its messages go back, with a client of SQS.

    The acker keeps ended chains for `retention_ms` milliseconds. Messages that were first sent
    longer ago are never sent back.
    """

    dead_letters_url: str
    queue_url: str
    client: Any
    retention_ms: int = DEFAULT_RETENTION_MS

    def count(self) -> int:
        """Return SQS's estimate of the number of dead letters, without receiving any."""
        name = "ApproximateNumberOfMessages"
        of = {"QueueUrl": self.dead_letters_url, "AttributeNames": [name]}
        return int(self.client.get_queue_attributes(**of)["Attributes"][name])

    def survey(
        self, selector: Selector | None = None, *, limit: int | None = None, keep: int = 0
    ) -> Survey:
        """Read the selected messages, or all of them, and leave them in the queue.

        The call reads about `limit` messages, whether selected or not: by default 1,000, or
            `MAX_READ` with a selection. It returns at most `keep` of them. The messages are hidden
            from other readers until the call returns.
        """
        survey = Survey(selector=selector or Selector())
        most = limit or (1000 if survey.selector == Selector() else MAX_READ)
        groups: dict[tuple[Kind, str], Group] = {}
        handles: dict[str, str] = {}
        try:
            for messages in self._receive():
                new = [message for message in messages if message.id not in handles]
                handles.update((message.id, message.handle) for message in messages)
                chosen = [message for message in new if survey.selector.matches(message)]
                survey.read = len(handles)
                survey.groups = add_to_groups(groups, chosen)
                survey.ids.update(message.id for message in chosen)
                survey.messages += chosen[: max(0, keep - len(survey.messages))]
                # If no message is new, the messages that were hidden first are appearing again.
                if not new or (chosen and survey.ids == {*survey.selector.ids}):
                    break
                if len(handles) >= most:
                    survey.complete = False
                    break
        finally:
            self._release(list(handles.values()))
        survey.total = len(handles)
        if not survey.complete:
            survey.total = max(survey.total, self.count())
        return survey

    def move(self, kinds: Collection[Kind], survey: Survey) -> MoveResult:
        """Send selected messages back to the queue with the time of their first sending.

        Expired messages are not sent, whatever their kind. Messages that arrive after the survey
        are not sent either, because rejected messages would be sent again and again. After a
        SendError, the messages that were not moved stay in the queue.
        """
        kinds = set(kinds) - {"expired"}
        until = self._server_time()

        def chosen(message: DeadMessage) -> bool:
            in_time = message.kind in kinds and message.queued_at <= until
            # A malformed body close to SQS's limit cannot be split, and its time would not fit.
            fits = max(size_of(entry) for entry in _again(message)) <= MAX_BODY_BYTES
            return in_time and fits and survey.selector.matches(message)

        return self._pass(chosen, self._send)

    def delete(self, survey: Survey) -> MoveResult:
        """Delete the messages of a survey."""
        ids = survey.ids
        return self._pass(lambda message: message.id in ids, lambda _: None, len(ids))

    def _pass(
        self,
        chosen: Callable[[DeadMessage], bool],
        forward: _Forward,
        most: int | None = None,
    ) -> MoveResult:
        """Forward and delete at most `most` of the chosen messages."""
        hidden: dict[str, str] = {}
        done: set[str] = set()
        undeleted: set[str] = set()

        def pass_ten(messages: Sequence[DeadMessage]) -> None:
            forward([message for message in messages if message.id not in done])
            ids = [message.id for message in messages]
            done.update(ids)
            handles = [hidden.pop(id) for id in ids]
            failed = self._call_for_ten(self.client.delete_message_batch, {}, handles)
            undeleted.difference_update(ids)
            undeleted.update(ids[position] for position in failed)

        try:
            for messages in self._receive():
                # A message that was received before was not chosen, or was forwarded but not
                # deleted.
                part = [message for message in messages if message.id in done or chosen(message)]
                if not part and all(message.id in hidden for message in messages):
                    break
                hidden.update((message.id, message.handle) for message in messages)
                _by_tens(pass_ten, part)
                if len(done) == most:
                    break
        finally:
            self._release(list(hidden.values()))
        return MoveResult(len(done), len(hidden), len(undeleted))

    def _receive(self) -> Iterator[list[DeadMessage]]:
        """Receive pages of messages until the queue is empty.

        A received message is hidden for a time.
        """
        oldest = self._server_time() - self.retention_ms

        def receive(_: int) -> list[dict[str, Any]]:
            response = self.client.receive_message(
                QueueUrl=self.dead_letters_url,
                MaxNumberOfMessages=10,
                VisibilityTimeout=_HOLD_SECONDS,
                WaitTimeSeconds=_WAIT_SECONDS,
                MessageAttributeNames=["All"],
                AttributeNames=["All"],
            )
            return list(response.get("Messages", []))

        while any(pages := _WORKERS.map(receive, range(_CALLS))):
            # Concurrent calls may receive the same message twice.
            messages = {message["MessageId"]: message for page in pages for message in page}
            yield [DeadMessage.read(message, oldest) for message in messages.values()]

    def _send(self, messages: Sequence[DeadMessage]) -> None:
        again = [entry for message in messages for entry in _again(message)]
        send_messages(self.queue_url, again, self.client, _POLICY)

    def _release(self, handles: Sequence[str]) -> None:
        """Make messages visible to other readers at once. If this fails, they reappear later."""
        with suppress(ClientError, BotoCoreError):
            call = self.client.change_message_visibility_batch
            _by_tens(partial(self._call_for_ten, call, {"VisibilityTimeout": 0}), handles)

    def _call_for_ten(
        self, call: Callable[..., Any], fields: dict[str, Any], handles: Sequence[str]
    ) -> list[int]:
        """Call SQS for ten dead letters; return the positions that it rejects."""
        entries = [
            {"Id": str(number), "ReceiptHandle": handle, **fields}
            for number, handle in enumerate(handles)
        ]
        response = call(QueueUrl=self.dead_letters_url, Entries=entries)
        return [int(entry["Id"]) for entry in (response or {}).get("Failed", [])]

    def _server_time(self) -> int:
        """Return the time of SQS's clock in milliseconds since 1970, rounded up to a second."""
        of = {"QueueUrl": self.dead_letters_url, "AttributeNames": ["QueueArn"]}
        response = self.client.get_queue_attributes(**of)
        try:
            date = response["ResponseMetadata"]["HTTPHeaders"]["date"]
            return int(parsedate_to_datetime(date).timestamp() + 1) * 1000
        except (KeyError, ValueError):
            return milliseconds()


def _again(dead: DeadMessage) -> list[Entry]:
    return [make_message(body, dead.group, {"sent_at": dead.sent_at}) for body in dead.bodies]


def _by_tens(work: Callable[[Sequence[_Item]], object], items: Sequence[_Item]) -> None:
    """Call `work` with ten items at a time, in concurrent calls."""
    parts = [items[at : at + 10] for at in range(0, len(items), 10)]
    _WORKERS.map(work, parts)
