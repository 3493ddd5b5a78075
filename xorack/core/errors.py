"""The errors that xorack raises, grouped by who can fix the problem.

- `ArgumentError`: the caller passed an invalid value, or a message contains one.
- `StateError`: the stored state of a chain, record, table or file does not allow the call.
- `UnavailableError`, `SendError`, `BatchError`: AWS failed. The same call may succeed later.

`xorack.errors` adds the errors of Spark jobs and of programs on this machine.

The six errors of the npm packages ``ack`` and ``xor-ack-dynamodb`` keep their names, and so does
`RequestIdReused` of the protocol. As in these packages, the ``code`` of an error is its name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xorack.core.chain import Chain

__all__ = [
    "ArgumentError",
    "BatchError",
    "BufferLengthsUnequal",
    "ConflictError",
    "LessThanTwoBuffers",
    "NotAChainError",
    "RequestIdReused",
    "SendError",
    "StaleLocalData",
    "StateError",
    "TagExists",
    "TagNotFound",
    "UnavailableError",
    "XorAckError",
    "ZeroBufferNoOp",
]

_SHOWN = 80
"""The most characters of an invalid value that an error message shows."""
_FLAGS = re.IGNORECASE | re.DOTALL
_NAME = re.compile("resume|token|step.?function|lambda|callback", _FLAGS)
_TOKEN = re.compile(
    rf"""((?:{_NAME.pattern})[\w -]{{0,9}}[\\"']*\s*:\s*)"""
    r"""(?:[\[{][^\]}]*|\\*(["'])(?:(?!\2).)*)""",
    _FLAGS,
)


def names_token(key: str) -> bool:
    """Return whether a key may name a token of `resume`, even if it is misspelt."""
    return bool(_NAME.search(key))


def without_tokens(text: str) -> str:
    """Return a text that looks like JSON or Python with the secret tokens of `resume` replaced."""
    return _TOKEN.sub(r"\1...", text)


def shown(value: object) -> str:
    """Return the ``repr`` of a value for a message: one ASCII line of at most 80 characters."""
    if isinstance(value, (list, dict)):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    if isinstance(value, (str, bytes)):
        value = value[: _SHOWN + 1]
        value = without_tokens(value) if isinstance(value, str) else value
    try:
        text = ascii(value)
    except Exception:  # noqa: BLE001 - any `__repr__` may run
        return f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


_HIDDEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U00016fe4\U0001d159\U000e0100-\U000e01ef]"
)
"""Characters that Python calls printable but that are invisible: fillers, joiners, selectors."""


