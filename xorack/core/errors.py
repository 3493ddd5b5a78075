"""All errors that xorack raises.

The six errors of the npm packages ``ack`` and ``xor-ack-dynamodb`` keep their names. Each error
carries a ``code`` equal to its name, as there.
"""

from __future__ import annotations

__all__ = [
    "BatchFailed",
    "BufferLengthsUnequal",
    "InvalidRequest",
    "InvalidToken",
    "LessThanTwoBuffers",
    "NewerFormat",
    "NotAChain",
    "RequestIdReused",
    "SendFailed",
    "StaleLocalData",
    "TagExists",
    "TagNotFound",
    "XorAckError",
    "ZeroBufferNoOp",
]

_SHOWN = 80
"""Most characters of an invalid value in an error message."""


def shown(value: object) -> str:
    """Return the ``repr`` of a value for an error message: one line, ASCII, at most 80 characters.

    Never raises: a value without a ``repr`` is named by its type.
    """
    if isinstance(value, (list, dict)):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    if isinstance(value, (str, bytes)):
        value = value[: _SHOWN + 1]
    try:
        text = ascii(value)
    except (RecursionError, ValueError):
        return f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


class XorAckError(Exception):
    """The base class of all errors of this package."""

    @property
    def code(self) -> str:
        """The name of the error, as the npm packages' errors carry it."""
        return type(self).__name__


class BatchFailed(XorAckError):
    """Every message of a batch failed; all are delivered again.

    Attributes:
        messages: The number of messages.
    """

    def __init__(self, messages: int, reason: str) -> None:
        super().__init__(f"all {messages} messages of the batch failed; the first: {reason}")
        self.messages = messages


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


class StaleLocalData(XorAckError):
    """Others kept writing the chain until the retries were used up; nothing was written."""

    def __init__(self, tag: str | None = None, attempts: int | None = None) -> None:
        message = "Stale local data"
        if tag is not None:
            message += f": {shown(tag)} was changed by others at each of {attempts} attempts"
        super().__init__(message)
        self.tag = tag
        self.attempts = attempts


class TagExists(XorAckError):
    """Another request created a chain of this tag before, or the chain ended without a create."""

    def __init__(self, tag: str, reason: str | None = None) -> None:
        super().__init__(f"tag: {shown(tag)} already exists" + (f": {reason}" if reason else ""))
        self.tag = tag


class TagNotFound(XorAckError, LookupError):
    """No chain has this tag."""

    def __init__(self, tag: str) -> None:
        super().__init__(f"tag: {shown(tag)} does not exist")
        self.tag = tag


class ZeroBufferNoOp(XorAckError, ValueError):
    """The stamp is all zeros: XORing it in would change nothing."""

    def __init__(self) -> None:
        super().__init__("Buffer is all zeros")


class InvalidRequest(XorAckError, ValueError):
    """A request, a message or an argument is invalid.

    Attributes:
        field: The name of the invalid field, for example ``tag`` or ``requests``.
        expected: The expected value.
    """

    def __init__(self, field: str, value: object, expected: str) -> None:
        super().__init__(f"{field}: {shown(value)}, expected {expected}")
        self.field = field
        self.expected = expected


class RequestIdReused(InvalidRequest):
    """A request's id was used before in its chain, by a request with other content.

    This is a mistake of the sender and not a duplicate: dropping the request would lose work.
    """

    def __init__(self, request_id: str) -> None:
        super().__init__(
            "id",
            request_id,
            "a unique id: a request of this id with other content was applied",
        )


class NotAChain(XorAckError, ValueError):
    """An item of the table is not a chain: another program wrote it.

    Attributes:
        tag: The item's tag.
        reason: The attribute that is invalid, and why.
    """

    def __init__(self, tag: object, reason: str) -> None:
        super().__init__(f"tag: {shown(tag)} is not a chain item: {reason}")
        self.tag = tag
        self.reason = reason


class NewerFormat(NotAChain):
    """A newer version of this package wrote the item: this version leaves it alone."""

    def __init__(self, tag: object, actual: str, known: int) -> None:
        super().__init__(tag, f"its format is {actual}, and this version knows {known} at most")


class InvalidToken(XorAckError, ValueError):
    """A tracker's token is invalid, or another version made it."""

    def __init__(self, field: str, value: object, expected: str) -> None:
        super().__init__(f"token {field}: {shown(value)}, expected {expected}")
        self.field = field
        self.expected = expected


class SendFailed(XorAckError):
    """The queue did not accept some messages, after retries.

    Attributes:
        unsent: The bodies that were not accepted.
    """

    def __init__(self, queue_url: str, reason: str, unsent: list[str]) -> None:
        super().__init__(f"queue {queue_url}: {len(unsent)} messages not sent: {reason}")
        self.queue_url = queue_url
        self.unsent = unsent
