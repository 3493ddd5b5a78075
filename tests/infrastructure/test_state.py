"""The stateful resources: table, queues, bus, logs."""

import pytest

from .templates import STATEFUL, target


def test_logical_ids_of_stateful_resources_stay(template):
    # CloudFormation replaces a resource whose id changes, and its contents are lost.
    assert {name: kind for kind in STATEFUL for name in template.of(kind)} == {
        "AckerChainsTable61387BD4": "AWS::DynamoDB::Table",
        "AckerStampsDeadLettersE4652E86": "AWS::SQS::Queue",
        "AckerStampsQueueFC65C606": "AWS::SQS::Queue",
        "AckerEventsBus81E389B8": "AWS::Events::EventBus",
        "AckerConsumerPythonLogs026A0A40": "AWS::Logs::LogGroup",
        "AckerSweeperPythonLogs5E8C8284": "AWS::Logs::LogGroup",
        "AckerWidgetPythonLogs60F507EC": "AWS::Logs::LogGroup",
    }
    assert template.queue()[0] == "AckerStampsQueueFC65C606"


def test_settings_do_not_move_stateful_resources(template, varied, without_dashboard):
    for kind in STATEFUL:
        assert set(varied.of(kind)) == set(template.of(kind))
    for kind in STATEFUL[:3]:
        assert without_dashboard.of(kind) == template.of(kind)


def test_only_the_bus_and_the_dashboard_have_physical_names(template, varied):
    names = {
        (resource["Type"], key)
        for resource in template.resources.values()
        for key in resource["Properties"]
        if key in {
            "TableName", "QueueName", "DashboardName", "LogGroupName", "RoleName", "Name",
            "AlarmName", "ManagedPolicyName",
        } or (key == "FunctionName" and resource["Type"] == "AWS::Lambda::Function")
    }  # fmt: skip
    assert names == {
        ("AWS::Events::EventBus", "Name"),
        ("AWS::CloudWatch::Dashboard", "DashboardName"),
    }
    # The CDK builds the bus's name from the stack's: two stacks have two buses.
    assert template.bus()[1]["Name"].startswith("xorackAcker")
    assert varied.bus()[1]["Name"].startswith("otherAcker")


def test_key_of_the_table(template, varied):
    for made, name in ((template, "tag"), (varied, "file")):
        _, table = made.table()
        assert table["KeySchema"] == [{"AttributeName": name, "KeyType": "HASH"}]
        definitions = table["AttributeDefinitions"]
        types = {one["AttributeName"]: one["AttributeType"] for one in definitions}
        assert types == {name: "S", "due_shard": "N", "due_at": "N"}


def test_table_expires_recovers_and_scales(template):
    _, table = template.table()
    assert table["TimeToLiveSpecification"] == {"AttributeName": "expires_at", "Enabled": True}
    assert table["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    assert table["BillingMode"] == "PAY_PER_REQUEST"
    assert not {"ProvisionedThroughput", "StreamSpecification"} & set(table)


def test_index_of_deadlines_is_sparse_sharded_and_lean(template):
    assert template.table()[1]["GlobalSecondaryIndexes"] == [
        {
            "IndexName": "due",
            "KeySchema": [
                {"AttributeName": "due_shard", "KeyType": "HASH"},
                {"AttributeName": "due_at", "KeyType": "RANGE"},
            ],
            "Projection": {"ProjectionType": "KEYS_ONLY"},
        }
    ]


def test_state_is_protected_by_default(template, varied):
    for made, protected, policy in ((template, True, "Retain"), (varied, False, "Delete")):
        assert made.table()[1]["DeletionProtectionEnabled"] is protected
        for kind in ("AWS::DynamoDB::Table", "AWS::SQS::Queue", "AWS::Logs::LogGroup"):
            for name in made.of(kind):
                resource = made.resources[name]
                assert resource["DeletionPolicy"] == resource["UpdateReplacePolicy"] == policy


def test_visibility_is_six_timeouts_and_the_window(template, varied):
    for made, timeout, visibility in ((template, 60, 361), (varied, 100, 605)):
        assert made.function("consumer")[1]["Timeout"] == timeout
        assert made.queue()[1]["VisibilityTimeout"] == visibility


def test_queues_are_encrypted_and_open_to_tls_only(template):
    statements = {
        target(queue): policy["PolicyDocument"]["Statement"]
        for policy in template.of("AWS::SQS::QueuePolicy").values()
        for queue in policy["Queues"]
    }
    queues = template.of("AWS::SQS::Queue")
    assert set(statements) == set(queues)
    for name, queue in queues.items():
        assert queue["SqsManagedSseEnabled"] is True
        assert statements[name] == [
            {
                "Action": "sqs:*",
                "Effect": "Deny",
                "Principal": {"AWS": "*"},
                "Condition": {"Bool": {"aws:SecureTransport": "false"}},
                "Resource": {"Fn::GetAtt": [name, "Arn"]},
            }
        ]


@pytest.mark.parametrize(("name", "days", "attempts"), [("template", 4, 5), ("varied", 13, 3)])
def test_dead_letters_follow_the_attempts_and_stay_longer(request, name, days, attempts):
    made = request.getfixturevalue(name)
    _, queue = made.queue()
    assert queue["MessageRetentionPeriod"] == days * 86_400
    assert made.dead_letters()[1]["MessageRetentionPeriod"] == 14 * 86_400
    assert queue["RedrivePolicy"]["maxReceiveCount"] == attempts
