"""The embedded AWS does what AWS does, as far as the stack needs it; and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from xorack.local.deploy import deploy, drain, logs, subscribe, usage
from xorack.local.embedded import EmbeddedAWS
from xorack.local.errors import DeployFailed, PortTaken, StartFailed

pytestmark = pytest.mark.embedded

HANDLER = """
import json, os, sys, time
import boto3

dynamodb, events = boto3.client("dynamodb"), boto3.client("events")

def handler(event, context):
    if event == "where":
        left = context.get_remaining_time_in_millis()
        return {"path": sys.path, "environ": dict(os.environ), "ms": left}
    failures, good = [], 0
    for record in event["Records"]:
        asked = json.loads(record["body"])
        if asked == "crash":
            raise RuntimeError("asked to")
        if asked == "hang":
            time.sleep(60)
        if asked == "fail":
            failures.append({"itemIdentifier": record["messageId"]})
        else:
            good += 1
        if isinstance(asked, dict):
            entry = {"EventBusName": os.environ["BUS"], "Detail": "{}", **asked}
            events.put_events(Entries=[entry])
    if good:
        dynamodb.update_item(
            TableName=os.environ["TABLE"],
            Key={"tag": {"S": "count"}},
            UpdateExpression="ADD good :good, batches :one",
            ExpressionAttributeValues={":good": {"N": str(good)}, ":one": {"N": "1"}},
        )
    print(json.dumps({"records": len(event["Records"])}))
    return {"batchItemFailures": failures}
