"""Run the benchmarks and write their report: ``python -m bench`` (all), ``python -m bench peel``.

    --quick     few and short runs, to check that it works; the figures mean nothing
    --render    measure nothing; write the report and the plots of the figures that exist
    --out DIR   the folder of benchmarks.md and benchmarks.json (docs)

A section that is not run keeps the figures of its last run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from bench import plots
from bench.harness import ROOT, Section

SECTIONS = (
    "peel",
    "memory",
    "dynamodb",
    "handler",
    "cpu",
    "cold_start",
    "latency",
    "spark",
    "diff",
)
"""Modules of this package, each with ``measure(quick)`` and ``describe(figures)``."""
INTRODUCTION = """# Benchmarks

Written by `make bench`, with its plots; all figures are in [benchmarks.json](benchmarks.json).
Times depend on the machine and its load, which stand below each section. Variants are measured in
turn, so ratios and counts are comparable. [adr/0002](adr/0002-marks.md) has the cost of
exactly-once (`python -m bench.marks`); [capacity.md](capacity.md) has dollars."""


def measure(name: str, quick: bool) -> dict[str, Any]:
    """Run a section; return its figures with the circumstances."""
    machine = (
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"load average {os.getloadavg()[0]:.1f} at the start"
    )
    start = time.monotonic()
    figures = import_module(f"bench.{name}").measure(quick)
    seconds = round(time.monotonic() - start, 1)
    return {"quick": quick, "machine": machine, "seconds": seconds, "figures": figures}


def render(name: str, run: dict[str, Any], folder: Path) -> str:
    """Format a section with its plot, which is drawn again."""
    section: Section = import_module(f"bench.{name}").describe(run["figures"])
    parts = [section.markdown()]
    if section.plot:
        target = f"images/bench-{name.replace('_', '-')}.svg"
        plots.draw(section.plot, folder / target)
        parts.append(f"![{section.plot.text}]({target})")
    quick = ", `--quick`: do not quote" if run["quick"] else ""
    parts.append(f"*{run['seconds']:,.0f} s on {run['machine']}{quick}.*")
    return "\n\n".join(parts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen sections and write the report.

    Returns:
        The exit status: 1 if a section failed; the others are written.
    """
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    for option in ("--quick", "--render"):
        parser.add_argument(option, action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=ROOT / "docs", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    for name in options.sections:
        if name not in SECTIONS:
            parser.error(f"unknown section {name!r}: expected one of {', '.join(SECTIONS)}")

    options.out.mkdir(parents=True, exist_ok=True)
    raw = options.out / "benchmarks.json"
    runs = json.loads(raw.read_text())["sections"] if raw.exists() else {}
    status = 0
    for name in () if options.render else options.sections or SECTIONS:
        print(f"{name} ...", file=sys.stderr, flush=True)
        try:
            run = measure(name, options.quick)
            print(render(name, run, options.out) + "\n", flush=True)
        except Exception as error:  # noqa: BLE001 - the other sections still run
            print(f"error: {name}: {type(error).__name__}: {error}", file=sys.stderr)
            status = 1
            continue
        # Written after each section: an interrupted run keeps what it measured.
        runs[name] = run
        runs = {section: runs[section] for section in SECTIONS if section in runs}
        raw.write_text(json.dumps({"sections": runs}, indent=1) + "\n")
    parts = [INTRODUCTION, *(render(name, run, options.out) for name, run in runs.items())]
    report = options.out / "benchmarks.md"
    report.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    print(f"written: {report}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
