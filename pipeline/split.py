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

from pipeline.commands import absolute, add_common, run, sink_options
from pipeline.errors import JobError
from pipeline.files import MOST_FILES, POSITION_BITS
from xorack.core.stamp import TRACED_CELLS, TRACED_SIZES, plain, traced, xor_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame, SparkSession

    from pipeline.files import Said
    from pipeline.folder import Found
    from pipeline.layout import Folder

__all__ = ["main", "split"]

_STEP = "split"
_TAG_BYTES = 1024
_REASON_BYTES = 1000
_REQUESTS_SCHEMA = (
    "tag string, op string, stamp binary, started long, finished long, timeout double, "
    "idle_timeout double, detail string, reason string"
)


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
    made.add_argument(
        "--cells",
        type=int,
        choices=TRACED_SIZES,
        default=TRACED_CELLS,
        help="of each table of traced stamps (default: %(default)s): more name more words",
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
    options = sink_options(arguments, _STEP)
    size = sum(file.size for file in found)
    spark = session("xorack split", input_bytes=size, verbose=arguments.verbose)

    from pipeline.layout import FILES_SCHEMA, Folder, begin, files_of

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
        "cells": arguments.cells,
    }
    repeated = begin(folder, "--words", made_by)
    if repeated and files_of(folder).is_whole():
        listed = list(files_of(folder).read_rows(FILES_SCHEMA))
    else:
        try:
            listed = _write(spark, folder, files, encoding, _form(arguments))
        except BaseException:
            folder.delete()
            raise
    return _send(spark, folder, listed, arguments, options)


def _chains_of(found: list[Found], name: str) -> dict[int, tuple[str, Found]]:
    """Tag and file by the chain's key, signed."""
    from xorack.core.hashing import unit_id

    if len(found) > MOST_FILES:
        raise JobError(f"database has {len(found):,} files, more than {MOST_FILES:,}")
    chains: dict[int, tuple[str, Found]] = {}
    for listed in found:
        file = listed
        if file.size > 1 << POSITION_BITS:
            file = file._replace(problem="cannot be read: it is larger than 1 TiB")
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
    from xorack.core.hashing import unit_id

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
    form: dict[str, Any],
) -> list[dict[str, Any]]:
    """Write the words, then the files with their stamps; returns the list of files."""
    from pipeline.files import gathered
    from pipeline.layout import files_of, words_of
    from pipeline.scan import scan_words, tasks_of

    for leavings in (words_of(folder), files_of(folder)):
        leavings.delete()
    readable = [
        (number, file) for number, (_, file) in enumerate(files.values()) if file.problem is None
    ]
    tasks = tasks_of(readable, encoding, spark.sparkContext.defaultParallelism)
    words, all_said = scan_words(spark, tasks, encoding, form)
    (
        words.write.option("parquet.writer.version", "v2")
        .option("maxRecordsPerFile", 0)  # a file's first word has its place
        .parquet(words_of(folder).place)
    )
    # From here on, only what was written counts: what the files hold now may be something else.
    said = gathered(all_said())
    listed = [
        {"number": number, "chain": key, "tag": tag, **_listed(tag, file, said.get(number), form)}
        for number, (key, (tag, file)) in enumerate(files.items())
    ]
    files_of(folder).write_rows(listed)
    return listed


def _listed(tag: str, file: Found, said: Said | None, form: dict[str, Any]) -> dict[str, Any]:
    """What is written of a file."""
    from pipeline.folder import shown_path

    path, error = shown_path(file.path), said and said.error
    if file.problem is not None:
        error = f"{path} {file.problem}"
    words, stamp = (said.words, said.stamp) if said else (0, None)
    if error is not None:
        stamp = None
    else:
        root = _root(tag, form)
        stamp = root if stamp is None else xor_bytes(root, stamp)
    return {
        "path": path,
        "bytes": file.size,
        "words": words,
        "error": error,
        "stamp": stamp,
        "bounds": said.bounds if said else 0,
    }


def _form(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the kind and the cells of the stamps."""
    return {"kind": arguments.stamps, "cells": arguments.cells}


def _root(tag: str, form: dict[str, Any]) -> bytes:
    """The stamp of a file's root unit."""
    from xorack.core.hashing import unit_id

    unit = unit_id(tag)
    return bytes(plain(unit) if form["kind"] == "plain" else traced(unit, form["cells"]))


def _send(
    spark: SparkSession,
    folder: Folder,
    files: list[dict[str, Any]],
    arguments: argparse.Namespace,
    options: dict[str, Any],
) -> dict[str, Any]:
    """Send what the list of files says."""
    from pipeline.layout import FILES_SCHEMA, files_of, rows_in
    from xorack.spark import send, send_rows

    if options["send_from"] == "driver":
        sent = send_rows((one for file in files for one in _requests(file, arguments)), **options)
    else:
        listed = rows_in(spark, files_of(folder), FILES_SCHEMA)
        sent = send(_requests_of(listed, arguments), **options)
    return {
        "files": len(files),
        "words": sum(file["words"] for file in files if file["error"] is None),
        "bytes": sum(file["bytes"] for file in files),
        "failed": sum(file["error"] is not None for file in files),
        "chains": sent.chains,
        "messages": sent.messages,
        "requests": sent.requests,
    }


def _requests_of(files: DataFrame, arguments: argparse.Namespace) -> DataFrame:
    """The requests for files, made in the tasks."""

    def of_files(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            yield pa.RecordBatch.from_pylist(
                [one for file in batch.to_pylist() for one in _requests(file, arguments)], schema
            )

    import pyarrow as pa

    from pipeline.layout import arrow_columns

    schema = pa.schema(arrow_columns(_REQUESTS_SCHEMA))
    return files.mapInArrow(of_files, _REQUESTS_SCHEMA)


def _requests(file: dict[str, Any], arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The requests for a file: a create, and its stamp or its failure."""
    from pipeline.missing import detail_of

    tag, words = file["tag"], file["words"] if file["error"] is None else 0
    detail = {
        "path": file["path"],
        "bytes": file["bytes"],
        "words": words,
        "run": arguments.run_id,
    }
    yield {
        "tag": tag,
        "op": "create",
        "stamp": _root(tag, _form(arguments)),
        "started": 1,
        "timeout": arguments.timeout,
        "idle_timeout": arguments.idle_timeout,
        "detail": detail_of(detail),
    }
    if file["error"] is None:
        yield {"tag": tag, "op": "stamp", "stamp": file["stamp"], "started": words, "finished": 1}
    else:
        yield {"tag": tag, "op": "fail", "reason": _cut(file["error"], _REASON_BYTES)}


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
