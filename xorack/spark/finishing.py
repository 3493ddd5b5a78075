"""Finishing: what was written against what was started, and the requests that follow from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

from xorack.core.errors import ArgumentError, StateError, XorAckError
from xorack.spark.differing import find_missing, named_units, output_differs, with_ids
from xorack.spark.errors import OutputDiffersError
from xorack.spark.evidence import open_output, per_chain, source_of, unit_in
from xorack.spark.folding import SUMS, fold_units, folding, of_units, summarize
from xorack.spark.grouping import compare_chains, tells_chains
from xorack.spark.messages import plain_errors
from xorack.spark.record import summary_in
from xorack.spark.starting import NO_FACTS, keep_record, request_id
from xorack.spark.types import other_keys
from xorack.spark.units import chain_columns, has_columns, with_tag

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from xorack.spark.evidence import Output, Proof
    from xorack.spark.folding import Summary
    from xorack.spark.missing import MissingRows
    from xorack.spark.record import Line
    from xorack.spark.run import Names

_EXAMPLES = 5
_STATES = ("whole", "lacking", "differs")


class Settled(NamedTuple):
    """Which chains may finish: ``tag`` and the columns `SUMS`, and how many chains and units.

    Attributes:
        missing: The units that were started and that the input lacked.
        notes: The notes for chains that do not finish, if any: see `with_ids`.
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


def line_of(rows: Names, given: Output | None = None) -> Line:
    """Return the line of what was started: in a micro-batch, of the rows that are given.

    Raises:
        ArgumentError: They are not given.
        StateError: Nothing was started, or with other unit columns.
    """
    if rows.batch_id is not None:
        if given is None:
            raise ArgumentError("rows", problem="is required in a micro-batch: give its frame")
        return source_of(rows, given, open_output(rows.tracking.spark, given, "rows"))
    _, line = rows.record.read()
    if line is None:
        raise StateError(f"run {rows.tracking.run_id!r} has not started rows named {rows.name!r}")
    if line["unit"] != list(rows.unit):
        raise StateError(
            f"{rows.name!r} was started with the unit columns {', '.join(line['unit'])}, and now "
            f"they are {', '.join(rows.unit)}: give the same ones, in the same order"
        )
    return line


def check_last(rows: Names, following: str | None = None) -> None:
    """Check that no other name follows these rows: both would end their chains.

    Raises:
        StateError: One does.
    """
    other = rows.record.follower()
    if other not in (None, following):
        raise StateError(f"rows named {other!r} follow {rows.name!r} in this run: finish these")


@contextmanager
def settle(rows: Names, line: Line, proof: Proof, given: Output | None) -> Iterator[Settled]:
    """Compare the evidence of an output with what was started; see `TrackedRows.finish`."""
    with ExitStack() as stack:

        def cache(frame: DataFrame) -> DataFrame:
            stack.callback(frame.unpersist)
            return frame.persist()

        if given is not None and rows.batch_id is not None:
            yield _settle_batch(rows, proof, given, cache)
            return
        try:
            yield _settle_run(rows, line, proof, given, cache)
        except Exception:
            rows.record.check(line)
            raise


def _settle_batch(rows: Names, proof: Proof, given: Output, cache: _Cache) -> Settled:
    """Compare a micro-batch's output with its rows, which are chains or parts of chains."""
    frame = open_output(rows.tracking.spark, given, "rows")
    finished = cache(_fold(rows, frame))
    summary = summarize(finished)
    if not _agrees(rows, proof, summary, finished, given):
        found = find_missing(rows, proof, summary.count, frame)
        raise output_differs(rows, proof, summary.count, (given, found))
    return Settled(finished, summary.chains, summary.count)


def _agrees(
    rows: Names, proof: Proof, summary: Summary, chains: DataFrame, given: Output | None
) -> bool:
    """Tell whether an output has the units of chains: in their own, where units may be equal."""
    agrees = proof.totals == summary.totals
    is_open = agrees and proof.outputs and not {*rows.chain} <= {*rows.unit}
    if not is_open or not tells_chains(rows, proof.outputs):
        return agrees
    with plain_errors():
        compared = compare_chains(chains, per_chain(rows, proof.outputs))
        if not compared.where("verdict <> 'agree'").take(1):
            return True
    if given is None:
        return False
    source = open_output(rows.tracking.spark, given, "rows")
    if not _has_units_apart(rows, source):
        return False
    there = _fold(rows, source).join(chains, "tag", "left_semi")
    return summarize(there) == summarize(chains)  # the job has changed the chain columns alone


