"""Finishing: what was written against what was started, and the requests that follow from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import Window
from pyspark.sql import functions as F

from xorack.core.errors import ArgumentError, StateError
from xorack.errors import OutputDiffersError
from xorack.spark.evidence import forget, open_output, per_chain, source_of, unit_in
from xorack.spark.folding import SUMS, folding, summarize, totals_of
from xorack.spark.messages import plain_errors
from xorack.spark.missing.comparing import compare_chains, tells_chains
from xorack.spark.missing.telling import output_differs
from xorack.spark.record import summary_in
from xorack.spark.starting import NO_FACTS, fold_input, keep_record, request_id
from xorack.spark.types import other_keys
from xorack.spark.units import chain_columns, has_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from xorack.spark.evidence import Output, Proof
    from xorack.spark.folding import Summary
    from xorack.spark.record import Header
    from xorack.spark.run import RowNames

    Cache = Callable[[DataFrame], DataFrame]

_MAX_EXAMPLES = 5
_MAX_IDS = 100
"""Ids that a note has."""
_MAX_REASON = 200
"""Characters of the reason that a note has: a note has 1,024 bytes."""


class Decision(NamedTuple):
    """Which chains finish, and what is said of the others.

    Attributes:
        finished: ``tag`` and the columns `SUMS` of chains that finish, with all their `units`.
        missing: Units that the input of the job lost.
        notes: The requests that note on the others; how many are `noted`, at most.
        error: Why chains do not finish, unless the input lost their units.
    """

    finished: DataFrame | None = None
    chains: int = 0
    units: int = 0
    missing: int = 0
    notes: DataFrame | None = None
    noted: int = 0
    error: OutputDiffersError | None = None


def header_of(rows: RowNames, given: Output | None = None) -> Header:
    """Return the record's header; in a micro-batch, that of the given rows."""
    if rows.batch_id is not None:
        if given is None:
            raise ArgumentError("rows", problem="is required in a micro-batch: give its frame")
        return source_of(rows, given, open_output(rows.tracking.spark, given, "rows"))
    _, header = rows.record.read()
    if header is None:
        raise StateError(f"run {rows.tracking.run_id!r} has not started rows named {rows.name!r}")
    if header["unit"] != list(rows.unit):
        raise StateError(
            f"{rows.name!r} was started with the unit columns {', '.join(header['unit'])}, and now "
            f"they are {', '.join(rows.unit)}: give the same ones, in the same order"
        )
    return header


def check_last(rows: RowNames, following: str | None = None) -> None:
    """Check that no other name follows these rows, or raise: both would end their chains."""
    other = rows.record.follower()
    if other not in (None, following):
        raise StateError(f"rows named {other!r} follow {rows.name!r} in this run: finish these")


@contextmanager
def decide(
    rows: RowNames, header: Header, proof: Proof, given: Output | None
) -> Iterator[Decision]:
    """Compare the evidence of an output with what was started; see `TrackedRows.finish`."""
    with ExitStack() as stack:

        def cache(frame: DataFrame) -> DataFrame:
            stack.callback(frame.unpersist)
            return frame.persist()

        if given is not None and rows.batch_id is not None:
            yield _of_batch(rows, proof, given, cache)
            return
        try:
            yield _of_run(rows, header, proof, given, cache)
        except Exception:
            rows.record.check(header)
            raise


def _of_batch(rows: RowNames, proof: Proof, given: Output, cache: Cache) -> Decision:
    """Compare a micro-batch's output with its rows, which are chains or parts of chains."""
    frame = open_output(rows.tracking.spark, given, "rows")
    finished = cache(fold_input(rows, frame))
    summary = summarize(finished)
    if _agrees(rows, proof, summary, finished) or (
        proof.totals == summary.totals and _has_units_apart(rows, frame)
    ):
        forget(rows)
        return Decision(finished, summary.chains, summary.count)
    return Decision(error=output_differs(rows, proof, summary.count, (given, frame)))


def _agrees(rows: RowNames, proof: Proof, summary: Summary, chains: DataFrame) -> bool:
    """Tell whether an output has all units, and in their chains, as far as it tells."""
    if proof.totals != summary.totals:
        return False
    if {*rows.chain} <= {*rows.unit} or not tells_chains(rows, proof.outputs):
        return True
    with plain_errors():
        compared = compare_chains(chains, per_chain(rows, proof.outputs))
        return not compared.where("verdict <> 'agree'").take(1)


