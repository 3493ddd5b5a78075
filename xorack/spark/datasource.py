"""The sink ``format("xorack")``: Spark's Python data source API, from PySpark 4.0 on."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import Row, StructType

from xorack.spark.errors import InvalidOption
from xorack.spark.requests import Chains, Options, Sent, check_queue, deliver, row_columns

__all__ = ["XorackDataSource"]

_log = logging.getLogger("xorack.spark")


class XorackDataSource(DataSource):
    """A sink that sends stamps to xorack's queue.

    Name: ``xorack``. Register it once a session: ``xorack.spark.register(spark)``.

    Rows: ``tag`` (string) and what the request has: ``op`` (string; ``stamp`` if there is no such
    column), ``stamp`` (binary), ``started`` and ``finished`` (long), ``timeout`` and
    ``idle_timeout`` (seconds), ``detail`` (JSON), ``reason``. Rows of one chain and op are folded
    into one request: in the tasks, and then by the driver when the write is committed.

    Options: ``queueUrl`` and ``step`` (required), ``runId`` (required in batch jobs: your name for
    this run, the same when it is repeated; a stream goes by its query's id), ``region``,
    ``endpointUrl``, ``sendFrom`` (``driver``, or ``tasks`` for very many chains, one row each).

    Examples:
        A batch job::

            xorack.spark.register(spark)
            folded = xorack.spark.fold(words, "file_key", xorack.spark.unit("file_key", "pos"))
            (folded.join(files, "file_key").selectExpr("tag", "stamp", "count AS finished")
                .write.format("xorack").mode("append")
                .option("queueUrl", url).option("runId", "2025-06-01").option("step", "count")
                .save())

        A stream::

            (rows.writeStream.format("xorack")
                .option("queueUrl", url).option("step", "count")
                .option("checkpointLocation", "s3://bucket/checkpoints/count").start())
    """

    @classmethod
    def name(cls) -> str:
        """The name in ``format()``."""
        return "xorack"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A writer for a batch job.

        Args:
            schema: The frame's.
            overwrite: Whether the mode is ``overwrite``, which makes no sense here.

        Returns:
            The writer.

        Raises:
            InvalidOption: An option, or the mode; or there is no such queue.
            UnsuitableColumns: The frame's columns.
        """
        if overwrite:
            raise InvalidOption("mode", "what was sent cannot be overwritten; use append")
        options, columns = Options.of(dict(self.options)), _columns(schema)
        check_queue(options)
        return _Writer(options, columns)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """A writer for a stream.

        Args:
            schema: The frame's.
            overwrite: Whether the output mode is ``complete``.

        Returns:
            The writer.

        Raises:
            InvalidOption: An option, or the mode; or there is no such queue.
            UnsuitableColumns: The frame's columns.
        """
        if overwrite:
            raise InvalidOption("outputMode", "complete would send everything again; use append")
        options, columns = Options.of(dict(self.options), streaming=True), _columns(schema)
        check_queue(options)
        return _StreamWriter(options, columns)


def _columns(schema: StructType) -> list[str]:
    return row_columns((field.name, field.dataType.simpleString()) for field in schema.fields)


@dataclass
class _Folded(WriterCommitMessage):
    """What one task folded, on its way to the driver; or what it sent itself.

    Attributes:
        chains: What is left to be sent.
        sent: What the task sent.
        query_id: The streaming query, which `commit` is not told otherwise.
    """

    chains: Chains
    sent: Sent
    query_id: str | None = None


def _committed(messages: list[Any]) -> tuple[Chains, Sent]:
    """All tasks' folds together. A task that was not committed has no message, or None."""
    chains, sent = Chains(), Sent()
    for message in messages:
        if isinstance(message, _Folded):
            chains.merge(message.chains)
            sent += message.sent
    return chains, sent


def _report(what: str, sent: Sent) -> None:
    _log.info(
        "%s: %d messages, %d requests, %d chains", what, sent.messages, sent.requests, sent.chains
    )


def _aborted(messages: list[Any]) -> None:
    """Nothing to undo: what went out keeps its ids, and counts once when the job is run again."""
    if any(isinstance(message, _Folded) and message.sent.messages for message in messages):
        _log.warning("write aborted after tasks sent messages; run it again with the same runId")


class _Writer(DataSourceWriter):
    def __init__(self, options: Options, columns: list[str]) -> None:
        self._options = options
        self._columns = columns
        self._run = str(options.run_id)

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        chains = Chains().add_rows(self._columns, iterator)
        if self._options.send_from == "tasks":
            return _Folded(Chains(), deliver(chains, self._options, self._run))
        return _Folded(chains, Sent())

    def commit(self, messages: list[Any]) -> None:
        chains, sent = _committed(messages)
        _report(f"run {self._run}", sent + deliver(chains, self._options, self._run))

    def abort(self, messages: list[Any]) -> None:
        _aborted(messages)


class _StreamWriter(DataSourceStreamWriter):
    def __init__(self, options: Options, columns: list[str]) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        context = TaskContext.get()
        query_id = context.getLocalProperty("sql.streaming.queryId") if context else None
        batch = context.getLocalProperty("streaming.sql.batchId") if context else None
        if not query_id or batch is None:
            raise RuntimeError("xorack: this task does not know its streaming query and batch")
        chains = Chains().add_rows(self._columns, iterator)
        if self._options.send_from == "tasks":
            sent = deliver(chains, self._options, query_id, int(batch))
            return _Folded(Chains(), sent, query_id)
        return _Folded(chains, Sent(), query_id)

    def commit(self, messages: list[Any], batchId: int) -> None:
        chains, sent = _committed(messages)
        query_ids = {message.query_id for message in messages if isinstance(message, _Folded)}
        if not query_ids:
            return
        query_id = str(query_ids.pop())
        _report(
            f"query {query_id} batch {batchId}",
            sent + deliver(chains, self._options, query_id, batchId),
        )

    def abort(self, messages: list[Any], batchId: int) -> None:
        _aborted(messages)
