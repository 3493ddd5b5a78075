"""The word count as streams: files arrive in a folder, their words are counted as they come.

    python -m pipeline.stream --files DIR --out OUT --queue-url URL --run-id ID [--available-now]

Three queries, each with a checkpoint of its own in OUT/checkpoints:

* ``words``: files to words, by Spark's own exactly-once Parquet sink, to OUT/words;
* ``starts``: files to chains: of each file a ``create``, and a ``stamp`` that starts its words;
* ``counts``: words to counts in OUT/counts/batch=N, and then a ``stamp`` that finishes them.

What a batch sends goes by the run, the query and the batch's number: a batch that is done again,
since the stream was killed before it was committed, has the same rows and sends the same requests
under the same ids. Ends may come before starts: a chain waits for its ``create``.

Files must be put into the folder whole (written elsewhere, then moved), must not change, and need
names of their own; a file is one row here: those of hundreds of megabytes are for the batch jobs.
Spark's streams pass over files of no bytes: these get no chain.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if __package__ in (None, ""):  # run by spark-submit: the checkout is not on the path
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from pipeline.commands import absolute, add_common, run
from xorack.spark import fold, send, stamp_of, unit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["counted_folder", "main", "queries", "stream"]

ROWS_SCHEMA = "tag string, pos long, word string, error string"
"""A word, or with the position -1 the file itself and what is wrong with it."""
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
        "--files-per-batch", type=int, default=1_000, metavar="N", help="at most (default: 1000)"
    )
    add_common(made)
    return made


def stream(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the queries until they end, or one of them fails.

    Args:
        arguments: What `parser` gave.

    Returns:
        The summary: how many batches of each query were done.

    Raises:
        InvalidOption: The queue; nothing was read.
    """
    from pipeline.session import prepare, session
    from xorack.spark import Options, check_queue

    prepare()
    options = {
        "queue_url": arguments.queue_url,
        "run_id": arguments.run_id,
        "step": "stream",
        "region": arguments.region,
        "endpoint_url": arguments.endpoint_url,
        "send_from": arguments.send_from,
    }
    check_queue(Options.of(options, camel_case=False))
    spark = session("xorack stream", verbose=arguments.verbose)
    writers = queries(spark, arguments, options)
    if not arguments.available_now:
        for writer in writers:
            writer.start()
        spark.streams.awaitAnyTermination()
        return {}
    batches = {}
    for writer in writers:  # counts see the words that are there when they begin
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        batches[f"batches of {query.name}"] = len(query.recentProgress)
    return batches


def queries(spark: SparkSession, arguments: argparse.Namespace, options: dict[str, Any]) -> list:  # type: ignore[type-arg]
    """The three queries, not started yet, in the order in which data goes through them."""
    place = absolute(arguments.out).rstrip("/")
    files = (
        spark.readStream.format("binaryFile")
        .schema(_FILES)
        .option("maxFilesPerTrigger", arguments.files_per_batch)
        .load(absolute(arguments.files))
    )
    rows = files.select("path", "content").mapInArrow(_scanner(arguments.name), ROWS_SCHEMA)

    def options_of(query: str, batch: int) -> dict[str, Any]:
        return {**options, "step": query, "run_id": f"{arguments.run_id}/{batch}"}

    def starts(frame: DataFrame, batch: int) -> None:
        frame = frame.persist()  # the files are read once, though each is two rows of requests
        send(_starts(frame), **options_of("starts", batch))
        frame.unpersist()

    def counts(frame: DataFrame, batch: int) -> None:
        frame = frame.where("word IS NOT NULL").persist()
        # Overwritten when the batch is done again; no other query reads it.
        counted = frame.groupBy("word").count()
        counted.write.mode("overwrite").parquet(f"{place}/counts/batch={batch}")
        send(_ends(frame), **options_of("counts", batch))
        frame.unpersist()

    def checkpointed(writer: Any, name: str) -> Any:
        return writer.queryName(name).option("checkpointLocation", f"{place}/checkpoints/{name}")

    sink = rows.writeStream.format("parquet").option("path", f"{place}/words")
    from pipeline.layout import Folder

    Folder(spark, f"{place}/words")._system.mkdirs(Folder(spark, f"{place}/words")._path)
    words = spark.readStream.schema(ROWS_SCHEMA).parquet(f"{place}/words")
    return [
        checkpointed(sink, "words"),
        checkpointed(rows.writeStream.foreachBatch(starts), "starts"),
        checkpointed(words.writeStream.foreachBatch(counts), "counts"),
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
