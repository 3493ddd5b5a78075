"""Runs: the chains whose tags begin with a run's name and a slash.

The table's key is the complete tag, so counting a run needs a scan of the table. The index of
deadlines is cheaper to read, but does not have ended chains.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from xorack.aws import schema
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.core.errors import ArgumentError, NotAChainError, StateError
from xorack.core.ports import ChainStore
from xorack.core.request import validate_tag
from xorack.ops.status import STATUSES

_MAX_FAILURES = 10
_ATTRIBUTES = (schema.STATUS, schema.FORMAT_NAME, "reason")
"""The attributes that a count reads. DynamoDB bills complete items, but sends only these."""


@dataclass
class ChainCounts:
    """The numbers of chains by `STATUSES`, of other items (``invalid``), of tags without a chain.

    `failures` are the tags and reasons of the first failed chains and invalid items, at most ten.
    `absent` are the tags without a chain.
    """

    by_status: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[str, str]] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)

    def add(self, status: str, tag: str, reason: str | None = None) -> None:
        self.by_status[status] += 1
        if status in ("failed", "invalid") and len(self.failures) < _MAX_FAILURES:
            self.failures.append((tag, reason or ""))

    def add_invalid(self, error: NotAChainError) -> None:
        self.add("invalid", str(error.tag), error.reason)

    @property
    def chains(self) -> int:
        """The number of chains, and of items that are not chains."""
        return self.by_status.total() - self.by_status["not_found"]

    @property
    def unfinished(self) -> int:
        """The number of chains that have not ended or do not exist yet."""
        return sum(self.by_status[status] for status in ("open", "pending", "not_found"))

    @property
    def failed(self) -> int:
        """The number of failed chains, and of items that are not chains."""
        return self.by_status["failed"] + self.by_status["invalid"]

    def to_dict(self) -> dict[str, Any]:
        return {
            "chains": self.chains,
            **{name: self.by_status[name] for name in (*STATUSES, "invalid", "not_found")},
            "failures": [{"tag": tag, "reason": reason} for tag, reason in self.failures],
        }


def count_named(store: ChainStore, tags: Iterable[str]) -> ChainCounts:
    """Count the chains of these tags with consistent reads."""
    tags, counts = [*dict.fromkeys(validate_tag(tag) for tag in tags)], ChainCounts()
    invalid: list[NotAChainError] = []
    chains = store.read(tags, invalid.append)
    for chain in chains.values():
        counts.add(chain.status, chain.tag, chain.reason)
    for error in invalid:
        counts.add_invalid(error)
    existing = chains.keys() | {str(error.tag) for error in invalid}
    counts.absent = [tag for tag in tags if tag not in existing]
    counts.by_status["not_found"] = len(counts.absent)
    return counts


@dataclass(frozen=True)
class RunChains:
    """A run of a job: the first part of its chains' tags, and their number if it is known."""

    name: str
    chains: int | None = None

    def __post_init__(self) -> None:
        """Reject a name that is not a tag, or that has a slash."""
        validate_tag(self.name, "run")
        if "/" in self.name:
            raise ArgumentError("run", self.name, "the run's name alone, without a slash")

    @property
    def prefix(self) -> str:
        return f"{self.name}/"

    def count(self, store: DynamoDBStore) -> ChainCounts:
        """Count its chains by a scan of the table; raise UnavailableError if a retry may help."""
        counts = ChainCounts()
        for chain in store.scan(counts.add_invalid, prefix=self.prefix, attributes=_ATTRIBUTES):
            counts.add(chain.status, chain.tag, chain.reason)
        return counts

    def has_ended(self, counts: ChainCounts) -> bool:
        """Return whether all its chains have ended.

        If their number is unknown, only the existing chains count, although messages in the queue
        may create more. If there are more chains than their number, StateError is raised.
        """
        if self.chains is None:
            return bool(counts.chains) and not counts.unfinished
        if counts.chains > self.chains:
            expected = f"expected the number of chains of run {self.name}: it has {counts.chains:,}"
            raise StateError(f"chains: {self.chains}, {expected}")
        return counts.chains == self.chains and not counts.unfinished
