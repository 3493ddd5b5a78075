"""Which alarms go off in which situation, and when: by CloudWatch's rules over synthetic data."""

import re
from functools import partial

import pytest

from infra.synth import ROOT
from xorack.cdk.alarms import PAGE, TICKET

from .cloudwatch import CloudWatch, MetricAlarm, Rules, judge
from .scenarios import Scenario, between, constant

STRICT = Rules(
    extra=5, fills_empty=False, dynamodb_ignores=True,
    delays={"AWS/SQS": 1, "AWS/Lambda": 3, "AWS/DynamoDB": 2, "xorack": 3},
)  # fmt: skip
"""Old values count, new ones are late, and FILL does nothing without any data."""
VARIANTS = {
    "default": ("template", Rules()),
    "strict": ("template", STRICT),
    "minimal": ("minimal", STRICT),
}
ALONE = {"ChainsFailed", "DeadLettersNew", "DeliveriesRefused"}
"""Alarms on single events: they notify by themselves."""
MINIMAL = {"ConsumerFailing", "QueueBehind", "SweeperSilent", "DeadLettersNew"}


def watched(template, scenario, rules, minutes):
    """The alarms of a template after some minutes of a scenario."""
    cloudwatch = CloudWatch(template, rules)
    cloudwatch.run(scenario.data(template, range(minutes)), range(minutes))
    return cloudwatch


@pytest.fixture(params=VARIANTS)
def variant(request):
    return request.param


@pytest.fixture
def watch(variant, request):
    """A function that evaluates the alarms of a variant in a scenario."""
    name, rules = VARIANTS[variant]
    return partial(watched, request.getfixturevalue(name), rules=rules)


def starts(cloudwatch, name):
    """The minutes in which an alarm starts."""
    return [minute for minute, state in cloudwatch.changes[name] if state == "ALARM"]


def on(cloudwatch):
    """The alarms that were on at any time."""
    return {name for name in [*cloudwatch.changes] if starts(cloudwatch, name)}


QUIET = {
    "a first deployment without any message": Scenario(
        sent=constant(0), sweeps=between(2, 999, 1), sqs_from=15),
    "a first deployment whose queue has data before the first sweep": Scenario(
        sent=between(5, 999, 20), sweeps=between(3, 999, 1)),
    "a first deployment with messages at once": Scenario(sweeps=between(2, 999, 1), sqs_from=2),
    "work as usual": Scenario(),
    "an idle queue": Scenario(sent=constant(0)),
    "rare messages": Scenario(sent=lambda minute: minute % 7 == 0),
    "a rush that the consumer works off": Scenario(sent=between(60, 62, 300, 20)),
    "a batch that fails once": Scenario(works=between(60, 61, 0, 1)),
    "a lone message that fails once": Scenario(
        sent=between(60, 61, 1), works=between(60, 61, 0, 1)),
    "four minutes without the table": Scenario(works=between(60, 64, 0, 1)),
    "one slow invocation and one slow sweep": Scenario(
        seconds=between(60, 61, 59, 2), sweep_seconds=between(60, 61, 59, 1)),
    "one error": Scenario(errors=between(60, 61, 1)),
    "throttles for a minute": Scenario(
        throttled=between(60, 61, 50), table_throttled=between(60, 61, 50)),
    "a failed sweep, a missed one, and one with a problem": Scenario(
        sweeps=lambda minute: {60: -1, 61: 0}.get(minute, 1), sweep_problems=between(62, 63, 3)),
    "events that wait for the next sweep": Scenario(pending_seconds=between(60, 62, 119)),
}  # fmt: skip


@pytest.mark.parametrize("name", QUIET)
def test_nobody_is_notified_of(name, watch):
    cloudwatch = watch(QUIET[name], minutes=120)
    assert not on(cloudwatch)
    # A new alarm changes to OK: no message either.
    assert cloudwatch.messages == []


