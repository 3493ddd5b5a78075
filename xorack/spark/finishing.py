"""Finishing: what was written against what was started, and the requests that follow from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import reduce
from operator import xor
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

from xorack.core.errors import ArgumentError, OutputDiffersError, StateError, XorAckError
from xorack.spark.differing import output_differs
from xorack.spark.errors import plain_errors
from xorack.spark.evidence import open_output, per_chain, unit_of
from xorack.spark.folding import fold_chains, fold_units
from xorack.spark.record import Summary, Totals, summarize
from xorack.spark.starting import cells_of, keep_record, request_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from xorack.spark.evidence import Output, Proof
    from xorack.spark.names import Rows

__all__ = ["Settled", "advance", "finish", "settle"]

_EXAMPLES = 5


class Settled(NamedTuple):
    """Which chains may finish, and how far.

    Attributes:
        finished: ``tag``, ``units``, ``count`` and ``fold`` of the chains that finish whole.
        cells: The cells of their stamps; None for plain ones.
        chains: How many chains finish, whole or in part.
        units: The units that finish.
        missing: The units that were started and that the input lacked.
        partial: As `finished`, of the chains that finish in part.
        error: Why other chains do not finish.
    """

    finished: DataFrame
    cells: int | None
    chains: int
    units: int
    missing: int = 0
    partial: DataFrame | None = None
    error: XorAckError | None = None


_Cache = Callable[["DataFrame"], "DataFrame"]
_FOLDED = ("tag", "units", "count", "fold")
_NO_ROWS = "unknown, as no rows= says what this job read"


@contextmanager
def settle(rows: Rows, proof: Proof, given: Output | None) -> Iterator[Settled]:
    """Compare the evidence of an output with what was started; see `TrackedRows.finish`."""
    with ExitStack() as stack:

        def cache(frame: DataFrame) -> DataFrame:
            stack.callback(frame.unpersist)
            return frame.persist()

        yield (_settle_run if rows.batch_id is None else _settle_batch)(rows, proof, given, cache)


def _settle_batch(rows: Rows, proof: Proof, given: Output | None, cache: _Cache) -> Settled:
    """Compare a micro-batch's output with its rows, which are chains or parts of chains."""
    if given is None:
        raise ArgumentError("rows", problem="is required in a micro-batch: give its frame")
    frame = open_output(rows.tracking.spark, given)
    first, _ = rows.record.read()
    cells = cells_of(rows) if first is None else first["cells"]
    finished = cache(fold_chains(frame, rows.chain, unit_of(rows, frame), rows.prefix, cells))
    summary = summarize(finished)
    if proof.totals != summary.totals:
        raise output_differs(rows, proof, summary.rows, (given, frame))
    return Settled(finished, cells, summary.chains, summary.rows)


def _settle_run(rows: Rows, proof: Proof, given: Output | None, cache: _Cache) -> Settled:
    """Compare an output with the record; chain by chain, if it differs."""
    _, line = rows.record.read()
    if line is None:
        raise StateError(f"run {rows.tracking.run_id!r} has not started rows named {rows.name!r}")
    cells, summary = line["cells"], Summary(*line["summary"])
    started = rows.record.chains().where("count > 0").select(*_FOLDED)
    if proof.totals == summary.totals:
        return Settled(started, cells, summary.chains, summary.rows)
    source = line["source"] if given is None else given
    if source is None:
        raise OutputDiffersError(rows.name, summary.rows, proof.totals.rows, [_NO_ROWS])
    frame = open_output(rows.tracking.spark, source)
    unit = unit_of(rows, frame)
    read = fold_units(frame, rows.chain, (unit, F.lit(1).cast("long")), rows.prefix)
    written = per_chain(rows, proof.outputs)
    verdicts = cache(_verdicts(started, read, written))
    with plain_errors():
        sums = {row["verdict"]: row for row in _sums(verdicts).collect()}
    if written is None:
        # Nothing tells the output's chains apart: all of them are as they were read, or none.
        units = reduce(xor, (row["units"] or 0 for row in sums.values()), 0)
        totals = Totals(units, sum(row["written"] for row in sums.values()))
        if proof.totals != totals:
            raise output_differs(rows, proof, summary.rows, (source, frame))
    error = partial = None
    if differs := sums.pop("differs", None):
        examples = verdicts.where("verdict = 'differs'").orderBy("tag").limit(_EXAMPLES).collect()
        chains = [f"{one['tag']} ({one['written']:,} of {one['due']:,})" for one in examples]
        differing = f", and {differs['chains']:,} of {summary.chains:,} chains differ"
        error = output_differs(rows, proof, summary.rows, (source, frame), chains, differing)
    if "partial" in sums:
        folded = fold_chains(frame, rows.chain, unit, rows.prefix, cells)
        partial = folded.join(verdicts.where("verdict = 'partial'"), "tag", "left_semi")
    finished = started.join(verdicts.where("verdict = 'whole'"), "tag", "left_semi")
    missing = sum(row["started"] - row["written"] for row in sums.values())
    sums.pop("absent", None)
    chains, units = (sum(row[name] for row in sums.values()) for name in ("chains", "written"))
    return Settled(finished, cells, chains, units, missing, partial, error)


