"""Dead letters: what they are, and how they go back to the queue.

A letter is there for one of three reasons. It failed: the consumer could not do with it, however
often it came; once the cause is mended it is as good as any. It was refused: the chain it is for
was not as the request needs it, and mostly still is not. Or it is malformed: no message that any
consumer of this version would take.

By hand a letter is received, sent to the queue, and then deleted: whoever dies in between leaves it
in both, and the second copy changes nothing, since a request takes effect once.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from botocore.exceptions import BotoCoreError, ClientError

from xorack.aws.client import error_code, make_client
from xorack.aws.sqs import send_bodies
from xorack.core.clock import milliseconds
from xorack.core.errors import SendFailed, XorAckError
from xorack.core.message import MAX_BODY_BYTES, pack, parse
from xorack.core.retry import RetryPolicy

__all__ = [
    "KINDS",
    "Group",
    "Kind",
    "MoveFailed",
    "Moved",
    "NoQueue",
    "Survey",
    "feeds",
    "move",
    "survey",
]

Kind = Literal["failed", "rejected", "malformed"]
KINDS: tuple[Kind, ...] = ("failed", "rejected", "malformed")
"""Why a letter is dead, the one that is worth another try first."""

Progress = Callable[[int, int], None]
"""Is told how many letters are moved, and about how many there are."""

_FAILED = "failed at each of its tries: the consumer's log says why"
_HOLD_SECONDS = 120
"""How long a letter that we received is hidden from others."""
_WAIT_SECONDS = 1
"""A long poll asks all of a queue's servers, so one that finds nothing found the end."""
_POLL_SECONDS = 2.0
_MAX_UNPACKED = 8 * MAX_BODY_BYTES
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'(?:\.\.\.)?|"(?:[^"\\]|\\.)*"(?:\.\.\.)?""")
_CUT = re.compile(r"""(?<=: )b?(?:'[^']{70,}|"[^"]{70,})\.\.\.(?=,)""")
"""A long value as an error repeats it: cut, and so without the quote at its end."""
_INDEX = re.compile(r"^requests\[\d+\]")


class MoveFailed(XorAckError):
    """SQS began to move the letters and did not come to the end, or does not tell."""


class NoQueue(XorAckError):
    """There is no such queue."""


@dataclass
class Group:
    """Letters that are dead for the same reason.

    Attributes:
        kind: What sort of reason.
        reason: The reason, without what differs from letter to letter.
        count: How many of them were seen.
        example: The tag of one of them; None where none can be read.
    """

    kind: Kind
    reason: str
    count: int = 0
    example: str | None = None


@dataclass
class Survey:
    """What is in a dead-letter queue.

    Attributes:
        groups: By reason, the commonest first.
        seen: Letters that were looked at.
        about: Letters there are, as far as SQS knows: it counts roughly.
        complete: Whether the queue's end was reached.
        packed: Those of the seen that hold a packed body.
    """

    groups: list[Group] = field(default_factory=list)
    seen: int = 0
    about: int = 0
    complete: bool = True
    packed: int = 0

    def count(self, kinds: Collection[Kind] = KINDS) -> int:
        """How many letters of these kinds were seen."""
        return sum(group.count for group in self.groups if group.kind in kinds)


@dataclass
class Moved:
    """What became of the letters.

    Attributes:
        moved: Those that went back.
        left: Those that were looked at and stay.
        by: Who moved them: ``task``, SQS itself, or ``hand``.
        why_by_hand: What SQS said to moving them itself; None where it was not asked.
    """

    moved: int = 0
    left: int = 0
    by: Literal["task", "hand"] = "hand"
    why_by_hand: str | None = None


@dataclass(frozen=True)
class _Letter:
    """A letter as it is read.

    Attributes:
        bodies: What goes back: one message, or several if it was packed and is too large for one.
    """

    id: str
    handle: str
    sent: int
    kind: Kind
    reason: str
    tag: str | None
    packed: bool
    bodies: tuple[str, ...]


