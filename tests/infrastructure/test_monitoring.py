"""Alarms and whom they tell; the dashboard and what it shows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lambda_src import consumer, sweeper
from xorack.core.message import pack
from xorack.core.request import Request
from xorack.core.stamp import plain

from .templates import Template, target

Synthesise = Callable[..., Template]
TOPIC = "arn:aws:sns:eu-west-1:123456789012:alarms"


def watched(template: Template) -> dict[tuple[str, str], dict[str, Any]]:
    """The alarms by what they watch: (logical id or service, metric)."""
    return {
        (target(dimension["Value"]), alarm["Properties"]["MetricName"]): alarm["Properties"]
        for alarm in template.of("AWS::CloudWatch::Alarm").values()
        for dimension in alarm["Properties"]["Dimensions"]
    }


@pytest.fixture
def emitted(aws: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """The metrics that a consumer's batch and a sweep really emit, as `metrics_in` has them."""
    for name, value in aws.environ().items():
        monkeypatch.setenv(name, value)
    requests = [
        Request.create("acked", "a", plain(5)),
        Request.stamp_("acked", "b", plain(5), finished=1),
    ]
    body = {"messageId": "m", "eventSource": "aws:sqs", "attributes": {}}
    consumer.handler({"Records": [{**body, "body": text} for text in pack(requests)]}, None)
    by_consumer = capsys.readouterr().out
    sweeper.handler({}, None)
    return metrics_in(by_consumer), metrics_in(capsys.readouterr().out)


def metrics_in(printed: str) -> dict[str, tuple[str, str]]:
    """The metrics in lines of a log: name -> (namespace, service)."""
    found = {}
    for line in printed.splitlines():
        if '"_aws"' not in line:
            continue
        record = json.loads(line)
        for group in record["_aws"]["CloudWatchMetrics"]:
            assert group["Dimensions"] == [["service"]]
            for metric in group["Metrics"]:
                found[metric["Name"]] = (group["Namespace"], record["service"])
    return found


# -- alarms ----------------------------------------------------------------------------------------


def test_what_is_watched(template: Template) -> None:
    consumer, sweeper = (template.function(name)[0] for name in ("consumer", "sweeper"))
    alarms = watched(template)
    assert set(alarms) == {
        (template.dead_letters()[0], "ApproximateNumberOfMessagesVisible"),
        (template.queue()[0], "ApproximateAgeOfOldestMessage"),
        (consumer, "Errors"),
        (consumer, "Throttles"),
        (sweeper, "Errors"),
        (sweeper, "Throttles"),
        (sweeper, "Invocations"),
        ("xorack", "EventsPendingAfterSweep"),
        ("xorack", "SweepProblems"),
        ("xorack", "SweepsIncomplete"),
        ("xorack", "ChainsFailed"),
    }
    assert len(alarms) == len(template.of("AWS::CloudWatch::Alarm"))


def test_one_dead_letter_alarms_and_none_or_no_data_does_not(template: Template) -> None:
    alarm = watched(template)[template.dead_letters()[0], "ApproximateNumberOfMessagesVisible"]
    assert alarm["Threshold"] == 0
    assert alarm["ComparisonOperator"] == "GreaterThanThreshold"
    assert alarm["TreatMissingData"] == "notBreaching"


def test_only_a_sweeper_that_is_silent_alarms_for_want_of_data(template: Template) -> None:
    breaching = {
        metric
        for (_, metric), alarm in watched(template).items()
        if alarm["TreatMissingData"] == "breaching"
    }
    assert breaching == {"Invocations"}
    alarm = watched(template)[template.function("sweeper")[0], "Invocations"]
    assert (alarm["ComparisonOperator"], alarm["Threshold"]) == ("LessThanThreshold", 1)


def test_a_message_on_its_second_try_is_no_alarm(synthesise: Synthesise) -> None:
    made = synthesise(function_timeout_seconds="100")
    alarm = watched(made)[made.queue()[0], "ApproximateAgeOfOldestMessage"]
    assert alarm["Threshold"] == 2 * made.queue()[1]["VisibilityTimeout"]


