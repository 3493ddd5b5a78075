"""Code that the command lines of the jobs share."""

import json
import sys
import time
import traceback
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import fields
from datetime import datetime
from typing import Any

from pyspark.sql import SparkSession

from pipeline.folder import JobError, absolute
from pipeline.reading import encoding_named
from pipeline.scan import UNIT
from pipeline.session import session
from xorack.core.errors import ArgumentError, XorAckError
from xorack.spark import TrackedRows, Tracking

FOLDER = {"required": True, "metavar": "DIR", "type": absolute}
_COMMON = {
    "queue-url": {"required": True, "metavar": "URL", "help": "the stack's output QueueUrl"},
    "run-id": {"required": True, "metavar": "ID", "help": "names this run and its repeats"},
    "records": {**FOLDER, "help": "the records of what was started"},
    "region": {"help": "the queue's region, if its URL does not say"},
    "json": {"action": "store_true", "help": "print the summary as JSON"},
    "verbose": {"action": "store_true", "help": "show Spark's log and full errors"},
}
FILES = {
    "encoding": {"default": "UTF-8", "type": encoding_named, "help": "(default: UTF-8)"},
    "timeout": {"type": float, "metavar": "SECONDS", "help": "until a chain fails"},
}


def run(job: Callable[..., dict[str, Any]], options: dict[str, Any], argv: Any = None) -> int:
    """Run a job and print its summary, or its error in one line; return the exit status.

    The job gets the session, the words as tracked rows, and the arguments. Its options map names to
    arguments of `ArgumentParser.add_argument`.
    """
    name = job.__name__
    parser = ArgumentParser(prog=name, description=job.__doc__)
    for option, settings in {**options, **_COMMON}.items():
        parser.add_argument(f"--{option}", **settings)
    arguments = Namespace(verbose=False)
    begun = time.monotonic()
    try:
        parser.parse_args(argv, arguments)
        spark = session(f"xorack {name}", verbose=arguments.verbose)
        summary = job(spark, _tracked_words(spark, arguments), arguments)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the user gets one line
        if arguments.verbose:
            traceback.print_exception(error)
        print(f"{name}: {_reason(error)}", file=sys.stderr)
        return 1
    summary["seconds"] = round(time.monotonic() - begun, 1)
    if text := summary.pop("left_out", ""):
        print(f"{name}: {text}", file=sys.stderr)
    if arguments.json:
        print(json.dumps(summary, default=datetime.isoformat))
    else:
        sizes = {k: len(v) if isinstance(v, list) else v for k, v in summary.items()}
        print(f"{name}: " + ", ".join(f"{value} {key}" for key, value in sizes.items()))
    return 0


def _tracked_words(spark: SparkSession, arguments: Namespace) -> TrackedRows:
    names = {field.name for field in fields(Tracking)} - {"records"}
    named = {k: v for k, v in vars(arguments).items() if k in names and v is not None}
    tracking = Tracking(spark, records=arguments.records, **named)
    return tracking.rows("words", chain="file", unit=UNIT)


def _reason(error: BaseException) -> str:
    """Return the error in one line, with options as the command line spells them."""
    if isinstance(error, (JobError, XorAckError)):
        text = " ".join(str(error).split())
        if isinstance(error, ArgumentError) and error.field.isidentifier():
            return f"--{error.field.replace('_', '-')}{text.removeprefix(error.field)}"
        return text
    # Print the error's message without the stack trace.
    java = getattr(error, "java_exception", None)
    return str((java and java.getMessage()) or error).split("\n")[0] or type(error).__name__
