"""Which alarms go off in which situation, and when: by CloudWatch's rules over synthetic data."""

import pytest

from xorack.cdk.alarms import PAGE, TICKET

from .cloudwatch import CloudWatch, Rules
from .scenarios import Scenario, between, constant
from .templates import Template

STRICT = Rules(
    extra=5, fills_empty=False, dynamodb_ignores=True,
    delays={"AWS/SQS": 1, "AWS/Lambda": 3, "AWS/DynamoDB": 2, "xorack": 3},
)  # fmt: skip
"""Old values count, new ones are late, and FILL does nothing without any data."""
VARIANTS = {
    "default": ("template", Rules()),
    "strict": ("template", STRICT),
    "varied": ("varied", Rules(extra=0)),
    "minimal": ("minimal", STRICT),
}
MINIMAL = {"ConsumerFailing", "QueueBehind", "SweeperSilent", "DeadLettersNew"}


@pytest.fixture(params=VARIANTS)
def variant(request):
    return request.param


@pytest.fixture
def watch(variant, request):
    """A function that evaluates the alarms of a template in a scenario."""
    name, rules = VARIANTS[variant]
    template: Template = request.getfixturevalue(name)

    def watch(scenario, minutes):
        cloudwatch = CloudWatch(template, rules)
        cloudwatch.run(scenario.data(template, range(minutes)), range(minutes))
        return cloudwatch

    return watch


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
    "a rush that the consumer works off": Scenario(
        sent=between(60, 62, 3000, 20), capacity=constant(1000)),
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
    cloudwatch = watch(QUIET[name], 120)
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
        Scenario(sent=between(FROM, 999, 2000, 20)), 25, {"QueueBehind"}, set()),
    "a disabled event source mapping": (
        Scenario(capacity=between(FROM, 999, 0, 1000)), 13, {"QueueBehind"}, set()),
    "a disabled rule": (
        Scenario(sweeps=between(FROM, 999, 0, 1)), 11, {"SweeperSilent"}, set()),
    "a sweeper that cannot read the table": (
        Scenario(sweeps=between(FROM, 999, -1, 1)), 11, {"SweeperSilent"}, set()),
    "a bus that is gone": (
        Scenario(pending_seconds=lambda minute: max(0, (minute - FROM) * 60)),
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
    "errors now and then": (
        Scenario(errors=lambda minute: minute >= FROM and minute % 7 == 0),
        None, set(), {"ConsumerErrors"}),
}  # fmt: skip


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_problem_sets_off_its_alarms_and_sends_one_message(name, variant, watch):
    scenario, within, page, ticket = PROBLEMS[name]
    cloudwatch = watch(scenario, 200)
    sent = [message for _, message, _ in cloudwatch.messages]
    if variant == "minimal":
        assert on(cloudwatch) == set(sent) == (page | ticket) & MINIMAL
        assert len(sent) == len(set(sent))
        return
    composites = {PAGE: page, TICKET: ticket}
    expected = {composite for composite, alarms in composites.items() if alarms}
    assert on(cloudwatch) == page | ticket | expected
    if page:
        # Dead letters of an outage are left when it is over: they may send a ticket as well.
        assert sent in ([PAGE], [PAGE, TICKET] if "DeadLettersNew" in ticket else [PAGE])
        more = 13 if variant == "varied" else 0  # its timeout is longer
        assert FROM + 5 < cloudwatch.messages[0][0] <= FROM + within + more
    else:
        assert sent == [TICKET]
