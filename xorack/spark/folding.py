"""Sums of the units of chains, outputs and runs, and the folding of frames to these sums.

Stamps consist of the XOR. Two equal units cancel out in an XOR, but not in the count and the sum.
The sum adds the upper 32 bits of each unit, so that no number of rows overflows a long.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from xorack.errors import ColumnsError
from xorack.spark.messages import plain_errors
from xorack.spark.units import chain_columns, quoted, with_tag

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation

SUMS = ("xor", "count", "sum")
"""The columns of sums in all frames: longs."""
_PATIENCE_SECONDS = 60
"""Most seconds that an observation may take to arrive after its action has ended."""


@dataclass(frozen=True)
class Totals:
    """The sums of rows: the XOR of their ids (signed), their count, and the sum."""

    xor: int = 0
    count: int = 0
    sum: int = 0

    def __add__(self, other: Totals) -> Totals:
        """Return the totals of both sets of rows."""
        return Totals(self.xor ^ other.xor, self.count + other.count, self.sum + other.sum)

    def __sub__(self, other: Totals) -> Totals:
        """Return the totals of these rows without the other rows."""
        return Totals(self.xor ^ other.xor, self.count - other.count, self.sum - other.sum)


@dataclass(frozen=True)
class Summary(Totals):
    """The sums of chains with units, the number of all chains, and the XOR of their hashes.

    The hash of a chain covers its tag and its sums: see `xorack.spark.run_chain.UNIT_OF_CHAIN`.
    """

    chains: int = 0
    fingerprint: int = 0
    all_chains: int = 0

    @property
    def totals(self) -> Totals:
        """The sums that an output must have."""
        return Totals(self.xor, self.count, self.sum)


def of_units(unit: Column) -> tuple[Column, Column, Column]:
    """Return the sums of one unit."""
    return unit, F.lit(1).cast("long"), F.shiftright(unit, 32)


def named(columns: Sequence[Column]) -> list[Column]:
    """Return columns of sums with their names."""
    return [column.alias(name) for column, name in zip(columns, SUMS, strict=True)]


def together(
    names: Sequence[str] = SUMS, to: Sequence[str] = SUMS
) -> tuple[Column, Column, Column]:
    """Return aggregates over columns of sums."""
    xor, count, sum_ = (
        F.expr(f"{fold}({quoted(name)}) AS {quoted(new)}")
        for fold, name, new in zip(("bit_xor", "sum", "sum"), names, to, strict=True)
    )
    return xor, count, sum_


def totals_of(frame: DataFrame) -> Totals:
    """Sum up the columns `SUMS` of a frame."""
    return Totals(*(number or 0 for number in frame.agg(*together()).first() or ()))


def fold_units(
    frame: DataFrame, chain: Sequence[str], sums: Sequence[Column], prefix: str
) -> DataFrame:
    """Fold a frame's units by chain.

    The result has ``tag``, which begins with the prefix, and the `SUMS`.
    """
    columns = chain_columns(frame, chain)
    keys = [f"c{i}" for i in range(len(columns))]
    grouped = frame.select(*columns, *named(sums)).groupBy(*keys).agg(*together())
    return with_tag(grouped, prefix, keys).select("tag", *SUMS)


def summary_columns() -> list[Column]:
    """Return aggregates over ``tag`` and the columns `SUMS`, for `summary_of`."""
    of_chains = {
        "xor": "bit_xor(if(count > 0, xor, NULL))",
        "count": "sum(count)",
        "sum": "sum(if(count > 0, sum, NULL))",
        "chains": "count_if(count > 0)",
        "fingerprint": f"bit_xor(xxhash64(tag, {', '.join(SUMS)}))",
        "all_chains": "count(1)",
        "cancelled": "min(if(count > 0 AND xor = 0, tag, NULL))",
    }
    return [F.expr(text).alias(name) for name, text in of_chains.items()]


def summary_of(row: dict[str, Any]) -> Summary:
    """Return the summary in a row of `summary_columns`, or raise if a chain's units cancel out."""
    cancelled = row.pop("cancelled")
    if cancelled is not None:
        raise ColumnsError(
            f"the units of chain {cancelled!r} cancel each other out: "
            "add a unit column that distinguishes its rows"
        )
    return Summary(**{name: int(value or 0) for name, value in row.items()})


def summarize(chains: DataFrame) -> Summary:
    """Return the summary of a frame of chains, which has ``tag`` and the columns `SUMS`."""
    with plain_errors():
        row = chains.agg(*summary_columns()).first()
    return summary_of(row.asDict() if row else {"cancelled": None})


def metrics_of(observation: Observation) -> dict[str, Any] | None:
    """Return the values of an observation, or None if no action ran it."""
    got: list[dict[str, Any]] = []

    def get() -> None:
        with suppress(Exception):
            got.append(dict(observation.get))

    # A classic session would wait for ever for an observation that no action runs.
    thread = threading.Thread(target=get, daemon=True)
    thread.start()
    thread.join(_PATIENCE_SECONDS)
    return got[0] if got and got[0] else None
