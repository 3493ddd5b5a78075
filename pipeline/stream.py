"""The word count as streams: files arrive in a folder, and their words are counted.

    python -m pipeline.stream --files DIR --out OUT --records DIR --queue-url URL --run-id ID

It runs three queries. Each has its own checkpoint in OUT/checkpoints:

    words    writes the words of files to OUT/words, with Spark's exactly-once Parquet sink
    starts   starts the words of the files in OUT/words, or fails the files
    counts   counts the words of OUT/words to OUT/counts/batch=N, and finishes them

Files may arrive in folders below DIR. A file's name is its path in DIR. The program prints how many
names have no chain: hidden names, links to folders, broken links, and empty files.

In OUT/words, each file has a row for each word, and a row without a word. The latter has an error
if the file cannot be read. They are in one Parquet file, and so in one batch. If a batch is
repeated after a kill, it has the same rows and sends the same requests. docs/spark.md has the
details.
"""

import os
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
from pipeline.data import GLOB, WORDS, counts_of, read
from pipeline.folder import JobError, Listing, UnreadableFile, claim, list_folder
from pipeline.reading import read_words
from pipeline.scan import PIECES, batch_of, words_of
from xorack.spark import Report, TrackedRows

_OPTIONS = {
    "files": {**FOLDER, "help": "where files arrive"},
    "out": {**FOLDER, "help": "words, counts and checkpoints"},
    "available-now": {"action": "store_true", "help": "process the present files, and end"},
    "every": {"type": float, "default": 10.0, "metavar": "SECONDS", "help": "(default: 10)"},
    "files-per-batch": {"type": int, "default": 1_000, "metavar": "N", "help": "(default: 1000)"},
    **FILES,
}


@dataclass
class _Batches:
    """Processes the batches of the queries, and remembers the error of a failed batch."""

    words: TrackedRows
    files: str
    out: str
    left_out: str = ""
    done: Counter[str] = field(default_factory=Counter)
    error: Exception | None = None

    def start(self, batch: DataFrame, number: int) -> Report:
        self.say_what_is_left_out()
        files = batch.where("word IS NULL").select("file", F.col("error").alias("failed"))
        return self.words.batch(number).start(batch.where("word IS NOT NULL"), files)

    def count(self, batch: DataFrame, number: int) -> Report:
        rows, place = batch.where("word IS NOT NULL"), f"{self.out}/counts/batch={number}"
        counts = counts_of(rows, self.words)
        counts.write.mode("overwrite").parquet(place)  # no query reads it
        written = read(self.words.tracking.spark, place, counts.schema)
        return self.words.batch(number).finish(written, source=rows)

    def say_what_is_left_out(self) -> None:
        """Print how many names in the folder have no chain, unless it was printed before."""
        listing = _listing(self.files)
        if (left_out := listing.skipped_in_words()) != self.left_out:
            self.left_out = left_out
            print(f"stream: {left_out or 'nothing is left out any more'}", file=sys.stderr)

    def process(self, work: Callable[..., Report], batch: DataFrame, number: int) -> None:
        """Run `start` or `count` on a batch. Remember the number of sent messages, or the error."""
        try:
            self.done.update(batches=1, messages=work(batch, number).messages)
        except Exception as error:
            self.error = error
            raise


def stream(spark: SparkSession, words: TrackedRows, arguments: Namespace) -> dict[str, Any]:
    """Count the words of files when they arrive in a folder."""
    if not arguments.every >= 0:
        raise JobError(f"--every must be 0 seconds or more, not {arguments.every:g}")
    _check_places(arguments)
    _check_names(arguments.files)
    out = arguments.out
    for place in (out, f"{out}/words"):
        claim("--out", place, arguments.run_id, keep=True)
    batches = _Batches(words, arguments.files, out)
    written = spark.readStream.schema(WORDS).parquet(f"{out}/words")
    sink = _words(spark, arguments).writeStream.format("parquet").option("maxRecordsPerFile", 0)
    writers = {
        "words": sink.option("path", f"{out}/words"),
        "starts": written.writeStream.foreachBatch(partial(batches.process, batches.start)),
        "counts": written.writeStream.foreachBatch(partial(batches.process, batches.count)),
    }
    for name, writer in writers.items():
        writer.queryName(name).option("checkpointLocation", f"{out}/checkpoints/{name}")
    try:
        _run(spark, list(writers.values()), arguments)
    except Exception as error:  # noqa: BLE001 - it is raised again
        _check_names(arguments.files)
        raise batches.error or error from None  # Spark's error has the traceback only as text
    return dict(batches.done)


