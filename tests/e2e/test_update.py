"""A running stack is updated while chains run, and a deployment that fails is rolled back."""

import shutil
import threading
from unittest.mock import Mock

import pytest
from botocore.exceptions import WaiterError

from tests.e2e.conftest import events_of
from tests.e2e.test_state import Operator
from tests.support.events import eventually
from tests.support.functions import chain
from tests.support.subscriber import subscribe
from xorack.aws.sqs import send
from xorack.cdk import code
from xorack.local.embedded import EmbeddedAWS

pytestmark = pytest.mark.slow

UPDATES = (
    {"batch_size": "20", "memory_mb": "512"},
    {"retention_days": "40", "default_timeout_seconds": "3600"},
    {"mask": "customer", "monitoring": "full"},
)
"""Settings of three updates: of the mapping, of times that items depend on, of what is kept. The
last one also has code with more shards of the index."""


@pytest.fixture
def operator(tmp_path, monkeypatch):
    with EmbeddedAWS() as aws:
        for name, value in aws.environ().items():
            monkeypatch.setenv(name, value)
        operator = Operator(aws, tmp_path)
        operator.make(["deploy", "ARGS=-c stack_name=xorack"])
        yield operator


class Load(threading.Thread):
    """Starts a chain every tenth of a second, and sends each request of it by itself."""

    def __init__(self, stack):
        super().__init__(daemon=True)
        self.stack, self.tags, self.ends = stack, [], threading.Event()
        self.start()

    def run(self):
        while not self.ends.wait(0.1):
            tag = f"load/{len(self.tags)}"
            for request in chain(tag, 3, detail={"customer": "Ahab"}):
                send(self.stack.queue_url, [request], self.stack.client("sqs"))
            self.tags.append(tag)

    def stop(self):
        self.ends.set()
        self.join(30)
        return self.tags


def is_empty(stack):
    attributes = [f"ApproximateNumberOfMessages{kind}" for kind in ("", "NotVisible")]
    return all(
        set(
            stack.client("sqs")
            .get_queue_attributes(QueueUrl=url, AttributeNames=attributes)["Attributes"]
            .values()
        )
        == {"0"}
        for url in (stack.queue_url, stack.dead_letter_queue_url)
    )


def code_hashes(operator):
    """The hashes of the code that the functions run."""
    functions = operator.client("lambda")
    return {
        functions.get_function_configuration(
            FunctionName=operator.stack.outputs[f"{name}Name"], Qualifier="live"
        )["CodeSha256"]
        for name in ("Consumer", "Sweeper")
    }


def code_with_more_shards(folder):
    """A copy of the functions' code with twice as many shards of the index of deadlines."""
    copied = shutil.copytree(code.assemble_code(), folder, ignore=shutil.ignore_patterns("*.pyc"))
    schema = copied / "xorack" / "aws" / "schema.py"
    before = schema.read_text(encoding="utf-8")
    after = before.replace("DUE_SHARDS: Final = 40", "DUE_SHARDS: Final = 80")
    assert after != before
    schema.write_text(after, encoding="utf-8")
    return copied


def test_every_chain_is_acked_while_the_stack_is_updated_three_times(
    operator, tmp_path, monkeypatch
):
    stack, events, rules = operator.stack, subscribe(operator.stack), operator.client("events")
    # A chain that is overdue since before the updates. No sweep ends it before they are done.
    (schedule,) = rules.list_rules()["Rules"]
    rules.disable_rule(Name=schedule["Name"])
    operator.send([*chain("overdue", 1, timeout=1)][:2])
    load, done, functions = Load(stack), [], operator.client("lambda")
    (mapping,) = functions.list_event_source_mappings()["EventSourceMappings"]
    # A consumer has applied messages under the first retention, which the table then remembers.
    assert eventually(lambda: operator.item(stack.table_name, "\0retention"))
    for number, settings in enumerate(UPDATES):
        assert eventually(lambda: len(load.tags) > max(done, default=0))
        if number == 1:  # the update finds messages in the queue that were sent before it
            functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)
            assert eventually(lambda: not is_empty(stack))
        elif number == 2:
            functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=True)
            grown = code_with_more_shards(tmp_path / "grown")
            monkeypatch.setattr(code, "assemble_code", Mock(return_value=grown))
            hashes = code_hashes(operator)
        done.append(len(load.tags))
        operator.settings |= settings
        operator.make(["deploy", "ARGS=-c stack_name=xorack"])
    assert eventually(lambda: len(load.tags) > done[2])
    tags = load.stop()
    assert 0 < done[0] < done[1] < done[2] < len(tags)  # it ran all the time
    received = events_of(tags, events, operator.client("sqs"), seconds=600)
    assert {event["detail-type"] for copies in received.values() for event in copies} == {"acked"}
    assert all(len({one["detail"]["id"] for one in copies}) == 1 for copies in received.values())
    assert eventually(lambda: is_empty(stack))
    assert not hashes & code_hashes(operator)
    functions.invoke(FunctionName=f"{stack.outputs['SweeperName']}:live")
    (ended,) = operator.events(events, "overdue")["overdue"]
    assert (ended["detail-type"], ended["detail"]["reason"]) == ("failed", "timed out")
    first, last = received[tags[0]][0], received[tags[-1]][0]
    assert first["detail"]["detail"] == {"customer": "Ahab"} != last["detail"]["detail"]
    # The table remembers the retention that holds for what was sent before.
    record = operator.item(stack.table_name, "\0retention")
    assert record["retention"] == {"N": str(40 * 86_400_000)}
    assert str(30 * 86_400_000) in record["earlier"]["S"]


def test_a_deployment_that_fails_is_rolled_back_and_chains_go_on(operator):
    """The new bus does not exist: its disabled rule cannot be created."""
    stack, events = operator.stack, subscribe(operator.stack)
    load = Load(stack)
    arn = stack.outputs["EventBusArn"].rpartition("/")[0] + "/missing"
    before = operator.settings
    operator.settings = {**before, "event_bus_arn": arn, "batch_size": "30"}
    with pytest.raises(WaiterError):
        operator.make(["deploy", "ARGS=-c stack_name=xorack"])
    cloudformation = operator.client("cloudformation")

    def status():
        return cloudformation.describe_stacks(StackName="xorack")["Stacks"][0]["StackStatus"]

    assert eventually(lambda: status() == "UPDATE_ROLLBACK_COMPLETE")
    tags = load.stop()
    assert events_of(tags, events, operator.client("sqs"), seconds=600).keys() == {*tags}
    (mapping,) = operator.client("lambda").list_event_source_mappings()["EventSourceMappings"]
    assert mapping["BatchSize"] != 30
    operator.settings = before
    operator.make(["deploy", "ARGS=-c stack_name=xorack -c memory_mb=512"])  # and it can go on
