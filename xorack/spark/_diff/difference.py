"""The difference of two frames: which rows are on one side only, and which have other values."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from xorack.compare.report import Change, Counts, DiffReport
from xorack.compare.why import explain_kinds
from xorack.spark._diff.columns import compare_columns
from xorack.spark._diff.digests import compare_digests
from xorack.spark._diff.pairing import key_struct, pair_rows, values_struct
from xorack.spark._diff.why import changes_of, looked_at
from xorack.spark.units import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

    from xorack.compare.columns import Names, Tolerance
    from xorack.core.explaining import Explanation
    from xorack.spark._diff.columns import Comparison, Pair

__all__ = ["Counts", "Difference", "diff"]


@dataclass(frozen=True, eq=False)
class Difference(DiffReport):
    """What differs between two frames; `diff` returns it.

    The rows that differ are cached: use it in a ``with`` statement, or call `unpersist`.
    """

    _comparison: Comparison = field(repr=False)
    _pairs: DataFrame = field(repr=False)

    @property
    def missing(self) -> DataFrame:
        """The rows of the left side that the right side lacks, with all their columns."""
        return self._of("missing").select("l.*")

    @property
    def extra(self) -> DataFrame:
        """The rows of the right side that the left side lacks, with all their columns."""
        return self._of("extra").select("r.*")

    @property
    def changed(self) -> DataFrame:
        """A row for each pair of rows with one key and other values.

        The columns of the key; ``columns``, an array of the names that differ; ``left`` and
        ``right``, structs of the compared values. If the key has a column of one of these names,
        ours gets an underscore: ``columns_``. A key of two types of numbers has a type that holds
        both. If no decimal does, it is a string.
        """
        return self._with_key(self._of("changed"), {"columns": self._names, **self._structs})

    @property
    def all_rows(self) -> DataFrame:
        """All rows of both sides in one frame; it reads the left side again.

        ``diff`` is ``N`` for equal, ``I`` for extra, ``C`` for changed and ``D`` for missing rows,
        as in G-Research's spark-extension. The other columns are those of `changed`. Equal rows
        have ``left`` alone.
        """
        letter = F.expr("CASE kind WHEN 'extra' THEN 'I' WHEN 'changed' THEN 'C' ELSE 'D' END")
        differ = self._pairs.where("kind <> 'equal'").withColumn("diff", letter)
        equal = self._equal().selectExpr("l", "'N' AS diff")
        differ = differ.select("l", "r", "columns", "diff")
        rows = differ.unionByName(equal, allowMissingColumns=True)
        columns = {"diff": F.col("diff"), "columns": self._names, **self._structs}
        return self._with_key(rows, columns)

    @property
    def duplicates(self) -> DataFrame:
        """The keys of rows that differ, which a side has more than once.

        The columns of the key, ``left_count`` and ``right_count``; names and types are as in
        `changed`.
        """
        several = self._pairs.where("(lefts > 1 OR rights > 1) AND n = 1")
        return self._with_key(
            several, {"left_count": F.col("lefts"), "right_count": F.col("rights")}
        )

    @property
    def repair(self) -> DataFrame:
        """The rows of the left side that make the right side equal, with all their columns.

        These are the rows that are missing or changed. Of a key with duplicates, these are all
        rows that the left side has: put them in place of all that the right side has.

        Example:
            With unique keys, in Delta or Iceberg:

            >>> d.repair.createOrReplaceTempView("repair")  # doctest: +SKIP
            >>> d.deletions.createOrReplaceTempView("deletions")  # doctest: +SKIP
            >>> spark.sql(
            ...     "MERGE INTO copy USING repair ON copy.id = repair.id "
            ...     "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            ... )  # doctest: +SKIP
            >>> spark.sql(
            ...     "MERGE INTO copy USING deletions ON copy.id = deletions.id "
            ...     "WHEN MATCHED THEN DELETE"
            ... )  # doctest: +SKIP

            With any keys, as a new copy (a join does not match null keys):

            >>> kept = copy.join(d.deletions, "id", "left_anti")  # doctest: +SKIP
            >>> kept = kept.join(d.repair, "id", "left_anti")  # doctest: +SKIP
            >>> kept.unionByName(d.repair).write.parquet(new_path)  # doctest: +SKIP
        """
        if not self._has_duplicates:
            return self._pairs.where("l IS NOT NULL").select("l.*")
        return self._lefts("left_semi").select("l.*")

    @property
    def deletions(self) -> DataFrame:
        """The keys to delete on the right side: those that the left side lacks."""
        keys = [
            F.expr(pair.column(1, "r.")).alias(pair.right.name) for pair in self._comparison.keys
        ]
        return self._pairs.where("lefts = 0 AND n = 1").select(*keys)

    def changes(self) -> dict[str, Change]:
        """Return of each changed column how many rows have nulls, and the greatest difference."""
        return changes_of(self._values, self.changed, self.changed_columns)

    def explain(self) -> dict[str, Explanation]:
        """Say why rows differ: what those of a kind have in common, and all others do not.

        Some 10,000 rows of each kind are compared with as many of all rows, in Python. Kinds of
        rows that nothing tells apart are left out.
        """
        if not self.different:
            return {}
        sides = [
            looked_at(frame, side, self._pairs, self.counts)
            for side, frame in enumerate(self._comparison.frames)
        ]
        changed = [pair.right.name for pair in self._values if pair.name in self.changed_columns]
        return explain_kinds(self, sides, changed)

    def _equal(self) -> DataFrame:
        """Return the left side's rows that are on the right side, too, as structs ``l``."""
        others = self._lefts("left_anti").select("l")
        if not self._has_duplicates:
            return others
        v = f"{values_struct(self._comparison, 0, 'l.')} AS v"
        gone = self._pairs.where("l IS NOT NULL AND kind <> 'equal'").selectExpr("k", v)
        gone = gone.groupBy("k", "v").agg(F.count(F.lit(1)).alias("gone"))
        copy = F.row_number().over(Window.partitionBy("k", "v").orderBy("k"))
        rows = self._lefts("left_semi").selectExpr("k", "l", v).withColumn("copy", copy)
        same = rows.join(gone, ["k", "v"], "left").where("copy > coalesce(gone, 0)")
        return others.union(same.select("l"))

    def _lefts(self, join: str) -> DataFrame:
        """Join the left side's rows, as keys ``k`` and structs ``l``, with the keys that differ."""
        columns = f"{key_struct(self._comparison, 0)} AS k", "struct(*) AS l"
        rows = self._comparison.frames[0].selectExpr(*columns)
        return rows.join(self._pairs.select("k"), "k", join) if self.different else rows

    @property
    def _has_duplicates(self) -> bool:
        return bool(self.counts.duplicate_keys_left or self.counts.duplicate_keys_right)

    @property
    def _structs(self) -> dict[str, Column]:
        """The compared values of both sides. Spark 3.5 takes an empty struct only if nullable."""
        return {
            side: F.expr(f"IF({row} IS NULL, NULL, struct({', '.join(columns)}))")
            for i, (side, row) in enumerate({"left": "l", "right": "r"}.items())
            for columns in [[f"{p.column(i, f'{row}.')} AS {quoted(p.name)}" for p in self._values]]
        }

    def _of(self, kind: str) -> DataFrame:
        return self._pairs.where(F.col("kind") == kind)

    @property
    def _values(self) -> Sequence[Pair]:
        return self._comparison.values

    @property
    def _names(self) -> Column:
        """The names of the columns that differ in a row; SQL knows their places."""
        names = F.from_json(
            F.lit(json.dumps([pair.name for pair in self._values])), "array<string>"
        )
        return F.transform("columns", lambda place: F.get(names, place))

    def _with_key(self, pairs: DataFrame, columns: dict[str, Column]) -> DataFrame:
        """Select the columns of the key and others; the key's names have precedence."""
        keys = {pair.name: _key_of(pair) for pair in self._comparison.keys}
        taken = {name.lower() for name in keys}
        for name, column in columns.items():
            free = name
            while free.lower() in taken:
                free += "_"
            keys[free] = column
        return pairs.select(*(column.alias(name) for name, column in keys.items()))

    def first(self, n: int = 10) -> dict[str, list[dict[str, Any]]]:
        """Return the first rows of each kind, by their keys, as plain Python values.

        Args:
            n: The largest number of rows of each kind; of changed rows, one more for each column
                that the others do not show.

        Returns:
            ``missing`` and ``extra``: the rows. ``changed``: for each pair ``key``, the values of
            the key columns, and ``columns``, the two values of each column that differs; where
            the key has several rows, also ``left`` and ``right``, these rows. If Python lacks a
            time, such as one after the year 9999, dates and times are strings.
        """
        rows: dict[str, list[dict[str, Any]]] = {}
        for kind, side in (("missing", "l"), ("extra", "r")):
            rows[kind] = [_plain(row[side]) for row in self._first(kind, n)]
        names = [(pair.name, pair.right.name) for pair in self._values]
        rows["changed"] = [
            {
                "key": {pair.name: _plain(row["l"][pair.name]) for pair in self._comparison.keys},
                "columns": {
                    left: [_plain(row["l"][left]), _plain(row["r"][right])]
                    for left, right in (names[place] for place in row["columns"])
                },
                **(_whole(row) if max(row["lefts"], row["rights"]) > 1 else {}),
            }
            for row in self._with_all_columns(self._first("changed", n))
        ]
        return rows

    def _with_all_columns(self, rows: list[Row]) -> list[Row]:
        """Add a row for each changed column that no other row shows."""
        changed = {i for i, pair in enumerate(self._values) if pair.name in self.changed_columns}
        unseen = changed - {place for row in rows for place in row["columns"]}
        if not unseen:
            return rows
        row = F.struct("l", "r", "columns", "lefts", "rights", "k", "n")
        each = self._of("changed").select(F.explode("columns").alias("of"), row.alias("row"))
        first = F.min_by("row", F.struct("row.k", "row.n")).alias("row")
        chosen = each.where(F.col("of").isin(*unseen)).groupBy("of").agg(first).select("row.*")
        for more in self._collect(chosen.orderBy("k", "n")):
            if unseen & {*more["columns"]}:
                unseen -= {*more["columns"]}
                rows.append(more)
        return rows

    def _first(self, kind: str, n: int) -> list[Row]:
        if not getattr(self.counts, kind):
            return []
        return self._collect(self._of(kind).orderBy("k", "n").limit(n))

    def _collect(self, some: DataFrame) -> list[Row]:
        told = ("columns", "lefts", "rights")
        try:
            return some.select("l", "r", *told).collect()
        except (OverflowError, ValueError):  # Python lacks some times
            frames = zip("lr", self._comparison.frames, strict=True)
            rows = [_with_times_as_text(side, frame) for side, frame in frames]
            return some.select(*rows, *told).collect()

    def unpersist(self) -> None:
        """Free what is cached. The frames can still be read, and are computed again."""
        self._pairs.unpersist()

    def __enter__(self) -> Difference:
        return self

    def __exit__(self, *_: object) -> None:
        self.unpersist()


def diff(
    left: DataFrame,
    right: DataFrame,
    *,
    key: Names | None,
    values: Names | None = None,
    ignore: Names = (),
    tolerance: Tolerance = None,
) -> Difference:
    """Find the rows that differ between two frames of one session.

    Rows are compared as multisets. Of each key, equal rows cancel each other out, one by one. Of
    the n rows of the left side and the m of the right side that are left, the first min(n, m),
    sorted by the compared columns, are pairs of changed rows. The others are missing or extra.
    What is equal is said in `xorack.spark._diff.canonical`; null equals null, in keys too.

    Both frames are read more than once, so they must give the same rows each time.

    Args:
        left: The rows that are expected.
        right: The rows that are compared with them.
        key: The columns that say which rows belong together. They should tell all rows apart.
            ``order=id`` is order on the left and id on the right. None compares whole rows.
        values: The columns to compare. By default all that both sides have; then those of one
            side only are named in the result, and make it differ.
        ignore: Columns to leave out.
        tolerance: The largest difference of equal values, of all columns that it suits or by the
            column's name: ``0.01``; ``"0.1%"`` of the greater number; ``"2s"`` for times. Not for
            the key.

    Returns:
        The difference. Close it, or use it in a ``with`` statement: it holds cached rows.

    Raises:
        ArgumentError: An argument is invalid.
        ColumnsError: A column is missing or ambiguous, or its types cannot be compared.
        StateError: A frame gave other rows when it was read again.

    Example:
        >>> with diff(orders, copy, key=["order", "line"]) as d:  # doctest: +SKIP
        ...     print(d)
        ...     d.missing.show()
    """
    comparison = compare_columns(left, right, key, values, ignore, tolerance)
    pairs, counts, columns = pair_rows(comparison, compare_digests(comparison))
    fields = [(pair.left, pair.right) for pair in (*comparison.keys, *comparison.values)]
    changed_types = {
        left.name: (left.dataType.simpleString(), right.dataType.simpleString())
        for left, right in fields
        if left.dataType != right.dataType
    }
    return Difference(
        counts,
        columns,
        comparison.left_only,
        comparison.right_only,
        tuple((pair.name, pair.right.name) for pair in comparison.keys),
        changed_types,
        comparison,
        pairs,
    )


def _key_of(pair: Pair) -> Column:
    """Return the key column of a pair of rows: the left side's if there is a left row."""
    left, right = pair.column(0, "l."), pair.column(1, "r.")
    types = pair.left.dataType, pair.right.dataType
    if isinstance(types[0], T.StringType):
        # A string of two collations is read back as none.
        right = f"CAST({right} AS {types[0].simpleString()})"
    elif isinstance(types[0], T.NumericType) and types[0] != types[1]:
        # The common decimal may be rounded.
        left, right = pair.form(0, "l."), pair.form(1, "r.")
    return F.expr(f"coalesce({left}, {right})")


def _with_times_as_text(side: str, frame: DataFrame) -> Column:
    columns = []
    for name, type_ in ((of.name, of.dataType.simpleString()) for of in frame.schema):
        column = F.col(side).getField(name)
        has_times = re.search("date|timestamp", type_)
        columns.append((column.cast("string") if has_times else column).alias(name))
    return F.struct(*columns).alias(side)


def _whole(row: Row) -> dict[str, Any]:
    return {side: _plain(row[side[0]]) for side in ("left", "right")}


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(element) for element in value]
    if isinstance(value, dict):
        return {key: _plain(held) for key, held in value.items()}
    return value.asDict(recursive=True) if hasattr(value, "asDict") else value