def _has_units_apart(rows: RowNames, source: DataFrame) -> bool:
    """Tell whether no unit is in two chains: then totals are evidence of each chain's units."""
    if {*rows.chain} <= {*rows.unit}:
        return True
    if not has_columns(source, rows.chain):
        return False
    chain = F.struct(*chain_columns(source, rows.chain)).alias("chain")
    units = source.select(unit_in(rows, source).alias("unit"), chain).groupBy("unit")
    with plain_errors():
        return not units.agg(F.expr("min(chain) < max(chain) AS shared")).where("shared").take(1)


def _of_run(
    rows: RowNames, header: Header, proof: Proof, given: Output | None, cache: Cache
) -> Decision:
    """Compare an output with the record; if it differs, with what the job read, and by chain."""
    summary = summary_in(header)
    started = rows.record.chains(header).where("count > 0").select("tag", *SUMS)
    given = header["source"] if given is None else given
    if _agrees(rows, proof, summary, started):
        forget(rows)
        return Decision(started, summary.chains, summary.count)
    if given is None:
        unknown = ["unknown, as no rows= says what this job read"]
        raise OutputDiffersError(rows.name, summary.count, proof.totals.count, unknown)
    source = open_output(rows.tracking.spark, given, "rows")
    may_be_others = proof.totals != summary.totals or not _has_units_apart(rows, source)
    if may_be_others and (text := other_keys(rows, header, proof, source)):
        raise OutputDiffersError(rows.name, summary.count, proof.totals.count, report=[text])

    def differs(*of_chains: Any) -> OutputDiffersError:
        error = output_differs(rows, proof, summary.count, (given, source), *of_chains)
        if error.found is None:  # is the record to blame?
            rows.record.check(header)
        return error

    chains = _by_chain(rows, proof, source, started, cache)
    if chains is None:
        problem = differs()
        if (found := problem.found) is None or not found.named == found.missing > 0:
            return Decision(error=problem)
        facts = "count AS started", "count AS found", "0L AS missing_count", "xor", "sum"
        all_chains = started.selectExpr("tag", "'differs' AS state", *facts)
        notes = _notes(rows, all_chains, problem, "inner")
        return Decision(notes=notes, noted=found.missing, error=problem)
    chains = cache(chains)
    sums = map(F.expr, ("count(1)", "sum(started)", "sum(missing_count)"))
    with folding(chains.sparkSession):
        counts = {one[0]: one[1:] for one in chains.groupBy("state").agg(*sums).collect()}
    finish, unread, differ = (counts.get(one, (0, 0, 0)) for one in ("agrees", "unread", "differs"))
    error: OutputDiffersError | None = None
    if differ[0]:
        first = chains.where("state = 'differs'").orderBy(F.expr("started = 0"), "tag")
        some = first.limit(_MAX_EXAMPLES).collect()
        texts = [f"{one['tag']} ({one['found']:,} of {one['due']:,})" for one in some]
        error = differs(texts, f", and {differ[0]:,} of {summary.chains:,} chains differ")
    notes = _notes(rows, chains.where("state <> 'agrees' AND started > 0"), error)
    finished = started.join(chains.where("state = 'agrees'"), "tag", "left_semi")
    noted = unread[0] + differ[0]
    return Decision(finished, finish[0], finish[1], unread[2], notes, noted, error)


def _by_chain(
    rows: RowNames, proof: Proof, source: DataFrame, started: DataFrame, cache: Cache
) -> DataFrame | None:
    """Compare chains; add ``due`` and ``state``: agrees, unread (the input lost units), differs."""
    read = started
    if has_columns(source, rows.chain):
        read = cache(fold_input(rows, source).join(started, "tag", "left_semi"))
    if read is not started and proof.totals == totals_of(read) and _has_units_apart(rows, source):
        held = [read]
    elif tells_chains(rows, proof.outputs):
        held = per_chain(rows, proof.outputs)
    else:
        return None
    chains = compare_chains(started, held)
    there = read.selectExpr("tag", "xor AS read_xor", "count AS read")
    state = """
        CASE WHEN verdict = 'agree' THEN 'agrees'
        WHEN verdict IN ('missing', 'short') AND coalesce(read, 0) = found AND
            coalesce(read_xor, 0) = (started_xor ^ xor) THEN 'unread'
        ELSE 'differs' END AS state"""
    due = "if(started = 0, 0, least(started, coalesce(read, 0))) AS due"
    return chains.join(there, "tag", "left").selectExpr(*chains.columns, state, due)


