"""The jobs whose price `bench.spark` measures, run in turn in one process with one Java.

It reads the arguments of `run_cases` as JSON and prints its result. CPU is that of the process's
tree, from /proc, where the queue is not.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from bench.harness import Figures, interleaved

_TICK = os.sysconf("SC_CLK_TCK")


def process_ticks(root: int) -> dict[int, int]:
    """Return the CPU of each process of a tree, with the ended ones that it waited for."""
    parents, ticks = {}, {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # the process ended
            continue
        parents[int(entry)], ticks[int(entry)] = int(fields[1]), sum(map(int, fields[11:15]))
    tree = {root}
    while more := {process for process, parent in parents.items() if parent in tree} - tree:
        tree |= more
    return {process: ticks[process] for process in tree if process in ticks}


def cpu_seconds(root: int) -> float:
    """Sum up the CPU of a tree of processes."""
    return sum(process_ticks(root).values()) / _TICK


def worker_peaks(*, forget: bool = False) -> list[float]:
    """Return the peaks of the memory of this process's Spark workers in MB, or let them begin anew.

    Args:
        forget: Lets the peaks be what the processes have now.
    """
    peaks = []
    for process in process_ticks(os.getpid()):
        folder = Path("/proc", str(process))
        with suppress(OSError):  # the process ended
            if b"pyspark.daemon" not in (folder / "cmdline").read_bytes():
                continue
            if forget:
                (folder / "clear_refs").write_text("5")
            kilobytes = re.search(r"VmHWM:\s+(\d+)", (folder / "status").read_text())
            peaks.append(int(kilobytes[1]) / 1024 if kilobytes else 0.0)
    return peaks


class Meter:
    """Measures the steps of a pair of jobs.

    Attributes:
        spark: The session.
        out: A folder that the jobs write to.
    """

    def __init__(self, spark: Any, out: Path) -> None:
        """Collect Java's garbage, so that no run pays for an earlier one."""
        self.spark, self.out = spark, out
        self._cpu: dict[str, float] = {}
        self._wall = self._worker_mb = 0.0
        spark._jvm.System.gc()
        self._first_stage = 1 + max((stage.stageId() for stage in self._stages()), default=-1)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure what runs in the block."""
        worker_peaks(forget=True)
        cpu, begun = cpu_seconds(os.getpid()), time.monotonic()
        yield
        self._wall += time.monotonic() - begun
        self._cpu[name] = round(cpu_seconds(os.getpid()) - cpu, 2)
        self._worker_mb = max([self._worker_mb, *worker_peaks()])

    def figures(self) -> Figures:
        """Return what was measured, with the bytes that were shuffled and that the driver got."""
        stages = [stage for stage in self._stages() if stage.stageId() >= self._first_stage]
        records = (self.out / "records").rglob("*.parquet")
        return {
            "cpu": self._cpu,
            "wall": round(self._wall, 2),
            "worker_mb": round(self._worker_mb),
            "shuffle_mb": round(sum(stage.shuffleWriteBytes() for stage in stages) / 1e6, 3),
            "spilled_mb": round(sum(stage.memoryBytesSpilled() for stage in stages) / 1e6),
            "task_mb": round(max(map(self._largest_task, stages)) / 1e6, 1),
            "result_bytes": sum(stage.resultSize() for stage in stages),
            "record_bytes": sum(file.stat().st_size for file in records),
        }

    def _largest_task(self, stage: Any) -> float:
        """Return the most bytes that sorts, joins and aggregations of one task held."""
        one = self.spark.sparkContext._gateway.new_array(self.spark._jvm.double, 1)
        one[0] = 1.0
        store = self.spark.sparkContext._jsc.sc().statusStore()
        tasks = store.taskSummary(stage.stageId(), stage.attemptId(), one)
        return float(tasks.get().peakExecutionMemory().apply(0)) if tasks.isDefined() else 0.0

    def _stages(self) -> list[Any]:
        context = self.spark.sparkContext._jsc.sc()
        context.listenerBus().waitUntilEmpty()
        no_quantiles = self.spark.sparkContext._gateway.new_array(self.spark._jvm.double, 0)
        found = context.statusStore().stageList(None, False, False, no_quantiles, None)
        return [found.apply(number) for number in range(found.size())]


def run_lines(
    files: Sequence[str], columns: Mapping[str, str], tracking: Any, meter: Meter
) -> tuple[Any, list[Figures]]:
    """Clean the lines of orders, then bill them by part.

    Args:
        files: Those of lineitem.
        columns: SQL of what the first job changes, by column.
        tracking: The run; None if it is not tracked.
        meter: Measures the steps.

    Returns:
        What the second job wrote, and the reports of both jobs if they are tracked.
    """
    from pyspark.sql import functions as F

    spark, path, billed = meter.spark, f"{meter.out}/lines", f"{meter.out}/billed"
    unit = ["l_orderkey", "l_linenumber"]
    lines = tracking and tracking.rows("lines", chain="chain", unit=unit)
    changes = {"l_comment": "trim(l_comment)", **columns}
    reports = []
    with meter.step("job 1"):
        read = spark.read.parquet(*files).where("l_quantity > 0")
        clean = read.withColumns({name: F.expr(change) for name, change in changes.items()})
        clean.write.parquet(path)
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
    from pyspark.sql import functions as F

    from pipeline.count import count as count_words
    from pipeline.data import words_in, write_words
    from pipeline.folder import list_files
    from pipeline.reading import encoding_named
    from pipeline.split import split

    place, counts = f"{meter.out}/words", f"{meter.out}/counts"
    reports = []
    if tracking:
        words = tracking.rows("words", chain="file", unit=["file", "position", "word"])
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
    spark: Any, data: Path, queue_url: str, case: Mapping[str, Any], parts: int, turns: int
) -> dict[str, list[Figures]]:
    """Run a pair of jobs, turn after turn, in some variants.

    Args:
        spark: The session.
        data: The folder of the data.
        queue_url: The queue.
        case: ``variants``, and ``columns`` as for `run_lines`: without them, words are counted.
        parts: How many files of lineitem are read.
        turns: How often each variant runs.

    Raises:
        RuntimeError: The variants have different results.
    """
    from pyspark.sql import functions as F

    from xorack.spark import Tracking

    results, numbers = set(), count()
    files = sorted(map(str, data.glob("lineitem/*.parquet")))[:parts]

    def run(variant: Any) -> Figures:
        out = data / f"out-{next(numbers)}"
        meter, tracking = Meter(spark, out), None
        if variant != "untracked":
            tracking = Tracking(spark, queue_url, "bench", f"{out}/records", stamps=variant)
        if case["columns"]:
            written, reports = run_lines(files, case["columns"], tracking, meter)
        else:
            written, reports = run_words(data / "corpus", tracking, meter)
        figures = meter.figures()
        if reports:
            figures |= {"rows": reports[1]["units"], "chains": reports[1]["chains"]}
            figures["messages"] = sum(report["messages"] for report in reports)
            figures["sent_bytes"] = sum(report["bytes"] for report in reports)
        summary = written.agg(F.count(F.lit(1)), F.bit_xor(F.xxhash64(*written.columns)))
        results.add(tuple(summary.first() or ()))
        shutil.rmtree(out)
        return figures

    runs = interleaved({variant: partial(run, variant) for variant in case["variants"]}, turns)
    if len(results) != 1:
        raise RuntimeError(f"the variants have different results: {results}")
    return runs


def run_cases(
    cases: Mapping[str, Mapping[str, Any]], data: str, queue_url: str, turns: int, warm_up: bool
) -> dict[str, dict[str, list[Figures]]]:
    """Run cases.

    Args:
        cases: As for `run_case`, with ``parts``, by name.
        data: The folder of the data, in which jobs write.
        queue_url: The queue.
        turns: How often each variant runs.
        warm_up: Runs each variant once before, with one file of lineitem; Java compiles.

    Returns:
        The figures of each turn, by case and variant.
    """
    from pipeline.session import session

    spark, results = session("xorack bench"), {}
    for name, case in cases.items():
        for parts, times in [(1, 1)] * warm_up + [(case["parts"], turns)]:
            results[name] = run_case(spark, Path(data), queue_url, case, parts, times)
    return results


if __name__ == "__main__":
    print(json.dumps(run_cases(**json.load(sys.stdin))))
