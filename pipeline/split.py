"""The first job: reads a database of text files, writes their words, and starts their chains.

    python -m pipeline.split --database DIR --words OUT --queue-url URL --run-id ID
    spark-submit pipeline/split.py --database DIR --words OUT --queue-url URL --run-id ID

One chain a file. Its requests: ``create``, with the stamp of the file's root unit, then one
``stamp`` that finishes the root and starts all words; or ``fail`` for a file that cannot be read.

The order is: words, then the list of files with their stamps, then the requests. So whatever was
sent was started by words that are durable, and a run that died is repeated with the same --run-id:
before the list of files was written nothing was sent, and it begins anew; after that it sends what
the list says, under the same ids, and what had arrived before does not count twice. Nothing is
sent for words that were never written, and nothing that was sent ever changes.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

if __package__ in (None, ""):  # run by spark-submit: the checkout is not on the path
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from pipeline.commands import absolute, add_common, run
from pipeline.errors import JobError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pipeline.folder import Found
    from pipeline.layout import Folder

__all__ = ["main", "split"]

_STEP = "split"
_TAG_BYTES = 1024
_REASON_BYTES = 1000
_DETAIL_PATH_BYTES = 3000


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="split",
        description="Read a database of text files, write its words, start a chain a file.",
    )
    made.add_argument(
        "--database", required=True, metavar="DIR", help="a folder tree of text files"
    )
    made.add_argument("--words", required=True, metavar="OUT", help="the folder to write to")
    made.add_argument("--encoding", default="UTF-8", help="of the files (default: UTF-8)")
    made.add_argument(
        "--glob",
        default="*",
        metavar="PATTERN",
        help="which files: a pattern of their names, or with a / in it of their paths in DIR",
    )
    made.add_argument(
        "--exclude",
        action="append",
        default=[],
        metavar="PATTERN",
        help="which files not, in the same way; may be given several times",
    )
    made.add_argument(
        "--hidden", action="store_true", help="files and folders, too, whose names begin with a dot"
    )
    made.add_argument(
        "--name", help="the database's name, the first part of tags (default: its folder's name)"
    )
    made.add_argument(
        "--timeout", type=float, metavar="SECONDS", help="until a chain fails that is not acked"
    )
    made.add_argument(
        "--idle-timeout", type=float, metavar="SECONDS", help="the same, since the last stamp"
    )
    made.add_argument(
        "--stamps",
        choices=("traced", "plain"),
        default="traced",
        help="traced (default): name the words that are outstanding; plain: cheaper",
    )
    add_common(made)
    return made


def split(arguments: argparse.Namespace) -> dict[str, Any]:
    """Do the job.

    Args:
        arguments: What `parser` gave.

    Returns:
        The summary: files, words, chains, failed, messages, requests.

    Raises:
        JobError: The database, the encoding or the output folder; nothing was written.
        InvalidOption: The queue; nothing was written.
        SendFailed: The words are written, not all requests are sent: run it again.
    """
    from pipeline.folder import list_files
    from pipeline.reading import encoding_named
    from pipeline.session import prepare, session

    for option in ("timeout", "idle_timeout"):
        value = getattr(arguments, option)
        if value is not None and not value > 0:
            raise JobError(f"--{option.replace('_', '-')} must be above 0 seconds, not {value:g}")
    database, words = absolute(arguments.database), absolute(arguments.words)
    name = arguments.name or os.path.basename(database.rstrip("/")) or "database"
    encoding = encoding_named(arguments.encoding)
    found = list_files(database, arguments.glob, exclude=arguments.exclude, hidden=arguments.hidden)
    files = _chains_of(found, name)
    prepare()
    options = _options(arguments)
    size = sum(file.size for file in found)
    spark = session("xorack split", input_bytes=size, verbose=arguments.verbose)

    from pipeline.layout import Folder, begin, files_of

    folder = Folder(spark, words)
    made_by = {
        "run_id": arguments.run_id,
        "database": database,
        "name": name,
        "encoding": encoding.name,
        "glob": arguments.glob,
        "exclude": arguments.exclude,
        "hidden": arguments.hidden,
        "stamps": arguments.stamps,
    }
    repeated = begin(folder, "--words", made_by)
    if not (repeated and files_of(folder).is_whole()):
        try:
            _write(spark, folder, files, encoding, arguments.stamps)
        except BaseException:
            folder.delete()
            raise
    return _send(spark, folder, arguments, options)


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options of `xorack.spark.send`, checked; the queue is there."""
    from xorack.spark import Options, check_queue

    given = {
        "queue_url": arguments.queue_url,
        "run_id": arguments.run_id,
        "step": _STEP,
        "region": arguments.region,
        "endpoint_url": arguments.endpoint_url,
        "send_from": arguments.send_from,
    }
    check_queue(Options.of(given, camel_case=False))
    return given


def _chains_of(found: list[Found], name: str) -> dict[int, tuple[str, Found]]:
    """Tag and file by the chain's key, signed."""
    from xorack.hashing import unit_id

    chains: dict[int, tuple[str, Found]] = {}
    for file in found:
        tag = _tag(name, file.relative)
        key = unit_id(tag)
        key -= 1 << 64 if key >> 63 else 0
        if key in chains:
            raise JobError(
                f"files {chains[key][1].relative!r} and {file.relative!r} cannot be told apart"
            )
        chains[key] = (tag, file)
    return chains


