"""The model of cost and capacity: its arithmetic by hand, and what it says to bad numbers."""

import ast
import json
from dataclasses import fields, replace
from pathlib import Path

import pytest

from bench import capacity
from bench.capacity import Load, Prices, Quotas, estimate

ROOT = Path(__file__).resolve().parents[2]


def share(found, name):
    (limit,) = (limit for limit in found.limits if limit.name.startswith(name))
    return limit


# -- what it costs ---------------------------------------------------------------------------------


def test_a_message_is_sent_received_and_deleted():
    # 1,001 requests a chain, one a message; so slow that each is received and deleted by itself.
    slow = Load(units_per_day=1_000, messages_per_call=1)
    assert estimate(slow).dollars["SQS"] == pytest.approx(3 * 1.001 * 0.40)
    # A sender with ten at hand pays a tenth of a call for each; the others are as they were.
    ten = replace(slow, messages_per_call=10)
    assert estimate(ten).dollars["SQS"] == pytest.approx(2.1 * 1.001 * 0.40)
    # So many come that pollers get ten a call, too.
    fast = replace(ten, units_per_day=1e9)
    assert estimate(fast).dollars["SQS"] == pytest.approx(3 * 0.1 * 1.001 * 0.40)


def test_a_call_of_sqs_is_billed_for_each_64_kb_begun():
    assert capacity._calls(1, 100) == 1
    assert capacity._calls(10, 100) == 0.1
    assert capacity._calls(1, 64 * 1024) == 1
    assert capacity._calls(1, 64 * 1024 + 1) == 2
    assert capacity._calls(10, 10 * 1024) == pytest.approx(0.2)
    # What does not fit into the 1 MiB of a call is another call.
    assert capacity._calls(10, 600 * 1024) == 10


def test_prices_by_hand():
    load = Load(units_per_day=1e9)
    found, one = estimate(load), capacity.weigh(1_000, 1)
    # 1,000 chains of 1,001 requests.
    times = 1_000 * 1.001 / 1e6
    assert found.dollars["DynamoDB writes"] == pytest.approx(times * one.write_units * 0.625)
    assert found.dollars["DynamoDB reads"] == pytest.approx(times * one.read_units * 0.125)
    # Storage, and its backup by point-in-time recovery.
    assert found.dollars["DynamoDB storage"] == pytest.approx(times * one.bytes / 1e3 * 0.45)
    assert found.dollars["EventBridge"] == pytest.approx(0.001)
    free = Prices(**{each.name: 0 for each in fields(Prices)})
    assert estimate(load, free).total == 0


def test_what_stands_costs_something_whatever_the_load():
    little, much = (estimate(Load(units_per_day=units)).standing for units in (1, 1e9))
    assert little == much
    assert little["custom metrics"] == pytest.approx(capacity.METRICS * 0.30)
    # Five pollers that each wait for 20 seconds, for 30 days.
    assert little["polling"] == pytest.approx(5 * 3 * 60 * 24 * 30 * 0.4e-6)
    assert estimate(Load(), Prices(dashboard=0, alarm=0, metric=0)).standing["dashboard"] == 0


