"""Reading the dead-letter queue, sending its messages back to the queue, and deleting them.

Each message is received, sent and then deleted. A crash in between leaves a message in both queues.
This is harmless: a request takes effect once, as long as the acker keeps the chain. So messages
older than that stay. SQS's own StartMessageMoveTask is not used: it loses the first send's time.
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
"""Messages that one reader can hide at a time: SQS allows 120,000."""
_HOLD_SECONDS = 120
"""A received message is hidden from others for this time."""
_WAIT_SECONDS = 1
"""A long poll asks all of a queue's servers, so an empty response means an empty queue."""
_CALLS = 8
"""Concurrent calls, each for ten messages at most."""
_WORKERS = Workers(_CALLS)
_POLICY = RetryPolicy(attempts=8)


@dataclass
class Survey:
    """The selected messages of a dead-letter queue, by reason, the most frequent first.

    `total` is the number in the queue, by SQS's approximate count if not all were read. `messages`
    are the first selected ones, as many as the caller asked for.
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
        """True if a selection matches none of the messages."""
        return not self.seen and self.selector != Selector()


class MoveResult(NamedTuple):
    """The numbers of messages that were moved or deleted, and that were received and left.

    `undeleted` counts those of the first that SQS did not delete: they appear again.
    """

    moved: int
    left: int = 0
    undeleted: int = 0


@dataclass
class Redrive:
    """A dead-letter queue and the queue that its messages go back to, through a client of SQS.

    The acker keeps finished chains for `retention_ms` milliseconds. Messages that were first sent
    longer ago are never sent back.
    """

    dead_letters_url: str
    queue_url: str
    client: Any
    retention_ms: int = DEFAULT_RETENTION_MS

    def count(self) -> int:
        """Return SQS's approximate number of dead-lettered messages, without a receive."""
        name = "ApproximateNumberOfMessages"
        of = {"QueueUrl": self.dead_letters_url, "AttributeNames": [name]}
        return int(self.client.get_queue_attributes(**of)["Attributes"][name])

    def survey(
        self, selector: Selector | None = None, *, limit: int | None = None, keep: int = 0
    ) -> Survey:
        """Read the selected messages, by default all, and leave them in the queue.

        Reads about `limit` messages, selected or not, by default 1,000, or `MAX_READ` for a
        selection; returns at most `keep` of them. Other readers do not see the messages meanwhile.
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
                # Without new ones, those that were hidden first appear again.
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
        """Send selected messages back to the queue, with the time of their first send.

        Expired messages stay, whatever the kinds. So do messages that arrive meanwhile: what is
        rejected again must not go round in circles. After a SendError, those not moved stay.
        """
        kinds = set(kinds) - {"expired"}
        until = self._server_time()

        def chosen(message: DeadMessage) -> bool:
            in_time = message.kind in kinds and message.queued_at <= until
            # A malformed body at SQS's limit cannot be split, and must not go without its time.
            fits = max(size_of(entry) for entry in _again(message)) <= MAX_BODY_BYTES
            return in_time and fits and survey.selector.matches(message)

        return self._pass(chosen, self._send)

    def delete(self, survey: Survey) -> MoveResult:
        """Delete the messages of a survey, and no others."""
        ids = survey.ids
        return self._pass(lambda one: one.id in ids, lambda _: None, len(ids))

    def _pass(
        self,
        chosen: Callable[[DeadMessage], bool],
        forward: _Forward,
        most: int | None = None,
    ) -> MoveResult:
        """Forward and delete the chosen messages of the queue, at most `most` of them."""
        held: dict[str, str] = {}
        done: set[str] = set()
        undeleted: set[str] = set()

        def pass_ten(messages: Sequence[DeadMessage]) -> None:
            forward([message for message in messages if message.id not in done])
            ids = [message.id for message in messages]
            done.update(ids)
            handles = [held.pop(id) for id in ids]
            failed = self._call_for_ten(self.client.delete_message_batch, {}, handles)
            undeleted.difference_update(ids)
            undeleted.update(ids[position] for position in failed)

        try:
            for messages in self._receive():
                # A message that comes again stays, or was forwarded but not deleted.
                part = [message for message in messages if message.id in done or chosen(message)]
                if not part and all(message.id in held for message in messages):
                    break
                held.update((message.id, message.handle) for message in messages)
                _by_tens(pass_ten, part)
                if len(done) == most:
                    break
        finally:
            self._release(list(held.values()))
        return MoveResult(len(done), len(held), len(undeleted))

    def _receive(self) -> Iterator[list[DeadMessage]]:
        """Receive pages of messages until none is left; each is hidden for a time."""
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
            # Concurrent calls may get the same message twice.
            messages = {message["MessageId"]: message for page in pages for message in page}
            yield [DeadMessage.read(message, oldest) for message in messages.values()]

    def _send(self, messages: Sequence[DeadMessage]) -> None:
        again = [entry for one in messages for entry in _again(one)]
        send_messages(self.queue_url, again, self.client, _POLICY)

    def _release(self, handles: Sequence[str]) -> None:
        """Show messages to others at once; if that fails, they reappear by themselves."""
        with suppress(ClientError, BotoCoreError):
            call = self.client.change_message_visibility_batch
            _by_tens(partial(self._call_for_ten, call, {"VisibilityTimeout": 0}), handles)

    def _call_for_ten(
        self, call: Callable[..., Any], fields: dict[str, Any], handles: Sequence[str]
    ) -> list[int]:
        """Call SQS for ten dead-lettered messages; return the positions that it rejects."""
        entries = [
            {"Id": str(number), "ReceiptHandle": handle, **fields}
            for number, handle in enumerate(handles)
        ]
        response = call(QueueUrl=self.dead_letters_url, Entries=entries)
        return [int(entry["Id"]) for entry in (response or {}).get("Failed", [])]

    def _server_time(self) -> int:
        """Return the time of SQS's clock, milliseconds since 1970, rounded up to a second."""
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
    """Work on ten items at a time, in concurrent calls."""
    parts = [items[at : at + 10] for at in range(0, len(items), 10)]
    _WORKERS.map(work, parts)
