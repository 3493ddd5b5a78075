"""What tracking costs on Spark: `bench.spark_price`, as a part of the report."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.harness import Section

ROOT = Path(__file__).resolve().parent.parent


def run(quick: bool = False) -> Section:
    """Run it in a process of its own, and take its table and its figures over.

    Raises:
        subprocess.CalledProcessError: It failed; its words are printed.
    """
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder) / "price.json"
        command = [sys.executable, "-m", "bench.spark_price", "--json", str(figures)]
        if quick:
            command += ["--words", "100000", "--rounds", "1", "--warm-turns", "1"]
        done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
        raw = json.loads(figures.read_text())
    return Section(
        "spark",
        "On Spark",
        "The two jobs of [pipeline/](../pipeline), tracked and not, in turn: warm, turn after turn "
        "in one process; and by themselves, each run a process of its own "
        "(`python -m bench.spark_price`). What it means is in "
        "[benchmarks-spark.md](benchmarks-spark.md).\n\n" + done.stdout.strip(),
        raw=raw,
    )
