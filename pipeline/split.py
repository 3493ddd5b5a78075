"""The first job: reads a database of text files, writes their words, and starts their chains.

    python -m pipeline.split --database DIR --words OUT --records DIR --queue-url URL --run-id ID

If a run is killed, repeat it with the same ``--run-id``. It then overwrites its output and sends
the same requests.
"""

import sys
from argparse import Namespace
from functools import partial

from pyspark.sql import SparkSession

from pipeline.commands import FILES, FOLDER, run
from pipeline.data import chains_in, words_in, write_words
from pipeline.folder import claim, list_files
from xorack.spark import TrackedRows

_OPTIONS = {
    "database": {**FOLDER, "help": "a folder tree of text files"},
    "words": {**FOLDER, "help": "the folder to write to"},
    **FILES,
}


def split(spark: SparkSession, words: TrackedRows, arguments: Namespace) -> dict[str, object]:
    """Write the words of text files, and start a chain for each file."""
    place = arguments.words
    listing = list_files(arguments.database)
    claim("--words", place, arguments.run_id)
    write_words(spark, place, listing.files, arguments.encoding)
    chains = chains_in(spark, place)
    report = words.start(words_in(spark, place), chains)
    failed = chains.where("failed IS NOT NULL").count()
    files = {"files": len(listing.files), "skipped": len(listing.skipped)}
    left_out = {"left_out": listing.skipped_in_words()}
    return {**vars(report), **files, "words": report.units, "failed": failed, **left_out}


main = partial(run, split, _OPTIONS)

if __name__ == "__main__":
    sys.exit(main())
