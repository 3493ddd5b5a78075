"""What the services ask of the places where chains live and words travel.

Adapters: `xorack.client.memory_acker` (also the fake of the tests), `xorack.aws.dynamodb_store`, `xorack.aws.sqs`,
`xorack.aws.eventbridge`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from xorack.core.chain import Chain
from xorack.core.errors import XorAckError
from xorack.core.message import Rejected

__all__ = [
    "DEFAULT_RETENTION_MS",
    "ChainStore",
    "Conflict",
    "DeadLetters",
    "Publisher",
    "Unavailable",
]

DEFAULT_RETENTION_MS = 30 * 86_400_000
"""How long marks and tombstones are kept: longer than a queue (14 days) and then a dead-letter
queue (14 days) can hold a message back."""


class Conflict(XorAckError):
    """A conditional write found another state than it was told.

    Attributes:
        chain: The state that is there; None where there is no chain.
        perhaps_ours: Whether that state may be this very write's, of an earlier try whose answer
            the client lost.
    """

    def __init__(self, chain: Chain | None, *, perhaps_ours: bool = False) -> None:
        super().__init__("the chain was changed by others")
        self.chain = chain
        self.perhaps_ours = perhaps_ours


class Unavailable(XorAckError):
    """A call failed for a while: throttled, timed out, answer lost. It may have taken effect.

    Attributes:
        cause: What the call raised.
    """

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class ChainStore(Protocol):
    """Where chains are kept."""

    def read(self, tags: Sequence[str]) -> dict[str, Chain]:
        """Read chains, consistently.

        Args:
            tags: Any number, no tag twice.

        Returns:
            The chains that there are, by tag.

        Raises:
            Unavailable: Try again.
        """
        ...

    def write(self, before: Chain | None, after: Chain) -> None:
        """Write a chain if it is still as it was read: one atomic, conditional write.

        Args:
            before: The chain as it is believed to be; None: not there.
            after: The chain to write, with ``version`` above that of ``before``.

        Raises:
            Conflict: It is not as believed; carries what is there.
            Unavailable: Nobody knows whether it was written.
        """
        ...

    def get_spilled_marks(self, chain: Chain, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Find marks that were moved out of a chain, consistently.

        Args:
            chain: The chain as it was read.
            keys: Keys of marks (`xorack.core.chain.mark_key`).

        Returns:
            Those that there are: key -> what was said.

        Raises:
            Unavailable: Try again.
        """
        ...

    def put_spilled_marks(self, chain: Chain, marks: bytes, until: int) -> None:
        """Copy marks out of a chain; safe to repeat.

        Args:
            chain: The chain as it was read.
            marks: Whole marks, one after the other.
            until: Until when they must be kept, milliseconds since 1970.

        Raises:
            Unavailable: Try again.
        """
        ...

    def due_pages(self, now: int) -> Iterator[list[str]]:
        """The chains whose time to be looked at (`Chain.due_at`) has come, page by page.

        Args:
            now: Milliseconds since 1970.

        Yields:
            Tags; some may have been looked at, or be gone, by now.

        Raises:
            Unavailable: Try again.
        """
        ...


class Publisher(Protocol):
    """Where events go."""

    def publish(self, chains: Sequence[Chain]) -> dict[str, str]:
        """Publish the events of finished chains.

        Args:
            chains: ``acked`` or ``failed`` chains.

        Returns:
            The failures: tag -> why. Empty if all were accepted. Never raises for a failed call.
        """
        ...


class DeadLetters(Protocol):
    """Where refused requests go."""

    def send(self, refused: Sequence[Rejected]) -> list[int]:
        """Send refused requests, each with its reason in the message attribute ``error``.

        Args:
            refused: Any number.

        Returns:
            The positions of those that could not be sent. Never raises for a failed call.
        """
        ...
