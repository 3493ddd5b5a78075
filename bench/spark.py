"""CPU of tracking on Spark: jobs as users write them, tracked and untracked, in turn.

*Lines*: one job cleans TPC-H's lineitem and writes it, another sums it up by part. *Words*: the two
jobs of `pipeline/`. One process with one Java runs all of them.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from argparse import Namespace
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

from pyspark.sql import functions as F

from bench.harness import Figures, Goal, Table, accepting_server, goal_table
from bench.meter import Meter, cpu, make_lines, ratios, run_variants, spread_goal
from pipeline.count import count as count_words
from pipeline.data import words_in, write_words
from pipeline.folder import list_files
from pipeline.reading import encoding_named
from pipeline.scan import UNIT
from pipeline.session import session
from pipeline.split import split
from xorack.local.isolation import isolated
from xorack.spark import Tracking

VARIANTS = ("untracked", "tracked", "units kept")
STEPS = ("job 1", "start", "job 2", "finish")
SCALE, FILES_READ = 2.7, 3
"""Scale factor of lineitem, and how many of its files are read: 6 million lines."""
WORDS, FILES = 16_000_000, 200
"""Words and files of the corpus."""
TURNS = 3
CASES = {"words": 1.3, "supplier": 1.12}
"""The most CPU of both jobs, tracked, times that of the untracked ones."""


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


def run_lines(files: Sequence[str], tracking: Any, meter: Meter) -> tuple[Any, list[Figures]]:
    """Clean the lines of suppliers, then bill them by part; track if there is a run.

    Returns:
        What the second job wrote, and the reports of both jobs if they are tracked.
    """
    spark, path, billed = meter.spark, f"{meter.out}/lines", f"{meter.out}/billed"
    unit = ["l_orderkey", "l_linenumber"]
    lines = tracking and tracking.rows("lines", chain="chain", unit=unit)
    changes = {"l_comment": F.expr("trim(l_comment)"), "chain": F.col("l_suppkey")}
    reports = []
    with meter.step("job 1"):
        read = spark.read.parquet(*files).where("l_quantity > 0")
        read.withColumns(changes).write.parquet(path)
    if lines:
        with meter.step("start"):
            reports.append(vars(lines.start(path)))
    with meter.step("job 2"):
        rows = spark.read.parquet(path)
        sums = [F.expr("sum(l_extendedprice * (1 - l_discount)) AS revenue")]
        if lines:
            rows, sums = rows.transform(lines.with_unit), [*sums, *lines.evidence()]
        rows.groupBy("l_partkey").agg(*sums).write.parquet(billed)
    if lines:
        with meter.step("finish"):
            reports.append(vars(lines.finish(written=billed)))
    return spark.read.parquet(billed).select("l_partkey", "revenue"), reports


def run_words(database: Path, tracking: Any, meter: Meter) -> tuple[Any, list[Figures]]:
    """Split a corpus into words and count them, as the pipeline does; see `run_lines`."""
    place, counts = f"{meter.out}/words", f"{meter.out}/counts"
    reports = []
    if tracking:
        words = tracking.rows("words", chain="file", unit=UNIT)
        common = {"run_id": tracking.run_id, "words": place}
        chosen = {"glob": "*", "exclude": [], "hidden": False, "encoding": encoding_named("UTF-8")}
        with meter.step("job 1"):
            given = Namespace(database=str(database), **chosen, **common)
            reports.append(split(meter.spark, words, given))
        with meter.step("job 2"):
            given = Namespace(counts=counts, **common)
            reports.append(count_words(meter.spark, words, given))
    else:
        with meter.step("job 1"):
            write_words(meter.spark, place, list_files(str(database)), encoding_named("UTF-8"))
        with meter.step("job 2"):
            groups = words_in(meter.spark, place).groupBy("word")
            groups.agg(F.count("word").alias("count")).write.parquet(counts)
    return meter.spark.read.parquet(counts).select("word", "count"), reports


def run_case(
    name: str, data: Path, queue_url: str, meter_in: Callable[[Path], Meter], turns: int, parts: int
) -> dict[str, list[Figures]]:
    """Run a pair of jobs in all variants; those of lines read some of the files."""
    files = sorted(map(str, data.glob("lineitem/*.parquet")))[:parts]

    def run(variant: Any) -> tuple[Hashable, Figures]:
        out = data / "out"
        meter, tracking = meter_in(out), None
        if variant != "untracked":
            tracking = Tracking(meter.spark, queue_url, "bench", f"{out}/records")
            tracking = replace(tracking, keep_units=variant == VARIANTS[2])
        if name == "words":
            written, reports = run_words(data / "corpus", tracking, meter)
        else:
            written, reports = run_lines(files, tracking, meter)
        figures = meter.figures()
        if reports:
            figures["chains"] = reports[1]["chains"]
            figures["messages"] = sum(report["messages"] for report in reports)
            figures["sent_bytes"] = sum(report["bytes"] for report in reports)
        summary = written.agg(F.count(F.lit(1)), F.bit_xor(F.xxhash64(*written.columns))).first()
        shutil.rmtree(out)
        return summary, figures

    return run_variants({variant: variant for variant in VARIANTS}, run, turns)


def measure(quick: bool, names: Iterable[str] = CASES) -> Figures:
    """Measure cases; each variant runs once before with one file of lineitem: Java compiles."""
    scale, words, turns = (0.01, 100_000, 1) if quick else (SCALE, WORDS, TURNS)
    results = {}
    with (
        accepting_server() as (endpoint, server),
        patch.dict(os.environ, isolated(os.environ), clear=True),
        tempfile.TemporaryDirectory(prefix="xorack-bench-") as folder,
    ):
        data, spark = Path(folder), session("xorack bench")
        make_lines(data, scale)
        make_corpus(data / "corpus", words)
        for name in names:
            given = data, f"{endpoint}/123456789012/stamps", partial(Meter, spark, without=[server])
            if not quick:
                run_case(name, *given, turns=1, parts=1)
            results[name] = run_case(name, *given, turns, FILES_READ)
        spark.stop()
    return {"cores": os.cpu_count(), "turns": turns, "cases": results}


def tables(figures: Figures) -> list[Table]:
    """Make the tables."""
    times = Table(["case", "variant", "CPU s", "ratio", "ratio of time", *STEPS])
    others = Table(
        ["case", "variant", "messages", "bytes a chain sent", "in the record", "KB to the driver",
         "MB shuffled", "MB of the largest worker"],
    )  # fmt: skip
    goals: list[Goal] = []
    for name, case in figures["cases"].items():
        chains = next(run["chains"] for runs in case.values() for run in runs if "chains" in run)
        found = ratios(case, "tracked", "untracked")
        goals.append(spread_goal(f"{name}: CPU of both jobs, tracked", found, CASES[name]))
        for variant, runs in case.items():
            ratio = median(ratios(case, variant, "untracked"))
            wall = median(ratios(case, variant, "untracked", itemgetter("wall")))
            spent = (median(cpu(run, [step]) for run in runs) or None for step in STEPS)
            times.add(name, variant, median(map(cpu, runs)), ratio, wall, *spent)
            last = runs[-1]
            sent, kept = (last.get(key, 0) / chains for key in ("sent_bytes", "record_bytes"))
            # The untracked jobs of lines have no workers; what is there is idle.
            memory = last["worker_mb"] if variant != "untracked" or name == "words" else None
            cells = (last["result_bytes"] / 1e3, last["shuffle_mb"], memory)
            others.add(name, variant, last.get("messages"), sent or None, kept or None, *cells)
    return [times, others, goal_table(goals)]
