"""The acker as one construct."""

from __future__ import annotations

import re
from typing import Any

from aws_cdk import (
    Annotations,
    CfnOutput,
    Stack,
    aws_dynamodb,
    aws_events,
    aws_iam,
    aws_kms,
    aws_lambda,
    aws_sns,
    aws_sqs,
    aws_ssm,
    aws_stepfunctions,
)
from constructs import Construct
from typing_extensions import TypedDict, Unpack

from xorack.aws.schema import SHOWN
from xorack.cdk.alarms import create_alarms
from xorack.cdk.dashboard import create_dashboard
from xorack.cdk.events import AckEvents, name_for
from xorack.cdk.functions import (
    Network,
    Resources,
    create_consumer,
    create_sweeper,
    create_widget,
)
from xorack.cdk.permissions import (
    READ_WITH_KEY,
    SEND_WITH_KEY,
    allow_alarms_to_use,
    allow_logs_to_use,
    for_account,
)
from xorack.cdk.queue import create_queues
from xorack.cdk.resume import ResumeAccess
from xorack.cdk.settings import Settings
from xorack.cdk.table import adopt_table, create_table, index_arn
from xorack.cdk.validation import check_arguments, check_kind, describe, is_external

_READ = ("dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:Scan")


class AckerProps(TypedDict, total=False):
    """Arguments of `Acker`; without one, the acker takes a default or creates the resource.

    Attributes:
        settings: Settings of the acker.
        table: Your table of chains, for nothing else, with its key, its index of deadlines and its
            TTL attribute complete; or an imported one, which the functions check.
        queue: Your standard queue of requests, for nothing else.
        dead_letters: Your queue of rejected requests; by default the one that `queue` names.
        bus: Your bus for the chains' events.
        encryption_key: Your key for the table, the queues that the acker creates, and the
            functions' logs and environments. A key of this app lets CloudWatch Logs use it; the
            policy of an imported key must.
        alarm_topic: Your topic for alarms, as in `Settings.alarm_topic_arn`. A topic of this app
            and its key let the account's alarms use them; the policies of an imported one must.
        network: Your VPC for the functions.
    """

    settings: Settings | None
    table: aws_dynamodb.ITable | None
    queue: aws_sqs.IQueue | None
    dead_letters: aws_sqs.IQueue | None
    bus: aws_events.IEventBus | None
    encryption_key: aws_kms.IKey | None
    alarm_topic: aws_sns.ITopic | None
    network: Network | None


