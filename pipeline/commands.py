"""What the command lines of the jobs share."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pipeline.errors import JobError
from pipeline.folder import absolute

Options = Mapping[str, Mapping[str, Any]]
"""Arguments of `argparse.ArgumentParser.add_argument` by option."""

_COMMON: Options = {
    "queue-url": {"required": True, "metavar": "URL", "help": "the stack's output QueueUrl"},
    "run-id": {"required": True, "metavar": "ID", "help": "names this run and its repeats"},
    "records": {"required": True, "metavar": "DIR", "help": "the records of what was started"},
    "region": {"help": "the queue's region, if its URL does not say"},
    "endpoint-url": {"metavar": "URL", "help": "another endpoint than AWS's own"},
    "json": {"action": "store_true", "help": "print the summary as JSON"},
    "verbose": {"action": "store_true", "help": "show Spark's log and full errors"},
}
FILES: Options = {
    "encoding": {"default": "UTF-8", "help": "of the files (default: UTF-8)"},
    "timeout": {"type": float, "metavar": "SECONDS", "help": "until a chain fails"},
    "idle-timeout": {"type": float, "metavar": "SECONDS", "help": "the same, since a stamp"},
    "stamps": {"choices": ("traced", "plain"), "default": "traced", "help": "plain name no words"},
    "cells": {"type": int, "default": 16, "metavar": "N", "help": "more cells name more words"},
}
"""Options of the jobs that start chains of files."""


def run(
    job: Callable[..., dict[str, Any]], options: Options, argv: Sequence[str] | None = None
) -> int:
    """Run a job and print its summary, or its error in one line on stderr.

    Args:
        job: Takes the session, the words as rows to track, and the arguments; returns the summary.
        options: The job's own.
        argv: The arguments; None for those of the process.

    Returns:
        The exit status.
    """
    name = job.__name__
    parser = argparse.ArgumentParser(prog=name, description=(job.__doc__ or "").partition("\n")[0])
    for option, settings in {**options, **_COMMON}.items():
        parser.add_argument(f"--{option}", **settings)
    arguments = parser.parse_args(argv)
    begun = time.monotonic()
    try:
        from pipeline.session import session

        spark = session(f"xorack {name}", verbose=arguments.verbose)
        summary = job(spark, _tracked_words(spark, arguments), arguments)
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return 130
    except Exception as error:  # noqa: BLE001 - the user gets its reason, not its trace
        if arguments.verbose:
            traceback.print_exception(error)
        print(f"{name}: {_reason(error)}", file=sys.stderr)
        return 1
    summary["seconds"] = round(time.monotonic() - begun, 1)
    lists = {key: summary.pop(key) for key in list(summary) if isinstance(summary[key], list)}
    if arguments.json:
        print(json.dumps({**summary, **lists}))
        return 0
    for key, values in lists.items():
        for value in values[:20]:
            print(f"{key}: {value}")
    print(f"{name}: " + ", ".join(f"{value} {key}" for key, value in summary.items()))
    return 0


def _tracked_words(spark: Any, arguments: argparse.Namespace) -> Any:
    from xorack.spark import Tracking

    names = ("queue_url", "run_id", "region", "endpoint_url", "timeout", "idle_timeout", "stamps")
    known = {name: getattr(arguments, name, None) for name in (*names, "cells")}
    given = {name: value for name, value in known.items() if value is not None}
    tracking = Tracking(spark, records=absolute(arguments.records), **given)
    tracking.check()
    return tracking.rows("words", chain="file", unit=["file", "position"])


def _reason(error: Exception) -> str:
    """Return what went wrong in one line, with options as the command line spells them."""
    from xorack.core.errors import XorAckError

    if isinstance(error, (JobError, XorAckError)):
        text = " ".join(str(error).split())
        return re.sub(r"^option (\w+):", lambda m: f"--{m[1].replace('_', '-')}:", text)
    java = getattr(error, "java_exception", None)  # of Java's errors the message, not the trace
    text = str((java and java.getMessage()) or error).strip()
    return text.splitlines()[0] if text else type(error).__name__