def _words(spark: SparkSession, arguments: Namespace) -> DataFrame:
    """Return the words of arriving files as rows of `words_of`."""
    files = (
        spark.readStream.format("binaryFile")
        .schema("path string, modificationTime timestamp, length long, content binary")
        .option("maxFilesPerTrigger", arguments.files_per_batch)
        # By default, Spark ignores files that are at least a week older than the newest file.
        .option("maxFileAge", "36500d")
        # Otherwise Spark ignores files beside folders such as a=1, and fails for other folders.
        .option("recursiveFileLookup", True)
        .load(arguments.files.translate(GLOB))
    )
    scan = _scanner(arguments.files, arguments.encoding)
    return words_of(files.select("path", "content").mapInArrow(scan, PIECES))


def _run(spark: SparkSession, writers: list[Any], arguments: Namespace) -> None:
    """Run the queries to their ends with ``--available-now``, or else until one fails."""
    if arguments.available_now:
        for writer in writers:  # the later queries read the output of the first
            writer.trigger(availableNow=True).start().awaitTermination()
        return
    for writer in writers:
        writer.trigger(processingTime=f"{arguments.every:f} seconds").start()
    while not spark.streams.awaitAnyTermination(1):
        pass  # Python handles no signals while it waits in Java


def _check_places(arguments: Namespace) -> None:
    """Raise `JobError` if the streams would read their own output, or read a sink wrongly."""
    files, out = arguments.files, arguments.out
    for option, place in (("--out", out), ("--records", arguments.records)):
        if f"{place}/".startswith(f"{files.rstrip('/')}/"):
            raise JobError(f"{option} {place} is inside --files {files}, which is read: move it")
    # If the path is a pattern, Spark ignores the sink's log, which names the complete files.
    if out != out.translate(GLOB):
        raise JobError(
            f"--out {out} has characters of Spark's patterns, *?[]{{}}\\: use another name"
        )


def _listing(folder: str) -> Listing:
    """List a folder; the skipped names include the files that only a stream leaves out.

    Java leaves out names that are not UTF-8, and Spark leaves out empty files and broken links.
    """
    listing = list_folder(folder, "--files")
    for file in listing.files:
        try:
            file.path.decode()
        except UnicodeDecodeError:
            listing.skipped.append(("encoding", file.relative))
        else:
            if file.size == 0:
                listing.skipped.append(("broken" if file.problem else "empty", file.relative))
    return listing


def _check_names(folder: str) -> None:
    """Raise `JobError` if a local file has a name that Spark lists but cannot read."""
    for file in _listing(folder).files:
        if ":" in file.relative and "://" not in folder:
            problem = "has a colon, and Spark cannot read such local files: rename it"
            raise JobError(f"--files: the name {file.relative!r} {problem}")


def _parts(path: str) -> list[str]:
    """Return the folders and the name of a path or URI, without its scheme and authority."""
    scheme, _, rest = path.partition(":/")
    if path.startswith("/") or not rest:  # a path, which may have a colon
        rest = path
    elif rest.startswith("/") and scheme != "file":
        rest = rest[1:].partition("/")[2]
    return [part for part in rest.split("/") if part]


def _is_linked(parts: list[str], depth: int) -> bool:
    """Return whether a local path goes through a link to a folder, which Spark would follow."""
    return any(os.path.islink("/" + "/".join(parts[:n])) for n in range(depth + 1, len(parts)))


def _scanner(files: str, encoding: str) -> Callable[[Iterator[pa.RecordBatch]], Any]:
    depth = len(_parts(files))

    def scan(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for path, content in (row.values() for batch in batches for row in batch.to_pylist()):
            parts, size = _parts(path), len(content)
            if path.startswith("file:") and _is_linked(parts, depth):
                continue
            file = "/".join(parts[depth:])
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