def test_metrics_are_those_of_the_functions():
    names = {"AckLatency"}
    for module in ("consumer", "sweeper"):
        tree = ast.parse((ROOT / "lambda_src" / f"{module}.py").read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            match node:
                case ast.Assign(targets=[ast.Name(id="counts")], value=ast.Dict(keys=keys)):
                    names |= {ast.literal_eval(key) for key in keys}
    assert len(names) == capacity.METRICS


# -- which limit comes next ------------------------------------------------------------------------


def test_marks_that_moved_out_are_not_on_the_chains_partition():
    # They are items with keys of their own. 128 requests a write, each leaving a mark later on.
    one = capacity.weigh(1_000, 125)
    assert one.item_units < 4 * one.writes
    assert one.write_units > one.item_units + 800
    hot = estimate(Load(units_per_day=1e9, hot_share=1.0))
    writes, units = share(hot, "conditional writes"), share(hot, "write units of the busiest")
    # A write of the item is two to four units: it cannot be a hundred.
    assert 2 * writes.used <= units.used <= 4 * writes.used
    assert writes.share > units.share


def test_a_hot_chain_costs_what_its_requests_cost_together():
    spread, hot = (estimate(Load(units_per_day=1e9, hot_share=part)) for part in (None, 1.0))
    assert hot.dollars["DynamoDB writes"] < spread.dollars["DynamoDB writes"] / 2
    half = estimate(Load(units_per_day=1e9, hot_share=0.5)).dollars["DynamoDB writes"]
    assert hot.dollars["DynamoDB writes"] < half < spread.dollars["DynamoDB writes"]


def test_a_hot_chain_is_told_over_how_many_to_spread():
    load = Load(units_per_day=1e10, hot_share=1.0, batch_size=10_000)
    hot = estimate(load)
    writes = share(hot, "conditional writes")
    assert writes.share > 1
    assert f"over {hot.shards} chains" in writes.remedy
    # Each of so many has at most half of what one takes.
    spread = estimate(replace(load, hot_share=1.0 / hot.shards))
    assert 0.4 < share(spread, "conditional writes").share <= 0.5
    assert spread.shards == 1


def test_each_batch_writes_each_shard():
    # 116 batches a second of 1,000 messages: 19 chains would have 116 writes a second each.
    load = Load(units_per_day=1e10, hot_share=1.0)
    hot = estimate(load)
    few = estimate(replace(load, hot_share=1 / 19))
    assert share(few, "conditional writes").share > 1
    assert hot.shards > 1_000
    many = estimate(replace(load, hot_share=1 / hot.shards))
    assert share(many, "conditional writes").share <= 0.5
    assert estimate(replace(load, batch_size=10_000)).shards < 30


def test_a_full_batch_does_not_wait_for_its_window():
    load = Load(units_per_day=1e9)
    short, long = (
        share(estimate(replace(load, batch_window_seconds=window)), "messages in flight").used
        for window in (1, 20)
    )
    assert short == long < 120_000
    few = Load(units_per_day=1e6)
    assert (
        share(estimate(replace(few, batch_window_seconds=20)), "messages in flight").used
        > 10 * share(estimate(few), "messages in flight").used
    )


def test_quotas_are_arguments(capsys):
    # Those of a region where EventBridge takes less.
    less = estimate(Load(), quotas=Quotas(events_a_second=400))
    assert share(less, "EventBridge").limit == 400
    capacity.main(["--table-write-units", "123456", "--units-per-day", "1e9"])
    assert "of 123,456 units/s" in capsys.readouterr().out


def test_how_long_lambda_takes_to_grow_is_told(capsys):
    capacity.main(["--units-per-day", "1e9"])
    assert "at most 300 a minute" in capsys.readouterr().out
    capacity.main([])
    assert "at most 300 a minute" not in capsys.readouterr().out


# -- numbers that make no sense --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (["--units-per-day", "inf"], "units_per_day is inf: expected a number above 0, at"),
        (["--units-per-day", "nan"], "units_per_day is nan: expected a number above 0"),
        (["--units-per-day", "0"], "units_per_day is 0.0: expected a number"),
        (["--units-per-day", "many"], "argument --units-per-day: invalid float value: 'many'"),
        (["--write-units", "nan"], "write_units is nan: expected a number from 0 to"),
        (["--logs=-1"], "logs is -1.0: expected a number from 0 to"),
        (["--units-per-chain", "0.5"], "units_per_chain is 0.5: expected a number from 1 to"),
        (["--batch-size", "20000"], "batch_size is 20000.0: expected a number from 1 to 10,000"),
        (["--batch-window-seconds", "301"], "batch_window_seconds is 301.0: expected a number"),
        (["--batch-window-seconds", "0"], "batch_window_seconds is 0: expected 1 to 300, since"),
        (["--max-concurrency", "1"], "max_concurrency is 1.0: expected a number from 2 to 1,000"),
        (["--memory-mb", "1"], "memory_mb is 1.0: expected a number from 128 to 10,240"),
        (["--hot-share", "1.5"], "hot_share is 1.5: expected a number from 1e-09 to 1"),
        (["--messages-per-call", "11"], "messages_per_call is 11.0: expected a number from 1 to"),
        (["--requests-per-message", "5000"], "requests_per_message is 5000.0: expected at most "),
        (["--new-table-write-units", "0"], "new_table_write_units is 0.0: expected a number"),
        (["--units", "5"], "unrecognized arguments: --units 5"),
        (["--measured", "--request-seconds", "1"], "expected one of them"),
        (["--tables", "--logs", "1"], "--tables takes no other arguments"),
    ],
)  # fmt: skip
def test_bad_numbers_are_named_in_one_line(given, line, capsys):
    with pytest.raises(SystemExit) as left:
        capacity.main(given)
    assert left.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    *usage, last = said.err.splitlines()
    assert line in last
    assert len(usage) <= 2


@pytest.mark.parametrize(
    "report",
    [
        "{",
        "[]",
        '{"sections": {}}',
        '{"sections": {"handler": {}}}',
        '{"sections": {"handler": []}}',
        json.dumps({"sections": {"handler": {"10 over 10": {"one": {}}}}}),
        json.dumps({"sections": {"handler": {"x over 10": {"one": {}}}}}),
        json.dumps(
            {"sections": {"handler": {"1 over 10": {"one": {"own_microseconds_a_message": {}}}}}}
        ),
    ],
)
def test_a_report_that_is_none_is_named(report, tmp_path):
    path = tmp_path / "benchmarks.json"
    path.write_text(report)
    with pytest.raises(SystemExit, match=r"benchmarks\.json has no handler section"):
        capacity.measured_request_seconds(path)


def test_help_says_what_each_number_is(capsys):
    with pytest.raises(SystemExit):
        capacity.main(["--help"])
    said = " ".join(capsys.readouterr().out.split())
    for kind in (Load, Prices, Quotas):
        for each in fields(kind):
            assert f"--{each.name.replace('_', '-')} NUMBER" in said
    assert "A million requests of SQS, standard queue" in said


def test_the_tables_of_the_docs_are_those_of_the_model():
    told = (ROOT / "docs" / "capacity.md").read_text(encoding="utf-8")
    tables = capacity.tables().split("\n\n")
    assert [table for table in tables[:2] if table not in told] == []
    month = capacity.standing(Prices())
    assert sum(month.values()) == pytest.approx(11.10, abs=0.01)
    for name in ("custom metrics", "dashboard", "alarms", "polling", "sweeper"):
        assert f" {month[name]:.2f}" in told
