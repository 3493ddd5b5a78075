"""The word count as streams: files arrive in a folder, their words are counted as they come.

    python -m pipeline.stream --files DIR --out OUT --queue-url URL --run-id ID [--available-now]

Two streams, files and the words that are made of them, in three queries, as Spark's have one sink
each. Each has a checkpoint of its own in OUT/checkpoints:

* ``words``: files to words, by Spark's own exactly-once Parquet sink, to OUT/words;
* ``starts``: files to chains: of each file a ``create``, and a ``stamp`` that starts its words;
* ``counts``: words to counts in OUT/counts/batch=N, and then a ``stamp`` that finishes them.

What a batch sends goes by the run, the query and the batch's number: a batch that is done again,
since the stream was killed before it was committed, has the same rows and sends the same requests
under the same ids. Ends may come before starts: a chain waits for its ``create``.

Files must be put into the folder whole (written elsewhere, then moved), must not change, and need
names of their own; a file is one row here: those of hundreds of megabytes are for the batch jobs.
Spark's streams pass over files of no bytes, and over names that begin with a dot or an underscore:
these get no chain.

Without ``--available-now`` it runs until SIGTERM or SIGINT, which let the batches at hand end; a
second one does not. docs/streaming.md has the rest.
"""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if __package__ in (None, ""):  # run by spark-submit: the checkout is not on the path
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from pipeline.commands import absolute, add_common, run, sink_options
from pipeline.errors import JobError
from xorack.spark import fold, send, stamp_of, unit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["counted_folder", "main", "queries", "stream"]

ROWS_SCHEMA = "tag string, pos long, word string, error string"
"""A word, or with the position -1 the file itself and what is wrong with it."""
_STOP_SECONDS: Final = 60.0
"""How long a batch at hand may take when the streams are told to stop."""
_NO_AGE: Final = "36500d"
_FILES = "path string, modificationTime timestamp, length long, content binary"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="stream", description="Count the words of files as they arrive in a folder."
    )
    made.add_argument("--files", required=True, metavar="DIR", help="where files arrive")
    made.add_argument("--out", required=True, metavar="OUT", help="words, counts and checkpoints")
    made.add_argument("--name", default="stream", help="the first part of tags (default: stream)")
    made.add_argument(
        "--available-now", action="store_true", help="do what is there, in batches, and end"
    )
    made.add_argument(
        "--every",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="how often to look for what is new, without --available-now (default: 10)",
    )
    made.add_argument(
        "--files-per-batch", type=int, default=1_000, metavar="N", help="at most (default: 1000)"
    )
    add_common(made)
    return made


