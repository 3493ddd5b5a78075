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
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame, SparkSession

    from pipeline.layout import Folder
    from xorack.spark import Sent

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
    if repeated and folder.is_whole():
        counted, totals = _again(spark, folder)
    else:
        try:
            counted, totals = _write(spark, source, folder, arguments.lose)
        except BaseException:
            folder.delete()
            raise
    sent = _send(spark, folder, counted, options)
    return {
        **totals,
        "chains": sent.chains,
        "messages": sent.messages,
        "requests": sent.requests,
    }


def _write(
    spark: SparkSession, source: Folder, folder: Folder, lose: int
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Write the record of what is counted, then the counts; returns the record and the totals."""
    from pyspark.sql import Observation

    from pipeline.layout import files_of, tracking_of

    # What another attempt of this run left is overwritten; its name stays, in a hidden file.
    for leavings in folder.data():
        leavings.delete()
    known = (
        "number long, chain long, tag string, words long, error string, stamp binary, bounds long"
    )
    files = list(files_of(source).read_rows(known))
    void = [file["number"] for file in files if file["error"] is not None and file["words"]]
    words = _words(spark, source, void, lose)
    finished = _finished(spark, source, words, lose, files)
    counted = [
        {
            "chain": file["chain"],
            "tag": file["tag"],
            "attempt": 1,
            **dict(zip(("finished", "stamp"), finished[file["number"]], strict=True)),
        }
        for file in files
        if file["number"] in finished
    ]
    tracking_of(folder).write_rows(counted)
    seen = Observation()
    (
        words.groupBy("word")
        .count()
        .observe(seen, *_totals())
        .write.mode("append")
        .option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "true")
        .parquet(folder.place)
    )
    return counted, seen.get


def _words(spark: SparkSession, source: Folder, void: list[int], lose: int) -> DataFrame:
    """The words that count: those of files that could be read to their end, but the lost ones."""
    from pyspark.sql import functions as F

    from pipeline.layout import frame_of, words_as_written, words_in

    if not void and not lose:
        return words_as_written(spark, source)
    words = words_in(spark, source)
    if void:
        numbers = frame_of(spark, [(number,) for number in void], "number long")
        words = words.join(F.broadcast(numbers), "number", "left_anti")
    if lose:
        # Those with the least hashes: anywhere, and whoever looks again finds the same.
        lost = words.orderBy(F.xxhash64("at"), "at").limit(lose)
        words = words.join(F.broadcast(lost.select("at")), "at", "left_anti")
    return words


def _finished(
    spark: SparkSession, source: Folder, words: DataFrame, lose: int, files: list[dict[str, Any]]
) -> dict[int, tuple[int, bytes]]:
    """How many words are counted of a file, and their stamp, by the file's number.

    To make the stamps costs several times what it does to see whether all words of a file are
    there: then the stamp is that which the list of files has. Only others' are made.
    """
    from pipeline.files import POSITION_BITS
    from pipeline.layout import words_of
    from pipeline.missing import Chain
    from xorack.core.stamp import PLAIN_LENGTH
    from xorack.spark import fold_runs
    from xorack.spark.files import can_read

    by_runs = not lose and can_read(words_of(source).uri)
    placed = words if lose else None
    seen: Mapping[int, tuple[int, int | bytes]]
    if by_runs:
        seen = fold_runs(spark, words.inputFiles(), "at", shift=POSITION_BITS)
    else:
        hashed = any(len(file["stamp"] or b"") > PLAIN_LENGTH for file in files)
        seen = _folded(spark, source, placed, bytes(PLAIN_LENGTH), hashed=hashed)
    finished: dict[int, tuple[int, bytes]] = {}
    others: dict[int, list[int]] = {}
    for file in files:
        number = file["number"]
        if file["error"] is not None or number not in seen:
            continue
        chain = Chain(file["chain"], file["tag"], file["words"], file["stamp"])
        whole = chain.of_all_words
        # The first word of a traced stamp is the XOR of the hashes of its units.
        known = file["bounds"] if by_runs else whole[:PLAIN_LENGTH]
        if seen[number] == (chain.words, known):
            finished[number] = (chain.words, whole)
        else:
            others.setdefault(len(whole), []).append(number)
    for length, numbers in others.items():
        finished.update(_folded(spark, source, placed, bytes(length), numbers))
    return finished


def _folded(
    spark: SparkSession,
    source: Folder,
    words: DataFrame | None,
    like: bytes,
    numbers: list[int] | None = None,
    *,
    hashed: bool = False,
) -> dict[int, tuple[int, bytes]]:
    """Count and stamp of words by the file's number: of all files, or of those with some numbers.

    Of words with their places, or of all that there are, if None. Files that count for nothing may
    be among them. Stamps have the form of another; `hashed` folds the hashes of units.
    """
    from pyspark.sql import functions as F

    from pipeline.layout import frame_of, words_in
    from pipeline.missing import form_of
    from xorack.spark import fold, unit

    words = words_in(spark, source) if words is None else words
    if numbers is not None:
        asked = frame_of(spark, [(number,) for number in numbers], "number long")
        words = words.join(F.broadcast(asked), "number", "left_semi")
    units = words.select("number", unit("at").alias("unit"))
    of = F.xxhash64("unit") if hashed else F.col("unit")
    folded = fold(units, "number", of, **form_of(like)).select("number", "count", "stamp")
    return {number: (count, bytes(stamp)) for number, count, stamp in folded.collect()}


def _totals() -> tuple[Column, Column]:
    """What the summary says of the counts."""
    from pyspark.sql import functions as F

    words = F.coalesce(F.sum("count"), F.lit(0)).alias("words")
    return words, F.count(F.lit(1)).alias("distinct")


def _again(spark: SparkSession, folder: Folder) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What `_write` gave when it wrote."""
    from pipeline.layout import COUNTS_SCHEMA, TRACKING_SCHEMA, tracking_of

    counts = spark.read.schema(COUNTS_SCHEMA).parquet(folder.to_read())
    totals = counts.agg(*_totals()).first()
    counted = list(tracking_of(folder).read_rows(TRACKING_SCHEMA))
    return counted, totals.asDict() if totals else {}


def _send(
    spark: SparkSession, folder: Folder, counted: list[dict[str, Any]], options: dict[str, Any]
) -> Sent:
    """Finish the words of each chain: what the record says, so a repeat sends the same."""
    from pipeline.layout import TRACKING_SCHEMA, rows_in, tracking_of
    from xorack.spark import send, send_rows

    fields = ("tag", "stamp", "finished")
    if options["send_from"] == "driver":
        return send_rows(({field: one[field] for field in fields} for one in counted), **options)
    record = rows_in(spark, tracking_of(folder), TRACKING_SCHEMA)
    return send(record.select(*fields), **options)


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
