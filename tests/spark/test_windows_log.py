"""Windows over the log of a broker: late records and killed processes."""

from __future__ import annotations

import os
import random
import signal
import sys
from datetime import datetime, timezone

import pytest

from tests.spark.acker import Acker
from tests.spark.helpers import ROOT, run_process
from tests.support.broker import Broker, records, sizes
from tests.support.threads import in_threads
from xorack.spark import Tracking

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

HOUR = int(datetime(2026, 9, 14, 14, tzinfo=timezone.utc).timestamp())
# Runs the snippet of docs/windows.md. The process kills itself at the n-th time of a step
# (DIE=step:n): when a batch is written, or when it is proved and nothing was sent.
RUN = """
import os, signal, sys
from collections import Counter
from pipeline.session import session
from tests.spark.test_windows_stream import snippets
from tests.support.cluster_job import once
from tests.support.log_source import BrokerSource
from xorack.spark.windows import windows
root, queue_url, servers = sys.argv[1:]
passed = Counter()
def dying(owner, name, step):
    real = getattr(owner, name)
    def call(*given, **options):
        passed[step] += 1
        if f"{step}:{passed[step]}" == os.environ["DIE"]:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*given, **options)
    setattr(owner, name, call)
dying(windows.Windows, "finish", "written")
dying(windows, "send_few", "proved")
def stumble(batches):
    from pathlib import Path
    for batch in batches:
        if once(Path(root), "worker-killed"):
            os.kill(os.getpid(), signal.SIGKILL)
        yield batch
options = {"servers": servers, "topic": "orders", "most": "7"}
names, stream = snippets(session("windows"), root, queue_url, BrokerSource, options)
before = -1
while passed["written"] > before:  # a run of this source has one batch
    before = passed["written"]
    names["run"](stream.mapInArrow(stumble, stream.schema))
"""


class World:
    """A topic with producers, the stream that reads it, and what the acker hears of it."""

    def __init__(self, spark, queue, root, broker):
        self.spark, self.queue, self.root, self.broker = spark, queue, root, broker
        self.client = broker.consumer()
        self.number = 0

    @property
    def orders(self):
        records = f"{self.root}/xorack"
        tracking = Tracking(self.spark, self.queue.queue_url, "shop", records)
        return tracking.windows("orders", partition=["topic", "partition"], position="offset")

    def produce(self, hour, *partitions):
        """Send records of an hour in two threads: out of order, and some an hour late."""
        chance = random.Random(hour)

        def send(some):
            self.broker.send("orders", some)

        def values():
            for partition in partitions:
                for _ in range(12):
                    self.number += 1
                    late = 3600 * (chance.random() < 0.2)
                    seconds = HOUR + 3600 * (hour - 14) + chance.randrange(3600) - late
                    yield partition, f"{hour}-{self.number}", seconds

        some = list(values())
        in_threads(send, [some[::2], some[1::2]])

    def produce_in_transactions(self, hour, partition):
        """Send records between markers; those of every other transaction are aborted."""
        producer = self.broker.producer(**{"transactional.id": f"t{hour}"})
        producer.init_transactions(30)
        for number in range(4):
            producer.begin_transaction()
            time = (HOUR + 3600 * (hour - 14) + number) * 1000
            producer.produce("orders", f"t{hour}-{number}", partition=partition, timestamp=time)
            producer.flush(30)
            (producer.abort_transaction if number % 2 else producer.commit_transaction)(30)

    def ends(self, hour):
        """Return where an hour ends: at the first record of the next one."""
        found = {}
        for partition, size in enumerate(sizes(self.client, "orders")):
            some = records(self.client, "orders", partition, 0, size)
            later = (one.offset() for one in some if one.timestamp()[1] >= 1000 * self.end(hour))
            found[partition] = next(later, size)
        return {"orders": found}

    @staticmethod
    def end(hour):
        return HOUR + 3600 * (hour - 13)

    def run(self, die="", status=0):
        command = [sys.executable, "-c", RUN, self.root, self.queue.queue_url]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "DIE": die}
        environment["SPARK_MASTER"] = "local[2,2]"
        words = [*map(str, command), self.broker.servers]
        run_process(words, env=environment, status=status)

    def written(self):
        return {row["sku"] for row in self.spark.read.parquet(f"{self.root}/bills").collect()}

    def check(self):
        """No window is acked before it is complete; return the hours of those that are acked."""
        chains = Acker(self.queue.bodies).chains.values()
        acked = [chain.tag.rpartition("/")[2] for chain in chains if chain.status == "acked"]
        for name in acked:
            window = self.orders.status(name).window
            for key, end in window.ends.items():
                partition = int(key.partition("/")[2])
                some = records(self.client, "orders", partition, window.starts[key], end)
                assert {one.value().decode() for one in some} <= self.written(), (name, key)
        return sorted(acked)


def test_windows_of_a_broker_whose_readers_are_killed(spark, queue, tmp_path):
    with Broker() as broker:
        broker.create_topic("orders", 4)
        world = World(spark, queue, tmp_path, broker)
        world.produce(14, 0, 1, 2)  # the last partition has no record
        world.produce_in_transactions(14, 1)
        world.produce(15, 0, 1)  # partition 2 has stopped
        world.orders.open("h14", world.ends(14))
        world.run("written:2", status=-signal.SIGKILL)
        assert world.check() == []
        world.run("proved:3", status=-signal.SIGKILL)
        world.check()
        world.produce(16, 0, 1, 3)
        world.run()
        assert world.check() == ["h14"]
        assert (tmp_path / "worker-killed").exists()
        # After its rows; the log has ended there, with markers of transactions.
        world.produce_in_transactions(15, 2)
        world.orders.open("h15", world.ends(15))
        world.run()
        assert world.check() == ["h14", "h15"]
        assert world.orders.status("h15").gaps.keys() <= {"orders/1", "orders/2"}
        ends = {"orders": dict(enumerate(sizes(world.client, "orders")))}
        assert world.orders.open("h16", ends).complete
        assert world.check() == ["h14", "h15", "h16"]
