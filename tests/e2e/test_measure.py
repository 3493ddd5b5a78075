"""A measurement of the synthesised stack in the embedded AWS, as users start it."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from tests.e2e.conftest import python

pytestmark = pytest.mark.slow

FAULTS = (
    *("--duplicate", "0.2", "--delay", "0.1"),
    *("--reorder", "0.3", "--lose", "0.2", "--bad", "0.5"),
)


def measure(stack, folder, *arguments):
    """Run a measurement; return its status, its report and its lines."""
    path = folder / "report.json"
    process = python(
        *("-m", "measure", "--stack", stack.name, "--yes"),
        *("--patience", "120", "--json", str(path), *arguments),
        **stack.aws.environ(),
    )
    assert path.stat().st_size, process.stderr
    report = json.loads(path.read_text())
    return SimpleNamespace(status=process.returncode, report=report, text=process.stdout)


def sweep_until(stack, future):
    """Invoke the sweeper each second, as the schedule does each minute; return the result."""
    while not future.done():
        stack.client("lambda").invoke(FunctionName=stack.outputs["SweeperName"])
        time.sleep(1)
    return future.result()


def leftovers(stack, run):
    """What a run left behind: rules, queues, chains and dead letters; marks have their TTL."""
    sqs, bus = stack.client("sqs"), stack.client("events")
    rules = bus.list_rules(EventBusName=stack.bus_name, NamePrefix=run)["Rules"]
    queues = sqs.list_queues(QueueNamePrefix=run).get("QueueUrls", [])
    items = stack.client("dynamodb").scan(
        TableName=stack.table_name,
        FilterExpression="begins_with(tag, :run) AND NOT contains(tag, :nul)",
        ExpressionAttributeValues={":run": {"S": run}, ":nul": {"S": "\0"}},
    )["Items"]
    dead = sqs.receive_message(QueueUrl=stack.dead_letter_queue_url, VisibilityTimeout=0)
    mine = [m for m in dead.get("Messages", []) if run in m["Body"]]
    return [*rules, *queues, *items, *mine]


def test_a_load_with_all_faults_ends_as_expected_and_leaves_only_chains(stack, tmp_path):
    arguments = ("--chains", "20", "--units", "1,2,30", "--message-bytes", "9000", *FAULTS)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(measure, stack, tmp_path, "--seed", "3", *arguments)
        done = sweep_until(stack, future)
    report = done.report
    assert report["violations"] == []
    assert done.status == 0
    assert done.text.splitlines()[-1] == "all as expected"
    counts = report["counts"]
    assert counts["events"] >= counts["chains"] == counts["acked"] + counts["failed"] == 20
    assert counts["failed"] == counts["with lost units"] > 0
    assert counts["dead letters"] >= counts["expected dead letters"] > 0
    assert counts["copies among them"] > 0
    assert report["latency"]["to arrival"]["max"] > 0
    assert report["left behind"] == []
    assert all("tag" in item for item in leftovers(stack, report["run"]))


def test_the_proof_that_it_deploys_leaves_nothing(stack):
    """The command of the workflow `deployed`."""
    arguments = ("-m", "tools.deployed", "--stack", "proof", "--chains", "5", "--duplicate", "0.2")
    ran = python(*arguments, **stack.aws.environ())
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.rstrip().endswith("all as expected")
    stacks = stack.client("cloudformation").list_stacks()["StackSummaries"]
    left = [other["StackName"] for other in stacks if "DELETE" not in other["StackStatus"]]
    left += [bucket["Name"] for bucket in stack.client("s3").list_buckets()["Buckets"]]
    left += stack.client("dynamodb").list_tables()["TableNames"]
    assert not [name for name in left if name.startswith("proof")]
