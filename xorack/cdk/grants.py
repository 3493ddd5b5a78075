"""What an acker of this app and one of another have in common: grants, rules, metrics."""

from __future__ import annotations

import json
from typing import Any, Final

from aws_cdk import ArnFormat, Stack, aws_cloudwatch, aws_dynamodb, aws_iam, aws_kms, aws_sqs
from constructs import Construct

from xorack.aws.schema import SHOWN, Metric
from xorack.cdk.events import AckEvents
from xorack.cdk.functions import emitted
from xorack.cdk.permissions import READ_WITH_KEY, SEND_WITH_KEY, for_account
from xorack.cdk.table import index_arn
from xorack.cdk.validation import check_kind, describe, has_own_policy, is_external

_READ: Final = ("dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:Scan")
_METRICS: Final = frozenset(
    name for key, name in vars(Metric).items() if key.isupper() and isinstance(name, str)
)


class IAcker(Construct):
    """An acker of this app, an `Acker`, or of another, as `Acker.from_attributes` returns it.

    Attributes:
        table: The table of chains.
        queue: The queue of requests.
        events: The bus (`events.bus`), rules on it (`events.rule`), its archive (`events.archive`).
        service: Its name: the metrics' dimension `service`; None if it emits none, or is unknown.
    """

    table: aws_dynamodb.ITable
    queue: aws_sqs.IQueue
    events: AckEvents
    service: str | None
    _partition_key: str
    _policies_ready: bool

    def grant_send(self, grantee: aws_iam.IGrantable) -> aws_iam.Grant:
        """Allow a producer, such as a Spark job, to send requests.

        Args:
            grantee: A principal. The policies of the queue and of its key allow a service, or a
                principal of another account. They allow a service without conditions of yours for
                this account only.

        Raises:
            TypeError: The grantee is not an IGrantable.
            ValueError: The policy of an imported queue or key would have to change. The text has
                the statement that it needs; `Settings.policies_ready` says that it is there.

        Examples:
            acker.grant_send(aws_iam.Role(self, "Loader", assumed_by=glue))
        """
        check_kind("grantee", grantee)
        queue, key = self.queue, self.queue.encryption_master_key
        account = queue.env.account
        sender = for_account(grantee, account)
        if is_external(grantee, account) and not self._policies_ready:
            send = needed_statement(self, sender, queue.queue_arn, "sqs:SendMessage")
            self._check_policy("grant_send", queue, describe(grantee), send)
            use = needed_statement(self, grantee, "*", *SEND_WITH_KEY)
            self._check_policy("grant_send", key, describe(grantee), use)
        grant = aws_iam.Grant.add_to_principal_or_resource(
            grantee=sender,
            actions=["sqs:SendMessage"],
            resource_arns=[queue.queue_arn],
            resource=queue,
        )
        return grant if key is None else grant.combine(key.grant(grantee, *SEND_WITH_KEY))

    def grant_read(self, grantee: aws_iam.IGrantable) -> aws_iam.Grant:
        """Allow a dashboard, `xorack show` or `xorack list` to read chains.

        It shows all attributes but `resume`, the token of who waits. So a read has to name its
        attributes: one of whole items is denied.

        Args:
            grantee: A role, user or group of the table's account.

        Raises:
            TypeError: The grantee is not an IGrantable.
            ValueError: The grantee is a service, or of another account.

        Examples:
            acker.grant_read(aws_iam.Role(self, "Support", assumed_by=people))
        """
        check_kind("grantee", grantee)
        if is_external(grantee, self.table.env.account):
            raise ValueError(
                f"grant_read: {describe(grantee)} cannot read in this account: expected a "
                "role, user or group of it (which others may assume)"
            )
        shown = [self._partition_key, *SHOWN]
        conditions: dict[str, Any] = {
            "ForAllValues:StringEquals": {"dynamodb:Attributes": shown},
            "Null": {"dynamodb:Attributes": "false"},
            "StringEqualsIfExists": {"dynamodb:Select": "SPECIFIC_ATTRIBUTES"},
        }
        grant, *others = (
            aws_iam.Grant.add_to_principal(
                grantee=grantee, actions=[*actions], resource_arns=[arn], conditions=limits
            )
            for arn, actions, limits in (
                (self.table.table_arn, _READ, conditions),
                (self.table.table_arn, ["dynamodb:DescribeTable"], None),
                (index_arn(self.table), ["dynamodb:Query"], None),
            )
        )
        for other in others:
            grant = grant.combine(other)
        key = self.table.encryption_key
        return grant if key is None else grant.combine(key.grant(grantee, *READ_WITH_KEY))

    def metric(self, name: str, **options: Any) -> aws_cloudwatch.Metric:
        """Return a metric that the functions emit: by default its sum over five minutes.

        Args:
            name: Its name in docs/operations.md, such as ``Conflicts``.
            options: Those of `aws_cloudwatch.Metric`, such as `period` and `statistic`.

        Raises:
            ValueError: The functions emit no such metric, or this acker none at all.

        Examples:
            acker.metric("AckLatency", statistic="p99").create_alarm(
                self, "Slow", threshold=60_000, evaluation_periods=3
            )
        """
        if self.service is None:
            raise ValueError(
                f"metric: {self.node.path} has none: its monitoring is minimal, or it was imported "
                "without its `service`"
            )
        if name not in _METRICS:
            raise ValueError(f"metric: {name!r}, expected one of {', '.join(sorted(_METRICS))}")
        return emitted(self.service, name, **options).attach_to(self)

    def metric_acked(self, **options: Any) -> aws_cloudwatch.Metric:
        """Return the number of chains that were acked.

        Examples:
            acker.metric_acked(period=Duration.hours(1))
        """
        return self.metric(Metric.CHAINS_ACKED, **options)

    def metric_failed(self, **options: Any) -> aws_cloudwatch.Metric:
        """Return the number of chains that failed.

        Examples:
            acker.metric_failed().create_alarm(self, "Lost", threshold=1, evaluation_periods=1)
        """
        return self.metric(Metric.CHAINS_FAILED, **options)

    def metric_oldest_pending(self, **options: Any) -> aws_cloudwatch.Metric:
        """Return the seconds since the end of the first chain whose event is not published.

        Examples:
            acker.metric_oldest_pending(period=Duration.minutes(1))
        """
        return self.metric(Metric.EVENTS_PENDING_SECONDS, **{"statistic": "Maximum", **options})

    def _check_policy(self, source: str, resource: Any, who: str, statement: str) -> None:
        """Raise ValueError if the policy of an imported resource would have to allow somebody."""
        if resource is not None and not has_own_policy(resource):
            raise ValueError(
                f"{source}: the policy of {resource.node.path} cannot be changed, since it was "
                f"imported: it has to allow {who} itself, by the statement {statement}. The "
                "setting policies_ready=true says that it does"
            )


