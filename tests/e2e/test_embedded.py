"""The embedded AWS behaves as AWS does, as far as the stack needs it, and leaves nothing behind."""

import json
import signal
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.e2e.conftest import ROOT, item_of
from tests.support.events import eventually
from tests.support.processes import members
from tests.support.subscriber import messages
from xorack.errors import LocalError
from xorack.local.deploy import deploy
from xorack.local.embedded import EmbeddedAWS

pytestmark = pytest.mark.embedded

# Without boto3, whose import takes seconds: a cold start begins after its messages are received.
HANDLER = """
import json, os, sys, time
from urllib.request import Request, urlopen

def handler(event, context):
    if event == "where":
        left = context.get_remaining_time_in_millis()
        return {"path": sys.path, "environ": dict(os.environ), "ms": left}
    failures, good = [], 0
    for record in event["Records"]:
        body = json.loads(record["body"])
        if body == "crash":
            raise RuntimeError("a crash was requested")
        if body == "hang":
            time.sleep(60)
        if body == "fail":
            failures.append({"itemIdentifier": record["messageId"]})
        else:
            good += 1
    if good:
        add = {
            "TableName": os.environ["TABLE"],
            "Key": {"tag": {"S": "count"}},
            "UpdateExpression": "ADD good :good, batches :one",
            "ExpressionAttributeValues": {":good": {"N": str(good)}, ":one": {"N": "1"}},
        }
        target = "DynamoDB_20120810.UpdateItem"
        headers = {"X-Amz-Target": target, "Content-Type": "application/x-amz-json-1.0"}
        urlopen(Request(os.environ["AWS_ENDPOINT_URL"], json.dumps(add).encode(), headers))
    return {"batchItemFailures": failures}
"""
CODE = {"bucketName": "assets-${AWS::AccountId}-${AWS::Region}", "objectKey": "code.zip"}
SSM = "AWS::SSM::Parameter::Value<String>"
OUTPUTS = {
    "TableName": "Table",
    "QueueUrl": "Queue",
    "DeadLetterQueueUrl": "Dead",
    "EventBusName": "Bus",
}


def resources(*, visibility=300, window=1, timeout=5):
    redrive = {"deadLetterTargetArn": {"Fn::GetAtt": ["Dead", "Arn"]}, "maxReceiveCount": 2}
    table = {
        "BillingMode": "PAY_PER_REQUEST",
        "KeySchema": [{"AttributeName": "tag", "KeyType": "HASH"}],
        "AttributeDefinitions": [{"AttributeName": "tag", "AttributeType": "S"}],
        "TimeToLiveSpecification": {"AttributeName": "expires_at", "Enabled": True},
    }
    function = {
        "Runtime": "python3.13",
        "Architectures": ["arm64"],
        "Handler": "main.handler",
        "Timeout": timeout,
        "Role": "arn:aws:iam::123456789012:role/any",
        "Environment": {"Variables": {"TABLE": {"Ref": "Table"}}},
        "Code": {"S3Bucket": {"Fn::Sub": CODE["bucketName"]}, "S3Key": CODE["objectKey"]},
    }
    mapping = {
        "EventSourceArn": {"Fn::GetAtt": ["Queue", "Arn"]},
        "FunctionName": {"Ref": "Function"},
        "BatchSize": 200,
        "MaximumBatchingWindowInSeconds": window,
        "FunctionResponseTypes": ["ReportBatchItemFailures"],
        "ScalingConfig": {"MaximumConcurrency": 2},
    }
    every = {
        "Table": ("DynamoDB::Table", table),
        "Dead": ("SQS::Queue", {}),
        "Queue": ("SQS::Queue", {"VisibilityTimeout": visibility, "RedrivePolicy": redrive}),
        "Bus": ("Events::EventBus", {"Name": {"Ref": "AWS::StackName"}}),
        "Function": ("Lambda::Function", function),
        "Mapping": ("Lambda::EventSourceMapping", mapping),
        "Alarm": ("CloudWatch::CompositeAlarm", {"AlarmRule": "FALSE"}),
    }
    return {name: {"Type": f"AWS::{kind}", "Properties": p} for name, (kind, p) in every.items()}


