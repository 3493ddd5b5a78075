"""Run the benchmarks and renew the tables of docs/benchmarks.md: ``python -m bench [SECTION ...]``.

    --quick             few and short runs, to check that it works; prints, and writes nothing
    --cases CASE ...    some cases of the section spark; prints, and writes nothing

The text of docs/benchmarks.md is written by hand. A section that is not run keeps its tables.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from bench.harness import ROOT

SECTIONS = {
    "memory": "In memory",
    "dynamodb": "Over DynamoDB",
    "consumer": "The consumer's processor time",
    "scale": "Many time-outs, and one large chain",
    "cold_start": "Cold start",
    "spark": "On Spark",
    "windows": "A stream with windows",
}
"""Modules of this package, each with ``measure(quick)`` and ``tables(figures)``, and headings."""
PAGE = ROOT / "docs" / "benchmarks.md"
_TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
_MACHINE = re.compile(r"^\*[\d,]+ s on .*\*$", re.MULTILINE)


def measure(name: str, quick: bool, cases: Sequence[str]) -> dict[str, Any]:
    """Run a section, or some of its cases; return its figures with the circumstances."""
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    machine += f", load average {os.getloadavg()[0]:.1f} at the start"
    start = time.monotonic()
    figures = import_module(f"bench.{name}").measure(quick, *([cases] if cases else []))
    seconds = round(time.monotonic() - start, 1)
    return {"machine": machine, "seconds": seconds, "figures": figures}


def render(name: str, run: dict[str, Any]) -> list[str]:
    return [table.markdown() for table in import_module(f"bench.{name}").tables(run["figures"])]


def renew(page: str, name: str, run: dict[str, Any]) -> str:
    """Replace the tables of a section of the page, and the line about the machine."""
    before, heading, rest = page.partition(f"## {SECTIONS[name]}\n")
    section, following, after = rest.partition("\n## ")
    texts, tables = _TABLE.split(section), render(name, run)
    if len(texts) != len(tables) + 1:
        raise ValueError(f"docs/benchmarks.md, {SECTIONS[name]}: expected {len(tables)} tables")
    section = "".join(text + table for text, table in zip(texts, [*tables, ""], strict=True))
    section = _MACHINE.sub(f"*{run['seconds']:,.0f} s on {run['machine']}.*", section)
    return before + heading + section + following + after


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the chosen sections and renew the page."""
    parser = argparse.ArgumentParser(
        "python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--quick", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--cases", nargs="+", default=[], help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if unknown := set(options.sections) - set(SECTIONS):
        parser.error(f"unknown {', '.join(unknown)}: expected some of {', '.join(SECTIONS)}")
    for name in options.sections or SECTIONS:
        print(f"{name} ...", file=sys.stderr, flush=True)
        run = measure(name, options.quick, options.cases)
        print(*render(name, run), sep="\n", flush=True)
        if not (options.quick or options.cases):  # an interrupted run keeps what it measured
            PAGE.write_text(renew(PAGE.read_text(encoding="utf-8"), name, run), encoding="utf-8")


if __name__ == "__main__":
    main()