FROM = 60
"""The minute in which the problems start."""
PROBLEMS = {
    # name: scenario, page within so many minutes, alarms of the page, alarms of the ticket
    "an outage of the table": (
        Scenario(works=between(FROM, 120, 0, 1), sweeps=between(FROM, 120, -1, 1),
                 seconds=between(FROM, 120, 82, 2)),
        12, {"ConsumerFailing", "SweeperSilent"},
        {"ConsumerErrors", "ConsumerNearTimeout", "DeadLettersNew"}),
    "an outage of the table, for a lone message": (
        Scenario(sent=between(FROM, FROM + 1, 1), works=between(FROM, 300, 0, 1)),
        16, {"ConsumerFailing"}, {"ConsumerErrors", "DeadLettersNew"}),
    "an outage for half of the messages": (
        Scenario(sent=lambda minute: 10, poison=between(FROM, 120, 10)),
        30, {"ConsumerFailing"}, {"DeadLettersNew"}),
    "a consumer that is too slow": (
        Scenario(sent=between(FROM, 999, 50, 20), capacity=constant(25)),
        25, {"QueueBehind"}, set()),
    "a disabled event source mapping": (
        Scenario(capacity=between(FROM, 999, 0, 100)), 13, {"QueueBehind"}, set()),
    "a disabled rule": (Scenario(sweeps=between(FROM, 999, 0, 1)), 11, {"SweeperSilent"}, set()),
    "a sweeper that cannot read the table": (
        Scenario(sweeps=between(FROM, 999, -1, 1)), 11, {"SweeperSilent"}, set()),
    "a bus that is gone": (Scenario(pending_seconds=lambda minute: max(0, (minute - FROM) * 60)),
        16, {"EventsPending"}, set()),
    "poison messages among others": (
        Scenario(poison=between(FROM, 999, 1)), None, set(), {"DeadLettersNew"}),
    "one poison message": (
        Scenario(poison=between(FROM, FROM + 1, 1)), None, set(), {"DeadLettersNew"}),
    "the first rejected request": (
        Scenario(rejected=between(FROM, FROM + 1, 1)), None, set(), {"DeadLettersNew"}),
    "failed chains": (
        Scenario(chains_failed=between(FROM, FROM + 1, 30)), None, set(), {"ChainsFailed"}),
    "the account's concurrency used up": (
        Scenario(throttled=between(FROM, 999, 5)), None, set(), {"ConcurrencyThrottled"}),
    "a throttled table": (
        Scenario(table_throttled=between(FROM, 90, 5)), None, set(), {"TableThrottled"}),
    "too little time": (
        Scenario(seconds=between(FROM, 999, 82, 2), sweep_seconds=between(FROM, 999, 42, 1)),
        None, set(), {"ConsumerNearTimeout", "SweeperNearTimeout"}),
    "chains that cannot end": (
        Scenario(sweep_problems=between(FROM, 999, 1)), None, set(), {"SweepProblems"}),
    "a refused callback": (
        Scenario(refused=between(FROM, FROM + 1, 1)), None, set(), {"DeliveriesRefused"}),
    "errors now and then": (Scenario(errors=lambda minute: minute >= FROM and minute % 7 == 0),
        None, set(), {"ConsumerErrors"}),
}  # fmt: skip


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_problem_sets_off_its_alarms_and_sends_one_message(name, variant, watch):
    scenario, within, page, ticket = PROBLEMS[name]
    cloudwatch = watch(scenario, minutes=200)
    sent = [message for _, message, _ in cloudwatch.messages]
    if variant == "minimal":
        assert on(cloudwatch) == set(sent) == (page | ticket) & MINIMAL
        assert len(sent) == len(set(sent))
        return
    composites = {PAGE: page, TICKET: ticket - ALONE}
    expected = {composite for composite, alarms in composites.items() if alarms}
    assert on(cloudwatch) == page | ticket | expected
    # A page explains the tickets of its outage; single events have to be dealt with anyhow.
    told = expected - {TICKET} if page else expected
    assert sorted(sent) == sorted(told | ticket & ALONE)
    if page:
        assert FROM + 5 < cloudwatch.messages[sent.index(PAGE)][0] <= FROM + within


def test_the_handbook_has_the_minutes_until_a_page():
    handbook = (ROOT / "docs" / "operations.md").read_text()
    rows = re.findall(r"^\| [^|]+ \| `(\w+)` \| (\d+)(?: \((\d+) if )?", handbook, re.MULTILINE)
    tried = [(min(page), within) for _, within, page, _ in PROBLEMS.values() if page]
    told = [(alarm, int(minutes)) for alarm, *times in rows for minutes in filter(None, times)]
    assert set(told) == set(tried)