def write_assembly(folder, **options):
    """Write a cloud assembly with a stack of every kind of resource; return its template."""
    (folder / "code").mkdir()
    (folder / "code" / "main.py").write_text(HANDLER)
    code = {"source": {"path": "code", "packaging": "zip"}, "destinations": {"here": CODE}}
    (folder / "small.assets.json").write_text(json.dumps({"files": {"code": code}}))
    version = {"Type": SSM, "Default": "/cdk-bootstrap/hnb659fds/version"}
    template = {
        "Parameters": {"BootstrapVersion": version},
        "Resources": resources(**options),
        "Outputs": {output: {"Value": {"Ref": key}} for output, key in OUTPUTS.items()},
    }
    path = folder / "small.template.json"
    path.write_text(json.dumps(template))
    return path


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    return write_assembly(tmp_path_factory.mktemp("assembly"))


@pytest.fixture(scope="module")
def small(embedded_aws, template):
    return deploy(embedded_aws, template, name="small")


@pytest.fixture(scope="module")
def impatient(embedded_aws, tmp_path_factory):
    """A stack that delivers a message again after a second."""
    folder = tmp_path_factory.mktemp("impatient")
    template = write_assembly(folder, visibility=1, window=0, timeout=2)
    stack = deploy(embedded_aws, template, name="impatient")
    invoke_where(stack)  # a cold start would take longer than the messages stay invisible
    return stack


def send(stack, *bodies):
    sqs = stack.client("sqs")
    entries = [{"Id": str(n), "MessageBody": json.dumps(body)} for n, body in enumerate(bodies)]
    for start in range(0, len(entries), 10):
        part = entries[start : start + 10]
        assert not sqs.send_message_batch(QueueUrl=stack.queue_url, Entries=part).get("Failed")


def invoke_where(stack):
    """Let the function report where it runs."""
    (function,) = stack.functions.values()
    answer = stack.client("lambda").invoke(FunctionName=function, Payload=b'"where"')
    return json.load(answer["Payload"])


def counted(stack):
    """The number of good messages and of batches that the function has counted."""
    item = item_of(stack, "count") or {}
    return tuple(int(item.get(name, {"N": "0"})["N"]) for name in ("good", "batches"))


def dead_letters(stack):
    dead = messages(stack.dead_letter_queue_url, stack.client("sqs"))
    return [json.loads(message["Body"]) for message in dead]


def waiting(stack):
    """How many messages are in the queue, those that a function has received included."""
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    of = {"QueueUrl": stack.queue_url, "AttributeNames": names}
    return sum(map(int, stack.client("sqs").get_queue_attributes(**of)["Attributes"].values()))


def test_messages_sent_by_many_are_delivered_once_in_large_batches(small):
    (good, batches), before = counted(small), small.usage()
    each, senders = 125, 4
    with ThreadPoolExecutor(senders) as pool:
        list(pool.map(lambda _: send(small, *range(each)), range(senders)))
    # Once none is left, none can be delivered a second time.
    assert eventually(lambda: waiting(small) == 0)
    now_good, now_batches = counted(small)
    assert now_good == good + each * senders
    new, after = now_batches - batches, small.usage()
    assert after["messages"] - before["messages"] == each * senders
    assert after["invocations"] - before["invocations"] == after["writes"] - before["writes"] == new
    assert after["errors"] == before["errors"]
    assert new < each * senders / 20  # ministack's own batches have ten messages


@pytest.mark.parametrize(
    ("failure", "neighbours", "errors"),
    [
        ("fail", ["well", "well"], 0),
        ("crash", [], 2),
        pytest.param("hang", [], 2, marks=pytest.mark.slow),
    ],
)
def test_a_failing_message_is_retried_and_then_dead_lettered(
    impatient, failure, neighbours, errors
):
    before, (good, _) = impatient.usage(), counted(impatient)
    send(impatient, failure, *neighbours)
    assert eventually(lambda: dead_letters(impatient) == [failure])
    # The last invocation may still run when its message is visible again.
    assert eventually(lambda: impatient.usage()["errors"] == before["errors"] + errors)
    # On a busy machine a batch outlasts the second for which its messages are invisible.
    assert counted(impatient)[0] >= good + len(neighbours)
    assert invoke_where(impatient)["ms"] > 0  # the next invocation works


