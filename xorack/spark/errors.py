"""What can be wrong with a job that uses `xorack.spark`, said before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xorack.core.errors import XorAckError

__all__ = ["DuplicateUnits", "InvalidOption", "NullUnits", "UnsuitableColumns"]


class InvalidOption(XorAckError, ValueError):
    """An option of the sink is missing or wrong.

    Attributes:
        option: Its name, as the user writes it.
        problem: What is wrong with it.
    """

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(f"option {option}: {problem}")
        self.option = option
        self.problem = problem


class UnsuitableColumns(XorAckError, ValueError):
    """A frame lacks columns, or has them of another type."""


class NullUnits(XorAckError, ValueError):
    """Columns that shall identify rows hold nulls.

    Attributes:
        nulls: How many rows have a null, by column.
    """

    def __init__(self, nulls: Mapping[str, int]) -> None:
        counted = ", ".join(f"{column} in {rows} rows" for column, rows in nulls.items())
        super().__init__(f"unit columns are null: {counted}")
        self.nulls = dict(nulls)


class DuplicateUnits(XorAckError, ValueError):
    """Several rows have one unit, so that they would cancel each other out.

    Attributes:
        examples: Some of them: the values of the columns, and how many rows have them.
    """

    def __init__(
        self, columns: Sequence[str], examples: Sequence[tuple[tuple[object, ...], int]]
    ) -> None:
        named = "; ".join(
            ", ".join(f"{c}={v!r}" for c, v in zip(columns, values, strict=True))
            + f" ({rows} rows)"
            for values, rows in examples
        )
        super().__init__(f"rows are not told apart by {', '.join(columns)}: {named}")
        self.examples = list(examples)
