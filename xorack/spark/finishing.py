"""Finishing: what was written against what was started, and the requests that follow from it."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

from xorack.core.errors import XorAckError
from xorack.spark.errors import InvalidOption, NotStarted, OutputDiffers, UnsuitableColumns
from xorack.spark.evidence import open_output, unit_of
from xorack.spark.folding import fold_chains, fold_units
from xorack.spark.record import summarize
from xorack.spark.starting import cells_of, claim_of, keep_record, record_of, request_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from xorack.spark.evidence import Output, Proof
    from xorack.spark.rows import TrackedRows

__all__ = ["Settled", "advance", "finish", "settle"]

_EXAMPLES = 5


class Settled(NamedTuple):
    """Which chains may finish, and how far.

    Attributes:
        finished: ``tag``, ``units``, ``count`` and ``fold`` of these chains.
        cells: The cells of their stamps; None for plain ones.
        chains: How many they are.
        units: The units that finish.
        missing: The units that were started and that the input lacked.
        partial: Some chains finish in part.
        error: Why other chains do not finish.
    """

    finished: DataFrame
    cells: int | None
    chains: int
    units: int
    missing: int = 0
    partial: DataFrame | None = None
    error: XorAckError | None = None


def settle(rows: TrackedRows, proof: Proof, given: Output | None) -> Settled:
    """Compare the evidence of an output with what was started; see `TrackedRows.finish`."""
    if rows.batch_id is not None:
        return _settle_batch(rows, proof, given)
    found = record_of(rows).read()
    if found is None:
        raise NotStarted(f"run {rows.tracking.run_id!r} has not started rows named {rows.name!r}")
    summary, facts = found
    started = record_of(rows).chains().where("count > 0").select(*_FOLDED)
    if proof.totals == summary.totals:
        return Settled(started, facts["cells"], summary.chains, summary.totals.rows)
    source = facts["source"] if given is None else given
    if source is None:
        raise OutputDiffers(rows.name, summary.totals.rows, proof.totals.rows, [_NO_ROWS])
    frame = open_output(rows.tracking.spark, source)
    return _settle_chains(rows, proof, frame, facts["cells"])


_FOLDED = ("tag", "units", "count", "fold")
_NO_ROWS = "unknown, as no rows= says what this job read"


def _settle_batch(rows: TrackedRows, proof: Proof, given: Output | None) -> Settled:
    """Compare a micro-batch's output with its rows, which are chains or parts of chains."""
    if given is None:
        raise InvalidOption("rows", "is required in a micro-batch: give its frame")
    tracking = rows.tracking
    frame = open_output(tracking.spark, given)
    unit = unit_of(rows, frame)
    summary = summarize(fold_units(frame, rows.chain, unit, rows.prefix))
    if proof.totals != summary.totals:
        raise OutputDiffers(rows.name, summary.totals.rows, proof.totals.rows)
    claim = claim_of(rows)
    cells = cells_of(rows) if claim is None else claim["cells"]
    finished = fold_chains(frame, rows.chain, unit, rows.prefix, cells)
    return Settled(finished, cells, summary.chains, summary.totals.rows)


def _settle_chains(rows: TrackedRows, proof: Proof, frame: DataFrame, cells: int | None) -> Settled:
    """Decide chain by chain which may finish, as the output differs from what was started."""
    unit = unit_of(rows, frame)
    read = fold_units(frame, rows.chain, unit, rows.prefix)
    if proof.chains is None and proof.totals != (totals := summarize(read).totals):
        raise OutputDiffers(rows.name, totals.rows, proof.totals.rows)
    started = record_of(rows).chains().where("count > 0").select(*_FOLDED)
    verdicts = _verdicts(started, read, proof.chains).persist()
    sums = {row["verdict"]: row for row in _sums(verdicts).collect()}
    tags = {name: verdicts.where(F.col("verdict") == name).select("tag") for name in _VERDICTS}
    partial = None
    finished = started.join(tags["whole"], "tag", "left_semi")
    if "partial" in sums:
        folded = fold_chains(frame, rows.chain, unit, rows.prefix, cells)
        partial = folded.join(tags["partial"], "tag", "left_semi")
        finished = finished.unionByName(partial)
    sent = [sums[name] for name in ("whole", "partial") if name in sums]
    units = sum(row["written"] for row in sent)
    error = None
    if "differs" in sums:
        row = sums["differs"]
        examples = verdicts.where("verdict = 'differs'").orderBy("tag").limit(_EXAMPLES).collect()
        chains = [
            f"{one['tag']} ({one['written']:,} of {one['read']:,}"
            f"{'' if one['started'] else ', never started'})"
            for one in examples
        ]
        error = OutputDiffers(rows.name, row["read"], row["written"], chains)
    all_started = sum(row["started"] for row in sums.values())
    missing = all_started - units - (sums["differs"]["started"] if error else 0)
    return Settled(
        finished, cells, sum(row["chains"] for row in sent), units, missing, partial, error
    )