def feeds(queue_url: str, dead_letters_url: str, client: Any = None) -> bool:
    """Whether SQS moves a queue's dead letters to another queue.

    Args:
        queue_url: The queue.
        dead_letters_url: The other one.
        client: A boto3 SQS client; one of the default chain if None.

    Returns:
        False also where it has no dead-letter queue.

    Raises:
        NoQueue: There is no such queue.
        botocore.exceptions.ClientError: What SQS refused.
    """
    client = make_client("sqs") if client is None else client
    try:
        attributes = client.get_queue_attributes(
            QueueUrl=queue_url, AttributeNames=["RedrivePolicy"]
        ).get("Attributes", {})
    except ClientError as error:
        # The code's name depends on the protocol that boto3 speaks.
        code = error_code(error)
        if "NonExistentQueue" not in code and "QueueDoesNotExist" not in code:
            raise
        region = client.meta.region_name
        raise NoQueue(f"queue {queue_url} does not exist in {region}") from error
    target = json.loads(attributes.get("RedrivePolicy", "{}")).get("deadLetterTargetArn", "")
    # An ARN and a URL both end in account and name.
    return bool(target) and target.split(":")[-2:] == dead_letters_url.split("/")[-2:]


def survey(queue_url: str, client: Any = None, *, limit: int = 1000) -> Survey:
    """Look at a dead-letter queue and leave all letters in it.

    Letters that are looked at are hidden from others meanwhile.

    Args:
        queue_url: The dead-letter queue.
        client: A boto3 SQS client; one of the default chain if None.
        limit: Most letters to look at, at least 1.

    Returns:
        The reasons, counted.

    Raises:
        botocore.exceptions.ClientError: What SQS refused.
    """
    client = make_client("sqs") if client is None else client
    found = Survey()
    groups: dict[tuple[Kind, str], Group] = {}
    held: dict[str, str] = {}
    try:
        for letters in _receive(client, queue_url):
            for letter in letters:
                known = letter.id in held
                held[letter.id] = letter.handle
                if known:
                    continue
                found.seen += 1
                found.packed += letter.packed
                key = (letter.kind, letter.reason)
                group = groups.setdefault(key, Group(*key))
                group.count += 1
                group.example = group.example or letter.tag
            if found.seen >= limit:
                found.complete = False
                break
    finally:
        _release(client, queue_url, held.values())
    found.groups = sorted(groups.values(), key=lambda group: (-group.count, group.reason))
    found.about = found.seen if found.complete else max(found.seen, _about(client, queue_url))
    return found


def move(
    dead_letters_url: str,
    queue_url: str,
    kinds: Collection[Kind],
    found: Survey,
    client: Any = None,
    *,
    progress: Progress = lambda moved, total: None,
    sleep: Callable[[float], None] = time.sleep,
    policy: RetryPolicy | None = None,
) -> Moved:
    """Send dead letters back to the queue.

    SQS moves them itself where all letters that were seen failed and can go as they are: all that
    are in the queue, those that `survey` did not come to whatever they are. Else, and where SQS
    does not (it does one move of a queue at a time), they are moved one by one; letters that come
    after the beginning stay then: what is refused again must not go round in circles.

    Args:
        dead_letters_url: The dead-letter queue.
        queue_url: Where the letters go.
        kinds: Which of them.
        found: What `survey` found.
        client: A boto3 SQS client; one of the default chain if None.
        progress: Is told how far it is.
        sleep: Waits between looks at what SQS does.
        policy: When to send again what was not accepted.

    Returns:
        What became of them.

    Raises:
        SendFailed: The queue does not take them. What was not moved is where it was.
        MoveFailed: SQS gave up; what it did not move is where it was.
        botocore.exceptions.ClientError: What SQS refused.
    """
    client = make_client("sqs") if client is None else client
    done = Moved()
    if found.seen and found.count(["failed"]) == found.seen and not found.packed:
        try:
            task = _start_task(client, dead_letters_url, queue_url)
        except ClientError as error:
            done.why_by_hand = error_code(error)
        else:
            done.by = "task"
            done.moved = _watch_task(client, *task, found.about, progress, sleep)
            return done
    _move_by_hand(client, dead_letters_url, queue_url, kinds, found, done, progress, policy)
    return done


