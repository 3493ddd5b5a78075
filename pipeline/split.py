"""The first job: reads a database of text files, writes their words, and starts their chains.

    python -m pipeline.split --database DIR --words OUT --records DIR --queue-url URL --run-id ID

``spark-submit pipeline/split.py`` takes the same options. To repeat a run that died, give the same
``--run-id``: it writes the words anew and sends the same requests.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

if __package__ in (None, ""):  # run by spark-submit: the checkout is not on the path
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from pipeline.commands import add_common, add_files, run, tracked_words
from pipeline.folder import absolute, claim, list_files
from pipeline.reading import encoding_named

__all__ = ["main", "parser", "split"]


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    made = argparse.ArgumentParser(
        prog="split", description="Write the words of text files, start a chain a file."
    )
    add = made.add_argument
    add("--database", required=True, metavar="DIR", help="a folder tree of text files")
    add("--words", required=True, metavar="OUT", help="the folder to write to")
    add("--glob", default="*", metavar="PATTERN", help="of names, or with a / of paths in DIR")
    add("--exclude", action="append", default=[], metavar="PATTERN", help="files to leave out")
    add("--hidden", action="store_true", help="include names that begin with a dot")
    add_files(made)
    add_common(made)
    return made


def split(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the job.

    Args:
        arguments: Those of `parser`.

    Returns:
        The summary.

    Raises:
        JobError: The database, the encoding or the folder is invalid; nothing was written.
        XorAckError: An option is invalid; or not all requests were sent: run it again.
    """
    encoding, place = encoding_named(arguments.encoding), absolute(arguments.words)
    chosen = {"exclude": arguments.exclude, "hidden": arguments.hidden}
    files = list_files(arguments.database, arguments.glob, **chosen)

    from pipeline.session import session

    spark = session("xorack split", verbose=arguments.verbose)
    tracked = tracked_words(spark, arguments)

    from pipeline.data import chains_in, words_in, write_words

    claim("--words", place, arguments.run_id)
    write_words(spark, place, files, encoding)
    chains = chains_in(spark, place)
    report = tracked.start(words_in(spark, place), chains)
    return {
        "files": len(files),
        "words": report.units,
        "bytes": sum(file.size for file in files),
        "failed": chains.where("failed IS NOT NULL").count(),
        "chains": report.chains,
        "messages": report.messages,
        "requests": report.requests,
    }


def main(argv: list[str] | None = None) -> int:
    """Run the command with these arguments, or the process's; return the exit status."""
    return run("split", split, parser().parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
