"""Measures the processor time of tracking on Spark, by pairs of tracked and untracked jobs.

One job cleans TPC-H's lineitem and writes it, and another sums it up by part. The untracked jobs
have the same code, but their rows track nothing. All jobs run in turns in one process with one
Java. The cases of scale run once, tracked, with generated lines.
"""

from __future__ import annotations

import os
import random
import shutil
from argparse import Namespace
from collections.abc import Hashable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from pyspark.sql import functions as F

from bench.harness import Table, accepting_server
from bench.meter import Figures, Meter, cpu, make_lines, ratios, run_variants, spread
from pipeline.count import count
from pipeline.reading import encoding_named
from pipeline.scan import UNIT
from pipeline.session import session
from pipeline.split import split
from xorack.errors import OutputDiffersError
from xorack.spark import Report, Tracking

UNTRACKED, TRACKED = "untracked", "tracked"
STEPS = ("job 1", "start", "job 2", "finish")
FILES = 200
"""The number of the corpus's files."""


class Case(NamedTuple):
    """A pair of jobs over lineitem or over a corpus."""

    chain: str = "l_suppkey"  # an SQL expression
    where: str = "l_quantity > 0"
    scale: float = 1  # of TPC-H; 1 is 6 million lines
    variants: tuple[str, ...] = (UNTRACKED, TRACKED)
    turns: int = 3
    rows: int = 0  # the number of generated lines; l_orderkey is the line's number
    rows_a_file: int = 0
    partitions: int = 0  # the number of shuffle partitions, which Spark must not combine
    words: int = 0  # the size of a corpus, whose words the pipeline counts instead
    kept: str = ""  # a condition; job 2 loses all other rows, so that finish fails


_ORDER = "(l_orderkey div 32 * 8 + l_orderkey % 8)"
"""TPC-H has eight orders in each 32 numbers."""
_scale = partial(Case, variants=(TRACKED,), turns=1)
CASES = {
    "words": Case(words=16_000_000),
    "SF 1 by supplier": Case(),
    "SF 2.7 in 200,000 chains": Case(f"{_ORDER} % 200000", scale=2.7),
    "SF 1 by order": Case("l_orderkey"),
    "4 M rows in 500 k chains": Case("l_orderkey div 2", "l_orderkey <= 4000000"),
    "warm": Case("l_orderkey", "l_orderkey <= 1000", 0.01, variants=(TRACKED,), turns=9),
    "10 M rows in 1 M chains": _scale("l_orderkey % 1000000", rows=10_000_000),
    "one chain of 9 M rows": _scale(
        "if(l_orderkey % 10 = 0, l_orderkey % 100000, 1)", rows=10_000_000
    ),
    "2,000 partitions": _scale("l_orderkey % 5000", rows=1_000_000, partitions=2_000),
    "20,000 files": _scale("l_orderkey % 5000", rows=1_000_000, rows_a_file=50),
    "20,000 tags of 5,000 bytes": _scale(
        "concat(repeat('x', 4990), lpad(l_orderkey % 20000, 10, '0'))", rows=1_000_000
    ),
}


class Untracked:
    """Rows that are not tracked. The methods do nothing."""

    def with_unit(self, frame: Any) -> Any:
        return frame

    def evidence(self, frame: Any = None) -> tuple[Any, ...]:
        return ()

    def start(self, *_: Any, **__: Any) -> Report:
        return Report("read", 0, 0, 0, 0, 0, 0)

    finish = start


def run_jobs(spark: Any, folder: Path, case: Case, tracking: Any, meter: Meter) -> Any:
    """Clean lines, and bill them by part. If there is a run, track them. Return the bills."""
    data, path, billed = (
        f"{folder}/{name}" for name in ("data/lineitem", "out/lines", "out/billed")
    )
    lines: Any = Untracked()
    if tracking:
        lines = tracking.rows("lines", chain="chain", unit=["l_orderkey", "l_linenumber"])
    spark.conf.set("spark.sql.adaptive.enabled", not case.partitions)
    spark.conf.set("spark.sql.shuffle.partitions", case.partitions or max(2, os.cpu_count() or 1))
    changes = {"l_comment": F.expr("trim(l_comment)"), "chain": F.expr(case.chain)}
    with meter.step("job 1"):
        read = made_up(spark, case.rows) if case.rows else spark.read.parquet(data)
        changed = read.where(case.where).withColumns(changes)
        changed.write.option("maxRecordsPerFile", case.rows_a_file).parquet(path)
    with meter.step("start"):
        lines.start(path)
    with meter.step("job 2"):
        rows = spark.read.parquet(path).transform(lines.with_unit)
        revenue = F.expr("sum(l_extendedprice * (1 - l_discount)) AS revenue")
        kept = rows.where(case.kept) if case.kept else rows
        bills = kept.groupBy("l_partkey").agg(revenue, *lines.evidence(kept))
        bills.write.parquet(billed)
    with meter.step("finish"), suppress(*[OutputDiffersError] * bool(case.kept)):
        lines.finish(billed)
    return spark.read.parquet(billed).select("l_partkey", "revenue")


