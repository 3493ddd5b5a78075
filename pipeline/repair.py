"""The third job, for when chains failed: counts just the words that were missed, and says so.

    python -m pipeline.repair --words DIR --counts DIR --repaired OUT --queue-url URL --run-id ID
        --events FILE
    spark-submit pipeline/repair.py (the same)

Which chains: ``--tag`` (may be repeated), or ``--events``, a file of ``failed`` events, one a line.
Which words of them: what the data at rest say, see `pipeline.missing`. A word that is counted and
whose stamp was lost is not counted again.

It writes a new folder: the counts that there were and those of the missing words, together. The old
one stays as it is, as others may be reading it. The new one can be repaired again in the same way.

A failed chain stays failed, and its late stamps change nothing. The words that were missing are
units of a new chain, ``<tag>~2`` (then ``~3``): a ``create`` that starts them, and a ``stamp`` that
finishes them, both sent once the new counts are durable. Where nothing was missing, only stamps
were, the new chain has its root unit alone.

A run that died is repeated with the same --run-id: what is not whole is written anew, and requests
go out under the same ids.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if __package__ in (None, ""):  # run by spark-submit: the checkout is not on the path
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from pipeline.commands import absolute, add_common, run, sink_options
from pipeline.errors import JobError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pipeline.layout import Folder
    from pipeline.missing import Chain, Failed

__all__ = ["main", "repair"]

_STEP = "repair"
_SMALLER = 2
"""How much smaller words are in Parquet than as text, about."""
_NAMED = 1000
_SHOWN = 20
_LISTED = 5
_TOLD = "_repair.json"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="repair", description="Count the words that failed chains are missing, finish them."
    )
    made.add_argument("--words", required=True, metavar="DIR", help="the folder that split wrote")
    made.add_argument(
        "--counts", required=True, metavar="DIR", help="the folder that count, or repair, wrote"
    )
    made.add_argument(
        "--repaired", required=True, metavar="OUT", help="the folder to write the full counts to"
    )
    made.add_argument(
        "--tag",
        action="append",
        default=[],
        dest="tags",
        metavar="TAG",
        help="a chain that failed; may be given several times",
    )
    made.add_argument(
        "--events",
        metavar="FILE",
        help="failed events, one a line, as EventBridge delivers them or just their details; "
        "-: on stdin (not with spark-submit)",
    )
    add_common(made)
    return made


def repair(arguments: argparse.Namespace) -> dict[str, Any]:
    """Do the job.

    Args:
        arguments: What `parser` gave.

    Returns:
        The summary: words, distinct, missing, chains, messages, requests; and with ``--json``
        ``repaired`` (which chain by which), ``named`` (the first 1,000 missing words),
        ``skipped`` and ``never_started``.

    Raises:
        JobError: The events, the tags or the folders; nothing was written.
        InvalidOption: The queue; nothing was written.
        SendFailed: The counts are written, not all requests are sent: run it again.
    """
    from pipeline.folder import bytes_in, is_local
    from pipeline.session import prepare, session

    failed = _failed(arguments)
    words, counts, repaired = (
        absolute(place) for place in (arguments.words, arguments.counts, arguments.repaired)
    )
    for option, place in (("--words", words), ("--counts", counts)):
        if is_local(place) and not os.path.isdir(place) and not os.path.isdir(repaired):
            raise JobError(f"{option} {place}: there is no such folder")
    prepare()
    options = sink_options(arguments, _STEP)
    size = bytes_in(words) * _SMALLER if is_local(words) else None
    spark = session("xorack repair", input_bytes=size, verbose=arguments.verbose)

    from pipeline.layout import Folder, begin, files_of, tracking_of

    source, before, folder = (Folder(spark, place) for place in (words, counts, repaired))
    if not folder.is_whole():
        if not files_of(source).is_whole():
            raise JobError(f"--words {words} is not what split writes, or split has not ended")
        if not before.is_whole() or not tracking_of(before).is_whole():
            raise JobError(f"--counts {counts} is not what count writes, or count has not ended")
    made_by = {
        "run_id": arguments.run_id,
        "words": words,
        "counts": counts,
        "tags": sorted(one.tag for one in failed),
    }
    repeated = begin(folder, "--repaired", made_by)
    if not (repeated and folder.is_whole()):
        try:
            _write(spark, source, before, folder, _plan(spark, source, before, failed, arguments))
        except BaseException:
            folder.delete()
            raise
    return _send(spark, folder, arguments, options)


def _failed(arguments: argparse.Namespace) -> list[Failed]:
    """The failed chains that the command line asks for, each once."""
    from pipeline.missing import Failed, read_events

    found = {}
    if arguments.events is not None:
        name = "--events" if arguments.events == "-" else f"--events {arguments.events}"
        try:
            if arguments.events == "-":
                if "PYSPARK_GATEWAY_PORT" in os.environ:
                    raise JobError("--events -: spark-submit does not pass stdin on: give a file")
                events = read_events(sys.stdin, name)
            else:
                with open(arguments.events, encoding="utf-8") as lines:
                    events = read_events(lines, name)
        except OSError as error:
            raise JobError(f"{name}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise JobError(f"{name} is not UTF-8") from None
        found = {one.tag: one for one in events}
    for tag in arguments.tags:
        found.setdefault(tag, Failed(tag))
    if not found:
        raise JobError("which chains? give --tag or --events")
    return list(found.values())


@dataclass(frozen=True)
class _Attempt:
    """A chain that failed, and the one that is made in its place.

    Attributes:
        failed: What asks for it.
        chain: The file's chain, as the data at rest have it.
        path: Where the file was.
        bytes: Its size.
        number: The new attempt's.
        tag: The new attempt's.
        units: The ids of the missing words; None for all words of the chain.
    """

    failed: Failed
    chain: Chain
    path: str
    bytes: int
    number: int
    tag: str
    units: frozenset[int] | None


@dataclass
class _Plan:
    """What is to be done.

    Attributes:
        run_id: This run's.
        attempts: The chains to be made, at least one.
        skipped: Those that failed for another reason than words that were not counted.
        never_started: Ids that events named and no word has.
    """

    run_id: str
    attempts: list[_Attempt] = field(default_factory=list)
    skipped: list[dict[str, str]] = field(default_factory=list)
    never_started: list[dict[str, str]] = field(default_factory=list)


def _plan(
    spark: SparkSession,
    source: Folder,
    before: Folder,
    failed: list[Failed],
    arguments: argparse.Namespace,
) -> _Plan:
    """Find out which chains to make, and which words they are about."""
    from pipeline.layout import run_of
    from pipeline.missing import Chain, Overfull, missing_units

    split_run = (run_of(source) or {}).get("run_id")
    found = _chains(spark, source, before, failed)
    unread = [one for one, (file, _, _) in found.values() if file["error"] is not None]
    if any(one.tag in arguments.tags for one in unread) or len(unread) == len(found):
        raise JobError(
            f"of {_listed(one.tag for one in unread)} the files could not be read, as the reasons "
            "of the chains say: mend them, and run split and count on them"
        )
    plan = _Plan(arguments.run_id)
    overfull = []
    numbered = []
    for key, (one, (file, counted, number)) in found.items():
        if one.run not in (None, split_run) and one.tag == file["tag"]:
            raise JobError(
                f"{one.tag!r}: its event is of the run {one.run!r} of split, --words are of the "
                f"run {split_run!r}"
            )
        if file["error"] is not None:
            plan.skipped.append({"tag": one.tag, "why": file["error"]})
            continue
        chain = Chain(
            key=key,
            tag=file["tag"],
            words=file["words"],
            stamp=bytes(file["stamp"]),
            finished=counted["finished"] if counted else 0,
            counted=bytes(counted["stamp"]) if counted and counted["stamp"] is not None else None,
        )
        try:
            numbered.append((one, chain, file, number, missing_units(chain)))
        except Overfull:
            overfull.append(chain)
    if overfull:
        raise JobError(_too_many(overfull, before))
    tags = _free_tags(spark, source, {chain.key: (chain.tag, n) for _, chain, _, n, _ in numbered})
    for one, chain, file, _, units in numbered:
        number, tag = tags[chain.key]
        plan.attempts.append(_Attempt(one, chain, file["path"], file["bytes"], number, tag, units))
    return plan


def _too_many(overfull: list[Chain], before: Folder) -> str:
    """What to do about chains whose missing words cannot be named."""
    from pipeline.layout import run_of

    named = _listed(
        (one.tag for one in overfull),
        lambda at: f"{overfull[at].missing:,} of {overfull[at].words:,} words",
    )
    made_by = run_of(before) or {}
    without = " and without --lose" if made_by.get("lose") else ""
    return (
        f"too many words are missing in {named}: their stamps cannot name them. Count --words anew "
        f"into another folder, with the run id that {before.place} has ({made_by.get('run_id')!r})"
        f"{without}, then repair with that folder as --counts"
    )


def _chains(
    spark: SparkSession, source: Folder, before: Folder, failed: list[Failed]
) -> dict[int, tuple[Failed, tuple[Any, Any, int]]]:
    """The chains that are asked for, by key: who asks, the file, what was counted, the next number.

    A tag is that of a file, or the one that its latest attempt has by the record of what was
    counted, or one that looks like an attempt at a file.
    """
    from pyspark.sql import functions as F

    from pipeline.layout import (
        FILES_SCHEMA,
        TRACKING_SCHEMA,
        files_of,
        frame_of,
        rows_in,
        tracking_of,
    )
    from pipeline.missing import base_of

    files = rows_in(spark, files_of(source), FILES_SCHEMA)
    tracking = rows_in(spark, tracking_of(before), TRACKING_SCHEMA)
    asked = frame_of(spark, [(one.tag,) for one in failed], "tag string")
    latest = {
        row["tag"]: row["chain"]
        for row in tracking.where("attempt > 1")
        .join(F.broadcast(asked), "tag", "left_semi")
        .select("tag", "chain")
        .collect()
    }
    candidates = {_key(one.tag) for one in failed} | set(latest.values())
    candidates |= {_key(base[0]) for one in failed if (base := base_of(one.tag))}
    keys = F.broadcast(_longs(spark, candidates, "chain"))
    file_of = {row["chain"]: row for row in files.join(keys, "chain", "left_semi").collect()}
    counted = {row["chain"]: row for row in tracking.join(keys, "chain", "left_semi").collect()}

    def is_file(tag: str) -> bool:
        row = file_of.get(_key(tag))
        return row is not None and row["tag"] == tag

    found: dict[int, tuple[Failed, tuple[Any, Any, int]]] = {}
    unknown = []
    for one in failed:
        base = base_of(one.tag)
        if is_file(one.tag):
            key, number = _key(one.tag), 1
        elif one.tag in latest:
            key, number = latest[one.tag], 1
        elif base and is_file(base[0]):
            key, number = _key(base[0]), base[1]
        else:
            unknown.append(one.tag)
            continue
        row = counted.get(key)
        number = max(number, row["attempt"] if row else 1) + 1
        if key not in found or found[key][1][2] < number:
            found[key] = (one, (file_of[key], row, number))
    if unknown:
        raise JobError(f"no file of --words has the tag {_listed(unknown)}")
    return found


def _free_tags(
    spark: SparkSession, source: Folder, wanted: dict[int, tuple[str, int]]
) -> dict[int, tuple[int, str]]:
    """Number and tag of the new attempts: a file may be called as an attempt would be."""
    from pyspark.sql import functions as F

    from pipeline.layout import FILES_SCHEMA, files_of, rows_in
    from pipeline.missing import attempt_tag

    files = rows_in(spark, files_of(source), FILES_SCHEMA).select("chain")
    free: dict[int, tuple[int, str]] = {}
    open_ = dict(wanted)
    while open_:
        tags = {key: attempt_tag(tag, number) for key, (tag, number) in open_.items()}
        keys = F.broadcast(_longs(spark, map(_key, tags.values()), "chain"))
        taken = {row["chain"] for row in files.join(keys, "chain", "left_semi").collect()}
        for key, tag in tags.items():
            base, number = open_.pop(key)
            if _key(tag) in taken:
                open_[key] = (base, number + 1)
            else:
                free[key] = (number, tag)
    return free


def _write(
    spark: SparkSession, source: Folder, before: Folder, folder: Folder, plan: _Plan
) -> None:
    """Write the missing words, then all that rests on them; the counts' _SUCCESS is the last."""
    from pyspark.sql import functions as F

    from pipeline import layout

    # What another attempt of this run left is overwritten; its name stays, in a hidden file.
    for leavings in folder.data():
        leavings.delete()
    about = layout.frame_of(
        spark,
        [(one.chain.key, one.tag, one.path) for one in plan.attempts],
        "chain long, tag string, path string",
    ).hint("broadcast")
    rows, kept = _missing(spark, source, plan)
    try:
        (
            rows.join(about, "chain")
            .select(*layout.names_in(layout.MISSING_SCHEMA))
            .write.parquet(layout.missing_of(folder).place)
        )
    finally:
        kept.unpersist()
    # From here on, what was written is what was missing.
    missing = spark.read.schema(layout.MISSING_SCHEMA).parquet(layout.missing_of(folder).to_read())
    _check(missing, plan)
    counted = layout.rows_in(spark, layout.tracking_of(before), layout.TRACKING_SCHEMA)
    (
        counted.join(about, "chain", "left_anti")
        .select(*layout.names_in(layout.TRACKING_SCHEMA))
        .unionByName(layout.frame_of(spark, map(_counted, plan.attempts), layout.TRACKING_SCHEMA))
        .write.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "true")
        .json(layout.tracking_of(folder).place)
    )
    chains = [_new_chain(one, plan.run_id) for one in plan.attempts]
    layout.frame_of(spark, chains, layout.CHAINS_SCHEMA).write.parquet(
        layout.chains_of(folder).place
    )
    told = {"skipped": plan.skipped, "never_started": plan.never_started}
    folder.write_text(_TOLD, json.dumps(told))
    (
        spark.read.schema(layout.COUNTS_SCHEMA)
        .parquet(before.to_read())
        .unionByName(missing.groupBy("word").count())
        .groupBy("word")
        .agg(F.sum("count").alias("count"))
        .write.mode("append")
        .option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "true")
        .parquet(folder.place)
    )