def _verdicts(started: DataFrame, read: DataFrame, written: DataFrame | None) -> DataFrame:
    """Compare chains: what was started, what the job read, and what it wrote, if that is known."""
    sides = {"started": started, "read": read, "written": written}
    parts = [
        frame.select("tag", F.struct("units", "count").alias("sums"), F.lit(side).alias("side"))
        for side, frame in sides.items()
        if frame is not None
    ]
    together = reduce(lambda one, other: one.union(other), parts)
    chains = together.groupBy("tag").pivot("side", list(sides)).agg(F.first("sums"))
    if written is None:
        is_started = F.col("started").isNotNull()
        chains = chains.withColumn("written", F.when(is_started, F.col("read")))
    # Rows of chains that failed at the start are in the input, and of no concern.
    chains = chains.where("started IS NOT NULL OR written IS NOT NULL")
    is_whole = F.col("written").eqNullSafe(F.col("started"))
    # An input with other rows than those that were started lacks no units: it is a wrong input.
    is_read = F.col("written").eqNullSafe(F.col("read")) & F.expr(
        "coalesce(read.count, 0) < started.count AND coalesce(read.units, 1) <> 0"
    )
    verdict = (
        F.when(is_whole, "whole")
        .when(is_read & F.col("read").isNull(), "absent")
        .when(is_read, "partial")
        .otherwise("differs")
    )
    counts = [F.coalesce(F.col(f"{side}.count"), F.lit(0)).alias(side) for side in sides]
    numbers = chains.select("tag", verdict.alias("verdict"), "written.units", *counts)
    return numbers.withColumn("due", F.least("started", "read"))


def _sums(verdicts: DataFrame) -> DataFrame:
    sums = [F.sum(side).alias(side) for side in ("started", "due", "written")]
    chains, units = F.count(F.lit(1)).alias("chains"), F.bit_xor("units").alias("units")
    return verdicts.groupBy("verdict").agg(chains, units, *sums)


def finish(
    rows: Rows, settled: Settled, step: str = "finish", started: DataFrame | None = None
) -> DataFrame:
    """Return the requests that finish chains, and start other units of these in the same stamp.

    A chain that finishes in part leaves a record, so that a repeated run, with the missing rows
    back, sends what is left: under the id of the next attempt.

    Args:
        rows: The rows that finish.
        settled: Which chains finish, and how far.
        step: The step that the requests' ids name.
        started: ``tag``, ``units``, ``count`` and ``fold`` of the units that start.
    """
    step, record = request_id(rows, step), rows.record
    attempts = record.attempts()
    if settled.partial is not None:
        record.add_attempt(_rest(settled.partial, attempts, step, started))
        attempts = record.attempts()
    rest = _rest(settled.finished, attempts, step, started)
    return rest if attempts is None else rest.unionByName(attempts)


def _rest(
    finished: DataFrame, attempts: DataFrame | None, step: str, started: DataFrame | None
) -> DataFrame:
    """Return the requests that finish chains beyond what earlier attempts finished."""
    if attempts is None:
        nulls = ("CAST(NULL AS long) AS units_2", "CAST(NULL AS binary) AS fold_2")
        before = finished.selectExpr("*", "0 AS n", *nulls, "0L AS had")
    else:
        last = attempts.groupBy("tag").agg(
            F.max("attempt").alias("n"),
            F.max_by("units", "attempt").alias("units_2"),
            F.max_by("fold", "attempt").alias("fold_2"),
            F.max_by("count", "attempt").alias("had"),
        )
        before = finished.join(last, "tag", "left").fillna(0, ["n", "had"])
    if started is None:
        before = before.selectExpr("*", "CAST(NULL AS long) AS started")
    else:
        # What starts goes with a chain's first attempt, which has nothing to take off.
        first = started.toDF(*("tag" if c == "tag" else f"{c}_s" for c in started.columns))
        before = before.join(first, "tag", "left").withColumns(
            {
                "units_2": F.coalesce("units_2", "units_s"),
                "fold_2": F.coalesce("fold_2", "fold_s"),
                "started": F.when(F.col("n") == 0, F.col("count_s")),
            }
        )
    attempt = F.col("n") + 1
    numbered = F.concat(F.lit(f"{step}/"), attempt.cast("string"))
    return before.where("count > had").select(
        F.lit("stamp").alias("op"),
        "tag",
        F.when(attempt == 1, step).otherwise(numbered).alias("id"),
        *("units", "fold", "units_2", "fold_2", "count", "started"),
        (F.col("count") - F.col("had")).alias("finished"),
        attempt.alias("attempt"),
    )


def advance(rows: Rows, following: Rows, settled: Settled, written: Output) -> DataFrame:
    """Return the requests that finish units and start others; see `TrackedRows.advance`.

    Raises:
        ColumnsError: The output has a chain that was not started; nothing was kept.
    """
    known = settled.finished if rows.batch_id is not None else rows.record.chains()
    known = known.select("tag", F.lit(True).alias("known"))
    text = f" of the output of {following.name!r} was not started by {rows.name!r}"
    stranger = F.raise_error(F.concat(F.lit("xorack: chain "), "tag", F.lit(text)))

    facts = {"starts": False, "cells": settled.cells}

    def of_known(folded: DataFrame) -> DataFrame:
        tag = F.when(F.col("known"), F.col("tag")).otherwise(stranger)
        return folded.join(known, "tag", "left").withColumn("tag", tag).drop("known")

    _, before = following.record.read()
    keep_record(following, written, before or facts, of_known)
    started = following.record.chains().select(*_FOLDED)
    return finish(rows, settled, "advance", started)
