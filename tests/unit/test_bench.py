"""The benchmarks' report, formulas and CPU counter, without timings."""

import re
import signal
import subprocess
import sys

import pytest

from bench import __main__ as bench
from bench import scale, spark
from bench.harness import Goal
from bench.meter import ProcessTree


def test_a_run_renews_the_tables_of_its_section_alone():
    page = bench.PAGE.read_text(encoding="utf-8")
    assert re.findall("^## (.+)", page, re.MULTILINE) == [
        *bench.SECTIONS.values(),
        "How Spark is measured",
    ]
    figures = {"milliseconds": {"boto3": 100.0, "lambda_src.widget, with bytecode": 125.0}}
    run = {"machine": "a clay tablet", "seconds": 12.3, "figures": figures}
    start, end = page.index("## Cold start"), page.index("## On Spark")
    renewed = bench.renew(page, "cold_start", run)
    assert renewed.startswith(page[:start])
    assert renewed.endswith(page[end:])
    section = renewed[start : len(renewed) - len(page[end:])]
    assert re.findall(r"^(?:\| (?!---).*|\*[\d,]+ s on .*)", section, re.MULTILINE) == [
        "| import | ms | times `import boto3` |",
        "| boto3 | 100 | 1.00 |",
        "| lambda_src.widget, with bytecode | 125 | 1.25 |",
        "| goal | bound | measured |  |",
        "| lambda_src.widget, with bytecode: times `import boto3` | ≤ 1.3 | 1.25 "
        "| met, 1.04 times |",
        "*12 s on a clay tablet.*",
    ]
    assert "*With bytecode*: as a release deploys it." in section
    with pytest.raises(ValueError, match="Cold start: expected 2 tables"):
        bench.renew("## Cold start\n", "cold_start", run)


@pytest.mark.parametrize(
    ("measured", "bound", "better", "verdict"),
    [
        (2, 1, "more", "met, 2.00 times"),
        (0.5, 1, "more", "**missed**: 0.50 of it"),
        (1, 1, "less", "met, 1.00 times"),
        (2.6, 1.3, "less", "**missed**: 0.50 of it"),
        (0, 1, "less", "met, inf times"),
    ],
)
def test_a_goals_verdict_contains_the_factor(measured, bound, better, verdict):
    assert Goal("it", measured, bound, better).verdict == verdict


@pytest.mark.slow
def test_the_figures_of_many_time_outs_and_one_large_chain():
    sweeps, chains = scale.tables(scale.measure(quick=True))
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