def _missing(spark: SparkSession, source: Folder, plan: _Plan) -> tuple[DataFrame, DataFrame]:
    """The words that were not counted: chain, at, word; and what is kept in memory for that.

    Notes in the plan which ids no word has.
    """
    from pyspark.sql import functions as F

    from pipeline.layout import FILES_SCHEMA, files_of, rows_in, words_in
    from xorack.spark import rows_of

    of_chains = F.broadcast(_longs(spark, (one.chain.key for one in plan.attempts), "chain"))
    files = rows_in(spark, files_of(source), FILES_SCHEMA)
    asked = files.select("number", "chain").join(of_chains, "chain", "left_semi")
    words = words_in(spark, source).join(F.broadcast(asked), "number").drop("number")
    named = {unit: one for one in plan.attempts for unit in one.units or ()}
    told = {
        unit: one
        for one in plan.attempts
        for unit in one.failed.outstanding
        # A root has no row, the first attempt's nor that of one which had nothing to count.
        if unit not in named and unit not in (one.chain.key % (1 << 64), _root(one.failed.tag))
    }
    found = rows_of(words, [*told, *named], "at")
    for unit in sorted(found.unknown):
        if unit in named:
            raise JobError(
                f"{named[unit].chain.tag!r}: no word of --words has the id {unit:016x}, it was "
                "never started: --counts are not those of --words"
            )
        plan.never_started.append({"tag": told[unit].failed.tag, "id": f"{unit:016x}"})
    units = F.broadcast(_longs(spark, named, "unit"))
    rows = found.rows.join(units, "unit", "left_semi").select("chain", "at", "word")
    if whole := [one.chain.key for one in plan.attempts if one.units is None]:
        keys = F.broadcast(_longs(spark, whole, "chain"))
        rows = rows.unionByName(words.join(keys, "chain", "left_semi"))
    return rows, found.rows


