"""The snippets of README.md and docs/spark-deploy.md about the construct work as written there."""

import json
import re
from pathlib import Path

import pytest

from xorack.cdk import Acker  # isort: skip - before aws_cdk: it sets the node that jsii runs
from aws_cdk import App, Stack, assertions, aws_iam, aws_kms, aws_s3, aws_sqs

from .templates import Template, in_policies, target

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DEPLOY = (ROOT / "docs" / "spark-deploy.md").read_text(encoding="utf-8")


def block(page, language, text):
    """Return the only block of a page that contains a text."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (found,) = (one for one in blocks if text in one)
    return found


def test_the_construct_of_the_readme():
    stack = Stack(App(), "Mine")
    names = {
        "self": stack,
        "producer": aws_iam.Role(stack, "Producer", assumed_by=aws_iam.AnyPrincipal()),
        "done": aws_sqs.Queue(stack, "Done"),
    }
    exec(block(README, "python", "acker.grant_send"), names)
    template = assertions.Template.from_stack(stack)
    assert names["acker"].settings.batch_size == 500
    pattern = {"source": ["xorack"], "detail-type": ["acked"]}
    template.has_resource_properties("AWS::Events::Rule", {"EventPattern": pattern})
    # The rule for the AWS CLI is the same.
    (documented,) = re.findall(r"--event-pattern '(.*)'", README)
    assert json.loads(documented) == pattern


@pytest.mark.parametrize("own_key", [False, True])
def test_the_policy_of_a_job_equals_that_of_grant_send(own_key):
    stack = Stack(App(), "Mine")
    key = aws_kms.Key(stack, "Key") if own_key else None
    names = {
        "self": stack,
        "aws_iam": aws_iam,
        "acker": Acker(stack, "Acker", encryption_key=key),
        "data": aws_s3.Bucket(stack, "Data"),
    }
    exec(block(DEPLOY, "python", "aws_iam.Role"), names)
    role = stack.get_logical_id(names["role"].node.default_child)
    queue = stack.get_logical_id(names["acker"].queue.node.default_child)
    arns = {queue: "arn:aws:sqs:REGION:ACCOUNT:QUEUE"}
    if key is not None:
        arns[stack.get_logical_id(key.node.default_child)] = "arn:aws:kms:REGION:ACCOUNT:key/KEY"
    policies = Template.of_stack(stack).of("AWS::IAM::Policy").values()
    granted = [
        {**one, "Resource": arns[target(one["Resource"])]}
        for one in in_policies(policy for policy in policies if {"Ref": role} in policy["Roles"])
        if not str(one["Action"]).startswith("['s3:")
    ]
    documented = [json.loads(block(DEPLOY, "json", "sqs:SendMessage"))]
    documented += [json.loads(block(DEPLOY, "json", "kms:Decrypt"))] if own_key else []
    assert sorted(granted, key=str) == sorted(documented, key=str)
