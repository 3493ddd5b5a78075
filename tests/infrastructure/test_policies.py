"""The policies forbid use by other services, other accounts, or the functions' own code."""

import json
from typing import Any
from unittest.mock import Mock

import pytest
from aws_cdk import (
    App,
    Stack,
    aws_ec2,
    aws_events,
    aws_iam,
    aws_kms,
    aws_lambda,
    aws_sns,
    aws_stepfunctions,
)

from xorack.aws.callbacks import CALLBACK_SERVICES
from xorack.cdk.acker import Acker
from xorack.cdk.callbacks import KINDS
from xorack.cdk.network import Network
from xorack.cdk.settings import Settings
from xorack.core.event import SOURCE

from .templates import FUNCTIONS, HERE, Template, target

OF_THIS_ACCOUNT = {"StringEquals": {"aws:SourceAccount": "111111111111"}}
OUR_ALARMS = ["arn:", {"Ref": "AWS::Partition"}, ":cloudwatch:eu-west-1:111111111111:alarm:*"]
ALARMS = {**OF_THIS_ACCOUNT, "ArnLike": {"aws:SourceArn": {"Fn::Join": ["", OUR_ALARMS]}}}
THERE = "arn:aws:iam::222222222222:role/loader"
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
    acker.grant_send(aws_iam.Role.from_role_arn(stack, "Loader", THERE))
    boundary = aws_iam.ManagedPolicy.from_managed_policy_arn(stack, "Boundary", BOUNDARY)
    aws_iam.PermissionsBoundary.of(stack).apply(boundary)
    template = Template.of_stack(stack)
    roles = template.of("AWS::IAM::Role").values()
    assert {role["PermissionsBoundary"] for role in roles} == {BOUNDARY}
    return template


def of_service(policy: dict[str, Any], service: str) -> dict[str, Any]:
    """The only statement of a policy that allows a service."""
    principal = {"Service": f"{service}.amazonaws.com"}
    (one,) = (one for one in policy["Statement"] if one["Principal"] == principal)
    assert one["Effect"] == "Allow"
    return dict(one)


def test_the_key_encrypts_what_the_acker_makes_and_admits_logs_of_this_account(guarded):
    key, properties = guarded.one("AWS::KMS::Key")
    encrypted = {"KMSMasterKeyId": {"Fn::GetAtt": [key, "Arn"]}, "SSEEnabled": True}
    assert guarded.table()[1]["SSESpecification"] == {**encrypted, "SSEType": "KMS"}
    queues = [queue["KmsMasterKeyId"] for queue in guarded.of("AWS::SQS::Queue").values()]
    logs = [group["KmsKeyId"] for group in guarded.of("AWS::Logs::LogGroup").values()]
    assert {target(one) for one in (*queues, *logs)} == {key}
    principal = {"Service": {"Fn::Join": ["", ["logs.eu-west-1.", {"Ref": "AWS::URLSuffix"}]]}}
    (logging,) = (s for s in properties["KeyPolicy"]["Statement"] if s["Principal"] == principal)
    # The service acts for all accounts: only this account's log groups may use the key.
    arn = ["arn:", {"Ref": "AWS::Partition"}, ":logs:eu-west-1:111111111111:log-group:*"]
    on_groups = {"kms:EncryptionContext:aws:logs:arn": {"Fn::Join": ["", arn]}}
    assert logging["Condition"] == {"ArnLike": on_groups}


READ, SEND = {"kms:Decrypt", "kms:DescribeKey"}, {"kms:Decrypt", "kms:GenerateDataKey"}
WRITE = READ | SEND | {"kms:Encrypt", "kms:GenerateDataKeyWithoutPlaintext"}
WRITE |= {"kms:ReEncryptFrom", "kms:ReEncryptTo"}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_uses_the_key_through_its_services_only(guarded, name):
    key, _ = guarded.one("AWS::KMS::Key")
    assert target(guarded.function(name)[1]["KmsKeyArn"]) == key
    assert guarded.allowed(name)[key] == WRITE
    uses = [one for one in guarded.statements(name) if target(one["Resource"]) == key]
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