def _start_task(client: Any, source: str, target: str) -> tuple[str, str]:
    """Have SQS move all letters; answers with the source's ARN and the task's handle."""
    arns = [
        client.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"][
            "QueueArn"
        ]
        for url in (source, target)
    ]
    # The target is named: what the consumer sent there itself has no source that SQS would know.
    started = client.start_message_move_task(SourceArn=arns[0], DestinationArn=arns[1])
    return arns[0], started["TaskHandle"]


def _watch_task(
    client: Any,
    source: str,
    handle: str,
    about: int,
    progress: Progress,
    sleep: Callable[[float], None],
) -> int:
    """Wait for SQS's own move; answers with how many it moved. Cancels it when interrupted."""
    try:
        while True:
            # Done tasks have no handle any more, and the newest is the first.
            try:
                told = client.list_message_move_tasks(SourceArn=source, MaxResults=1)
            except ClientError as error:
                why = f"SQS goes on to move them, and does not tell how far it is: {error}"
                raise MoveFailed(why) from error
            (task, *_) = told["Results"]
            moved = int(task.get("ApproximateNumberOfMessagesMoved", 0))
            total = int(task.get("ApproximateNumberOfMessagesToMove") or about)
            progress(moved, max(total, moved))
            status = task["Status"]
            if status == "COMPLETED":
                return moved
            if status not in ("RUNNING", "CANCELLING"):
                why = task.get("FailureReason", "no reason given")
                letters = "letter" if moved == 1 else "letters"
                raise MoveFailed(f"SQS moved {moved} {letters} and stopped ({status}): {why}")
            sleep(_POLL_SECONDS)
    except KeyboardInterrupt:
        client.cancel_message_move_task(TaskHandle=handle)
        raise


def _move_by_hand(
    client: Any,
    source: str,
    target: str,
    kinds: Collection[Kind],
    found: Survey,
    done: Moved,
    progress: Progress,
    policy: RetryPolicy | None,
) -> None:
    held: dict[str, str] = {}
    sent: set[str] = set()
    began: int | None = None
    total = found.count(kinds) if found.complete else found.about
    try:
        for letters in _receive(client, source):
            if began is None:
                began = _server_time(client, source)
            to_go = []
            news = False
            for letter in letters:
                # One that comes again was sent before, and could not be deleted, or stays.
                news = news or not (letter.id in held or letter.id in sent)
                if letter.kind in kinds and (letter.sent <= began or letter.id in sent):
                    to_go.append(letter)
                else:
                    held[letter.id] = letter.handle
            if not news and not to_go:
                break
            fresh = [letter for letter in to_go if letter.id not in sent]
            try:
                _send(client, target, fresh, policy)
            except BaseException:
                held.update({letter.id: letter.handle for letter in to_go})
                raise
            sent.update(letter.id for letter in fresh)
            _delete(client, source, to_go)
            done.moved = len(sent)
            done.left = len(held)
            progress(done.moved, max(total, done.moved))
    finally:
        _release(client, source, held.values())


def _send(
    client: Any, queue_url: str, letters: Sequence[_Letter], policy: RetryPolicy | None
) -> None:
    bodies = [body for letter in letters for body in letter.bodies]
    if problems := send_bodies(queue_url, bodies, client, policy=policy or RetryPolicy(attempts=8)):
        why = next(iter(problems.values()))
        raise SendFailed(queue_url, why, [bodies[position] for position in problems])


def _delete(client: Any, queue_url: str, letters: Sequence[_Letter]) -> None:
    """Delete letters; what cannot be deleted comes again, and is known then."""
    for at in range(0, len(letters), 10):
        entries = [
            {"Id": str(n), "ReceiptHandle": letter.handle}
            for n, letter in enumerate(letters[at : at + 10])
        ]
        client.delete_message_batch(QueueUrl=queue_url, Entries=entries)


