"""The rollout of new code: a tenth of the work first, the rest if no alarm rings.

docs/rollout.md tells operators about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from aws_cdk import (
    Acknowledgment,
    Duration,
    Validations,
    aws_cloudwatch,
    aws_codedeploy,
    aws_iam,
    aws_lambda,
)
from constructs import Construct

from xorack.cdk.permissions import allow

_CANARY: Final = aws_codedeploy.LambdaDeploymentConfig.CANARY_10_PERCENT_15_MINUTES
_MAX_ALARMS: Final = 10
"""CodeDeploy's limit."""


def create_canaries(
    scope: Construct,
    aliases: Mapping[str, aws_lambda.Alias],
    alarms: Iterable[aws_cloudwatch.IAlarm],
) -> None:
    """Let CodeDeploy move the aliases to new versions, and back if an alarm rings.

    Args:
        scope: The parent of the constructs.
        aliases: The aliases by construct id, each of another function.
        alarms: Alarms that stop a deployment, besides one for errors of the new version.

    Raises:
        ValueError: There are more alarms than CodeDeploy takes.
    """
    shared = list(alarms)
    if len(shared) >= _MAX_ALARMS:
        raise ValueError(f"alarms: {len(shared)}, expected less than {_MAX_ALARMS} for a canary")
    application = aws_codedeploy.LambdaApplication(scope, "Application")
    role = _role(scope, aliases.values())
    for name, alias in aliases.items():
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
    return aws_cloudwatch.Alarm(
        scope,
        name,
        metric=metric,
        alarm_description="The new version failed: its deployment is rolled back.",
        threshold=0,
        comparison_operator=aws_cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
        evaluation_periods=1,
        treat_missing_data=aws_cloudwatch.TreatMissingData.NOT_BREACHING,
    )


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
    finding = Acknowledgment(id="AwsSolutions-IAM5[Resource::*]", reason=reason)
    Validations.of(role).acknowledge(finding)
    return role
