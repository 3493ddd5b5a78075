"""Reading many chains, some of whose items may be invalid."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from xorack.aws.retry import RetryPolicy
from xorack.core.budget import Budget
from xorack.core.chain import Chain
from xorack.core.errors import NotAChainError, UnavailableError
from xorack.core.ports import ChainStore


def read_valid(
    read: Callable[[Sequence[str]], Mapping[str, Chain]],
    tags: Sequence[str],
    on_invalid: Callable[[NotAChainError], None],
) -> list[Chain]:
    """Read chains in one batch, or one by one if the batch holds an item that is not a chain.

    Args:
        read: `xorack.core.ports.ChainStore.read` of the store, perhaps with retries.
        tags: The tags, each once.
        on_invalid: Called for each item that is not a chain.

    Returns:
        The chains that exist and are valid, in the order of their tags.

    Raises:
        UnavailableError: A retry may help.
    """
    try:
        chains = read(tags)
    except NotAChainError as error:
        if len(tags) == 1:
            on_invalid(error)
            return []
        return [chain for tag in tags for chain in read_valid(read, [tag], on_invalid)]
    return [chains[tag] for tag in tags if tag in chains]


class ChainReader:
    """Reads chains from a store within the time of a step."""

    def __init__(
        self, store: ChainStore, clock: Callable[[], int], policy: RetryPolicy, budget: Budget
    ) -> None:
        """Use a store.

        Args:
            store: The store of the chains.
            clock: Returns milliseconds since the epoch.
            policy: The limits of retries.
            budget: The time of calls.
        """
        self._store = store
        self._clock = clock
        self._policy = policy
        self._budget = budget

    def now(self) -> int:
        """Return milliseconds since the epoch."""
        return self._clock()

    def has_time(self) -> bool:
        """Return True if a call may start."""
        return self._budget.left() > 0

    def read(self, tags: Sequence[str], *, attempts: int) -> dict[str, Chain]:
        """Read chains, see `xorack.core.ports.ChainStore.read`.

        Raises:
            UnavailableError: The attempts or the time are used up.
        """
        retry = replace(self._policy, attempts=attempts).start(self._budget)
        while True:
            try:
                return self._store.read(tags)
            except UnavailableError:
                if not retry.again():
                    raise

    def due_pages(self, *, attempts: int) -> Iterator[list[str]]:
        """Yield the pages of due chains, again from the first one if a page cannot be read.

        Most chains of earlier pages are not due any more then. Raises as `read`.
        """
        policy = replace(self._policy, attempts=attempts)
        retry = policy.start(self._budget)
        while True:
            try:
                for page in self._store.due_pages(self._clock()):
                    retry = policy.start(self._budget)
                    yield page
            except UnavailableError:
                if not retry.again():
                    raise
            else:
                return