def _has_units_apart(rows: Names, source: DataFrame) -> bool:
    """Tell whether no unit is in two chains: then totals are evidence of each chain's units."""
    if {*rows.chain} <= {*rows.unit}:
        return True
    if not has_columns(source, rows.chain):
        return False
    chain = F.struct(*chain_columns(source, rows.chain)).alias("chain")
    units = source.select(unit_in(rows, source).alias("unit"), chain)
    shared = units.groupBy("unit").agg(F.expr("min(chain) < max(chain) AS shared")).where("shared")
    with plain_errors():
        return not shared.take(1)


def _fold(rows: Names, frame: DataFrame) -> DataFrame:
    return fold_units(frame, rows.chain, of_units(unit_in(rows, frame)), rows.prefix)


def _settle_run(
    rows: Names, line: Line, proof: Proof, given: Output | None, cache: _Cache
) -> Settled:
    """Compare an output with the record; if it differs, with what the job read, and by chain."""
    summary = summary_in(line)
    started = rows.record.chains(line).where("count > 0").select("tag", *SUMS)
    given = line["source"] if given is None else given
    if _agrees(rows, proof, summary, started, given):
        return Settled(started, summary.chains, summary.count)
    if given is None:
        unknown = ["unknown, as no rows= says what this job read"]
        raise OutputDiffersError(rows.name, summary.count, proof.totals.count, unknown)
    source = open_output(rows.tracking.spark, given, "rows")
    if told := other_keys(rows, line, (proof.totals, proof.outputs), source):
        raise OutputDiffersError(rows.name, summary.count, proof.totals.count, (), "", [told])
    found = find_missing(rows, proof, summary.count, source)
    chains = _by_chain(rows, proof, source, started, found, cache)
    if chains is None:
        error = output_differs(rows, proof, summary.count, (given, found))
        return _noted_only(error, started)
    whole, lacking, differs = _counted(chains)
    units = [_gone(rows, line, source)] if lacking.chains and line["keeps_units"] else []
    problem: OutputDiffersError | None = None
    if differs.chains:
        examples = chains.where("state = 'differs'").orderBy("tag").limit(_EXAMPLES).collect()
        texts = [f"{one['tag']} ({one['found']:,} of {one['due']:,})" for one in examples]
        number = f", and {differs.chains:,} of {summary.chains:,} chains differ"
        problem = output_differs(rows, proof, summary.count, (given, found), (texts, number))
        units += [problem.found._units] if problem.found else []
    elif found is not None:
        found.unpersist()
    return Settled(
        started.join(chains.where("state = 'whole'"), "tag", "left_semi"),
        whole.chains,
        whole.units,
        lacking.missing,
        with_ids(chains.where("state <> 'whole' AND n > 0"), units),
        lacking.chains + differs.chains,
        problem,
    )


def _by_chain(
    rows: Names,
    proof: Proof,
    source: DataFrame,
    started: DataFrame,
    found: MissingRows | None,
    cache: _Cache,
) -> DataFrame | None:
    """Judge chains; None if the output is not what was read, and does not tell chains apart."""
    differing = None if found is None else found._differing
    differs = differing is not None and any(differing.sums.values())
    has_tags = differing is not None and differing.has_tags
    if not has_tags and (not differs or has_columns(source, rows.chain)):
        read = cache(_fold(rows, source).join(started, "tag", "left_semi"))
        is_read = proof.totals == summarize(read).totals
        if is_read and (not differs or _has_units_apart(rows, source)):
            net = started.sparkSession.createDataFrame([], "tag string, net long")
            return cache(_judged(compare_chains(started, [read]), net))
    if differing is None or not differing.tells_chains:
        return None
    chains = compare_chains(started, per_chain(rows, proof.outputs))
    net = differing.groups.selectExpr("tag", "lack AS net")
    if not has_tags:  # what chains lack may be in others
        chains = chains.withColumn("difference", F.lit(0))
        net = started.selectExpr("tag", "count AS net")
    return cache(_judged(chains, net.groupBy("tag").agg(F.sum("net").alias("net"))))


