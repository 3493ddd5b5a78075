"""`xorack doctor` without AWS: its verifier, its subscription on moto, and its arguments."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from botocore.exceptions import ClientError

from tests.support.chains import changed
from tests.support.cli import check_schema
from tests.support.events import eventually
from xorack.aws.stack import DescribedStack
from xorack.cli import main, options
from xorack.core.errors import StateError
from xorack.core.event import event_detail
from xorack.core.message import pack, parse
from xorack.core.request import Request
from xorack.core.transitions import apply, expire
from xorack.ops.doctor import report, subscription
from xorack.ops.doctor.load import Load, Sent
from xorack.ops.doctor.reading import Reader
from xorack.ops.doctor.subscription import Subscription
from xorack.ops.doctor.verify import Received, TrialResult

PAGE = Path(__file__).parents[2] / "docs" / "capacity.md"
RUN = "doctor-20260131-00000001"
LOAD = Load(chains=60, sizes=(1, 2, 40), losing=0.3, reordered=0.3)


@pytest.fixture(scope="module")
def honest():
    """The outcome of a load as the protocol makes it."""
    events, chains = {}, {}
    for plan in LOAD.plans(RUN):
        (parsed,) = map(
            parse, pack([json.dumps(one.to_json()) for one in plan.requests()], 1 << 20)
        )
        chain, _ = apply(None, parsed.requests, now=1_000_000)
        if plan.lost:
            chain, _ = apply(chain, [Request.extend(plan.tag, "end", 0.001)], now=1_000_100)
            chain = expire(chain, 1_060_000)
        events[plan.tag] = [Received(chain.status, event_detail(chain), 1001.5)]
        chains[plan.tag] = changed(chain, event_pending=False)
    plans = LOAD.plans(RUN)
    return TrialResult(plans, {plan.tag: 1000.5 for plan in plans}, events, chains)


def test_what_the_protocol_makes_of_a_load_has_no_violation(honest):
    assert {event.kind for (event,) in honest.events.values()} == {"acked", "failed"}
    assert {plan.creates_last for plan in honest.plans} == {True, False}
    assert honest.all_violations() == []
    figures = report.figures(LOAD, Sent(requests=9, begun_at=999.0, ended_at=1000.0), honest)
    check_schema("load", json.loads(json.dumps(figures)))
    assert figures["latency_seconds"] == dict.fromkeys(("p50", "p90", "p99", "max"), 1.0)
    lines = list(report.chart(figures, 60))
    acked = sum(not plan.lost for plan in honest.plans)
    assert f"  from     1 s  {'█' * 34} {acked}" in lines


class Alarms:
    """A client of a stack with so many alarms, and one whose creation failed."""

    def __init__(self, count):
        self.names = [f"alarm-{number}" for number in range(count)]

    def can_paginate(self, _):
        return False

    def list_stack_resources(self, StackName):
        kind = {"ResourceType": "AWS::CloudWatch::Alarm"}
        resources = [{**kind, "PhysicalResourceId": name} for name in self.names]
        return {"StackResourceSummaries": [*resources, kind]}

    def describe_alarms(self, AlarmNames, AlarmTypes):
        assert 0 < len(AlarmNames) <= 100  # without names, AWS answers with all of the account
        description = "Runbook: docs/operations.md#queuebehind"
        alarms = [{"AlarmName": name, "AlarmDescription": description} for name in AlarmNames]
        return {"MetricAlarms": alarms}


@pytest.mark.parametrize("count", [0, 150])
def test_the_alarms_of_the_stack_alone_are_read(count):
    stack = DescribedStack("orders", "CREATE_COMPLETE", {})
    alarms = Reader(stack, lambda _: Alarms(count))._alarms()
    assert (len(alarms["present"]), alarms["gone"]) == (count, [])


def forged(outcome, tag, *, event=(), detail=(), item=(), events=1):
    """Return an outcome with other fields of a chain's event, of its detail and of its item."""
    (true,) = outcome.events[tag]
    other = true._replace(**{"detail": {**true.detail, **dict(detail)}, **dict(event)})
    chains = dict(outcome.chains)
    chain = chains.pop(tag)
    if item is not None:
        chains[tag] = changed(chain, **dict(item))
    seen = [true, other][2 - events :] if events else []
    return replace(outcome, events={**outcome.events, tag: seen}, chains=chains)


