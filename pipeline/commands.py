"""What the command lines of the jobs share."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pipeline.errors import JobError
from pipeline.folder import absolute

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from xorack.spark.rows import TrackedRows

__all__ = ["add_common", "add_files", "run", "tracked_words"]


def add_common(parser: argparse.ArgumentParser) -> None:
    """Add the options of all jobs."""
    add = parser.add_argument
    add("--queue-url", required=True, metavar="URL", help="the stack's output QueueUrl")
    add("--run-id", required=True, metavar="ID", help="names this run, and every repeat of it")
    add("--records", required=True, metavar="DIR", help="a folder for the records of what started")
    add("--stamps", choices=("traced", "plain"), default="traced", help="plain: cheaper, no names")
    add("--cells", type=int, default=16, metavar="N", help="more cells of a stamp name more words")
    add("--region", help="the queue's region, if its URL does not say")
    add("--endpoint-url", metavar="URL", help="another endpoint than AWS's own")
    add("--json", action="store_true", help="print the summary as JSON")
    add("--verbose", action="store_true", help="show Spark's log and full errors")


def add_files(parser: argparse.ArgumentParser) -> None:
    """Add the options of jobs that start chains of files."""
    add = parser.add_argument
    add("--encoding", default="UTF-8", help="of the files (default: UTF-8)")
    add("--timeout", type=float, metavar="SECONDS", help="until a chain that is not acked fails")
    add("--idle-timeout", type=float, metavar="SECONDS", help="the same, since the last stamp")


def tracked_words(spark: SparkSession, arguments: argparse.Namespace) -> TrackedRows:
    """Return the words as rows to track; raises `InvalidOption`."""
    from xorack.spark import Tracking

    names = ("queue_url", "run_id", "stamps", "cells", "region", "endpoint_url")
    options = {name: getattr(arguments, name) for name in names}
    for name in ("timeout", "idle_timeout"):
        options[name] = getattr(arguments, name, None)
    tracking = Tracking(spark, records=absolute(arguments.records), **options)
    return tracking.rows("words", chain="file", unit=["file", "position"])


def run(
    name: str, job: Callable[[argparse.Namespace], dict[str, Any]], arguments: argparse.Namespace
) -> int:
    """Run a job and print its summary, or its error in one line on stderr.

    Args:
        name: The job's name.
        job: Takes the arguments and returns the summary.
        arguments: The command line's.

    Returns:
        The exit status.
    """
    begun = time.monotonic()
    try:
        summary = job(arguments)
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return 130
    except Exception as error:  # noqa: BLE001 - the user gets its reason, not its trace
        if arguments.verbose:
            import traceback

            traceback.print_exception(error)
        print(f"{name}: {_reason(error)}", file=sys.stderr)
        return 1
    summary["seconds"] = round(time.monotonic() - begun, 1)
    if arguments.json:
        print(json.dumps(summary))
    else:
        print(f"{name}: " + ", ".join(f"{value} {key}" for key, value in summary.items()))
    return 0


def _reason(error: Exception) -> str:
    """Return what went wrong in one line, with options as the command line spells them."""
    from xorack.core.errors import XorAckError

    if isinstance(error, (JobError, XorAckError)):
        text = " ".join(str(error).split())
        return re.sub(r"^option (\w+):", lambda m: f"--{m[1].replace('_', '-')}:", text)
    java = getattr(error, "java_exception", None)  # of Java's errors the message, not the trace
    text = str((java and java.getMessage()) or error).strip()
    return text.splitlines()[0] if text else type(error).__name__