def _check(missing: DataFrame, plan: _Plan) -> None:
    """Hold the words that were written against the stamps, before anything is made of them."""
    from pipeline.missing import Inconsistent, form_of
    from xorack.spark import fold, unit

    form = form_of(plan.attempts[0].chain.stamp)
    units = missing.select("chain", unit("at").alias("unit"))
    folded = {
        row["chain"]: (bytes(row["stamp"]), row["count"])
        for row in fold(units, "chain", "unit", **form).collect()
    }
    for one in plan.attempts:
        chain = one.chain
        nothing = (bytes(len(chain.stamp)), 0)
        if folded.get(chain.key, nothing) != (chain.residual, chain.missing):
            raise Inconsistent(chain.tag, "the words that are missing are not in --words")


def _counted(one: _Attempt) -> tuple[int, str, int, int, bytearray | None]:
    """The chain's row in the record of what was counted: all its words."""
    chain = one.chain
    return chain.key, one.tag, one.number, chain.words, bytearray(chain.of_all_words)


def _new_chain(one: _Attempt, run_id: str) -> tuple[str, str, bytearray, int, str]:
    """The chain of a repair: its units are the words that were missing, or its root alone."""
    from pipeline.missing import detail_of, root_stamp

    chain = one.chain
    detail = {
        "path": one.path,
        "bytes": one.bytes,
        "words": chain.words,
        "run": run_id,
        "repairs": one.failed.tag,
        "attempt": one.number,
        "missing": chain.missing,
    }
    stamp = chain.residual if chain.missing else root_stamp(_root(one.tag), chain.stamp)
    units = max(1, chain.missing)
    return one.tag, one.failed.tag, bytearray(stamp), units, detail_of(detail)


