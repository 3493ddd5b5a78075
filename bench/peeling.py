"""Reading ids back out of a residual: how long `peel` takes, and how often it names all."""

from __future__ import annotations

import random
import time
from functools import reduce
from statistics import median

from bench.harness import Section, Table, figure
from xorack.core.stamp import TRACED_LENGTH, peel, traced, xor_bytes

OUTSTANDING = (1, 8, 16, 24, 32, 48)


def residual(draw: random.Random, outstanding: int) -> tuple[bytes, frozenset[int]]:
    """What is left of a chain with so many outstanding units, and their ids."""
    ids = frozenset(draw.getrandbits(64) | 1 for _ in range(outstanding))
    return reduce(xor_bytes, map(traced, ids), bytes(TRACED_LENGTH)), ids


def run(quick: bool = False) -> Section:
    """Peel residuals of random ids, the same ones at each run."""
    samples = 20 if quick else 400
    table = Table(["outstanding", "µs a peel (median)", "slowest", "named whole", "named wrongly"])
    section = Section(
        "peel",
        "Naming what is outstanding",
        f"`peel` of {samples} residuals of random ids each (seeded). *Named whole*: all ids, and "
        "said to be all. *Named wrongly*: an id that is not outstanding was reported.",
        [table],
    )
    for outstanding in OUTSTANDING:
        draw = random.Random(outstanding)
        times, whole, wrong = [], 0, 0
        for _ in range(samples):
            left, ids = residual(draw, outstanding)
            before = time.perf_counter()
            found = peel(left)
            times.append((time.perf_counter() - before) * 1e6)
            whole += found.complete and found.ids == ids
            wrong += not found.ids <= ids
        section.raw[str(outstanding)] = {
            "microseconds": median(times),
            "slowest": max(times),
            "samples": samples,
            "whole": whole,
            "wrong": wrong,
        }
        table.rows.append(
            [
                str(outstanding),
                figure(median(times)),
                figure(max(times)),
                f"{100 * whole / samples:.1f} %",
                str(wrong),
            ]
        )
    return section
