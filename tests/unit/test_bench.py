"""The bench's harness, its peer, and the model of capacity: quick, without timings."""

import json
import time
from dataclasses import replace

import pytest

from bench import __main__ as bench
from bench import capacity, durable, handling, latency, peeling, plots
from bench.harness import Goal, Section, Table, figure, interleaved, medians
from xorack import errors
from xorack.core.stamp import traced


def test_variants_take_turns_and_another_one_is_first_each_round():
    order = []

    def variant(name):
        return lambda: order.append(name) or float(len(order))

    figures = interleaved({name: variant(name) for name in "abc"}, 3)
    assert "".join(order) == "abcbcacab"
    assert figures == {"a": [1, 6, 8], "b": [2, 4, 9], "c": [3, 5, 7]}
    assert medians(figures) == {"a": 6, "b": 4, "c": 5}
    with pytest.raises(ValueError, match="rounds"):
        interleaved({}, 0)


@pytest.mark.parametrize(
    ("measured", "bound", "better", "met", "verdict"),
    [
        (2, 1, "more", True, "met, 2.00 times"),
        (0.5, 1, "more", False, "**missed**: 0.50 of it"),
        (1, 1, "less", True, "met, 1.00 times"),
        (2.6, 1.3, "less", False, "**missed**: 0.50 of it"),
    ],
)
def test_a_goal_says_by_how_much(measured, bound, better, met, verdict):
    goal = Goal("it", measured, bound, better)
    assert (goal.met, goal.verdict) == (met, verdict)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (12345.6, "12,346"), (123.4, "123"), (12.34, "12.3"), (1.234, "1.23"),
     (0.01234, "0.012")],
)  # fmt: skip
def test_figures_have_the_digits_that_count(value, text):
    assert figure(value) == text


def test_a_section_is_markdown_and_json():
    section = Section("s", "Title", "Text.", [Table(["a", "b"], [["x", "1"]], "Note.")])
    section.goals.append(Goal("g", 1, 2, "more"))
    section.raw["n"] = 1
    written = section.markdown()
    assert "## Title\n\nText.\n\n| a | b |\n| --- | ---: |\n| x | 1 |\n\nNote." in written
    assert "| g | ≥ 2 | 1.00 | **missed**: 0.50 of it |" in written
    assert section.json()["goals"][0]["met"] is False
    assert section.json()["n"] == 1


def test_a_report_keeps_what_was_not_run_again_and_what_could_not_be(tmp_path, monkeypatch, capsys):
    def fails(quick):
        raise RuntimeError("no network")

    monkeypatch.setattr(bench.peeling, "run", lambda quick: Section("peel", "Peel", "Once."))
    assert bench.main(["peel", "--out", str(tmp_path)]) == 0
    monkeypatch.setattr(bench.peeling, "run", fails)
    monkeypatch.setattr(
        bench.cold_start,
        "run",
        lambda quick: Section("cold_start", "Cold", "Now.", goals=[Goal("it", 1, 2, "less")]),
    )
    assert bench.main(["peel", "cold_start", "--out", str(tmp_path)]) == 1
    assert "error: peel: RuntimeError: no network" in capsys.readouterr().err
    report = (tmp_path / "benchmarks.md").read_text()
    assert "## Peel\n\nOnce." in report
    assert "## Cold\n\nNow." in report
    raw = json.loads((tmp_path / "benchmarks.json").read_text())
    assert list(raw["sections"]) == ["peel", "cold_start"]
    assert "](images/bench-cold-start.svg)" in report
    assert "bench-peel" not in report  # has no plot
    assert (tmp_path / "images/bench-cold-start.svg").read_text().rstrip().endswith("</svg>")


def test_a_section_that_is_not_there_is_named(capsys):
    with pytest.raises(SystemExit):
        bench.main(["nonsense"])
    assert "'nonsense': expected one of peel, memory" in capsys.readouterr().err


def test_eight_outstanding_are_named_whole():
    raw = peeling.run(quick=True).raw
    assert raw["8"]["whole"] == raw["8"]["samples"]
    assert raw["8"]["wrong"] == 0


def test_the_peer_does_what_the_seed_does(aws):
    client = aws.client("dynamodb")
    peer = durable.Peer(aws.table_name, aws.partition_key, client)
    peer.create("t", traced(1))
    with pytest.raises(errors.TagExists):
        peer.create("t", traced(1))
    with pytest.raises(errors.TagNotFound):
        peer.stamp("nobody", traced(1))
    stolen = peer.client.put_item

    class Faster:
        """Another writer comes between the read and the write, once."""

        def __getattr__(self, name):
            return getattr(client, name)

        def put_item(self, **arguments):
            peer.client = client
            peer.stamp("t", traced(3))
            return stolen(**arguments)

    peer.client = Faster()
    with pytest.raises(errors.StaleLocalData):
        peer.stamp("t", traced(2))
    peer.stamp_retrying("t", traced(2), None)
    peer.stamp("t", traced(3))
    peer.stamp("t", traced(2))
    assert not any(peer.stamp("t", traced(1)))
    with pytest.raises(errors.TagNotFound):
        peer.stamp("t", traced(1))


def test_round_trips_are_counted(aws):
    found = durable.counted(aws, 10)
    assert found["DynamoDBAcker"]["round_trips"] == 1
    assert found["xor-ack-dynamodb"] == {"round_trips": 2, "write_units": 1, "read_units": 1}


def test_a_short_chain_is_weighed_from_create_to_event():
    found = capacity.weigh(2, 2)
    # One write that creates and acks, one that crosses the event off; the index has it in between.
    assert (found.writes, found.index_writes, found.write_units) == (2, 2, 4)