class Acker(Construct):
    """Everything between a queue of requests and a bus of events.

    `AckerProps` describes its keyword arguments.

    Examples:
        In a stack of your own:

            acker = Acker(self, "Acker", settings=Settings(batch_size=500))
            acker.grant_send(my_producer)
            acker.events.rule("Done", targets=[targets.SqsQueue(done)], statuses=["acked"])

    Attributes:
        settings: The settings.
        table: The table of chains.
        queue: The queue of requests.
        dead_letters: The dead-letter queue.
        events: The bus (`events.bus`), and rules on it (`events.rule`).
        consumer: The function that applies requests.
        sweeper: The function that times chains out.
        widget: The function that shows unfinished chains on the dashboard; None without one.
        alarms: The alarms, by construct id; with `monitoring="full"` two of them are composites.
        dashboard: The dashboard; None without one.

    Raises:
        ArgumentError: A setting is invalid.
        TypeError: An argument is of another kind.
        ValueError: A supplied resource is of the right kind, but cannot work.
    """

    def __init__(self, scope: Construct, construct_id: str, **props: Unpack[AckerProps]) -> None:
        super().__init__(scope, construct_id)
        check_arguments(self, props)
        self.settings = settings = props.get("settings") or Settings()
        key = props.get("encryption_key")
        chains = Construct(self, "Chains")
        adopted = adopt_table(chains, settings, props.get("table"))
        self.table = adopted or create_table(chains, settings, key)
        supplied = props.get("queue"), props.get("dead_letters")
        queues = create_queues(Construct(self, "Stamps"), settings, key, *supplied)
        self.queue, self.dead_letters = queues
        self.events = AckEvents(self, "Events", self.table, props.get("bus"))
        if key is not None:
            allow_logs_to_use(key, self)
        self._resume = ResumeAccess(self, settings, props.get("network") is not None)
        resources = Resources(
            settings=settings,
            # Two ackers must not share metrics.
            service=settings.service or re.sub("[^A-Za-z0-9_-]", "-", self.node.path)[-200:],
            table=self.table,
            queue=self.queue,
            dead_letters=self.dead_letters,
            bus=self.events.bus,
            resume=self._resume,
            encryption_key=key,
            network=props.get("network"),
        )
        self.consumer = create_consumer(Construct(self, "Consumer"), resources)
        self.sweeper = create_sweeper(Construct(self, "Sweeper"), resources)
        monitoring = Construct(self, "Monitoring")
        functions = {"Consumer": self.consumer, "Sweeper": self.sweeper}
        topic = props.get("alarm_topic")
        if topic is None and settings.alarm_topic_arn:
            topic = aws_sns.Topic.from_topic_arn(monitoring, "Topic", settings.alarm_topic_arn)
        if topic is not None:
            allow_alarms_to_use(topic, self)
        else:
            Annotations.of(self).add_warning_v2(
                "xorack:no-alarm-topic",
                "nobody is told of alarms: name a topic with the setting alarm_topic_arn, or "
                "acknowledge this if the alarms have actions of yours",
            )
        self.alarms = create_alarms(monitoring, resources, functions, topic)
        self.widget = self.dashboard = None
        if settings.monitoring == "full":
            widget = create_widget(Construct(self, "Widget"), resources)
            self.widget = widget.lambda_
            self.dashboard = create_dashboard(
                monitoring, resources, functions, self.alarms.values(), widget
            )

    def grant_send(self, grantee: aws_iam.IGrantable) -> aws_iam.Grant:
        """Allow a producer, such as a Spark job, to send requests.

        Args:
            grantee: A principal. The policies of the queue and of its key allow a service, or a
                principal of another account. They allow a service without conditions of yours for
                this account only.

        Raises:
            TypeError: The grantee is not an IGrantable.
            ValueError: The policy of an imported queue would have to change.
        """
        check_kind("grantee", grantee)
        imported = not isinstance(self.queue.node.default_child, aws_sqs.CfnQueue)
        if imported and is_external(grantee, self.queue.env.account):
            raise ValueError(
                f"grant_send: the policy of {self.queue.node.path} cannot be changed, since it was "
                f"imported: it has to allow {describe(grantee)} itself"
            )
        grant = aws_iam.Grant.add_to_principal_or_resource(
            grantee=for_account(grantee, self.queue.env.account),
            actions=["sqs:SendMessage"],
            resource_arns=[self.queue.queue_arn],
            resource=self.queue,
        )
        key = self.queue.encryption_master_key
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
        """
        check_kind("grantee", grantee)
        shown = [self.settings.partition_key, *SHOWN]
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
        if not grant.success or is_external(grantee, self.table.env.account):
            raise ValueError(
                f"grant_read: {describe(grantee)} cannot read in this account: expected a "
                "role, user or group of it (which others may assume)"
            )
        for other in others:
            grant = grant.combine(other)
        key = self.table.encryption_key
        return grant if key is None else grant.combine(key.grant(grantee, *READ_WITH_KEY))

    def add_outputs(self, *, exports: bool = False, parameters: str | None = None) -> None:
        """Add outputs to the stack: names and ARNs, by which `xorack --stack` finds the acker.

        Args:
            exports: Export them, under the stack's name, a hyphen and theirs.
            parameters: Prefix of SSM parameters with the same values, such as ``/xorack``.
        """
        dead_letters, bus = self.dead_letters, self.events.bus
        outputs = {
            "TableName": (self.table.table_name, "Table of chains"),
            "TableArn": (self.table.table_arn, "Its ARN, also the resource of events"),
            "QueueUrl": (self.queue.queue_url, "Queue of requests"),
            "QueueArn": (self.queue.queue_arn, "Its ARN"),
            "DeadLetterQueueUrl": (dead_letters.queue_url, "Rejected and dead-lettered messages"),
            "DeadLetterQueueArn": (dead_letters.queue_arn, "Its ARN"),
            "EventBusName": (name_for(bus, self), "Bus of the chains' events"),
            "EventBusArn": (bus.event_bus_arn, "Its ARN"),
            "ConsumerName": (self.consumer.function_name, "Applies requests"),
            "ConsumerArn": (self.consumer.function_arn, "Its ARN; its alias is live"),
            "RetentionSeconds": (str(self.settings.retention_seconds), "Life of finished chains"),
            "SweeperName": (self.sweeper.function_name, "Times chains out"),
            "SweeperArn": (self.sweeper.function_arn, "Its ARN; its alias is live"),
        }
        if self.dashboard is not None:
            outputs["DashboardName"] = (self.dashboard.dashboard_name, "Dashboard")
        stack, scope = Stack.of(self), Construct(self, "Parameters")
        for name, (value, description) in outputs.items():
            export = f"{stack.stack_name}-{name}" if exports else None
            CfnOutput(stack, name, value=value, description=description, export_name=export)
            if parameters is not None:
                path = f"{parameters.rstrip('/')}/{name}"
                aws_ssm.StringParameter(
                    scope, name, parameter_name=path, string_value=value, description=description
                )

    def grant_resume(self, waiting: aws_stepfunctions.IStateMachine | aws_lambda.IFunction) -> None:
        """Let chains resume tasks of a state machine, or callbacks of a durable function.

        A `create` may then name who waits for its chain's end: docs/resume.md.

        Args:
            waiting: A state machine or a durable function of this account and region.

        Raises:
            TypeError: It is neither.
            ValueError: It is of another account or region: AWS takes no token from there.
        """
        self._resume.allow(waiting)
