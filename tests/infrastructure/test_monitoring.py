"""The alarms and the dashboard."""

import json
import re
from typing import Any

import pytest

from infra.synth import ROOT
from lambda_src import sweeper
from lambda_src.widget import handler as widget
from xorack.core.request import Request
from xorack.core.stamp import plain

from .conftest import VARIED, consume
from .templates import Template, target


def alarms(template: Template) -> dict[tuple[str, str], dict[str, Any]]:
    """The alarms by their metrics: (logical id or service, name)."""
    return {
        (target(dimension["Value"]), alarm["MetricName"]): alarm
        for alarm in template.of("AWS::CloudWatch::Alarm").values()
        for dimension in alarm["Dimensions"]
    }


@pytest.fixture
def emitted(deployed, capsys):
    """The metrics that a batch of the consumer and a sweep emit, as `metrics_in` returns them."""
    end = Request.stamp_("acked", "b", plain(5), finished=1)
    consume(Request.create("acked", "a", plain(5)), end)
    by_consumer = capsys.readouterr().out
    sweeper.handler({}, None)
    return metrics_in(by_consumer), metrics_in(capsys.readouterr().out)


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


@pytest.mark.parametrize(("name", "allowed_failures"), [("template", 0), ("varied", 25)])
def test_each_alarm_has_its_metric_statistic_and_threshold(request, name, allowed_failures):
    made: Template = request.getfixturevalue(name)
    service = made.environment("consumer")["POWERTOOLS_SERVICE_NAME"]
    runs, sweeps = (made.function(name)[0] for name in ("consumer", "sweeper"))
    queue_id, queue = made.queue()
    two_attempts, crashes = 2 * queue["VisibilityTimeout"], ("Errors", "Throttles")
    problem = ("GreaterThanThreshold", "notBreaching")
    silence = ("LessThanThreshold", "breaching")
    # The sweeper emits its gauges each minute, zero included: the minimum of five minutes is above
    # zero only if all five sweeps had the problem.
    expected = {
        (made.dead_letters()[0], "ApproximateNumberOfMessagesVisible"): ("Maximum", 60, 0),
        # A message in its second attempt raises no alarm.
        (queue_id, "ApproximateAgeOfOldestMessage"): ("Maximum", 300, two_attempts),
        **{(one, name): ("Sum", 300, 0) for one in (runs, sweeps) for name in crashes},
        (sweeps, "Invocations"): ("Sum", 600, 1),
        (service, "EventsPendingAfterSweep"): ("Minimum", 300, 0),
        (service, "SweepProblems"): ("Minimum", 300, 0),
        (service, "SweepsIncomplete"): ("Minimum", 300, 0),
        (service, "ChainsFailed"): ("Sum", 300, allowed_failures),
    }  # fmt: skip
    found = alarms(made)
    parts = ("Statistic", "Period", "Threshold")
    assert {key: tuple(map(alarm.get, parts)) for key, alarm in found.items()} == expected
    assert len(found) == len(made.of("AWS::CloudWatch::Alarm"))
    for (_, metric), alarm in found.items():
        reaction = (alarm["ComparisonOperator"], alarm["TreatMissingData"])
        assert reaction == (silence if metric == "Invocations" else problem)
    description = found[service, "ChainsFailed"]["AlarmDescription"]
    assert f"More than {allowed_failures} chains" in description


def test_alarms_and_their_ends_notify_the_topic(template, varied):
    assert all("AlarmActions" not in alarm for alarm in alarms(template).values())
    for alarm in alarms(varied).values():
        assert alarm["AlarmActions"] == alarm["OKActions"] == [VARIED["alarm_topic_arn"]]


def test_each_alarm_says_what_is_wrong_and_the_handbook_what_to_do(template):
    names = set()
    handbook = (ROOT / "docs" / "operations.md").read_text()
    for name, alarm in template.of("AWS::CloudWatch::Alarm").items():
        assert len(alarm["AlarmDescription"]) > 30
        # Logical ids end in eight characters of a hash.
        names.add(name.removeprefix("AckerMonitoring")[:-8])
    assert names == set(re.findall(r"^### `(\w+)`$", handbook, re.MULTILINE))


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


def test_the_dashboard_begins_with_the_status_of_every_alarm(template):
    first = widgets(template)[0]
    assert (first["type"], first["x"], first["y"]) == ("alarm", 0, 0)
    assert set(first["properties"]["alarms"]) == set(template.of("AWS::CloudWatch::Alarm"))


