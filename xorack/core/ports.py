"""Ports: the interfaces through which the acker uses stores and services.

Their adapters are `xorack.aws.dynamodb_store`, `xorack.aws.sqs`, `xorack.aws.eventbridge` and
`xorack.aws.callbacks`, and `tests.support.memory_store` for tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from xorack.core.chain import Chain
from xorack.core.errors import NotAChainError
from xorack.core.marks import Bucket

DEFAULT_RETENTION_MS = 30 * 86_400_000
"""How long marks and tombstones are kept. A message can stay in a queue for 14 days and then in a
dead-letter queue for 14 days, so 30 days are longer."""

OnInvalid = Callable[[NotAChainError], None]
"""Takes the error about an item that is not a chain."""


FailureKind = Literal["outage", "refused", "gone", "no_time"]
"""Why a report was not accepted.

``outage``: the service failed. ``refused``: the service works, but refuses this chain's report.
``gone``: the callback does not exist any more, or never did. A lost response has the same effect.
``no_time``: the call was not made, so the service may work.
"""


@dataclass(frozen=True)
class Failure:
    """Why a report of a chain's end was not accepted."""

    kind: FailureKind
    reason: str

    @property
    def is_answer(self) -> bool:
        """Return whether the service works, and answered about this chain."""
        return self.kind in ("refused", "gone")


NO_TIME = Failure("no_time", "no time left in this invocation")


class DuePage(NamedTuple):
    """Tags of chains that are due. The next page begins after the key `after`; None: no more."""

    tags: list[str]
    after: Any


class DueCount(NamedTuple):
    """The number of due chains, and the earliest `Chain.due_at` among them."""

    chains: int
    first_due_at: int | None


class ChainStore(Protocol):
    """A store of chains. A method raises UnavailableError if a retry may help."""

    def read(
        self, tags: Sequence[str], on_invalid: OnInvalid | None = None, *, marks: bool = True
    ) -> dict[str, Chain]:
        """Read chains consistently. Return the existing chains by tag, in the order of the tags.

        Without `marks`, a chain takes less than 80 KB instead of up to 240 KB, and can still be
        written. Each tag must be different. An item that is not a chain is an error, unless
        ``on_invalid`` is given.
        """

    def write(self, before: Chain | None, after: Chain) -> None:
        """Write a chain in one atomic write if the stored chain is `before` (None: no chain).

        Raises:
            ConflictError: Another state is stored.
        """

    def get_spilled_marks(self, chain: Chain, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Read spilled marks of a chain consistently. Return existing marks: key to checksum."""

    def put_end_marks(
        self, chain: Chain, by_bucket: Mapping[Bucket, Sequence[bytes]], until: int
    ) -> list[bytes]:
        """Copy marks of children's ends to their buckets; return the marks whose bucket is full.

        Safe to repeat. The marks must be kept until `until`.
        """

    def put_spilled_marks(self, chain: Chain, marks: bytes, until: int) -> None:
        """Copy concatenated marks of a chain, as it was read, to buckets. Safe to repeat.

        The marks must be kept until `until`, in milliseconds since the epoch.
        """

    def keep_spilled_marks(self, chain: Chain, until: int) -> None:
        """Keep the spilled marks of a chain, except marks of ends, until a time. Safe to repeat."""

    def due_page(self, now: int, shard: int, after: Any = None) -> DuePage:
        """Return tags of a shard's chains whose `Chain.due_at` has passed, the earliest first.

        Some of these chains may be handled or deleted already. `after` comes from the previous
        page.
        """

    def count_due(self, now: int, shard: int, after: Any = None) -> DueCount:
        """Count the chains that further pages would return."""


class Publisher(Protocol):
    """Makes one kind of report of chains' ends. Threads may share a publisher."""

    @property
    def batch_size(self) -> int:
        """The most chains that one call of `publish` takes."""

    def publish(self, chains: Sequence[Chain]) -> dict[str, Failure]:
        """Report the ends of chains in one call. Return the failures by tag.

        If the service fails, this call raises no error.
        """