def _send(
    spark: SparkSession, folder: Folder, arguments: argparse.Namespace, options: dict[str, Any]
) -> dict[str, Any]:
    """Start and finish the new chains: what the folder says, so a repeat sends the same."""
    from pyspark.sql import functions as F

    from pipeline import layout
    from pipeline.files import position_of
    from xorack.spark import send, unit

    chains = spark.read.schema(layout.CHAINS_SCHEMA).parquet(layout.chains_of(folder).to_read())
    create = chains.select(
        "tag", F.lit("create").alias("op"), "stamp", F.col("units").alias("started"), "detail"
    )
    stamp = chains.select(
        "tag", F.lit("stamp").alias("op"), "stamp", F.col("units").alias("finished")
    )
    sent = send(create.unionByName(stamp, allowMissingColumns=True), **options)
    missing = spark.read.schema(layout.MISSING_SCHEMA).parquet(layout.missing_of(folder).to_read())
    total = (
        spark.read.schema(layout.COUNTS_SCHEMA)
        .parquet(folder.to_read())
        .agg(F.coalesce(F.sum("count"), F.lit(0)).alias("words"), F.count("word").alias("distinct"))
        .first()
    )
    named = [
        {
            "tag": row["tag"],
            "id": f"{row['unit'] % (1 << 64):016x}",
            "path": row["path"],
            "position": position_of(row["at"]),
            "word": row["word"],
        }
        for row in missing.withColumn("unit", unit("at"))
        .orderBy("path", "at")
        .limit(_NAMED if arguments.json else _SHOWN)
        .collect()
    ]
    told = json.loads(folder.read_text(_TOLD) or "{}")
    summary = {
        **(total.asDict() if total else {}),
        "missing": missing.count(),
        "chains": sent.chains,
        "messages": sent.messages,
        "requests": sent.requests,
    }
    if arguments.json:
        pairs = chains.select("tag", "repairs").orderBy("tag").collect()
        return {**summary, "repaired": [row.asDict() for row in pairs], "named": named, **told}
    for word in named:
        print(f"missing: {word['path']!r}, position {word['position']:,}: {word['word']!r}")
    if summary["missing"] > len(named):
        print(f"missing: and {summary['missing'] - len(named):,} more")
    for one in told.get("skipped", ()):
        print(f"skipped: {one['tag']!r}: its file could not be read: {one['why']}")
    for one in told.get("never_started", ()):
        print(f"never started: {one['tag']!r}: {one['id']}: no word of --words has this id")
    return summary


def _key(tag: str) -> int:
    """A chain's key: what ``unit("tag")`` is in Spark."""
    root = _root(tag)
    return root - (1 << 64) if root >> 63 else root


def _root(tag: str) -> int:
    """A chain's root unit."""
    from xorack.core.hashing import unit_id

    return unit_id(tag)


def _longs(spark: SparkSession, values: Iterable[int], name: str) -> DataFrame:
    """A small frame of 64-bit integers, signed or not."""
    from pipeline.layout import frame_of

    signed = {value - (1 << 64) if value >> 63 == 1 else value for value in values}
    return frame_of(spark, [(value,) for value in sorted(signed)], f"{name} long")


def _listed(tags: Iterable[str], about: Callable[[int], str] | None = None) -> str:
    """Some of the tags, for a message."""
    every = list(tags)
    named = [
        repr(tag) + (f" ({about(at)})" if about else "") for at, tag in enumerate(every[:_LISTED])
    ]
    more = len(every) - len(named)
    return ", ".join(named) + (f" and {more:,} more" if more else "")


def main(argv: list[str] | None = None) -> int:
    """The command.

    Args:
        argv: The arguments; None for the process's.

    Returns:
        The exit status.
    """
    return run("repair", repair, parser().parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
