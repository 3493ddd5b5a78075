"""Decoding of traced stamps: how long `peel` takes, and how often it names all units."""

from __future__ import annotations

import random
import time
from statistics import median

from bench.harness import Figures, Section, Table
from xorack.core.peeling import peel
from xorack.core.stamp import TRACED_LENGTH, traced, xor

OUTSTANDING = (1, 8, 16, 24, 32, 48)


def measure(quick: bool) -> Figures:
    """Peel stamps of random ids; the seeds are fixed."""
    samples = 50 if quick else 5_000
    figures = {}
    for outstanding in OUTSTANDING:
        draw = random.Random(outstanding)
        times, complete, wrong = [], 0, 0
        for _ in range(samples):
            ids = {draw.getrandbits(64) | 1 for _ in range(outstanding)}
            stamp = xor(bytes(TRACED_LENGTH), *map(traced, ids))
            before = time.perf_counter()
            found = peel(stamp)
            times.append((time.perf_counter() - before) * 1e6)
            complete += found.complete and found.ids == ids
            wrong += not found.ids <= ids
        figures[str(outstanding)] = {
            "microseconds": median(times), "slowest": max(times),
            "samples": samples, "complete": complete, "wrong": wrong,
        }  # fmt: skip
    return figures


def describe(figures: Figures) -> Section:
    """Write the section."""
    table = Table(["outstanding", "µs a peel (median)", "slowest", "complete", "wrong"])
    for outstanding, of in figures.items():
        complete = f"{100 * of['complete'] / of['samples']:.1f} %"
        table.add(outstanding, of["microseconds"], of["slowest"], complete, of["wrong"])
    return Section(
        "Naming outstanding units",
        f"`peel` of {of['samples']:,} stamps of random ids each (seeded). *Complete*: all ids are "
        "named, and `complete` is true. *Wrong*: an id is named that is not outstanding.",
        [table],
    )