def test_alarms_of_this_account_may_notify_the_topic_and_use_its_key(guarded):
    _, policy = guarded.one("AWS::SNS::TopicPolicy")
    publish = of_service(policy["PolicyDocument"], "cloudwatch")
    assert (publish["Action"], publish["Condition"]) == ("sns:Publish", ALARMS)
    use = of_service(guarded.one("AWS::KMS::Key")[1]["KeyPolicy"], "cloudwatch")
    assert (use["Action"], use["Condition"]) == (["kms:Decrypt", "kms:GenerateDataKey*"], ALARMS)


def test_a_service_sends_for_this_account_only(guarded):
    queue = [{"Ref": guarded.queue()[0]}]
    policy = guarded.one("AWS::SQS::QueuePolicy", Queues=queue)[1]["PolicyDocument"]
    assert of_service(policy, "events")["Condition"] == OF_THIS_ACCOUNT
    # A condition of the caller stays as it is.
    assert set(of_service(policy, "sns")["Condition"]) == {"ArnEquals"}
    # EventBridge names no account to the key's policy.
    by_key = guarded.one("AWS::KMS::Key")[1]["KeyPolicy"]
    assert "Condition" not in of_service(by_key, "events")
    # A role of another account is allowed by both.
    for statements, action in (
        (policy, "sqs:SendMessage"),
        (by_key, ["kms:Decrypt", "kms:GenerateDataKey"]),
    ):
        (one,) = (one for one in statements["Statement"] if one["Principal"] == {"AWS": THERE})
        assert (one["Effect"], one["Action"]) == ("Allow", action)


def test_the_functions_put_events_of_this_source_only(guarded):
    for name in ("consumer", "sweeper"):
        (put,) = (one for one in guarded.statements(name) if one["Action"] == "events:PutEvents")
        assert target(put["Resource"]) == guarded.bus()[0]
        ours = {"events:source": SOURCE, "events:detail-type": ["acked", "failed"]}
        assert put["Condition"] == {"ForAllValues:StringEquals": ours}


def test_only_the_functions_put_events_of_this_source_on_a_created_bus(guarded, varied, here):
    _, policy = guarded.one("AWS::Events::EventBusPolicy")
    statement = policy["Statement"]
    assert (statement["Effect"], statement["Principal"]) == ("Deny", {"AWS": "*"})
    assert statement["Action"] == "events:PutEvents"
    assert target(statement["Resource"]) == guarded.bus()[0]
    condition = statement["Condition"]
    assert condition["ForAnyValue:StringEquals"] == {"events:source": SOURCE}
    roles = {target(guarded.function(name)[1]["Role"]) for name in FUNCTIONS}
    assert {*map(target, condition["ArnNotEquals"]["aws:PrincipalArn"])} == roles
    assert not varied.of("AWS::Events::EventBusPolicy")  # the setting is off
    bus = aws_events.EventBus(here, "All")
    Acker(here, "Acker", bus=bus)
    assert not Template.of_stack(here).of("AWS::Events::EventBusPolicy")


ORDERS = "arn:aws:states:eu-west-1:111111111111:stateMachine:orders"
BILLS = "arn:aws:lambda:eu-west-1:111111111111:function:bills"
CALLBACK = "lambda:SendDurableExecutionCallback"


def waiting(stack, arn):
    if ":states:" in arn:
        return aws_stepfunctions.StateMachine.from_state_machine_arn(stack, "Orders", arn)
    return aws_lambda.Function.from_function_arn(stack, "Bills", arn)


def test_the_functions_resume_executions_of_whom_they_may_only():
    stack = Stack(App(), "Mine", env=HERE)
    acker = Acker(stack, "Acker")
    for arn in (ORDERS, BILLS):
        assert acker.grant_resume(waiting(stack, arn)).success
    template = Template.of_stack(stack)
    for name in ("consumer", "sweeper"):
        assert template.environment(name)["RESUME"] == "step_functions,lambda"
        statements = template.statements(name)
        tasks = next(one for one in statements if one["Resource"] == ORDERS)
        callbacks = next(one for one in statements if one["Resource"] == [BILLS, f"{BILLS}:*"])
        assert tasks["Action"] == ["states:SendTaskFailure", "states:SendTaskSuccess"]
        assert callbacks["Action"] == [f"{CALLBACK}Failure", f"{CALLBACK}Success"]