@pytest.mark.parametrize("metric", ["EventsPendingAfterSweep", "SweepProblems", "SweepsIncomplete"])
def test_what_the_next_sweep_makes_good_is_no_alarm(template: Template, metric: str) -> None:
    # The sweeper says it once a minute, zero included: the least of five is above zero only if all
    # of them are.
    alarm = watched(template)["xorack", metric]
    assert (alarm["Statistic"], alarm["Period"], alarm["Threshold"]) == ("Minimum", 300, 0)
    assert alarm["ComparisonOperator"] == "GreaterThanThreshold"


def test_as_many_chains_may_fail_as_is_set(template: Template, synthesise: Synthesise) -> None:
    for made, allowed in ((template, 0), (synthesise(failed_chains_threshold="25"), 25)):
        alarm = watched(made)["xorack", "ChainsFailed"]
        assert (alarm["Statistic"], alarm["Threshold"]) == ("Sum", allowed)
        assert alarm["ComparisonOperator"] == "GreaterThanThreshold"
        assert f"More than {allowed} chains" in alarm["AlarmDescription"]


def test_alarms_tell_the_topic_that_is_set(template: Template, synthesise: Synthesise) -> None:
    assert all("AlarmActions" not in alarm for alarm in watched(template).values())
    told = synthesise(alarm_topic_arn=TOPIC)
    assert {tuple(alarm["AlarmActions"]) for alarm in watched(told).values()} == {(TOPIC,)}
    # What is over, too: or whoever was woken has to look whether it is.
    assert {tuple(alarm["OKActions"]) for alarm in watched(told).values()} == {(TOPIC,)}


def test_each_alarm_says_what_is_wrong_and_the_handbook_what_to_do(template: Template) -> None:
    from pathlib import Path

    handbook = Path(__file__).resolve().parents[2] / "docs" / "operations.md"
    entries = set(re.findall(r"^### `(\w+)`$", handbook.read_text(), re.MULTILINE))
    names = set()
    for name, alarm in template.of("AWS::CloudWatch::Alarm").items():
        assert len(alarm["Properties"]["AlarmDescription"]) > 30
        # Logical ids end in eight characters of a hash.
        names.add(name.removeprefix("AckerMonitoring")[:-8])
    assert names == entries


# -- the dashboard ---------------------------------------------------------------------------------


def dashboard(template: Template) -> list[dict[str, Any]]:
    """The widgets; what the deployment fills in is its logical id instead."""
    _, held = template.one("AWS::CloudWatch::Dashboard")
    body = held["DashboardBody"]
    text = "".join(
        part if isinstance(part, str) else part["Ref"] if "Ref" in part else part["Fn::GetAtt"][0]
        for part in body["Fn::Join"][1]
    )
    widgets: list[dict[str, Any]] = json.loads(text)["widgets"]
    return widgets


def graphed(template: Template) -> Iterator[tuple[str, ...]]:
    """Namespace, metric and dimensions of everything that is drawn."""
    for widget in dashboard(template):
        for metric in widget["properties"].get("metrics", []):
            yield tuple(part for part in metric if isinstance(part, str))


def test_the_dashboard_begins_with_the_status_of_every_alarm(template: Template) -> None:
    first = dashboard(template)[0]
    assert (first["type"], first["x"], first["y"]) == ("alarm", 0, 0)
    assert set(first["properties"]["alarms"]) == set(template.of("AWS::CloudWatch::Alarm"))


def test_the_widget_is_the_function_that_shows_chains(template: Template) -> None:
    (custom,) = (w for w in dashboard(template) if w["type"] == "custom")
    assert custom["properties"]["endpoint"] == template.function("widget")[0]
    assert custom["width"] == 24
    assert custom["properties"]["updateOn"]["refresh"] is True
    from lambda_src.widget import handler

    assert "limit" in handler({"describe": True}, None)
    assert set(custom["properties"]["params"]) == {"limit"}


