"""The benchmarks' harness, sections and formulas, without timings."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench import __main__ as bench
from bench import (
    capacity,
    cold_start,
    cpu,
    diff,
    dynamodb,
    handler,
    latency,
    peel,
    plots,
    spark,
    spark_jobs,
)
from bench.harness import Goal, Section, Table, figure, interleaved, medians
from xorack.core.errors import StaleLocalData
from xorack.core.stamp import traced

pytestmark = pytest.mark.thorough

DOCS = Path(__file__).resolve().parents[2] / "docs"
RUNS = json.loads((DOCS / "benchmarks.json").read_text())["sections"]


def test_variants_are_measured_in_turn_and_each_round_starts_with_another():
    order = []
    variants = {name: lambda name=name: order.append(name) or len(order) for name in "abc"}
    figures = interleaved(variants, 3)
    assert "".join(order) == "abcbcacab"
    assert figures == {"a": [1, 6, 8], "b": [2, 4, 9], "c": [3, 5, 7]}
    assert medians(figures) == {"a": 6, "b": 4, "c": 5}
    with pytest.raises(ValueError, match="rounds"):
        interleaved({}, 0)


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


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (12345.6, "12,346"), (123.4, "123"), (12.34, "12.3"), (1.234, "1.23"),
     (0.5, "0.50"), (0.01234, "0.012"), (0.00000123, "0.000001")],
)  # fmt: skip
def test_figures_have_three_significant_digits(value, text):
    assert figure(value) == text


def test_a_section_is_formatted_with_its_goals():
    table = Table(["a", "b", "c", "d"], note="Note.")
    table.add("x", 1234, 0.5, None)
    written = Section("Title", "Text.", [table], [Goal("g", 1, 2, "more")]).markdown()
    assert "## Title\n\nText.\n\n| a | b | c | d |\n| --- | ---: | ---: | ---: |\n" in written
    assert "\n| x | 1,234 | 0.50 |  |\n\nNote.\n\n" in written
    assert written.endswith("| g | ≥ 2 | 1 | **missed**: 0.50 of it |")


def test_a_run_keeps_other_sections_and_reports_failures(tmp_path, monkeypatch, capsys):
    def fail(quick):
        raise RuntimeError("no network")

    figures = {name: RUNS[name]["figures"] for name in ("peel", "cold_start")}
    monkeypatch.setattr(peel, "measure", lambda quick: figures["peel"])
    monkeypatch.setattr(cold_start, "measure", lambda quick: figures["cold_start"])
    assert bench.main(["peel", "--out", str(tmp_path)]) == 0
    monkeypatch.setattr(peel, "measure", fail)
    assert bench.main(["peel", "cold_start", "--quick", "--out", str(tmp_path)]) == 1
    assert "error: peel: RuntimeError: no network" in capsys.readouterr().err
    raw = json.loads((tmp_path / "benchmarks.json").read_text())["sections"]
    assert list(raw) == ["peel", "cold_start"]
    assert {name: run["figures"] for name, run in raw.items()} == figures
    report, plot = tmp_path / "benchmarks.md", tmp_path / "images" / "bench-cold-start.svg"
    written, drawn = report.read_text(), plot.read_text()
    assert "## Naming outstanding units" in written
    assert "](images/bench-cold-start.svg)" in written
    assert "bench-peel" not in written  # has no plot
    assert written.count("do not quote") == 1
    assert bench.main(["--render", "--out", str(tmp_path)]) == 0
    assert (report.read_text(), plot.read_text()) == (written, drawn)


def test_an_unknown_section_is_rejected(capsys):
    with pytest.raises(SystemExit):
        bench.main(["nonsense"])
    assert "'nonsense': expected one of peel, memory" in capsys.readouterr().err


@pytest.mark.parametrize("name", bench.SECTIONS)
def test_the_report_is_rendered_from_the_stored_figures(name, tmp_path):
    rendered = bench.render(name, RUNS[name], tmp_path)
    assert rendered in (DOCS / "benchmarks.md").read_text()
    for plot in tmp_path.glob("images/*.svg"):
        assert f"](images/{plot.name})" in rendered
        assert plots.COLOURS[1] in plot.read_text()


def test_eight_outstanding_units_are_named_completely(monkeypatch):
    monkeypatch.setattr(peel, "UNITS", {16: (8,)})
    monkeypatch.setattr(peel, "OVERFULL", {16: (100, 200, 0)})
    found = peel.measure(quick=True)["16"]
    assert set(found["units"]["8"]) == set(peel.IDS)
    for of in found["units"]["8"].values():
        assert (of["complete"], of["wrong"]) == (of["samples"], 0)
    assert (found["overfull"]["complete"], found["overfull"]["wrong"]) == (0, 0)
    assert [peel.write_units(cells) for cells in (16, 64, 256, 1024)] == [2, 3, 11, 41]


@pytest.mark.parametrize("count", [1, 64, 1792])
def test_each_kind_of_ids_has_as_many_as_asked(count):
    for make in peel.IDS.values():
        ids = make(count, random.Random(count))
        assert len(ids) == count
        assert all(0 < unit < 2**64 for unit in ids)


def test_the_peer_retries_conflicts_and_deletes_an_ended_chain(aws):
    client = aws.client("dynamodb")
    peer = dynamodb.Peer(aws.table_name, aws.partition_key, client)
    peer.create("t", traced(1))
    with pytest.raises(client.exceptions.ConditionalCheckFailedException):
        peer.create("t", traced(1))

    class Faster:
        """Another writer stamps between the read and the write, once."""

        def __getattr__(self, name):
            return getattr(client, name)

        def put_item(self, **arguments):
            peer.client = client
            peer.stamp("t", traced(3))
            return client.put_item(**arguments)

    peer.client = Faster()
    peer.stamp("t", traced(2))
    assert peer.client is client
    peer.stamp("t", traced(3))
    assert peer.stamp("t", traced(2)) == traced(1)
    assert not any(peer.stamp("t", traced(1)))
    key = {aws.partition_key: {"S": "t"}}
    assert "Item" not in client.get_item(TableName=aws.table_name, Key=key)
    assert dynamodb.count_round_trips(aws, 10) == {"DynamoDBAcker": 1, "xor-ack-dynamodb": 2}


def test_concurrent_stamps_are_counted_until_the_deadline():
    stamped = []
    rate = dynamodb.write_concurrently(
        lambda writer, stamp: stamped.append(writer) or time.sleep(0.15), 2, 0.2
    )
    assert set(stamped) == {0, 1}
    assert rate * 0.2 < len(stamped)  # the second stamp of each ends too late

    def fail(writer, stamp):
        raise StaleLocalData("t", 1)

    with pytest.raises(StaleLocalData):
        dynamodb.write_concurrently(fail, 2, 0.1)


def test_percentiles_are_measured_figures():
    figures = list(range(100, 0, -1))
    assert [latency.percentile(figures, p) for p in (1, 50, 99, 100)] == [1, 50, 99, 100]
    assert latency.percentile([7], 50) == latency.percentile([7], 100) == 7


def test_the_handlers_memory_grows_with_its_batch():
    assert 10 < handler.peak_megabytes(10, 1) < handler.peak_megabytes(3000, 3000) < 1000


def test_the_cpu_of_running_children_is_counted():
    busy = "sum(range(3_000_000)); print(flush=True); input()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", busy], **pipes) as child:
        child.stdout.readline()
        of_child, own = spark_jobs.cpu_seconds(child.pid), sum(os.times()[:4])
        assert of_child > 0
        # Whole ticks: sums of their fractions differ in the last bit.
        ticks = os.sysconf("SC_CLK_TCK")
        both = spark_jobs.cpu_seconds(os.getpid())
        assert round(both * ticks) >= round((of_child + own) * ticks)
        child.communicate(b"\n")


def _run(*cpu, **figures):
    steps = ("job 1", "job 2", "start", "finish")
    return {"cpu": dict(zip(steps, cpu, strict=False)), **figures}


def test_tracked_jobs_are_compared_with_the_untracked_ones_of_the_same_turn():
    case = {"untracked": [_run(4, 6), _run(8, 12)], "plain": [_run(6, 7, 1, 1), _run(8, 12, 1, 1)]}
    assert spark.ratios(case, "plain") == [1.1, 1.5]
    assert spark.ratios(case, "plain", lambda run: spark.cpu(run, ["job 2"])) == [1, 7 / 6]


def test_many_chains_by_hand():
    few = [_run(0, 0, 4, 2, rows=16, chains=1)]
    sent = {"messages": 8, "sent_bytes": 8 << 18, "record_bytes": 1000}
    many = [_run(0, 0, 9, 6, rows=4, chains=1000, **sent)]
    both = ({"plain": of, "traced": of} for of in (few, many))
    _, start, finish, hours, messages, gigabytes, queue, units, dollars, kept = spark.many_chains(
        *both
    ).rows[0]
    assert (start, finish) == ("8,000", "4,000")  # µs: (9 - 4 * 4/16) / 1000, (6 - 2) / 1000
    assert hours == "33.3"
    # A message of 256 KB is billed as four calls, twice.
    assert (messages, gigabytes, queue) == ("80,000", "21.0", "0.32")
    assert (units, dollars, kept) == ("70,000,000", "43.8", "0.010")


def test_the_corpus_has_as_many_words_as_asked(tmp_path):
    spark.make_corpus(tmp_path, 12_345)
    files = list(tmp_path.rglob("*.txt"))
    assert len(files) == spark.FILES
    assert sum(len(file.read_text().split()) for file in files) == 12_345


def test_a_missing_generator_and_an_unknown_case_are_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(spark.shutil, "which", lambda *_, **__: None)
    with pytest.raises(RuntimeError, match=r"tpchgen-cli .* pyproject\.toml"):
        spark.make_lines(tmp_path, 0.01)
    with pytest.raises(SystemExit):
        spark.main(["nonsense"])
    assert "'nonsense': expected one of 200, strings" in capsys.readouterr().err


def test_the_peak_of_a_workers_memory_can_be_forgotten():
    code = "held = bytearray(64 << 20); del held; print(flush=True); input()"
    command = [sys.executable, "-c", code, "pyspark.daemon"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        worker.stdout.readline()
        (peak,) = spark_jobs.worker_peaks()
        (later,) = spark_jobs.worker_peaks(forget=True)
        assert later < peak - 60
        worker.communicate(b"\n")
    assert spark_jobs.worker_peaks() == []


def test_the_capacity_of_slow_single_messages_by_hand():
    # 1,001 requests a chain, each sent, received and deleted alone, written alone.
    together, dollars, used = capacity.estimate(1_000, messages_per_call=1)
    assert together == pytest.approx(1, abs=0.01)
    assert dollars["SQS"] == pytest.approx(3 * 1.001 * 0.50)
    assert dollars["EventBridge"] == pytest.approx(0.001)
    units = 1 / 86_400 * (capacity.drive(1_000).writes + 4) * 1.001
    assert used["write units of a table"] == pytest.approx(units / 40_000, rel=0.01)
    assert [capacity.queue_calls(*of) for of in ((1, 1 << 16), (1, (1 << 16) + 1))] == [1, 2]
    assert capacity.queue_calls(10, 600 * 1024) == 10  # a call holds 1 MiB


def test_the_figures_of_the_docs_are_those_of_the_formulas():
    page = (DOCS / "capacity.md").read_text(encoding="utf-8")
    text = " ".join(page.split())
    assert capacity.table() in page
    assert capacity.throughput() in page
    for dollars in capacity.idle().values():
        assert f" {dollars:.2f}" in text
    assert f"{capacity.REQUEST * 1000:.3f} ms a request, {capacity.WRITE * 1000:.2f} ms a" in text
    assert f"{capacity.END * 1000:.2f} ms a chain's end" in text
    measured = RUNS["cpu"]["figures"]
    milliseconds = measured[cpu.ACK]
    acks = 1000 * cpu.VCPU / milliseconds
    assert f"takes {milliseconds:.2f} ms of it, so an invocation does {acks:.0f} a second" in text
    assert f"boto3's, {measured[cpu.CALL]:.2f} ms an UpdateItem" in text


def test_the_processor_is_the_limit_of_a_busy_consumer():
    """Each request of its own chain, in batches of a thousand."""
    seconds = 1000 * (capacity.REQUEST + capacity.WRITE) / cpu.VCPU
    chains = {"units_per_chain": 1_000, "messages_per_call": 10}
    used = capacity.estimate(1e12, **chains)[2]["max_concurrency"]
    messages_s = 1e12 / 86_400 * 1.001
    assert used == pytest.approx(messages_s / 1000 * seconds / 5, rel=0.02)


def test_comparing_frames():
    """A way that ran once is compared with the medians of the others."""

    def runs(*seconds):
        others = {"wall": 1.0, "shuffle_mb": seconds[0] / 1000, "spilled_mb": 0, "task_mb": 1.0}
        return [{"cpu": {"compare": one}, **others} for one in seconds]

    case = {
        "scan": runs(10.0, 10.0, 20.0),
        "diff": runs(10.0, 12.0, 22.0),
        "outer join": runs(2000.0, 40.0, 40.0),
        "exceptAll": runs(80.0),
    }
    section = diff.describe({"turns": 3, "cases": {"equal": case}})
    assert [goal.measured for goal in section.goals] == [0.3, 1.1, 0.005]
    assert section.tables[0].rows[3][:5] == ["equal", "exceptAll", "80.0", "2.00", "8.00"]
    assert section.plot.series["diff"] == {"equal": 0.3}


def test_the_processor_time_of_a_quick_run():
    figures = cpu.measure(quick=True)
    assert list(figures) == [cpu.CALL, cpu.SINGLE, cpu.FOLDED, cpu.ACK]
    assert min(figures.values()) > 0