def arns_in(place):
    """Return what an import of an acker in a region and account needs."""
    return {
        "table_arn": f"arn:aws:dynamodb:{place}:table/chains",
        "queue_arn": f"arn:aws:sqs:{place}:stamps",
        "event_bus_arn": f"arn:aws:events:{place}:event-bus/chains",
    }


def test_an_imported_acker_resumes_what_another_app_grants():
    owner = Stack(App(), "Owner", env=HERE)
    acker = Acker(owner, "Acker", settings=Settings(resume="granted"))
    acker.add_outputs()
    template = Template.of_stack(owner)
    assert template.environment("sweeper")["RESUME"] == "step_functions,lambda"
    assert "states:" not in str(template.statements("sweeper"))
    exports = {str(one["Export"]["Name"]) for one in template.body["Outputs"].values()}
    stack = Stack(App(), "Mine", env=HERE)
    imported = Acker.from_stack_outputs(stack, "Acker", "Owner")
    assert imported.grant_resume(waiting(stack, ORDERS)).success
    policies = Template.of_stack(stack).of("AWS::IAM::Policy").values()
    names = {policy["Roles"][0]["Fn::ImportValue"] for policy in policies}
    assert names == {"Owner-ConsumerRoleName", "Owner-SweeperRoleName"} <= exports
    for policy in policies:
        (statement,) = policy["PolicyDocument"]["Statement"]
        assert statement["Resource"] == ORDERS
    without = Acker.from_attributes(stack, "Without", **arns_in("eu-west-1:111111111111"))
    with pytest.raises(ValueError, match="Mine/Without was imported without `role_names`"):
        without.grant_resume(waiting(Stack(stack, "Other"), ORDERS))


@pytest.mark.parametrize("monitoring", ["full", "minimal"])
def test_the_functions_use_a_role_of_yours_with_the_permissions_of_their_own_ones(monitoring):
    templates = []
    for arn in (None, "arn:aws:iam::111111111111:role/team/acker"):
        stack = Stack(App(), "Mine", env=HERE)
        settings = Settings(resume="all", tracing=True, monitoring=monitoring)
        role = arn and aws_iam.Role.from_role_arn(stack, "Role", arn)
        acker = Acker(stack, "Acker", settings=settings, role=role)
        acker.grant_resume(waiting(stack, ORDERS))
        templates.append(Template.of_stack(stack))
    default, own = templates
    assert not own.of("AWS::IAM::Role")
    (policy,) = own.of("AWS::IAM::Policy").values()
    assert policy["Roles"] == ["acker"]
    expected = [one for name in FUNCTIONS for one in default.statements(name)]
    allowed = {permission for one in expected for permission in permissions(one)}
    document = policy["PolicyDocument"]["Statement"]
    assert {permission for one in document for permission in permissions(one)} == allowed
    roles = {json.dumps(one["Role"]) for one in own.of("AWS::Lambda::Function").values()}
    assert roles == {json.dumps("arn:aws:iam::111111111111:role/team/acker")}
    (denied,) = own.of("AWS::Events::EventBusPolicy").values()
    principals = denied["Statement"]["Condition"]["ArnNotEquals"]["aws:PrincipalArn"]
    assert principals == ["arn:aws:iam::111111111111:role/team/acker"]


def permissions(statement):
    """Each action on each resource under its condition, as text."""
    actions, resources = (
        value if isinstance(value, list) else [value]
        for value in (statement["Action"], statement["Resource"])
    )
    rest = json.dumps([statement["Effect"], statement.get("Condition")], sort_keys=True)
    return {(action, json.dumps(on), rest) for action in actions for on in resources}


