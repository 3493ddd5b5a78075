"""An acker in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import count as counting

from tests.support.fakes import NO_WAIT, FakeBus, FakeDeadLetters
from tests.support.memory_store import MemoryStore
from tests.support.services import Message, consume, sweep
from xorack import peel
from xorack.aws.clock import milliseconds


class Acker:
    """An acker in memory that applies messages as the consumer does."""

    def __init__(self, bodies: Iterable[str] = ()) -> None:
        self.store, self.bus, self.letters = MemoryStore(), FakeBus(), FakeDeadLetters()
        self.all_chains = self.store.chains
        self._ids = counting()
        self.apply(bodies)

    def apply(self, bodies: Iterable[str]) -> None:
        messages = [Message(str(next(self._ids)), body) for body in bodies]
        done = consume(messages, self.store, self.bus, self.letters, policy=NO_WAIT)
        assert not done.failed
        assert not self.letters.letters

    @property
    def chains(self) -> dict:
        """The chains of rows, by tag: not those of runs, whose tags have no slash."""
        return {tag: chain for tag, chain in self.all_chains.items() if "/" in tag}

    def sweep(self, seconds: float) -> None:
        """Sweep so many seconds from now."""
        sweep(self.store, self.bus, now=lambda: milliseconds() + int(1000 * seconds))

    def statuses(self) -> Counter:
        return Counter(chain.status for chain in self.chains.values())

    def outstanding(self) -> dict[str, frozenset[int]]:
        """Return the ids that the stamps of open chains name; they must name all."""
        chains = [c for c in self.chains.values() if c.status == "open"]
        peeled = {c.tag: peel(c.stamp) for c in chains}
        assert all(residual.complete for residual in peeled.values())
        return {tag: residual.ids for tag, residual in peeled.items()}
