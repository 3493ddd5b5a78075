"""Decoding of traced stamps: how long `peel` takes, and how often it names all units."""

from __future__ import annotations

import random
import time
from functools import reduce
from statistics import median

from bench.harness import Figures, Section, Table
from xorack.core.peeling import peel
from xorack.core.stamp import TRACED_LENGTH, traced, xor_bytes

OUTSTANDING = (1, 8, 16, 24, 32, 48)


def measure(quick: bool) -> Figures:
    """Peel stamps of random ids; the seeds are fixed."""
    samples = 20 if quick else 400
    figures = {}
    for outstanding in OUTSTANDING:
        draw = random.Random(outstanding)
        times, whole, wrong = [], 0, 0
        for _ in range(samples):
            ids = {draw.getrandbits(64) | 1 for _ in range(outstanding)}
            left = reduce(xor_bytes, map(traced, ids), bytes(TRACED_LENGTH))
            before = time.perf_counter()
            found = peel(left)
            times.append((time.perf_counter() - before) * 1e6)
            whole += found.complete and found.ids == ids
            wrong += not found.ids <= ids
        figures[str(outstanding)] = {
            "microseconds": median(times), "slowest": max(times),
            "samples": samples, "whole": whole, "wrong": wrong,
        }  # fmt: skip
    return figures


def describe(figures: Figures) -> Section:
    """Write the section."""
    table = Table(["outstanding", "µs a peel (median)", "slowest", "complete", "wrong"])
    for outstanding, of in figures.items():
        complete = f"{100 * of['whole'] / of['samples']:.1f} %"
        table.add(outstanding, of["microseconds"], of["slowest"], complete, of["wrong"])
    return Section(
        "Naming outstanding units",
        f"`peel` of {of['samples']} stamps of random ids each (seeded). *Complete*: all ids are "
        "named, and `complete` is true. *Wrong*: an id is named that is not outstanding.",
        [table],
    )
