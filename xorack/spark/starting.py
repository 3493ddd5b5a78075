"""Starting: the record of what was written, and the requests that create its chains."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from xorack.core.errors import ColumnsError, StateError
from xorack.core.request import Request
from xorack.core.stamp import plain
from xorack.spark.evidence import open_output, unit_of
from xorack.spark.folding import fold_chains
from xorack.spark.record import Summary, summarize
from xorack.spark.units import chain_columns, column_named, has_columns, tag_column

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from xorack.spark.evidence import Output
    from xorack.spark.names import Rows
    from xorack.spark.record import Line

__all__ = ["cells_of", "check_details", "creates", "keep_record", "keep_start", "request_id"]


def cells_of(rows: Rows) -> int | None:
    """Return the cells of the stamps of rows that start: None for plain stamps."""
    return None if rows.tracking.stamps == "plain" else rows.tracking.cells


def keep_start(rows: Rows, written: Output, chains: DataFrame | None) -> tuple[Summary, Line]:
    """Keep the record of a start; return its summary, and the facts of this run's first start."""
    tracking, cells = rows.tracking, cells_of(rows)
    first, before = rows.record.read()
    if first is not None and first["name"] != rows.name:
        raise StateError(
            f"rows named {first['name']!r} have started chains {rows.prefix} before: "
            f"give {rows.name!r} another label"
        )
    if first is not None and first["cells"] != cells:
        raise StateError(
            f"run {tracking.run_id!r} started {rows.name!r} with {_form(first['cells'])} "
            f"before, and now with {_form(cells)}"
        )
    facts = None if chains is None else _facts(rows, chains)
    times = {"timeout": tracking.timeout, "idle_timeout": tracking.idle_timeout}
    given = {"starts": True, "cells": cells, **times}
    kept = keep_record(
        rows, written, before or given, lambda folded: _with_facts(rows, folded, facts)
    )
    if first is None and rows.batch_id is not None:
        rows.record.claim(given)
    return kept


def keep_record(
    rows: Rows, written: Output, line: Line, complete: Callable[[DataFrame], DataFrame]
) -> tuple[Summary, Line]:
    """Fold what was written and keep the record, or compare it with the record that is there.

    Args:
        rows: The rows that start.
        written: What was written.
        line: The record's line if it is there; else the facts to keep, with the ``cells`` of the
            stamps.
        complete: Makes the chains of the record of those of the fold.

    Raises:
        StateError: The record is of other rows.
    """
    tracking = rows.tracking
    frame = open_output(tracking.spark, written)
    unit = unit_of(rows, frame)
    if "summary" not in line:
        folded = fold_chains(frame, rows.chain, unit, rows.prefix, line["cells"])
        line = {**line, "source": written if isinstance(written, str) else None}
        return rows.record.write(complete(folded), line), line
    before = Summary(*line["summary"])
    # Without stamps, the fold is the same and cheaper.
    summary = summarize(complete(fold_chains(frame, rows.chain, unit, rows.prefix, None)))
    if summary != before:
        raise StateError(
            f"run {tracking.run_id!r} started {before.rows:,} rows named {rows.name!r} in "
            f"{before.chains:,} chains before, and now others: {summary.rows:,} in "
            f"{summary.chains:,}; use another run_id"
        )
    return before, line


def _form(cells: int | None) -> str:
    return "plain stamps" if cells is None else f"stamps of {cells} cells"


def _facts(rows: Rows, chains: DataFrame) -> DataFrame:
    """Return ``tag``, ``detail`` and ``failed`` of a frame of chains."""
    columns = chain_columns(chains, rows.chain)
    texts = [
        column_named(chains, name)[0].cast("string").alias(name)
        if name not in rows.chain and has_columns(chains, [name])
        else F.lit(None).cast("string").alias(name)
        for name in ("detail", "failed")
    ]
    selected = chains.select(*columns, *texts)
    tag = tag_column(selected, rows.prefix, len(columns)).alias("tag")
    reason = F.substring(F.translate("failed", "\0", ""), 1, 250)
    number = F.count(F.lit(1))
    message = F.concat(F.lit("xorack: "), number.cast("string"), F.lit(" rows about chain "), "tag")
    return (
        selected.select(tag, "detail", reason.alias("failed"))
        .groupBy("tag")
        .agg(
            F.when(number > 1, F.raise_error(message)).otherwise(F.first("detail")).alias("detail"),
            F.first("failed").alias("failed"),
        )
        .mapInArrow(check_details, "tag string, detail string, failed string")
    )


def check_details(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the column ``detail`` as JSON in ASCII, or raise `ColumnsError`."""
    import pyarrow as pa

    for batch in batches:
        tag, detail, failed = batch.columns
        texts = [_detail(*pair) for pair in zip(tag.to_pylist(), detail.to_pylist(), strict=True)]
        columns = [tag, pa.array(texts, pa.string()), failed]
        yield pa.RecordBatch.from_arrays(columns, batch.schema.names)


def _detail(tag: str, text: str | None) -> str | None:
    """Return the detail of a chain as JSON in ASCII."""
    try:
        detail = None if text is None else json.loads(text)
        Request("create", tag, "id", plain(1), detail=detail)
    except (ValueError, RecursionError) as error:
        raise ColumnsError(f"detail of chain {tag}: {error}") from None
    return None if detail is None else json.dumps(detail)


def _with_facts(rows: Rows, folded: DataFrame, facts: DataFrame | None) -> DataFrame:
    """Add the facts about chains. A chain with nothing started has its root as its one unit."""
    if facts is None:
        null = F.lit(None).cast("string")
        return folded.withColumn("detail", null).withColumn("failed", null)
    has_units = F.col("failed").isNull() & F.col("count").isNotNull()
    root = F.xxhash64(F.lit(rows.salt), F.col("tag"))
    return folded.join(facts, "tag", "full_outer").select(
        "tag",
        F.when(has_units, F.col("units")).otherwise(root).alias("units"),
        F.when(has_units, F.col("count")).otherwise(F.lit(0).cast("long")).alias("count"),
        F.when(has_units, F.col("fold")).alias("fold"),
        "detail",
        "failed",
    )


def creates(rows: Rows, facts: Line) -> DataFrame:
    """Return the requests that create the chains of a record, and end those without units."""
    step, number = request_id(rows, "start"), F.col("count")
    create, end = F.lit("create"), F.when(F.col("failed").isNull(), "stamp").otherwise("fail")
    op = F.when(number > 0, F.array(create)).otherwise(F.array(create, end))
    requests = rows.record.chains().withColumn("op", F.explode(op))
    is_create = F.col("op") == "create"
    one = F.lit(1).cast("long")
    return requests.select(
        "op",
        "tag",
        F.when(is_create, step).otherwise(f"{step}/end").alias("id"),
        "units",
        "fold",
        F.when(is_create, F.greatest(number, one)).alias("started"),
        F.when(F.col("op") == "stamp", one).alias("finished"),
        F.when(is_create, F.lit(facts["timeout"]).cast("double")).alias("timeout"),
        F.when(is_create, F.lit(facts["idle_timeout"]).cast("double")).alias("idle_timeout"),
        F.when(is_create, F.col("detail")).alias("detail"),
        F.when(F.col("op") == "fail", F.col("failed")).alias("reason"),
    )


def request_id(rows: Rows, step: str) -> str:
    """Return the id of a step's requests: the same whenever the step is repeated."""
    batch = "" if rows.batch_id is None else f"/{rows.batch_id}"
    return f"{rows.name}/{step}{batch}"
