"""Grants, rules and metrics, for ackers of this app and for imported ackers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import aws_cdk as cdk
from constructs import Construct

from xorack.aws.schema import METRIC_NAMESPACE, SHOWN, TAG, Metric
from xorack.cdk.callbacks import kind_of, statement_of
from xorack.cdk.events import AckEvents
from xorack.cdk.network import Network
from xorack.cdk.permissions import (
    READ_WITH_KEY,
    SEND_WITH_KEY,
    WRITE_WITH_KEY,
    check_policy,
    combined,
    for_account,
)
from xorack.cdk.roles import grant_to
from xorack.cdk.settings import Settings
from xorack.cdk.table import index_arn
from xorack.cdk.validation import (
    check_kind,
    check_place,
    is_external,
    warn_if_nothing_is_attached,
)

_READ: Final = ("dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:Scan")
_OPERATE: Final = (*_READ, "dynamodb:DescribeTable", "dynamodb:UpdateItem")
_OPERATE_QUEUE: Final = ("sqs:GetQueueAttributes", "sqs:SendMessage")
_OPERATE_DEAD_LETTERS: Final = (
    *("sqs:ChangeMessageVisibility", "sqs:DeleteMessage"),
    *("sqs:GetQueueAttributes", "sqs:ReceiveMessage"),
)
_METRICS: Final = frozenset(
    name for key, name in vars(Metric).items() if key.isupper() and isinstance(name, str)
)


def _grant(
    grantee: cdk.aws_iam.IGrantable,
    permissions: Iterable[tuple[str, Sequence[str], Any]],
    keys: Iterable[tuple[cdk.aws_kms.IKey | None, Sequence[str]]],
) -> cdk.aws_iam.Grant:
    """Allow a grantee actions on resources, each under conditions, and the use of their keys."""
    grants = [
        cdk.aws_iam.Grant.add_to_principal(
            grantee=grantee, actions=[*actions], resource_arns=[arn], conditions=conditions
        )
        for arn, actions, conditions in permissions
    ]
    return combined(
        grants + [key.grant(grantee, *actions) for key, actions in keys if key is not None]
    )


def place_of(scope: Construct, table_arn: str, **queue_arns: str | None) -> cdk.ArnComponents:
    """Return the account and region of an imported acker: None where its ARNs are tokens.

    Raises:
        ValueError: The table and a queue are known to be in different places.
    """
    stack, formats = cdk.Stack.of(scope), cdk.ArnFormat
    table = stack.split_arn(table_arn, formats.SLASH_RESOURCE_NAME)
    for name, arn in queue_arns.items():
        if arn is not None:
            queue = stack.split_arn(arn, formats.NO_RESOURCE_NAME)
            check_place(f"{name}: {arn!r}", queue, table, ", where table_arn is")
    return table


class IAcker(Construct):
    """An acker: an `Acker` of this app, or an acker that `Acker.from_attributes` has imported.

    Attributes:
        table: The table of chains.
        queue: The queue of requests.
        dead_letters: The dead-letter queue; None if it was not imported.
        events: The bus (`events.bus`), its rules (`events.rule`) and its archive
            (`events.archive`).
        service: The value of the metrics' dimension `service`. None if there are no metrics, or if
            the name was not imported.
        role_names: The names of its functions' roles; empty if they were not imported.
    """

    table: cdk.aws_dynamodb.ITable
    table_key: cdk.aws_kms.IKey | None
    queue: cdk.aws_sqs.IQueue
    dead_letters: cdk.aws_sqs.IQueue | None
    events: AckEvents
    service: str | None
    role_names: Sequence[str] = ()

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        partition_key: str = TAG,
        policies_ready: bool = False,
        place: cdk.ArnComponents | None = None,
    ) -> None:
        super().__init__(scope, construct_id)
        self._partition_key, self._policies_ready = partition_key, policies_ready
        self._place = place

    def grant_send(self, grantee: cdk.aws_iam.IGrantable) -> cdk.aws_iam.Grant:
        """Allow a producer, such as a Spark job, to send requests.

        Args:
            grantee: A principal. A service, or a principal of another account, is allowed in the
                policies of the queue and its key. Without conditions of yours, a service is allowed
                only for this account.

        Raises:
            TypeError: The grantee is not an IGrantable.
            ValueError: The policy of an imported queue or key has to change. The error has the
                required statement. Set `Settings.policies_ready` once the statement exists.

        Examples:
            acker.grant_send(cdk.aws_iam.Role(self, "Loader", assumed_by=glue))
        """
        check_kind("grantee", grantee)
        queue, key = self.queue, self.queue.encryption_master_key
        account = queue.env.account
        sender = for_account(grantee, account)
        if is_external(grantee, account) and not self._policies_ready:
            check_policy("grant_send", queue, sender, queue.queue_arn, "sqs:SendMessage")
            check_policy("grant_send", key, grantee, "*", *SEND_WITH_KEY)
        warn_if_nothing_is_attached(self, grantee, "sqs:SendMessage", queue.queue_arn)
        grant = cdk.aws_iam.Grant.add_to_principal_or_resource(
            grantee=sender,
            actions=["sqs:SendMessage"],
            resource_arns=[queue.queue_arn],
            resource=queue,
        )
        return grant if key is None else grant.combine(key.grant(grantee, *SEND_WITH_KEY))

    def grant_read(self, grantee: cdk.aws_iam.IGrantable) -> cdk.aws_iam.Grant:
        """Allow a dashboard, `xorack show` or `xorack list` to read chains.

        All attributes except `resume` are allowed, because `resume` contains the callback's secret
        token. So each read has to name its attributes. A read of all attributes is denied.

        Args:
            grantee: A role, user or group in the table's account.

        Raises:
            TypeError: The grantee is not an IGrantable.
            ValueError: The grantee is a service, or in another account.

        Examples:
            acker.grant_read(cdk.aws_iam.Role(self, "Support", assumed_by=people))
        """
        self._check_reader("grant_read", grantee, "dynamodb:GetItem")
        limits: dict[str, Any] = {
            "ForAllValues:StringEquals": {"dynamodb:Attributes": [self._partition_key, *SHOWN]},
            "Null": {"dynamodb:Attributes": "false"},
            "StringEqualsIfExists": {"dynamodb:Select": "SPECIFIC_ATTRIBUTES"},
        }
        return _grant(
            grantee,
            [
                (self.table.table_arn, _READ, limits),
                (self.table.table_arn, ["dynamodb:DescribeTable"], None),
                (index_arn(self.table), ["dynamodb:Query"], None),
            ],
            [(self.table_key, READ_WITH_KEY)],
        )

    def grant_operate(self, grantee: cdk.aws_iam.IGrantable) -> cdk.aws_iam.Grant:
        """Allow an operator all calls to this acker that the commands of `xorack` make.

        These are `list`, `show`, `wait`, `explain`, `extend`, `fail`, `dead-letters` and `web`. An
        operator can read entire items, including the tokens of callbacks. An operator cannot put
        events on the bus: the sweeper publishes the ends that `fail` causes.

        Args:
            grantee: A role, user or group in the table's account.

        Raises:
            TypeError: The grantee is not an IGrantable.
            ValueError: The grantee is a service, or in another account. Or the acker was imported
                without its dead-letter queue.

        Examples:
            acker.grant_operate(cdk.aws_iam.Role(self, "OnCall", assumed_by=people))
        """
        self._check_reader("grant_operate", grantee, "dynamodb:UpdateItem")
        if self.dead_letters is None:
            raise ValueError(
                f"grant_operate: {self.node.path} was imported without `dead_letters_arn`; pass it"
            )
        queue, dead = self.queue, self.dead_letters
        return _grant(
            grantee,
            [
                (self.table.table_arn, _OPERATE, None),
                (index_arn(self.table), ["dynamodb:Query"], None),
                (queue.queue_arn, _OPERATE_QUEUE, None),
                (dead.queue_arn, _OPERATE_DEAD_LETTERS, None),
                ("*", ["cloudwatch:GetMetricStatistics"], None),
            ],
            [
                (self.table_key, WRITE_WITH_KEY),
                (queue.encryption_master_key, SEND_WITH_KEY),
                (dead.encryption_master_key, READ_WITH_KEY),
            ],
        )

    def grant_resume(
        self, waiting: cdk.aws_stepfunctions.IStateMachine | cdk.aws_lambda.IFunction
    ) -> cdk.aws_iam.Grant:
        """Allow chains to complete tasks of a state machine or callbacks of a durable function.

        A `create` may then name the callback that its chain's end completes; see
        docs/schedulers.md. The functions of an imported acker accept such a `create` if the acker's
        setting `resume` is not `none`. The value `granted` accepts callbacks of both kinds, and
        gives no permission by itself.

        Args:
            waiting: A state machine or a durable function of this account and region.

        Raises:
            TypeError: It is neither.
            ValueError: It is of another account or region: AWS takes no
                token from there. Or the acker was imported without the names of its functions'
                roles.

        Examples:
            acker.grant_resume(orders)
        """
        kind = kind_of(self, self._place, waiting)
        self._accept_callbacks(kind)
        return grant_to(self._roles_beside(waiting), statement_of(kind, waiting))

    def _accept_callbacks(self, kind: str) -> None:
        """Let the functions accept callbacks of a kind. Functions of another app stay unchanged."""

    def _roles_beside(self, waiting: cdk.IResource) -> Sequence[cdk.aws_iam.IRole]:
        """Import the functions' roles into an execution's stack, which gets the policy.

        A policy in the acker's stack would contain the execution's ARN. If the execution also sends
        requests, both stacks would then depend on each other.
        """
        if not self.role_names:
            raise ValueError(
                f"grant_resume: {self.node.path} was imported without `role_names`; pass them"
            )
        stack = cdk.Stack.of(waiting)
        scope = Construct(stack, f"ResumedBy{self.node.addr}{len(stack.node.children)}")
        return [
            cdk.aws_iam.Role.from_role_name(scope, f"Role{number}", name)
            for number, name in enumerate(self.role_names)
        ]

    def _check_reader(self, call: str, grantee: cdk.aws_iam.IGrantable, action: str) -> None:
        """Check that a grantee can read in the table's account; warn if it takes no policy."""
        check_kind("grantee", grantee)
        if is_external(grantee, self.table.env.account):
            principal = grantee.grant_principal.policy_fragment.principal_json
            raise ValueError(
                f"{call}: {principal} cannot read in this account: expected a role, user or group "
                "of this account, which others may assume"
            )
        warn_if_nothing_is_attached(self, grantee, action, self.table.table_arn)

    def metric(self, name: str, **options: Any) -> cdk.aws_cloudwatch.Metric:
        """Return a metric that the functions emit, by default its sum over five minutes.

        Args:
            name: The name in docs/operations.md, such as ``Conflicts``.
            options: Options of `aws_cloudwatch.Metric`, such as `period` and `statistic`.

        Raises:
            ValueError: The functions do not emit this metric, or this acker emits no metrics.

        Examples:
            acker.metric("AckLatency", statistic="p99").create_alarm(
                self, "Slow", threshold=60_000, evaluation_periods=3
            )
        """
        if self.service is None:
            raise ValueError(
                f"metric: {self.node.path} emits none; do not set its monitoring to minimal, or "
                "pass its `service` to the import"
            )
        if name not in _METRICS:
            raise ValueError(f"metric: {name!r}, expected one of {', '.join(sorted(_METRICS))}")
        place = self._place
        where = {"account": place.account, "region": place.region} if place else {}
        metric = cdk.aws_cloudwatch.Metric(
            namespace=METRIC_NAMESPACE,
            metric_name=name,
            dimensions_map={"service": self.service},
            **{"statistic": "Sum", **where, **options},
        )
        # The metrics of an imported acker are in its table's account and region.
        return metric if place else metric.attach_to(self)

    def metric_acked(self, **options: Any) -> cdk.aws_cloudwatch.Metric:
        """Return the number of chains that were acked.

        Examples:
            acker.metric_acked(period=Duration.hours(1))
        """
        return self.metric(Metric.CHAINS_ACKED, **options)

    def metric_failed(self, **options: Any) -> cdk.aws_cloudwatch.Metric:
        """Return the number of chains that failed.

        Examples:
            acker.metric_failed().create_alarm(self, "Lost", threshold=1, evaluation_periods=1)
        """
        return self.metric(Metric.CHAINS_FAILED, **options)

    def metric_oldest_pending(self, **options: Any) -> cdk.aws_cloudwatch.Metric:
        """Return the seconds since the end of the earliest chain with an unpublished event.

        Examples:
            acker.metric_oldest_pending(period=Duration.minutes(1))
        """
        return self.metric(Metric.EVENTS_PENDING_SECONDS, **{"statistic": "Maximum", **options})


class AckerParts(IAcker):
    """The parts of an acker of this app, for the modules that create and monitor these parts."""

    name: str
    settings: Settings
    dead_letters: cdk.aws_sqs.IQueue  # never None
    encryption_key: cdk.aws_kms.IKey | None
    network: Network | None
    own_role: cdk.aws_iam.IRole | None
    consumer: cdk.aws_lambda.Function
    sweeper: cdk.aws_lambda.Function
    alarms: dict[str, cdk.aws_cloudwatch.AlarmBase]
