"""Sending requests to the queue, those of a frame or of rows at hand; from Spark 3.5 on."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from xorack.spark.errors import InvalidOption
from xorack.spark.requests import (
    COLUMNS,
    OPTIONS,
    Chains,
    Options,
    Sent,
    check_queue,
    deliver,
    row_columns,
    row_values,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["send", "send_rows", "ship_wheel"]


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
    options = _checked(queue_url, run_id, step, region, endpoint_url, send_from)
    columns = row_columns(df.dtypes)
    run = str(options.run_id)
    _ask(options)
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


def send_rows(
    rows: Iterable[Mapping[str, Any]],
    *,
    queue_url: str,
    run_id: str,
    step: str,
    region: str | None = None,
    endpoint_url: str | None = None,
    send_from: Literal["driver"] = "driver",
) -> Sent:
    """Send the requests in rows that the driver has already: `send` without a job of Spark's.

    Where a job's stamps are few and came to the driver with something else that was collected,
    this saves what a job costs, however small. Ids are those that `send` makes.

    Args:
        rows: By the names of the columns that `send` takes; what is left out is None.
        queue_url: As in `send`, like the others.
        run_id: Your name for this run.
        step: A name for this step of the job.
        region: The queue's region.
        endpoint_url: Another endpoint than AWS's own.
        send_from: ``driver``: there is nothing else.

    Returns:
        How many messages, requests and chains.

    Raises:
        InvalidOption: One of the arguments, or there is no such queue; nothing was sent.
        UnsuitableColumns: A row; nothing was sent.
        SendFailed: The queue did not take everything. Send it again with the same ``run_id``.
    """
    options = _checked(queue_url, run_id, step, region, endpoint_url, send_from)
    if options.send_from != "driver":
        raise InvalidOption("send_from", f"{send_from!r}, expected driver: the rows are there")
    chains = Chains().add_rows(list(COLUMNS), map(row_values, rows))
    _ask(options)
    return deliver(chains, options, str(options.run_id))


def _checked(
    queue_url: str,
    run_id: str,
    step: str,
    region: str | None,
    endpoint_url: str | None,
    send_from: str,
) -> Options:
    return Options.of(
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


def _ask(options: Options) -> None:
    """`check_queue`, with options named as arguments are."""
    try:
        check_queue(options)
    except InvalidOption as error:
        raise InvalidOption(OPTIONS.get(error.option, error.option), error.problem) from None


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
