"""Runs, and counts of chains by status. A run's name is the first part of its chains' tags."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from xorack.core.errors import ArgumentError, NotAChainError
from xorack.core.ports import ChainStore
from xorack.core.request import validate_tag
from xorack.ops.status import STATUSES, ChainStatus

_MAX_FAILURES = 10


@dataclass
class ChainCounts:
    """Numbers of chains by `STATUSES`, and of items that are not chains (``invalid``).

    `failures` are tags and reasons of the first failed chains and invalid items, at most ten.
    `not_found` are the tags without a chain.
    """

    by_status: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[str, str]] = field(default_factory=list)
    not_found: list[str] = field(default_factory=list)

    def add(self, status: str, tag: str, reason: str) -> None:
        self.by_status[status] += 1
        if status in ("failed", "invalid") and len(self.failures) < _MAX_FAILURES:
            self.failures.append((tag, reason))

    @property
    def chains(self) -> int:
        """The number of chains, and of items that are not chains."""
        return self.by_status.total()

    @property
    def unfinished(self) -> int:
        """The number of chains that have not ended, or do not exist yet."""
        return self.by_status["open"] + self.by_status["pending"] + len(self.not_found)

    @property
    def failed(self) -> int:
        """The number of failed chains, and of items that are not chains."""
        return self.by_status["failed"] + self.by_status["invalid"]

    def to_dict(self) -> dict[str, Any]:
        return {
            "chains": self.chains,
            **{name: self.by_status[name] for name in (*STATUSES, "invalid")},
            "not_found": len(self.not_found),
            "failures": [{"tag": tag, "reason": reason} for tag, reason in self.failures],
        }


def count_named(store: ChainStore, tags: Iterable[str]) -> ChainCounts:
    """Count the chains of these tags, by consistent reads."""
    tags, counts = [*dict.fromkeys(validate_tag(tag) for tag in tags)], ChainCounts()
    invalid: list[NotAChainError] = []
    chains = store.read(tags, invalid.append)
    for chain in chains.values():
        reasons = filter(None, (chain.reason, ChainStatus(chain, 0).children_text))
        counts.add(chain.status, chain.tag, "; ".join(reasons))
    for error in invalid:
        counts.add("invalid", str(error.tag), error.reason)
    existing = chains.keys() | {str(error.tag) for error in invalid}
    counts.not_found = [tag for tag in tags if tag not in existing]
    return counts


@dataclass(frozen=True)
class RunChains:
    """A run of a job: the first part of its chains' tags."""

    name: str

    def __post_init__(self) -> None:
        """Reject a name that is no tag, or has a slash."""
        validate_tag(self.name, "run")
        if "/" in self.name:
            raise ArgumentError("run", self.name, "the run's name alone, without a slash")

    @property
    def prefix(self) -> str:
        return f"{self.name}/"
