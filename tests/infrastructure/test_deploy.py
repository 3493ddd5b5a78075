"""`make deploy` where something is missing: one line says what, and nothing starts."""

import json
import os
import sys

import pytest

from infra.synth import build
from tests.support.http_server import Handler, Server
from tools import preflight

from .test_setup import make, script

ACCOUNT = "123456789012"
IDENTITY = f"<R><GetCallerIdentityResult><Account>{ACCOUNT}</Account></GetCallerIdentityResult></R>"
KEYS = {"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": "none"}
HERE = {**KEYS, "AWS_REGION": "eu-west-1"}


class Account(Handler):
    """An account that was bootstrapped with the qualifier `mine` only."""

    def do_POST(self):
        body = self.body()
        if b"GetCallerIdentity" in body:
            if b"AKIA" not in self.headers["Authorization"].encode():
                text = "<R><Error><Code>InvalidClientTokenId</Code></Error></R>"
                return self.respond(403, text.encode(), {"Content-Type": "text/xml"})
            return self.respond(200, IDENTITY.encode(), {"Content-Type": "text/xml"})
        found = json.loads(body)["Name"] == "/cdk-bootstrap/mine/version"
        answer = {"Parameter": {"Value": "30"}} if found else {"__type": "ParameterNotFound"}
        headers = {"Content-Type": "application/x-amz-json-1.1"}
        return self.respond(200 if found else 400, json.dumps(answer).encode(), headers)


@pytest.fixture(scope="module")
def aws():
    with Server(Account) as server:
        yield server


@pytest.fixture
def deploy(aws, tmp_path, monkeypatch):
    """A function that runs `make deploy` with programs that log their calls."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    log, programs = tmp_path / "log", tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    unused = script(tmp_path / "unused", "")

    def run(arguments="", target="deploy", node=True, **environment):
        for name in ("npm", "npx") if node else ():
            script(programs / name, f'echo {name} "$@" >> {log}\n')
        ran = make(
            target,
            f"CURDIR={tmp_path}",
            f"PYTHON={unused}",
            f"PY={sys.executable}",
            f"ARGS={arguments}",
            AWS_ENDPOINT_URL=aws.endpoint_url,
            AWS_CONFIG_FILE=os.devnull,
            AWS_SHARED_CREDENTIALS_FILE=os.devnull,
            AWS_EC2_METADATA_DISABLED="true",
            **environment,
        )
        return ran, log.read_text().splitlines() if log.exists() else []

    return run


NO_BOOTSTRAP = "has no /cdk-bootstrap/hnb659fds/version: run `make bootstrap` once"
BROKEN = [
    (
        {"AWS_REGION": "eu-west-1"},
        "there are no AWS credentials: run `aws configure sso`, or set AWS_PROFILE",
    ),
    (
        {**HERE, "AWS_ACCESS_KEY_ID": "old"},
        "AWS rejects your credentials (InvalidClientTokenId): renew them",
    ),
    ({**HERE, "arguments": "--profile nobody"}, "The config profile (nobody) could not be found"),
    (KEYS, "there is no AWS region: set AWS_REGION, or one in your profile"),
    (HERE, f"account {ACCOUNT}, region eu-west-1 {NO_BOOTSTRAP}"),
    (
        {**HERE, "node": False, "PATH": os.devnull},
        "there is no Node: run `make venv`, or install Node 20 or later",
    ),
]


@pytest.mark.parametrize(("environment", "line"), BROKEN)
def test_what_is_missing_is_one_line(environment, line, deploy):
    ran, calls = deploy(**environment)
    first, *rest = ran.stderr.splitlines()
    assert first == f"error: {line}: {preflight.PAGE}"
    assert [one.partition(" ")[0] for one in rest] == ["make:"]
    assert (ran.returncode, ran.stdout, calls) == (2, "", [])


def test_a_prepared_account_gets_the_arguments(deploy):
    arguments = "-c @aws-cdk/core:bootstrapQualifier=mine --require-approval never"
    ran, calls = deploy(arguments, **HERE)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert calls == [
        "npm ci --no-audit --no-fund --loglevel=error",
        f"npx --no-install cdk deploy {arguments}",
    ]


def test_settings_name_what_the_stack_shares_with_others(synthesise):
    key = "arn:aws:kms:eu-west-1:111111111111:key/12345678-90ab-cdef-1234-567890abcdef"
    bus = "arn:aws:events:eu-west-1:222222222222:event-bus/all"
    made = synthesise(
        senders="222222222222,events.amazonaws.com,arn:aws:iam::333333333333:role/loader",
        event_bus_arn=bus,
        encryption_key_arn=key,
        policies_ready="true",
    )
    queue = [{"Ref": made.queue()[0]}]
    policy = made.one("AWS::SQS::QueuePolicy", Queues=queue)[1]["PolicyDocument"]["Statement"]
    senders = [one["Principal"] for one in policy if one["Action"] == "sqs:SendMessage"]
    for sender in ("222222222222:root", "333333333333:role/loader", "events.amazonaws.com"):
        assert sender in str(senders)
    assert not made.of("AWS::Events::EventBus")
    assert made.environment("consumer")["EVENT_BUS_NAME"] == bus
    _, consumer = made.function("consumer")
    assert consumer["KmsKeyArn"] == key
    outputs = made.body["Outputs"]
    exports = {name: one["Export"]["Name"] for name, one in outputs.items()}
    assert exports == {name: f"xorack-{name}" for name in outputs}
    assert outputs["EventBusName"]["Value"] == bus


@pytest.mark.parametrize("topic", ["", "arn:aws:sns:eu-west-1:123456789012:alarms"])
def test_a_stack_without_a_topic_for_alarms_gives_the_only_warning(topic):
    _, stack = build({"alarm_topic_arn": topic})
    entries = [entry for one in stack.node.find_all() for entry in one.node.metadata]
    warnings = [str(entry.data) for entry in entries if entry.type == "aws:cdk:warning"]
    assert ["no one is notified of alarms" in one for one in warnings] == [True] * (not topic)
