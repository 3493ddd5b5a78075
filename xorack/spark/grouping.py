"""Comparisons of what was started with what is there: chain by chain, and group by group.

The groups are those of the columns that a source and its outputs have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as F

from xorack.spark.errors import ColumnsError
from xorack.spark.evidence import evidence_of, unit_in, unit_of
from xorack.spark.folding import named, of_units
from xorack.spark.messages import plain_errors
from xorack.spark.solving import MOST_INDEPENDENT, MOST_SEARCHED, missing_units
from xorack.spark.storage import reads_plainly
from xorack.spark.units import chain_columns, column_named, has_columns, with_tag

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from xorack.spark.run import Names

MOST_SOLVED = 2_000
"""Units of a group that are brought together in a task."""
SOLVED = (
    f"(lack > 0 AND NOT moved AND (found = 0 OR lack = 1 OR n <= {MOST_INDEPENDENT} "
    f"OR (lack = 2 AND n <= {MOST_SOLVED}) OR (lack <= 4 AND n <= {MOST_SEARCHED[3]})))"
)
"""The groups whose missing units can be named, unless they have units too many as well."""
_STRANGE = "(lack <= 0 AND NOT (lack = -n AND difference = own))"
"""The groups that may have units of others: all without a lack, but those with their own twice."""
DIFFER = "lack <> 0 OR difference <> 0 OR s <> 0"
INTEGERS = ("tinyint", "smallint", "int", "bigint")
_KEYS = (*INTEGERS, "boolean", "string", "binary", "date", "timestamp", "timestamp_ntz", "decimal")


class Differing(NamedTuple):
    """The groups in which an output differs from a source.

    Attributes:
        by: The columns that make the groups; those of the unit if the output has a row a unit.
        has_tags: Whether a group's rows are of one chain, whose tag it has.
        tells_chains: Whether outputs have most rows in their own chains.
        source: The source with ``xorack_key_``, ``xorack_unit_``, ``xorack_tag_`` and, if it only
            reads files, ``xorack_file_``: a row's file.
        groups: ``xorack_key_``, ``tag``, what `differences` returns, and ``moved``: whether what a
            group lacks may be in another one, which has others, as the job changed a column.
        cached: What is cached of them.
        sums: Sums over them, by the names of `_SUMS`.
    """

    by: tuple[str, ...]
    has_tags: bool
    tells_chains: bool
    source: DataFrame
    groups: DataFrame
    cached: DataFrame
    sums: dict[str, int]

    @property
    def units(self) -> DataFrame:
        """``xorack_key_``, ``xorack_unit_`` and ``xorack_tag_`` of the missing rows with names."""
        groups = self.groups.where(SOLVED).drop("tag")
        columns = ("xorack_key_", "xorack_unit_", "xorack_tag_")
        joined = self.source.select(*columns).join(groups, "xorack_key_")
        alone = F.expr("found = 0 OR lack = 1 AND xorack_unit_ = difference")
        rest = joined.withColumn("_known", F.when(alone, F.col("xorack_unit_")))
        rest = rest.where(f"_known IS NOT NULL OR lack > 1 AND n <= {MOST_SOLVED}")
        lists = rest.groupBy("xorack_key_", "_known").agg(
            F.first("difference").alias("difference"),
            F.first("lack").alias("lack"),
            F.collect_list(F.struct(*columns)).alias("members"),
        )
        return lists.mapInArrow(solve, "xorack_key_ long, xorack_unit_ long, xorack_tag_ string")


def differences(source: DataFrame, outputs: Sequence[DataFrame], *key: str) -> DataFrame:
    """Compare the columns `SUMS` of units on both sides, by the columns of a key.

    Returns:
        The key and six numbers: ``n``, units of the source; ``found``, units of the outputs;
        ``lack``, ``n - found``; ``difference``, the XOR of both; ``own``, that of the source;
        ``s``, the difference of the sums.
    """
    sides = [source.selectExpr(*key, "xor", "xor AS own", "count AS n", "0L AS found", "sum AS s")]
    sides += [one.selectExpr(*key, "xor", "0L", "0L", "count", "-sum") for one in outputs]
    sums = [F.expr(f"sum({name}) AS {name}") for name in ("n", "found", "s")]
    xors = [F.expr("bit_xor(xor) AS difference"), F.expr("bit_xor(own) AS own")]
    both = reduce(lambda a, b: a.union(b), sides).groupBy(*key)
    compared = both.agg(*xors, *sums).na.fill(0)
    return compared.selectExpr("*", "n - found AS lack")


def compare_chains(started: DataFrame, held: Sequence[DataFrame]) -> DataFrame:
    """Compare chains: ``tag`` and the columns `SUMS` on both sides.

    Returns:
        ``tag``, what `differences` returns, and ``verdict``: ``agree``, ``missing``, ``short``,
        ``surplus``, ``other`` or ``unknown``.
    """
    verdict = f"""
        CASE WHEN NOT ({DIFFER}) THEN 'agree' WHEN n = 0 THEN 'unknown'
        WHEN found = 0 THEN 'missing' WHEN lack > 0 THEN 'short'
        WHEN lack < 0 THEN 'surplus' ELSE 'other' END AS verdict"""
    return differences(started, held, "tag").selectExpr("*", verdict)


def compare(
    rows: Names, source: DataFrame, outputs: Sequence[DataFrame], by: Sequence[str] | None
) -> Differing:
    """Compare by the columns that are given, or else by all that outputs and source share.

    Raises:
        ColumnsError: A column is not in the source and in all outputs.
    """
    if reads_plainly(source):  # a frame of several sources has no such file
        file = F.element_at(F.split(F.input_file_name(), "/"), -1)
        source = source.withColumn("xorack_file_", file)
    source = _started(rows, source)
    has_tags = has_columns(source, rows.chain) and tells_chains(rows, outputs)
    if by is not None:
        for frame in (source, *outputs):
            _ = [column_named(frame, name) for name in by]
        has_tags = has_tags and {*rows.chain} <= {*by}
        return _compare(rows, source, outputs, by, has_tags)
    has_units = all(_has_units(rows, frame) for frame in outputs)
    shared = None if has_units else _shared(rows, source, outputs)
    chain = {*map(str.lower, rows.chain)}
    rest = shared and [name for name in shared if name.lower() not in chain]
    if not has_tags and all(has_columns(frame, rows.chain) for frame in outputs):
        shared = rest  # the job has changed them
    result = _compare(rows, source, outputs, shared, has_tags)
    moved = F.expr(f"max(lack > 0) AND max({_STRANGE}) AND min(tag) < max(tag) AS moved")
    if has_tags and result.groups.groupBy("difference").agg(moved).where("moved").take(1):
        # What one chain lacks is in another one: the job has changed the chain columns.
        result.cached.unpersist()
        has_tags, shared, most = False, rest, not _is_mixed(result.sums)
        result = _compare(rows, source, outputs, shared, has_tags)._replace(tells_chains=most)
    if not shared or not _is_mixed(result.sums):
        return result
    result.cached.unpersist()

    def agrees(by: Sequence[str], has_tags: bool) -> bool:
        alone = _compare(rows, source, outputs, by, has_tags)
        alone.cached.unpersist()
        return not _is_mixed(alone.sums)

    # A sum or maximum that has the name of a column of the source makes groups that do not agree.
    proven = [name for name in shared if agrees([name], has_tags=False)]
    return _compare(rows, source, outputs, proven, has_tags and agrees([], has_tags=True))


def tells_chains(rows: Names, frames: Sequence[DataFrame]) -> bool:
    """Tell whether frames have the columns of the chain, of suitable types and without nulls."""

    def has_null(frame: DataFrame) -> bool:
        chain_columns(frame, rows.chain)  # raises for types
        nulls = [column_named(frame, name)[0].isNull() for name in rows.chain]
        return bool(frame.where(reduce(or_, nulls)).take(1))

    try:
        return not any(map(has_null, frames))
    except ColumnsError:
        return False


def _has_units(rows: Names, frame: DataFrame) -> bool:
    if has_columns(frame, rows.evidence_names):
        return False
    return has_columns(frame, [rows.unit_name]) or has_columns(frame, rows.unit)


def _started(rows: Names, source: DataFrame) -> DataFrame:
    """Leave out the rows of chains that failed at their start: these units were not started."""
    if rows.batch_id is not None or not has_columns(source, rows.chain):
        return source
    failed = rows.record.chains().where("count = 0").select(F.col("tag").alias("xorack_tag_"))
    if not failed.take(1):
        return source
    tagged = with_tag(source, rows.prefix, rows.chain, "xorack_tag_")
    return tagged.join(F.broadcast(failed), "xorack_tag_", "left_anti").drop("xorack_tag_")


def _shared(rows: Names, source: DataFrame, outputs: Sequence[DataFrame]) -> list[str]:
    """Return the columns that source and outputs share, with types that can be compared."""
    own = {name.lower() for name in (*rows.evidence_names, rows.unit_name)}

    keys = {*map(str.lower, (*rows.chain, *rows.unit))}

    def family(frame: DataFrame, name: str) -> str:
        shown = column_named(frame, name)[1].simpleString()
        is_key = name.lower() in keys
        return "integer" if is_key and shown in INTEGERS else shown

    return [
        name
        for name in outputs[0].columns
        if name.lower() not in own
        and all(has_columns(frame, [name]) for frame in (source, *outputs))
        and len({family(frame, name) for frame in (source, *outputs)}) == 1
        and family(source, name).split("(")[0] in ("integer", *_KEYS)
    ]


def _key(frame: DataFrame, by: Sequence[str]) -> Column:
    """Return the hash of the values of columns; a null has its own."""
    hashes = [F.lit(0)]
    for name in by:
        column, type_ = column_named(frame, name)
        value = column.cast("long") if type_.simpleString() in INTEGERS else column
        hashes.append(F.xxhash64(value, column.isNull()))
    return F.xxhash64(*hashes)


def _compare(
    rows: Names,
    source: DataFrame,
    outputs: Sequence[DataFrame],
    by: Sequence[str] | None,
    has_tags: bool,
) -> Differing:
    """Compare by columns and, if all have them, by those of the chain; or unit by unit."""

    def keyed(frame: DataFrame, is_tagged: bool) -> DataFrame:
        if by is not None:
            key = _key(frame, by)
        else:
            key = unit_in(rows, frame) if frame is source else unit_of(rows, frame)
        keyed = frame.withColumns({"xorack_key_": key, "xorack_tag_": F.lit("")})
        if is_tagged:
            keyed = with_tag(keyed, rows.prefix, rows.chain, "xorack_tag_")
        return keyed.withColumn("xorack_key_", F.xxhash64("xorack_key_", tag))

    tag = F.col("xorack_tag_") if has_tags else F.lit("")
    tagged = keyed(source, has_columns(source, rows.chain))
    tagged = tagged.withColumn("xorack_unit_", unit_in(rows, source))
    key = ("xorack_key_", tag.alias("tag"))
    held = [keyed(one, has_tags).select(*key, *named(evidence_of(rows, one))) for one in outputs]
    units = tagged.select(*key, *named(of_units(F.col("xorack_unit_"))))
    moved = f"max({_STRANGE}) OVER (PARTITION BY tag)" if has_tags and by is not None else "false"
    groups = differences(units, held, "xorack_key_", "tag").where(DIFFER)
    groups = cached = groups.selectExpr("*", f"{moved} AS moved").persist()
    with plain_errors():
        totals = groups.agg(*map(F.expr, _SUMS.values())).first() or ()
    sums = dict(zip(_SUMS, (number or 0 for number in totals), strict=True))
    if sums["strange"] and not has_tags and by is not None:
        groups, sums["named"] = groups.withColumn("moved", F.lit(True)), 0
    names = tuple(rows.unit if by is None else by)
    return Differing(names, has_tags, has_tags, tagged, groups, cached, sums)


_SUMS = {
    "whole": "count_if(lack > 0 AND found = 0)",
    "missing": "sum(if(lack > 0, lack, 0))",
    "named": f"sum(if({SOLVED}, lack, 0))",
    "surplus": "sum(if(lack < 0, -lack, 0))",
    "strange": f"count_if({_STRANGE})",
    "other": "count_if(lack = 0)",
    "replaced": "sum(if(lack = 0, n, 0))",
    "net": "sum(lack)",
    "found": "sum(found)",
}
"""Sums over the groups that differ. ``whole`` counts groups that the output lacks entirely,
``missing`` units that groups lack, ``named`` those that can be named, ``surplus`` units too many,
``strange`` the groups that may have units of others, ``other`` groups of as many units, but
others, and ``replaced`` their units."""


def _is_mixed(sums: Mapping[str, int]) -> bool:
    """Tell whether units are in other groups than their own: as many lack as are too many."""
    return sums["found"] > 0 and min(sums["missing"], sums["surplus"]) * 2 >= sums["found"]


def solve(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the missing units of groups and their chains: see `Differing.units`."""
    import pyarrow as pa

    for batch in batches:
        found: list[dict[str, Any]] = []
        for row in batch.to_pylist():
            members = {member["xorack_unit_"]: member for member in row["members"]}
            units: Collection[int] = members
            if row["_known"] is None:
                units = missing_units([*members], row["difference"], row["lack"])
            found += map(members.__getitem__, units)
        types = {"key": pa.int64(), "unit": pa.int64(), "tag": pa.string()}
        schema = pa.schema({f"xorack_{name}_": type_ for name, type_ in types.items()})
        yield pa.RecordBatch.from_pylist(found, schema)
