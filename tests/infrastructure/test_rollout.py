"""Versions, aliases, and the canary."""

import io
import json
from types import SimpleNamespace

import pytest
from botocore.exceptions import ClientError

from lambda_src import hook

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
    # Faults that are no errors: messages that fail, events that stay, chains that cannot end. Dead
    # letters may be a sender's.
    for names in stops:
        assert len(names) == 4
        for part in ("MessagesFailing", "EventsPending", "SweepProblems"):
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


def test_a_hook_may_run_the_new_versions_before_they_get_traffic(canary):
    hook, properties = canary.function("hook")
    consumer, sweeper = (canary.function(name)[0] for name in ("consumer", "sweeper"))
    _, permission = canary.one(
        "AWS::Lambda::Permission", FunctionName={"Fn::GetAtt": [hook, "Arn"]}
    )
    group, *_ = canary.of("AWS::CodeDeploy::DeploymentGroup").values()
    assert target(permission["Principal"]) == target(group["ServiceRoleArn"])
    for name in ("consumer", "sweeper"):
        alias = canary.resources[canary.alias(name)]
        update = alias["UpdatePolicy"]["CodeDeployLambdaAliasUpdate"]
        assert update["BeforeAllowTrafficHook"] == {"Ref": hook}
        assert canary.resources[alias["DependsOn"][0]]["Properties"] == permission
        version = alias["Properties"]["FunctionVersion"]["Fn::GetAtt"][0]
        assert canary.environment("hook")[f"{name.upper()}_VERSION"] == {"Ref": version}
    allowed = canary.allowed("hook")
    assert allowed.pop(canary.log_group("hook"))
    for function in (consumer, sweeper):
        assert allowed.pop(f"{function}:*") == {"lambda:InvokeFunction"}
    answers = {"codedeploy:PutLifecycleEventHookExecutionStatus"}
    assert [*allowed.values()] == [answers, answers]
    assert properties["Timeout"] == 120


@pytest.mark.parametrize("fails", [None, "consumer", "sweeper", "denied"])
def test_the_hook_tells_codedeploy_whether_the_new_versions_work(monkeypatch, fails):
    calls, told = [], []

    def invoke(FunctionName, Payload):
        calls.append((FunctionName, json.loads(Payload)))
        if fails == "denied":
            raise ClientError({"Error": {"Code": "AccessDeniedException"}}, "Invoke")
        error = {"FunctionError": "Unhandled"} if FunctionName == fails else {}
        return {"Payload": io.BytesIO(b"{}"), **error}

    clients = {
        "lambda": SimpleNamespace(invoke=invoke),
        "codedeploy": SimpleNamespace(
            put_lifecycle_event_hook_execution_status=lambda **answer: told.append(answer)
        ),
    }
    monkeypatch.setattr(hook, "make_client", lambda service, **_: clients[service])
    for name in ("consumer", "sweeper"):
        monkeypatch.setenv(f"{name.upper()}_VERSION", name)
    hook.handler({"DeploymentId": "d", "LifecycleEventHookExecutionId": "e"}, None)
    assert calls == [("consumer", {"Records": []}), ("sweeper", {})]
    status = "Failed" if fails else "Succeeded"
    answer = {"deploymentId": "d", "lifecycleEventHookExecutionId": "e", "status": status}
    assert told == [answer]
