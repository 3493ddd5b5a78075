"""The rollout of new code: a tenth of the work first, the rest if no alarm rings.

Before that, a hook runs the new versions once. docs/rollout.md tells operators about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from aws_cdk import (
    Duration,
    Stack,
    aws_cloudwatch,
    aws_codedeploy,
    aws_iam,
    aws_lambda,
)
from constructs import Construct

from xorack.aws.schema import Metric
from xorack.cdk.alarms import create_alarm
from xorack.cdk.functions import Resources, create_function
from xorack.cdk.permissions import acknowledge, allow

_CANARY: Final = aws_codedeploy.LambdaDeploymentConfig.CANARY_10_PERCENT_15_MINUTES


def create_canaries(
    scope: Construct,
    resources: Resources,
    aliases: Mapping[str, aws_lambda.Alias],
    alarms: Iterable[aws_cloudwatch.IAlarm],
) -> None:
    """Let CodeDeploy move the aliases to new versions, and back if an alarm rings.

    The aliases are by construct id. An error of the new version stops a deployment, too.
    """
    shared = [*alarms]
    if resources.settings.monitoring == "full":
        shared.append(_failed_messages(scope, resources))
    application = aws_codedeploy.LambdaApplication(scope, "Application")
    role = _role(scope, aliases.values())
    groups = [
        aws_codedeploy.LambdaDeploymentGroup(
            scope,
            name,
            alias=alias,
            application=application,
            deployment_config=_CANARY,
            alarms=[_new_errors(scope, f"{name}NewErrors", alias), *shared],
            auto_rollback=aws_codedeploy.AutoRollbackConfig(
                failed_deployment=True, stopped_deployment=True, deployment_in_alarm=True
            ),
            # The CDK would attach a policy of AWS that allows all functions.
            role=role.without_policy_updates(),
        )
        for name, alias in aliases.items()
    ]
    hook = _hook(Construct(scope, "Hook"), resources, aliases, groups)
    # By the hook's policy: the hook names the groups, and they the role.
    hook.add_permission("CodeDeploy", principal=aws_iam.ArnPrincipal(role.role_arn))
    for group, alias in zip(groups, aliases.values(), strict=True):
        group.add_pre_hook(hook)
        alias.node.add_dependency(hook.node.find_child("CodeDeploy"))


def _hook(
    scope: Construct,
    resources: Resources,
    aliases: Mapping[str, aws_lambda.Alias],
    groups: Sequence[aws_codedeploy.LambdaDeploymentGroup],
) -> aws_lambda.Function:
    """Create the function that runs the new versions before they get traffic."""
    settings = resources.settings
    used = aliases.values()
    answer = "codedeploy:PutLifecycleEventHookExecutionStatus"
    hook = create_function(
        scope,
        resources,
        name="hook",
        description="Runs new versions once before they get traffic",
        timeout_seconds=min(
            900, settings.function_timeout_seconds + settings.sweeper_timeout_seconds
        ),
        statements=[
            # A version's own ARN would be a change of the policy just before its use.
            *(allow(f"{one.lambda_.function_arn}:*", "lambda:InvokeFunction") for one in used),
            *(allow(group.deployment_group_arn, answer) for group in groups),
        ],
    )
    for name, alias in aliases.items():
        hook.add_environment(f"{name.upper()}_VERSION", alias.version.function_arn)
        function: Any = alias.lambda_.node.default_child
        arn = f"<{Stack.of(scope).get_logical_id(function)}.Arn>"
        reason = "The hook invokes each new version, and no other function"
        acknowledge(scope, f"AwsSolutions-IAM5[Resource::{arn}:*]", reason)
    return hook


def _failed_messages(scope: Construct, resources: Resources) -> aws_cloudwatch.Alarm:
    """Create an alarm for messages that fail in each of some minutes, whichever version fails them.

    A message of a sender's mistake does not: its request is rejected.
    """
    metric = resources.metric(Metric.MESSAGES_FAILED, period=Duration.minutes(1))
    description = "Messages fail: the deployment of a new version is rolled back."
    return create_alarm(scope, "MessagesFailing", metric, description, out_of=(3, 5))


def _new_errors(scope: Construct, name: str, alias: aws_lambda.Alias) -> aws_cloudwatch.Alarm:
    """Create an alarm for errors of the alias's new version.

    A ratio of errors of both versions would hide those of a tenth. Errors of the old version ring
    nothing here: they must not stop the deployment that ends them.
    """
    metric = aws_cloudwatch.Metric(
        namespace="AWS/Lambda",
        metric_name="Errors",
        dimensions_map={
            "FunctionName": alias.lambda_.function_name,
            "Resource": f"{alias.lambda_.function_name}:{alias.alias_name}",
            "ExecutedVersion": alias.version.version,
        },
        period=Duration.minutes(1),
        statistic="Sum",
    )
    description = "The new version failed: its deployment is rolled back."
    return create_alarm(scope, name, metric, description, out_of=(None, 1))


def _role(scope: Construct, aliases: Iterable[aws_lambda.Alias]) -> aws_iam.Role:
    """Create the role of CodeDeploy: AWS's policy for it, for these functions only."""
    functions = [one.lambda_.function_arn for one in aliases]
    # An alias's own ARN would be a circle: the alias needs the deployment group, and that its role.
    functions += [f"{one.lambda_.function_arn}:{one.alias_name}" for one in aliases]
    move = aws_iam.PolicyStatement(
        actions=["lambda:GetAlias", "lambda:GetProvisionedConcurrencyConfig", "lambda:UpdateAlias"],
        resources=functions,
    )
    # With a narrower resource, CloudWatch hides composite alarms.
    look = allow("*", "cloudwatch:DescribeAlarms")
    role = aws_iam.Role(
        scope,
        "Role",
        assumed_by=aws_iam.ServicePrincipal("codedeploy.amazonaws.com"),
        description="Permissions of CodeDeploy to move the functions' aliases",
        inline_policies={"Access": aws_iam.PolicyDocument(statements=[move, look])},
    )
    reason = "With a narrower resource, DescribeAlarms hides composite alarms; it reads only"
    acknowledge(role, "AwsSolutions-IAM5[Resource::*]", reason)
    return role