def _notes(
    rows: RowNames, chains: DataFrame, error: OutputDiffersError | None, how: str = "left"
) -> DataFrame:
    """Return the requests that note on chains what is missing, and why; ids only if all are."""
    found, why = (None, "") if error is None else (error.found, error.why)
    is_one = F.expr("missing_count = 1 AND xor <> 0 AND sum = shiftright(xor, 32)")
    is_unread = F.expr("state = 'unread'").alias("is_unread")
    alone = F.when(is_unread & is_one, F.array(_hex("xor"))).alias("ids")
    noted = chains.select("tag", "started", "found", is_unread, alone)
    if found is not None and found.named == found.missing > 0:
        units = _by_tag(found.tagged)
        noted = noted.join(units, "tag", how).withColumn("ids", F.coalesce("ids", "some"))
    else:
        noted = noted.withColumn("named", F.lit(None).cast("long"))
    where = """
        CASE WHEN is_unread THEN 'not in what the job read' WHEN named > 0 THEN 'not in the output'
        WHEN found = started THEN 'in the output, but others' ELSE 'in the output' END"""
    count = "if(is_unread, started - found, named)"
    numbers = f"coalesce({count}, found), started"
    text = F.expr(f"format_string('%,d of %,d units of {rows.name} are %s', {numbers}, {where})")
    is_told = F.lit(bool(why)) & F.expr("named > 0 AND NOT is_unread")
    because = F.when(is_told, f"; {why[:_MAX_REASON]}").otherwise("")
    noted = noted.withColumn("text", F.concat(text, because))
    id = F.concat(F.lit(f"{request_id(rows, 'finish')}/note/"), _hex(F.xxhash64("text", "ids")))
    facts = "text", "ids AS missing", f"{count} AS missing_count"
    return noted.withColumn("id", id).selectExpr("'note' AS op", "tag", "id", *facts)


def _by_tag(units: DataFrame) -> DataFrame:
    """Return how many units are ``named`` and up to 100 of them as ``some``, by ``tag``."""
    chain = Window.partitionBy("xorack_tag_")
    place = F.row_number().over(chain.orderBy("xorack_unit_")).alias("place")
    named = F.count("xorack_unit_").over(chain).alias("named")
    placed = units.select("xorack_tag_", "xorack_unit_", place, named)
    some = F.array_sort(F.collect_set(_hex("xorack_unit_"))).alias("some")
    groups = placed.where(f"place <= {_MAX_IDS}").groupBy("xorack_tag_", "named")
    return groups.agg(some).withColumnRenamed("xorack_tag_", "tag")


def _hex(unit: str | Column) -> Column:
    return F.lower(F.lpad(F.hex(unit), 16, "0"))


def finish(
    rows: RowNames, chains: DataFrame, step: str = "finish", started: DataFrame | None = None
) -> DataFrame:
    """Return the requests of a step that finish chains, and start other units in the same stamp."""
    others: tuple[str, str] = ("xor", "bigint(NULL) AS started")
    if started is not None:
        starts = started.selectExpr("tag", "xor AS other", "count AS started")
        chains = chains.join(starts, "tag", "left")
        others = ("xor ^ coalesce(other, 0L) AS xor", "started")
    id = f"'{request_id(rows, step)}' AS id"
    return chains.selectExpr("'stamp' AS op", "tag", id, "count AS finished", *others)


def advance(
    rows: RowNames, header: Header, following: RowNames, finished: DataFrame, written: Output
) -> DataFrame:
    """Return the requests that finish units and start others; see `TrackedRows.advance`."""
    known = finished if rows.batch_id is not None else rows.record.chains(header)
    known = known.select("tag", F.lit(True).alias("known"))
    text = f" of the output of {following.name!r} was not started by {rows.name!r}"
    unknown = F.raise_error(F.concat(F.lit("xorack: chain "), "tag", F.lit(text)))

    def of_known(folded: DataFrame) -> DataFrame:
        tag = F.when(F.col("known"), F.col("tag")).otherwise(unknown)
        joined = folded.join(known, "tag", "left").withColumn("tag", tag).drop("known")
        return joined.selectExpr("*", *NO_FACTS)

    _, before = following.record.read()
    given = {"starts": False, "follows": rows.name}
    kept = keep_record(following, written, before or given, of_known)
    started = following.record.chains(kept).select("tag", *SUMS)
    return finish(rows, finished, "advance", started)
