"""Sending the requests of chains: from the tasks, or few from the driver."""

from __future__ import annotations

import json
from binascii import b2a_base64
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from itertools import chain
from json.encoder import encode_basestring_ascii
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from xorack.core.errors import SendError
from xorack.core.message import SendReport
from xorack.spark.messages import plain_errors

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from xorack.core.request import Request

    ToTexts = Callable[[Sequence[Sequence[Any]]], Iterable[str]]

_MAX_CHAINS = 2_000
"""Requests of a task, which fill a message, so that small files share messages."""
_MAX_FEW = 10_000
"""Most requests of a call that the driver sends."""
# JSON in ASCII, because SQS does not accept U+FFFF.
_encode = json.JSONEncoder(separators=(",", ":")).encode


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

    The field ``xor`` of a row becomes the stamp. Tasks send many requests, and the driver sends few
    requests, because starting Python workers costs more than sending. A retried task may send
    messages twice, but they count once.
    """
    spark, to_texts = requests.sparkSession, partial(request_texts, requests.columns)
    if chains <= _MAX_FEW and hasattr(spark, "_jvm"):
        with plain_errors(SendError):
            few = requests.coalesce(1).limit(_MAX_FEW + 1).collect()
        if len(few) <= _MAX_FEW:
            texts = [*to_texts([*zip(*few, strict=True)])] if few else []
            return _send_texts(spark, texts, queue)
    return _send(requests, queue, chains, to_texts)


def send_few(spark: SparkSession, requests: Iterable[Request], queue: Queue) -> SendReport:
    """Send requests of the driver from the driver itself, or from a task if it cannot send them."""
    return _send_texts(spark, [_encode(request.to_json()) for request in requests], queue)


def _send_texts(spark: SparkSession, texts: Sequence[str], queue: Queue) -> SendReport:
    if not texts:
        return SendReport()
    if hasattr(spark, "_jvm"):
        # The driver may have no boto3, no credentials, or no way to the queue.
        with suppress(Exception):
            return queue.send(texts)
    frame = spark.createDataFrame(zip(texts), "request string")
    return _send(frame, queue, len(texts), chain.from_iterable)


def _send(requests: DataFrame, queue: Queue, number: int, to_texts: ToTexts) -> SendReport:
    """Send requests from tasks; `to_texts` makes texts of the columns of a batch."""

    def send_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        columns = ([_values(column) for column in batch.columns] for batch in batches)
        texts = chain.from_iterable(map(to_texts, columns))
        yield pa.RecordBatch.from_pylist([queue.send(texts)._asdict()])

    requests = requests.coalesce(1 + number // _MAX_CHAINS)
    with plain_errors(SendError):
        schema = "messages long, requests long, bytes long"
        tasks = requests.mapInArrow(send_partition, schema).collect()
    return SendReport(*map(sum, zip(*tasks, strict=True)))


def _values(column: pa.Array) -> Sequence[Any]:
    # Most columns are null in all rows, and the conversion takes as long as the JSON.
    is_empty = column.null_count == len(column)
    return [None] * len(column) if is_empty else cast("list[Any]", column.to_pylist())


def request_texts(names: Sequence[str], columns: Sequence[Sequence[Any]]) -> Iterator[str]:
    """Make JSON of requests, which are in columns, without nulls. Their tags have no nulls.

    Python does this because Java would have to compile the functions of SQL first, which takes
    longer than a few thousand requests.
    """
    template, values = "", list[Iterable[str]]()
    for name, column in zip(names, columns, strict=True):
        form, head = _FORMS.get(name, _encode), f',"{_KEYS.get(name, name)}":'
        if name != "tag" and column[0] == column[-1] and column.count(column[0]) == len(column):
            # All rows have this value, so it is encoded once.
            text = "" if column[0] is None else head + form(column[0])
            template += text.replace("{", "{{").replace("}", "}}")
        elif None in column:
            values.append(["" if value is None else head + form(value) for value in column])
            template += "{}"
        else:
            values.append(map(form, column))
            template += head + "{}"
    return map(f"{{{{{template[1:]}}}}}".format, *values)


def _stamp(xor: int) -> str:
    return f'"{b2a_base64(xor.to_bytes(8, "little", signed=True), newline=False).decode()}"'


_KEYS = {"xor": "stamp"}
# These columns contain JSON, or integers.
_PLAIN = ("detail", "parents", "started", "finished", "missing_count")
_FORMS: dict[str, Callable[[Any], str]] = {
    "tag": encode_basestring_ascii,
    "xor": _stamp,
    **dict.fromkeys(_PLAIN, str),
}
