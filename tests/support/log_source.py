"""A log for streams of tests: a data source with the columns and offsets of Spark's Kafka source.

A file ``TOPIC-PARTITION`` has a line of JSON a position: an object of values, or null for a
position without a row. A batch has at most ``most`` positions of each partition.
"""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path

from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader


class LogSource(DataSource):
    @classmethod
    def name(cls):
        return "log"

    def schema(self):
        return (
            "topic string, partition int, offset long, timestamp timestamp, sku string, amount long"
        )

    def simpleStreamReader(self, schema):
        return Reader(Path(self.options["path"]), int(self.options["most"]))


class Reader(SimpleDataSourceStreamReader):
    def __init__(self, folder, most):
        self.folder, self.most = folder, most

    def initialOffset(self):
        return {}

    def read(self, start):
        end = {}
        for file in sorted(self.folder.glob("*-*")):
            topic, _, partition = file.name.rpartition("-")
            at = start.get(topic, {}).get(partition, 0)
            size = len(file.read_text().splitlines())
            end.setdefault(topic, {})[partition] = min(size, at + self.most)
        return self.readBetweenOffsets(start, end), end

    def readBetweenOffsets(self, start, end):
        rows = []
        for topic, ends in end.items():
            for partition, last in ends.items():
                lines = (self.folder / f"{topic}-{partition}").read_text().splitlines()
                for offset in range(start.get(topic, {}).get(partition, 0), last):
                    value = json.loads(lines[offset])
                    if value is not None:
                        at = datetime.fromtimestamp(value["time"], timezone.utc)
                        rows.append((topic, int(partition), offset, at, value["sku"], offset))
        return iter(rows)


def append(folder, topic, partition, values):
    """Append positions to a partition."""
    with (Path(folder) / f"{topic}-{partition}").open("a") as file:
        file.writelines(f"{json.dumps(value)}\n" for value in values)
