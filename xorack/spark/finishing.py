"""Finishing: compare the output with what was started, and make the requests that follow.

`decide` returns one of `Agrees`, `Lost` and `Differs`. `xorack.spark.rows` sends their requests,
and returns a report or raises.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

from xorack.core.errors import ArgumentError, StateError
from xorack.errors import ColumnsError
from xorack.spark import tables
from xorack.spark.differing import Differing
from xorack.spark.evidence import open_output, open_source, per_chain, source_of
from xorack.spark.folding import SUMS, Totals, summarize
from xorack.spark.inputs import files_started
from xorack.spark.messages import plain_errors
from xorack.spark.missing.comparing import caches, compare_chains, has_units_apart, tells_chains
from xorack.spark.outcome import Agrees, Finished
from xorack.spark.record import summary_in
from xorack.spark.starting import NO_FACTS, fold_input, keep_record
from xorack.spark.types import evidence_faults, other_keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from xorack.spark.evidence import Evidence, Output
    from xorack.spark.folding import Summary
    from xorack.spark.missing.comparing import Keep
    from xorack.spark.outcome import Outcome
    from xorack.spark.record import Header
    from xorack.spark.run import RowNames


class Job(NamedTuple):
    """The user's arguments about the job.

    These are the input, the frames, whether frames may be computed again, whether the output is
    published, and whether the call is `advance`. If the output is published, and in `advance`, all
    chains finish, or none.
    """

    source: Output | None = None
    frames: Sequence[DataFrame] | None = None
    recompute: bool = True
    publish: bool = False
    advances: bool = False

    def frames_of(self, rows: RowNames) -> Sequence[DataFrame]:
        """Return the frames to compute, the last frame first."""
        if not self.recompute:
            return ()
        return rows.tracking.jobs.frames(rows.namespace) if self.frames is None else self.frames


def header_of(rows: RowNames, source: Output | None = None) -> Header:
    """Return the header of the record.

    For a micro-batch, return a header that describes its source.
    """
    if rows.batch_id is not None:
        if source is None:
            raise ArgumentError("source", problem="is required in a micro-batch: give its frame")
        return source_of(rows, source, open_output(rows.tracking, source, "source"))
    _, header = rows.record.read()
    if header is None:
        raise StateError(f"run {rows.tracking.run_id!r} has not started rows named {rows.name!r}")
    if header["unit"] != list(rows.unit):
        raise StateError(
            f"{rows.name!r} was started with the unit columns {', '.join(header['unit'])}, and now "
            f"they are {', '.join(rows.unit)}: use the same columns in the same order"
        )
    return header


def check_last(rows: RowNames, following: str | None = None) -> None:
    """Raise an error if another name follows these rows, because both would finish their chains."""
    other = rows.record.follower()
    if other not in (None, following):
        raise StateError(f"rows named {other!r} follow {rows.name!r} in this run: finish these")


@contextmanager
def attempt(rows: RowNames, header: Header) -> Iterator[Keep]:
    """Yield the function of `caches`. If the block fails, report a corrupt record first."""
    with caches() as keep:
        try:
            yield keep
        except Exception:
            if rows.batch_id is None:
                rows.record.check(header)
            raise


def decide(rows: RowNames, header: Header, evidence: Evidence, job: Job, keep: Keep) -> Outcome:
    """Compare the evidence of an output with what was started; see `TrackedRows.finish`."""
    if rows.batch_id is not None:
        return _of_batch(rows, evidence, job, keep)
    return _of_run(rows, header, evidence, job, keep)


def _of_batch(rows: RowNames, evidence: Evidence, job: Job, keep: Keep) -> Outcome:
    """Compare a micro-batch's output with its rows.

    A batch has complete chains, or parts of chains.
    """
    assert job.source is not None
    source = open_output(rows.tracking, job.source, "source")
    chains = keep(fold_input(rows, source))
    summary = summarize(chains)
    started = Finished(chains, summary.chains, summary.count)
    if _agrees(rows, evidence, summary, chains) or (
        evidence.totals == summary.totals and has_units_apart(rows, source)
    ):
        rows.tracking.jobs.forget(rows.namespace)
        return Agrees(started)
    frames = job.frames_of(rows)
    known = rows, evidence, summary.totals, started, job.source, frames, keep
    faults = evidence_faults(rows, evidence.outputs, summary.totals)
    differing = Differing(*known, advances=job.advances, hint=faults.others)
    difference = differing.find(source)
    if difference.tells_chains(rows, source):
        return differing.by_units(difference)
    return differing.all_open(difference)


def _of_run(rows: RowNames, header: Header, evidence: Evidence, job: Job, keep: Keep) -> Outcome:
    """Compare an output with the record. If it differs, compare it with the input, and by chain."""
    summary = summary_in(header)
    chains = rows.record.chains(header).where("count > 0").select("tag", *SUMS)
    started = Finished(chains, summary.chains, summary.count)
    if _agrees(rows, evidence, summary, chains):
        rows.tracking.jobs.forget(rows.namespace)
        return Agrees(started)
    rows.record.check(header)
    place, other = job.source, header["source"]
    # If the output has all units, and only their chains differ, the started rows tell whether
    # units of two chains are equal. A copy of them does not.
    if evidence.totals == summary.totals:
        place, other = other, place
    place = other if place is None else place
    frames, earlier = job.frames_of(rows), rows.record.finished(header)
    known = rows, evidence, summary.totals, started, place, frames, keep
    faults = evidence_faults(rows, evidence.outputs, summary.totals)
    more = rows.record.may_have_sent(header)
    differing = Differing(*known, job.publish, earlier, more, job.advances, faults.others)
    if place is None:
        return differing.by_chain(differing.unknown("no source= says what this job read"))
    try:
        return _by_source(rows, header, place, differing, faults.misplaced)
    except (ArgumentError, ColumnsError) as error:
        # Chains that stay open get a note though the source cannot be compared.
        why = str(error).removeprefix("source: ")
        return differing.by_chain(differing.unknown(f"the source cannot be compared: {why}"))


def _by_source(
    rows: RowNames, header: Header, place: Output, differing: Differing, misplaced: str
) -> Outcome:
    """Compare an output that differs with the input of the job."""
    evidence, totals = differing.evidence, differing.totals
    if evidence.totals == Totals():  # the input may have lost all of its files
        source = open_source(rows, header, place)
    else:
        source = open_output(rows.tracking, place, "source")
    may_be_others = evidence.totals != totals or not has_units_apart(rows, source)
    if may_be_others and (keys := other_keys(rows, header, evidence, source, misplaced)):
        return differing.all_open(differing.unknown(keys=keys))
    before = {name: tuple(facts) for name, facts in header.get("files", {}).items()}
    is_changed = not before or files_started(source) != before
    # The units are equal, so only their chains differ.
    is_changed |= evidence.totals == totals
    if is_changed and (lost := differing.input_lost(source)) is not None:
        return lost
    if (at_start := tables.at_start(rows.tracking.spark, header, place)) is not None:
        source = open_output(rows.tracking, at_start, "source")
    # The files of a path that was started have the rows that were started.
    is_started = not is_changed and place == header["source"] and "/" in str(place)
    difference = differing.find(source, is_started=is_started)
    if difference.tells_chains(rows, source):
        return differing.by_units(difference)
    if not is_changed and (lost := differing.input_lost(source)) is not None:
        return lost
    return differing.by_chain(difference)


def _agrees(rows: RowNames, evidence: Evidence, summary: Summary, chains: DataFrame) -> bool:
    """Return whether an output has all units, and if it shows chains, each in its own chain."""
    if evidence.totals != summary.totals:
        return False
    if {*rows.chain} <= {*rows.unit} or not tells_chains(rows, evidence.outputs):
        return True
    with plain_errors():
        compared = compare_chains(chains, per_chain(rows, evidence.outputs))
        return not compared.where("verdict <> 'agree'").take(1)


def finish_requests(
    rows: RowNames, chains: DataFrame, step: str = "finish", started: DataFrame | None = None
) -> DataFrame:
    """Return the requests that finish chains, and start other units in the same stamp."""
    others: tuple[str, str] = ("xor", "bigint(NULL) AS started")
    if started is not None:
        starts = started.selectExpr("tag", "xor AS other", "count AS started")
        chains = chains.join(starts, "tag", "left")
        others = ("xor ^ coalesce(other, 0L) AS xor", "started")
    id = f"'{rows.request_id(step)}' AS id"
    return chains.selectExpr("'stamp' AS op", "tag", id, "count AS finished", *others)


def advance_requests(
    rows: RowNames, header: Header, following: RowNames, finished: DataFrame, written: Output
) -> DataFrame:
    """Return the requests that finish units and start the units of the next rows; see `advance`."""
    known = finished if rows.batch_id is not None else rows.record.chains(header)
    known = known.select("tag", F.lit(True).alias("known"))
    text = f" of the output of {following.name!r} was not started by {rows.name!r}"
    unknown = F.raise_error(F.concat(F.lit("xorack: chain "), "tag", F.lit(text)))

    def of_known(folded: DataFrame) -> DataFrame:
        tag = F.when(F.col("known"), F.col("tag")).otherwise(unknown)
        joined = folded.join(known, "tag", "left").withColumn("tag", tag).drop("known")
        return joined.selectExpr("*", *NO_FACTS)

    _, before = following.record.read()
    facts = {"starts": False, "follows": rows.name}
    kept = keep_record(following, written, before or facts, of_known)
    started = following.record.chains(kept).select("tag", *SUMS)
    return finish_requests(rows, finished, "advance", started)
