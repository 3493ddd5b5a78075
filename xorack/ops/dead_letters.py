"""Dead letters: why the consumer gave up on messages, and which of them can be sent back.

There are four kinds of dead letters. A *failed* message could not be processed at any attempt, but
can be processed once the cause is fixed. A *rejected* message has a request that its chain does not
accept, and mostly still would not accept. A *malformed* message cannot be parsed by this version.
An *expired* message was first sent longer ago than ended chains are kept. Its requests may already
have been applied to a chain that was deleted since, and would start that chain again.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from xorack.core.errors import ArgumentError
from xorack.core.event import milliseconds_of, rfc3339
from xorack.core.message import MAX_BODY_BYTES, pack, parse
from xorack.core.request import Request
from xorack.core.text import listed, plural, span
from xorack.ops.body import read_json, value_line
from xorack.ops.run_chains import RunChains
from xorack.ops.similar_texts import cause_of, shared_text

Kind = Literal["failed", "rejected", "malformed", "expired"]
KINDS: tuple[Kind, ...] = ("failed", "rejected", "malformed", "expired")
"""The kinds of dead letters. The kind that is most worth another attempt comes first."""

_FAILED = "failed at every attempt: the consumer's log says why"
_MAX_AGAIN = MAX_BODY_BYTES - 64
"""The limit of a body that is sent again. It leaves room for the attribute ``sent_at``."""
_MAX_UNPACKED = 8 * MAX_BODY_BYTES
_FIELD = re.compile(r"(?:requests\[\d+\]\.)?(\w+): ")
_LENGTHS = "Buffer lengths "
_TOO_OLD = (
    "too old to accept, because its chain may have ended and expired; if the tags are new, remove "
    "sent_at"
)
_MAX_TAGS = 5


@dataclass(frozen=True)
class DeadMessage:
    """A message of the dead-letter queue. Times are milliseconds since the epoch.

    `queued_at` is the time at which SQS got it. If SQS itself moved the message, `queued_at` is the
    time of its first send, and there is no `rejected_at`. `error` is the text of the consumer or
    the parser. `reason` is that text, or other information. `bodies` are the bodies to send back.
    There are several if the unpacked `body` is too large for one message. `message_id` and `sender`
    belong to the message that the consumer received.
    """

    id: str
    handle: str
    queued_at: int
    sent_at: int
    kind: Kind
    error: str | None
    reason: str
    tags: tuple[str, ...]
    body: str
    bodies: tuple[str, ...]
    group: str | None
    message_id: str
    sender: str | None = None
    rejected_at: int | None = None
    first_received_at: int | None = None
    receives: int | None = None

    @classmethod
    def read(cls, message: Mapping[str, Any], oldest: int = 0) -> DeadMessage:
        """Read a message of SQS's ReceiveMessage that was received with all its attributes.

        A message that was first sent before `oldest` is expired.
        """
        envelope = _Envelope.of(message)
        return cls(
            id=message["MessageId"],
            handle=message["ReceiptHandle"],
            body=envelope.text,
            queued_at=envelope.queued_at,
            sent_at=envelope.sent_at,
            group=envelope.system.get("MessageGroupId"),
            message_id=envelope.attributes.get("message_id") or message["MessageId"],
            sender=envelope.sender,
            rejected_at=None if envelope.error is None else envelope.queued_at,
            first_received_at=envelope.number("ApproximateFirstReceiveTimestamp") or None,
            receives=envelope.number("ApproximateReceiveCount") or None,
            **_classify(envelope, oldest),
        )

    @property
    def tag(self) -> str:
        return next(iter(self.tags), "")

    @cached_property
    def cause(self) -> str:
        """The reason without values that differ between messages with the same cause."""
        return cause_of(self.reason)

    @cached_property
    def offending(self) -> tuple[str, Any] | None:
        """The invalid field and its value, if the error names a field of the body."""
        error = self.error or ""
        match = _FIELD.match(error)
        field = "stamp" if error.startswith(_LENGTHS) else match[1] if match else ""
        if field == "body":
            return field, self.body
        content = read_json(self.body)
        requests = _requests(content)
        first = requests[0] if requests else None
        if field == "request" and requests:
            return field, first
        for holder in (first, content):
            if isinstance(holder, dict) and field in holder:
                return field, holder[field]
        return None

    def facts(self, now: int) -> list[tuple[str, str]]:
        """Return names and values for people, without the body.

        Only the first value of a name has the name.
        """

        def ago(time: int | None) -> str:
            return "" if time is None else f"{rfc3339(time)}, {span(max(0, now - time))} ago"

        more = len(self.tags) - _MAX_TAGS
        tags = [*self.tags[:_MAX_TAGS], *([f"and {plural(more, 'more tag')}"] if more > 0 else [])]
        first = f", first {rfc3339(self.first_received_at)}" if self.first_received_at else ""
        facts = [
            ("id", self.id),
            ("original id", "" if self.message_id == self.id else self.message_id),
            ("kind", self.kind),
            ("reason", self.error or self.reason),
            ("value", value_line(*self.offending) if self.offending else ""),
            *listed("tag", tags),
            ("sender", self.sender or ""),
            ("sent", ago(self.sent_at)),
            ("rejected", ago(self.rejected_at)),
            ("received", "" if self.receives is None else plural(self.receives, "time") + first),
        ]
        return [(name, value) for name, value in facts if value]

    def to_dict(self) -> dict[str, Any]:
        """Return the message as JSON shows it. Its ``body`` is text that is not parsed."""
        field, value = self.offending or (None, None)
        names = ("id", "kind", "reason", "error", "tags", "sender", "message_id", "receives")
        times = ("sent_at", "rejected_at", "first_received_at")
        return {
            **{name: getattr(self, name) for name in names},
            **{name: rfc3339(getattr(self, name)) for name in times},
            "field": field,
            "value": value,
            "body": self.body,
        }


@dataclass(frozen=True)
class Selector:
    """A selection of dead letters, which meet all of these conditions.

    `reason` is a part of the reason, or of the text of a group. `tag` and `run` belong to the chain
    of a request.
    """

    ids: Collection[str] = ()
    kinds: Collection[Kind] = ()
    reason: str | None = None
    tag: str | None = None
    run: RunChains | None = None

    def matches(self, message: DeadMessage) -> bool:
        return (
            (not self.kinds or message.kind in self.kinds)
            and (not self.ids or message.id in self.ids)
            and (not self.reason or self.reason in f"{message.cause}\0{message.reason}")
            and (self.tag is None or self.tag in message.tags)
            and (not self.run or any(tag.startswith(self.run.prefix) for tag in message.tags))
        )


@dataclass
class Group:
    """Dead letters with the same cause. The example is the tag of one of them.

    `cause` equals their `DeadMessage.cause`. `reason` is the text that all of them share.
    """

    kind: Kind
    cause: str
    reason: str
    count: int = 0
    example: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("kind", "reason", "count", "example")}


def add_to_groups(
    groups: dict[tuple[Kind, str], Group], messages: Iterable[DeadMessage]
) -> list[Group]:
    """Count messages by kind and cause. Return the groups, the most frequent first."""
    for message in messages:
        key = (message.kind, message.cause)
        group = groups.setdefault(key, Group(*key, message.reason))
        if message.reason != group.reason:
            group.reason = shared_text([group.reason, message.reason])
        group.count += 1
        group.example = group.example or message.tag or None
    return sorted(groups.values(), key=lambda group: (-group.count, group.reason))


@dataclass(frozen=True)
class Corrected:
    """The requests of corrected messages by the time of their first sending, and the problems."""

    requests: dict[int | None, list[Request]]
    problems: list[str]


def corrected(lines: Iterable[str], oldest: int) -> Corrected:
    """Read the requests of messages, and the problems of each line.

    A line is one JSON object: a body, or an object with a ``body`` and perhaps ``sent_at``, such as
    `DeadMessage.to_dict` returns. The requests are grouped by the time of their first sending.
    """
    requests: dict[int | None, list[Request]] = {}
    problems: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        content = read_json(line)
        letter = content if isinstance(content, dict) and "body" in content else {"body": line}
        body, sent_at = letter["body"], letter.get("sent_at")
        valid, invalid = parse(body if isinstance(body, str) else json.dumps(body))
        wrong = [each.reason for each in invalid]
        time = None
        try:
            time = None if sent_at is None else milliseconds_of(sent_at)
        except ArgumentError as error:
            wrong.append(str(error))
        if time is not None and time < oldest:
            wrong.append(f"sent_at: {sent_at}: {_TOO_OLD}")
        problems += (f"line {number}: {reason}" for reason in wrong)
        requests.setdefault(time, []).extend(valid)
    return Corrected(requests, problems)


@dataclass(frozen=True)
class _Envelope:
    """The trustworthy attributes of a message from SQS and the consumer, and its text."""

    system: Mapping[str, str]
    attributes: Mapping[str, str | None]
    text: str
    is_corrupt: bool

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> _Envelope:
        system = message.get("Attributes", {})
        values = message.get("MessageAttributes", {})
        attributes = {name: value.get("StringValue") for name, value in values.items()}
        if "DeadLetterQueueSourceArn" in system:
            # SQS moved the message, so the sender wrote its attributes. Only the time is safe to
            # use.
            attributes = {"sent_at": attributes.get("sent_at")}
        packed = attributes.get("encoding") == "gzip+base64"
        body = _unpack(message["Body"]) if packed else message["Body"]
        return cls(system, attributes, message["Body"] if body is None else body, body is None)

    def number(self, name: str) -> int:
        return int(self.system.get(name, 0))

    @property
    def queued_at(self) -> int:
        return self.number("SentTimestamp")

    @property
    def sent_at(self) -> int:
        """When the message was first sent.

        A sender's time that is later than SQS's time is ignored.
        """
        valid = re.fullmatch("[0-9]{1,15}", self.attributes.get("sent_at") or "")
        return min(int(valid[0]), self.queued_at) if valid else self.queued_at

    @property
    def error(self) -> str | None:
        return self.attributes.get("error")

    @property
    def sender(self) -> str | None:
        """The sender, according to the consumer, or to SQS if SQS moved the message."""
        known = self.system.get("SenderId") if self.error is None else None
        return self.attributes.get("sender") or known


def _classify(envelope: _Envelope, oldest: int) -> dict[str, Any]:
    """Return the fields of a message that follow from its requests and the consumer's error."""
    text, error = envelope.text, envelope.error
    requests, invalid = ([], []) if envelope.is_corrupt else parse(text)
    kind: Kind = "failed" if error is None else "rejected"
    if not requests:  # a message with one valid request is valid for the consumer, too
        kind = "malformed"
        error = error or (invalid[0].reason if invalid else _FAILED)
    reason = error or _FAILED
    if envelope.sent_at < oldest or reason.startswith("sent_at: "):
        kind = "expired"
    bodies = [text]
    if requests and len(text.encode("utf-8", "surrogatepass")) > _MAX_AGAIN:
        bodies = [*pack(requests), *(entry.body for entry in invalid)]
    tags: list[Any] = [request.tag for request in requests]
    raw = _requests(read_json(text)) if invalid else []
    tags += [each.get("tag") for each in raw if isinstance(each, dict)]
    return {
        "kind": kind,
        "error": error,
        "reason": reason,
        "tags": tuple(dict.fromkeys(tag for tag in tags if isinstance(tag, str))),
        "bodies": tuple(bodies),
    }


def _requests(content: Any) -> list[Any]:
    requests = content.get("requests") if isinstance(content, dict) else None
    return requests if isinstance(requests, list) else []


def _unpack(body: str) -> str | None:
    """Decompress a body; return None if it is invalid or far larger than any message."""
    try:
        unpacker = zlib.decompressobj(wbits=31)
        text = unpacker.decompress(base64.b64decode(body, validate=True), _MAX_UNPACKED)
        return text.decode() if unpacker.eof else None
    except (binascii.Error, ValueError, zlib.error):
        return None