def _tag(name: str, relative: str) -> str:
    """The chain's tag: a path that is too long for one ends in its hash."""
    from xorack.hashing import unit_id

    tag = f"{name}/{relative}"
    if len(tag.encode()) <= _TAG_BYTES:
        return tag
    return f"{_cut(tag, _TAG_BYTES - 20)}...{unit_id(tag):016x}"


def _cut(text: str, most: int) -> str:
    """At most so many bytes of a text."""
    return text.encode()[:most].decode(errors="ignore")


def _write(
    spark: SparkSession,
    folder: Folder,
    files: dict[int, tuple[str, Found]],
    encoding: Any,
    kind: Any,
) -> None:
    """Write the words, then the files with their stamps."""
    from pyspark.sql import functions as F

    from pipeline.folder import shown_path
    from pipeline.layout import FILES_SCHEMA, files_of, words_of
    from pipeline.scan import scan_words, tasks_of
    from xorack.spark import fold, unit

    for leavings in (words_of(folder), files_of(folder)):
        leavings.delete()
    readable = [(key, file) for key, (_, file) in files.items() if file.problem is None]
    tasks = tasks_of(readable, encoding, spark.sparkContext.defaultParallelism)
    scan_words(spark, tasks, encoding).write.option("parquet.writer.version", "v2").parquet(
        words_of(folder).place
    )
    # From here on, only what is durable counts: what the files hold now may be something else.
    words = spark.read.schema("chain long, pos long, word string, error string").parquet(
        words_of(folder).to_read()
    )
    problems = {
        row["chain"]: row["error"]
        for row in words.where("error IS NOT NULL")
        .groupBy("chain")
        .agg(F.min("error").alias("error"))
        .collect()
    }
    for key, (_, file) in files.items():
        if file.problem is not None:
            problems[key] = f"{shown_path(file.path)} {file.problem}"
    listed = spark.createDataFrame(
        [
            (key, tag, shown_path(file.path), file.size, problems.get(key))
            for key, (tag, file) in files.items()
        ],
        "chain long, tag string, path string, bytes long, error string",
    )
    good = words.where("error IS NULL").select("chain", unit("chain", "pos").alias("unit"))
    if problems:
        good = good.join(
            F.broadcast(listed.where("error IS NOT NULL").select("chain")), "chain", "left_anti"
        )
    roots = listed.where("error IS NULL").select("chain", F.col("chain").alias("unit"))
    folded = fold(good.unionByName(roots), "chain", "unit", kind=kind)
    columns = [field.split()[0] for field in FILES_SCHEMA.split(", ")]
    (
        listed.join(folded, "chain", "left")
        .withColumn("words", F.coalesce(F.col("count") - 1, F.lit(0)))
        .select(*columns)
        .write.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "true")
        .parquet(files_of(folder).place)
    )


def _send(
    spark: SparkSession, folder: Folder, arguments: argparse.Namespace, options: dict[str, Any]
) -> dict[str, Any]:
    """Send what the list of files says."""
    from pyspark.sql import functions as F

    from pipeline.layout import FILES_SCHEMA, files_of
    from xorack.spark import send

    files = spark.read.schema(FILES_SCHEMA).parquet(files_of(folder).to_read())
    sent = send(_requests(files, arguments), **options)
    total = files.agg(
        F.count(F.lit(1)).alias("files"),
        F.coalesce(F.sum("words"), F.lit(0)).alias("words"),
        F.coalesce(F.sum("bytes"), F.lit(0)).alias("bytes"),
        F.count("error").alias("failed"),
    ).first()
    summary = dict(total.asDict()) if total else {}
    return {
        **summary,
        "chains": sent.chains,
        "messages": sent.messages,
        "requests": sent.requests,
    }


def _requests(files: DataFrame, arguments: argparse.Namespace) -> DataFrame:
    """The rows of the sink: of each file a create, and its stamp or its failure."""
    from pyspark.sql import functions as F

    from xorack.spark import stamp_of

    def seconds(value: float | None) -> Any:
        return F.lit(value).cast("double")

    detail = F.to_json(
        F.struct(
            F.substring("path", 1, _DETAIL_PATH_BYTES // 4).alias("path"),
            "bytes",
            "words",
            F.lit(arguments.run_id).alias("run"),
        )
    )
    create = files.select(
        "tag",
        F.lit("create").alias("op"),
        stamp_of("chain", arguments.stamps).alias("stamp"),
        F.lit(1).cast("long").alias("started"),
        seconds(arguments.timeout).alias("timeout"),
        seconds(arguments.idle_timeout).alias("idle_timeout"),
        detail.alias("detail"),
    )
    stamp = files.where("error IS NULL").select(
        "tag",
        F.lit("stamp").alias("op"),
        "stamp",
        F.col("words").alias("started"),
        F.lit(1).cast("long").alias("finished"),
    )
    fail = files.where("error IS NOT NULL").select(
        "tag",
        F.lit("fail").alias("op"),
        F.substring("error", 1, _REASON_BYTES // 4).alias("reason"),
    )
    return create.unionByName(stamp, allowMissingColumns=True).unionByName(
        fail, allowMissingColumns=True
    )


def main(argv: list[str] | None = None) -> int:
    """The command.

    Args:
        argv: The arguments; None for the process's.

    Returns:
        The exit status.
    """
    return run("split", split, parser().parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
