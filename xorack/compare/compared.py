"""A compared column of both sides, and SQL of its values."""

from __future__ import annotations

from typing import NamedTuple

from xorack.compare.columns import Limit

__all__ = ["Value"]


class Value(NamedTuple):
    """A compared column: its names and forms on both sides, and its tolerance.

    ``unit`` is ``s`` for times, empty for numbers, and None if values have no distance. ``exact``
    is SQL that makes numbers of forms, of times nanoseconds: their differences are exact.
    """

    names: tuple[str, str]
    forms: tuple[str, str]
    has_weak_hash: bool = False
    limit: Limit | None = None
    unit: str | None = None
    exact: str = "{}"

    def distance(self, one: str, other: str) -> str:
        """Return SQL of the distance of two exact numbers: of times, in seconds."""
        return f"TRY(abs({one} - {other}))::DOUBLE{' / 1e9' * (self.unit == 's')}"

    def differs(self, i: int, left: str, right: str) -> str:
        """Return SQL that is true where the values of two rows differ, of the place i."""
        forms = f"{left}v{i}", f"{right}v{i}"
        differs = f"{forms[0]} IS DISTINCT FROM {forms[1]}"
        if self.limit is None:
            return differs
        kind, amount = self.limit
        a, b = map(self.exact.format, forms)
        within = f"{self.distance(a, b)} <= {amount!r}"
        if kind == "relative":
            most = f"greatest(abs(({a})::DOUBLE), abs(({b})::DOUBLE))"
            within += f" * {most} AND isfinite({most})"
        return f"({differs} AND NOT coalesce({within}, false))"

    def apart(self, left: str, right: str) -> str:
        """Return SQL of the distance of two values that differ, null if it is not finite."""
        a, b = map(self.exact.format, (left, right))
        doubles = self.distance(f"({a})::DOUBLE", f"({b})::DOUBLE")
        distance = f"coalesce({self.distance(a, b)}, {doubles})"
        return f"CASE WHEN isfinite({distance}) THEN {distance} END"
