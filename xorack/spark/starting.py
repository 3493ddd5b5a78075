"""Starting: keep the record of an output, and make the requests that create its chains."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from xorack.core.errors import StateError
from xorack.core.masking import masked_fields
from xorack.core.request import Request
from xorack.core.stamp import plain
from xorack.core.text import plural
from xorack.errors import ColumnsError
from xorack.spark.evidence import open_output, source_of, unit_in
from xorack.spark.folding import SUMS, fold_units, of_units, summarize, together
from xorack.spark.inputs import check_all_is_read, files_started
from xorack.spark.messages import plain_errors, readable
from xorack.spark.record import summary_in
from xorack.spark.run_chain import check_open, is_unit_of_run, parents_column
from xorack.spark.tables import pinned
from xorack.spark.types import types_of
from xorack.spark.units import (
    chain_columns,
    check_frame,
    check_names,
    column_named,
    has_columns,
    is_deterministic,
    with_tag,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from xorack.spark.evidence import Output, Place
    from xorack.spark.record import Header
    from xorack.spark.run import RowNames

_MAX_COUNTED = 1_000_000
"""Most rows among which `start` counts the units that occur more than once."""
NO_FACTS = ("string(NULL) AS detail", "string(NULL) AS failed")


def keep_start(rows: RowNames, written: Output, chains: DataFrame | None) -> Header:
    """Keep the record of a start. Return its header, or the header of the run's first start."""
    tracking = rows.tracking
    first, before = rows.record.read()
    if first is not None and first["name"] != rows.name:
        raise StateError(
            f"rows named {first['name']!r} have started chains {rows.prefix} before: "
            f"give {rows.name!r} another label"
        )
    check_open(rows)
    facts = None if chains is None else _facts(rows, check_frame("chains", chains))
    times = {"timeout": tracking.timeout, "idle_timeout": tracking.idle_timeout}
    header = {"starts": True, **times}
    with readable("written", "it cannot be read, or its record cannot be kept", tracking.mask):
        kept = keep_record(
            rows, written, before or header, lambda folded: _with_facts(rows, folded, facts)
        )
    if first is None and rows.batch_id is not None:
        rows.record.write_header(header, of_name=True)
    return kept


def fold_input(rows: RowNames, frame: DataFrame) -> DataFrame:
    """Fold the units of an input's rows by chain."""
    return fold_units(frame, rows.chain, of_units(unit_in(rows, frame)), rows.prefix)


def keep_record(
    rows: RowNames,
    written: Place,
    header: Header,
    complete: Callable[[DataFrame], DataFrame],
) -> Header:
    """Fold an output, complete its chains, and keep the record or compare with it."""
    tracking = rows.tracking
    written = pinned(tracking.spark, written)
    frame = open_output(tracking, written)
    check_names(frame)
    skipped = check_all_is_read(rows, written, frame)
    folded = complete(fold_input(rows, frame))
    if "summary" in header:
        before, summary = summary_in(header), summarize(folded)
        if summary != before:
            old, new = (plural(each.chains, "chain") for each in (before, summary))
            raise StateError(
                f"run {tracking.run_id!r} started {plural(before.count, 'row')} named "
                f"{rows.name!r} in {old} before, and now different rows: {summary.count:,} in "
                f"{new}; use another run_id"
            )
        with suppress(StateError):  # recreate a corrupt record
            rows.record.check(header)
            return header
    source = {
        **source_of(rows, written, frame),
        "files": files_started(frame),
        "skipped": skipped,
        "unit": list(rows.unit),
        "types": [*types_of(frame, rows.unit).values()],
        "chain_types": types_of(frame, rows.chain),
    }
    kept = rows.record.write(folded, {**header, **source})
    _warn_of_units(rows, frame, summary_in(kept).count)
    return kept


def _warn_of_units(rows: RowNames, frame: DataFrame, count: int) -> None:
    """Warn of units that change when they are recomputed, or that do not identify a row."""
    problems = []
    if not is_deterministic(frame):
        problems.append(
            "the frame that was started is not deterministic, as with rand(): write it, and start "
            "what was written"
        )
    elif count <= _MAX_COUNTED and rows.batch_id is None:
        by_unit = frame.select(unit_in(rows, frame).alias("unit")).groupBy("unit").count()
        sums = F.count(F.lit(1)), F.sum("count")
        with plain_errors():
            units, of_rows = by_unit.where("count > 1").agg(*sums).first() or (0, 0)
        if units:
            repeated = plural(units, "unit occurs", "units occur")
            problems.append(
                f"the unit columns {', '.join(rows.unit)} do not identify a row: {repeated} more "
                f"than once, in {of_rows:,} of {count:,} rows, and a row of these has a name only "
                "if all rows of its unit are lost; add columns that distinguish rows"
            )
    for problem in problems:
        warnings.warn(f"{rows.name}: {problem}", stacklevel=4)


