"""Conditions on the columns of a row. Each condition is a value that has a text for people."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

__all__ = ["AnyOf", "Both", "Condition", "Range", "Row", "Values", "comparable_value", "is_nan"]

Row = Mapping[str, Any]
_MAX_CHARACTERS = 100


@dataclass(frozen=True)
class Values:
    """The column has one of these values, which the text lists."""

    column: str
    values: tuple[Any, ...]

    def holds(self, row: Row) -> bool:
        """Return whether a row meets the condition."""
        return comparable_value(row.get(self.column)) in self.values

    def __str__(self) -> str:
        texts = ", ".join(map(value_text, self.values))
        return f"{self.column} {'=' if len(self.values) == 1 else 'in'} " + (
            texts if len(self.values) == 1 else f"({texts})"
        )


@dataclass(frozen=True)
class Range:
    """The column has a value from `low` to `high`, both included. None means no limit."""

    column: str
    low: Any
    high: Any

    def holds(self, row: Row) -> bool:
        """Return whether a row meets the condition."""
        value = comparable_value(row.get(self.column))
        if value is None or isinstance(value, (str, bytes, bool)):
            return False
        above = self.low is None or self.low <= value
        return bool(above and (self.high is None or value <= self.high))

    def __str__(self) -> str:
        if self.low is None:
            return f"{self.column} <= {value_text(self.high)}"
        if self.high is None:
            return f"{self.column} >= {value_text(self.low)}"
        return f"{self.column} from {value_text(self.low)} to {value_text(self.high)}"


@dataclass(frozen=True)
class AnyOf:
    """The column has one of many values. `of` is the number of different values in all."""

    column: str
    values: frozenset[Any]
    of: int

    def holds(self, row: Row) -> bool:
        """Return whether a row meets the condition."""
        return comparable_value(row.get(self.column)) in self.values

    def __str__(self) -> str:
        return f"one of {len(self.values):,} of {self.of:,} values of {self.column}"


@dataclass(frozen=True)
class Both:
    """Two conditions hold at once."""

    first: Condition
    second: Condition

    @property
    def column(self) -> str:
        """The column of the first condition."""
        return self.first.column

    def holds(self, row: Row) -> bool:
        """Return whether a row meets both conditions."""
        return self.first.holds(row) and self.second.holds(row)

    def __str__(self) -> str:
        return f"{self.first} and {self.second}"


Condition = Values | Range | AnyOf | Both


def comparable_value(value: Any) -> Any:
    """Return a value for comparison.

    Each NaN becomes `math.nan`, because Python finds this object by identity.
    """
    return math.nan if is_nan(value) else value


def is_nan(value: Any) -> bool:
    """Return whether a value is a float or decimal NaN."""
    return isinstance(value, (float, Decimal)) and math.isnan(value)


def value_text(value: Any) -> str:
    """Return a column's value as SQL writes it: text in quotes, and NULL for None."""
    if value is None:
        return "NULL"
    if is_nan(value):
        return "NaN"
    if isinstance(value, datetime):
        return value.isoformat(" ")
    if not isinstance(value, (str, bytes)):
        return str(value)
    return repr(value[:_MAX_CHARACTERS]) + ("..." if len(value) > _MAX_CHARACTERS else "")
