"""An embedded AWS and the synthesised stack in it, shared by the tests of this folder."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from demo.run import SETTINGS
from tests.support.subscriber import drain
from xorack.local.assembly import synthesise
from xorack.local.deploy import deploy
from xorack.local.embedded import EmbeddedAWS

ROOT = Path(__file__).parents[2]


def python(*arguments, **environ):
    """Run a Python program in the checkout; return its process."""
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **environ},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def item_of(stack, tag):
    """The item of a chain as the table has it, or None."""
    response = stack.client("dynamodb").get_item(
        TableName=stack.table_name, Key={"tag": {"S": tag}}, ConsistentRead=True
    )
    return response.get("Item")


def events_of(tags, queue_url, sqs, seconds):
    """The events from a subscriber's queue by tag, once each of the tags has one."""
    received, deadline = {}, time.monotonic() + seconds

    def complete():
        return received.keys() >= {*tags} or time.monotonic() > deadline

    for event in drain(queue_url, sqs, wait_seconds=seconds, until=complete):
        received.setdefault(event["detail"]["tag"], []).append(event)
    assert not {*tags} - received.keys()
    return {tag: received[tag] for tag in tags}


def assert_acked(stack, tag, events, units):
    """The chain of so many units is acked, and all copies of its event have one id."""
    assert {(event["source"], event["detail-type"]) for event in events} == {("xorack", "acked")}
    assert len({event["detail"]["id"] for event in events}) == 1, tag
    item = item_of(stack, tag)
    assert item["status"] == {"S": "acked"}
    assert not any(item["stamp"]["B"])
    counts = {item[name]["N"] for name in ("started", "finished")}
    assert counts == {str(events[0]["detail"][name]) for name in ("started", "finished")}
    assert counts == {str(units)}, tag


@pytest.fixture(scope="session")
def embedded_aws(_no_real_aws):
    """A running embedded AWS; tests deploy stacks under names of their own."""
    with EmbeddedAWS() as started:
        yield started


@pytest.fixture(scope="session")
def demo_work(tmp_path_factory) -> Path:
    """The demo's folder, with the synthesised stack."""
    work = tmp_path_factory.mktemp("demo")
    (work / "xorack-demo").touch()
    synthesise(ROOT, work / "cdk", SETTINGS, lambda _: None)
    return work


@pytest.fixture(scope="session")
def assembly(demo_work) -> Path:
    """The template of the stack, with the demo's settings."""
    return next((demo_work / "cdk").glob("*.template.json"))


@pytest.fixture(scope="session")
def stack(embedded_aws, assembly):
    """The synthesised stack in the embedded AWS: tests share it and use tags of their own."""
    return deploy(embedded_aws, assembly)


def lambda_count(stack, metric):
    """Return a metric of Lambda, summed over the functions of a stack."""
    now = time.time()
    period = {"StartTime": now - 86_400, "EndTime": now + 60, "Period": 86_400}
    points = [
        point
        for name in stack.functions.values()
        for point in stack.client("cloudwatch").get_metric_statistics(
            Namespace="AWS/Lambda",
            MetricName=metric,
            Dimensions=[{"Name": "FunctionName", "Value": name}],
            Statistics=["Sum"],
            **period,
        )["Datapoints"]
    ]
    return sum(point["Sum"] for point in points)
