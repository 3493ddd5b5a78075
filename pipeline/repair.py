"""The third job, for when chains failed: counts the words that were lost, as chains of its own run.

    python -m pipeline.repair --database DIR --words DIR --counts DIR --repaired OUT --events FILE
        --records DIR --queue-url URL --run-id ID

The job reads the files of failed chains again from the database. A word that is not in ``--words``
was lost before it was counted: stamps can be lost though words are counted, so events do not decide
that. It writes the lost words to OUT/words and OUT/files, as split does, and all counts to
OUT/counts. Then it starts and finishes a chain a file, which is acked at once if no word was lost.
To repair OUT in turn, give ``--words DIR --words OUT --counts OUT/counts``.
"""

import json
import sys
from argparse import Namespace
from dataclasses import replace
from functools import partial, reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.commands import FILES, run
from pipeline.data import chains_in, counts_of, files_in, read, totals, words_in, write_words
from pipeline.folder import InputFile, JobError, absolute, claim, list_files, run_of
from xorack import unit_id
from xorack.spark import TrackedRows

_OPTIONS = {
    "database": {"required": True, "metavar": "DIR", "help": "the folder that split read"},
    "words": {"required": True, "action": "append", "metavar": "DIR", "help": "may be repeated"},
    "counts": {"required": True, "metavar": "DIR", "help": "the folder that count wrote"},
    "repaired": {"required": True, "metavar": "OUT", "help": "the folder to write to"},
    "tag": {"action": "append", "default": [], "metavar": "TAG", "help": "a chain that failed"},
    "events": {"metavar": "FILE", "help": "failed events, one a line; -: on stdin"},
    **FILES,
}
_Failed = dict[str, tuple[str | None, list[int]]]


def repair(spark: SparkSession, words: TrackedRows, arguments: Namespace) -> dict[str, object]:
    """Count the words that failed chains lost, and finish them as chains of this run."""
    out = absolute(arguments.repaired)
    places = [absolute(place) for place in arguments.words]
    failed: _Failed = {tag: (None, []) for tag in arguments.tag}
    failed |= _events(arguments.events) if arguments.events else {}
    if not failed:
        raise JobError("which chains? give --tag or --events")
    counted = reduce(DataFrame.unionByName, [words_in(spark, place) for place in places])
    schema = counts_of(counted, words).schema
    before = read(spark, absolute(arguments.counts), schema)
    sums = words.evidence(before)
    _, number, total = words.evidence_names
    of_runs = [counts_of(words_in(spark, one), _of_run(words, run_of(one))) for one in places]
    if before.agg(*sums).first() != reduce(DataFrame.unionByName, of_runs).agg(*sums).first():
        raise JobError(f"--counts {arguments.counts} are not those of --words {', '.join(places)}")
    files = _files(spark, places, failed, arguments.database)
    repairs = {file.relative: tag for tag, file in files.items()}
    names = spark.createDataFrame([(name,) for name in repairs], "file string")
    known = counted.join(F.broadcast(names), "file", "left_semi")
    claim("--repaired", out, arguments.run_id)
    lost = partial(DataFrame.join, other=known, on=["file", "position"], how="left_anti")
    write_words(spark, out, sorted(set(files.values())), arguments.encoding, lost, repairs)
    rows = words_in(spark, out)
    report = words.start(rows, chains_in(spark, out))
    both = before.unionByName(counts_of(rows, words)).groupBy("word")
    both.agg(F.sum("count").alias("count"), *sums).write.parquet(f"{out}/counts")
    after = read(spark, f"{out}/counts", schema)
    # The lost words are what the new counts have and the old ones have not.
    negated = before.withColumns({name: -F.col(name) for name in (number, total)})
    finished = words.finish([after, negated], rows=rows)
    named, unknown = [], set()
    for lost_in in sorted({tag.partition("/")[0] for tag in failed}):
        ids = {tag: of for tag, (_, of) in failed.items() if tag.startswith(f"{lost_in}/")}
        theirs = rows.where(F.col("file").isin([files[tag].relative for tag in ids]))
        lost_by = _of_run(words, lost_in)
        id = F.format_string("%016x", words.unit_name).alias("id")
        rows_by_id = lost_by.with_unit(theirs).select(id, "file", "position", "word")
        named += rows_by_id.orderBy("file", "position").limit(1000).collect()
        wanted = {f"{one:016x}" for of in ids.values() for one in of}
        asked = spark.createDataFrame([(one,) for one in wanted], "id string")
        found = asked.join(rows_by_id, "id", "left_semi").collect()
        roots = {f"{unit_id(lost_by.salt, tag):016x}" for tag in ids}  # of chains without words
        unknown |= wanted - {row["id"] for row in found} - roots
    return {
        **totals(after),
        "missing": report.units,
        "messages": report.messages + finished.messages,
        "requests": report.requests + finished.requests,
        "repaired": sorted(failed),
        "named": [row.asDict() for row in named[:1000]],
        "unknown": sorted(unknown),
    }


def _of_run(words: TrackedRows, run_id: str | None) -> TrackedRows:
    """Return the words as those of another run, which have other units."""
    return replace(words, tracking=replace(words.tracking, run_id=run_id or "-"))


def _events(path: str) -> _Failed:
    """Read failed events: by tag, the path of the file and the outstanding ids."""
    events: _Failed = {}
    try:
        with open(0 if path == "-" else path, encoding="utf-8") as lines:
            for line in filter(str.strip, lines):
                event = json.loads(line)
                event = event["detail"] if "detail-type" in event else event
                if event["status"] != "failed":
                    raise JobError(f"--events {path}: {event['tag']!r} has not failed")
                ids = [int(id, 16) for id in event.get("outstanding", ())]
                events[event["tag"]] = (event.get("detail") or {}).get("path"), ids
    except OSError as error:
        raise JobError(f"--events {path}: {error.strerror}") from None
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        where = f"event {len(events) + 1}"
        raise JobError(f"--events {path}: {where} is not an event of xorack") from None
    return events


def _files(
    spark: SparkSession, places: list[str], failed: _Failed, database: str
) -> dict[str, InputFile]:
    """Return the files of failed chains as they are now, by tag."""
    listed = reduce(DataFrame.unionByName, [files_in(spark, place) for place in places])
    rows = listed.orderBy(F.isnull("error")).collect()  # those without an error last
    known = {key: row for row in rows for key in (row["path"], row["file"])}
    now = {file.relative: file for file in list_files(database)}
    files = {}
    for tag, (path, _) in failed.items():
        row = known.get(path) or known.get(tag.split("/", 2)[-1])
        if row is None:
            raise JobError(f"{tag!r} is not a chain of --words {', '.join(places)}")
        name, size = row["file"], row["bytes"]
        file = now.get(name) or InputFile(name, row["path"].encode(), 0, "is not in the database")
        if row["error"] is None and file.problem is None and file.size != size:
            file = file._replace(problem=f"changed: from {size} to {file.size} bytes")
        files[tag] = file
    return files


main = partial(run, repair, _OPTIONS)

if __name__ == "__main__":
    sys.exit(main())
