"""The errors that xorack raises: one tree, split by whose fault it is.

- `ArgumentError`: the caller's. What was given is invalid, wherever it is given.
- `StateError`: of what is there. A chain, record, table or file is not as the call needs it.
- `UnavailableError`, `SendError`, `BatchError`: of AWS. The same call may succeed later.

Those of Spark jobs and of programs on this machine are in `xorack.spark` and `xorack.local`.

The six errors of the npm packages ``ack`` and ``xor-ack-dynamodb`` keep their names, and so does
`RequestIdReused` of the protocol. Each error carries a ``code`` equal to its name, as there.
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
"""Most characters of an invalid value in an error message."""
_FLAGS = re.IGNORECASE | re.DOTALL
_NAME = re.compile("resume|token|step.?function|lambda|callback", _FLAGS)
_TOKEN = re.compile(
    rf"""((?:{_NAME.pattern})[\w -]{{0,9}}[\\"']*\s*:\s*)"""
    r"""(?:[\[{][^\]}]*|\\*(["'])(?:(?!\2).)*)""",
    _FLAGS,
)


def names_token(key: str) -> bool:
    """Return whether a key may stand for a token of `resume`, also a misspelt one."""
    return bool(_NAME.search(key))


def without_tokens(text: str) -> str:
    """Return text without the tokens of `resume`, secrets, if it looks like JSON or Python."""
    return _TOKEN.sub(r"\1...", text)


def shown(value: object) -> str:
    """Return the ``repr`` of a value for a message: one line, ASCII, at most 80 characters."""
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
"""What Python takes for printable and nobody sees: fillers, joiners, variation selectors."""


def printable(text: str) -> str:
    """Escape the characters of a text that steer a terminal, end its line or hide."""
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
        """The name of the error, as the npm packages' errors carry it."""
        return type(self).__name__


class ArgumentError(XorAckError, ValueError):
    """An argument, a setting, a token, or a field of a message is invalid.

    Attributes:
        field: Its name, for example ``tag`` or ``requests``.
        expected: The expected value; empty if the text says it otherwise.
        without_value: The text of the error, which does not quote the value.
    """

    def __init__(
        self, field: str, value: object = None, expected: str = "", *, problem: str | None = None
    ) -> None:
        super().__init__(f"{field}: {problem or f'{shown(value)}, expected {expected}'}")
        self.field = field
        self.expected = expected
        self.without_value = str(self) if problem else f"{field}: …, expected {expected}"


class RequestIdReused(ArgumentError):
    """A request's id was used before in its chain, by a request with other content.

    This is a mistake of the sender and not a duplicate: dropping the request would lose work.
    """

    def __init__(self, request_id: str) -> None:
        expected = "a unique id: a request of this id with other content was applied"
        super().__init__("id", request_id, expected)


class BufferLengthsUnequal(XorAckError, ValueError):
    """The lengths of two stamps differ: a chain uses one length throughout."""

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
    """The stamp is all zeros: XORing it in would change nothing."""

    def __init__(self) -> None:
        super().__init__("Buffer is all zeros")


class StateError(XorAckError):
    """What is there does not permit the call: a chain, a run's record, a stack, a file."""


class TagExists(StateError):
    """Another request created a chain of this tag before, or the chain ended without a create."""

    def __init__(self, tag: str, reason: str | None = None) -> None:
        super().__init__(f"tag: {shown(tag)} already exists" + (f": {reason}" if reason else ""))
        self.tag = tag


class TagNotFound(StateError, LookupError):
    """No chain has this tag."""

    def __init__(self, tag: str) -> None:
        super().__init__(f"tag: {shown(tag)} does not exist")
        self.tag = tag


class StaleLocalData(StateError):
    """Others kept writing the chain until the retries were used up; nothing was written."""

    def __init__(self, tag: str | None = None, attempts: int | None = None) -> None:
        message = "Stale local data"
        if tag is not None:
            message += f": {shown(tag)} was changed by others at each of {attempts} attempts"
        super().__init__(message)
        self.tag = tag
        self.attempts = attempts


class ConflictError(StateError):
    """A conditional write found another state than expected.

    Attributes:
        chain: The stored state; None if there is no chain.
        maybe_ours: True if the stored state may be this write, made by an SDK retry whose response
            was lost.
    """

    def __init__(self, chain: Chain | None, *, maybe_ours: bool = False) -> None:
        super().__init__("others changed the chain")
        self.chain = chain
        self.maybe_ours = maybe_ours


class NotAChainError(StateError, ValueError):
    """An item of the table is not a chain: another program or a newer version wrote it.

    Attributes:
        tag: The item's tag.
        reason: The attribute that is invalid, and why.
    """

    def __init__(self, tag: object, reason: str) -> None:
        super().__init__(f"tag: {shown(tag)} is not a chain item: {reason}")
        self.tag = tag
        self.reason = reason


class UnavailableError(XorAckError):
    """A temporary failure: throttled, timed out, response lost. The call may have taken effect.

    Attributes:
        cause: The exception of the call.
    """

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class SendError(XorAckError):
    """The queue did not accept some messages, after retries. Repeat the call: ids stay the same.

    Attributes:
        queue_url: The queue.
        unsent: The bodies that were not accepted, as far as the caller keeps them.
    """

    def __init__(self, reason: str, queue_url: str = "", unsent: Sequence[str] = ()) -> None:
        count = f"{len(unsent):,} {'message' if len(unsent) == 1 else 'messages'}"
        where = f"queue {queue_url}: {count} not sent: " if queue_url else ""
        super().__init__(where + reason)
        self.queue_url = queue_url
        self.unsent = list(unsent)


class BatchError(XorAckError):
    """Every message of a batch failed; all are delivered again.

    Attributes:
        messages: The number of messages.
    """

    def __init__(self, messages: int, reason: str) -> None:
        text = f"all {messages:,} messages of the batch failed; the first: {reason}"
        super().__init__(text if messages > 1 else f"the batch's only message failed: {reason}")
        self.messages = messages
