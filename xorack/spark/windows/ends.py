"""Positions of a log's partitions, as the caller, a checkpoint or a broker gives them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import IntegralType, StringType, StructField, StructType

from xorack.core.errors import ArgumentError, StateError
from xorack.spark.evidence import unit_in
from xorack.spark.folding import Totals, folding, named, of_units, together
from xorack.spark.units import encoded, field_named
from xorack.spark.windows.ledger import Range, moment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from xorack.spark.run import RowNames
    from xorack.spark.storage import Texts
    from xorack.spark.windows.ledger import Ends

__all__ = ["kafka_ends", "key_of", "of_all_positions", "offsets_of", "positions_of"]

_AT_ONCE = 1 << 20
"""Positions of a row that Spark expands: they take 8 MB."""


def key_of(values: Sequence[object]) -> str:
    """Return a partition as text: the values of its columns."""
    return "/".join(encoded(str(one)) for one in values)


def positions_of(given: Any, columns: Sequence[str], option: str) -> dict[str, int]:
    """Return positions by partition, of a dict in dicts or a frame with all of the columns."""
    found: dict[str, int] = {}
    for path, position in _leaves(given, columns):
        if len(path) != len(columns) - 1 or not str(position).isdecimal():
            expected = f"{', '.join(columns[:-1])}, and a position of 0 or more"
            raise ArgumentError(option, problem=f"{(*path, position)}, expected {expected}")
        if (key := key_of(path)) in found:
            raise ArgumentError(option, problem=f"{key} is there twice, expected each once")
        found[key] = int(position)
    return found


def _leaves(given: Any, columns: Sequence[str], *path: Any) -> Iterator[tuple[Any, Any]]:
    if hasattr(given, "collect"):
        yield from ((row[:-1], row[-1]) for row in given.select(*columns).collect())
    elif isinstance(given, Mapping):
        for key, value in given.items():
            more = key if isinstance(key, tuple) else (key,)
            yield from _leaves(value, columns, *path, *more)
    else:
        yield path, given


def offsets_of(
    texts: Texts, checkpoint: str, batch_id: int, columns: Sequence[str]
) -> tuple[dict[str, int], dict[str, int]]:
    """Return where a batch begins and ends, as the query's log of offsets says."""

    def read(batch: int) -> dict[str, int]:
        lines = texts.lines(f"{checkpoint}/offsets", str(batch))
        if lines is None:
            expected = f"the folder of the query's checkpoint, with a file offsets/{batch}"
            raise ArgumentError("checkpoint", str(checkpoint), expected)
        sources = [json.loads(line) for line in lines[2:] if line != "-"]
        return {
            k: n for one in sources for k, n in positions_of(one, columns, "checkpoint").items()
        }

    until = read(batch_id)
    # A partition that is in no earlier batch is new, and is read from its beginning.
    return ({**dict.fromkeys(until, 0), **read(batch_id - 1)} if batch_id else {}), until


def of_all_positions(
    rows: RowNames, frame: DataFrame, bounds: tuple[Ends, Ends], count: int
) -> tuple[Totals | None, dict[str, Range]]:
    """Return what the units of a batch add up to if each position has a row, and its ranges.

    Units follow from positions. So what was written can be judged without a look at the rows, and
    whatever the job did to them.

    Args:
        rows: The names of the rows.
        frame: A frame with their columns.
        bounds: Where the batch begins and ends, as far as that is known.
        count: How many rows were written.

    Returns:
        None, and no ranges, unless rows and positions are known to be equally many.
    """
    since, until = bounds
    # Where nothing tells the begin it is guessed to be 0: the units tell whether that is right.
    ranges = {k: Range(since.get(k, 0), end, end - since.get(k, 0)) for k, end in until.items()}
    counts = [one.rows for one in ranges.values()] or [-1]
    kinds = [field_named(frame, name).dataType for name in rows.unit]
    if min(counts) < 0 or sum(counts) != count or not isinstance(kinds[-1], IntegralType):
        return None, {}
    pieces = list[tuple[Any, ...]]()
    for key, one in ranges.items():
        values = [_value(*pair) for pair in zip(key.split("/"), kinds[:-1], strict=True)]
        if None in values:
            return None, {}
        steps = range(one.begin, one.end, _AT_ONCE)
        pieces += ((*values, begin, min(begin + _AT_ONCE, one.end) - 1) for begin in steps)
    totals = _units_of(rows, frame.sparkSession, pieces, kinds)
    return totals, {key: one for key, one in ranges.items() if one.rows}


def _units_of(
    rows: RowNames,
    spark: SparkSession,
    pieces: Sequence[tuple[Any, ...]],
    kinds: Sequence[DataType],
) -> Totals:
    """Add up the units of pieces of partitions: values, the first position and the last one."""
    if not pieces:
        return Totals()
    fields = [StructField(f"c{i}", kind) for i, kind in enumerate(kinds[:-1])]
    ends = [StructField(name, kinds[-1]) for name in ("first", "last")]
    frame = spark.createDataFrame([*pieces], StructType([*fields, *ends]))
    columns = [F.col(one.name) for one in fields]
    columns.append(F.explode(F.sequence("first", "last")))
    pairs = zip(columns, rows.unit, strict=True)
    positions = frame.select(*(column.alias(name) for column, name in pairs))
    with folding(spark):
        sums = positions.select(*named(of_units(unit_in(rows, positions)))).agg(*together())
        return Totals(*sums.collect()[0])


def _value(text: str, kind: DataType) -> Any:
    """Return the value of a column that `key_of` has written: a string or an integer, else None."""
    plain = text.replace("%2F", "/").replace("%25", "%")
    if isinstance(kind, StringType):
        return plain
    return int(plain) if isinstance(kind, IntegralType) and plain.isdecimal() else None


def kafka_ends(
    consumer: Any, topic: str, when: datetime | str, timeout_seconds: float = 30
) -> dict[str, dict[int, int]]:
    """Ask a broker where a window of a topic ends: at the first record of a time, or at the end.

    Args:
        consumer: A `confluent_kafka.Consumer`, without a subscription.
        topic: The topic.
        when: A time that has passed, or its text in ISO 8601; UTC if it has no zone.
        timeout_seconds: For each request.

    Raises:
        ArgumentError: The time is to come, or there is no such topic.
        StateError: The broker does not tell the end of a partition.
    """
    from confluent_kafka import TopicPartition

    if moment(when) > time.time():
        raise ArgumentError("when", str(when), "a time that has passed")
    numbers = sorted(consumer.list_topics(topic, timeout_seconds).topics[topic].partitions)
    if not numbers:
        raise ArgumentError("topic", topic, "a topic of this broker")
    asked = [TopicPartition(topic, number, int(moment(when) * 1000)) for number in numbers]
    # Before the look-up: a record that arrives between is in one of both answers.
    last = [consumer.get_watermark_offsets(one, timeout_seconds)[1] for one in asked]
    answers = consumer.offsets_for_times(asked, timeout_seconds)
    if errors := [f"{topic}/{one.partition}: {one.error}" for one in answers if one.error]:
        raise StateError(f"the broker does not tell all ends: {', '.join(errors)}")
    found = {one.partition: one.offset for one in answers}
    # A negative offset: the partition has no record of that time or later.
    ends = zip(numbers, last, strict=True)
    return {topic: {n: found[n] if found[n] >= 0 else end for n, end in ends}}
