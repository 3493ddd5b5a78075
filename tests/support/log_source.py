"""A log for streams of tests: a data source with the columns and offsets of Spark's Kafka source.

It reads files: ``TOPIC-PARTITION`` has a line of JSON a position, an object of values, or null for
a position without a row. A batch has at most ``most`` positions of each partition.
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
        return FileReader(self.options)


class Reader(SimpleDataSourceStreamReader):
    def __init__(self, options):
        self.most = int(options["most"])

    def initialOffset(self):
        return {}

    def read(self, start):
        end = {}
        for topic, partition, size in self.sizes():
            at = start.get(topic, {}).get(partition, 0)
            if size < at:  # as failOnDataLoss of Spark's source
                raise ValueError(f"{topic}-{partition} ends at {size}, and was read up to {at}")
            end.setdefault(topic, {})[partition] = min(size, at + self.most)
        return self.readBetweenOffsets(start, end), end

    def readBetweenOffsets(self, start, end):
        rows = []
        for topic, ends in end.items():
            for partition, last in ends.items():
                begin = start.get(topic, {}).get(partition, 0)
                for offset, seconds, sku in self.records(topic, int(partition), begin, last):
                    at = datetime.fromtimestamp(seconds, timezone.utc)
                    rows.append((topic, int(partition), offset, at, sku, offset))
        return iter(rows)


class FileReader(Reader):
    def __init__(self, options):
        super().__init__(options)
        self.folder = Path(options["path"])

    def sizes(self):
        for file in sorted(self.folder.glob("*-*")):
            topic, _, partition = file.name.rpartition("-")
            yield topic, partition, len(file.read_text().splitlines())

    def records(self, topic, partition, begin, end):
        lines = (self.folder / f"{topic}-{partition}").read_text().splitlines()
        for offset in range(begin, end):
            if (value := json.loads(lines[offset])) is not None:
                yield offset, value["time"], value["sku"]


def append(folder, topic, partition, values):
    """Append positions to a partition."""
    with (Path(folder) / f"{topic}-{partition}").open("a") as file:
        file.writelines(f"{json.dumps(value)}\n" for value in values)
