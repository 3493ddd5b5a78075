"""CPU of tracking on Spark: jobs as users write them, tracked and untracked, in turn.

*Lines*: one job cleans TPC-H's lineitem and writes it, another sums it up by part. *Words*: the two
jobs of `pipeline/`.

    python -m bench.spark                     prints the section; docs/ stays as it is
    python -m bench.spark 200 strings         some cases: 200, strings, 200k, 500k, words
    python -m bench.spark --quick words       little data: the figures mean nothing
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import median

from bench.capacity import PRICES, queue_calls
from bench.harness import Figures, Goal, Plot, Section, Table, case_options, figure, run_process
from bench.marks import drive

VARIANTS = ("untracked", "plain", "traced")
STEPS = ("job 1", "start", "job 2", "finish")
PARTS = 8
"""Files of lineitem."""
SCALE, WORDS = 2.7, 16_000_000
"""A scale factor of TPC-H is 6 million lines."""
FILES = 200
"""Files of the corpus."""
TURNS = 3
RESULT_BYTES = 200
"""The most that the driver may receive for a chain."""
MANY = 10_000_000


@dataclass(frozen=True)
class Case:
    """A pair of jobs.

    Attributes:
        data: The rows.
        goals: The most CPU of both jobs, times that of the untracked ones, by kind of stamps.
        evidence: The most CPU of the second job with its evidence, times that without.
        columns: SQL of what the first job changes in lineitem, by column; for words, nothing.
        parts: How many files of lineitem it reads.
        variants: What is compared.
    """

    data: str
    goals: Mapping[str, float] = field(default_factory=dict)
    evidence: float | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    parts: int = PARTS
    variants: Sequence[str] = VARIANTS


_FEW = {"chain": "l_suppkey % 200"}
_STRINGS = {**_FEW, "l_orderkey": "lpad(l_orderkey, 9, '0')"}
CASES = {
    "200": Case("lines", {"plain": 1.12, "traced": 1.20}, 1.15, _FEW),
    "strings": Case("lines", evidence=1.25, columns=_STRINGS, variants=VARIANTS[:2]),
    "200k": Case("lines", {"plain": 1.20, "traced": 1.40}, None, {"chain": "l_partkey % 200000"}),
    "500k": Case("lines", {"plain": 2.0, "traced": 3.0}, None, {"chain": "l_partkey % 500000"}, 2),
    "words": Case("words", {"plain": 1.12, "traced": 1.20}),
}


def make_lines(folder: Path, scale: float) -> None:
    """Write TPC-H's lineitem as Parquet files."""
    places = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    program = shutil.which("tpchgen-cli", path=places)
    if program is None:
        raise RuntimeError("tpchgen-cli is not installed: it is in pyproject.toml")
    options = ["-s", scale, "--tables=lineitem", f"--parts={PARTS}", f"--output-dir={folder}"]
    run_process([program, "parquet", *options])


def make_corpus(folder: Path, words: int) -> None:
    """Write files of different sizes whose word frequencies resemble prose's; the seed is fixed."""
    rng = random.Random(words)
    lengths = [2 + rng.randrange(10) for _ in range(50_000)]
    vocabulary = ["".join(rng.choices("etaoinshrdlucmfwypvbgkjqxz", k=k)) for k in lengths]
    text = rng.choices(vocabulary, [1 / (rank + 3) for rank in range(len(vocabulary))], k=words)
    bounds = [round(words * (at / FILES + (at / FILES) ** 2) / 2) for at in range(FILES + 1)]
    for at in range(FILES):
        path = folder / f"{at % 10}" / f"file-{at:04}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        begins = range(bounds[at], bounds[at + 1], 12)
        lines = (" ".join(text[begin : min(begin + 12, bounds[at + 1])]) for begin in begins)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def measure(quick: bool, names: Iterable[str] = CASES) -> Figures:
    """Measure cases: Spark runs in a process of its own, the queue in this one.

    Raises:
        RuntimeError: The queue received fewer messages than the jobs report.
    """
    from tests.support.queue_server import QueueServer

    scale, words, turns = (0.01, 100_000, 1) if quick else (SCALE, WORDS, TURNS)
    credentials = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
    environment = {**os.environ, **credentials, "AWS_DEFAULT_REGION": "eu-west-1"}
    cases = {name: asdict(CASES[name]) for name in names}
    with ExitStack() as stack:
        queue = stack.enter_context(QueueServer(keep=False))
        data = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="xorack-bench-")))
        make_lines(data, scale)
        make_corpus(data / "corpus", words)
        options = {"data": str(data), "queue_url": queue.queue_url}
        given = json.dumps({"cases": cases, **options, "turns": turns, "warm_up": not quick})
        command = [sys.executable, "-m", "bench.spark_jobs"]
        printed = run_process(command, env=environment, input=given)
    results: Figures = json.loads(printed.strip().splitlines()[-1])
    runs = [run for case in results.values() for of in case.values() for run in of]
    if queue.messages < sum(run.get("messages", 0) for run in runs):
        raise RuntimeError(f"the queue received {queue.messages} messages, fewer than were sent")
    return {"cores": os.cpu_count(), "turns": turns, "cases": results}


def cpu(run: Figures, steps: Sequence[str] = STEPS) -> float:
    """Sum up the CPU seconds of steps of a run."""
    return float(sum(run["cpu"].get(step, 0) for step in steps))


def ratios(case: Figures, variant: str, of: Callable[[Figures], float] = cpu) -> list[float]:
    """Divide a variant's figures by the untracked ones of the same turn; sort."""
    pairs = zip(case[variant], case["untracked"], strict=True)
    return sorted(of(run) / of(base) for run, base in pairs)