def make_corpus(folder: Path, words: int) -> None:
    """Write files of different sizes with the word frequencies of prose and a fixed seed."""
    rng = random.Random(words)
    vocabulary = [format(rng.randrange(1 << 4 * rng.randrange(1, 9)), "x") for _ in range(50_000)]
    weights = [1 / (rank + 3) for rank in range(len(vocabulary))]
    folder.mkdir()
    for number in range(1, FILES + 1):
        size = 2 * words * number // (FILES * (FILES + 1))
        text = rng.choices(vocabulary, weights, k=size)
        lines = [" ".join(text[at : at + 12]) for at in range(0, size, 12)]
        (folder / f"{number}.txt").write_text("\n".join(lines))


def count_corpus(spark: Any, folder: Path, _: Case, tracking: Any, meter: Meter) -> Any:
    """Split a corpus into words and count them, like the pipeline; return the counts."""
    words: Any = tracking.rows("words", chain="file", unit=UNIT) if tracking else Untracked()
    arguments = Namespace(database=f"{folder}/data", words=f"{folder}/out/words", run_id="bench")
    arguments.counts, arguments.allow_missing = f"{folder}/out/counts", False
    arguments.encoding = encoding_named("UTF-8")
    for name, job in {"job 1": split, "job 2": count}.items():
        with meter.step(name):
            job(spark, words, arguments)
    return spark.read.parquet(arguments.counts).select("word", "count")


def made_up(spark: Any, rows: int) -> Any:
    """Return generated lines with the columns that the jobs read, and a thousand parts."""
    fixed = ("1 AS l_linenumber", "1 AS l_quantity", "0.1 AS l_discount", "'' AS l_comment")
    part = "id % 1000 AS l_partkey"
    return spark.range(rows).selectExpr("id AS l_orderkey", part, "9.0 AS l_extendedprice", *fixed)


def run_case(spark: Any, case: Case, folder: Path, queue_url: str) -> dict[str, list[Figures]]:
    """Run a pair of jobs in all variants."""

    def run(variant: str) -> tuple[Hashable, Figures]:
        meter, tracking, records = Meter(spark), None, f"{folder}/out/records"
        if variant != UNTRACKED:
            tracking = Tracking(spark, queue_url, "bench", records)
        jobs = count_corpus if case.words else run_jobs
        written = jobs(spark, folder, case, tracking, meter)
        figures = meter.figures()
        summary = written.agg(F.count(F.lit(1)), F.bit_xor(F.xxhash64(*written.columns))).first()
        shutil.rmtree(folder / "out")
        return summary, figures

    if not case.rows:
        run(TRACKED)  # run once before, so that Java compiles the code
    return run_variants(case.variants, run, case.turns)


def measure(quick: bool, case: str = "") -> list[Table]:
    """Measure all cases, or those with a text in their name; the tracked jobs run once before."""
    table = Table(["case", "variant", "CPU s", "ratio", *STEPS, "driver MB", "worker MB"])
    for name, results in measured(CASES, case, quick=quick):
        for variant, runs in results.items():
            ratio = spread(ratios(results, variant, UNTRACKED)) if UNTRACKED in results else None
            spent = (median(cpu(run, [step]) for run in runs) or None for step in STEPS)
            memory = (max(run[f"{of}_mb"] for run in runs) for of in ("driver", "worker"))
            table.add(name, variant, median(map(cpu, runs)), ratio, *spent, *memory)
    return [table]


def measured(
    cases: Mapping[str, Case], only: str, *, quick: bool
) -> Iterator[tuple[str, dict[str, list[Figures]]]]:
    """Run cases in one session; yield the figures of each case by variant."""
    cases = {name: case for name, case in cases.items() if only in name}
    with accepting_server() as endpoint, TemporaryDirectory(prefix="xorack-bench-") as folder:
        spark = session("xorack bench")
        for name, full in cases.items():
            case = smaller(full) if quick else full
            make_data(Path(folder, "data"), case)
            yield name, run_case(spark, case, Path(folder), f"{endpoint}/1234/stamps")
            shutil.rmtree(Path(folder, "data"), ignore_errors=True)
        spark.stop()


def smaller(case: Case) -> Case:
    """Return the same case with a hundredth of the rows, run only once."""
    words, rows = case.words // 100, case.rows // 100
    return case._replace(scale=0.01, words=words, rows=rows, turns=1)


def make_data(folder: Path, case: Case) -> None:
    """Write the files that the first job of a case reads."""
    if case.words:
        make_corpus(folder, case.words)
    elif not case.rows:
        make_lines(folder, case.scale)
