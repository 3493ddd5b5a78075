"""Decoding of traced stamps: how often `peel` names all units, how long it takes, what it costs."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial
from math import ceil
from statistics import median

from bench.harness import Figures, Section, Table
from xorack.core.peeling import peel
from xorack.core.stamp import traced, traced_length

UNITS = {16: (16, 32, 40), 64: (80, 130), 256: (384, 450), 1024: (1792,)}
"""Outstanding units by the cells of a table."""
SAMPLES = {16: 1_000, 64: 200, 256: 40, 1024: 10}
OVERFULL = {
    16: (33, 200, 10_000),
    64: (140, 800, 1_000),
    256: (550, 3_000, 200),
    1024: (2_300, 12_000, 40),
}
"""The fewest and most units, and the samples."""
ITEM_BYTES = 500
"""Bytes of a chain's item besides its stamp: some 200, and 20 marks of 16."""


def _one_bit_apart(count: int, draw: random.Random) -> set[int]:
    """Draw ids in groups of up to 65 that differ from one of them in one bit."""
    ids: set[int] = set()
    while len(ids) < count:
        base = draw.getrandbits(64) | 1 << 63 | 1
        ids |= {base, *(base ^ 1 << bit for bit in range(1, 63))}
    return set(sorted(ids)[:count])


def _apart(step: int, bits: int) -> Callable[[int, random.Random], set[int]]:
    """Draw ids at equal distances, the first of so many bits."""

    def ids(count: int, draw: random.Random) -> set[int]:
        first = draw.getrandbits(bits) + 1
        return set(range(first, first + step * count, step))

    return ids


def _random(count: int, draw: random.Random) -> set[int]:
    return {draw.getrandbits(64) | 1 for _ in range(count)}


def _too_many(fewest: int, most: int, draw: random.Random) -> set[int]:
    return _random(draw.randint(fewest, most), draw)


IDS = {
    "random": _random,
    "consecutive": _apart(1, 60),
    "1,000 apart": _apart(1_000, 40),
    "2³² apart": _apart(1 << 32, 32),
    "one bit apart": _one_bit_apart,
}


def write_units(cells: int) -> int:
    """Return the DynamoDB write units of a chain's item: one for each 1,024 bytes begun."""
    return ceil((traced_length(cells) + ITEM_BYTES) / 1024)


def _peel(cells: int, samples: int, make: Callable[[random.Random], set[int]]) -> Figures:
    """Peel the stamps of sets of ids."""
    draw = random.Random(cells)
    times, complete, wrong = [], 0, 0
    for _ in range(samples):
        ids, total = make(draw), 0
        for unit in ids:
            total ^= int.from_bytes(traced(unit, cells), "little")
        stamp = total.to_bytes(traced_length(cells), "little")
        before = time.process_time()
        found = peel(stamp)
        times.append((time.process_time() - before) * 1e3)
        complete += found == (ids, True)
        wrong += not found.ids <= ids or (found.complete and found.ids != ids)
    return {
        "milliseconds": median(times), "slowest": max(times),
        "samples": samples, "complete": complete, "wrong": wrong,
    }  # fmt: skip


def measure(quick: bool) -> Figures:
    """Peel stamps of each size, of each kind of ids, and of too many; the seeds are fixed."""
    figures: Figures = {}
    for cells, counts in UNITS.items():
        samples = 2 if quick else SAMPLES[cells]
        fewest, most, overfull = OVERFULL[cells]
        figures[str(cells)] = {
            "units": {
                str(count): {
                    kind: _peel(cells, samples, partial(make, count)) for kind, make in IDS.items()
                }
                for count in counts
            },
            "overfull": _peel(cells, 4 if quick else overfull, partial(_too_many, fewest, most)),
        }
    return figures


def describe(figures: Figures) -> Section:
    """Write the section."""
    sizes = Table(["cells", "bytes", "write units", "units", *IDS, "ms (median)", "slowest"])
    sizes.note = (
        f"*Write units* of a chain's item: (bytes + {ITEM_BYTES}) / 1,024, rounded up. The shares "
        "are those of sets of ids of which all were named, by kinds of ids."
    )
    overfull = Table(["cells", "units", "stamps", "complete", "wrong", "ms (median)", "slowest"])
    overfull.note = (
        "Stamps of random ids, mostly more than can be named. *Complete*: all were named. *Wrong*: "
        "an id was named that is not outstanding, or the result was called complete and was not."
    )
    for cells, of in figures.items():
        bytes_, units = traced_length(int(cells)), write_units(int(cells))
        for count, kinds in of["units"].items():
            shares = [f"{100 * one['complete'] / one['samples']:.2f} %" for one in kinds.values()]
            times = [one["milliseconds"] for one in kinds.values()]
            slowest = max(one["slowest"] for one in kinds.values())
            sizes.add(cells, bytes_, units, f"{int(count):,}", *shares, median(times), slowest)
        few, most, _ = OVERFULL[int(cells)]
        many = of["overfull"]
        overfull.add(
            cells, f"{few:,} to {most:,}", many["samples"], many["complete"], many["wrong"],
            many["milliseconds"], many["slowest"],
        )  # fmt: skip
    samples = ", ".join(f"{count:,}" for count in SAMPLES.values())
    return Section(
        "Naming outstanding units",
        f"`peel` of traced stamps: {samples} seeded sets of ids of each kind, by size. Times are "
        "those of the processor.",
        [sizes, overfull],
    )
