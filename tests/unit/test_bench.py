"""The benchmarks' tables, formulas and CPU counter, without timings."""

import signal
import subprocess
import sys

import pytest

from bench import scale, spark
from bench.harness import Table
from bench.meter import ProcessTree


def test_cells_of_a_table():
    table = Table(["name", "figure"])
    for cell in (None, "x", 1_234, 0.0, 0.01234, 12.345, 1234.5):
        table.add("a", cell)
    assert [row[1] for row in table.rows] == ["", "x", "1,234", "0", "0.012", "12.3", "1,234"]
    assert table.markdown().splitlines()[:3] == ["| name | figure |", "| --- | ---: |", "| a |  |"]


@pytest.mark.slow
def test_the_figures_of_many_time_outs_and_one_large_chain():
    sweeps, chains = scale.measure(quick=True)
    assert [row[:2] for row in sweeps.rows] == [["200", "1"], ["200", "30"]]
    assert [row[0] for row in chains.rows] == ["1,000"]


@pytest.mark.slow
def test_five_consumers_apply_100_000_requests_of_one_chain_within_six_minutes():
    figures = scale.one_chain(100_000)
    assert figures["deliveries"] < 2  # `max_receive_count` is 100
    # Whatever else the machine does; a spill makes sixteen calls at a time.
    assert figures["processor"] + figures["calls"] * scale.CALL_SECONDS / 2 < 360


def test_the_cpu_of_an_ended_process_counts_though_nobody_waited_for_it(monkeypatch):
    """Spark's daemon ignores the ends of some of its workers: the kernel drops their times."""
    busy = "sum(range(5_000_000)); print(flush=True); input()"
    monkeypatch.setattr(subprocess, "_cleanup", lambda: None)
    usual = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen([sys.executable, "-c", busy], **pipes) as child:
            tree = ProcessTree(child.pid)
            before = tree.cpu_seconds()
            child.stdout.readline()
            running = tree.cpu_seconds() - before
            child.communicate(b"\n")
    finally:
        signal.signal(signal.SIGCHLD, usual)
    assert running > 0.05
    assert tree.cpu_seconds() - before >= running


def test_tracked_jobs_are_compared_with_the_untracked_ones_of_the_same_turn():
    def run(*cpu):
        return {"cpu": dict(zip(("job 1", "job 2", "start", "finish"), cpu, strict=False))}

    case = {"untracked": [run(4, 6), run(8, 12)], "plain": [run(6, 7, 1, 1), run(8, 12, 1, 1)]}
    assert spark.ratios(case, "plain", "untracked") == [1.1, 1.5]