def test_the_dashboard_shows_the_services_figures(template: Template) -> None:
    table, queue, dead = template.table()[0], template.queue()[0], template.dead_letters()[0]
    drawn = set(graphed(template))
    index = ("GlobalSecondaryIndexName", "due", "TableName", table)
    expected = {
        ("AWS/SQS", "ApproximateAgeOfOldestMessage", "QueueName", queue),
        ("AWS/SQS", "ApproximateNumberOfMessagesVisible", "QueueName", dead),
    }
    for name in ("ConsumedReadCapacityUnits", "ConsumedWriteCapacityUnits", "ReadThrottleEvents",
                 "WriteThrottleEvents"):  # fmt: skip
        expected |= {("AWS/DynamoDB", name, *index), ("AWS/DynamoDB", name, "TableName", table)}
    for name in ("consumer", "sweeper"):
        function = template.function(name)[0]
        expected |= {
            ("AWS/Lambda", metric, "FunctionName", function)
            for metric in ("Errors", "Throttles", "Duration", "ConcurrentExecutions")
        }
    assert {metric for metric in drawn if metric[0] != "xorack"} == expected


def test_what_is_drawn_and_watched_is_what_the_functions_emit(
    template: Template, emitted: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    by_consumer, by_sweeper = emitted
    known = by_consumer | by_sweeper
    drawn = {metric for metric in graphed(template) if metric[0] == "xorack"}
    wanted = {name for _, name, *_ in drawn}
    wanted |= {metric for place, metric in watched(template) if place == "xorack"}
    assert wanted <= set(known)
    assert {"RequestsApplied", "RequestsDuplicate", "RequestsLate", "RequestsRejected", "Conflicts",
            "AckLatency", "ChainsCreated", "ChainsAcked", "ChainsTimedOut", "ChainsNeverCreated",
            "ChainsFailedOnRequest", "EventsPendingAfterSweep"} <= wanted  # fmt: skip
    assert {metric[2:] for metric in drawn} == {("service", "xorack")}
    assert set(known.values()) == {("xorack", "xorack")}
    # The gauges that alarms take the least of come from the sweeper alone.
    assert not {"EventsPendingAfterSweep", "SweepProblems", "SweepsIncomplete"} & set(by_consumer)


def test_latency_is_shown_as_percentiles(template: Template) -> None:
    (late,) = (
        widget["properties"]["metrics"]
        for widget in dashboard(template)
        if "AckLatency" in json.dumps(widget)
    )
    assert [metric[-1]["stat"] for metric in late] == ["p50", "p90", "p99"]


def test_widgets_fill_rows_and_do_not_overlap(template: Template) -> None:
    taken: set[tuple[int, int]] = set()
    for widget in dashboard(template):
        cells = {
            (x, y)
            for x in range(widget["x"], widget["x"] + widget["width"])
            for y in range(widget["y"], widget["y"] + widget["height"])
        }
        assert not cells & taken
        taken |= cells
    height = max(y for _, y in taken) + 1
    assert taken == {(x, y) for x in range(24) for y in range(height)}


def test_limits_are_drawn_where_the_settings_put_them(synthesise: Synthesise) -> None:
    made = synthesise(function_timeout_seconds="100", max_concurrency="7")
    lines = {
        line["value"]
        for widget in dashboard(made)
        for line in widget["properties"].get("annotations", {}).get("horizontal", [])
    }
    assert lines == {7, 100_000, 2 * made.queue()[1]["VisibilityTimeout"]}


def test_two_stacks_are_told_apart(synthesise: Synthesise) -> None:
    made = synthesise(stack_name="other")
    services = {
        made.function(name)[1]["Environment"]["Variables"]["POWERTOOLS_SERVICE_NAME"]
        for name in ("consumer", "sweeper", "widget")
    }
    services |= {metric[3] for metric in graphed(made) if metric[0] == "xorack"}
    services |= {place for place, metric in watched(made) if metric == "ChainsFailed"}
    assert services == {"other"}
    _, held = made.one("AWS::CloudWatch::Dashboard")
    assert held["DashboardName"] == {"Fn::Join": ["-", ["other", {"Ref": "AWS::Region"}]]}


def test_without_a_dashboard_there_is_no_widget_and_the_alarms_stay(
    template: Template, synthesise: Synthesise
) -> None:
    made = synthesise(dashboard="false")
    assert not made.of("AWS::CloudWatch::Dashboard")
    assert "DashboardName" not in made.body["Outputs"]
    assert len(made.of("AWS::Lambda::Function")) == 2
    assert set(watched(made)) == set(watched(template))
