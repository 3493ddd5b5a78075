"""The benchmarks' report, formulas and CPU counter, without timings."""

import json
import signal
import subprocess
import sys

import pytest

from bench import __main__ as bench
from bench import capacity, consumer, spark
from bench.harness import Goal
from bench.meter import ProcessTree

DOCS = bench.PAGE.parent
RUNS = json.loads(bench.RAW.read_text())["sections"]


def test_the_report_has_the_stored_figures():
    page = bench.PAGE.read_text(encoding="utf-8")
    assert list(RUNS) == list(bench.SECTIONS)
    assert bench.renew(page, RUNS) == page


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


def test_the_cpu_of_an_ended_process_counts_though_nobody_waited_for_it(monkeypatch):
    """Spark's daemon ignores the ends of some of its workers: the kernel drops their times."""
    busy = "sum(range(5_000_000)); print(flush=True); input()"
    tree = ProcessTree()
    before = tree.cpu_seconds()
    monkeypatch.setattr(subprocess, "_cleanup", lambda: None)
    usual = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen([sys.executable, "-c", busy], **pipes) as child:
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


@pytest.mark.thorough
def test_the_capacity_of_slow_single_messages_by_hand():
    # 1,001 requests a chain, each sent, received and deleted alone, written alone.
    together, dollars, writes = capacity.estimate(1_000, messages_per_call=1)
    assert together == pytest.approx(1, abs=0.01)
    assert dollars["SQS"] == pytest.approx(3 * 1.001 * 0.50)
    assert dollars["EventBridge"] == pytest.approx(0.001)
    units = 1 / 86_400 * (capacity.drive(1_000).writes + 4) * 1.001
    assert writes == pytest.approx(units, rel=0.01)
    assert [capacity.queue_calls(*of) for of in ((1, 1 << 16), (1, (1 << 16) + 1))] == [1, 2]
    assert capacity.queue_calls(10, 600 * 1024) == 10  # a call holds 1 MiB


def test_the_figures_of_the_docs_are_those_of_the_formulas():
    page = (DOCS / "capacity.md").read_text(encoding="utf-8")
    text = " ".join(page.split())
    assert capacity.table() in page
    assert capacity.throughput() in page
    *monitoring, polling, sweeper, poller = capacity.idle().values()
    assert all(f" {dollars:.2f}" in text for dollars in (polling, sweeper, poller))
    assert f"**${sum(monitoring):.2f}**" in (DOCS / "operations.md").read_text(encoding="utf-8")
    assert f"{capacity.REQUEST * 1000:.3f} ms a request, {capacity.WRITE * 1000:.2f} ms a" in text
    assert f"{capacity.END * 1000:.2f} ms a chain's end" in text
    measured = RUNS["consumer"]["figures"]["milliseconds"]
    milliseconds = measured[consumer.ACK]
    acks = 1000 * consumer.VCPU / milliseconds
    assert f"takes {milliseconds:.2f} ms of it, so an invocation does {acks:.0f} a second" in text
    assert f"boto3's, {measured[consumer.CALL]:.2f} ms an UpdateItem" in text
    comparison = (DOCS / "comparison.md").read_text(encoding="utf-8")
    senders = {"`fan_in`: 10 units a message": {"requests_per_message": 10},
               "a message for each unit": {"messages_per_call": 1}}  # fmt: skip
    for name, sender in senders.items():
        costs = [
            sum(capacity.estimate(1e6, units_per_chain=units, **sender)[1].values())
            for units in (1_000, 10)
        ]
        assert f"| xorack, {name} | {costs[0]:.2g} | {costs[1]:.2g} |" in comparison