def test_an_own_role_is_of_the_account_and_may_be_of_another_stack():
    app = App()
    stack, roles = Stack(app, "Mine", env=HERE), Stack(app, "Roles", env=HERE)
    role = aws_iam.Role(roles, "Role", assumed_by=aws_iam.ServicePrincipal("lambda.amazonaws.com"))
    Acker(stack, "Acker", role=role)
    app.synth()
    assert not Template.of_stack(roles).of("AWS::Lambda::Function")
    assert roles.dependencies == []
    there = aws_iam.Role.from_role_arn(stack, "There", THERE)
    with pytest.raises(ValueError, match="role: Mine/There is in the account 2222222222"):
        Acker(stack, "Other", role=there)


@pytest.mark.parametrize("kind", CALLBACK_SERVICES)
def test_the_permission_to_resume_is_for_the_calls_that_are_made(kind):
    calls = Mock()
    CALLBACK_SERVICES[kind].success(calls, "token", "{}")
    CALLBACK_SERVICES[kind].failure(calls, "token", "reason", "{}")
    names = (call[0].replace("_", " ").title().replace(" ", "") for call in calls.method_calls)
    assert sorted(one.partition(":")[2] for one in KINDS[kind].actions) == sorted(names)


@pytest.mark.parametrize(
    ("arn", "message"),
    [
        (ORDERS.replace("1" * 12, "2" * 12), "is in the account 222222222222, expected 1111"),
        (BILLS.replace("eu-west-1", "us-east-1"), "is in the region us-east-1, expected eu-west"),
    ],
)
def test_tokens_of_others_are_not_resumed(arn, message):
    stack = Stack(App(), "Mine", env=HERE)
    acker = Acker(stack, "Acker")
    with pytest.raises(ValueError, match=message):
        acker.grant_resume(waiting(stack, arn))
    with pytest.raises(TypeError, match="expected an IStateMachine or an IFunction"):
        acker.grant_resume(stack)


def test_stacks_that_share_a_role_do_not_share_the_name_of_its_policy():
    """A role has one inline policy of a name: the second stack would replace that of the first."""
    names = []
    flag = "@aws-cdk/aws-iam:importedRoleStackSafeDefaultPolicyName"  # `cdk init` sets it
    for construct_id, is_set in (("Acker", False), ("Acker", True), ("Other", False)):
        stack = Stack(App(context={flag: is_set}), "Mine", env=HERE)
        role = aws_iam.Role.from_role_arn(stack, "Role", "arn:aws:iam::111111111111:role/acker")
        Acker(stack, construct_id, role=role)
        (policy,) = Template.of_stack(stack).of("AWS::IAM::Policy").values()
        names.append(json.dumps(policy["PolicyName"]))
    assert names[0] == names[1] != names[2]
    assert "AWS::StackId" in names[0]
    stack = Stack(App(), "Mine", env=HERE)
    imported = Acker.from_stack_outputs(stack, "Imported", "xorack")
    imported.grant_resume(waiting(stack, ORDERS))
    policies = Template.of_stack(stack).of("AWS::IAM::Policy").values()
    own = {json.dumps(policy["PolicyName"]) for policy in policies}
    assert len(own) == 2
    assert all("AWS::StackId" in name for name in own)


def test_an_acker_of_another_account_completes_no_callbacks_of_this_one(here):
    names = {"role_names": ["consumer", "sweeper"]}
    acker = Acker.from_attributes(here, "Acker", **arns_in("eu-west-1:222222222222"), **names)
    with pytest.raises(ValueError, match="is in the account 111111111111, expected 222222222222"):
        acker.grant_resume(waiting(here, ORDERS))


def test_a_bus_that_only_one_acker_may_publish_to_is_no_bus_of_another(here):
    first = Acker(here, "First")
    with pytest.raises(ValueError, match="deny_forged_events=false"):
        Acker(here, "Second", bus=first.events.bus)
    shared = Acker(here, "Open", settings=Settings(deny_forged_events=False))
    Acker(here, "Third", bus=shared.events.bus)


def test_the_outputs_of_a_second_acker_need_a_prefix(here):
    Acker(here, "First").add_outputs()
    second = Acker(here, "Second")
    with pytest.raises(ValueError, match="has the outputs of another acker: give a prefix"):
        second.add_outputs()
    second.add_outputs(prefix="Second")