def printable(text: str) -> str:
    """Escape the characters of a text that control a terminal, end the line or are invisible."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        c
        if c.isprintable() and not _HIDDEN.match(c)
        else c.encode("unicode_escape", "backslashreplace").decode()
        for c in text
    )


class XorAckError(Exception):
    """The base class of all errors of this package."""

    @property
    def code(self) -> str:
        """The name of the error class, as in the errors of the npm packages."""
        return type(self).__name__


class ArgumentError(XorAckError, ValueError):
    """An argument, a setting, a token, or a field of a message is invalid.

    Attributes:
        field: The name of the field, for example ``tag`` or ``requests``.
        expected: The expected value. Empty if the error's text describes the problem instead.
        without_value: The text of the error without the invalid value.
    """

    def __init__(
        self, field: str, value: object = None, expected: str = "", *, problem: str | None = None
    ) -> None:
        super().__init__(f"{field}: {problem or f'{shown(value)}, expected {expected}'}")
        self.field = field
        self.expected = expected
        self.without_value = str(self) if problem else f"{field}: …, expected {expected}"


class RequestIdReused(ArgumentError):
    """Another request of the chain, with other content, has already used this request's id.

    The sender made a mistake. If this counted as a duplicate, the request's work would be lost.
    """

    def __init__(self, request_id: str) -> None:
        expected = "a unique id, because a request with this id and other content was applied"
        super().__init__("id", request_id, expected)


class BufferLengthsUnequal(XorAckError, ValueError):
    """The lengths of two stamps differ. All stamps of a chain have the same length."""

    def __init__(self, length: int | None = None, expected: int | None = None) -> None:
        message = "Buffer lengths are not equal"
        if length is not None and expected is not None:
            message += f": stamp has {length} bytes, expected {expected}"
        super().__init__(message)
        self.length = length
        self.expected = expected


class LessThanTwoBuffers(XorAckError, ValueError):
    """``xor`` got fewer than two stamps."""

    def __init__(self) -> None:
        super().__init__("At least two buffers expected")


class ZeroBufferNoOp(XorAckError, ValueError):
    """The stamp is all zeros, so XORing it in would change nothing."""

    def __init__(self) -> None:
        super().__init__("The stamp is all zeros")


class StateError(XorAckError):
    """The stored state of a chain, record, stack or file does not allow this call."""


class TagExists(StateError):
    """Another request has created a chain of this tag, or the chain ended without a create."""

    def __init__(self, tag: str, reason: str | None = None) -> None:
        super().__init__(f"tag: {shown(tag)} already exists" + (f": {reason}" if reason else ""))
        self.tag = tag


class TagNotFound(StateError, LookupError):
    """No chain has this tag."""

    def __init__(self, tag: str) -> None:
        super().__init__(f"tag: {shown(tag)} does not exist")
        self.tag = tag


class StaleLocalData(StateError):
    """Other writers changed the chain at each attempt. Nothing was written."""

    def __init__(self, tag: str | None = None, attempts: int | None = None) -> None:
        message = "Stale local data"
        if tag is not None:
            message += f": other writers changed {shown(tag)} at each of {attempts} attempts"
        super().__init__(message)
        self.tag = tag
        self.attempts = attempts


class ConflictError(StateError):
    """A conditional write failed because the stored state is not the expected state.

    Attributes:
        chain: The stored state; None if there is no chain.
        maybe_ours: True if this write may have stored that state itself: the response was lost, and
            the SDK's retry met it.
    """

    def __init__(self, chain: Chain | None, *, maybe_ours: bool = False) -> None:
        super().__init__("another writer changed the chain")
        self.chain = chain
        self.maybe_ours = maybe_ours


class NotAChainError(StateError, ValueError):
    """An item of the table is not a chain. Another program or a newer version wrote it.

    Attributes:
        tag: The item's tag.
        reason: The attribute that is invalid, and why.
    """

    def __init__(self, tag: object, reason: str) -> None:
        super().__init__(f"tag: {shown(tag)} is not a chain item: {reason}")
        self.tag = tag
        self.reason = reason


class UnavailableError(XorAckError):
    """A call failed temporarily, but may have taken effect: throttled, timed out, response lost.

    Attributes:
        cause: The exception of the call.
    """

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class SendError(XorAckError):
    """The queue did not accept some messages after all retries. Repeat the call: ids stay the same.

    Attributes:
        queue_url: The queue.
        unsent: The bodies that were not accepted, if the caller keeps them.
    """

    def __init__(self, reason: str, queue_url: str = "", unsent: Sequence[str] = ()) -> None:
        count = f"{len(unsent):,} {'message' if len(unsent) == 1 else 'messages'}"
        where = f"queue {queue_url}: {count} not sent: " if queue_url else ""
        super().__init__(where + reason)
        self.queue_url = queue_url
        self.unsent = list(unsent)


class BatchError(XorAckError):
    """Every message of a batch failed. SQS delivers all of them again.

    Attributes:
        messages: The number of messages.
    """

    def __init__(self, messages: int, reason: str) -> None:
        text = f"all {messages:,} messages of the batch failed; the first: {reason}"
        super().__init__(text if messages > 1 else f"the batch's only message failed: {reason}")
        self.messages = messages