def test_the_custom_widget_is_the_function_that_shows_chains(template):
    (custom,) = (widget for widget in widgets(template) if widget["type"] == "custom")
    assert custom["properties"]["endpoint"] == template.alias("widget")
    assert custom["width"] == 24
    assert custom["properties"]["updateOn"]["refresh"] is True
    assert "limit" in widget({"describe": True}, None)
    assert set(custom["properties"]["params"]) == {"limit"}


def test_the_dashboard_shows_the_services_metrics(template):
    table, queue, dead = template.table()[0], template.queue()[0], template.dead_letters()[0]
    runs = [template.function(name)[0] for name in ("consumer", "sweeper")]
    dimensions = ("TableName", table), ("GlobalSecondaryIndexName", "due", "TableName", table)
    of_table = ("ConsumedReadCapacityUnits", "ConsumedWriteCapacityUnits", "ReadThrottleEvents",
                "WriteThrottleEvents")  # fmt: skip
    of_function = ("Errors", "Throttles", "Duration", "ConcurrentExecutions")
    expected = {
        ("AWS/SQS", "ApproximateAgeOfOldestMessage", "QueueName", queue),
        ("AWS/SQS", "ApproximateNumberOfMessagesVisible", "QueueName", dead),
        *(("AWS/DynamoDB", name, *which) for name in of_table for which in dimensions),
        *(("AWS/Lambda", name, "FunctionName", run) for name in of_function for run in runs),
    }
    assert {metric for metric in drawn(template) if metric[0] != "xorack"} == expected


def test_alarms_and_dashboard_use_the_metrics_that_the_functions_emit(template, emitted):
    by_consumer, by_sweeper = emitted
    known = by_consumer | by_sweeper
    own = {metric for metric in drawn(template) if metric[0] == "xorack"}
    used = {name for _, name, *_ in own}
    used |= {metric for service, metric in alarms(template) if service == "xorack"}
    assert used <= set(known)
    assert {"RequestsApplied", "RequestsDuplicate", "RequestsLate", "RequestsRejected", "Conflicts",
            "AckLatency", "ChainsCreated", "ChainsAcked", "ChainsTimedOut", "ChainsNeverCreated",
            "ChainsFailedOnRequest", "EventsPendingAfterSweep"} <= used  # fmt: skip
    assert {metric[2:] for metric in own} == {("service", "xorack")}
    assert set(known.values()) == {("xorack", "xorack")}
    # The alarms take the minimum of these gauges: only the sweeper may emit them.
    assert not {"EventsPendingAfterSweep", "SweepProblems", "SweepsIncomplete"} & set(by_consumer)


def test_latency_is_shown_as_percentiles(template):
    (latency,) = (w for w in widgets(template) if "AckLatency" in json.dumps(w))
    statistics = [metric[-1]["stat"] for metric in latency["properties"]["metrics"]]
    assert statistics == ["p50", "p90", "p99"]


def test_widgets_fill_rows_and_do_not_overlap(template):
    cells = [
        (x, y)
        for widget in widgets(template)
        for x in range(widget["x"], widget["x"] + widget["width"])
        for y in range(widget["y"], widget["y"] + widget["height"])
    ]
    height = max(y for _, y in cells) + 1
    assert sorted(cells) == [(x, y) for x in range(24) for y in range(height)]


def test_limits_follow_the_settings(varied):
    lines = {
        line["value"]
        for widget in widgets(varied)
        for line in widget["properties"].get("annotations", {}).get("horizontal", [])
    }
    assert lines == {300, 100_000, 2 * varied.queue()[1]["VisibilityTimeout"]}


def test_two_stacks_have_their_own_metrics_and_dashboards(varied):
    assert {metric[3] for metric in drawn(varied) if metric[0] == "xorack"} == {"other"}
    _, dashboard = varied.one("AWS::CloudWatch::Dashboard")
    assert dashboard["DashboardName"] == {"Fn::Join": ["-", ["other", {"Ref": "AWS::Region"}]]}


def test_without_a_dashboard_there_is_no_widget_but_all_alarms(template, without_dashboard):
    assert not without_dashboard.of("AWS::CloudWatch::Dashboard")
    assert "DashboardName" not in without_dashboard.body["Outputs"]
    assert len(without_dashboard.of("AWS::Lambda::Function")) == 2
    assert set(alarms(without_dashboard)) == set(alarms(template))
