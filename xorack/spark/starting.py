"""Starting: the record of what was written, and the requests that create its chains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from xorack.spark.errors import LabelInUse, RowsChanged
from xorack.spark.evidence import open_output, unit_of
from xorack.spark.folding import fold_chains, fold_units
from xorack.spark.record import Record, Summary, folder_part, read_line, summarize, write_line
from xorack.spark.units import chain_columns, column_named, has_columns, tag_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from xorack.spark.evidence import Output
    from xorack.spark.rows import TrackedRows

__all__ = [
    "cells_of",
    "claim_of",
    "creates",
    "keep_record",
    "keep_start",
    "record_of",
    "request_id",
]

_DETAIL_BYTES = 4096


def record_of(rows: TrackedRows) -> Record:
    """Return the record of rows."""
    folder = f"{rows.tracking.folder(rows.label)}/{folder_part('name', rows.name)}"
    if rows.batch_id is not None:
        folder += f"/{folder_part('batch', str(rows.batch_id))}"
    return Record(rows.tracking.spark, folder)


def cells_of(rows: TrackedRows) -> int | None:
    """Return the cells of the stamps of rows that start: None for plain stamps."""
    return None if rows.tracking.stamps == "plain" else rows.tracking.cells


def keep_start(
    rows: TrackedRows, written: Output, chains: DataFrame | None
) -> tuple[Summary, dict[str, Any]]:
    """Keep the record of a start; return its summary, and the facts of this run's first start."""
    cells = cells_of(rows)
    claim = {"name": rows.name, "cells": cells}
    first = claim_of(rows)
    if first is not None and first["name"] != rows.name:
        raise LabelInUse(
            f"rows named {first['name']!r} have started chains {rows.prefix} before: "
            f"give {rows.name!r} another label"
        )
    if first is not None and first["cells"] != cells:
        raise RowsChanged(
            f"run {rows.tracking.run_id!r} started {rows.name!r} with {_form(first['cells'])} "
            f"before, and now with {_form(cells)}"
        )
    facts = None if chains is None else _facts(rows, chains)
    times = {"timeout": rows.tracking.timeout, "idle_timeout": rows.tracking.idle_timeout}
    kept = keep_record(
        rows, written, {**times, "cells": cells, "has_facts": facts is not None}, facts
    )
    if first is None:
        write_line(rows.tracking.spark, _claim_folder(rows), claim)
    return kept


def keep_record(
    rows: TrackedRows, written: Output, given: dict[str, Any], facts: DataFrame | None = None
) -> tuple[Summary, dict[str, Any]]:
    """Fold what was written and keep the record, or compare it with the record that is there.

    Raises:
        RowsChanged: The record is of other rows.
    """
    tracking, record = rows.tracking, record_of(rows)
    frame = open_output(tracking.spark, written)
    unit = unit_of(rows, frame)
    before = record.read()
    if before is not None:
        folded = fold_units(frame, rows.chain, unit, rows.prefix)
        folded = folded.withColumn("fold", F.lit(None).cast("binary"))
        summary = summarize(_with_facts(rows, folded, facts))
        if summary != before[0]:
            raise RowsChanged(
                f"run {tracking.run_id!r} started {before[0].totals.rows:,} rows named "
                f"{rows.name!r} in {before[0].chains:,} chains before, and now others: "
                f"{summary.totals.rows:,} in {summary.chains:,}; use another run_id"
            )
        return before
    folded = fold_chains(frame, rows.chain, unit, rows.prefix, given["cells"])
    kept = {**given, "source": written if isinstance(written, str) else None}
    return record.write(_with_facts(rows, folded, facts), kept), kept


def claim_of(rows: TrackedRows) -> dict[str, Any] | None:
    """Return which name starts the chains of a label, and with how many cells."""
    return read_line(rows.tracking.spark, _claim_folder(rows))


def _claim_folder(rows: TrackedRows) -> str:
    return f"{rows.tracking.folder(rows.label)}/started_by"


def _form(cells: int | None) -> str:
    return "plain stamps" if cells is None else f"stamps of {cells} cells"


def _facts(rows: TrackedRows, chains: DataFrame) -> DataFrame:
    """Return ``tag``, ``detail`` and ``failed`` of a frame of chains."""
    columns = chain_columns(chains, rows.chain)
    texts = [
        column_named(chains, name)[0].cast("string").alias(name)
        if has_columns(chains, [name])
        else F.lit(None).cast("string").alias(name)
        for name in ("detail", "failed")
    ]
    selected = chains.select(*columns, *texts)
    tag = tag_column(selected, rows.prefix, len(columns)).alias("tag")
    # Spark writes the object again, so what it reads leniently goes out as valid JSON.
    detail = F.get_json_object("detail", "$")
    wrong = F.raise_error(
        F.concat(
            F.lit("xorack: detail of chain "),
            F.col("tag"),
            F.lit(f" is not a JSON object of at most {_DETAIL_BYTES} bytes"),
        )
    )
    is_wrong = F.col("detail").isNotNull() & (
        detail.isNull() | ~detail.startswith("{") | (F.octet_length(detail) > _DETAIL_BYTES)
    )
    reason = F.substring("failed", 1, 250)
    return (
        selected.select(tag, "detail", "failed")
        .select(
            "tag", F.when(is_wrong, wrong).otherwise(detail).alias("detail"), reason.alias("failed")
        )
        .dropDuplicates(["tag"])
    )


def _with_facts(rows: TrackedRows, folded: DataFrame, facts: DataFrame | None) -> DataFrame:
    """Add the facts about chains. A chain with nothing started has its root as its one unit."""
    if facts is None:
        null = F.lit(None).cast("string")
        return folded.withColumn("detail", null).withColumn("failed", null)
    has_units = F.col("failed").isNull() & F.col("count").isNotNull()
    root = F.xxhash64(F.lit(rows.name), F.col("tag"))
    return folded.join(facts, "tag", "full_outer").select(
        "tag",
        F.when(has_units, F.col("units")).otherwise(root).alias("units"),
        F.when(has_units, F.col("count")).otherwise(F.lit(0).cast("long")).alias("count"),
        F.when(has_units, F.col("fold")).alias("fold"),
        "detail",
        "failed",
    )


def creates(rows: TrackedRows, facts: dict[str, Any]) -> DataFrame:
    """Return the requests that create the chains of a record, and end those without units."""
    chains = record_of(rows).chains()
    step = request_id(rows, "start")
    number = F.col("count")
    created = chains.select(
        F.lit("create").alias("op"),
        "tag",
        F.lit(step).alias("id"),
        "units",
        "fold",
        F.greatest(number, F.lit(1).cast("long")).alias("started"),
        F.lit(facts["timeout"]).cast("double").alias("timeout"),
        F.lit(facts["idle_timeout"]).cast("double").alias("idle_timeout"),
        "detail",
    )
    if not facts["has_facts"]:
        return created
    is_failed = F.col("failed").isNotNull()
    ended = chains.where(number == 0).select(
        F.when(is_failed, "fail").otherwise("stamp").alias("op"),
        "tag",
        F.lit(f"{step}/end").alias("id"),
        "units",
        "fold",
        F.when(~is_failed, F.lit(1).cast("long")).alias("finished"),
        F.col("failed").alias("reason"),
    )
    return created.unionByName(ended, allowMissingColumns=True)


def request_id(rows: TrackedRows, step: str) -> str:
    """Return the id of a step's requests: the same whenever the step is repeated."""
    batch = "" if rows.batch_id is None else f"/{rows.batch_id}"
    return f"{rows.name}/{step}{batch}"
