"""The recipe of docs/windows.md for the ends of an hour, with what a broker answers."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs/windows.md"
HOUR = 1_726_326_000


class Consumer:
    """A consumer of a topic whose partitions have records of these times, in seconds."""

    def __init__(self, *partitions, error=None):
        self.partitions, self.error = dict(enumerate(partitions)), error

    def list_topics(self, topic):
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions=self.partitions)})

    def get_watermark_offsets(self, one):
        return 0, len(self.partitions[one.partition])

    def offsets_for_times(self, asked):
        for one in asked:
            times = enumerate(self.partitions[one.partition])
            one.offset = next((n for n, time in times if time * 1000 >= one.offset), -1)
            one.error = self.error
        self.partitions[0].append(10**10)  # what arrives meanwhile
        return asked


def test_an_hour_ends_at_the_first_record_of_the_next_one_or_at_the_end(monkeypatch):
    def partition(topic, number, offset):
        return SimpleNamespace(topic=topic, partition=number, offset=offset, error=None)

    confluent = SimpleNamespace(TopicPartition=partition)
    monkeypatch.setitem(sys.modules, "confluent_kafka", confluent)
    exec(PAGE.read_text().split("```python\n")[3].partition("```")[0], names := {})
    consumer = Consumer([HOUR - 9, HOUR - 1], [HOUR - 5, HOUR, HOUR - 2, HOUR + 9], [])
    ends = names["kafka_ends"](consumer, "orders", HOUR * 1000)
    assert ends == {"orders": {0: 2, 1: 1, 2: 0}}
    with pytest.raises(AssertionError, match="no leader"):
        names["kafka_ends"](Consumer([1], error="no leader"), "orders", HOUR * 1000)
