"""The snippets of README.md run as they are written there."""

from __future__ import annotations

import json

from tests.spark.helpers import ROOT, Acker, block_with, chains_in, code_blocks, totals
from tests.support.events import record_of
from tests.support.functions import Context

README = (ROOT / "README.md").read_text(encoding="utf-8")
PROTOCOL = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
SNIPPETS = code_blocks(README, "python")


def snippet(text):
    """Compile the only snippet that contains a text."""
    return compile(block_with(SNIPPETS, text), "README.md", "exec")


def test_every_snippet_has_a_test_here():
    texts = ("acker.grant_send", "lines.start", "lines.finish", "tracker.start", 'event["token"]')
    texts += ("@fan_in",)
    assert len({snippet(text) for text in texts}) == len(SNIPPETS) == len(texts)


def consumed(functions):
    """Consume all messages of the queue; return the chains."""
    functions.deliver()
    assert functions.aws.dead_letters() == []
    return chains_in(functions.aws)


def started(aws):
    """Run the code that starts a chain; return its names, and what it published."""
    published, done = [], []
    names = {
        "queue_url": aws.queue_url,
        "publish": lambda line, token: published.append({"line": line, "token": token}),
        "process": done.append,
        "done": done,
    }
    exec(snippet("tracker.start"), names)
    return names, json.loads(json.dumps(published))


def test_tracker(aws, functions):
    names, published = started(aws)
    assert totals(consumed(functions))["order/17"] == ("open", 3, 1)
    assert [event["line"] for event in published] == ["harpoon", "rope"]
    for event in published:
        exec(snippet('event["token"]'), {**names, "event": event})
    assert names["done"] == published
    assert consumed(functions)["order/17"].status == "acked"
    (event,) = aws.events()
    assert event["detail"]["detail"] == {"customer": "Ahab"}


def test_fan_in(aws, functions):
    names, published = started(aws)
    exec(snippet("@fan_in"), names)
    bodies = [{"line": event["line"]} for event in published]
    tokens = [{"StringValue": json.dumps(event["token"])} for event in published]
    messages = [
        {
            "MessageId": str(n),
            "ReceiptHandle": "h",
            "Body": json.dumps(body),
            "MessageAttributes": {"xorack": {**tokens[n], "DataType": "String"}},
        }
        for n, body in enumerate(bodies)
    ]
    records = [record_of(message) for message in messages]
    assert names["handler"]({"Records": records}, Context()) == {"batchItemFailures": []}
    assert names["done"] == bodies
    assert consumed(functions)["order/17"].status == "acked"


def test_requests(aws, functions):
    code = block_with(code_blocks(PROTOCOL, "python"), "Request.stamp_")
    exec(compile(code, "protocol.md", "exec"), {"queue_url": aws.queue_url})
    assert totals(consumed(functions))["file13"] == ("acked", 4, 4)


def test_spark(spark, queue, tmp_path):
    rows = [(order, line, f"sku {line}", 1) for order in (17, 18) for line in range(5)]
    names = {
        "spark": spark,
        "queue_url": queue.queue_url,
        "orders": spark.createDataFrame(rows, "order long, line int, sku string, amount long"),
        "path": str(tmp_path / "lines"),
        "billed": str(tmp_path / "bills"),
    }
    code = {text: block_with(SNIPPETS, text) for text in ("lines.start", "lines.finish")}
    start = code["lines.start"].replace("s3://bucket", str(tmp_path))
    exec(start, names)
    exec(code["lines.finish"], names)
    tags = [f"2026-01-31/order/{order}" for order in (17, 18)]
    assert totals(Acker(queue.bodies).chains) == dict.fromkeys(tags, ("acked", 5, 5))
