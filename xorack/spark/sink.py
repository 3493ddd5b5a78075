"""Sending a frame of requests to the queue: a function, from Spark 3.5 on, that returns counts."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from xorack.spark.errors import InvalidOption
from xorack.spark.requests import (
    OPTIONS,
    Chains,
    Options,
    Sent,
    check_queue,
    deliver,
    row_columns,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["send", "ship_wheel"]


def send(
    df: DataFrame,
    *,
    queue_url: str,
    run_id: str,
    step: str,
    region: str | None = None,
    endpoint_url: str | None = None,
    send_from: Literal["driver", "tasks"] = "driver",
) -> Sent:
    """Send the requests in a frame's rows; what ``df.write.format("xorack")`` does, with counts.

    Args:
        df: Rows of ``tag`` and what the request has: ``op`` (``stamp`` if there is no such column),
            ``stamp``, ``started``, ``finished``, ``timeout``, ``idle_timeout``, ``detail`` (JSON),
            ``reason``. Rows of one chain and op are folded into one request.
        queue_url: The queue (the stack's output QueueUrl).
        run_id: Your name for this run: the same when the run is repeated, so that what it sends
            twice counts once.
        step: A name for this step of the job, another one for each `send` in it.
        region: The queue's region; the default is the one in the URL.
        endpoint_url: Another endpoint than AWS's own.
        send_from: ``driver`` brings the rows to the driver: one row a chain, so that grows with the
            chains. ``tasks`` sends from the tasks, for very many chains; a chain must then have one
            row an op.

    Returns:
        How many messages, requests and chains. With ``tasks``, a retried task's are counted once
        though its messages may have gone out twice (with the same ids).

    Raises:
        InvalidOption: One of the arguments, or there is no such queue; nothing ran.
        UnsuitableColumns: The frame's columns, before anything runs; or a row, before anything is
            sent from the driver.
        SendFailed: The queue did not take everything. Run it again with the same ``run_id``.
    """
    options = Options.of(
        {
            "queue_url": queue_url,
            "run_id": run_id,
            "step": step,
            "region": region,
            "endpoint_url": endpoint_url,
            "send_from": send_from,
        },
        camel_case=False,
    )
    columns = row_columns(df.dtypes)
    run = str(options.run_id)
    try:
        check_queue(options)
    except InvalidOption as error:
        raise InvalidOption(OPTIONS.get(error.option, error.option), error.problem) from None
    if options.send_from == "driver":
        return deliver(Chains().add_rows(columns, df.toLocalIterator()), options, run)
    ship_wheel(df.sparkSession)

    def send_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        chains = Chains()
        for batch in batches:
            lists = [column.to_pylist() for column in batch.columns]
            chains.add_rows(columns, zip(*lists, strict=True))
        sent = deliver(chains, options, run)
        yield pa.RecordBatch.from_pylist([asdict(sent)])

    schema = "messages long, requests long, chains long, bytes long"
    counts = df.mapInArrow(send_partition, schema).collect()
    return sum((Sent(**row.asDict()) for row in counts), Sent())


def ship_wheel(spark: SparkSession) -> None:
    """Send this package to the workers, if it is imported from a wheel.

    ``--py-files`` puts a wheel onto the driver's path alone: of what it brings to the workers,
    Spark imports archives whose names end in .zip, .egg or .jar.

    Args:
        spark: The session.
    """
    wheel = Path(__file__).parents[2]
    if wheel.suffix != ".whl" or not wheel.is_file():
        return
    context = spark.sparkContext
    if getattr(context, "_xorack_shipped", False):
        return
    folder = tempfile.mkdtemp(prefix="xorack-")
    # Spark serves the file to the workers for as long as it runs.
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    context.addPyFile(shutil.copy(str(wheel), str(Path(folder, f"{wheel.stem}.zip"))))
    context._xorack_shipped = True  # type: ignore[attr-defined]
