"""What the command lines of the jobs have in common."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Callable
from typing import Any

from pipeline.errors import JobError

__all__ = ["absolute", "add_common", "run", "sink_options"]


def add_common(parser: argparse.ArgumentParser) -> None:
    """The options that both jobs have."""
    parser.add_argument(
        "--queue-url",
        required=True,
        metavar="URL",
        help="the queue that stamps are sent to (the stack's output QueueUrl)",
    )
    parser.add_argument(
        "--run-id",
        required=True,
        metavar="ID",
        help="a name for this run; to repeat a run that died, give the same again",
    )
    parser.add_argument("--region", help="the queue's region, if its URL does not say")
    parser.add_argument("--endpoint-url", metavar="URL", help="another endpoint than AWS's own")
    parser.add_argument(
        "--send-from",
        choices=("driver", "tasks"),
        default="driver",
        help="tasks: for very many files, send from the tasks, several at a time",
    )
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    parser.add_argument("--verbose", action="store_true", help="show Spark's log and full errors")


def sink_options(arguments: argparse.Namespace, step: str) -> dict[str, Any]:
    """The options of `xorack.spark.send` for a step; checked, and the queue is there.

    Args:
        arguments: With the options of `add_common`.
        step: The step's name.

    Returns:
        What `send` is given besides the rows.

    Raises:
        InvalidOption: One is wrong, or there is no such queue.
    """
    from xorack.spark import Options, check_queue

    options = {
        "queue_url": arguments.queue_url,
        "run_id": arguments.run_id,
        "step": step,
        "region": arguments.region,
        "endpoint_url": arguments.endpoint_url,
        "send_from": arguments.send_from,
    }
    check_queue(Options.of(options, camel_case=False))
    return options


def run(
    name: str, job: Callable[[argparse.Namespace], dict[str, Any]], arguments: argparse.Namespace
) -> int:
    """Do a job, print its summary, and say in one line what was wrong.

    Args:
        name: The job's name.
        job: Takes the arguments and returns the summary.
        arguments: The command line's.

    Returns:
        The exit status: 0, or 1 with the reason on stderr.
    """
    from xorack.core.errors import XorAckError

    begun = time.monotonic()
    try:
        summary = job(arguments)
    except (JobError, XorAckError) as error:
        return _failed(name, _as_argument(str(error)), arguments, error)
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return 130
    except Exception as error:  # noqa: BLE001 - Spark's: the user gets its reason, not its trace
        from pipeline.layout import reason_of

        return _failed(name, reason_of(error), arguments, error)
    summary["seconds"] = round(time.monotonic() - begun, 1)
    if arguments.json:
        print(json.dumps(summary))
    else:
        print(f"{name}: " + ", ".join(f"{value} {key}" for key, value in summary.items()))
    return 0


def _as_argument(reason: str) -> str:
    """A message about an option of the sink, with the option as the command line spells it."""
    return re.sub(
        r"^option (\w+):",
        lambda m: "--" + re.sub(r"_|(?=[A-Z])", "-", m[1]).lower() + ":",
        reason,
    )


def _failed(name: str, reason: str, arguments: argparse.Namespace, error: BaseException) -> int:
    if arguments.verbose:
        import traceback

        traceback.print_exception(error)
    print(f"{name}: {' '.join(reason.split())}", file=sys.stderr)
    return 1


def absolute(place: str) -> str:
    """A path as Spark's executors and a later run mean it too; URIs as they are."""
    from pipeline.folder import is_local, local_path

    return os.path.abspath(local_path(place)) if is_local(place) else place
