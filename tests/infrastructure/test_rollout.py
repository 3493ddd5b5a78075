"""Versions, aliases, and the canary."""

import pytest
from aws_cdk import App, Stack, aws_cloudwatch

from xorack.cdk.rollout import create_canaries

from .templates import FUNCTIONS, target


@pytest.mark.parametrize("name", FUNCTIONS)
def test_everything_that_invokes_a_function_invokes_its_alias(template, name):
    alias, function = template.alias(name), template.function(name)[0]
    properties = template.of("AWS::Lambda::Alias")[alias]
    version = target(properties["FunctionVersion"])
    assert template.of("AWS::Lambda::Version")[version] == {"FunctionName": {"Ref": function}}
    assert properties["Name"] == "live"
    invokers = [
        template.one("AWS::Lambda::EventSourceMapping")[1]["FunctionName"],
        template.one("AWS::Lambda::Permission")[1]["FunctionName"],
        template.one("AWS::Events::Rule")[1]["Targets"][0]["Arn"],
    ]
    assert function not in map(target, invokers)


def test_new_code_or_new_settings_make_a_new_version(template, synthesise):
    versions = set(template.of("AWS::Lambda::Version"))
    # Three functions have another environment; their queue keeps its name.
    assert not versions & set(synthesise(retention_days="31").of("AWS::Lambda::Version"))
    # A rule on the queue changes no function.
    assert versions == set(synthesise(max_receive_count="6").of("AWS::Lambda::Version"))


def test_all_at_once_needs_no_codedeploy(template):
    assert not [one for one in template.resources.values() if "CodeDeploy" in one["Type"]]
    assert not [one for one in template.resources.values() if "UpdatePolicy" in one]


def test_a_canary_moves_consumer_and_sweeper_and_not_the_widget(template, canary):
    application, _ = canary.one("AWS::CodeDeploy::Application")
    groups = canary.of("AWS::CodeDeploy::DeploymentGroup")
    moved = {}
    for name in FUNCTIONS:
        policy = canary.resources[canary.alias(name)].get("UpdatePolicy")
        if policy is not None:
            update = policy["CodeDeployLambdaAliasUpdate"]
            assert update["ApplicationName"] == {"Ref": application}
            moved[name] = groups[target(update["DeploymentGroupName"])]
    assert set(moved) == {"consumer", "sweeper"}
    assert len(groups) == 2
    for group in groups.values():
        assert group["DeploymentConfigName"] == "CodeDeployDefault.LambdaCanary10Percent15Minutes"
        alarms, rollback = group["AlarmConfiguration"], group["AutoRollbackConfiguration"]
        assert alarms["Enabled"] is rollback["Enabled"] is True
        assert "DEPLOYMENT_STOP_ON_ALARM" in rollback["Events"]
    assert set(template.of("AWS::Lambda::Version")) == set(canary.of("AWS::Lambda::Version"))


@pytest.mark.parametrize("name", ["consumer", "sweeper"])
def test_errors_of_the_new_version_alone_stop_its_deployment(canary, name):
    function, _ = canary.function(name)
    version = canary.of("AWS::Lambda::Alias")[canary.alias(name)]["FunctionVersion"]
    dimensions = {"FunctionName": function, "Resource": f"{function}:live",
                  "ExecutedVersion": target(version)}  # fmt: skip
    settings = {"MetricName": "Errors", "Statistic": "Sum", "Period": 60, "Threshold": 0,
                "ComparisonOperator": "GreaterThanThreshold", "EvaluationPeriods": 1,
                "TreatMissingData": "notBreaching"}  # fmt: skip
    (alarm,) = (
        key
        for key, one in canary.of("AWS::CloudWatch::Alarm").items()
        if {d["Name"]: target(d["Value"]) for d in one.get("Dimensions", [])} == dimensions
        and settings.items() <= one.items()
    )
    groups = canary.of("AWS::CodeDeploy::DeploymentGroup").values()
    stops = [[target(a["Name"]) for a in one["AlarmConfiguration"]["Alarms"]] for one in groups]
    assert len([names for names in stops if alarm in names]) == 1
    # Faults that are no errors: dead letters, events that stay, chains that cannot end.
    for names in stops:
        assert len(names) == 4
        for part in ("DeadLetters", "EventsPending", "SweepProblems"):
            assert any(part in one for one in names)


def test_codedeploy_may_move_these_aliases_and_read_alarms(canary):
    group, *_ = canary.of("AWS::CodeDeploy::DeploymentGroup").values()
    role = canary.of("AWS::IAM::Role")[target(group["ServiceRoleArn"])]
    assert "ManagedPolicyArns" not in role
    (policy,) = role["Policies"]
    move, look = policy["PolicyDocument"]["Statement"]
    functions = [canary.function(name)[0] for name in ("consumer", "sweeper")]
    # No Ref of an alias: it would be a circle, since the alias needs the deployment group.
    aliases = [f"{function}:live" for function in functions]
    assert sorted(map(target, move["Resource"])) == sorted([*functions, *aliases])
    actions = ["GetAlias", "GetProvisionedConcurrencyConfig", "UpdateAlias"]
    assert move["Action"] == [f"lambda:{action}" for action in actions]
    assert (look["Action"], look["Resource"]) == ("cloudwatch:DescribeAlarms", "*")
    assert not canary.granted(target(group["ServiceRoleArn"]))


def test_more_alarms_than_codedeploy_takes_are_rejected():
    stack = Stack(App(), "Mine")
    alarms = [
        aws_cloudwatch.Alarm.from_alarm_arn(stack, f"A{n}", f"arn:aws:cloudwatch:x:1:alarm:a{n}")
        for n in range(10)
    ]
    with pytest.raises(ValueError, match="alarms: 10, expected less than 10"):
        create_canaries(stack, {}, alarms)