def _facts(rows: RowNames, chains: DataFrame) -> DataFrame:
    """Return ``tag`` and ``fact`` of the chains in a frame: a struct of ``detail`` and ``failed``.

    The details are checked. Chains that are in several rows are not found yet.
    """
    columns = chain_columns(chains, rows.chain)
    texts = [
        column_named(chains, name)[0].cast("string").alias(name)
        if name not in rows.chain and has_columns(chains, [name])
        else F.lit(None).cast("string").alias(name)
        for name in ("detail", "failed")
    ]
    selected = chains.select(*columns, *texts)
    tagged = with_tag(selected, rows.prefix, selected.columns[: len(columns)])
    check = F.udf(partial(check_detail, mask=rows.tracking.mask), "string", useArrow=False)
    detail = check("tag", "detail").alias("detail")
    reason = F.substring(F.translate("failed", "\0", ""), 1, 250).alias("failed")
    return tagged.select("tag", F.struct(detail, reason).alias("fact"))


def check_detail(tag: str, text: str | None, mask: Collection[str] = ()) -> str | None:
    """Return the detail of a chain as JSON in ASCII, or raise `ColumnsError`."""
    try:
        detail = None if text is None else masked_fields(json.loads(text), mask)
        Request("create", tag, "id", plain(1), detail=detail)
    except (ValueError, RecursionError) as error:
        raise ColumnsError(f"detail of chain {tag}: {error}") from None
    return None if detail is None else json.dumps(detail)


def _with_facts(rows: RowNames, folded: DataFrame, facts: DataFrame | None) -> DataFrame:
    """Add the facts about chains. The only unit of a chain without rows is its root."""
    if facts is None:
        return folded.selectExpr("*", *NO_FACTS)
    # An aggregation needs fewer shuffles and sorts than a join does.
    rows_and_facts = folded.unionByName(facts, allowMissingColumns=True).groupBy("tag")
    merged = rows_and_facts.agg(*together(), F.collect_list("fact").alias("facts"))
    twice = F.raise_error(F.expr("concat('xorack: ', size(facts), ' rows about chain ', tag)"))
    fact = F.when(F.size("facts") > 1, twice).otherwise(F.get("facts", F.lit(0))).alias("fact")
    has_units = F.col("fact.failed").isNull() & F.col("count").isNotNull()
    root = F.xxhash64(F.lit(rows.namespace), F.col("tag"))
    none = F.lit(0).cast("long")
    empty = {"xor": root, "count": none, "sum": none}
    sums = [F.when(has_units, F.col(name)).otherwise(empty[name]).alias(name) for name in SUMS]
    return merged.select("tag", *SUMS, fact).select("tag", *sums, "fact.detail", "fact.failed")


def creates(rows: RowNames, header: Header) -> DataFrame:
    """Return the requests that create the chains of a record, and end chains without units."""
    end = "array('create', if(failed IS NULL, 'stamp', 'fail'))"
    op = f"explode(if(count > 0, array('create'), {end})) AS op"
    times = [f"double({json.dumps(header[name])})" for name in ("timeout", "idle_timeout")]
    parents = parents_column(rows.tracking) if is_unit_of_run(rows) else F.lit(None).cast("string")
    return (
        rows.record.chains(header)
        .withColumn("parents", parents)
        .selectExpr("*", op, f"'{rows.request_id('start')}' AS step")
        .selectExpr(
            *("op", "tag", "if(op = 'create', step, concat(step, '/end')) AS id"),
            "if(op = 'fail', NULL, xor) AS xor",
            "if(op = 'create', greatest(count, 1L), NULL) AS started",
            "if(op = 'stamp', 1L, NULL) AS finished",
            f"if(op = 'create', {times[0]}, NULL) AS timeout",
            f"if(op = 'create', {times[1]}, NULL) AS idle_timeout",
            "if(op = 'create', detail, NULL) AS detail",
            "if(op = 'create', parents, NULL) AS parents",
            "if(op = 'fail', failed, NULL) AS reason",
        )
    )
