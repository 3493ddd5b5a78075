"""The alarms and the dashboard."""

import json
import re
from types import SimpleNamespace
from typing import Any

import pytest
from aws_cdk import App, Stack, aws_sqs

from infra.synth import ROOT
from lambda_src import consumer, sweeper
from xorack.acker.consumer import BatchResult
from xorack.aws.schema import Metric
from xorack.cdk.alarms import PAGE, TICKET, queue_age_threshold_seconds
from xorack.cdk.settings import Settings
from xorack.core.request import Request
from xorack.core.stamp import plain

from .conftest import consume
from .templates import Template, target

HANDBOOK = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
ALONE = {"ChainsFailed", "DeadLettersNew", "DeliveriesRefused"}
"""Alarms on single events: they notify by themselves."""


def alarms(template: Template) -> dict[str, dict[str, Any]]:
    """All alarms, by construct id."""
    kinds = ("AWS::CloudWatch::Alarm", "AWS::CloudWatch::CompositeAlarm")
    return {short(name): alarm for kind in kinds for name, alarm in template.of(kind).items()}


def short(name: str) -> str:
    """The construct id of an alarm's logical id, which ends in eight characters of a hash."""
    return name.removeprefix("AckerMonitoring")[:-8]


def members(composite: dict[str, Any]) -> set[str]:
    """The alarms any of which sets a composite alarm off, by construct id."""
    rule = "".join(map(target, composite["AlarmRule"]["Fn::Join"][1]))
    one = r'ALARM\("(\w+)"\)'
    assert re.fullmatch(rf"\({one}( OR {one})*\)", rule)
    return set(map(short, re.findall(one, rule)))


def measured(alarm: dict[str, Any]) -> list[dict[str, Any]]:
    """The metrics of an alarm."""
    queries = [query for query in alarm.get("Metrics", []) if "MetricStat" in query]
    return [query["MetricStat"]["Metric"] for query in queries] or [alarm]


@pytest.fixture
def emitted(deployed, capsys):
    """The metrics that an idle sweep emits, as `metrics_in` returns them."""
    sweeper.handler({}, None)  # with what is left of other tests
    capsys.readouterr()
    sweeper.handler({}, None)
    return metrics_in(capsys.readouterr().out)


@pytest.fixture
def counted(deployed):
    """The names of the metrics of consumer and sweeper, zeros included."""
    by_consumer = {*consumer._emit_metrics(BatchResult()), Metric.ACK_LATENCY}
    return by_consumer, {*sweeper.handler({}, None)}


def metrics_in(log: str) -> dict[str, tuple[str, str]]:
    """The metrics in a log: name -> (namespace, service)."""
    metrics = {}
    for record in (json.loads(line) for line in log.splitlines() if '"_aws"' in line):
        for group in record["_aws"]["CloudWatchMetrics"]:
            assert group["Dimensions"] == [["service"]]
            for metric in group["Metrics"]:
                metrics[metric["Name"]] = (group["Namespace"], record["service"])
    return metrics


# -- alarms ----------------------------------------------------------------------------------------


def test_each_alarm_says_what_is_wrong_and_the_handbook_what_to_do(full, template, minimal):
    made = alarms(full)
    severities = {"page": set(), "ticket": set()}
    for name, alarm in made.items():
        pattern = rf"\[(page|ticket)\] .{{10,}} First: .{{20,}} Runbook: docs/operations.md#{name}"
        found = re.fullmatch(pattern, alarm["AlarmDescription"], re.IGNORECASE)
        severities[found[1]].add(name)
    assert set(made) == set(re.findall(r"^### `(\w+)`$", HANDBOOK, re.MULTILINE))
    for composite, names in zip((PAGE, TICKET), severities.values(), strict=True):
        assert {*members(made[composite]), composite} == names - ALONE
        assert f"`{composite}`" in HANDBOOK
    minimum = {"ConsumerFailing", "QueueBehind", "SweeperSilent", "DeadLettersNew"}
    assert set(alarms(minimal)) == minimum
    assert set(alarms(template)) == set(made) - {PAGE, TICKET}


def test_without_composite_alarms_each_alarm_notifies(synthesise):
    topic = "arn:aws:sns:eu-west-1:123456789012:alarms"
    for made, notifying in (
        (synthesise(alarm_topic_arn=topic), None),
        (synthesise(alarm_topic_arn=topic, monitoring="full"), {PAGE, TICKET, *ALONE}),
    ):
        actions = {name: one.get("AlarmActions") for name, one in alarms(made).items()}
        expected = set(actions) if notifying is None else notifying
        assert {name for name, one in actions.items() if one == [topic]} == expected


