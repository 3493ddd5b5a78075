"""The snippets of README.md run as they are written there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import xorack.cdk  # noqa: F401 - before aws_cdk: it sets the node that jsii runs
from tests.support.fakes import FakeBus, FakeDeadLetters
from tests.support.services import Message, consume
from xorack.acker.memory_store import MemoryStore
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.aws.eventbridge import EventBus
from xorack.aws.sqs import DeadLetterQueue

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def snippet(text):
    """Compile the only snippet that contains a text."""
    (found,) = (code for code in SNIPPETS if text in code)
    return compile(found, "README.md", "exec")


def test_every_snippet_has_a_test_here():
    texts = ("acker.grant_send", 'step="open"', 'step="bill"', "tracker.start", 'event["token"]')
    texts += ("Request.stamp_", "aws_events_targets.SqsQueue")
    assert len({snippet(text) for text in texts}) == len(SNIPPETS) == len(texts)


def consumed(aws):
    """Consume all messages of the queue; return the chains."""
    bodies = [message["Body"] for message in aws.receive_all(aws.queue_url)]
    store = DynamoDBStore(aws.table_name, client=aws.client("dynamodb"))
    done = consume(
        [Message(str(n), body) for n, body in enumerate(bodies)],
        store,
        EventBus(aws.bus_name, aws.client("events")),
        DeadLetterQueue(aws.dead_letter_queue_url, aws.client("sqs")),
    )
    assert not done.failed
    assert done.outcomes["rejected"] == 0
    return {chain.tag: chain for chain in store.scan()}


def test_tracker(aws):
    published = []
    names = {
        "queue_url": aws.queue_url,
        "publish": lambda line, token: published.append({"line": line, "token": token}),
    }
    exec(snippet("tracker.start"), names)
    chain = consumed(aws)["order/17"]
    assert (chain.status, chain.started, chain.finished) == ("open", 3, 1)
    assert [event["line"] for event in published] == ["harpoon", "rope"]
    done = []
    for event in json.loads(json.dumps(published)):
        exec(snippet('event["token"]'), {**names, "event": event, "process": done.append})
    assert done == published
    assert consumed(aws)["order/17"].status == "acked"
    (event,) = aws.events()
    assert event["detail"]["detail"] == {"customer": "Ahab"}


def test_requests(aws):
    exec(snippet("Request.stamp_"), {"queue_url": aws.queue_url})
    chain = consumed(aws)["file13"]
    assert (chain.status, chain.started, chain.finished) == ("acked", 4, 4)


def test_spark(spark, queue, tmp_path, monkeypatch):
    from pyspark.sql import functions as F

    lines = spark.range(30).select(
        (F.col("id") % 3).cast("string").alias("order"), F.col("id").alias("line")
    )
    lines.write.parquet(str(tmp_path / "lines"))
    lines.where("order <> '2' OR line > 5").write.parquet(str(tmp_path / "billed"))
    store, bus, letters = MemoryStore(), FakeBus(), FakeDeadLetters()

    class Here:
        """The session, with relative paths below this test's folder."""

        class read:
            @staticmethod
            def parquet(name):
                return spark.read.parquet(str(tmp_path / name))

    monkeypatch.setenv("AWS_ENDPOINT_URL", queue.endpoint)
    for _ in range(2):  # a repeated job changes nothing
        for text in ('step="open"', 'step="bill"'):
            exec(snippet(text), {"spark": Here, "queue_url": queue.queue_url})
    assert len(queue.bodies) == 4
    consume([Message(str(n), body) for n, body in enumerate(queue.bodies)], store, bus, letters)
    chains = store.read(["0", "1", "2"])
    assert {tag: chain.status for tag, chain in chains.items()} == {
        "0": "acked",
        "1": "acked",
        "2": "open",
    }
    assert (chains["2"].started, chains["2"].finished) == (10, 8)
    assert not letters.letters


def test_cdk():
    from aws_cdk import App, Stack, assertions, aws_iam, aws_sqs

    stack = Stack(App(), "Mine")
    names = {
        "self": stack,
        "producer": aws_iam.Role(
            stack, "Producer", assumed_by=aws_iam.ServicePrincipal("lambda.amazonaws.com")
        ),
        "done": aws_sqs.Queue(stack, "Done"),
        "event_bus_name": "acks",
    }
    exec(snippet("acker.grant_send"), names)
    exec(snippet("aws_events_targets.SqsQueue"), names)
    template = assertions.Template.from_stack(stack)
    assert names["acker"].settings.batch_size == 500
    pattern = {"source": ["xorack"], "detail-type": ["acked"]}
    template.has_resource_properties("AWS::Events::Rule", {"EventPattern": pattern})
    # The rule for the AWS CLI is the same.
    (documented,) = re.findall(r"--event-pattern '(.*)'", README)
    assert json.loads(documented) == pattern


def test_links_have_targets():
    root = Path(__file__).parents[2]
    for page in (*root.glob("*.md"), *root.glob("docs/**/*.md")):
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"
