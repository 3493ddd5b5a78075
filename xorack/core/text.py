"""Text for people: durations, counts, and untrusted text without control characters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from xorack.core.errors import printable

__all__ = ["cut", "listed", "plural", "printable", "span", "verb"]

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))


def span(milliseconds: int) -> str:
    """Format a duration of at least 0 ms in at most two units, for example ``3 h 20 min``."""
    if 0 < milliseconds < 1000:
        return f"{milliseconds} ms"
    for (unit, name), (minor, minor_name) in pairwise(_UNITS):
        if milliseconds >= unit:
            count, rest = divmod(milliseconds, unit)
            return f"{count} {name}" + (f" {rest // minor} {minor_name}" if rest >= minor else "")
    return f"{milliseconds // 100 / 10:g} s"


def plural(count: int, noun: str, nouns: str = "") -> str:
    """Format a number of things, for example ``1 message``, ``2 messages`` or ``2 copies``."""
    return f"{count:,} " + (noun if count == 1 else nouns or f"{noun}s")


def verb(count: int, one: str = "is", many: str = "are") -> str:
    """Return the verb for a number of things, as in ``1 of 3 files is empty``."""
    return one if count == 1 else many


def cut(values: Sequence[str], most: int, count: int | None = None) -> list[str]:
    """Return the first values, and the number of further values.

    `count` is the number of all values.
    """
    more = (len(values) if count is None else count) - most
    return [*values[:most], *([f"and {more:,} more"] if more > 0 else [])]


def listed(name: str, values: Iterable[str]) -> list[tuple[str, str]]:
    """Pair values with a name. Only the first pair has the name; the other names are empty."""
    return [("" if place else name, value) for place, value in enumerate(values)]