@pytest.mark.parametrize("timeout", [10, 60, 900])
@pytest.mark.parametrize("window", [0, 1, 300])
def test_the_queue_is_behind_after_a_repetition_and_before_sqs_stops_counting(timeout, window):
    settings = Settings(
        function_timeout_seconds=timeout, batch_window_seconds=window, batch_size=10
    )
    queue = aws_sqs.Queue.from_queue_arn(Stack(App(), "Mine"), "Queue", "arn:aws:sqs:r:1:q")
    threshold = queue_age_threshold_seconds(SimpleNamespace(settings=settings, queue=queue))
    repeated = settings.visibility_timeout_seconds + window + timeout
    assert repeated < threshold < 2 * settings.visibility_timeout_seconds


def test_little_monitoring_emits_no_metrics(deployed, capsys, monkeypatch, template, minimal):
    for name in ("consumer", "sweeper"):
        assert "POWERTOOLS_METRICS_DISABLED" not in template.environment(name)
        value = minimal.environment(name)["POWERTOOLS_METRICS_DISABLED"]
    monkeypatch.setenv("POWERTOOLS_METRICS_DISABLED", value)
    consume(Request.create("quiet", "a", plain(5)))
    counts = sweeper.handler({}, None)
    assert counts["SweepProblems"] == 0
    assert "_aws" not in capsys.readouterr().out


# -- what it costs ---------------------------------------------------------------------------------


def test_idle_monitoring_costs_what_the_handbook_says(full, template, minimal, emitted):
    (sums,) = re.findall(r"^\| \*\*a month\*\* \|(.*)\|$", HANDBOOK, re.MULTILINE)
    prices = []
    for made in (full, template, minimal):
        metrics = sum(len(measured(one)) for one in made.of("AWS::CloudWatch::Alarm").values())
        dashboards, composites = (
            len(made.of(f"AWS::CloudWatch::{kind}")) for kind in ("Dashboard", "CompositeAlarm")
        )
        custom = 0 if made is minimal else len(emitted)
        prices.append(0.10 * metrics + 0.50 * composites + 3 * dashboards + 0.30 * custom)
    assert [float(price) for price in re.findall(r"\d+\.\d+", sums)] == pytest.approx(prices)
    assert prices[1] <= 3  # the default


# -- the dashboard ---------------------------------------------------------------------------------


def widgets(template: Template) -> list[dict[str, Any]]:
    """The dashboard's widgets, with logical ids for values of the deployment."""
    body = template.one("AWS::CloudWatch::Dashboard")[1]["DashboardBody"]
    found: list[dict[str, Any]] = json.loads("".join(map(target, body["Fn::Join"][1])))["widgets"]
    return found


def drawn(template: Template) -> set[tuple[str, ...]]:
    """Namespace, metric and dimensions of everything on the dashboard."""
    return {
        tuple(part for part in metric if isinstance(part, str))
        for widget in widgets(template)
        for metric in widget["properties"].get("metrics", [])
    }


def test_alarms_and_dashboard_use_the_metrics_that_the_functions_emit(full, emitted, counted):
    by_consumer, by_sweeper = counted
    known = by_consumer | by_sweeper
    own = {metric for metric in drawn(full) if metric[0] == "xorack"}
    used = {name for _, name, *_ in own}
    used |= {
        metric["MetricName"]
        for alarm in full.of("AWS::CloudWatch::Alarm").values()
        for metric in measured(alarm)
        if metric["Namespace"] == "xorack"
    }
    assert used <= known
    assert {metric[2:] for metric in own} == {("service", "xorack")}
    # An idle sweep emits what MetricsLost needs, and nothing else.
    assert emitted == {"ChainsLookedAt": ("xorack", "xorack")}
    # The alarms take the maximum of these gauges: only the sweeper may emit them.
    gauges = {"EventsPendingAfterSweep", "EventsPendingSeconds", "SweepProblems"}
    assert not gauges & by_consumer


def test_what_an_alarm_tells_to_look_for_exists(full):
    for alarm in alarms(full).values():
        for name in re.findall("`(.+?)`", alarm["AlarmDescription"]):
            is_setting = name in Settings.__dataclass_fields__
            is_command = name.startswith("xorack ")  # test_docs.py tries those of the handbook
            assert is_setting or is_command or name in HANDBOOK, name
