"""Measures a `finish` that finds a difference, as a multiple of the job that wrote the output."""

from __future__ import annotations

from statistics import median

from bench.harness import Table
from bench.meter import cpu, spread
from bench.spark import TRACKED, Case, measured

_KEPT = {
    "1 % lost": "l_orderkey % 100 <> 7",
    "one row lost": "NOT (l_orderkey = 7 AND l_linenumber = 2)",
}
"""What job 2 keeps of the rows."""


def measure(quick: bool, case: str = "") -> list[Table]:
    """Measure the cases, or those with a text in their name; the jobs of each run once before."""
    table = Table(["SF 1 by supplier", "job 2", "finish", "times job 2"])
    cases = {name: Case(variants=(TRACKED,), kept=kept) for name, kept in _KEPT.items()}
    for name, results in measured(cases, case, quick=quick):
        spent = [[cpu(run, [step]) for run in results[TRACKED]] for step in ("job 2", "finish")]
        times = sorted(finish / job for job, finish in zip(*spent, strict=True))
        table.add(name, *map(median, spent), spread(times))
    return [table]