def stream(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the queries until they end, are told to stop, or one of them fails.

    Args:
        arguments: What `parser` gave.

    Returns:
        The summary: how many batches were done, and the messages they sent.

    Raises:
        InvalidOption: The queue; nothing was read.
        JobError: An argument, or what is in the folder is of another run.
        SendFailed: The queue did not take everything; start again.
    """
    from pipeline.session import prepare, session

    if not 0 <= arguments.every < 1e6:
        raise JobError(f"--every must be 0 seconds or more, not {arguments.every:g}")
    if arguments.files_per_batch < 1:
        raise JobError(f"--files-per-batch must be 1 or more, not {arguments.files_per_batch}")
    prepare()
    options = sink_options(arguments, "stream")
    spark = session("xorack stream", verbose=arguments.verbose)
    _begin(spark, arguments)
    done: Counter[str] = Counter()
    failed: list[Exception] = []
    writers = queries(spark, arguments, options, done, failed)
    try:
        if arguments.available_now:
            for writer in writers:  # counts see the words that are there when they begin
                writer.trigger(availableNow=True).start().awaitTermination()
        else:
            _until_told(spark, writers, arguments.every)
    except Exception:
        if failed:  # what a batch raised; of that, Spark says only that something was
            raise failed[0] from None
        raise
    both = ("files", "words")
    return {
        **{f"batches of {name}": done[name] for name in both},
        "messages": sum(done[f"messages of {name}"] for name in both),
    }


def _begin(spark: SparkSession, arguments: argparse.Namespace) -> None:
    """Make sure that what is in the folder is of this run: ids of requests have its name in them.

    Raises:
        JobError: It is of another one.
    """
    from pipeline.layout import Folder, begin, run_of

    folder = Folder(spark, absolute(arguments.out))
    before = run_of(folder)
    if before is not None and before.get("run_id") != arguments.run_id:
        raise JobError(
            f"--out {folder.place} is of the run {before.get('run_id')!r}: give this one again as "
            "--run-id, or another folder"
        )
    files = absolute(arguments.files)
    begin(folder, "--out", {"run_id": arguments.run_id, "name": arguments.name, "files": files})


def _until_told(spark: SparkSession, writers: list[Any], every: float) -> None:
    """Run the queries until a signal says stop, or one of them ends.

    Raises:
        StreamingQueryException: One of them failed; the others are stopped.
    """
    started: list[Any] = []
    with _told() as told:
        try:
            for writer in writers:
                if not told.is_set():
                    trigger = f"{round(every * 1000)} milliseconds"
                    started.append(writer.trigger(processingTime=trigger).start())
            # Asked again and again: while Python waits in Java, it takes no signals.
            while not told.is_set() and not spark.streams.awaitAnyTermination(1):
                pass
        finally:
            deadline = time.monotonic() + _STOP_SECONDS
            for query in started:
                # Stopping in the middle of a batch is safe, but leaves it to be done again.
                while (
                    query.isActive
                    and query.status["isTriggerActive"]
                    and time.monotonic() < deadline
                ):
                    time.sleep(0.1)
                query.stop()


@contextmanager
def _told() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set, once; the second signal interrupts."""
    told = threading.Event()

    def tell(number: int, frame: object) -> None:
        if told.is_set():
            raise KeyboardInterrupt
        told.set()

    before = {number: signal.signal(number, tell) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def queries(
    spark: SparkSession,
    arguments: argparse.Namespace,
    options: dict[str, Any],
    done: Counter[str],
    failed: list[Exception],
) -> list[Any]:
    """Make the three queries, not started yet, in the order in which data goes through them.

    Args:
        spark: The session.
        arguments: What `parser` gave.
        options: Those of `xorack.spark.send`; each query has a step, each batch a run of its own.
        done: Where batches and messages are counted.
        failed: Where goes what a batch raises.

    Returns:
        A writer each.
    """
    place = absolute(arguments.out).rstrip("/")
    files = (
        spark.readStream.format("binaryFile")
        .schema(_FILES)
        .option("maxFilesPerTrigger", arguments.files_per_batch)
        # By itself Spark passes over what is a week older than the newest file that it has seen:
        # one that was moved here late would never get a chain, and nobody would know.
        .option("maxFileAge", _NO_AGE)
        .load(absolute(arguments.files))
    )
    rows = files.select("path", "content").mapInArrow(_scanner(arguments.name), ROWS_SCHEMA)

    def options_of(query: str, batch: int) -> dict[str, Any]:
        return {**options, "step": query, "run_id": f"{arguments.run_id}/{batch}"}

    def told(work: Callable[[DataFrame, int], None]) -> Callable[[DataFrame, int], None]:
        def telling(frame: DataFrame, batch: int) -> None:
            try:
                work(frame, batch)
            except Exception as error:
                failed.append(error)
                raise

        return telling

    def starts(frame: DataFrame, batch: int) -> None:
        frame = frame.persist()  # the files are read once, though each is two rows of requests
        sent = send(_starts(frame), **options_of("starts", batch))
        done.update({"files": 1, "messages of files": sent.messages})
        frame.unpersist()

    def counts(frame: DataFrame, batch: int) -> None:
        frame = frame.where("word IS NOT NULL").persist()
        # Overwritten when the batch is done again; no other query reads it.
        counted = frame.groupBy("word").count()
        counted.write.mode("overwrite").parquet(f"{place}/counts/batch={batch}")
        sent = send(_ends(frame), **options_of("counts", batch))
        done.update({"words": 1, "messages of words": sent.messages})
        frame.unpersist()

    def checkpointed(writer: Any, name: str) -> Any:
        return writer.queryName(name).option("checkpointLocation", f"{place}/checkpoints/{name}")

    sink = rows.writeStream.format("parquet").option("path", f"{place}/words")
    from pipeline.layout import Folder

    Folder(spark, f"{place}/words")._system.mkdirs(Folder(spark, f"{place}/words")._path)
    words = spark.readStream.schema(ROWS_SCHEMA).parquet(f"{place}/words")
    return [
        checkpointed(sink, "words"),
        checkpointed(rows.writeStream.foreachBatch(told(starts)), "starts"),
        checkpointed(words.writeStream.foreachBatch(told(counts)), "counts"),
    ]


def _scanner(name: str) -> Any:
    """Files to rows, in the tasks; the words and positions are those of the batch jobs."""

    def scan(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        from pipeline.reading import UnreadableFile, encoding_named, read_words

        encoding = encoding_named("UTF-8")
        for batch in batches:
            for file in batch.to_pylist():
                tag = f"{name}/{file['path'].rpartition('/')[2]}"
                size, found, error = len(file["content"]), [], None
                try:
                    for piece in read_words(io.BytesIO(file["content"]), 0, size, size, encoding):
                        found.append(piece)
                except UnreadableFile as wrong:
                    found, error = [], str(wrong)
                rows = [(-1, None, error)]
                for piece in found:
                    words = piece.text.decode().split(" ")
                    rows += [(piece.position + at, word, None) for at, word in enumerate(words)]
                positions, texts, errors = zip(*rows, strict=True)
                yield pa.RecordBatch.from_arrays(
                    [
                        pa.array([tag] * len(rows), pa.string()),
                        pa.array(positions, pa.int64()),
                        pa.array(texts, pa.string()),
                        pa.array(errors, pa.string()),
                    ],
                    ["tag", "pos", "word", "error"],
                )

    return scan


def _units(rows: DataFrame) -> DataFrame:
    """The unit of each row: the root's for the row that is the file itself."""
    from pyspark.sql import functions as F

    keyed = rows.withColumn("chain", unit("tag"))
    word = unit("chain", "pos")
    return keyed.select(
        "tag", F.when(F.col("pos") < 0, F.col("chain")).otherwise(word).alias("unit")
    )


def _starts(rows: DataFrame) -> DataFrame:
    """Of each file a create, and a stamp that finishes the root and starts the words; or a fail."""
    from pyspark.sql import functions as F

    one = F.lit(1).cast("long")
    files = rows.where("pos < 0")
    created = files.select(
        "tag",
        F.lit("create").alias("op"),
        stamp_of(unit("tag")).alias("stamp"),
        one.alias("started"),
    )
    good = rows.where("error IS NULL")
    folded = fold(_units(good), "tag", "unit", count="started")
    stamped = folded.select(
        "tag",
        F.lit("stamp").alias("op"),
        "stamp",
        (F.col("started") - 1).alias("started"),
        one.alias("finished"),
    )
    failed = files.where("error IS NOT NULL").select(
        "tag", F.lit("fail").alias("op"), F.substring("error", 1, 250).alias("reason")
    )
    return created.unionByName(stamped, allowMissingColumns=True).unionByName(
        failed, allowMissingColumns=True
    )


def _ends(words: DataFrame) -> DataFrame:
    """Of each file a stamp that finishes the words."""
    return fold(_units(words), "tag", "unit", count="finished")


def counted_folder(spark: SparkSession, out: str) -> DataFrame:
    """How often each word came so far: the batches' counts together.

    Args:
        spark: The session.
        out: The folder given as ``--out``.

    Returns:
        ``word`` and ``count``.
    """
    batches = spark.read.parquet(f"{absolute(out)}/counts")
    return batches.groupBy("word").agg({"count": "sum"}).toDF("word", "count")


def main(argv: list[str] | None = None) -> int:
    """The command.

    Args:
        argv: The arguments; None for the process's.

    Returns:
        The exit status.
    """
    return run("stream", stream, parser().parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