ACKED, LOSSY = False, True
FORGED = {
    # By the verifier's finding: a chain with or without lost units, and the forged fields.
    "false ack: ": (LOSSY, {"detail": {"status": "acked"}}),
    "status 'failed', expected 'acked'": (ACKED, {"detail": {"status": "failed"}}),
    "reason 'never', expected 'timed out'": (LOSSY, {"detail": {"reason": "never"}}),
    "outstanding ['aa'], expected ": (LOSSY, {"detail": {"outstanding": ["aa"]}}),
    "outstanding_complete False, expected": (LOSSY, {"detail": {"outstanding_complete": False}}),
    "finished 77, expected": (ACKED, {"detail": {"finished": 77}}),
    "detail {}": (ACKED, {"detail": {"detail": {}}}),
    "the id of its event is 000": (ACKED, {"detail": {"id": "0" * 32}}),
    "arrived 0.600 s before its last request was sent": (ACKED, {"event": {"at": 999.9}}),
    "detail-type failed of an event with status acked": (ACKED, {"event": {"kind": "failed"}}),
    "2 different events, ids": (ACKED, {"detail": {"id": "1" * 32}, "events": 2}),
    "lost: neither an event nor an item": (ACKED, {"events": 0, "item": None}),
    "lost event: acked in the table": (ACKED, {"events": 0}),
    "not ended: open in the table": (ACKED, {"events": 0, "item": {"status": "open"}}),
    "but not in the table": (ACKED, {"item": None}),
    "but failed in the table": (ACKED, {"item": {"status": "failed"}}),
    "still pending": (ACKED, {"item": {"event_pending": True}}),
}


@pytest.mark.parametrize("line", FORGED)
def test_the_verifier_finds_a_forged_outcome(honest, line):
    loses_units, fields = FORGED[line]
    plan = next(one for one in honest.plans if bool(one.lost) == loses_units)
    violations = forged(honest, plan.tag, **fields).all_violations()
    assert any(line in violation for violation in violations), violations
    assert all(violation.startswith(f"{plan.tag}: ") for violation in violations)


def test_the_verifier_finds_an_unknown_chain(honest):
    events = {**honest.events, f"{RUN}/x": [Received("acked", {"status": "acked"}, 1.0)]}
    assert replace(honest, events=events).all_violations() == [f"{RUN}/x: no chain of this run"]


# -- the subscription, on moto ---------------------------------------------------------------------


def present(aws):
    """The names of the run's rules and queues."""
    rules = aws.client("events").list_rules(EventBusName=aws.bus_name, NamePrefix=RUN)["Rules"]
    queues = aws.client("sqs").list_queues(QueueNamePrefix=RUN).get("QueueUrls", [])
    return [rule["Name"] for rule in rules], [url.rpartition("/")[2] for url in queues]


@pytest.fixture
def subscribed(aws, monkeypatch):
    monkeypatch.setattr(subscription, "_WAIT_SECONDS", 0)  # moto delivers at once
    return Subscription(RUN, aws.bus_name, aws.client, prefix=f"{RUN}/")


def test_a_subscription_gets_the_events_of_its_run_only(aws, subscribed):
    seen = []
    with subscribed.open():
        assert present(aws) == ([RUN], [RUN])
        for tag, source in ((f"{RUN}/1", "xorack"), ("another/1", "xorack"), (f"{RUN}/2", "other")):
            entry = {"Source": source, "DetailType": "acked", "Detail": json.dumps({"tag": tag})}
            aws.client("events").put_events(Entries=[{"EventBusName": aws.bus_name, **entry}])
        assert eventually(lambda: seen.extend(subscribed.receive()) or seen)
        url = aws.client("sqs").get_queue_url(QueueName=RUN)["QueueUrl"]
        policy = aws.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["All"])
    assert [event["detail"]["tag"] for event in seen] == [f"{RUN}/1"]
    (statement,) = json.loads(policy["Attributes"]["Policy"])["Statement"]
    assert statement["Principal"] == {"Service": "events.amazonaws.com"}
    assert statement["Condition"]["ArnEquals"]["aws:SourceArn"].endswith(f"/{aws.bus_name}/{RUN}")
    assert (present(aws), subscribed.left_behind) == (([], []), [])