def test_the_age_of_messages_that_fail_stays_below_two_visibility_timeouts(template):
    """SQS stops counting at the third receive: an alarm above that cannot go off."""
    name, queue = template.queue()
    alarm = {
        "MetricName": "ApproximateAgeOfOldestMessage", "Namespace": "AWS/SQS", "Period": 60,
        "Dimensions": [{"Name": "QueueName", "Value": name}], "Statistic": "Maximum",
        "ComparisonOperator": "GreaterThanThreshold", "EvaluationPeriods": 1,
        "TreatMissingData": "notBreaching",
    }  # fmt: skip
    data = Scenario(works=constant(0)).data(template, range(120))

    def states(threshold):
        made = MetricAlarm({**alarm, "Threshold": threshold})
        return {made.state(data, minute, Rules()) for minute in range(120)}

    assert states(2 * queue["VisibilityTimeout"]) == {"OK"}
    assert states(572) == {"OK", "ALARM"}


def test_a_look_at_dead_letters_makes_no_new_ones(template):
    scenario = Scenario(rejected=between(5, 6, 3), looks=between(80, 90, 1))
    cloudwatch = watched(template, scenario, Rules(), minutes=120)
    assert cloudwatch.changes["DeadLettersNew"] == [(0, "OK"), (5, "ALARM"), (65, "OK")]


def test_dead_letters_that_nobody_handles_come_back_to_mind(template):
    scenario = Scenario(sent=constant(0), rejected=between(60, 61, 1))
    hours = range(0, 6 * 24 * 60, 60)
    cloudwatch = CloudWatch(template, Rules())
    cloudwatch.run(scenario.data(template, range(hours.stop)), hours)
    (start,) = starts(cloudwatch, "DeadLettersOld")
    assert 5 * 24 * 60 < start - 60 <= 5 * 24 * 60 + 60


SERIES = {
    "ChainsFailed": {"chains_failed": lambda minute: 30 * (minute % 50 == 0)},
    "DeadLettersNew": {"rejected": lambda minute: minute % 50 == 0},
    "DeliveriesRefused": {"refused": lambda minute: minute % 50 == 0},
}
"""Single events, one every 50 minutes: the alarm stays on, and tells of it once."""


@pytest.mark.parametrize("name", SERIES)
def test_a_series_of_single_events_hides_nothing_else(name, watch, variant):
    others = {
        "DeadLettersNew": (205, {"rejected": lambda minute: int(minute == 205)}),
        "ChainsFailed": (305, {"chains_failed": lambda minute: 30 * (minute == 305)}),
        TICKET: (405, {"throttled": between(405, 440, 50)}),
        PAGE: (505, {"sweeps": between(505, 530, 0, 1)}),
    }
    others.pop(name, None)
    faults = {field: of for _, fault in others.values() for field, of in fault.items()}
    cloudwatch = watch(Scenario(**faults, **SERIES[name]), minutes=560)
    if variant == "minimal":
        others = {{PAGE: "SweeperSilent"}.get(n, n): at for n, at in others.items()}
        expected = MINIMAL & {*others, name}
    else:
        expected = {*others, name}
    sent = {message: minute for minute, message, _ in cloudwatch.messages}
    assert len(sent) == len(cloudwatch.messages)
    assert sent.keys() == expected
    if variant != "minimal":
        assert all(at <= sent[other] < at + 60 for other, (at, _) in others.items())


# -- the rules, by the tables of the user guide ----------------------------------------------------


@pytest.mark.parametrize(
    ("points", "datapoints", "breaching", "not_breaching", "ignore"),
    [
        ("0-X-X", 3, "OK", "OK", "OK"),
        ("0----", 3, "OK", "OK", "OK"),
        ("-----", 3, "ALARM", "OK", None),
        ("0XX-X", 3, "ALARM", "ALARM", "ALARM"),
        ("----X", 3, "ALARM", "OK", None),
        ("X----", 3, "ALARM", "OK", None),
        ("0-X-X", 2, "ALARM", "ALARM", "ALARM"),
        ("00X0X", 2, "ALARM", "ALARM", "ALARM"),
        ("0-X--", 2, "ALARM", "OK", "OK"),
        ("----0", 2, "ALARM", "OK", "OK"),
        ("----X", 2, "ALARM", "OK", None),
    ],
)
def test_missing_data(points, datapoints, breaching, not_breaching, ignore):
    retrieved = [{"0": False, "X": True, "-": None}[point] for point in points]
    states = [judge(retrieved, datapoints, 3, t) for t in ("breaching", "notBreaching", "ignore")]
    assert states == [breaching, not_breaching, ignore]