def _receive(client: Any, queue_url: str) -> Iterator[list[_Letter]]:
    """Letters as they are received, until there are no more that are not hidden."""
    while True:
        answer = client.receive_message(
            QueueUrl=queue_url,
            MaxNumberOfMessages=10,
            VisibilityTimeout=_HOLD_SECONDS,
            WaitTimeSeconds=_WAIT_SECONDS,
            MessageAttributeNames=["All"],
            AttributeNames=["SentTimestamp"],
        )
        messages = answer.get("Messages", [])
        if not messages:
            return
        yield [_letter(message) for message in messages]


def _release(client: Any, queue_url: str, handles: Iterable[str]) -> None:
    """Show letters to others again at once. Where that fails, they come back by themselves."""
    all_handles = list(handles)
    try:
        for at in range(0, len(all_handles), 10):
            client.change_message_visibility_batch(
                QueueUrl=queue_url,
                Entries=[
                    {"Id": str(n), "ReceiptHandle": handle, "VisibilityTimeout": 0}
                    for n, handle in enumerate(all_handles[at : at + 10])
                ],
            )
    except (ClientError, BotoCoreError):
        return


def _attributes(client: Any, queue_url: str) -> Any:
    name = "ApproximateNumberOfMessages"
    return client.get_queue_attributes(QueueUrl=queue_url, AttributeNames=[name])


def _about(client: Any, queue_url: str) -> int:
    return int(_attributes(client, queue_url)["Attributes"]["ApproximateNumberOfMessages"])


def _server_time(client: Any, queue_url: str) -> int:
    """The time on the queue's own clock, milliseconds since 1970, rounded up to a second."""
    headers = _attributes(client, queue_url)["ResponseMetadata"].get("HTTPHeaders", {})
    try:
        return int(parsedate_to_datetime(headers["date"]).timestamp() + 1) * 1000
    except (KeyError, ValueError):
        return milliseconds()


def _letter(message: dict[str, Any]) -> _Letter:
    attributes = {
        name: str(value.get("StringValue", ""))
        for name, value in message.get("MessageAttributes", {}).items()
    }
    error = attributes.get("error")
    packed = attributes.get("encoding") == "gzip+base64"
    body: str | None = message["Body"]
    if packed:
        body = _unpacked(message["Body"])
    read = parse(body) if body is not None else None
    # As the consumer has it: of a message whose requests are wrong in part, the others apply.
    taken = read is not None and bool(read.requests)
    kind: Kind = "malformed" if not taken else "failed" if error is None else "rejected"
    if error is None:
        error = read.rejected[0].reason if read is not None and not taken else _FAILED
    if body is None:
        bodies: tuple[str, ...] = (message["Body"],)
    elif packed and len(body.encode("utf-8", "surrogatepass")) > MAX_BODY_BYTES and read:
        bodies = tuple(pack(read.requests))
    else:
        bodies = (body,)
    return _Letter(
        message["MessageId"],
        message["ReceiptHandle"],
        int(message.get("Attributes", {}).get("SentTimestamp", 0)),
        kind,
        _general(error),
        read.requests[0].tag if read is not None and read.requests else None,
        packed,
        bodies or (message["Body"],),
    )


def _unpacked(body: str) -> str | None:
    """A packed body; None if it is none, or far larger than any message."""
    try:
        unpacker = zlib.decompressobj(wbits=31)
        text = unpacker.decompress(base64.b64decode(body, validate=True), _MAX_UNPACKED)
        return text.decode() if unpacker.eof else None
    except (binascii.Error, ValueError, zlib.error):
        return None


def _general(reason: str) -> str:
    """A reason without what differs from letter to letter."""
    return _QUOTED.sub("'…'", _CUT.sub("'…'", _INDEX.sub("requests[…]", reason)))
