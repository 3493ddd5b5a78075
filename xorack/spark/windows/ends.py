"""Positions of a log's partitions, as the caller or a checkpoint gives them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pyspark.sql import functions as F
from pyspark.sql.types import IntegralType, StringType

from xorack.core.errors import ArgumentError
from xorack.spark.errors import ColumnsError
from xorack.spark.evidence import unit_in
from xorack.spark.folding import Totals, folding, named, of_units, together
from xorack.spark.units import encoded, field_named
from xorack.spark.windows.ledger import Range

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from xorack.spark.run import RowNames
    from xorack.spark.storage import Texts
    from xorack.spark.windows.ledger import Ends

__all__ = ["key_of", "of_all_positions", "offsets_of", "positions_of"]

_MAX_PIECE = 1 << 20
"""Positions of a row that Spark expands: they take 8 MB."""


def key_of(values: Sequence[object]) -> str:
    """Return a partition as text: the values of its columns."""
    return "/".join(encoded(str(value)) for value in values)


def positions_of(given: Any, columns: Sequence[str], option: str) -> dict[str, int]:
    """Return positions by partition, of a dict in dicts or a frame with all of the columns."""
    found: dict[str, int] = {}
    for *path, position in _leaves(given, columns):
        if len(path) != len(columns) - 1 or not str(position).isdecimal():
            expected = f"{', '.join(columns[:-1])}, and a position of 0 or more"
            raise ArgumentError(option, problem=f"{(*path, position)}, expected {expected}")
        if (key := key_of(path)) in found:
            raise ArgumentError(option, problem=f"{key} is there twice, expected each once")
        found[key] = int(position)
    return found


def _leaves(given: Any, columns: Sequence[str], *path: Any) -> Iterator[tuple[Any, ...]]:
    if hasattr(given, "collect"):
        yield from given.select(*columns).collect()
    elif isinstance(given, Mapping):
        for key, value in given.items():
            yield from _leaves(value, columns, *path, key)
    else:
        yield *path, given


def offsets_of(
    texts: Texts, checkpoint: str, batch_id: int, columns: Sequence[str]
) -> tuple[Ends, Ends]:
    """Return where a batch begins and ends, as the query's log of offsets says."""

    def read(batch: int) -> dict[str, int]:
        lines = texts.lines(f"{checkpoint}/offsets/{batch}")
        if not lines:
            expected = f"the folder of the query's checkpoint, with a file offsets/{batch}"
            raise ArgumentError("checkpoint", str(checkpoint), expected)
        found: dict[str, int] = {}
        for line in lines[2:]:
            found |= {} if line == "-" else positions_of(json.loads(line), columns, "checkpoint")
        return found

    until = read(batch_id)
    # A partition that is in no earlier batch is new, and is read from its beginning.
    return ({**dict.fromkeys(until, 0), **read(batch_id - 1)} if batch_id else {}), until


def of_all_positions(
    rows: RowNames, frame: DataFrame, bounds: tuple[Ends, Ends], count: int
) -> tuple[Totals | None, dict[str, Range]]:
    """Return what the units of a batch add up to if each position has a row, and its ranges.

    Units follow from positions, so what was written is judged without a look at the rows. Nothing
    is returned unless as many rows were written as the batch has positions.
    """
    *kinds, kind = (field_named(frame, name).dataType for name in rows.unit)
    if not isinstance(kind, IntegralType):
        problem = f"column {rows.unit[-1]} is {kind.simpleString()}, expected an integer"
        raise ColumnsError(f"{problem}, as a position has")
    since, until = bounds
    # A begin that is not known is guessed to be 0: the units show whether that is right.
    begins = {key: since.get(key, 0) for key, end in until.items() if since.get(key, 0) != end}
    ranges = {key: Range(begin, until[key], until[key] - begin) for key, begin in begins.items()}
    is_hashed = all(isinstance(type_, (StringType, IntegralType)) for type_ in kinds)
    if not until or sum(found.rows for found in ranges.values()) != count or not is_hashed:
        return None, {}
    if not ranges:
        return Totals(), {}
    pieces = [
        (*map(unquote, key.split("/")), begin, min(begin + _MAX_PIECE, found.end) - 1)
        for key, found in ranges.items()
        for begin in range(found.begin, found.end, _MAX_PIECE)
    ]
    names = [f"c{i}" for i in range(len(kinds))]
    texts = ", ".join([*(f"{name} string" for name in names), "first long", "last long"])
    columns = [F.col(name).cast(type_) for name, type_ in zip(names, kinds, strict=True)]
    columns.append(F.explode(F.sequence(F.col("first").cast(kind), F.col("last").cast(kind))))
    named_columns = (column.alias(name) for column, name in zip(columns, rows.unit, strict=True))
    positions = frame.sparkSession.createDataFrame(pieces, texts).select(*named_columns)
    with folding(frame.sparkSession):
        sums = positions.select(*named(of_units(unit_in(rows, positions)))).agg(*together())
        return Totals(*sums.collect()[0]), ranges
