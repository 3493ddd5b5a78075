"""Measures Spark jobs: the processor time of all their processes, and the workers' memory."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from statistics import median
from threading import Event, Thread
from typing import Any

from bench.harness import figure, interleaved

Figures = dict[str, Any]
"""The CPU of each step, and the largest memory."""
PARTS = 8
"""The number of lineitem's files."""
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = os.sysconf("SC_CLK_TCK")
_SAMPLE_SECONDS = 0.2


def make_lines(folder: Path, scale: float) -> None:
    """Write TPC-H's lineitem as Parquet files. A scale factor of 1 is 6 million lines."""
    program = Path(sys.executable).with_name("tpchgen-cli")
    options = ["-s", str(scale), "--tables=lineitem", f"--parts={PARTS}", f"--output-dir={folder}"]
    subprocess.run([program, "parquet", *options], check=True, stdout=subprocess.DEVNULL)


class ProcessTree:
    """The CPU and memory of this process, and of another process with its descendants.

    Descendants count even after they have ended. No process waits for some of Spark's Python
    workers, so the last observed CPU of each process counts.
    """

    def __init__(self, root: int) -> None:
        """Start with a running process and its descendants."""
        self.driver_mb = self.worker_mb = self._looking = 0.0
        self._root = root
        self._ticks: dict[tuple[int, str], int] = {}
        """By process id and start time, because the system reuses ids."""

    def cpu_seconds(self) -> float:
        """Return the CPU of all processes so far, without the CPU of measuring them."""
        self.sample()
        return sum(self._ticks.values()) / _TICK + time.process_time() - self._looking

    def sample(self) -> None:
        """Read the CPU of the processes and the memory of the workers."""
        begun, processes = time.thread_time(), {}
        for process in map(int, filter(str.isdigit, os.listdir("/proc"))):
            with suppress(OSError):  # the process has ended
                stat = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
                processes[process] = (
                    int(stat[1]),
                    (process, stat[19]),
                    int(stat[11]) + int(stat[12]),
                )
        # A process whose parent has ended still belongs to the tree.
        tree = {self._root} | {p for p, (_, key, _) in processes.items() if key in self._ticks}
        while more := {p for p, (parent, *_) in processes.items() if parent in tree} - tree:
            tree |= more
        for process in tree & processes.keys():
            _, key, self._ticks[key] = processes[process]
            with suppress(OSError):
                if b"pyspark.daemon" in Path(f"/proc/{process}/cmdline").read_bytes():
                    self.worker_mb = max(self.worker_mb, _resident_mb(process))
        self.driver_mb = max(self.driver_mb, _resident_mb(os.getpid()))
        self._looking += time.thread_time() - begun


def _resident_mb(process: int) -> float:
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * _PAGE / (1 << 20)


class Meter:
    """Measures this process and Java with Spark's workers in each step of a run of jobs."""

    def __init__(self, spark: Any) -> None:
        """Collect Java's garbage first, so that no run pays for an earlier run."""
        self._cpu: dict[str, float] = {}
        spark._jvm.System.gc()
        self._processes = ProcessTree(spark.sparkContext._gateway.proc.pid)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure the code in the block. The processes are sampled from time to time."""
        ended = Event()

        def sample() -> None:
            while not ended.wait(_SAMPLE_SECONDS):
                self._processes.sample()

        cpu = self._processes.cpu_seconds()
        thread = Thread(target=sample, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
        self._cpu[name] = round(self._processes.cpu_seconds() - cpu, 2)

    def figures(self) -> Figures:
        """Return the measured figures."""
        tree = self._processes
        memory = {"driver_mb": round(tree.driver_mb), "worker_mb": round(tree.worker_mb)}
        return {"cpu": self._cpu, **memory}


def run_variants(
    variants: Sequence[str], run: Callable[[str], tuple[Hashable, Figures]], turns: int
) -> dict[str, list[Figures]]:
    """Run all variants of a case in turns. All must return the same result, besides figures."""
    runs = interleaved({name: partial(run, name) for name in variants}, turns)
    (_,) = {result for results in runs.values() for result, _ in results}
    return {name: [figures for _, figures in results] for name, results in runs.items()}


def cpu(run: Figures, steps: Sequence[str] = ()) -> float:
    """Return the CPU seconds of these steps of a run, or of all steps."""
    return float(sum(run["cpu"].get(step, 0) for step in steps or run["cpu"]))


def ratios(case: Figures, variant: str, base: str) -> list[float]:
    """Return the sorted ratios of a variant's CPU to the CPU of `base` in the same turn."""
    return sorted(
        cpu(run) / cpu(other) for run, other in zip(case[variant], case[base], strict=True)
    )


def spread(figures: Sequence[float]) -> str:
    """Format the median of sorted figures, with the least and the greatest."""
    around = f" ({figure(figures[0])} to {figure(figures[-1])})" if len(figures) > 1 else ""
    return figure(median(figures)) + around
