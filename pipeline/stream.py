"""The word count as streams: files arrive in a folder, their words are counted as they come.

    python -m pipeline.stream --files DIR --out OUT --records DIR --queue-url URL --run-id ID

Three queries, each with a checkpoint of its own in OUT/checkpoints:

    words    files to words, by Spark's exactly-once Parquet sink, to OUT/words
    starts   starts the words of the files in OUT/words, or fails the files
    counts   counts the words of OUT/words to OUT/counts/batch=N, and finishes them

In OUT/words, a file is a row without a word, with an error if it cannot be read, and a row a word.
They are in one Parquet file, so in one batch. A batch that is repeated after a kill has the same
rows and sends the same requests. docs/spark.md has the rest.
"""

import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.commands import FILES, FOLDER, run
from pipeline.data import WORDS, counts_of, read
from pipeline.folder import JobError, UnreadableFile, claim
from pipeline.reading import read_words
from pipeline.scan import PIECES, batch_of, words_of
from xorack.spark import Report, TrackedRows

_OPTIONS = {
    "files": {**FOLDER, "help": "where files arrive"},
    "out": {**FOLDER, "help": "words, counts and checkpoints"},
    "available-now": {"action": "store_true", "help": "process what is there, and end"},
    "every": {"type": float, "default": 10.0, "metavar": "SECONDS", "help": "(default: 10)"},
    "files-per-batch": {"type": int, "default": 1_000, "metavar": "N", "help": "(default: 1000)"},
    **FILES,
}


@dataclass
class _Batches:
    """What the queries do with their batches, and the error of one that failed."""

    words: TrackedRows
    out: str
    done: Counter[str] = field(default_factory=Counter)
    error: Exception | None = None

    def start(self, batch: DataFrame, number: int) -> Report:
        files = batch.where("word IS NULL").select("file", F.col("error").alias("failed"))
        return self.words.batch(number).start(batch.where("word IS NOT NULL"), files)

    def count(self, batch: DataFrame, number: int) -> Report:
        rows, place = batch.where("word IS NOT NULL"), f"{self.out}/counts/batch={number}"
        counts = counts_of(rows, self.words)
        counts.write.mode("overwrite").parquet(place)  # no query reads it
        written = read(self.words.tracking.spark, place, counts.schema)
        return self.words.batch(number).finish(written, source=rows)

    def process(self, work: Callable[..., Report], batch: DataFrame, number: int) -> None:
        """Run `start` or `count` on a batch; note the messages it sent, or its error."""
        try:
            self.done.update(batches=1, messages=work(batch, number).messages)
        except Exception as error:
            self.error = error
            raise


def stream(spark: SparkSession, words: TrackedRows, arguments: Namespace) -> dict[str, Any]:
    """Count the words of files as they arrive in a folder."""
    if not arguments.every >= 0:
        raise JobError(f"--every must be 0 seconds or more, not {arguments.every:g}")
    scan, out = _scanner(arguments.encoding), arguments.out
    for place in (out, f"{out}/words"):
        claim("--out", place, arguments.run_id, keep=True)
    files = (
        spark.readStream.format("binaryFile")
        .schema("path string, modificationTime timestamp, length long, content binary")
        .option("maxFilesPerTrigger", arguments.files_per_batch)
        # By default Spark ignores files that are a week older than the newest one.
        .option("maxFileAge", "36500d")
        .load(arguments.files)
    )
    found = words_of(files.select("path", "content").mapInArrow(scan, PIECES))
    written = spark.readStream.schema(WORDS).parquet(f"{out}/words")
    batches = _Batches(words, out)
    sink = found.writeStream.format("parquet").option("maxRecordsPerFile", 0)
    writers = {
        "words": sink.option("path", f"{out}/words"),
        "starts": written.writeStream.foreachBatch(partial(batches.process, batches.start)),
        "counts": written.writeStream.foreachBatch(partial(batches.process, batches.count)),
    }
    for name, writer in writers.items():
        writer.queryName(name).option("checkpointLocation", f"{out}/checkpoints/{name}")
    try:
        if arguments.available_now:
            for writer in writers.values():  # the later ones read what the first has written
                writer.trigger(availableNow=True).start().awaitTermination()
        else:
            for writer in writers.values():
                writer.trigger(processingTime=f"{arguments.every:f} seconds").start()
            while not spark.streams.awaitAnyTermination(1):
                pass  # Python takes no signals while it waits in Java
    except Exception as error:  # noqa: BLE001 - raised again
        raise batches.error or error from None  # Spark's own has a batch's traceback as text
    return dict(batches.done)


def _scanner(encoding: str) -> Callable[[Iterator[pa.RecordBatch]], Any]:
    def scan(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for path, content in (row.values() for batch in batches for row in batch.to_pylist()):
            file, size = path.rpartition("/")[2], len(content)
            try:
                pieces = list(read_words(BytesIO(content), size, encoding))
            except UnreadableFile as error:
                yield batch_of([(file, -1, None, str(error))])
            else:
                rows = [(file, position, text.decode(), None) for position, text in pieces]
                yield batch_of([(file, -1, None, None), *rows])

    return scan


main = partial(run, stream, _OPTIONS)

if __name__ == "__main__":
    sys.exit(main())