def needed_statement(scope: Construct, grantee: aws_iam.IGrantable, arn: str, *actions: str) -> str:
    """Return a statement for the policy of an imported resource, as JSON."""
    statement = aws_iam.PolicyStatement(
        principals=[grantee.grant_principal], actions=[*actions], resources=[arn]
    )
    return json.dumps(Stack.of(scope).resolve(statement.to_statement_json()), sort_keys=True)


class ImportedAcker(IAcker):
    """An acker that exists already: of another stack or app."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        table_arn: str,
        queue_arn: str,
        event_bus_arn: str,
        service: str | None,
        encryption_key_arn: str | None,
        partition_key: str,
        policies_ready: bool,
    ) -> None:
        from aws_cdk import aws_events

        super().__init__(scope, construct_id)
        self.service, self._partition_key = service, partition_key
        self._policies_ready = policies_ready
        key = encryption_key_arn and aws_kms.Key.from_key_arn(self, "Key", encryption_key_arn)
        self.table = aws_dynamodb.Table.from_table_attributes(
            self, "Table", table_arn=table_arn, encryption_key=key or None
        )
        self.queue = aws_sqs.Queue.from_queue_attributes(
            self, "Queue", queue_arn=queue_arn, key_arn=encryption_key_arn
        )
        bus = aws_events.EventBus.from_event_bus_arn(self, "Bus", event_bus_arn)
        arn = Stack.of(self).split_arn(table_arn, ArnFormat.SLASH_RESOURCE_NAME)
        self.events = AckEvents(
            self, "Events", self.table, bus, arn.account or Stack.of(self).account
        )
