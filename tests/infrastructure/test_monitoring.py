"""Alarms, and whom they tell."""

from __future__ import annotations

from collections.abc import Callable

from .templates import Template, target

Synthesise = Callable[..., Template]
TOPIC = "arn:aws:sns:eu-west-1:123456789012:alarms"


def watched(template: Template) -> dict[tuple[str, str], dict[str, object]]:
    """The alarms by what they watch: (logical id, metric)."""
    return {
        (target(dimension["Value"]), alarm["Properties"]["MetricName"]): alarm["Properties"]
        for alarm in template.of("AWS::CloudWatch::Alarm").values()
        for dimension in alarm["Properties"]["Dimensions"]
    }


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


def test_alarms_tell_the_topic_that_is_set(template: Template, synthesise: Synthesise) -> None:
    assert all("AlarmActions" not in alarm for alarm in watched(template).values())
    told = synthesise(alarm_topic_arn=TOPIC)
    assert {tuple(alarm["AlarmActions"]) for alarm in watched(told).values()} == {(TOPIC,)}


def test_each_alarm_says_what_is_wrong(template: Template) -> None:
    for alarm in watched(template).values():
        assert len(str(alarm["AlarmDescription"])) > 30
