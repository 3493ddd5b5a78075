"""Runs the benchmarks and prints their tables: ``python -m bench [SECTION ...]``.

docs/benchmarks.md has the tables of a run, and explains them.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Sequence
from importlib import import_module

SECTIONS = (
    "memory",
    "dynamodb",
    "consumer",
    "scale",
    "parents",
    "sweeps",
    "cold_start",
    "spark",
    "spark_first",
    "spark_failing",
)
"""The modules of this package. Each has a function ``measure(quick)``, which returns tables."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the chosen sections."""
    parser = argparse.ArgumentParser("python -m bench")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--quick", action="store_true", help="few and short runs: does it work?")
    parser.add_argument("--case", default="", help="only cases of Spark with this text in the name")
    options = parser.parse_args(arguments)
    if unknown := set(options.sections) - set(SECTIONS):
        parser.error(f"unknown {', '.join(unknown)}: expected some of {', '.join(SECTIONS)}")
    for name in options.sections or SECTIONS:
        load, start = os.getloadavg()[0], time.monotonic()
        case = [options.case] * name.startswith("spark")
        tables = import_module(f"bench.{name}").measure(options.quick, *case)
        print(f"## {name}", *(table.markdown() for table in tables), sep="\n\n")
        machine = (
            f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
        )
        seconds = time.monotonic() - start
        print(f"*{seconds:,.0f} s on {machine}, load average {load:.1f} at the start.*", flush=True)


if __name__ == "__main__":
    main()
