"""Where windows end, by what a broker answers: `kafka_ends`."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from xorack.errors import ArgumentError
from xorack.spark import kafka_ends


class Partition:
    """A `TopicPartition` of confluent_kafka."""

    def __init__(self, topic, partition, offset=-1001):
        self.topic, self.partition, self.offset = topic, partition, offset


class Consumer:
    """A consumer of a topic whose partitions have records of these times, in seconds."""

    def __init__(self, *partitions):
        self.partitions = dict(enumerate(partitions))

    def list_topics(self, topic, timeout):
        known = self.partitions if topic == "orders" else {}
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions=known)})

    def get_watermark_offsets(self, one, timeout):
        return 0, len(self.partitions[one.partition])

    def offsets_for_times(self, asked, timeout):
        for one in asked:
            times = enumerate(self.partitions[one.partition])
            found = [n for n, time in times if time * 1000 >= one.offset]
            one.offset = found[0] if found else -1
        self.partitions[0].append(10**10)  # what arrives meanwhile
        return asked


@pytest.fixture(autouse=True)
def confluent(monkeypatch):
    monkeypatch.setitem(sys.modules, "confluent_kafka", SimpleNamespace(TopicPartition=Partition))


def test_a_window_ends_at_the_first_record_of_a_time_or_at_the_end():
    hour = 1_726_326_000  # 2024-09-14T15:00Z
    consumer = Consumer([hour - 9, hour - 1], [hour - 5, hour, hour - 2, hour + 9], [])
    assert kafka_ends(consumer, "orders", "2024-09-14T15:00Z") == {"orders": {0: 2, 1: 1, 2: 0}}


@pytest.mark.parametrize(
    ("topic", "when", "text"),
    [
        ("others", "2024-09-14T15", "topic: 'others', expected a topic of this broker"),
        ("orders", "2999-01-01", "when: '2999-01-01', expected a time that has passed"),
        ("orders", "3 pm", "time: '3 pm', expected ISO 8601"),
    ],
)
def test_what_is_refused(topic, when, text):
    with pytest.raises(ArgumentError, match=text):
        kafka_ends(Consumer([]), topic, when)