"""


def template(**replaced):
    resources = {
        "Table": {
            "Type": "AWS::DynamoDB::Table",
            "Properties": {
                "BillingMode": "PAY_PER_REQUEST",
                "KeySchema": [{"AttributeName": "tag", "KeyType": "HASH"}],
                "AttributeDefinitions": [{"AttributeName": "tag", "AttributeType": "S"}],
                "TimeToLiveSpecification": {"AttributeName": "expires_at", "Enabled": True},
            },
        },
        "Dead": {"Type": "AWS::SQS::Queue", "Properties": {}},
        "Queue": {
            "Type": "AWS::SQS::Queue",
            "Properties": {
                "VisibilityTimeout": 3,
                "RedrivePolicy": {
                    "deadLetterTargetArn": {"Fn::GetAtt": ["Dead", "Arn"]},
                    "maxReceiveCount": 2,
                },
            },
        },
        "Bus": {"Type": "AWS::Events::EventBus", "Properties": {"Name": "events"}},
        "Role": {
            "Type": "AWS::IAM::Role",
            "Properties": {
                "AssumeRolePolicyDocument": {
                    "Version": "2012-10-17",
                    "Statement": [
                        {
                            "Effect": "Allow",
                            "Action": "sts:AssumeRole",
                            "Principal": {"Service": "lambda.amazonaws.com"},
                        }
                    ],
                }
            },
        },
        "Logs": {"Type": "AWS::Logs::LogGroup", "Properties": {"RetentionInDays": 1}},
        "Function": {
            "Type": "AWS::Lambda::Function",
            "Properties": {
                "Runtime": "python3.13",
                "Architectures": ["arm64"],
                "Handler": "main.handler",
                "Timeout": 3,
                "Layers": [{"Ref": "Layer"}],
                "Role": {"Fn::GetAtt": ["Role", "Arn"]},
                "LoggingConfig": {"LogGroup": {"Ref": "Logs"}},
                "Environment": {
                    "Variables": {"TABLE": {"Ref": "Table"}, "BUS": {"Ref": "Bus"}},
                },
                "Code": {
                    "S3Bucket": {"Fn::Sub": "assets-${AWS::AccountId}-${AWS::Region}"},
                    "S3Key": "code.zip",
                },
            },
        },
        "Mapping": {
            "Type": "AWS::Lambda::EventSourceMapping",
            "Properties": {
                "EventSourceArn": {"Fn::GetAtt": ["Queue", "Arn"]},
                "FunctionName": {"Ref": "Function"},
                "BatchSize": 200,
                "MaximumBatchingWindowInSeconds": 1,
                "FunctionResponseTypes": ["ReportBatchItemFailures"],
                "ScalingConfig": {"MaximumConcurrency": 2},
            },
        },
    }
    outputs = {
        "TableName": {"Ref": "Table"},
        "QueueUrl": {"Ref": "Queue"},
        "DeadLetterQueueUrl": {"Ref": "Dead"},
        "EventBusName": {"Ref": "Bus"},
    }
    return {
        "Parameters": {
            "Layer": {
                "Type": "AWS::SSM::Parameter::Value<String>",
                "Default": "/aws/service/powertools/python/arm64/python3.13/3.37.0",
            },
            "BootstrapVersion": {
                "Type": "AWS::SSM::Parameter::Value<String>",
                "Default": "/cdk-bootstrap/hnb659fds/version",
            },
        },
        "Resources": {**resources, **replaced},
        "Outputs": {name: {"Value": value} for name, value in outputs.items()},
    }


@pytest.fixture(scope="module")
def assets(tmp_path_factory):
    directory = tmp_path_factory.mktemp("assets")
    (directory / "code").mkdir()
    (directory / "code" / "main.py").write_text(HANDLER)
    file = {
        "source": {"path": "code", "packaging": "zip"},
        "destinations": {
            "here": {
                "bucketName": "assets-${AWS::AccountId}-${AWS::Region}",
                "objectKey": "code.zip",
            }
        },
    }
    (directory / "small.assets.json").write_text(json.dumps({"files": {"code": file}}))
    return directory


@pytest.fixture(scope="module")
def small(embedded_aws, assets):
    return deploy(embedded_aws, template(), assets, name="small")


def eventually(look, seconds=60):
    """Looks again until it holds: a loaded machine takes its time."""
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found or time.monotonic() > deadline:
            return found
        time.sleep(0.2)


def send(stack, *bodies):
    sqs = stack.client("sqs")
    for start in range(0, len(bodies), 10):
        entries = [
            {"Id": str(n), "MessageBody": json.dumps(body)}
            for n, body in enumerate(bodies[start : start + 10])
        ]
        answer = sqs.send_message_batch(QueueUrl=stack.queue_url, Entries=entries)
        assert not answer.get("Failed")


def counted(stack):
    answer = stack.client("dynamodb").get_item(
        TableName=stack.table_name, Key={"tag": {"S": "count"}}, ConsistentRead=True
    )
    item = answer.get("Item", {})
    return tuple(int(item.get(name, {"N": "0"})["N"]) for name in ("good", "batches"))


def dead_letters(stack):
    answer = stack.client("sqs").receive_message(
        QueueUrl=stack.dead_letter_queue_url, MaxNumberOfMessages=10
    )
    for message in answer.get("Messages", []):
        stack.client("sqs").delete_message(
            QueueUrl=stack.dead_letter_queue_url, ReceiptHandle=message["ReceiptHandle"]
        )
    return [json.loads(message["Body"]) for message in answer.get("Messages", [])]


def test_every_message_sent_while_others_are_taken_is_handed_over_once(small):
    good, batches = counted(small)
    before = usage(small)
    each, senders = 500, 4
    threads = [threading.Thread(target=send, args=(small, *range(each))) for _ in range(senders)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert eventually(lambda: counted(small)[0] >= good + each * senders)
    time.sleep(1)  # and not one more
    now_good, now_batches = counted(small)
    assert now_good == good + each * senders
    after = usage(small)
    assert after.messages - before.messages == each * senders
    assert after.invocations - before.invocations == now_batches - batches
    assert after.writes - before.writes == now_batches - batches
    assert after.errors == before.errors
    # Batches as large as the mapping says, not ten at a time.
    assert now_batches - batches < each * senders / 20


def test_the_window_gathers_what_trickles_in(small):
    _, batches = counted(small)
    good, _ = counted(small)
    for number in range(10):
        send(small, number)
    assert eventually(lambda: counted(small)[0] == good + 10)
    assert counted(small)[1] - batches <= 3


def test_a_message_that_failed_comes_again_and_then_goes_to_the_dead_letters(small):
    good, _ = counted(small)
    send(small, "fail", "well", "well")
    assert eventually(lambda: dead_letters(small) == ["fail"])
    assert counted(small)[0] == good + 2


@pytest.mark.parametrize("ending", ["crash", "hang"])
def test_a_function_that_ends_badly_is_counted_and_its_message_kept(small, ending):
    before = usage(small)
    send(small, ending)
    assert eventually(lambda: dead_letters(small) == [ending])
    # The last one may still be on its way out when its message is visible again.
    assert eventually(lambda: usage(small).errors == before.errors + 2)
    # And the next is not harmed by it.
    good, _ = counted(small)
    send(small, "well")
    assert eventually(lambda: counted(small)[0] == good + 1)


def test_a_subscriber_gets_the_events_that_it_asked_for(small):
    queue_url = subscribe(small, ["acked"])
    sqs = small.client("sqs")
    assert list(drain(queue_url, sqs)) == []
    detail = json.dumps({"tag": "t"})
    send(
        small,
        {"Source": "xorack", "DetailType": "failed"},
        {"Source": "another", "DetailType": "acked"},
        {"Source": "xorack", "DetailType": "acked", "Detail": detail},
    )
    taken = []
    for event in drain(queue_url, sqs, wait_seconds=60, until=lambda: bool(taken)):
        taken.append((event["source"], event["detail-type"], event["detail"]))
    assert taken == [("xorack", "acked", {"tag": "t"})]
    # It is off the queue, and nothing else was on it.
    assert list(drain(queue_url, sqs, wait_seconds=1)) == []


def test_no_event_is_lost_between_the_bus_and_the_subscriber(small):
    queue_url = subscribe(small)
    sqs, events = small.client("sqs"), small.client("events")
    total, taken = 600, []

    def publish():
        for start in range(0, total, 10):
            entries = [
                {
                    "EventBusName": small.bus_name,
                    "Source": "xorack",
                    "DetailType": "acked",
                    "Detail": json.dumps({"n": start + n}),
                }
                for n in range(10)
            ]
            assert events.put_events(Entries=entries)["FailedEntryCount"] == 0

    thread = threading.Thread(target=publish)
    thread.start()
    for event in drain(queue_url, sqs, wait_seconds=30, until=lambda: len(taken) == total):
        taken.append(event["detail"]["n"])
    thread.join()
    assert sorted(taken) == list(range(total))


def test_a_conditional_write_that_is_refused_is_counted_apart(small):
    dynamodb, before = small.client("dynamodb"), usage(small)
    item = {"TableName": small.table_name, "Item": {"tag": {"S": "once"}}}
    dynamodb.put_item(**item, ConditionExpression="attribute_not_exists(tag)")
    with pytest.raises(dynamodb.exceptions.ConditionalCheckFailedException):
        dynamodb.put_item(**item, ConditionExpression="attribute_not_exists(tag)")
    put = {"PutRequest": {"Item": {"tag": {"S": "one"}}}}
    other = {"PutRequest": {"Item": {"tag": {"S": "other"}}}}
    dynamodb.batch_write_item(RequestItems={small.table_name: [put, other]})
    after = usage(small)
    assert after.writes - before.writes == 3
    assert after.conflicts - before.conflicts == 1


def test_the_tables_expiry_is_what_the_template_says(small):
    answer = small.client("dynamodb").describe_time_to_live(TableName=small.table_name)
    assert answer["TimeToLiveDescription"] == {
        "TimeToLiveStatus": "ENABLED",
        "AttributeName": "expires_at",
    }


def test_what_functions_log_can_be_read(small):
    good, _ = counted(small)
    send(small, "well")
    assert eventually(lambda: counted(small)[0] == good + 1)
    assert eventually(lambda: '{"records": 1}' in list(logs(small)))


def test_a_function_sees_its_own_code_and_no_account_of_ours(assets, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path.cwd()))
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", "http://127.0.0.1:1")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with EmbeddedAWS() as aws:
        stack = deploy(aws, template(), assets)
        (function,) = stack.functions.values()
        answer = stack.client("lambda").invoke(FunctionName=function, Payload=b'"where"')
        seen = json.load(answer["Payload"])
        # What it does reaches the embedded AWS all the same.
        send(stack, "well")
        assert eventually(lambda: counted(stack)[0] == 1)
        child = aws.environ()
    assert str(Path.cwd()) not in seen["path"]
    for environ in (seen["environ"], child):
        assert environ["AWS_ENDPOINT_URL"].startswith("http://127.0.0.1:")
        assert "AWS_PROFILE" not in environ
        assert "AWS_ENDPOINT_URL_DYNAMODB" not in environ
    assert 0 < seen["ms"] <= 3000


def test_a_taken_port_is_named_in_one_line():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken, match=f"port {port} is taken") as caught:
            EmbeddedAWS(port).start()
    assert "\n" not in str(caught.value)


def test_the_port_asked_for_is_the_port_it_has_and_is_free_again_after():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for _ in range(2):
        with EmbeddedAWS(port) as aws:
            assert aws.endpoint_url == f"http://127.0.0.1:{port}"
            assert aws.client("sqs").list_queues().get("QueueUrls", []) == []
            aws.client("sqs").create_queue(QueueName="of-this-run")


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="reads Linux's list of sockets")
def test_it_listens_on_loopback_alone(embedded_aws):
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    port = f"{embedded_aws.port:04X}"
    listening = [line[1] for line in lines if line[3] == "0A" and line[1].endswith(f":{port}")]
    assert listening == [f"0100007F:{port}"]


def test_why_it_did_not_start_is_told(tmp_path):
    # The tests' own Python has no ministack.
    with pytest.raises(StartFailed, match="No module named 'ministack'"):
        EmbeddedAWS(python=Path(sys.executable)).start()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_of_it_however_its_parent_ends(assets, tmp_path, number):
    (tmp_path / "template.json").write_text(json.dumps(template()))
    program = """
        import json, sys, time
        from pathlib import Path
        from xorack.local.deploy import deploy
        from xorack.local.embedded import EmbeddedAWS
        with EmbeddedAWS() as aws:
            stack = deploy(aws, json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
            (function,) = stack.functions.values()
            stack.client("lambda").invoke(FunctionName=function, Payload=b'"where"')
            print(aws._process.pid, aws._directory, flush=True)
            time.sleep(600)
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), tmp_path / "template.json", assets],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    try:
        group, directory = parent.stdout.readline().split()
        assert len(members(int(group))) >= 2  # ministack, and the function's worker
        parent.send_signal(number)
        parent.wait(timeout=30)
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
    assert eventually(lambda: not members(int(group)), seconds=30)
    assert not Path(directory).exists()