def test_folding_saves():
    one_by_one, together = capacity.weigh(200, 1), capacity.weigh(200, 100)
    assert together.writes < one_by_one.writes / 20
    assert together.write_units < one_by_one.write_units
    cost = [capacity.estimate(capacity.Load(units_per_request=fold)).total for fold in (1, 10, 100)]
    assert cost == sorted(cost, reverse=True)
    assert cost[0] > 10 * cost[2]


def test_prices_are_arguments():
    load = capacity.Load()
    dear = capacity.estimate(load, capacity.Prices(write_units=6.25))
    cheap = capacity.estimate(load)
    writes = "DynamoDB writes"
    assert dear.dollars[writes] == pytest.approx(10 * cheap.dollars[writes])
    assert dear.total - cheap.total == pytest.approx(9 * cheap.dollars[writes])


def test_limits_grow_with_the_load_and_a_hot_chain_is_told():
    small, large = (capacity.estimate(capacity.Load(units_per_day=n)) for n in (1e6, 1e12))
    assert small.limits[0].share < 1 < large.limits[0].share
    hot = capacity.estimate(capacity.Load(units_per_day=1e10, hot_share=1.0))
    shares = {limit.name: limit.share for limit in hot.limits}
    assert shares["conditional writes of the busiest chain"] > 1
    assert shares["write units of the busiest chain's partition"] > 1


def test_a_load_that_makes_no_sense_is_refused(capsys):
    with pytest.raises(ValueError, match="units_per_day is 0"):
        capacity.Load(units_per_day=0)
    with pytest.raises(ValueError, match="hot_share"):
        replace(capacity.Load(), hot_share=2)
    with pytest.raises(SystemExit):
        capacity.main(["--units-per-chain", "-1"])
    assert "units_per_chain is -1.0" in capsys.readouterr().err


def test_the_estimate_is_printed(capsys):
    capacity.main(["--units-per-day", "1e9", "--write-units", "1"])
    said = capsys.readouterr().out
    assert said.startswith("1,000,000,000 units a day: $")
    assert "limits, the fullest first:" in said


RAW = {
    "memory": {
        "8": {"nanoseconds": {"ack": 80, "one": 300, "floor": 170, "call": 37, "bulk": 0.5}},
        "goals": [],
    },
    "dynamodb": {
        "stamps_a_second": {"1 on one chain": {"theirs": 60, "ours": 61}},
        "counts": {},
    },
    "handler": {"10 over 1": {"one": {"share_in_calls": 0.93}}, "goals": []},
    "cold_start": {"goals": [{"what": "`it`: times", "measured": 1.2, "bound": 1.3}]},
    "latency": {
        "as deployed": {"milliseconds": {"all": [1000.0, 900.0]}, "batch_window_seconds": 1},
        "window_of_median": 500.0,
    },
    "spark": {
        "results": [
            {
                "words": 100,
                "variants": {
                    "untracked": {"cpu_ratio": 1.0, "warm_cpu_ratio": 1.0},
                    "plain": {"cpu_ratio": 1.3, "warm_cpu_ratio": 1.1},
                    "traced": {"cpu_ratio": 1.4, "warm_cpu_ratio": 1.2},
                },
            }
        ]
    },
}


@pytest.mark.parametrize("name", plots.PLOTS)
def test_each_plot_is_drawn_the_same_each_time(name, tmp_path):
    first = plots.draw(name, RAW[name], tmp_path)
    drawn = first.read_text()
    assert drawn.startswith("<?xml")
    assert plots.COLOURS[1] in drawn or plots.COLOURS[0] in drawn
    assert plots.draw(name, RAW[name], tmp_path).read_text() == drawn
    assert plots.embedded(name, tmp_path).endswith(f"({plots.file_of(name)})")


def test_what_has_no_plot_has_none(tmp_path):
    assert plots.draw("peel", {}, tmp_path) is None
    assert plots.embedded("peel", tmp_path) == plots.embedded("memory", tmp_path) == ""


def test_percentiles_are_figures_that_were_measured():
    figures = list(range(100, 0, -1))
    assert [latency.percentile(figures, p) for p in (1, 50, 99, 100)] == [1, 50, 99, 100]
    assert latency.percentile([7], 50) == latency.percentile([7], 100) == 7
    with pytest.raises(ValueError, match="no figures"):
        latency.percentile([], 50)


def test_the_handlers_memory_grows_with_its_batch():
    few, many = handling._memory(10, 1), handling._memory(3000, 3000)
    assert few["warm"] <= few["with_event"] <= few["peak"] < many["peak"]


def test_only_what_lands_while_it_counts_is_counted():
    stamped = []
    rate = durable.written_together(
        lambda writer, tag, stamp: stamped.append(tag) or time.sleep(0.01), ["a", "b"], 0.2, 0.3
    )
    assert set(stamped) == {"a", "b"}
    assert rate * 0.2 < len(stamped)  # what came while it settled is not


def test_the_model_takes_the_consumers_own_work_from_the_report(tmp_path, monkeypatch, capsys):
    report = tmp_path / "benchmarks.json"
    took = {"100 over 10": 70.0, "1000 over 10": 50.0, "1000 over 1": 40.0}
    cases = {name: {"one": {"own_microseconds_a_message": us}} for name, us in took.items()}
    report.write_text(json.dumps({"sections": {"handler": cases}}))
    assert capacity.measured_request_seconds(report) == pytest.approx(50e-6)
    with pytest.raises(SystemExit, match="no handler section"):
        capacity.measured_request_seconds(tmp_path / "nothing")
    told = {}
    for seconds in (50e-6, 0.5):
        monkeypatch.setattr(capacity, "measured_request_seconds", lambda s=seconds: s)
        capacity.main(["--measured"])
        told[seconds] = capsys.readouterr().out
    assert told[50e-6] != told[0.5]
