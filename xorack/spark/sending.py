"""Sending the requests of chains: from the tasks, or few from the driver."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as F

from xorack.core.errors import SendError
from xorack.core.message import SendReport
from xorack.spark.messages import plain_errors

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

    from xorack.core.request import Request

_JSON = ("detail", "parents")
"""Columns of requests that contain JSON text."""
_MAX_CHAINS = 2_000
"""Requests of a task, which fill a message, so that small files share messages."""
_MAX_FEW = 10_000
"""Most requests of a call that the driver sends."""


class Queue(NamedTuple):
    """The queue of requests, as an object that is sent to the tasks.

    The messages of a run form a group, so that its backlog does not delay other runs.
    """

    url: str
    region: str | None = None
    endpoint_url: str | None = None
    run_id: str | None = None

    def send(self, texts: Iterable[str]) -> SendReport:
        """Send requests, each in JSON."""
        from xorack.aws import sqs

        return sqs.send(self.url, texts, _client(self), group=self.run_id)


@lru_cache(maxsize=4)
def _client(queue: Queue) -> Any:
    """Return a boto3 client, which all tasks of a worker share."""
    from xorack.aws.sqs import queue_client

    return queue_client(queue.url, queue.region, queue.endpoint_url)


def send_frame(requests: DataFrame, queue: Queue, chains: int) -> SendReport:
    """Send the requests in the rows of a frame; `chains` is their approximate number.

    Tasks send many requests, and the driver sends few requests, because starting Python workers
    costs more than sending. A retried task may send messages twice, but they count once.
    """
    spark, texts = requests.sparkSession, requests.select(_text(requests).alias("request"))
    if chains <= _MAX_FEW and hasattr(spark, "_jvm"):
        with plain_errors(SendError):
            few = texts.coalesce(1).limit(_MAX_FEW + 1).collect()
        if len(few) <= _MAX_FEW:
            return _send_texts(spark, [_ascii(text) for (text,) in few], queue)
    return _send(texts, queue, chains)


def send_few(spark: SparkSession, requests: Iterable[Request], queue: Queue) -> SendReport:
    """Send requests of the driver from the driver itself, or from a task if it cannot send them."""
    texts = [json.dumps(request.to_json(), separators=(",", ":")) for request in requests]
    return _send_texts(spark, texts, queue)


def _send_texts(spark: SparkSession, texts: Sequence[str], queue: Queue) -> SendReport:
    if not texts:
        return SendReport()
    if hasattr(spark, "_jvm"):
        # The driver may have no boto3, no credentials, or no way to the queue.
        with suppress(Exception):
            return queue.send(texts)
    return _send(spark.createDataFrame(zip(texts), "request string"), queue, len(texts))


def _send(requests: DataFrame, queue: Queue, number: int) -> SendReport:
    """Send requests, which are JSON in the only column."""

    def send_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        texts = (_ascii(text) for batch in batches for text in batch.column(0).to_pylist())
        yield pa.RecordBatch.from_pylist([queue.send(texts)._asdict()])

    texts = requests.coalesce(1 + number // _MAX_CHAINS)
    with plain_errors(SendError):
        schema = "messages long, requests long, bytes long"
        tasks = texts.mapInArrow(send_partition, schema).collect()
    return SendReport(*map(sum, zip(*tasks, strict=True)))


def _ascii(text: str) -> str:
    """Escape characters that are not ASCII, because SQS does not accept U+FFFF."""
    return text if text.isascii() else json.dumps(json.loads(text), separators=(",", ":"))


def _text(requests: DataFrame) -> Column:
    """Return requests as JSON without nulls.

    ``xor`` becomes the stamp, and the fields in `_JSON` contain JSON text.
    """
    fields = [name for name in requests.columns if name not in ("xor", *_JSON)]
    if "xor" in requests.columns:
        fields.append(f"base64(unhex(lpad(hex({_reversed('xor')}), 16, '0'))) AS stamp")
    text = f"to_json(struct({', '.join(fields)}), map('ignoreNullFields', 'true'))"
    if parts := [name for name in _JSON if name in requests.columns]:
        heads = [f"""coalesce(concat('"{name}":', {name}, ','), '')""" for name in parts]
        text = f"concat('{{', {', '.join(heads)}, substring({text}, 2))"
    return F.expr(text)


def _reversed(long: str) -> str:
    """Reverse the bytes of a long in SQL, because a stamp is little-endian.

    This is faster than a regular expression. It swaps neighbouring bytes, pairs of bytes, and
    halves, as in section 7-1 of Warren, Hacker's Delight.
    """
    for bits, mask in (8, 0x00FF00FF00FF00FF), (16, 0x0000FFFF0000FFFF), (32, 0x00000000FFFFFFFF):
        right = f"(shiftrightunsigned({long}, {bits}) & {mask}L)"
        long = f"(shiftleft({long} & {mask}L, {bits}) | {right})"
    return long
