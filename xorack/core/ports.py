"""Ports: what the services require of the stores and channels that adapters provide.

Adapters: `xorack.aws.dynamodb_store`, `xorack.aws.sqs`, `xorack.aws.eventbridge`,
`xorack.aws.callbacks`, and `tests.support.memory_store`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from xorack.core.chain import Chain
from xorack.core.errors import NotAChainError

DEFAULT_RETENTION_MS = 30 * 86_400_000
"""Retention of marks and tombstones: longer than a message can stay in a queue (14 days) and then
in a dead-letter queue (14 days)."""

OnInvalid = Callable[[NotAChainError], None]
"""Takes the error of an item that is not a chain."""


FailureKind = Literal["outage", "refused", "gone", "no_time"]
"""Why a report was not delivered.

``outage``: the service failed. ``refused``: the service is well, and refuses this chain's report.
``gone``: the callback waits no more, as after a lost response, or never did. ``no_time``: the call
was not made, so the service may be well.
"""


@dataclass(frozen=True)
class Failure:
    """Why a report of a chain's end was not delivered."""

    kind: FailureKind
    reason: str

    @property
    def is_answer(self) -> bool:
        """Return whether the service is well and answered about this chain."""
        return self.kind in ("refused", "gone")


NO_TIME = Failure("no_time", "no time left in this invocation")


class DuePage(NamedTuple):
    """Tags of chains that are due; the next page begins `after` a key, None if there is none."""

    tags: list[str]
    after: Any


class DueCount(NamedTuple):
    """The number of chains that are due, and the earliest of their `Chain.due_at`."""

    chains: int
    first_due_at: int | None


class ChainStore(Protocol):
    """A store of chains. Every method raises UnavailableError if a retry may help."""

    def read(
        self, tags: Sequence[str], on_invalid: OnInvalid | None = None, *, marks: bool = True
    ) -> dict[str, Chain]:
        """Read chains consistently; return those that exist, by tag, in the order of the tags.

        Without `marks`, a chain takes less than 80 KB. It may have 160 KB of marks, and can be
        written without them. No tag may occur twice. Without ``on_invalid``, an item that is not a
        chain is an error.
        """

    def write(self, before: Chain | None, after: Chain) -> None:
        """Write a chain in one atomic write if `before` is stored; None if no chain must exist.

        Raises ConflictError if the stored state is another one.
        """

    def get_spilled_marks(self, chain: Chain, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Find spilled marks of a chain consistently; return key to checksum of those found."""

    def put_spilled_marks(self, chain: Chain, marks: bytes, until: int) -> None:
        """Copy concatenated marks out of a chain, as it was read; safe to repeat.

        They must be kept until a time, in milliseconds since the epoch.
        """

    def keep_spilled_marks(self, chain: Chain, until: int) -> None:
        """Keep all spilled marks of a chain at least until a time; safe to repeat."""

    def due_page(self, now: int, shard: int, after: Any = None) -> DuePage:
        """Return tags of a shard whose `Chain.due_at` has passed, the earliest first.

        Some may be handled or gone. `after` is that of the page before.
        """

    def count_due(self, now: int, shard: int, after: Any = None) -> DueCount:
        """Count what `due_page` would still return."""


class Publisher(Protocol):
    """A channel for the ends of chains. Threads may share one."""

    @property
    def batch_size(self) -> int:
        """Most events of one call."""

    def publish(self, chains: Sequence[Chain]) -> dict[str, Failure]:
        """Publish the events of finished chains in one call; never raises if it fails.

        Returns the failures by tag.
        """
