"""Shared parts of the benchmark sections: interleaved rounds, medians, goals, tables, Markdown.

Absolute times depend on the machine and its load. Variants are therefore measured in turn, round by
round, and the ratio of their medians counts. Counts, such as round trips, do not depend on either.
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import floor, inf, log10
from pathlib import Path
from statistics import median
from typing import Any, Literal, TypeVar

ROOT = Path(__file__).resolve().parent.parent
T = TypeVar("T")
Figures = dict[str, Any]
"""The figures of a section, as JSON stores them."""


@dataclass(frozen=True)
class Goal:
    """A figure and its bound: a minimum if ``better`` is ``more``, a maximum if it is ``less``."""

    name: str
    measured: float
    bound: float
    better: Literal["more", "less"]

    @property
    def verdict(self) -> str:
        """Met or missed, and the factor; 1 is just met."""
        factor = self.measured / self.bound
        if self.better == "less":
            factor = 1 / factor if factor else inf
        return f"met, {factor:.2f} times" if factor >= 1 else f"**missed**: {factor:.2f} of it"


@dataclass
class Table:
    """A table of the report, with a note below."""

    head: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)
    note: str = ""

    def add(self, *cells: str | float | None) -> None:
        """Append a row: integers whole, floats with three significant digits, None empty."""
        self.rows.append([_cell(value) for value in cells])

    def markdown(self) -> str:
        """Format the table: the first column left-aligned, the others right-aligned."""
        rule = ["---", *["---:"] * (len(self.head) - 1)]
        lines = ["| " + " | ".join(row) + " |" for row in (self.head, rule, *self.rows)]
        return "\n".join(lines) + (f"\n\n{self.note}" if self.note else "")


@dataclass(frozen=True)
class Plot:
    """A plot of a section.

    Attributes:
        text: The alternative text.
        kind: ``groups`` of bars, horizontal ``bars`` with a goal, or cumulated ``steps``.
        series: Name -> label or abscissa -> value.
        height: Inches.
        goal: The goal of horizontal bars.
        axes: Properties of matplotlib's axes.
    """

    text: str
    kind: Literal["groups", "bars", "steps"]
    series: Mapping[str, Mapping[Any, float]]
    height: float
    axes: Mapping[str, Any]
    goal: float = 0.0


@dataclass
class Section:
    """One part of the report: what is measured and how, the results, the goals, a plot."""

    title: str
    text: str
    tables: Sequence[Table]
    goals: Sequence[Goal] = ()
    plot: Plot | None = None

    def markdown(self) -> str:
        """Format the section, its goals as the last table; without the plot."""
        tables = list(self.tables)
        if self.goals:
            tables.append(Table(["goal", "bound", "measured", ""]))
        for goal in self.goals:
            bound = f"{'≥' if goal.better == 'more' else '≤'} {goal.bound:g}"
            tables[-1].add(goal.name, bound, goal.measured, goal.verdict)
        return "\n\n".join([f"## {self.title}", self.text, *(t.markdown() for t in tables)])


def interleaved(variants: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """Call all variants in each round, starting with another one each time.

    Returns:
        Name -> the figures, in the order of the rounds.

    Raises:
        ValueError: ``rounds`` is less than 1.
    """
    if rounds < 1:
        raise ValueError(f"rounds is {rounds}: expected at least 1")
    names = list(variants)
    figures: dict[str, list[T]] = {name: [] for name in names}
    for number in range(rounds):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            figures[name].append(variants[name]())
    return figures


def medians(figures: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Compute the median of each variant's figures."""
    return {name: median(values) for name, values in figures.items()}


def figure(value: float) -> str:
    """Format a number: three significant digits, two below 1, thousands whole."""
    if value == 0 or abs(value) >= 1000:
        return f"{value:,.0f}"
    exponent = floor(log10(abs(value)))
    return f"{value:.{2 - exponent if exponent >= 0 else min(1 - exponent, 6)}f}"


def _cell(value: str | float | None) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return f"{value:,}" if isinstance(value, int) else figure(value)


def run_process(command: Sequence[object], **options: Any) -> str:
    """Run a process with the options of `subprocess.run`; return its output.

    Raises:
        subprocess.CalledProcessError: It failed; its error output was printed.
    """
    words = [str(word) for word in command]
    options = {"cwd": ROOT, **options}
    process = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, **options)
    return str(process.stdout)


def case_options(
    module: str, cases: Iterable[str], arguments: Sequence[str] | None
) -> argparse.Namespace:
    """Parse the arguments of a section that can run some of its cases: ``quick`` and ``cases``."""
    names = list(cases)
    parser = argparse.ArgumentParser(prog=f"python -m {module}")
    parser.add_argument("--quick", action="store_true", help="little data")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(names))
    options = parser.parse_args(arguments)
    for name in options.cases:
        if name not in names:
            parser.error(f"unknown case {name!r}: expected one of {', '.join(names)}")
    return options
