"""The Lambda functions' handlers over embedded AWS: an SQS event in, states, events and letters."""

import base64
import gzip
import json

import pytest

from tests.support.faults import answers_lost, refused
from xorack.acker.chain_writer import ChainWriter
from xorack.core.clock import milliseconds
from xorack.core.errors import InvalidRequest
from xorack.core.message import pack
from xorack.core.request import Request
from xorack.core.stamp import traced, xor


class Context:
    """As much of Lambda's context as is used."""

    function_name = "consumer"
    memory_limit_in_mb = 256
    invoked_function_arn = "arn:aws:lambda:eu-west-1:123456789012:function:consumer"
    aws_request_id = "request"

    def __init__(self, milliseconds=30_000):
        self.milliseconds = milliseconds

    def get_remaining_time_in_millis(self):
        return self.milliseconds


@pytest.fixture
def world(aws, monkeypatch):
    for name, value in aws.environ().items():
        monkeypatch.setenv(name, value)
    return aws


def sqs_event(*bodies):
    return {
        "Records": [
            {
                "messageId": f"m{number}",
                "receiptHandle": "r",
                "body": body,
                "attributes": {},
                "messageAttributes": {},
                "eventSource": "aws:sqs",
                "eventSourceARN": "arn:aws:sqs:eu-west-1:123456789012:q",
                "awsRegion": "eu-west-1",
            }
            for number, body in enumerate(bodies)
        ]
    }


def handle(*bodies, context=None):
    from lambda_src.consumer import handler

    answer = handler(sqs_event(*bodies), context or Context())
    assert set(answer) == {"batchItemFailures"}
    return [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]


def sweep():
    from lambda_src.sweeper import handler

    return handler({}, Context())


def message(*requests):
    (body,) = pack(requests, max_bytes=1_000_000)
    return body


def item(world, tag):
    key = {"tag": {"S": tag}}
    return world.client("dynamodb").get_item(TableName=world.table_name, Key=key).get("Item")


def test_from_messages_to_the_acked_event(world):
    create = Request.create("database/file13", "c", traced(1), detail={"bucket": "b"})
    words = [traced(n) for n in (2, 3)]
    assert handle(message(create)) == []
    assert item(world, "database/file13")["status"] == {"S": "open"}
    stamp = Request.stamp_("database/file13", "s", xor(traced(1), *words), started=2, finished=1)
    assert handle(message(stamp), message(stamp)) == []
    assert world.events() == []
    ends = [
        Request.stamp_("database/file13", f"w{n}", word, finished=1) for n, word in enumerate(words)
    ]
    assert handle(*map(message, ends)) == []
    (event,) = world.events()
    assert event["source"] == "xorack"
    assert event["detail-type"] == "acked"
    detail = event["detail"]
    assert detail["tag"] == "database/file13"
    assert (detail["started"], detail["finished"]) == (3, 3)
    assert detail["detail"] == {"bucket": "b"}
    left = item(world, "database/file13")
    assert left["status"] == {"S": "acked"}
    assert "event_pending" not in left
    assert "due_at" not in left
    assert handle(*map(message, ends)) == []
    assert world.events() == []


def test_refused_requests_are_dead_letters_with_their_reason(world):
    good = Request.create("t", "c", b"\1")
    bad = {"op": "stamp", "tag": 5, "id": "x", "stamp": "AQ=="}
    body = json.dumps(
        {
            "version": 1,
            "requests": [
                good.to_json(),
                bad,
                Request.stamp_("t", "s", b"\1", finished=1).to_json(),
            ],
        }
    )
    assert handle(body, "no JSON \u2028 at all", "[" * 50_000) == []
    assert item(world, "t")["status"] == {"S": "acked"}
    letters = world.dead_letters()
    reasons = {
        letter["MessageAttributes"]["error"]["StringValue"]: letter["Body"] for letter in letters
    }
    assert len(reasons) == 3
    (tag_reason,) = (reason for reason in reasons if "tag" in reason)
    assert json.loads(reasons[tag_reason]) == {"version": 1, "requests": [bad]}
    assert "no JSON \u2028 at all" in reasons.values()


def test_a_body_of_one_mebibyte_is_refused_with_its_reason(world):
    body = "x" * 1_048_576
    assert handle(body) == []
    (letter,) = world.dead_letters()
    assert "body" in letter["MessageAttributes"]["error"]["StringValue"]
    assert letter["MessageAttributes"]["encoding"]["StringValue"] == "gzip+base64"
    assert gzip.decompress(base64.b64decode(letter["Body"])).decode() == body