def test_a_function_finds_its_own_code_and_no_account_of_the_user(template, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path.cwd()))
    monkeypatch.setenv("AWS_PROFILE", "production")
    for name in ("AWS_ENDPOINT_URL_DYNAMODB", "HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with EmbeddedAWS() as aws:
        stack = deploy(aws, template)
        where = invoke_where(stack)
        send(stack, "well")
        assert eventually(lambda: counted(stack)[0] == 1)
        child = aws.environ()
    assert str(Path.cwd()) not in where["path"]
    for environ in (where["environ"], child):
        assert environ["AWS_ENDPOINT_URL"].startswith("http://127.0.0.1:")
        assert not {"AWS_PROFILE", "AWS_ENDPOINT_URL_DYNAMODB"} & environ.keys()
    assert 0 < where["ms"] <= 5000


def test_each_start_is_empty_and_each_stop_frees_the_port(listener):
    port = listener.getsockname()[1]
    with listener, pytest.raises(LocalError, match=rf"^port {port} is taken: .*$"):
        EmbeddedAWS(port).start()
    for _ in range(2):
        with EmbeddedAWS(port) as aws:
            assert aws.endpoint_url == f"http://127.0.0.1:{port}"
            assert aws.client("sqs").list_queues().get("QueueUrls", []) == []
            aws.client("sqs").create_queue(QueueName="of-this-run")
            group = aws._process.pid
            assert members(group)
        aws.stop()  # a second time
        assert not members(group)


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="reads Linux's list of sockets")
def test_it_listens_on_the_loopback_interface_only(embedded_aws):
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    port = f"{embedded_aws.port:04X}"
    listening = [line[1] for line in lines if line[3] == "0A" and line[1].endswith(f":{port}")]
    assert listening == [f"0100007F:{port}"]


def test_a_failed_start_names_the_reason():
    # The tests' own Python has no ministack.
    aws = EmbeddedAWS(python=Path(sys.executable))
    with pytest.raises(LocalError, match="No module named 'ministack'"):
        aws.start()
    with pytest.raises(LocalError, match="not been started"):
        _ = aws.endpoint_url


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_remains_however_the_parent_ends(template, number):
    program = """
        import sys, time
        from pathlib import Path
        from tests.e2e.test_embedded import invoke_where
        from xorack.local.deploy import deploy
        from xorack.local.embedded import EmbeddedAWS
        with EmbeddedAWS() as aws:
            invoke_where(deploy(aws, Path(sys.argv[1])))
            print(aws._process.pid, aws._directory, flush=True)
            time.sleep(600)
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), template],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
    )
    try:
        group, directory = parent.stdout.readline().split()
        assert len(members(int(group))) >= 2  # ministack, and the function's worker
        parent.send_signal(number)
        parent.wait(timeout=30)
    finally:
        parent.kill()
        parent.communicate()
    assert eventually(lambda: not members(int(group)), seconds=30)
    assert not Path(directory).exists()


def test_what_cannot_be_deployed_is_explained(embedded_aws, tmp_path):
    def fails(message):
        with pytest.raises(LocalError, match=message):
            deploy(embedded_aws, template, name="wrong")

    template = write_assembly(tmp_path)
    good = json.loads(template.read_text())
    broken = {"Type": "AWS::SQS::Queue", "Properties": {"RedrivePolicy": {"maxReceiveCount": "x"}}}
    template.write_text(json.dumps({**good, "Resources": {"Queue": broken}, "Outputs": {}}))
    fails("^stack wrong")
    template.write_text(json.dumps({**good, "Parameters": {"P": {"Type": SSM, "Default": "/our"}}}))
    fails("/our")
    (tmp_path / "code").rename(tmp_path / "gone")
    fails("code is missing")
    (tmp_path / "small.assets.json").unlink()
    fails(r"no \*.assets.json")
    template.unlink()
    fails("cannot read the template")