_VERDICTS = ("whole", "partial", "absent", "differs")


def _verdicts(started: DataFrame, read: DataFrame, written: DataFrame | None) -> DataFrame:
    """Compare chains: what was started, what the job read, and what it wrote, if that is known."""
    sides = {"started": started, "read": read, "written": read if written is None else written}
    folded = [
        frame.select("tag", F.struct("units", "count").alias(side)) for side, frame in sides.items()
    ]
    joined = reduce(lambda one, other: one.join(other, "tag", "full_outer"), folded)
    is_whole = F.col("written").eqNullSafe(F.col("started"))
    is_read = F.col("written").eqNullSafe(F.col("read")) & F.col("started").isNotNull()
    verdict = (
        F.when(is_whole, "whole")
        .when(is_read & F.col("read").isNull(), "absent")
        .when(is_read, "partial")
        .otherwise("differs")
    )
    counts = [F.coalesce(F.col(f"{side}.count"), F.lit(0)).alias(side) for side in sides]
    return joined.select("tag", verdict.alias("verdict"), *counts)


def _sums(verdicts: DataFrame) -> DataFrame:
    sums = [F.sum(side).alias(side) for side in ("started", "read", "written")]
    return verdicts.groupBy("verdict").agg(F.count(F.lit(1)).alias("chains"), *sums)


def finish(rows: TrackedRows, settled: Settled) -> DataFrame:
    """Return the requests that finish chains.

    A chain that finishes in part leaves a record, so that a repeated run, with the missing rows
    back, sends what is left: under the id of the next attempt.
    """
    step = request_id(rows, "finish")
    if rows.batch_id is not None:
        return _rest(settled.finished, None, step)
    record = record_of(rows)
    attempts = record.attempts()
    if settled.partial is not None:
        record.add_attempt(_rest(settled.partial, attempts, step))
        attempts = record.attempts()
    rest = _rest(settled.finished, attempts, step)
    if attempts is None:
        return rest
    return rest.unionByName(attempts.select(*rest.columns))


def _rest(finished: DataFrame, attempts: DataFrame | None, step: str) -> DataFrame:
    """Return the requests that finish chains beyond what earlier attempts finished."""
    if attempts is None:
        null = F.lit(None)
        before = finished.withColumns({"n": null.cast("int"), "units_2": null.cast("long")})
        before = before.withColumns({"fold_2": null.cast("binary"), "had": F.lit(0).cast("long")})
    else:
        last = attempts.groupBy("tag").agg(
            F.max("attempt").alias("n"),
            F.max_by("units", "attempt").alias("units_2"),
            F.max_by("fold", "attempt").alias("fold_2"),
            F.max_by("count", "attempt").alias("had"),
        )
        before = finished.join(last, "tag", "left").fillna(0, ["had"])
    number = F.concat(F.lit(f"{step}/"), (F.col("n") + 1).cast("string"))
    return before.where("count > had").select(
        F.lit("stamp").alias("op"),
        "tag",
        F.coalesce(number, F.lit(step)).alias("id"),
        *("units", "fold", "units_2", "fold_2", "count"),
        (F.col("count") - F.col("had")).alias("finished"),
    )


def advance(
    rows: TrackedRows, following: TrackedRows, settled: Settled, written: Output
) -> DataFrame:
    """Return the requests that finish units and start others; see `TrackedRows.advance`.

    Raises:
        UnsuitableColumns: The output has a chain that was not started.
    """
    keep_record(following, written, {"cells": settled.cells})
    started = (
        record_of(following)
        .chains()
        .select(
            *("tag", F.col("units").alias("units_2"), F.col("fold").alias("fold_2")),
            F.col("count").alias("started"),
        )
    )
    known = settled.finished if rows.batch_id is not None else record_of(rows).chains()
    stranger = started.join(known.select("tag"), "tag", "left_anti").first()
    if stranger is not None:
        raise UnsuitableColumns(
            f"chain {stranger['tag']!r} of the output of {following.name!r} was not started "
            f"by {rows.name!r}"
        )
    return settled.finished.join(started, "tag", "left").select(
        F.lit("stamp").alias("op"),
        "tag",
        F.lit(request_id(rows, f"to/{following.name}")).alias("id"),
        *("units", "fold", "units_2", "fold_2", "started"),
        F.col("count").alias("finished"),
    )
