"""The second job: reads words, writes how often each comes, and finishes the words' chains.

    python -m pipeline.count --words DIR --counts OUT --queue-url URL --run-id ID
    spark-submit pipeline/count.py --words DIR --counts OUT --queue-url URL --run-id ID

One request a chain: a ``stamp`` that finishes all its words. It is sent once the counts are
durable, never before, and it is what COUNTS/_tracking says: the record of what was counted, written
with the counts. A run that died is repeated with the same --run-id: counts that are not whole are
written anew, and requests go out under the same ids. `pipeline.repair` counts what was missed.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

if __package__ in (None, ""):  # run by spark-submit: the checkout is not on the path
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from pipeline.commands import absolute, add_common, run, sink_options
from pipeline.errors import JobError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pipeline.layout import Folder

__all__ = ["count", "main"]

_STEP = "count"
_MOST_LOST = 1_000_000
"""To find the least of them, Spark makes room for as many in memory."""
_SMALLER = 2
"""How much smaller words are in Parquet than as text, about."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="count", description="Count the words that split wrote, finish their chains."
    )
    made.add_argument("--words", required=True, metavar="DIR", help="the folder that split wrote")
    made.add_argument("--counts", required=True, metavar="OUT", help="the folder to write to")
    made.add_argument(
        "--lose",
        type=_to_lose,
        default=0,
        metavar="N",
        help="for demos and tests: leave N words uncounted and unfinished, the same ones each time",
    )
    add_common(made)
    return made


def _to_lose(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if not 0 <= number <= _MOST_LOST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to {_MOST_LOST:,}")
    return number


def count(arguments: argparse.Namespace) -> dict[str, Any]:
    """Do the job.

    Args:
        arguments: What `parser` gave.

    Returns:
        The summary: words, distinct, chains, messages, requests.

    Raises:
        JobError: The words or the output folder; nothing was written.
        InvalidOption: The queue; nothing was written.
        SendFailed: The counts are written, not all requests are sent: run it again.
    """
    from pipeline.folder import bytes_in, is_local
    from pipeline.session import prepare, session

    words, counts = absolute(arguments.words), absolute(arguments.counts)
    if is_local(words) and not os.path.isdir(words):
        raise JobError(f"--words {words}: there is no such folder")
    prepare()
    options = sink_options(arguments, _STEP)
    size = bytes_in(words) * _SMALLER if is_local(words) else None
    spark = session("xorack count", input_bytes=size, verbose=arguments.verbose)

    from pipeline.layout import Folder, begin, files_of

    source, folder = Folder(spark, words), Folder(spark, counts)
    if not files_of(source).is_whole():
        raise JobError(f"--words {words} is not what split writes, or split has not ended")
    made_by = {"run_id": arguments.run_id, "words": words, "lose": arguments.lose}
    repeated = begin(folder, "--counts", made_by)
    if not (repeated and folder.is_whole()):
        try:
            _write(spark, source, folder, arguments.lose)
        except BaseException:
            folder.delete()
            raise
    return _send(spark, folder, options)


def _words(spark: SparkSession, source: Folder, lose: int) -> DataFrame:
    """The words that count: those of files that could be read to their end, but the lost ones."""
    from pyspark.sql import functions as F

    from pipeline.layout import FILES_SCHEMA, files_of, words_in

    words = words_in(spark, source)
    files = spark.read.schema(FILES_SCHEMA).parquet(files_of(source).to_read())
    void = files.where("error IS NOT NULL").select("number")
    if not void.isEmpty():
        words = words.join(F.broadcast(void), "number", "left_anti")
    if lose:
        # Those with the least hashes: anywhere, and whoever looks again finds the same.
        lost = words.orderBy(F.xxhash64("at"), "at").limit(lose)
        words = words.join(F.broadcast(lost.select("at")), "at", "left_anti")
    return words


def _write(spark: SparkSession, source: Folder, folder: Folder, lose: int) -> None:
    """Write the record of what is counted, then the counts."""
    import pyarrow.compute as pc
    from pyspark.sql import functions as F

    from pipeline.files import POSITION_BITS
    from pipeline.layout import (
        FILES_SCHEMA,
        TRACKING_SCHEMA,
        files_of,
        run_of,
        tracking_of,
        words_in,
        words_of,
    )
    from xorack.spark import fold, fold_parquet, unit
    from xorack.spark.parquet import can_read

    # What another attempt of this run left is overwritten; its name stays, in a hidden file.
    for leavings in folder.data():
        leavings.delete()
    words = _words(spark, source, lose)
    files = spark.read.schema(FILES_SCHEMA).parquet(files_of(source).to_read())
    kind: Any = (run_of(source) or {}).get("stamps", "traced")
    if lose or not can_read(words_of(source).uri):
        units = words.select("number", unit("at").alias("unit"))
        finished = fold(units, "number", "unit", kind=kind, count="finished")
    else:
        number = pc.shift_right(pc.field("at"), pc.scalar(POSITION_BITS))
        finished = fold_parquet(
            spark,
            words_in(spark, source).inputFiles(),
            "number",
            "at",
            kind=kind,
            where=pc.field("at") >= 0,
            derived={"number": number},
            count="finished",
        )
    good = files.where("error IS NULL").select("number", "chain", "tag")
    (
        finished.join(F.broadcast(good), "number")
        .withColumn("attempt", F.lit(1))
        .select(*(field.split()[0] for field in TRACKING_SCHEMA.split(", ")))
        .write.parquet(tracking_of(folder).place)
    )
    (
        words.groupBy("word")
        .count()
        .write.mode("append")
        .option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "true")
        .parquet(folder.place)
    )


def _send(spark: SparkSession, folder: Folder, options: dict[str, Any]) -> dict[str, Any]:
    """Finish the words of each chain: what the record says, so a repeat sends the same."""
    from pyspark.sql import functions as F

    from pipeline.layout import COUNTS_SCHEMA, TRACKING_SCHEMA, tracking_of
    from xorack.spark import send

    counted = spark.read.schema(TRACKING_SCHEMA).parquet(tracking_of(folder).to_read())
    sent = send(counted.select("tag", "stamp", "finished"), **options)
    total = (
        spark.read.schema(COUNTS_SCHEMA)
        .parquet(folder.to_read())
        .agg(F.coalesce(F.sum("count"), F.lit(0)).alias("words"), F.count("word").alias("distinct"))
        .first()
    )
    return {
        **(total.asDict() if total else {}),
        "chains": sent.chains,
        "messages": sent.messages,
        "requests": sent.requests,
    }


def main(argv: list[str] | None = None) -> int:
    """The command.

    Args:
        argv: The arguments; None for the process's.

    Returns:
        The exit status.
    """
    return run("count", count, parser().parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