class ShortOfTime:
    """A Lambda context whose clock runs by itself: each look at it costs a second."""

    def __init__(self, seconds):
        self.seconds = seconds

    def get_remaining_time_in_millis(self):
        self.seconds -= 1
        return self.seconds * 1000


def test_a_flood_of_wrong_requests_does_not_hold_up_its_neighbours(world):
    rubbish = json.dumps({"version": 1, "requests": [1] * 10_000})
    event = {
        "Records": [
            {"messageId": f"m{n}", "body": body}
            for n, body in enumerate([message(Request.create("t", "c", b"\1")), *[rubbish] * 50])
        ]
    }
    from lambda_src.consumer import handler

    answer = handler(event, ShortOfTime(60))
    failed = {item["itemIdentifier"] for item in answer["batchItemFailures"]}
    # Some letters were sent, for the rest there was no time: only that comes again.
    assert item(world, "t")
    assert "m0" not in failed
    assert 0 < len(failed) <= 50
    assert 0 < len(world.dead_letters()) <= 600


def test_when_the_dead_letter_queue_is_away_the_message_stays(world):
    body = message(Request.create("t", "c", b"\1"))
    with refused("SendMessageBatch", "AccessDenied", times=99):
        assert handle("rubbish", body) == ["m0"]
    assert item(world, "t")
    assert handle("rubbish") == []
    assert len(world.dead_letters()) == 1


def test_events_not_accepted_are_owed_and_come_again(world):
    body = message(Request.create("t", "c", b"\1"), Request.stamp_("t", "s", b"\1", finished=1))
    with refused("PutEvents", "AccessDeniedException", times=99):
        assert handle(body) == ["m0"]
    assert item(world, "t")["event_pending"] == {"N": "1"}
    assert world.events() == []
    assert handle(body) == []
    (event,) = world.events()
    assert "event_pending" not in item(world, "t")
    assert event["detail"]["status"] == "acked"


def test_answers_lost_leave_every_state_right(world):
    bodies = [
        message(Request.create("t", "c", traced(1))),
        message(Request.stamp_("t", "s", xor(traced(1), traced(2)), started=1, finished=1)),
        message(Request.stamp_("t", "w", traced(2), finished=1)),
    ]
    for body in bodies:
        with answers_lost("UpdateItem", 2) as left:
            assert handle(body) == []
            assert left == [0]
    assert item(world, "t")["status"] == {"S": "acked"}
    with answers_lost("PutEvents", 1):
        assert handle(*bodies) == []
    ids = {event["detail"]["id"] for event in world.events()}
    assert len(ids) == 1


def test_hundreds_of_chains_in_one_batch(world):
    bodies = []
    # Read in three batches: BatchGetItem takes 100 keys.
    for start in range(0, 210, 70):
        tags = [f"chain-{n}" for n in range(start, start + 70)]
        bodies.append(message(*(Request.create(tag, "c", b"\1\2") for tag in tags)))
        bodies.append(message(*(Request.stamp_(tag, "s", b"\1\2", finished=1) for tag in tags)))
    assert handle(*bodies) == []
    events = world.events()
    assert len(events) == 210
    assert len({event["detail"]["id"] for event in events}) == 210


def test_a_chain_whose_write_is_refused_fails_its_own_messages(world):
    with refused("UpdateItem", "AccessDeniedException", times=1):
        failed = handle(message(Request.create("a", "c", b"\1")), "rubbish")
    assert failed == ["m0"]
    assert len(world.dead_letters()) == 1


def test_little_time_is_not_overrun(world):
    body = message(Request.create("t", "c", b"\1"))
    assert handle(body, context=Context(milliseconds=100)) == ["m0"]
    assert handle(body) == []


