"""What tracking costs on Spark, as parts of the report."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.harness import Section

ROOT = Path(__file__).resolve().parent.parent


def run(quick: bool = False) -> Section:
    """The price of tracking, by the number of words.

    Raises:
        subprocess.CalledProcessError: It failed; its words are printed.
    """
    few = ["--words", "100000", "--rounds", "1", "--warm-turns", "1"]
    table, raw = _by_itself("spark_price", few if quick else [])
    return Section(
        "spark",
        "On Spark",
        "The two jobs of [pipeline/](../pipeline), tracked and not, in turn: warm, turn after turn "
        "in one process; and by themselves, each run a process of its own "
        "(`python -m bench.spark_price`). What it means is in "
        "[benchmarks-spark.md](benchmarks-spark.md).\n\n" + table,
        raw=raw,
    )


def run_scale(quick: bool = False) -> Section:
    """A large file among small ones, and many files.

    Raises:
        subprocess.CalledProcessError: It failed; its words are printed.
    """
    table, raw = _by_itself("spark_scale", ["--quick"] if quick else [])
    return Section(
        "spark_scale",
        "On Spark: large files, and many",
        "The two jobs as a user runs them, traced, one run each (`python -m bench.spark_scale`): a "
        "file of 1 GiB among 5,000 of 0.6 KB, and 100,000 files of 0.6 KB. All chains were acked, "
        "by the consumer's code over a store in memory, ten messages a batch.\n\n" + table,
        raw=raw,
    )


def _by_itself(module: str, arguments: list[str]) -> tuple[str, dict[str, Any]]:
    """Run a bench in a process of its own; what it printed, and its figures."""
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder) / "figures.json"
        command = [sys.executable, "-m", f"bench.{module}", "--json", str(figures), *arguments]
        done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
        raw: dict[str, Any] = json.loads(figures.read_text())
    return done.stdout.strip(), raw
