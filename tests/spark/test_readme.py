"""The snippets of README.md run as they are written there."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace

import xorack.cdk  # noqa: F401 - before aws_cdk: it sets the node that jsii runs
from tests.spark.helpers import ROOT, Acker, block_with, chains_in, code_blocks, totals

README = (ROOT / "README.md").read_text(encoding="utf-8")
SNIPPETS = code_blocks(README, "python")


def snippet(text):
    """Compile the only snippet that contains a text."""
    return compile(block_with(SNIPPETS, text), "README.md", "exec")


def test_every_snippet_has_a_test_here():
    texts = ("acker.grant_send", 'step="open"', 'step="bill"', "tracker.start", 'event["token"]')
    texts += ("Request.stamp_", "aws_events_targets.SqsQueue")
    assert len({snippet(text) for text in texts}) == len(SNIPPETS) == len(texts)


def consumed(functions):
    """Consume all messages of the queue; return the chains."""
    functions.deliver()
    assert functions.aws.dead_letters() == []
    return chains_in(functions.aws)


def test_tracker(aws, functions):
    published = []
    names = {
        "queue_url": aws.queue_url,
        "publish": lambda line, token: published.append({"line": line, "token": token}),
    }
    exec(snippet("tracker.start"), names)
    assert totals(consumed(functions))["order/17"] == ("open", 3, 1)
    assert [event["line"] for event in published] == ["harpoon", "rope"]
    done = []
    for event in json.loads(json.dumps(published)):
        exec(snippet('event["token"]'), {**names, "event": event, "process": done.append})
    assert done == published
    assert consumed(functions)["order/17"].status == "acked"
    (event,) = aws.events()
    assert event["detail"]["detail"] == {"customer": "Ahab"}


def test_requests(aws, functions):
    exec(snippet("Request.stamp_"), {"queue_url": aws.queue_url})
    assert totals(consumed(functions))["file13"] == ("acked", 4, 4)


def test_spark(spark, queue, tmp_path, monkeypatch):
    from pyspark.sql import functions as F

    lines = spark.range(30).select(
        (F.col("id") % 3).cast("string").alias("order"), F.col("id").alias("line")
    )
    lines.write.parquet(str(tmp_path / "lines"))
    lines.where("order <> '2' OR line > 5").write.parquet(str(tmp_path / "billed"))

    def parquet(name):
        return spark.read.parquet(str(tmp_path / name))

    here = SimpleNamespace(read=SimpleNamespace(parquet=parquet))
    monkeypatch.setenv("AWS_ENDPOINT_URL", queue.endpoint)
    for _ in range(2):  # a repeated job changes nothing
        for text in ('step="open"', 'step="bill"'):
            exec(snippet(text), {"spark": here, "queue_url": queue.queue_url})
    assert len(queue.bodies) == 4
    assert totals(Acker(queue.bodies).chains) == {
        **dict.fromkeys("01", ("acked", 10, 10)),
        "2": ("open", 10, 8),
    }


def test_cdk():
    from aws_cdk import App, Stack, assertions, aws_iam, aws_sqs

    stack = Stack(App(), "Mine")
    names = {
        "self": stack,
        "producer": aws_iam.Role(stack, "Producer", assumed_by=aws_iam.AnyPrincipal()),
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
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")):
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"
