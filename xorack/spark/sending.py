"""Sending the requests of many chains from the tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from xorack.core.errors import ArgumentError, SendError
from xorack.core.message import SendReport
from xorack.spark.errors import plain_errors

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Queue", "check_queue", "send"]


class Queue(NamedTuple):
    """The queue of stamp requests; it travels to the tasks. See `xorack.aws.sqs.queue_client`.

    The messages of a run are a group: its backlog does not delay other runs.
    """

    url: str
    region: str | None = None
    endpoint_url: str | None = None
    run_id: str | None = None

    def client(self) -> Any:
        """Make a boto3 client for the queue."""
        from xorack.aws.sqs import queue_client

        return queue_client(self.url, self.region, self.endpoint_url)


def check_queue(spark: SparkSession, queue: Queue) -> None:
    """Ask a task whether it can reach the queue; see `Tracking.check`."""

    def check(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from xorack.aws.sqs import why_unreachable

        for _ in batches:
            problem = why_unreachable(queue.url, queue.client())
            yield pa.RecordBatch.from_pydict({"problem": pa.array([problem], pa.string())})

    with plain_errors():
        row = spark.range(1).repartition(1).mapInArrow(check, "problem string").first()
    if row is not None and row["problem"] is not None:
        raise ArgumentError("queue_url", problem=row["problem"])


def send(requests: DataFrame, queue: Queue, cells: int | None) -> SendReport:
    """Send requests from the tasks.

    Args:
        requests: A request a row. ``op``, ``tag`` and ``id``; ``units`` and ``fold``, which its
            stamp is made of, and optionally ``units_2`` and ``fold_2``, which are XORed into it;
            optionally ``started``, ``finished``, ``timeout``, ``idle_timeout``, ``detail`` (a JSON
            object in ASCII), ``reason``. A null leaves a field out.
        queue: The queue.
        cells: The cells of each table of traced stamps; None for plain stamps.

    Returns:
        What was sent. The messages of a retried task count once, though they may go out twice.

    Raises:
        SendError: The queue did not accept all. Run it again: the ids are the same.
    """

    def send_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from xorack.aws import sqs
        from xorack.spark.packing import request_texts

        texts = (text for batch in batches for text in request_texts(batch, cells))
        sent = sqs.send(queue.url, texts, queue.client(), group=queue.run_id)
        yield pa.RecordBatch.from_pylist([sent._asdict()])

    schema = "messages long, requests long, bytes long"
    with plain_errors(SendError):
        tasks = requests.mapInArrow(send_partition, schema).collect()
    return SendReport(*map(sum, zip(*tasks, strict=True)))
