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
from xorack.spark.evidence import open_output, per_chain, unit_of
from xorack.spark.folding import SUMS, Totals, fold_units, folding, of_units, summarize
from xorack.spark.notes import missing_units, of_found
from xorack.spark.record import summary_in
from xorack.spark.starting import keep_record, request_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from xorack.spark.evidence import Output, Proof
    from xorack.spark.missing import MissingRows
    from xorack.spark.names import Rows
    from xorack.spark.record import Line

__all__ = ["Settled", "advance", "finish", "line_of", "settle"]

_EXAMPLES = 5


class Settled(NamedTuple):
    """Which chains may finish.

    Attributes:
        finished: ``tag`` and the columns `SUMS` of the chains that finish.
        chains: How many these are.
        units: Their units.
        missing: The units that were started and that the input lacked.
        notes: The notes for chains that do not finish, if any: see `missing_units`.
        noted: How many these are.
        error: Why chains do not finish, unless the input lacked their units.
    """

    finished: DataFrame
    chains: int
    units: int
    missing: int = 0
    notes: DataFrame | None = None
    noted: int = 0
    error: XorAckError | None = None


_Cache = Callable[["DataFrame"], "DataFrame"]
_NO_ROWS = "unknown, as no rows= says what this job read"


def line_of(rows: Rows) -> Line:
    """Return the line of what was started: in a micro-batch, where there is none, an empty one.

    Raises:
        StateError: Nothing was started, or with other unit columns.
    """
    _, line = rows.record.read()
    if rows.batch_id is not None:
        return {"source": None, "folders": ()}
    if line is None:
        raise StateError(f"run {rows.tracking.run_id!r} has not started rows named {rows.name!r}")
    if line["unit"] != list(rows.unit):
        raise StateError(
            f"{rows.name!r} was started with the unit columns {', '.join(line['unit'])}, and now "
            f"they are {', '.join(rows.unit)}: give the same ones, in the same order"
        )
    return line


@contextmanager
def settle(rows: Rows, line: Line, proof: Proof, given: Output | None) -> Iterator[Settled]:
    """Compare the evidence of an output with what was started; see `TrackedRows.finish`."""
    with ExitStack() as stack:

        def cache(frame: DataFrame) -> DataFrame:
            stack.callback(frame.unpersist)
            return frame.persist()

        if rows.batch_id is None:
            yield _settle_run(rows, line, proof, given, cache)
        else:
            yield _settle_batch(rows, proof, given, cache)


def _settle_batch(rows: Rows, proof: Proof, given: Output | None, cache: _Cache) -> Settled:
    """Compare a micro-batch's output with its rows, which are chains or parts of chains."""
    if given is None:
        raise ArgumentError("rows", problem="is required in a micro-batch: give its frame")
    frame = open_output(rows.tracking.spark, given)
    finished = cache(_fold(rows, frame))
    summary = summarize(finished)
    if proof.totals != summary.totals:
        raise output_differs(rows, proof, summary.count, (given, frame))
    return Settled(finished, summary.chains, summary.count)


def _fold(rows: Rows, frame: DataFrame) -> DataFrame:
    return fold_units(frame, rows.chain, of_units(unit_of(rows, frame)), rows.prefix)


def _settle_run(
    rows: Rows, line: Line, proof: Proof, given: Output | None, cache: _Cache
) -> Settled:
    """Compare an output with the record; chain by chain, if it differs."""
    summary = summary_in(line)
    started = rows.record.chains(line).where("count > 0").select("tag", *SUMS)
    if proof.totals == summary.totals:
        return Settled(started, summary.chains, summary.count)
    given = line["source"] if given is None else given
    if given is None:
        raise OutputDiffersError(rows.name, summary.count, proof.totals.count, [_NO_ROWS])
    source = open_output(rows.tracking.spark, given)
    written = per_chain(rows, proof.outputs)
    verdicts = cache(_verdicts(started, _fold(rows, source), written))
    with folding(rows.tracking.spark):
        sums = {row["verdict"]: row for row in _sums(verdicts).collect()}
    if written is None:
        count, total = (sum(row[name] for row in sums.values()) for name in ("written", "sum"))
        read = Totals(reduce(xor, (row["xor"] or 0 for row in sums.values()), 0), count, total)
        # Nothing tells the output's chains apart: all of them are as they were read, or none.
        if proof.totals != read:
            return _nothing_finishes(rows, proof, summary.count, (given, source), started)
    differing = verdicts.where("verdict <> 'whole' AND started > 0")
    notes = missing_units(rows, line, proof.outputs, source, differing)
    whole, error = sums.get("whole"), None
    if differs := sums.get("differs"):
        examples = verdicts.where("verdict = 'differs'").orderBy("tag").limit(_EXAMPLES).collect()
        chains = [f"{one['tag']} ({one['written']:,} of {one['due']:,})" for one in examples]
        number = f", and {differs['chains']:,} of {summary.chains:,} chains differ"
        error = output_differs(rows, proof, summary.count, (given, source), chains, number)
        if _names_all(error.found):
            found = of_found(rows, error.found, started).select("tag", F.col("ids").alias("found"))
            ids = F.when(F.col("verdict") == "differs", F.col("found"))
            joined = notes.join(found, "tag", "left")
            notes = joined.withColumn("ids", F.coalesce(ids, "ids")).drop("found")
    lacking = [row for verdict, row in sums.items() if verdict == "lacking"]
    return Settled(
        started.join(verdicts.where("verdict = 'whole'"), "tag", "left_semi"),
        whole["chains"] if whole else 0,
        whole["started"] if whole else 0,
        sum(row["started"] - row["written"] for row in lacking),
        notes,
        sum(row["chains"] for verdict, row in sums.items() if verdict != "whole"),
        error,
    )


