"""Run the bench and write its report: ``python -m bench`` (all), ``python -m bench peel memory``.

    --quick     few and short runs: to see that it works, not to quote
    --out DIR   where benchmarks.md and benchmarks.json go (docs)

Sections that are not asked for keep what the last run found of them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench import cold_start, durable, handling, in_memory, latency, peeling, plots, spark
from bench.harness import Section

DOCS = Path(__file__).resolve().parent.parent / "docs"
INTRODUCTION = """# Benchmarks

Written by `make bench`, plots included; the raw figures are in [benchmarks.json](benchmarks.json).
Times are those of one machine and of whatever else it did (below each section): what is compared
was measured in turn, so read the ratios and the counts. What exactly-once costs by design is in
[adr/0002](adr/0002-marks.md) (`python -m bench.marks`); dollars are in
[capacity.md](capacity.md)."""


def report(found: dict[str, dict[str, Any]], folder: Path) -> str:
    """The report in Markdown, with the plots that are in the folder."""
    parts = [INTRODUCTION]
    parts += [
        section["markdown"] + plots.embedded(name, folder) + _took(section)
        for name, section in found.items()
    ]
    return "\n\n".join(parts) + "\n"


def _machine() -> str:
    return (
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"load average {os.getloadavg()[0]:.1f} at the start"
    )


def _took(section: dict[str, Any]) -> str:
    if "seconds" not in section:
        return ""
    quick = ", `--quick`: not to be quoted" if section["quick"] else ""
    return f"\n\n*{section['seconds']:,.0f} s on {section['machine']}{quick}.*"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sections asked for; 1 if one could not be run; the others are written."""
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sections: dict[str, Callable[[bool], Section]] = {
        "peel": peeling.run,
        "memory": in_memory.run,
        "dynamodb": durable.run,
        "handler": handling.run,
        "cold_start": cold_start.run,
        "latency": latency.run,
        "spark": spark.run,
        "spark_scale": spark.run_scale,
    }
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(sections))
    parser.add_argument("--quick", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=DOCS, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    for name in given.sections:
        if name not in sections:
            parser.error(f"there is no section {name!r}: expected one of {', '.join(sections)}")

    raw = given.out / "benchmarks.json"
    found: dict[str, dict[str, Any]] = {}
    if raw.exists():
        found = json.loads(raw.read_text())["sections"]
    given.out.mkdir(parents=True, exist_ok=True)
    status = 0
    for name, run in sections.items():
        if given.sections and name not in given.sections:
            continue
        print(f"{name} ...", file=sys.stderr, flush=True)
        machine = _machine()
        before = time.monotonic()
        try:
            section = run(given.quick)
        except Exception as problem:  # noqa: BLE001 - said, and the other sections go on
            print(f"error: {name}: {type(problem).__name__}: {problem}", file=sys.stderr)
            status = 1
            continue
        print(section.markdown() + "\n", flush=True)
        found[name] = {
            "markdown": section.markdown(),
            "quick": given.quick,
            "machine": machine,
            "seconds": round(time.monotonic() - before, 1),
            **section.json(),
        }
        try:
            plots.draw(name, found[name], given.out)
        except Exception as problem:  # noqa: BLE001 - the figures are there all the same
            print(f"error: plot of {name}: {type(problem).__name__}: {problem}", file=sys.stderr)
            status = 1
        # After each: whoever interrupts a long run keeps what is done.
        found = {known: found[known] for known in sections if known in found}
        raw.write_text(json.dumps({"sections": found}, indent=1) + "\n")
        (given.out / "benchmarks.md").write_text(report(found, given.out), encoding="utf-8")
    print(f"written: {given.out / 'benchmarks.md'}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
