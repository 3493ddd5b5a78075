"""The third job, for when chains failed: counts the words that were lost, as chains of its own run.

    python -m pipeline.repair --database DIR --words DIR --counts DIR --repaired OUT --events FILE
        --records DIR --queue-url URL --run-id ID

``--events`` has `failed` events, one a line, as EventBridge delivers them or their details.
``--tag``, which may be repeated, names a chain without an event. The job reads these files again
from the database. The words that ``--words`` lack were lost before they were counted: the events
do not decide that, as stamps can be late or lost though the words are counted. The job writes

    OUT/words, OUT/files   the lost words of these files, as split does
    OUT/counts             the counts that there were, and those of the lost words, together

and then starts and finishes a chain a file. A file without lost words is acked at once. To repair
OUT in turn, give ``--words DIR --words OUT --counts OUT/counts``.
"""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping
from functools import partial, reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.commands import FILES, Options, run
from pipeline.data import chains_in, counts_of, files_in, read, totals, words_in, write_words
from pipeline.errors import JobError
from pipeline.folder import InputFile, absolute, claim, list_files
from pipeline.reading import encoding_named
from xorack.spark import TrackedRows

_OPTIONS: Options = {
    "database": {"required": True, "metavar": "DIR", "help": "the folder that split read"},
    "words": {
        "required": True,
        "action": "append",
        "metavar": "DIR",
        "help": "the folder that split wrote; may be repeated, for those of earlier repairs",
    },
    "counts": {"required": True, "metavar": "DIR", "help": "the folder that count wrote"},
    "repaired": {"required": True, "metavar": "OUT", "help": "the folder to write to"},
    "tag": {"action": "append", "default": [], "metavar": "TAG", "help": "a chain that failed"},
    "events": {"metavar": "FILE", "help": "failed events, one a line; -: on stdin"},
    **FILES,
}
_NAMED = 1000


def repair(spark: SparkSession, words: TrackedRows, arguments: Namespace) -> dict[str, Any]:
    """Count the words that failed chains lost, and finish them as chains of this run."""
    encoding, out = encoding_named(arguments.encoding), absolute(arguments.repaired)
    places = [absolute(place) for place in arguments.words]
    failed = {tag: {} for tag in arguments.tag} | dict(_events(arguments.events))
    if not failed:
        raise JobError("which chains? give --tag or --events")
    counted = reduce(DataFrame.unionByName, [words_in(spark, place) for place in places])
    schema = counts_of(counted, words).schema
    before = read(spark, absolute(arguments.counts), schema)
    xor, number = words.evidence_names
    sums = (F.bit_xor(xor).alias(xor), F.sum(number).alias(number))
    if before.agg(*sums).first() != counts_of(counted, words).agg(*sums).first():
        raise JobError(f"--counts {arguments.counts} are not those of --words {', '.join(places)}")
    files, repairs = _files(spark, places, failed, arguments.database)
    names = spark.createDataFrame([(file.relative,) for file in files], "file string")
    known = counted.join(F.broadcast(names), "file", "left_semi")
    claim("--repaired", out, arguments.run_id)
    lost = partial(DataFrame.join, other=known, on=["file", "position"], how="left_anti")
    write_words(spark, out, files, encoding, lost, repairs)
    rows = words_in(spark, out)
    report = words.start(rows, chains_in(spark, out))
    both = before.unionByName(counts_of(rows, words)).groupBy("word")
    both.agg(F.sum("count").alias("count"), *sums).write.parquet(f"{out}/counts")
    after = read(spark, f"{out}/counts", schema)
    # The lost words are what the new counts have and the old ones have not.
    finished = words.finish([after, before.withColumn(number, -F.col(number))], rows=rows)
    named = words.with_unit(rows).withColumn("id", F.format_string("%016x", words.unit_name))
    named = named.select("id", "file", "position", "word").orderBy("file", "position")
    ids = [id for event in failed.values() for id in event.get("outstanding", ())]
    return {
        **totals(after),
        "missing": report.units,
        "messages": report.messages + finished.messages,
        "requests": report.requests + finished.requests,
        "repaired": sorted(failed),
        "named": [row.asDict() for row in named.limit(_NAMED).collect()],
        "unknown": [f"{id:016x}" for id in words.rows_of(rows, ids).unknown],
    }


def _events(path: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Read failed events by tag."""
    if path is None:
        return
    try:
        with open(0 if path == "-" else path, encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    event = json.loads(line)
                    event = event.get("detail", event) if "detail-type" in event else event
                    if event["status"] != "failed":
                        raise JobError(
                            f"--events {path} line {number}: {event['tag']!r} has not failed"
                        )
                    yield event["tag"], event
    except OSError as error:
        raise JobError(f"--events {path}: {error.strerror}") from None
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        raise JobError(f"--events {path} line {number} is not an event of xorack") from None


def _files(
    spark: SparkSession, places: list[str], failed: Mapping[str, Mapping[str, Any]], database: str
) -> tuple[list[InputFile], dict[str, str]]:
    """Find the files of chains; return them as they are now, and the chains' tags by file."""
    listed = reduce(DataFrame.unionByName, [files_in(spark, place) for place in places])
    names = {tag: tag.split("/", 2)[-1] for tag in failed}
    paths = {tag: (event.get("detail") or {}).get("path") for tag, event in failed.items()}
    asked = F.col("file").isin(*names.values()) | F.col("path").isin(*paths.values())
    rows = listed.where(asked).orderBy(F.isnull("error")).collect()  # those without an error last
    known = {key: row for row in rows for key in (row["path"], row["file"])}
    now = {file.relative: file for file in list_files(database, hidden=True)}
    files, repairs = {}, {}
    for tag in failed:
        row = known.get(names[tag]) or known.get(paths[tag])
        if row is None:
            raise JobError(f"{tag!r} is not a chain of --words {', '.join(places)}")
        name = row["file"]
        file = now.get(name) or InputFile(name, row["path"].encode(), 0, "is not in the database")
        if row["error"] is None and file.problem is None and file.size != row["bytes"]:
            problem = f"changed: from {row['bytes']} to {file.size} bytes"
            file = file._replace(problem=problem)
        files[name], repairs[name] = file, tag
    return list(files.values()), repairs


main = partial(run, repair, _OPTIONS)

if __name__ == "__main__":
    sys.exit(main())