@pytest.mark.parametrize(("service", "name"), [("events", "put_rule"), ("sqs", "create_queue")])
def test_an_interrupt_while_a_thing_is_made_removes_it(aws, subscribed, monkeypatch, service, name):
    """The call takes effect, and its response does not arrive."""
    client = aws.client(service)
    real = getattr(client, name)

    def interrupted(**arguments):
        real(**arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(client, name, interrupted)
    with pytest.raises(KeyboardInterrupt), subscribed.open():
        pass
    assert present(aws) == ([], [])


def test_what_does_not_deliver_or_cannot_be_removed_is_named(aws, subscribed, monkeypatch):
    monkeypatch.setattr(subscription, "_PROBE_SECONDS", 0.0)

    def denied(**_):
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "DeleteQueue")

    monkeypatch.setattr(aws.client("sqs"), "delete_queue", denied)
    with pytest.raises(StateError, match="no event reached the queue"), subscribed.open():
        pass
    (line,) = subscribed.left_behind
    assert line.startswith(f"queue {RUN} (")
    assert "AccessDenied" in line
    assert present(aws) == ([], [RUN])


def test_events_are_printed_as_they_arrive(aws, monkeypatch, capsys):
    """Until Ctrl-C, which the second receive stands for."""
    event = {"Source": "xorack", "DetailType": "acked", "Detail": json.dumps({"tag": "a/1"})}
    receive = Subscription.receive

    def interrupted(self):
        if found := receive(self):
            return found
        if printed:
            raise KeyboardInterrupt
        aws.client("events").put_events(Entries=[{"EventBusName": self.bus_name, **event}])
        return []

    printed = []
    monkeypatch.setattr(subscription, "_WAIT_SECONDS", 0)
    monkeypatch.setattr(Subscription, "receive", interrupted)
    monkeypatch.setattr(options, "find_stack", lambda *_: SimpleNamespace(bus_name=aws.bus_name))
    monkeypatch.setattr("click.echo", printed.append)
    assert main(["events", "--follow", "--prefix", "a/"]) == 0
    (line,) = {*printed}
    assert json.loads(line)["detail"] == {"tag": "a/1"}
    names = {"EventBusName": aws.bus_name, "NamePrefix": "events-"}
    assert aws.client("events").list_rules(**names)["Rules"] == []
    assert main(["events"]) == 2
    assert "a bus stores no events: use --follow" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--stack", ""), "'--stack': expected a value that is not empty"),
        (("--for", "60"), "--for requires --load"),
        (("--load", "200/s", "--no-chains"), "--load and --no-chains cannot be used together"),
        (("--load", "200/s", "--json"), "--json with --load requires --yes"),
        (("--load", "0/s"), "'--load': '0/s', expected 1/s to 100000/s, such as 200/s"),
        (("--load", "fast"), "'--load': 'fast', expected"),
        (("--load", "1e9"), "'--load': '1e9', expected"),
        (("--load", "9/s", "--for", "0"), "'--for': 0.0 is not in the range"),
        (("--load", "9/s", "--for", "soon"), "'--for': 'soon', expected seconds"),
        (("--except", "nothing"), "'--except': 'nothing' is not one of 'outputs'"),
        (("more",), "Got unexpected extra argument (more)"),
    ],
)
def test_invalid_arguments_are_one_line_each(capsys, arguments, error):
    assert main(["doctor", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert error.lower() in line.lower()
    assert line.endswith("(see: xorack doctor --help)")
