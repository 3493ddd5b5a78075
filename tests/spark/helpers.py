"""Helpers for the tests of the jobs: they run a job, read its output, apply its messages."""

from __future__ import annotations

import random
from collections import Counter
from itertools import count as counting

from pipeline import count, split
from pipeline.layout import FILES_SCHEMA
from tests.support.fakes import NO_WAIT, FakeBus, FakeDeadLetters
from tests.support.services import Message, consume
from xorack.acker.memory_store import MemoryStore

_TEXT = (
    "the quick, brown Fox—jumps über STRASSE straße ΣΊΣΥΦΟΣ 日本語の文章 naïve don't x1 \U0001f600 "
)
_TOKENS = _TEXT.split(" ")


def prose(rng: random.Random, length: int) -> str:
    endings = ("", "", "\n", "\t", ".")
    return " ".join(rng.choice(_TOKENS) + rng.choice(endings) for _ in range(length))


class Acker:
    """An acker in memory that applies messages as the consumer does."""

    def __init__(self) -> None:
        self.store, self.bus, self.letters = MemoryStore(), FakeBus(), FakeDeadLetters()
        self.chains = self.store.chains
        self._ids = counting()

    def apply(self, bodies: list[str]) -> None:
        messages = [Message(str(next(self._ids)), body) for body in bodies]
        done = consume(messages, self.store, self.bus, self.letters, policy=NO_WAIT)
        assert not done.failed
        assert not self.letters.letters

    def statuses(self) -> Counter:
        return Counter(chain.status for chain in self.chains.values())


def run_split(queue, database, out, *more, run="r1"):
    return split.main(
        [
            *("--database", str(database), "--words", str(out), "--queue-url", queue.queue_url),
            *("--run-id", run, "--json", *more),
        ]
    )


def run_count(queue, source, out, *more, run="r1"):
    return count.main(
        [
            *("--words", str(source), "--counts", str(out), "--queue-url", queue.queue_url),
            *("--run-id", run, "--json", *more),
        ]
    )


def counts_in(spark, folder) -> Counter:
    rows = spark.read.parquet(str(folder)).collect()
    return Counter({row["word"]: row["count"] for row in rows})


def file_numbers(spark, words) -> dict[str, int]:
    """Return the numbers of the files in an output of split, by tag."""
    rows = spark.read.schema(FILES_SCHEMA).json(str(words / "files")).collect()
    return {row["tag"]: row["number"] for row in rows}


def fail_first_attempt(batches):
    """Fail the first attempt of some tasks after their last batch (`mapInArrow`)."""
    from pyspark import TaskContext

    yield from batches
    context = TaskContext.get()
    if context.attemptNumber() == 0 and context.partitionId() < 3:
        raise RuntimeError("on purpose")
