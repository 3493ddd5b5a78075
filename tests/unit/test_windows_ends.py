"""Where windows end: what a broker answers, what a caller gives, and what is refused of it."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from xorack.errors import ArgumentError, StateError
from xorack.spark import kafka_ends
from xorack.spark.windows import requests as windows
from xorack.spark.windows.ends import positions_of
from xorack.spark.windows.ledger import Range, StreamProof, find_window, open_window
from xorack.spark.windows.ledger import prove as prove_batch


class Partition:
    """A `TopicPartition` of confluent_kafka."""

    def __init__(self, topic, partition, offset=-1001):
        self.topic, self.partition, self.offset = topic, partition, offset
        self.error = None


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


def test_a_partition_without_a_leader_has_no_end():
    consumer = Consumer([1], [1])
    real = consumer.offsets_for_times

    def leaderless(asked, timeout):
        asked[1].error = "no leader"
        return real(asked, timeout)

    consumer.offsets_for_times = leaderless
    with pytest.raises(StateError, match="not say all ends: orders/1: no leader"):
        kafka_ends(consumer, "orders", "2024-09-14T15")


@pytest.mark.parametrize("given", [{"t": {0: 5, "0": 3}}, {("t", 0): 5, "t": {"0": 5}}])
def test_an_end_that_is_given_twice_is_refused(given):
    with pytest.raises(ArgumentError, match="ends: t/0 is there twice, expected each once"):
        positions_of(given, ["topic", "partition", "offset"], "ends")


def test_names_of_partitions_leave_a_long_name_of_a_window_its_place():
    keys = [f"topic-{n}/x" for n in range(230)]
    request = windows.create("run/log/" + "w" * 700, {"window": "w" * 700, "ranges": "d"}, keys)
    assert request.started == 230


class Store:
    """Windows and proofs; the first one is of a stream."""

    def __init__(self, **ranges):
        self.opened = []
        self.kept = [StreamProof("s", 0, 0, {}, {k: [Range(0, n, n)] for k, n in ranges.items()})]

    def windows(self):
        return self.opened

    def keep_window(self, window):
        self.opened.append(window)

    def proofs(self):
        return [*self.kept]

    def keep_proof(self, proof):
        self.kept.append(proof)

    def open(self, name, **ends):
        return open_window(self, find_window(self, name, ends, {}))


def test_a_window_without_rows_is_whole_at_once():
    store = Store(a=5)
    assert store.open("one", a=5, b=0).whole
    assert store.open("two", a=5, b=0).whole
    assert not store.open("three", a=5, b=1).whole


def test_a_topic_made_anew_is_refused_where_a_later_hour_ends_earlier():
    """Else its hour would be complete by the rows of the old topic."""
    store = Store(a=5)
    store.open("2026-09-14T14", a=5)
    with pytest.raises(ArgumentError, match="'2026-09-14T15' ends before window '2026-09-14T14'"):
        store.open("2026-09-14T15", a=3)
    assert store.open("2026-09-14T13", a=3).whole  # opened later, and earlier in the log
    assert store.open("closed by hand", a=4).whole  # a name that is no time


def test_a_batch_without_rows_is_believed_where_its_offsets_follow_on():
    """Markers of transactions may be all that a batch has; so may another query's offsets."""
    store = Store()

    def prove(number, since, until, gaps="count", **seen):
        return prove_batch(store, ("t", number), seen, ({"a": since}, {"a": until}), gaps=gaps)

    prove(0, 0, 5, a=Range(0, 5, 5))
    with pytest.raises(StateError, match="2 of the positions 5 to 6 of a have no row in"):
        prove(1, 5, 7, gaps="error")
    prove(1, 5, 7)
    prove(2, 7, 8)
    assert store.open("w", a=8).gaps == {"a": 3}
    assert store.open("w", a=8).whole
    for number, since in ((3, 9), (4, 8)):  # of others; after a batch that nobody proved
        with pytest.raises(StateError, match="no row at any of the 2 positions that it covers"):
            prove(number, since, since + 2)
