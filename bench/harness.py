"""What the sections of the bench share: interleaved repetitions, medians, goals, and a report.

Absolute times depend on the machine and on what else it does. So whatever is compared is measured
in turn, round by round, and what counts is the ratio of medians; counts (round trips, capacity
units) do not depend on the machine at all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, Literal

Clock = Callable[[], float]


@dataclass(frozen=True)
class Goal:
    """What was to be reached, and what was measured.

    Attributes:
        what: In words.
        measured: The figure.
        bound: What it should be.
        better: Whether it should be at least (``more``) or at most (``less``) the bound.
    """

    what: str
    measured: float
    bound: float
    better: Literal["more", "less"]

    @property
    def met(self) -> bool:
        """Whether it was reached."""
        if self.better == "more":
            return self.measured >= self.bound
        return self.measured <= self.bound

    @property
    def verdict(self) -> str:
        """By how much it was met or missed: a factor, 1 being just met."""
        factor = self.measured / self.bound if self.bound else float("inf")
        if self.better == "less":
            factor = 1 / factor if factor else float("inf")
        if self.met:
            return f"met, {factor:.2f} times"
        return f"**missed**: {factor:.2f} of it"


@dataclass
class Table:
    """A table of the report.

    Attributes:
        head: Names of the columns.
        rows: Cells, as they are to be read.
        note: What to know about it.
    """

    head: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)
    note: str = ""

    def markdown(self) -> str:
        """The table in Markdown: the first column to the left, figures to the right."""
        lines = [
            "| " + " | ".join(self.head) + " |",
            "| --- |" + " ---: |" * (len(self.head) - 1),
            *("| " + " | ".join(row) + " |" for row in self.rows),
        ]
        return "\n".join(lines) + (f"\n\n{self.note}" if self.note else "")


@dataclass
class Section:
    """One part of the report.

    Attributes:
        name: By which it is asked for, and found in the raw figures.
        title: Its heading.
        text: What was measured, and how.
        tables: What came out.
        goals: What was to be reached.
        raw: The figures, as JSON takes them.
    """

    name: str
    title: str
    text: str
    tables: list[Table] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)
    raw: dict[str, Any] = field(default_factory=dict)

    def markdown(self) -> str:
        """The section in Markdown."""
        parts = [f"## {self.title}", self.text, *(table.markdown() for table in self.tables)]
        if self.goals:
            goals = Table(["goal", "bound", "measured", ""])
            for goal in self.goals:
                sign = "≥" if goal.better == "more" else "≤"
                goals.rows.append(
                    [goal.what, f"{sign} {goal.bound:g}", figure(goal.measured), goal.verdict]
                )
            parts.append(goals.markdown())
        return "\n\n".join(parts)

    def json(self) -> dict[str, Any]:
        """The raw figures, with the goals."""
        goals = [asdict(goal) | {"met": goal.met} for goal in self.goals]
        return {"goals": goals, **self.raw}


def seconds(run: Callable[[], object], clock: Clock = time.perf_counter) -> float:
    """How long one call takes."""
    before = clock()
    run()
    return clock() - before


def interleaved(variants: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Measure variants in turn, in each round all of them, the first another one each round.

    Args:
        variants: Name -> what runs it once and gives back its figure.
        rounds: How many times.

    Returns:
        Name -> its figures, in the order of the rounds.

    Raises:
        ValueError: No rounds.
    """
    if rounds < 1:
        raise ValueError(f"rounds is {rounds}: expected at least 1")
    names = list(variants)
    figures: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        shift = number % len(names) if names else 0
        for name in names[shift:] + names[:shift]:
            figures[name].append(variants[name]())
    return figures


def medians(figures: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The median of each."""
    return {name: median(values) for name, values in figures.items()}


def figure(value: float) -> str:
    """A figure as people read it: three digits that count."""
    if value == 0 or abs(value) >= 1000:
        return f"{value:,.0f}"
    digits = 2
    while digits < 6 and abs(value) < 10 ** (1 - digits):
        digits += 1
    return f"{value:.{0 if abs(value) >= 100 else 1 if abs(value) >= 10 else digits}f}"
