"""The second job: reads words, writes how often each occurs, and finishes the words' chains.

    python -m pipeline.count --words DIR --counts OUT --records DIR --queue-url URL --run-id ID

A chain is finished when the counts on disk hold the evidence of all of its words. To repeat a run
that died, give the same ``--run-id``: it writes the counts anew and sends the same requests.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from pipeline.commands import Options, run
from pipeline.data import counts_of, read, totals, words_in
from pipeline.folder import absolute, claim
from xorack.spark import TrackedRows

_OPTIONS: Options = {
    "words": {"required": True, "metavar": "DIR", "help": "the folder that split wrote"},
    "counts": {"required": True, "metavar": "OUT", "help": "the folder to write to"},
}


def count(spark: SparkSession, words: TrackedRows, arguments: Namespace) -> dict[str, Any]:
    """Count the words that split wrote, and finish their chains."""
    rows, place = words_in(spark, absolute(arguments.words)), absolute(arguments.counts)
    counts = counts_of(rows, words)
    claim("--counts", place, arguments.run_id)
    counts.write.mode("append").parquet(place)
    written = read(spark, place, counts.schema)
    report = words.finish(written, rows=rows)
    return {
        **totals(written),
        "missing": report.missing,
        "chains": report.chains,
        "messages": report.messages,
        "requests": report.requests,
    }


main = partial(run, count, _OPTIONS)

if __name__ == "__main__":
    sys.exit(main())
