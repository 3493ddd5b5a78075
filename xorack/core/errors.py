"""Everything that xorack raises.

The six errors that the seeds know (``ack``, ``xor-ack-dynamodb``) keep their names, and each
carries a ``code`` equal to its name, as there.
"""

from __future__ import annotations

__all__ = [
    "BufferLengthsUnequal",
    "InvalidRequest",
    "InvalidToken",
    "LessThanTwoBuffers",
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
"""How many characters of a wrong value an error message repeats."""


def shown(value: object) -> str:
    """A wrong value as an error message may repeat it: on one line, in ASCII, and short.

    Args:
        value: Whatever was given.

    Returns:
        Its ``repr`` in printable ASCII, cut after 80 characters. Never raises: values that
        cannot be printed are named by their type.
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
    """The parent of all errors of this package."""

    @property
    def code(self) -> str:
        """The error's name, as the seeds' errors carry it."""
        return type(self).__name__


class BufferLengthsUnequal(XorAckError, ValueError):
    """Stamps of different lengths met: a chain uses one length of stamp throughout."""

    def __init__(self, length: int | None = None, expected: int | None = None) -> None:
        message = "Buffer lengths are not equal"
        if length is not None and expected is not None:
            message += f": stamp has {length} bytes, expected {expected}"
        super().__init__(message)
        self.length = length
        self.expected = expected


class LessThanTwoBuffers(XorAckError, ValueError):
    """``xor`` was called with fewer than two stamps."""

    def __init__(self) -> None:
        super().__init__("At least two buffers expected")


class StaleLocalData(XorAckError):
    """Others kept writing the chain until the retries were spent; nothing of ours was written."""

    def __init__(self, tag: str | None = None, attempts: int | None = None) -> None:
        message = "Stale local data"
        if tag is not None:
            message += f": {shown(tag)} was changed by others at each of {attempts} attempts"
        super().__init__(message)
        self.tag = tag
        self.attempts = attempts


class TagExists(XorAckError):
    """A chain of this tag was created before, by another request."""

    def __init__(self, tag: str) -> None:
        super().__init__(f"tag: {shown(tag)} already exists")
        self.tag = tag


class TagNotFound(XorAckError, LookupError):
    """There is no chain of this tag."""

    def __init__(self, tag: str) -> None:
        super().__init__(f"tag: {shown(tag)} does not exist")
        self.tag = tag


class ZeroBufferNoOp(XorAckError, ValueError):
    """A stamp of nothing but zeros: XORing it in would do nothing, so it is a mistake."""

    def __init__(self) -> None:
        super().__init__("Buffer is all zeros")


class InvalidRequest(XorAckError, ValueError):
    """A request, or a message of requests, that the protocol does not allow.

    Attributes:
        field: The field that is wrong, for example ``tag`` or ``requests``.
        expected: What the field should have held.
    """

    def __init__(self, field: str, value: object, expected: str) -> None:
        super().__init__(f"{field}: {shown(value)}, expected {expected}")
        self.field = field
        self.expected = expected


class RequestIdReused(InvalidRequest):
    """A request's id was used before in its chain, by a request that said something else.

    No duplicate: a sender's mistake, which would lose work if it were taken for one.
    """

    def __init__(self, request_id: str) -> None:
        super().__init__(
            "id",
            request_id,
            "an id of its own: a request of this id that said otherwise was applied",
        )


class NotAChain(XorAckError, ValueError):
    """An item that some other program wrote into the table: it cannot be read as a chain.

    Attributes:
        tag: The item's tag.
        why: What is wrong with it.
    """

    def __init__(self, tag: object, why: str) -> None:
        super().__init__(f"tag: {shown(tag)} is an item that is no chain: {why}")
        self.tag = tag
        self.why = why


class InvalidToken(XorAckError, ValueError):
    """A tracker's token that cannot be read, or was made by another version."""

    def __init__(self, field: str, value: object, expected: str) -> None:
        super().__init__(f"token {field}: {shown(value)}, expected {expected}")
        self.field = field
        self.expected = expected


class SendFailed(XorAckError):
    """Some messages were not accepted by the queue, though they were retried.

    Attributes:
        unsent: The bodies that were not accepted, for another try.
    """

    def __init__(self, queue_url: str, reason: str, unsent: list[str]) -> None:
        super().__init__(f"queue {queue_url}: {len(unsent)} messages not sent: {reason}")
        self.queue_url = queue_url
        self.unsent = unsent
