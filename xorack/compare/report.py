"""The report of a comparison, the same from both engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from xorack.compare.columns import SECONDS
from xorack.core.explaining import Explanation

__all__ = ["KINDS", "LABELS", "Change", "Counts", "DiffReport", "Result", "by_rows", "describe"]

KINDS = ("missing", "extra", "changed")


class Change(NamedTuple):
    """What is told of the values of a column that differ.

    Attributes:
        rows: The number of changed rows in which they do.
        null_left: In how many of these the left value is null.
        null_right: In how many the right one is.
        greatest: The greatest finite difference of two numbers or, in seconds, of two times.
        unit: ``s`` for times.
    """

    rows: int
    null_left: int = 0
    null_right: int = 0
    greatest: float | None = None
    unit: str = ""

    @property
    def distance(self) -> str:
        """The greatest difference in words, of times in the largest unit; empty if none is."""
        if self.greatest is None:
            return ""
        if not self.unit:
            return f"{self.greatest:,.6g}"
        units = SECONDS.items()
        size, unit = max((of, unit) for unit, of in units if of <= max(self.greatest, 1e-6))
        return f"{self.greatest / size:,.6g} {unit}"

    def __str__(self) -> str:
        parts = [f"{self.rows:,}"]
        if self.distance:
            parts.append(f"by up to {self.distance}")
        for side, count in (("left", self.null_left), ("right", self.null_right)):
            parts += [f"{count:,} null on the {side}"] * bool(count)
        return ", ".join(parts)


@dataclass(frozen=True)
class Counts:
    """How many rows there are of each kind.

    Attributes:
        left: All rows of the left side.
        right: All rows of the right side.
        equal: Rows of the left side that are on the right side, too.
        missing: Rows that the right side lacks.
        extra: Rows that only the right side has.
        changed: Rows of the left side whose key the right side has with other values.
        duplicate_keys_left: Keys of rows that differ, which the left side has more than once.
        duplicate_keys_right: Keys of rows that differ, which the right side has more than once.
    """

    left: int
    right: int
    equal: int
    missing: int
    extra: int
    changed: int
    duplicate_keys_left: int
    duplicate_keys_right: int


@dataclass(frozen=True, eq=False)
class DiffReport:
    """What differs between two datasets, in numbers and names.

    Attributes:
        counts: How many rows there are of each kind.
        changed_columns: The columns with other values, and the number of rows of each; the
            column of the most rows is the first.
        left_only: The columns that the right side lacks.
        right_only: The columns that the left side lacks.
        key: The columns of the key: the names of the left and of the right.
        changed_types: The compared columns whose types differ: those of the left and the right.
    """

    counts: Counts
    changed_columns: dict[str, int]
    left_only: tuple[str, ...]
    right_only: tuple[str, ...]
    key: tuple[tuple[str, str], ...]
    changed_types: dict[str, tuple[str, str]]

    @property
    def equal(self) -> bool:
        """True if both sides have the same columns and the same rows."""
        return not (self.different or self.left_only or self.right_only)

    @property
    def different(self) -> int:
        """The rows that are missing, extra or changed."""
        return self.counts.missing + self.counts.extra + self.counts.changed

    @property
    def equal_share(self) -> dict[str, float]:
        """The share of equal values of each changed column, in rows whose key is on both sides."""
        pairs = self.counts.equal + self.counts.changed
        return {name: 1 - number / pairs for name, number in self.changed_columns.items()}

    def summary(self) -> dict[str, Any]:
        """Return the numbers and the names of columns, of types that JSON has."""
        return {
            "equal": self.equal,
            "counts": asdict(self.counts),
            "changed_columns": dict(self.changed_columns),
            "equal_share": {name: round(share, 6) for name, share in self.equal_share.items()},
            "left_only": list(self.left_only),
            "right_only": list(self.right_only),
            "changed_types": {name: list(types) for name, types in self.changed_types.items()},
        }

    def __str__(self) -> str:
        return "\n".join(describe(self))


def describe(report: DiffReport, changes: Mapping[str, Change] | None = None) -> list[str]:
    """Return the counts and the columns of a report in words, a line each."""
    counts, told = asdict(report.counts), changes or {}
    width = max(len(f"{count:,}") for count in counts.values())
    lines = ["equal" if report.equal else "different"]
    lines += [f"  {LABELS[name]:<22}{count:>{width},}" for name, count in counts.items()]
    named = {
        "changed columns": [
            f"{name} ({told.get(name, Change(n))})" for name, n in report.changed_columns.items()
        ],
        "columns on the left only": report.left_only,
        "columns on the right only": report.right_only,
        "other types": [f"{n} ({a}, {b})" for n, (a, b) in report.changed_types.items()],
    }
    return lines + [f"  {label}: {', '.join(names)}" for label, names in named.items() if names]


LABELS = {
    "left": "rows on the left",
    "right": "rows on the right",
    "equal": "equal",
    "missing": "missing on the right",
    "extra": "extra on the right",
    "changed": "changed",
    "duplicate_keys_left": "duplicate keys, left",
    "duplicate_keys_right": "duplicate keys, right",
}


class Result(NamedTuple):
    """What is printed of a comparison.

    Attributes:
        names: The names of both inputs.
        report: The counts and the names of columns.
        changes: What is told of columns that differ.
        why: What the rows of a kind have in common, as far as anything tells them from others.
        rows: The first rows of each kind, as `xorack.spark.Difference.first` returns them.
        remarks: Remarks on columns, a line each.
        out: The folder that all rows were written to.
    """

    names: tuple[str, str]
    report: DiffReport
    changes: Mapping[str, Change]
    why: Mapping[str, Explanation]
    rows: Mapping[str, Sequence[Mapping[str, Any]]]
    remarks: Sequence[str]
    out: str | None


def by_rows(numbers: dict[str, int]) -> dict[str, int]:
    """Return the columns that differ in some row, that of the most rows first."""
    return {name: n for name, n in sorted(numbers.items(), key=lambda one: -one[1]) if n}