class _Count(NamedTuple):
    """How many chains are in a state, the units that they started, and those that they lack."""

    chains: int = 0
    units: int = 0
    missing: int = 0


def _counted(chains: DataFrame) -> tuple[_Count, _Count, _Count]:
    """Count the chains of `_judged` that are whole, that lack units, and that differ."""
    sums = map(F.expr, ("count(1) AS chains", "sum(n) AS n", "sum(lack) AS lack"))
    with folding(chains.sparkSession):
        found = {row[0]: _Count(*row[1:]) for row in chains.groupBy("state").agg(*sums).collect()}
    whole, lacking, differs = (found.get(state, _Count()) for state in _STATES)
    return whole, lacking, differs


def _noted_only(error: OutputDiffersError, started: DataFrame) -> Settled:
    """Finish no chain, but note in those that lack rows which rows these are.

    Only the missing rows tell chains apart here: unless all are named, raises the error.
    """
    found = error.found
    if found is None or found.missing == 0 or found.named < found.missing:
        raise error
    lacking = named_units([found._units]).withColumnRenamed("n", "lack")
    known = started.selectExpr("tag", "count AS n", "'differs' AS state")
    notes = lacking.join(known, "tag")
    return Settled(started, 0, 0, 0, notes, found.missing, error)


def _gone(rows: Names, line: Line, source: DataFrame) -> DataFrame:
    """Return the units that the record keeps, and that the input lacks."""
    there = source.withColumn("xorack_unit_", unit_in(rows, source))
    kept = rows.record.units(line).toDF(*rows.chain, "xorack_unit_")
    names = ["xorack_unit_", "xorack_tag_"]
    kept, there = (
        with_tag(one, rows.prefix, rows.chain, names[1]).select(names) for one in (kept, there)
    )
    return kept.join(there, names, "left_anti")


def _judged(chains: DataFrame, net: DataFrame) -> DataFrame:
    """Add ``state``: ``whole``; ``lacking``, as the input lacked units; ``differs``.

    Args:
        chains: See `compare_chains`.
        net: ``tag`` and ``net``, the units that the output lacks, of the chains in which it is not
            what was read.

    Returns:
        The chains; ``due`` is what the job had to write.
    """
    state = """
        CASE WHEN verdict = 'agree' THEN 'whole'
        WHEN net IS NULL AND verdict IN ('missing', 'short') THEN 'lacking'
        ELSE 'differs' END AS state"""
    due = "least(n, found + coalesce(net, 0)) AS due"
    return chains.join(net, "tag", "left").selectExpr("*", state, due)


def finish(
    rows: Names, settled: Settled, step: str = "finish", started: DataFrame | None = None
) -> DataFrame:
    """Return the requests that finish chains, and start other units of these in the same stamp.

    Args:
        rows: The rows that finish.
        settled: Which chains finish.
        step: The step that the requests' ids name.
        started: ``tag`` and the columns `SUMS` of the units that start.
    """
    chains, others = settled.finished, ("xor", "bigint(NULL) AS started")
    if started is not None:
        starts = started.selectExpr("tag", "xor AS other", "count AS started")
        chains = chains.join(starts, "tag", "left")
        others = ("xor ^ coalesce(other, 0L) AS xor", "started")
    id = f"'{request_id(rows, step)}' AS id"
    return chains.selectExpr("'stamp' AS op", "tag", id, "count AS finished", *others)


def advance(
    rows: Names, line: Line, following: Names, settled: Settled, written: Output
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
        joined = folded.join(known, "tag", "left").withColumn("tag", tag).drop("known")
        return joined.selectExpr("*", *NO_FACTS)

    _, before = following.record.read()
    given = {"starts": False, "follows": rows.name}
    kept = keep_record(following, written, before or given, of_known)
    started = following.record.chains(kept).select("tag", *SUMS)
    return finish(rows, settled, "advance", started)
