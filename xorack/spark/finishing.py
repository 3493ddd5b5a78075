"""Finishing: what was written against what was started, and the requests that follow from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

from xorack.core.errors import ArgumentError, StateError
from xorack.spark.errors import OutputDiffersError
from xorack.spark.evidence import forget, open_output, per_chain, source_of, unit_in
from xorack.spark.folding import SUMS, fold_units, folding, of_units, summarize
from xorack.spark.messages import plain_errors
from xorack.spark.missing.comparing import compare_chains, tells_chains
from xorack.spark.missing.telling import find_missing, hex_of, named_units, output_differs
from xorack.spark.record import summary_in
from xorack.spark.starting import NO_FACTS, keep_record, request_id
from xorack.spark.types import other_keys
from xorack.spark.units import chain_columns, has_columns, with_tag

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from xorack.spark.evidence import Output, Proof, forget
    from xorack.spark.folding import Summary
    from xorack.spark.record import Header
    from xorack.spark.run import RowNames

_EXAMPLES = 5


class Whole(NamedTuple):
    """All chains may finish: ``tag`` and the columns `SUMS`, and how many chains and units."""

    finished: DataFrame
    chains: int
    units: int


class Partly(NamedTuple):
    """Some chains may finish, the others get a note.

    Attributes:
        finished: As in `Whole`, as are the next two.
        missing: The units that the input lacked.
        notes: See `xorack.spark.missing.telling.notes`; how many are `noted`.
        error: Why chains do not finish, unless the input lacked their units.
    """

    finished: DataFrame
    chains: int
    units: int
    missing: int
    notes: DataFrame
    noted: int
    error: OutputDiffersError | None


class Nothing(NamedTuple):
    """No chain may finish. Those of the rows that are named get a note."""

    error: OutputDiffersError
    notes: DataFrame | None = None
    noted: int = 0


Settled = Whole | Partly | Nothing
_Cache = Callable[["DataFrame"], "DataFrame"]


def header_of(rows: RowNames, given: Output | None = None) -> Header:
    """Return the header of what was started: in a micro-batch, of the rows that are given.

    Raises:
        ArgumentError: They are not given.
        StateError: Nothing was started, or with other unit columns.
    """
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
    """Check that no other name follows these rows: both would end their chains.

    Raises:
        StateError: One does.
    """
    other = rows.record.follower()
    if other not in (None, following):
        raise StateError(f"rows named {other!r} follow {rows.name!r} in this run: finish these")


@contextmanager
def settle(rows: RowNames, header: Header, proof: Proof, given: Output | None) -> Iterator[Settled]:
    """Compare the evidence of an output with what was started; see `TrackedRows.finish`."""
    with ExitStack() as stack:

        def cache(frame: DataFrame) -> DataFrame:
            stack.callback(frame.unpersist)
            return frame.persist()

        if given is not None and rows.batch_id is not None:
            yield _settle_batch(rows, proof, given, cache)
            return
        try:
            yield _settle_run(rows, header, proof, given, cache)
        except Exception:
            rows.record.check(header)
            raise


def _settle_batch(rows: RowNames, proof: Proof, given: Output, cache: _Cache) -> Whole | Nothing:
    """Compare a micro-batch's output with its rows, which are chains or parts of chains."""
    frame = open_output(rows.tracking.spark, given, "rows")
    finished = cache(_fold(rows, frame))
    summary = summarize(finished)
    if not _agrees(rows, proof, summary, finished, given):
        found = find_missing(rows, proof, summary.count, frame)
        return Nothing(output_differs(rows, proof, summary.count, (given, found)))
    forget(rows)
    return Whole(finished, summary.chains, summary.count)