def _nothing_finishes(
    rows: Rows,
    proof: Proof,
    count: int,
    source: tuple[Output, DataFrame],
    started: DataFrame,
) -> Settled:
    """Return notes for the chains of missing rows, where nothing else tells chains apart."""
    error = output_differs(rows, proof, count, source)
    if not _names_all(error.found):
        raise error
    notes = of_found(rows, error.found, started)
    return Settled(started, 0, 0, 0, notes, error.found.missing, error)


def _names_all(found: MissingRows | None) -> bool:
    return found is not None and 0 < found.missing == found.named


def _verdicts(started: DataFrame, read: DataFrame, written: DataFrame | None) -> DataFrame:
    """Compare chains: what was started, what the job read, and what it wrote, if that is known.

    Returns:
        ``tag`` and ``verdict``: ``whole``; ``lacking``, as the input lacked units; ``differs``.
        The counts ``started``, ``read`` and ``written``, and ``due``, what the job had to write.
        ``xor`` and ``sum`` of what was written, and ``lost_xor`` and ``lost_sum`` of what is not.
    """
    sides = {"started": started, "read": read, "written": written}
    parts = [
        frame.select("tag", F.struct(*SUMS).alias("sums"), F.lit(side).alias("side"))
        for side, frame in sides.items()
        if frame is not None
    ]
    united = reduce(lambda one, other: one.union(other), parts)
    chains = united.groupBy("tag").pivot("side", list(sides)).agg(F.first("sums"))
    if written is None:
        is_started = F.col("started").isNotNull()
        chains = chains.withColumn("written", F.when(is_started, F.col("read")))
    # Rows of chains that failed at the start are in the input, and of no concern.
    chains = chains.where("started IS NOT NULL OR written IS NOT NULL")
    is_whole = F.col("written").eqNullSafe(F.col("started"))
    # An input with other rows than those that were started lacks no units: it is a wrong input.
    is_read = F.col("written").eqNullSafe(F.col("read")) & F.expr(
        "coalesce(read.count, 0) < started.count AND coalesce(read.xor, 1) <> 0"
    )
    verdict = F.when(is_whole, "whole").when(is_read, "lacking").otherwise("differs")
    zero = F.lit(0).cast("long")
    counts = [F.coalesce(F.col(f"{side}.count"), zero).alias(side) for side in sides]
    numbers = chains.select(
        "tag",
        verdict.alias("verdict"),
        "written.xor",
        F.coalesce("written.sum", zero).alias("sum"),
        F.col("started.xor").bitwiseXOR(F.coalesce("written.xor", zero)).alias("lost_xor"),
        (F.col("started.sum") - F.coalesce("written.sum", zero)).alias("lost_sum"),
        *counts,
    )
    return numbers.withColumn("due", F.least("started", "read"))


def _sums(verdicts: DataFrame) -> DataFrame:
    sums = [F.sum(side).alias(side) for side in ("started", "due", "written", "sum")]
    chains, ids = F.count(F.lit(1)).alias("chains"), F.bit_xor("xor").alias("xor")
    return verdicts.groupBy("verdict").agg(chains, ids, *sums)


def finish(
    rows: Rows, settled: Settled, step: str = "finish", started: DataFrame | None = None
) -> DataFrame:
    """Return the requests that finish chains, and start other units of these in the same stamp.

    Args:
        rows: The rows that finish.
        settled: Which chains finish.
        step: The step that the requests' ids name.
        started: ``tag`` and the columns `SUMS` of the units that start.
    """
    chains, others = settled.finished, [F.lit(None).cast("long").alias("started")]
    stamp = F.col("xor")
    if started is not None:
        starts = started.selectExpr("tag", "xor AS other", "count AS started")
        chains, others = chains.join(starts, "tag", "left"), [F.col("started")]
        stamp = stamp.bitwiseXOR(F.coalesce("other", F.lit(0).cast("long")))
    id = F.lit(request_id(rows, step)).alias("id")
    finished = F.col("count").alias("finished")
    op = F.lit("stamp").alias("op")
    return chains.select(op, "tag", id, stamp.alias("xor"), finished, *others)


def advance(
    rows: Rows, line: Line, following: Rows, settled: Settled, written: Output
) -> DataFrame:
    """Return the requests that finish units and start others; see `TrackedRows.advance`.

    Raises:
        ColumnsError: The output has a chain that was not started; nothing was kept.
    """
    known = settled.finished if rows.batch_id is not None else rows.record.chains(line)
    known = known.select("tag", F.lit(True).alias("known"))
    text = f" of the output of {following.name!r} was not started by {rows.name!r}"
    stranger = F.raise_error(F.concat(F.lit("xorack: chain "), "tag", F.lit(text)))

    def of_known(folded: DataFrame) -> DataFrame:
        tag = F.when(F.col("known"), F.col("tag")).otherwise(stranger)
        null = F.lit(None).cast("string")
        joined = folded.join(known, "tag", "left").withColumn("tag", tag).drop("known")
        return joined.withColumns({"detail": null, "failed": null})

    _, before = following.record.read()
    kept = keep_record(following, written, before or {"starts": False}, of_known)
    started = following.record.chains(kept).select("tag", *SUMS)
    return finish(rows, settled, "advance", started)
