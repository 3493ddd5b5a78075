"""What the measurement makes, reads and removes in an account, on moto; and its command line."""

import json

import pytest
from botocore.exceptions import ClientError

from measure import subscription
from measure.__main__ import measure
from measure.subscription import Leftovers, subscribed, take_dead_letters
from tests.support.events import eventually
from xorack.aws.stack import StackOutputs
from xorack.cli import options
from xorack.cli.commands import run
from xorack.ops import redrive

RUN = "measure-20260131-00000001"
DENIED = ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "DeleteQueue")


@pytest.fixture(autouse=True)
def _no_long_polling(monkeypatch):
    """moto delivers at once."""
    monkeypatch.setattr(subscription, "_WAIT_SECONDS", 0)
    monkeypatch.setattr(redrive, "_WAIT_SECONDS", 0)


def present(aws):
    """The names of the run's rules and queues."""
    rules = aws.client("events").list_rules(EventBusName=aws.bus_name, NamePrefix=RUN)["Rules"]
    queues = aws.client("sqs").list_queues(QueueNamePrefix=RUN).get("QueueUrls", [])
    return [rule["Name"] for rule in rules], [url.rpartition("/")[2] for url in queues]


def publish(aws, tag, source="xorack"):
    detail = json.dumps({"tag": tag})
    entry = {"Source": source, "DetailType": "acked", "Detail": detail}
    aws.client("events").put_events(Entries=[{"EventBusName": aws.bus_name, **entry}])


def test_a_subscription_gets_the_events_of_its_run_only(aws):
    leftovers = Leftovers()
    with subscribed(RUN, aws.bus_name, aws.client, leftovers) as events:
        assert present(aws) == ([RUN], [RUN])
        for tag in (f"{RUN}/1", "measure-20260131-00000002/1", f"{RUN}/2"):
            publish(aws, tag)
        publish(aws, f"{RUN}/3", source="another")
        assert eventually(lambda: len(events.by_tag) == 2)
        url = aws.client("sqs").get_queue_url(QueueName=RUN)["QueueUrl"]
        policy = aws.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["All"])
    assert sorted(events.by_tag) == [f"{RUN}/1", f"{RUN}/2"]
    attributes = policy["Attributes"]
    (statement,) = json.loads(attributes["Policy"])["Statement"]
    assert statement["Principal"] == {"Service": "events.amazonaws.com"}
    assert statement["Resource"] == attributes["QueueArn"]
    (rule_arn,) = statement["Condition"]["ArnEquals"].values()
    assert rule_arn.endswith(f":rule/{aws.bus_name}/{RUN}")
    assert present(aws) == ([], [])
    assert leftovers.lines == []


@pytest.mark.parametrize(("service", "name"), [("events", "put_rule"), ("sqs", "create_queue")])
def test_an_interrupt_while_a_thing_is_made_removes_it(aws, monkeypatch, service, name):
    """The call takes effect, and its response does not arrive."""
    client = aws.client(service)
    real = getattr(client, name)

    def interrupted(**arguments):
        real(**arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(client, name, interrupted)
    with pytest.raises(KeyboardInterrupt), subscribed(RUN, aws.bus_name, aws.client, Leftovers()):
        pass
    assert present(aws) == ([], [])


def test_what_cannot_be_removed_is_named_with_a_command(aws, monkeypatch):
    leftovers = Leftovers()

    def denied(**_):
        raise DENIED

    with subscribed(RUN, aws.bus_name, aws.client, leftovers):
        monkeypatch.setattr(aws.client("sqs"), "delete_queue", denied)
    (line,) = leftovers.lines
    assert line.startswith(f"queue {RUN} (")
    assert "AccessDenied" in line
    assert present(aws) == ([], [RUN])


def test_a_rule_that_does_not_deliver_stops_the_measurement(aws, monkeypatch):
    monkeypatch.setattr(subscription, "_PROBE_SECONDS", 0.0)
    leftovers = Leftovers()
    with (
        pytest.raises(subscription.MeasureFailed, match="no event reached the queue"),
        subscribed(RUN, aws.bus_name, aws.client, leftovers),
    ):
        pass
    assert present(aws) == ([], [])


def test_only_the_runs_dead_letters_are_taken(aws):
    sqs, url = aws.client("sqs"), aws.dead_letter_queue_url
    error = {"error": {"DataType": "String", "StringValue": "tag: 5, expected"}}
    for number in range(12):
        body = f'{{"tag":"{RUN}/{number}", not JSON'
        sqs.send_message(QueueUrl=url, MessageBody=body, MessageAttributes=error)
    other = sqs.send_message(QueueUrl=url, MessageBody='{"tag":"measure-1/1"}')["MessageId"]
    taken = take_dead_letters(RUN, url, sqs)
    assert sorted(taken) == sorted((f"{RUN}/{n}", "tag: 5, expected") for n in range(12))
    # The other one is visible at once.
    (left,) = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    assert left["MessageId"] == other


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((), "'--stack'"),
        (("--stack", ""), "'--stack': the value is empty"),
        (("--stack", "s", "--units", "1:x"), "units: '1:x', expected units:share"),
        (("--stack", "s", "--lose", "nan"), "'--lose': nan is not a number"),
        (("--stack", "s", "--lose", "1.1"), "'--lose': 1.1 is not in the range"),
        (("--stack", "s", "--chains", "0"), "'--chains': 0 is not in the range"),
        (("--stack", "s", "--json", "/no/folder"), "'--json': '/no/folder': "),
        (("--stack", "s", "--max-cost", "-1"), "'--max-cost': -1.0 is not in the range"),
        (("--stack", "s", "--chains", "9999", "--yes"), "this is above --max-cost 1: send less"),
    ],
)
def test_invalid_arguments_are_one_line_each(capsys, arguments, error):
    assert run(list(arguments), measure) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert error in line
    assert line.endswith("(see: python -m measure --help)")


def test_nothing_starts_without_consent(aws, capsys, monkeypatch):
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda _: "n")
    outputs = StackOutputs(aws.table_name, aws.queue_url, aws.dead_letter_queue_url, aws.bus_name)
    monkeypatch.setattr(options, "find_stack", lambda *_: outputs)
    assert run(["--stack", "s"], measure) == 130
    assert "at most" in capsys.readouterr().out
    queue = {"QueueUrl": aws.queue_url, "AttributeNames": ["ApproximateNumberOfMessages"]}
    attributes = aws.client("sqs").get_queue_attributes(**queue)["Attributes"]
    assert attributes == {"ApproximateNumberOfMessages": "0"}
    assert aws.client("sqs").list_queues(QueueNamePrefix="measure-").get("QueueUrls", []) == []