def _agrees(
    rows: RowNames, proof: Proof, summary: Summary, chains: DataFrame, given: Output | None
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


def _has_units_apart(rows: RowNames, source: DataFrame) -> bool:
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


def _fold(rows: RowNames, frame: DataFrame) -> DataFrame:
    return fold_units(frame, rows.chain, of_units(unit_in(rows, frame)), rows.prefix)


def _settle_run(
    rows: RowNames, header: Header, proof: Proof, given: Output | None, cache: _Cache
) -> Settled:
    """Compare an output with the record; if it differs, with what the job read, and by chain."""
    summary = summary_in(header)
    started = rows.record.chains(header).where("count > 0").select("tag", *SUMS)
    given = header["source"] if given is None else given
    if _agrees(rows, proof, summary, started, given):
        forget(rows)
        return Whole(started, summary.chains, summary.count)
    if given is None:
        unknown = ["unknown, as no rows= says what this job read"]
        raise OutputDiffersError(rows.name, summary.count, proof.totals.count, unknown)
    source = open_output(rows.tracking.spark, given, "rows")
    if told := other_keys(rows, header, (proof.totals, proof.outputs), source):
        raise OutputDiffersError(rows.name, summary.count, proof.totals.count, (), "", [told])
    chains = _by_chain(rows, proof, source, started, cache)
    if chains is None:
        found = find_missing(rows, proof, summary.count, source)
        return _nothing(output_differs(rows, proof, summary.count, (given, found)), started)
    counted = _counted(cache(chains))
    whole, lacking, differing = (
        counted.get(state, (0, 0, 0)) for state in ("whole", "lacking", "differs")
    )
    units, problem = None, None
    if differing[0]:
        found = find_missing(rows, proof, summary.count, source)
        first = chains.where("state = 'differs'").orderBy(F.expr("n = 0"), "tag")
        some = first.limit(_EXAMPLES).collect()
        texts = [f"{one['tag']} ({one['found']:,} of {one['due']:,})" for one in some]
        number = f", and {differing[0]:,} of {summary.chains:,} chains differ"
        problem = output_differs(rows, proof, summary.count, (given, found), (texts, number))
        units = _named(problem)
    notes = _notes(rows, header, source, chains.where("state <> 'whole' AND n > 0"), units)
    finished = started.join(chains.where("state = 'whole'"), "tag", "left_semi")
    noted = lacking[0] + differing[0]
    return Partly(finished, whole[0], whole[1], lacking[2], notes, noted, problem)


def _by_chain(
    rows: RowNames, proof: Proof, source: DataFrame, started: DataFrame, cache: _Cache
) -> DataFrame | None:
    """Compare chains with what was started and what was read; None if the output tells none apart.

    Returns:
        What `compare_chains` returns, ``due``, what the job had to write, and ``state``: ``whole``;
        ``lacking``, as the input lacked units; ``differs``.
    """
    read, held = started, None
    if has_columns(source, rows.chain):
        read = cache(_fold(rows, source).join(started, "tag", "left_semi"))
        if proof.totals == summarize(read).totals and _has_units_apart(rows, source):
            held = [read]
    if held is None:
        if not tells_chains(rows, proof.outputs):
            return None
        held = per_chain(rows, proof.outputs)
    chains = compare_chains(started, held)
    there = read.selectExpr("tag", "xor AS read_xor", "count AS read", "sum AS read_sum")
    state = """
        CASE WHEN verdict = 'agree' THEN 'whole'
        WHEN verdict IN ('missing', 'short') AND coalesce(read, 0) = found AND
            coalesce(read_xor, 0) = (own ^ difference) THEN 'lacking'
        ELSE 'differs' END AS state"""
    due = "if(n = 0, 0, least(n, coalesce(read, 0))) AS due"
    return chains.join(there, "tag", "left").selectExpr(*chains.columns, state, due)


def _counted(chains: DataFrame) -> dict[str, tuple[int, int, int]]:
    """Count by state: chains, the units that they started, and those that they lack."""
    sums = map(F.expr, ("count(1) AS chains", "sum(n) AS n", "sum(lack) AS lack"))
    with folding(chains.sparkSession):
        return {row[0]: tuple(row[1:]) for row in chains.groupBy("state").agg(*sums).collect()}


def _named(error: OutputDiffersError) -> DataFrame | None:
    """Return the units of the missing rows, by chain, if all are named."""
    found = error.found
    if found is None or found.named < found.missing or not found.missing:
        return None
    return named_units(found._lost)


def _nothing(error: OutputDiffersError, started: DataFrame) -> Nothing:
    """Finish no chain, but note in those that lack rows which rows these are."""
    units = _named(error)
    if units is None:
        return Nothing(error)
    known = started.selectExpr("tag", "count AS n", "false AS is_lacking", "count AS found")
    return Nothing(error, known.join(units, "tag"), error.found.missing)


def _notes(
    rows: RowNames, header: Header, source: DataFrame, chains: DataFrame, units: DataFrame | None
) -> DataFrame:
    """Add what is known of the units that chains lack: see `xorack.spark.missing.telling.notes`."""
    is_lacking = F.expr("state = 'lacking'")
    one = F.expr("lack = 1 AND difference <> 0 AND s = shiftright(difference, 32)")
    alone = F.when(is_lacking & one, F.array(hex_of("difference")))
    known = chains.select("tag", "n", "found", is_lacking.alias("is_lacking"), alone.alias("alone"))
    parts = [] if units is None else [units.selectExpr("*", "false AS is_lacking")]
    if header["keeps_units"] and chains.where("state = 'lacking'").take(1):
        gone = named_units(_gone(rows, header, source))
        parts.append(gone.selectExpr("*", "true AS is_lacking"))
    if not parts:
        return known.selectExpr("*", "bigint(NULL) AS named", "alone AS ids")
    both = reduce(lambda a, b: a.union(b), parts)
    joined = known.join(both, ["tag", "is_lacking"], "left")
    return joined.withColumn("ids", F.coalesce("ids", "alone"))


def _gone(rows: RowNames, header: Header, source: DataFrame) -> DataFrame:
    """Return the units that the record keeps, and that the input lacks."""
    there = source.withColumn("xorack_unit_", unit_in(rows, source))
    kept = rows.record.units(header).toDF(*rows.chain, "xorack_unit_")
    names = ["xorack_unit_", "xorack_tag_"]
    kept, there = (
        with_tag(one, rows.prefix, rows.chain, names[1]).select(names) for one in (kept, there)
    )
    return kept.join(there, names, "left_anti")


def finish(
    rows: RowNames, settled: Whole | Partly, step: str = "finish", started: DataFrame | None = None
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
    rows: RowNames, header: Header, following: RowNames, settled: Whole | Partly, written: Output
) -> DataFrame:
    """Return the requests that finish units and start others; see `TrackedRows.advance`.

    Raises:
        ColumnsError: The output has a chain that was not started; nothing was kept.
    """
    known = settled.finished if rows.batch_id is not None else rows.record.chains(header)
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