def test_without_a_context(world):
    from lambda_src.consumer import handler

    body = message(Request.create("t", "c", b"\1"))
    assert handler(sqs_event(body), None) == {"batchItemFailures": []}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TABLE_NAME", ""),
        ("EVENT_BUS_NAME", ""),
        ("DEAD_LETTER_QUEUE_URL", ""),
        ("DEFAULT_TIMEOUT_SECONDS", "soon"),
        ("DEFAULT_TIMEOUT_SECONDS", "0"),
        ("RETENTION_SECONDS", "-1"),
        ("PARTITION_KEY", "stamp"),
    ],
)
def test_a_wrong_environment_is_named(world, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(InvalidRequest, match=name.lower() if name == "PARTITION_KEY" else name):
        handle(message(Request.create("t", "c", b"\1")))


def test_an_event_that_is_none_is_named(world):
    from lambda_src.consumer import handler

    with pytest.raises(InvalidRequest, match="event"):
        handler({}, Context())


def test_another_partition_key(aws, monkeypatch):
    from tests.support.in_process import create_resources

    other = create_resources(aws.aws, partition_key="tagID")
    for name, value in other.environ().items():
        monkeypatch.setenv(name, value)
    handle(message(Request.create("t", "c", b"\1"), Request.stamp_("t", "s", b"\1", finished=1)))
    assert len(other.events()) == 1


def later(monkeypatch, seconds):
    """Advance the services' clock."""
    now = milliseconds() + seconds * 1000
    monkeypatch.setitem(ChainWriter.__init__.__kwdefaults__, "clock", lambda: now)


def test_the_sweeper_ends_and_publishes(world, monkeypatch):
    handle(
        message(
            Request.create("late", "c", traced(7), timeout=10),
            Request.create("open", "c", traced(7), timeout=10_000),
            Request.stamp_("orphan", "s", b"\1"),
        )
    )
    with refused("PutEvents", "AccessDeniedException", times=9):
        handle(
            message(
                Request.create("done", "c", b"\1"), Request.stamp_("done", "s", b"\1", finished=1)
            )
        )
    assert sweep()["ChainsLookedAt"] == 0
    later(monkeypatch, 100)
    counts = sweep()
    assert (counts["ChainsTimedOut"], counts["EventsPublished"]) == (1, 2)
    later(monkeypatch, 86_500)
    counts = sweep()
    assert (counts["ChainsTimedOut"], counts["ChainsNeverCreated"]) == (1, 1)
    events = {event["detail"]["tag"]: event["detail"] for event in world.events()}
    assert events["done"]["status"] == "acked"
    assert events["late"]["reason"] == "timed out"
    assert events["late"]["outstanding"] == ["0000000000000007"]
    assert events["orphan"]["reason"] == "never created"
    assert "outstanding" not in events["orphan"]
    assert sweep()["ChainsLookedAt"] == 0


def test_the_sweeper_does_without_an_index(world, monkeypatch):
    client = world.client("dynamodb")
    client.create_table(
        TableName="by-hand",
        KeySchema=[{"AttributeName": "tag", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "tag", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    monkeypatch.setenv("TABLE_NAME", "by-hand")
    handle(message(Request.create("late", "c", traced(7), timeout=10)))
    later(monkeypatch, 100)
    assert sweep()["ChainsTimedOut"] == 1


def test_figures_are_embedded_metrics(world, capsys):
    handle(message(Request.create("t", "c", b"\1"), Request.stamp_("t", "s", b"\1", finished=1)))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if "_aws" in line]
    (figures,) = lines
    assert figures["_aws"]["CloudWatchMetrics"][0]["Namespace"] == "xorack"
    assert figures["RequestsApplied"] == [2.0]
    assert figures["ChainsAcked"] == [1.0]
    assert figures["Writes"] == [2.0]


def test_the_figures_are_what_powertools_makes_of_them_one_by_one(world, capsys):
    def printed():
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        (figures,) = [line for line in lines if "_aws" in line]
        figures["_aws"].pop("Timestamp")
        return figures

    from aws_lambda_powertools import Metrics

    from lambda_src.consumer import SERVICE

    tags = [f"t{number}" for number in range(3)]
    handle(*(message(Request.create(tag, "c", b"\1")) for tag in tags))
    assert "AckLatency" not in printed()
    handle(*(message(Request.stamp_(tag, "s", b"\1", finished=1)) for tag in tags))
    figures = printed()
    one_by_one = Metrics(namespace="xorack", service=SERVICE)
    for metric in figures["_aws"]["CloudWatchMetrics"][0]["Metrics"]:
        for value in figures[metric["Name"]]:
            one_by_one.add_metric(name=metric["Name"], unit=metric["Unit"], value=int(value))
    one_by_one.flush_metrics()
    assert len(figures["AckLatency"]) == 3
    assert figures == printed()


def test_of_many_latencies_those_are_told_that_stand_for_all():
    from lambda_src.consumer import sample

    assert sample([3, 1, 2], 3) == [3, 1, 2]
    told = sample(list(range(10_000, 0, -1)), 99)
    assert len(told) == 99
    assert (told[0], told[49], told[-1]) == (1, 5000, 10_000)


def test_a_large_batch_tells_its_slowest_chain_too(world, monkeypatch, capsys):
    from lambda_src import consumer
    from xorack.acker.consumer import BatchResult

    latencies = list(range(1, 1001))
    result = BatchResult(latencies=latencies)
    monkeypatch.setattr(consumer.Consumer, "consume", lambda *_: result)
    assert handle("whatever") == []
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "_aws" in line]
    told = json.loads(line)["AckLatency"]
    assert (len(told), told[0], told[-1]) == (99, 1, 1000)
