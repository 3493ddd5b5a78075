"""The second job: reads words, writes how often each occurs, and finishes the words' chains.

    python -m pipeline.count --words DIR --counts OUT --records DIR --queue-url URL --run-id ID

``spark-submit pipeline/count.py`` takes the same options. A chain is finished when the counts on
disk hold the evidence of its words. To repeat a run that died, give the same ``--run-id``: it
writes the counts anew and sends the same requests.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

if __package__ in (None, ""):  # run by spark-submit: the checkout is not on the path
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from pipeline.commands import add_common, run, tracked_words
from pipeline.folder import absolute, claim

__all__ = ["count", "main", "parser"]


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    made = argparse.ArgumentParser(
        prog="count", description="Count the words that split wrote, finish their chains."
    )
    made.add_argument("--words", required=True, metavar="DIR", help="the folder that split wrote")
    made.add_argument("--counts", required=True, metavar="OUT", help="the folder to write to")
    add_common(made)
    return made


def count(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the job.

    Args:
        arguments: Those of `parser`.

    Returns:
        The summary; ``missing`` is the number of started words that are not among the words.

    Raises:
        JobError: A folder is invalid; nothing was written.
        OutputDiffers: The counts on disk are not those of the words; run it again.
        XorAckError: An option is invalid; or not all requests were sent: run it again.
    """
    from pipeline.session import session

    spark = session("xorack count", verbose=arguments.verbose)
    tracked = tracked_words(spark, arguments)

    from pipeline.data import counts_of, read, words_in

    words, place = words_in(spark, absolute(arguments.words)), absolute(arguments.counts)
    claim("--counts", place, arguments.run_id)
    counts = counts_of(words, tracked)
    counts.write.mode("append").parquet(place)
    written = read(spark, place, counts.schema)
    report = tracked.finish(written=written, rows=words)
    total = written.selectExpr("coalesce(sum(count), 0) AS words", "count(1) AS distinct").first()
    return {
        **total.asDict(),
        "missing": report.missing,
        "chains": report.chains,
        "messages": report.messages,
        "requests": report.requests,
    }


def main(argv: list[str] | None = None) -> int:
    """Run the command with these arguments, or the process's; return the exit status."""
    return run("count", count, parser().parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