def members(group):
    """The processes of a group that have not ended."""
    listed = subprocess.run(
        ["ps", "-A", "-o", "pgid=,stat=,pid="], capture_output=True, text=True, check=True
    )
    lines = [line.split() for line in listed.stdout.splitlines()]
    return [pid for pgid, stat, pid in lines if int(pgid) == group and not stat.startswith("Z")]


def test_stopping_twice_is_stopping_once():
    aws = EmbeddedAWS().start()
    pid = aws._process.pid
    assert aws.running
    aws.stop()
    aws.stop()
    assert not aws.running
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(StartFailed, match="not been started"):
        _ = aws.endpoint_url


def test_a_stack_that_fails_says_which_resource_and_why(embedded_aws, assets):
    broken = {
        "Type": "AWS::SQS::Queue",
        "Properties": {"RedrivePolicy": {"maxReceiveCount": "never"}},
    }
    with pytest.raises(DeployFailed, match=r"stack broken"):
        deploy(embedded_aws, template(Queue=broken), assets, name="broken")


def test_a_parameter_that_nobody_gives_is_named(embedded_aws, assets):
    asking = template()
    asking["Parameters"]["Other"] = {
        "Type": "AWS::SSM::Parameter::Value<String>",
        "Default": "/our/own",
    }
    with pytest.raises(DeployFailed, match="/our/own"):
        deploy(embedded_aws, asking, assets, name="asking")


def test_a_missing_asset_is_named(embedded_aws, tmp_path):
    with pytest.raises(DeployFailed, match=r"no \*.assets.json"):
        deploy(embedded_aws, template(), tmp_path)
    file = {"source": {"path": "gone", "packaging": "zip"}, "destinations": {}}
    (tmp_path / "x.assets.json").write_text(json.dumps({"files": {"x": file}}))
    with pytest.raises(DeployFailed, match="gone"):
        deploy(embedded_aws, template(), tmp_path)
    with pytest.raises(DeployFailed, match="cannot read the template"):
        deploy(embedded_aws, tmp_path / "no.template.json")