def goals_of(name: str, case: Figures) -> Iterator[Goal]:
    """Yield the goals of a case."""

    def goal(what: str, found: list[float], bound: float) -> Goal:
        spread = f"{figure(found[0])} to {figure(found[-1])}"
        return Goal(f"{name}: {what} ({spread})", median(found), bound, "less")

    for variant, bound in CASES[name].goals.items():
        yield goal(f"CPU of both jobs, {variant}", ratios(case, variant), bound)
    if limit := CASES[name].evidence:
        for what, steps in (("", ("job 2",)), (" and finish", ("job 2", "finish"))):
            found = ratios(case, "plain", partial(cpu, steps=steps))
            yield goal(f"CPU of job 2 with evidence{what}", found, limit)
    if name == "500k":
        found = sorted(run["result_bytes"] / run["chains"] for run in case["traced"])
        yield goal("bytes a chain that the driver receives, traced", found, RESULT_BYTES)


def many_chains(few: Figures, many: Figures) -> Table:
    """Compute what `MANY` chains take, from a case of many chains less the price of its rows.

    Args:
        few: The runs of a case of few chains, by variant.
        many: Those of a case of many chains, with the same number of parts.
    """
    table = Table(
        ["stamps", "µs a chain, start", "finish", "CPU hours", "SQS messages", "GB", "SQS $",
         "DynamoDB write units", "DynamoDB $", "record GB"],
        note="CPU: `start` of many chains less that of few, for the same rows; `finish` of many "
        "less that of few, whose output is of the same size. SQS: (2 x the calls that are billed "
        "for sending or receiving a message of this size, ten a call, + 0.1 for deleting) x the "
        "price. DynamoDB: (write units of a create and a stamp + 4 for the end) x the price. "
        "[capacity.md](capacity.md) has the formulas and the rest.",
    )  # fmt: skip
    units = MANY * (drive(2).writes + 4)
    for variant in VARIANTS[1:]:
        chains = many[variant][0]["chains"]
        share = many[variant][0]["rows"] / few[variant][0]["rows"]
        seconds = {}
        for step, part in (("start", share), ("finish", 1)):
            totals = [median(cpu(run, [step]) for run in of[variant]) for of in (few, many)]
            seconds[step] = max(0.0, totals[1] - part * totals[0]) / chains
        run = many[variant][-1]
        messages, size = MANY * run["messages"] / chains, run["sent_bytes"] / run["messages"]
        calls = 2 * queue_calls(10, size) + 0.1
        table.add(
            variant, *(1e6 * of for of in seconds.values()), MANY * sum(seconds.values()) / 3600,
            round(messages), messages * size / 1e9, messages * calls * PRICES["queue calls"] / 1e6,
            units, units * PRICES["write units"] / 1e6, MANY * run["record_bytes"] / chains / 1e9,
        )  # fmt: skip
    return table


def describe(figures: Figures) -> Section:
    """Write the section."""
    times = Table(["case", "variant", "CPU s", "ratio", "ratio of time", *STEPS])
    others = Table(
        ["case", "variant", "messages", "bytes a chain sent", "in the record", "KB to the driver",
         "MB shuffled", "MB of the largest worker"],
    )  # fmt: skip
    series: dict[str, dict[str, float]] = defaultdict(dict)
    goals: list[Goal] = []
    data: list[str] = []
    for name, case in figures["cases"].items():
        rows, chains = (case["plain"][0][key] for key in ("rows", "chains"))
        data.append(f"*{name}*: {rows:,} {CASES[name].data} in {chains:,} chains")
        goals += goals_of(name, case)
        for variant, runs in case.items():
            ratio, wall = (median(ratios(case, variant, of)) for of in (cpu, _wall))
            spent = (median(cpu(run, [step]) for run in runs) or None for step in STEPS)
            times.add(name, variant, median(map(cpu, runs)), ratio, wall, *spent)
            last = runs[-1]
            sent, kept = (last.get(key, 0) / chains for key in ("sent_bytes", "record_bytes"))
            # The untracked jobs of lines have no workers; what is there is idle.
            memory = last["worker_mb"] if variant != "untracked" or name == "words" else None
            cells = (last["result_bytes"] / 1e3, last["shuffle_mb"], memory)
            others.add(name, variant, last.get("messages"), sent or None, kept or None, *cells)
            if variant in CASES[name].goals:
                series[variant][name] = ratio
    tables = [times, others]
    if {"200", "500k"} <= set(figures["cases"]):
        tables.append(many_chains(figures["cases"]["200"], figures["cases"]["500k"]))
    axes = {"ylabel": "CPU, times the untracked jobs'"}
    return Section(
        "On Spark",
        "Pairs of jobs, tracked and untracked, in turn in one process with one Java. Figures are "
        f"medians of {figures['turns']} turns; ratios are to the untracked jobs of the same turn. "
        f"CPU is that of all processes but the queue's. {'; '.join(data)}. "
        "[benchmarks-spark.md](benchmarks-spark.md) has the jobs.",
        tables,
        goals,
        Plot("CPU on Spark compared with untracked", "groups", series, 3.2, axes),
    )


def _wall(run: Figures) -> float:
    return float(run["wall"])


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure some cases and print the section."""
    options = case_options("bench.spark", CASES, arguments)
    print(describe(measure(options.quick, options.cases or CASES)).markdown())


if __name__ == "__main__":
    main()
