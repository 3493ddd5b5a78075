"""The embedded AWS behaves as AWS does, as far as the stack needs it, and leaves no files."""

import json
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.e2e.conftest import ROOT, lambda_count
from tests.support.events import eventually
from tests.support.processes import members
from tests.support.subscriber import messages
from xorack.errors import LocalError
from xorack.local.deploy import deploy
from xorack.local.embedded import EmbeddedAWS

HANDLER = """
import os, sys, time

def handler(event, context):
    if event == "where":
        left = context.get_remaining_time_in_millis()
        return {"path": sys.path, "environ": dict(os.environ), "ms": left}
    bodies = {record["messageId"]: record["body"] for record in event["Records"]}
    if "crash" in bodies.values():
        raise RuntimeError("a crash was requested")
    if "hang" in bodies.values():
        time.sleep(60)
    failed = [one for one in bodies if bodies[one] == "fail"]
    return {"batchItemFailures": [{"itemIdentifier": one} for one in failed]}
"""
CODE = {"bucketName": "assets-${AWS::AccountId}-${AWS::Region}", "objectKey": "code.zip"}
SSM = "AWS::SSM::Parameter::Value<String>"
OUTPUTS = {"TableName": "Dead", "QueueUrl": "Queue", "DeadLetterQueueUrl": "Dead"}


def resources():
    """A function that gets each message twice, four seconds apart, and then no more."""
    redrive = {"deadLetterTargetArn": {"Fn::GetAtt": ["Dead", "Arn"]}, "maxReceiveCount": 2}
    function = {
        "Runtime": "python3.13",
        "Architectures": ["arm64"],
        "Handler": "main.handler",
        "Timeout": 2,
        "Role": "arn:aws:iam::123456789012:role/any",
        "Code": {"S3Bucket": {"Fn::Sub": CODE["bucketName"]}, "S3Key": CODE["objectKey"]},
    }
    mapping = {
        "EventSourceArn": {"Fn::GetAtt": ["Queue", "Arn"]},
        "FunctionName": {"Ref": "Function"},
        "FunctionResponseTypes": ["ReportBatchItemFailures"],
    }
    every = {
        "Dead": ("SQS::Queue", {}),
        "Queue": ("SQS::Queue", {"VisibilityTimeout": 4, "RedrivePolicy": redrive}),
        "Function": ("Lambda::Function", function),
        "Mapping": ("Lambda::EventSourceMapping", mapping),
        "Alarm": ("CloudWatch::CompositeAlarm", {"AlarmRule": "FALSE"}),
    }
    return {name: {"Type": f"AWS::{kind}", "Properties": p} for name, (kind, p) in every.items()}


def write_assembly(folder):
    """Write a cloud assembly with a small stack; return its template."""
    (folder / "code").mkdir()
    (folder / "code" / "main.py").write_text(HANDLER)
    code = {"source": {"path": "code", "packaging": "zip"}, "destinations": {"here": CODE}}
    (folder / "small.assets.json").write_text(json.dumps({"files": {"code": code}}))
    version = {"Type": SSM, "Default": "/cdk-bootstrap/hnb659fds/version"}
    template = {
        "Parameters": {"BootstrapVersion": version},
        "Resources": resources(),
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
    stack = deploy(embedded_aws, template, name="small")
    invoke_where(stack)  # a cold start would take longer than the messages stay invisible
    return stack


def send(stack, *bodies):
    entries = [{"Id": str(number), "MessageBody": body} for number, body in enumerate(bodies)]
    sent = stack.client("sqs").send_message_batch(QueueUrl=stack.queue_url, Entries=entries)
    assert not sent.get("Failed")


def invoke_where(stack):
    """Let the function report where it runs."""
    (function,) = stack.functions.values()
    answer = stack.client("lambda").invoke(FunctionName=function, Payload=b'"where"')
    return json.load(answer["Payload"])


def dead_letters(stack):
    return [one["Body"] for one in messages(stack.dead_letter_queue_url, stack.client("sqs"))]


def waiting(stack):
    """Return how many messages are in the queue, those that a function has received included."""
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    of = {"QueueUrl": stack.queue_url, "AttributeNames": names}
    return sum(map(int, stack.client("sqs").get_queue_attributes(**of)["Attributes"].values()))


@pytest.mark.parametrize(
    ("failure", "neighbours", "errors"),
    [
        ("fail", ["well", "well"], 0),
        ("crash", [], 2),
        pytest.param("hang", [], 2, marks=pytest.mark.slow),
    ],
)
def test_a_failing_message_is_retried_and_then_dead_lettered(small, failure, neighbours, errors):
    before = lambda_count(small, "Errors")
    send(small, failure, *neighbours)
    assert eventually(lambda: dead_letters(small)) == [failure]
    # The last invocation may still run when its message is visible again.
    assert eventually(lambda: lambda_count(small, "Errors") == before + errors)
    assert eventually(lambda: waiting(small) == 0)
    assert dead_letters(small) == []  # the neighbours are handled
    assert invoke_where(small)["ms"] > 0  # the next invocation works


def test_a_function_finds_its_own_code_and_no_account_of_the_user(template, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path.cwd()))
    monkeypatch.setenv("AWS_PROFILE", "production")
    for name in ("AWS_ENDPOINT_URL_DYNAMODB", "HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with EmbeddedAWS() as aws:
        where = invoke_where(deploy(aws, template))
        child = aws.environ()
    assert str(Path.cwd()) not in where["path"]
    for environ in (where["environ"], child):
        assert environ["AWS_ENDPOINT_URL"].startswith("http://127.0.0.1:")
        assert not {"AWS_PROFILE", "AWS_ENDPOINT_URL_DYNAMODB"} & environ.keys()
    assert 0 < where["ms"] <= 2000


def test_each_start_is_empty_and_each_stop_frees_the_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(LocalError, match=rf"^port {port} is taken: .*$"):
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
def test_nothing_remains_of_a_parent_that_is_killed(template):
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
    finally:
        parent.kill()
        parent.communicate()
    assert eventually(lambda: not members(int(group)))
    assert not Path(directory).exists()
