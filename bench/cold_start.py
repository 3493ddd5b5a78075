"""What a cold start imports: each handler against `import boto3` alone, in processes of its own."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

from bench.harness import Goal, Section, Table, figure, interleaved, medians

ROOT = Path(__file__).resolve().parent.parent
HANDLERS = ("consumer", "sweeper", "widget")
_TIMED = (
    "from time import perf_counter as now; before = now(); import {}; print((now() - before) * 1e3)"
)


def import_milliseconds(module: str) -> float:
    """How long a fresh Python takes to import a module, compiled before."""
    command = [sys.executable, "-c", _TIMED.format(module)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    return float(done.stdout.split()[-1])


def run(quick: bool = False) -> Section:
    """Import each, in turn."""
    rounds = 2 if quick else 11
    modules = ["boto3", "boto3, aws_lambda_powertools"]
    modules += [f"lambda_src.{name}" for name in HANDLERS]
    for module in modules:
        import_milliseconds(module)  # so that it is compiled, and in the disk's cache
    figures = interleaved({m: partial(import_milliseconds, m) for m in modules}, rounds)
    middle = medians(figures)
    table = Table(["import", "ms", "times `import boto3`"])
    section = Section(
        "cold_start",
        "Cold start",
        f"What a fresh Python takes to import each; medians of {rounds} rounds in turn.",
        [table],
        raw={"milliseconds": middle},
    )
    for module in modules:
        ratio = middle[module] / middle["boto3"]
        table.rows.append([f"`{module}`", figure(middle[module]), figure(ratio)])
        if module.startswith("lambda_src"):
            section.goals.append(Goal(f"`{module}`: times `import boto3`", ratio, 1.3, "less"))
    return section
