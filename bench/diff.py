"""CPU of `xorack.spark.diff` on TPC-H's lineitem, compared with other ways to compare frames.

python -m bench.diff                     prints the section; docs/ stays as it is
python -m bench.diff equal "10 %"        some cases: equal, 10 rows, 100 k rows, 10 %, ...
python -m bench.diff --quick             little data: the figures mean nothing
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

from bench.harness import (
    ROOT,
    Figures,
    Goal,
    Plot,
    Section,
    Table,
    case_options,
    figure,
    run_process,
)
from bench.spark import make_lines

LINES = {"0.6 M": 0.1, "6 M": 1.0, "18 M": 3.0}
"""Scale factors by the number of rows."""
QUICK_SCALE = 0.01
QUICK_CASES = {"equal": 0, "10 rows": 10, "10 %": 600}
"""How many rows differ."""
TURNS = 3
SCAN, DIFF, JOIN, EXCEPT, DATACOMPY = "scan", "diff", "outer join", "exceptAll", "datacompy"
WARM_UP = "warm-up"
DATACOMPY_PACKAGES = (
    *("datacompy==1.1.0", "ordered-set==4.1.0", "jinja2==3.1.6", "markupsafe==3.0.4"),
    *("polars==1.44.2", "polars-runtime-32==1.44.2"),
)
"""They use pandas and numpy of .venv."""


@dataclass(frozen=True)
class Case:
    """Two copies of lineitem.

    Attributes:
        lines: The number of rows; see `LINES`.
        differing: How many of the rows differ.
        slow: Variants that run once.
        variants: Variants that run in turn.
        turns: How often.
        join: The most CPU, times that of the outer join.
        scan: The most CPU, times that of the scan.
        shuffled: The most bytes shuffled, times those of the outer join.
    """

    lines: str
    differing: int
    slow: Sequence[str] = ()
    variants: Sequence[str] = (SCAN, DIFF, JOIN)
    turns: int = TURNS
    join: float | None = None
    scan: float | None = None
    shuffled: float | None = None


CASES = {
    "equal": Case("6 M", 0, [EXCEPT], join=0.42, scan=1.1, shuffled=0.01),
    "10 rows": Case("6 M", 10, join=0.5, shuffled=0.01),
    "1,000 rows": Case("6 M", 1000, join=1.1),
    "100 k rows": Case("6 M", 100_000, join=1.1),
    "10 %": Case("6 M", 600_000, [EXCEPT], join=1.1),
    "18 M, equal": Case("18 M", 0, turns=1, join=0.42, scan=1.1, shuffled=0.01),
    "18 M, 10 rows": Case("18 M", 10, turns=1, join=0.5, shuffled=0.01),
    "0.6 M, 10 rows": Case("0.6 M", 10, [EXCEPT, DATACOMPY]),
}


def install_datacompy(folder: Path) -> bool:
    """Install datacompy into a folder of its own, unless it is there; return if it is."""
    if not (folder / "datacompy").exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        try:
            run_process([*command, f"--target={folder}", *DATACOMPY_PACKAGES], timeout=300)
        except (subprocess.SubprocessError, OSError) as error:
            print(f"datacompy is not measured: {error}", file=sys.stderr)
            return False
    return True


def measure(quick: bool, names: Iterable[str] = CASES) -> Figures:
    """Measure cases, all in one other process with one Java."""
    cases = {name: CASES[name] for name in names}
    packages = ROOT / ".bench" / "datacompy"
    if quick:
        few = [name for name in QUICK_CASES if name in cases]
        cases = {n: replace(cases[n], turns=1, differing=QUICK_CASES[n]) for n in few}
    else:
        warm_up = Case("0.6 M", 1000, [EXCEPT])
        cases = {WARM_UP: warm_up, **cases}
    if any(DATACOMPY in case.slow for case in cases.values()) and not install_datacompy(packages):
        cases = {
            n: replace(c, slow=[v for v in c.slow if v != DATACOMPY]) for n, c in cases.items()
        }
    path = os.pathsep.join([str(packages), os.environ.get("PYTHONPATH", "")])
    with tempfile.TemporaryDirectory(prefix="xorack-bench-") as data:
        for lines in {case.lines for case in cases.values()}:
            make_lines(Path(data, lines), QUICK_SCALE if quick else LINES[lines])
        given = {"cases": {name: asdict(case) for name, case in cases.items()}, "data": data}
        command = [sys.executable, "-m", "bench.diff_jobs"]
        environment = {**os.environ, "PYTHONPATH": path}
        printed = run_process(command, env=environment, input=json.dumps(given))
    results: Figures = json.loads(printed.strip().splitlines()[-1])
    results.pop(WARM_UP, None)
    return {"turns": TURNS, "cases": results}


def cpu(run: Figures) -> float:
    """Return the CPU seconds of a run."""
    return float(run["cpu"]["compare"])


def ratios(case: Figures, variant: str, base: str) -> list[float]:
    """Divide a variant's CPU by the base's of the same turn, or by its median; sort."""
    of, others = ([cpu(run) for run in case[name]] for name in (variant, base))
    if len(of) != len(others):
        others = [median(others)] * len(of)
    return sorted(one / other for one, other in zip(of, others, strict=True))


def goals_of(name: str, case: Figures) -> list[Goal]:
    """Return the goals of a case."""
    goals = []
    for base, bound in ((JOIN, CASES[name].join), (SCAN, CASES[name].scan)):
        if bound is not None:
            found = ratios(case, DIFF, base)
            spread = f" ({figure(found[0])} to {figure(found[-1])})" if len(found) > 1 else ""
            goals.append(
                Goal(f"{name}: CPU, times the {base}'s{spread}", median(found), bound, "less")
            )
    if (bound := CASES[name].shuffled) is not None:
        shuffled = [median(run["shuffle_mb"] for run in case[of]) for of in (DIFF, JOIN)]
        ratio = shuffled[0] / shuffled[1]
        goals.append(Goal(f"{name}: bytes shuffled, times the {JOIN}'s", ratio, bound, "less"))
    return goals


def describe(figures: Figures) -> Section:
    """Write the section."""
    table = Table(
        ["case", "", "CPU s", "times the join", "times the scan", "seconds", "MB shuffled",
         "MB spilled", "MB of a task"],
        note="*MB shuffled*: written for other tasks. *MB of a task*: the most that the sorts, "
        "joins and aggregations of one task held at a time.",
    )  # fmt: skip
    goals: list[Goal] = []
    series: dict[str, dict[str, float]] = {SCAN: {}, DIFF: {}}
    for name, case in figures["cases"].items():
        goals += goals_of(name, case)
        for variant, runs in case.items():
            of = [median(ratios(case, variant, base)) for base in (JOIN, SCAN)]
            middle = {key: median(run[key] for run in runs) for key in runs[0] if key != "cpu"}
            memory = [float(middle[key]) for key in ("shuffle_mb", "spilled_mb", "task_mb")]
            table.add(name, variant, median(map(cpu, runs)), *of, float(middle["wall"]), *memory)
            if variant in series:
                series[variant][name] = of[0]
    axes = {"ylabel": f"CPU, times the {JOIN}'s"}
    return Section(
        "Comparing frames",
        "`xorack.spark.diff` of two copies of TPC-H's lineitem, 16 columns, by the key of two. "
        "A quarter of the rows that differ is missing, a quarter extra, half have another value. "
        "Each variant counts these rows and produces them, for a sink that drops them. "
        "*Scan* only hashes all columns of both sides. *Outer join*: full, on the key, and all "
        f"columns compared null-safely. Figures are medians of {figures['turns']} turns in one "
        "process with one Java; one of *exceptAll* (both ways), of datacompy and of 18 M rows. "
        "Ratios are to the same turn, or to the medians. [diff.md](diff.md) has the method.",
        [table],
        goals,
        Plot("CPU of comparing frames, times the outer join's", "groups", series, 3.2, axes),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure some cases and print the section."""
    options = case_options("bench.diff", CASES, arguments)
    print(describe(measure(options.quick, options.cases or CASES)).markdown())


if __name__ == "__main__":
    main()
