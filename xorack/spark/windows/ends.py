"""Positions of a log's partitions, as the caller, a checkpoint or a broker gives them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import IntegralType, StringType

from xorack.core.errors import ArgumentError, StateError
from xorack.core.hashing import MASK, P1, P2, P3, P4, P5, unit_id
from xorack.spark.folding import Totals
from xorack.spark.units import encoded, field_named
from xorack.spark.windows.ledger import Range, moment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

    from xorack.spark.run import Names
    from xorack.spark.storage import Texts
    from xorack.spark.windows.ledger import Ends

__all__ = ["kafka_ends", "key_of", "of_all_positions", "offsets_of", "positions_of"]

_AT_ONCE = 1 << 14
"""Positions whose units are computed at once: a step takes 128 KB."""


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
    rows: Names, frame: DataFrame, bounds: tuple[Ends, Ends], count: int
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
    totals = Totals()
    for key, one in ranges.items():
        values = [_value(*pair) for pair in zip(key.split("/"), kinds[:-1], strict=True)]
        if None in values:
            return None, {}
        totals += _totals(unit_id(rows.salt, *values), one)
    return totals, {key: one for key, one in ranges.items() if one.rows}


def _value(text: str, kind: DataType) -> Any:
    """Return the value of a column that `key_of` has written: a string or an integer, else None."""
    plain = text.replace("%2F", "/").replace("%25", "%")
    if isinstance(kind, StringType):
        return plain
    return int(plain) if isinstance(kind, IntegralType) and plain.isdecimal() else None


def _totals(seed: int, places: Range) -> Totals:
    """Add up the units of a partition's positions: `unit_id`, of many numbers at once."""
    import numpy as np

    totals = Totals()
    for begin in range(places.begin, places.end, _AT_ONCE):
        h: Any = np.arange(begin, min(begin + _AT_ONCE, places.end), dtype=np.uint64)
        other = np.empty_like(h)  # each step in place, in the processor's cache
        h *= P2
        _rotate(h, 31, other)
        h *= P1
        h ^= seed + P5 + 8 & MASK
        _rotate(h, 27, other)
        h *= P1
        h += P4
        for bits, factor in (33, P2), (29, P3), (32, 1):
            h ^= np.right_shift(h, bits, out=other)
            h *= factor
        h[h == 0] = 1
        units = h.view(np.int64)
        totals += Totals(int(np.bitwise_xor.reduce(units)), len(units), int((units >> 32).sum()))
    return totals


def _rotate(h: Any, bits: int, other: Any) -> None:
    """Rotate numbers to the left, in place."""
    import numpy as np

    np.right_shift(h, 64 - bits, out=other)
    h <<= bits
    h |= other


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
