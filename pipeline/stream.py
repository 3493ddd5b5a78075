"""The word count as streams: files arrive in a folder, their words are counted as they come.

    python -m pipeline.stream --files DIR --out OUT --records DIR --queue-url URL --run-id ID

Three queries, each with a checkpoint of its own in OUT/checkpoints:

    words    files to words, by Spark's exactly-once Parquet sink, to OUT/words
    starts   words of OUT/words to chains: starts the words of each file, or fails it
    counts   words of OUT/words to counts in OUT/counts/batch=N; finishes the words in them

A file is a row of OUT/words without a word, with an error if it cannot be read, and a row a word.
They are in one Parquet file, so in one batch. A batch that is repeated after a kill has the same
rows and sends the same requests. Finishes may come before starts: a chain waits for its ``create``.

Files must be put into the folder whole (written elsewhere, then moved), must not change, and need
names of their own. A file is read into one row: use the batch jobs for hundreds of megabytes.
Spark ignores empty files, and names that begin with a dot or an underscore: these get no chain.

Without ``--available-now`` it runs until SIGTERM or SIGINT, which let the current batches end; a
second signal does not. docs/streaming.md has the rest.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from io import BytesIO
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.commands import FILES, Options, run
from pipeline.data import WORDS, counts_of, read
from pipeline.errors import JobError, UnreadableFile
from pipeline.folder import absolute, claim
from pipeline.reading import Encoding, encoding_named, read_words
from pipeline.scan import PIECES, batch_of, words_of
from xorack.spark import TrackedRows

_OPTIONS: Options = {
    "files": {"required": True, "metavar": "DIR", "help": "where files arrive"},
    "out": {"required": True, "metavar": "OUT", "help": "words, counts and checkpoints"},
    "available-now": {"action": "store_true", "help": "process what is there, and end"},
    "every": {"type": float, "default": 10.0, "metavar": "SECONDS", "help": "(default: 10)"},
    "files-per-batch": {"type": int, "default": 1_000, "metavar": "N", "help": "(default: 1000)"},
    **FILES,
}
_FILES = "path string, modificationTime timestamp, length long, content binary"
_STOP_SECONDS = 60.0
"""How long a current batch may take when the streams are told to stop."""


def stream(spark: SparkSession, words: TrackedRows, arguments: Namespace) -> dict[str, Any]:
    """Count the words of files as they arrive in a folder."""
    if not 0 <= arguments.every < 1e6:
        raise JobError(f"--every must be 0 seconds or more, not {arguments.every:g}")
    if arguments.files_per_batch < 1:
        raise JobError(f"--files-per-batch must be 1 or more, not {arguments.files_per_batch}")
    claim("--out", absolute(arguments.out), arguments.run_id, keep=True)
    done: Counter[str] = Counter()
    failed: list[Exception] = []
    writers = _queries(spark, words, arguments, done, failed)
    try:
        if arguments.available_now:
            for writer in writers:  # the later ones read what the first has written
                writer.trigger(availableNow=True).start().awaitTermination()
        else:
            _run_until_stopped(spark, writers, f"{round(arguments.every * 1000)} milliseconds")
    except Exception:
        if failed:  # the error of a batch; Spark's own has its traceback as text
            raise failed[0] from None
        raise
    return dict(done)


def _queries(
    spark: SparkSession,
    words: TrackedRows,
    arguments: Namespace,
    done: Counter[str],
    failed: list[Exception],
) -> list[Any]:
    """Make the three queries, in the order in which data goes through them."""
    out = absolute(arguments.out)

    def query(name: str, frame: DataFrame, work: Callable[[DataFrame, int], int] | None) -> Any:
        def each_batch(batch: DataFrame, number: int) -> None:
            try:
                done["messages"] += work(batch.persist(), number)
                done[f"batches of {name}"] += 1
            except Exception as error:
                failed.append(error)
                raise
            finally:
                batch.unpersist()

        writer = frame.writeStream.queryName(name)
        writer = writer.option("checkpointLocation", f"{out}/checkpoints/{name}")
        if work is None:
            return writer.format("parquet").option("path", f"{out}/{name}")
        return writer.foreachBatch(each_batch)

    def start(batch: DataFrame, number: int) -> int:
        files = batch.where("word IS NULL").select("file", F.col("error").alias("failed"))
        rows = batch.where("word IS NOT NULL")
        return words.batch(number).start(rows, files).messages

    def count(batch: DataFrame, number: int) -> int:
        rows, place = batch.where("word IS NOT NULL"), f"{out}/counts/batch={number}"
        counts = counts_of(rows, words)
        counts.write.mode("overwrite").parquet(place)  # a repeated batch's; no query reads it
        return words.batch(number).finish(read(spark, place, counts.schema), rows=rows).messages

    files = (
        spark.readStream.format("binaryFile")
        .schema(_FILES)
        .option("maxFilesPerTrigger", arguments.files_per_batch)
        # By default Spark ignores files that are a week older than the newest one.
        .option("maxFileAge", "36500d")
        .load(absolute(arguments.files))
    )
    scan = _scan_files(encoding_named(arguments.encoding))
    written = words_of(files.select("path", "content").mapInArrow(scan, PIECES))
    os.makedirs(f"{out}/words", exist_ok=True)
    source = spark.readStream.schema(WORDS).parquet(f"{out}/words")
    return [
        query("words", written, None),
        query("starts", source, start),
        query("counts", source, count),
    ]


def _scan_files(encoding: Encoding) -> Callable[[Iterator[pa.RecordBatch]], Any]:
    def scan(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for path, content in (row.values() for batch in batches for row in batch.to_pylist()):
            file, size = path.rpartition("/")[2], len(content)
            try:
                pieces = list(read_words(BytesIO(content), 0, size, size, encoding))
            except UnreadableFile as error:
                yield batch_of([(file, -1, None, str(error))])
            else:
                rows = [(file, position, text.decode(), None) for position, text in pieces]
                yield batch_of([(file, -1, None, None), *rows])

    return scan


def _run_until_stopped(spark: SparkSession, writers: list[Any], interval: str) -> None:
    """Run the queries until a signal, or until one of them ends."""
    stopped = threading.Event()

    def stop(number: int, frame: object) -> None:
        stopped.set()
        signal.signal(number, signal.default_int_handler)  # a second signal interrupts

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    started: list[Any] = []
    try:
        started += [writer.trigger(processingTime=interval).start() for writer in writers]
        # Python takes no signals while it waits in Java.
        while not stopped.is_set() and not spark.streams.awaitAnyTermination(1):
            pass
    finally:
        deadline = time.monotonic() + _STOP_SECONDS
        for query in started:
            # Stopping in the middle of a batch is safe, but repeats it later.
            while query.isActive and query.status["isTriggerActive"]:
                if time.monotonic() > deadline:
                    break
                time.sleep(0.1)
            query.stop()


def counted_folder(spark: SparkSession, out: str) -> DataFrame:
    """Return how often each word occurred so far: word, count."""
    batches = read(spark, f"{absolute(out)}/counts", "word string, count long")
    return batches.groupBy("word").agg(F.sum("count").alias("count"))


main = partial(run, stream, _OPTIONS)

if __name__ == "__main__":
    sys.exit(main())
