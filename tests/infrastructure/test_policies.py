"""What the policies forbid: use by other services, other accounts, or the functions' own code."""

from typing import Any

import pytest
from aws_cdk import App, Stack, aws_ec2, aws_iam, aws_kms, aws_sns

from xorack.cdk.acker import Acker
from xorack.cdk.function import Network

from .templates import FUNCTIONS, HERE, Template, target

OF_THIS_ACCOUNT = {"StringEquals": {"aws:SourceAccount": "111111111111"}}
OUR_ALARMS = ["arn:", {"Ref": "AWS::Partition"}, ":cloudwatch:eu-west-1:111111111111:alarm:*"]
ALARMS = {**OF_THIS_ACCOUNT, "ArnLike": {"aws:SourceArn": {"Fn::Join": ["", OUR_ALARMS]}}}
BOUNDARY = "arn:aws:iam::111111111111:policy/boundary"


@pytest.fixture(scope="module")
def guarded():
    """A stack with a key, a network, a topic, a boundary, and senders that are services."""
    stack = Stack(App(), "Mine", env=HERE)
    key = aws_kms.Key(stack, "Key")
    topic = aws_sns.Topic(stack, "Topic", enforce_ssl=True, master_key=key)
    network = Network(vpc=aws_ec2.Vpc(stack, "Vpc", max_azs=1))
    acker = Acker(stack, "Acker", encryption_key=key, alarm_topic=topic, network=network)
    acker.grant_send(aws_iam.ServicePrincipal("events.amazonaws.com"))
    pipe = {"ArnEquals": {"aws:SourceArn": "arn:aws:sns:eu-west-1:111111111111:orders"}}
    acker.grant_send(aws_iam.ServicePrincipal("sns.amazonaws.com").with_conditions(pipe))
    boundary = aws_iam.ManagedPolicy.from_managed_policy_arn(stack, "Boundary", BOUNDARY)
    aws_iam.PermissionsBoundary.of(stack).apply(boundary)
    return Template.of_stack(stack)


def of_service(policy: dict[str, Any], service: str) -> dict[str, Any]:
    """The only statement of a policy that allows a service."""
    principal = {"Service": f"{service}.amazonaws.com"}
    (one,) = (one for one in policy["Statement"] if one["Principal"] == principal)
    assert one["Effect"] == "Allow"
    return dict(one)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_uses_the_key_through_its_services_only(guarded, name):
    key, _ = guarded.one("AWS::KMS::Key")
    assert target(guarded.function(name)[1]["KmsKeyArn"]) == key
    uses = [one for one in guarded.statements(name) if target(one["Resource"]) == key]
    assert uses
    via = {"StringLike": {"kms:ViaService": ["dynamodb.*", "lambda.*", "sqs.*"]}}
    assert all(one["Condition"] == via for one in uses)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_code_of_a_function_sends_https_and_cannot_change_the_network(guarded, name):
    on_network = (one for one in guarded.statements(name) if "ec2:" in str(one["Action"]))
    allowed, denied = sorted(on_network, key=lambda one: one["Effect"])
    # Lambda sends its own calls without this key.
    null = {"Null": {"lambda:SourceFunctionArn": "false"}}
    assert denied == {**allowed, "Effect": "Deny", "Resource": "*", "Condition": null}
    (group,) = guarded.function(name)[1]["VpcConfig"]["SecurityGroupIds"]
    properties = guarded.of("AWS::EC2::SecurityGroup")[target(group)]
    assert "SecurityGroupIngress" not in properties
    (egress,) = properties["SecurityGroupEgress"]
    assert (egress["IpProtocol"], egress["FromPort"], egress["ToPort"]) == ("tcp", 443, 443)


def test_a_boundary_of_permissions_reaches_all_roles(guarded):
    roles = guarded.of("AWS::IAM::Role").values()
    assert {role["PermissionsBoundary"] for role in roles} == {BOUNDARY}


def test_alarms_of_this_account_may_notify_the_topic_and_use_its_key(guarded):
    _, policy = guarded.one("AWS::SNS::TopicPolicy")
    publish = of_service(policy["PolicyDocument"], "cloudwatch")
    assert (publish["Action"], publish["Condition"]) == ("sns:Publish", ALARMS)
    use = of_service(guarded.one("AWS::KMS::Key")[1]["KeyPolicy"], "cloudwatch")
    assert (use["Action"], use["Condition"]) == (["kms:Decrypt", "kms:GenerateDataKey*"], ALARMS)


def test_the_policy_of_an_imported_topic_is_its_owners():
    stack = Stack(App(), "Mine", env=HERE)
    arn = "arn:aws:sns:eu-west-1:111111111111:alarms"
    Acker(stack, "Acker", alarm_topic=aws_sns.Topic.from_topic_arn(stack, "Topic", arn))
    template = Template.of_stack(stack)
    assert not template.of("AWS::SNS::TopicPolicy")
    alarms = template.of("AWS::CloudWatch::CompositeAlarm").values()
    assert [alarm["AlarmActions"] for alarm in alarms] == [[arn], [arn]]


def test_a_service_sends_for_this_account_only(guarded):
    queue = [{"Ref": guarded.queue()[0]}]
    policy = guarded.one("AWS::SQS::QueuePolicy", Queues=queue)[1]["PolicyDocument"]
    assert of_service(policy, "events")["Condition"] == OF_THIS_ACCOUNT
    # A condition of the caller stays as it is.
    assert set(of_service(policy, "sns")["Condition"]) == {"ArnEquals"}
    # EventBridge names no account to the key's policy.
    assert "Condition" not in of_service(guarded.one("AWS::KMS::Key")[1]["KeyPolicy"], "events")


def test_no_queue_can_use_the_queue_of_requests_for_its_dead_letters(template):
    # Its messages would be requests, and SQS asks for no permission to send.
    assert template.queue()[1]["RedriveAllowPolicy"] == {"redrivePermission": "denyAll"}
    assert "RedriveAllowPolicy" not in template.dead_letters()[1]
