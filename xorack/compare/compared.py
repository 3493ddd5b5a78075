"""A compared column of both sides, and SQL of its values."""

from __future__ import annotations

from typing import NamedTuple

from xorack.compare.columns import Limit

__all__ = ["Value"]


class Value(NamedTuple):
    """A compared column: its names and forms on both sides, and its tolerance.

    ``unit`` is ``s`` for times, empty for numbers, and None if values have no distance.
    """

    names: tuple[str, str]
    forms: tuple[str, str]
    has_weak_hash: bool = False
    limit: Limit | None = None
    unit: str | None = None
    is_integer: bool = False

    def number(self, form: str) -> str:
        """Return SQL of a form as a double: of times, seconds."""
        if self.unit == "s":
            return f"epoch_us(({form})::TIMESTAMP) / 1e6"
        number = f"TRY_CAST({form} AS DOUBLE)"
        is_time = self.limit is not None and self.limit.kind == "seconds"
        return f"({number} / 1e9)" if is_time else number  # nanoseconds

    def differs(self, i: int, left: str, right: str) -> str:
        """Return SQL that is true where the values of two rows differ, of the place i."""
        differs = f"{left}v{i} IS DISTINCT FROM {right}v{i}"
        if self.limit is None:
            return differs
        kind, amount = self.limit
        a, b = f"{left}t{i}", f"{right}t{i}"
        if kind == "seconds":
            micros = [f"epoch_us(({of})::TIMESTAMP)" for of in (a, b)]
            within = f"abs({micros[0]} - {micros[1]}) <= {amount * 1e6!r}"
        elif kind == "relative":
            a, b = f"({a})::DOUBLE", f"({b})::DOUBLE"
            most = f"{amount!r} * greatest(abs({a}), abs({b}))"
            within = f"isfinite({a}) AND isfinite({b}) AND abs({a} - {b}) <= {most}"
        else:
            within = f"TRY(abs({a} - {b}))::DOUBLE <= {amount!r}"
        return f"({differs} AND NOT coalesce({within}, false))"

    def details(self, left: str, right: str) -> dict[str, str]:
        """Return SQL of two values that differ: is one null, and their distance, as ``g``."""
        told = {"a": f"{left} IS NULL", "b": f"{right} IS NULL"}
        if self.unit is not None:
            distance = f"TRY(abs({self.number(left)} - {self.number(right)}))"
            told["g"] = f"CASE WHEN isfinite({distance}) THEN {distance} END"
        return told
