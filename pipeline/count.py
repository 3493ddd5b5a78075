"""The second job: reads words, writes how often each occurs, and finishes the words' chains.

    python -m pipeline.count --words DIR --counts OUT --records DIR --queue-url URL --run-id ID

A chain is acked once the counts on disk have the evidence of all its words. If a run is killed,
repeat it with the same ``--run-id``. It then overwrites its output and sends the same requests.
"""

import sys
from argparse import Namespace
from functools import partial

from pyspark.sql import SparkSession

from pipeline.commands import FOLDER, run
from pipeline.data import counts_of, read, totals, words_in
from pipeline.folder import claim
from xorack.spark import TrackedRows

_OPTIONS = {
    "words": {**FOLDER, "help": "the folder that split wrote"},
    "counts": {**FOLDER, "help": "the folder to write to"},
    "allow-missing": {"action": "store_true", "help": "succeed even if words are missing"},
}


def count(spark: SparkSession, words: TrackedRows, arguments: Namespace) -> dict[str, object]:
    """Count the words that split has written, and finish their chains."""
    rows, place = words_in(spark, arguments.words), arguments.counts
    counts = counts_of(rows, words)
    claim("--counts", place, arguments.run_id)
    counts.write.mode("append").parquet(place)
    written = read(spark, place, counts.schema)
    report = words.finish(written, source=rows, allow_missing=arguments.allow_missing)
    return {**vars(report), **totals(written)}


main = partial(run, count, _OPTIONS)

if __name__ == "__main__":
    sys.exit(main())
