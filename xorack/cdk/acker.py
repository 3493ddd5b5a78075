"""The acker as one construct."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from aws_cdk import (
    Annotations,
    ArnFormat,
    CfnOutput,
    Fn,
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

from xorack.aws.schema import TAG
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
from xorack.cdk.grants import IAcker, ImportedAcker, needed_statement
from xorack.cdk.permissions import (
    allow_alarms_to_use,
    allow_logs_to_use,
    for_account,
    logs_statement,
)
from xorack.cdk.queue import create_queues
from xorack.cdk.resume import ResumeAccess
from xorack.cdk.settings import Settings
from xorack.cdk.table import adopt_table, create_table
from xorack.cdk.validation import check_arguments, describe, has_own_policy, is_known_to_differ

_LONGEST_NAME = 200
"""A dashboard's name has the region, too, and at most 255 characters."""


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
        service: Name of the metrics' dimension, the bus and the dashboard; by default the stack's
            name and the construct's path in it.
    """

    settings: Settings | None
    table: aws_dynamodb.ITable | None
    queue: aws_sqs.IQueue | None
    dead_letters: aws_sqs.IQueue | None
    bus: aws_events.IEventBus | None
    encryption_key: aws_kms.IKey | None
    alarm_topic: aws_sns.ITopic | None
    network: Network | None
    service: str | None


def name_of(acker: Construct) -> str:
    """Return the name of an acker: its stack's name and its path in the stack.

    The metrics, the bus and the dashboard have it, so two stacks of one app share none of them.
    """
    scopes = acker.node.scopes
    stack = next(index for index, one in enumerate(scopes) if Stack.is_stack(one))
    parts = [Stack.of(scopes[stack]).stack_name, *(one.node.id for one in scopes[stack + 1 :])]
    name = re.sub("[^A-Za-z0-9_-]", "-", "-".join(parts))
    if len(name) <= _LONGEST_NAME:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return f"{name[: _LONGEST_NAME - 17]}-{digest}"


class Acker(IAcker):
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
        events: The bus (`events.bus`), rules on it (`events.rule`), its archive (`events.archive`).
        service: The name that the metrics, the bus and the dashboard have; with
            `monitoring="minimal"` there are no metrics, and it is None.
        consumer: The function that applies requests.
        messages: The event source mapping from the queue to the consumer.
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
        self._name = name = props.get("service") or name_of(self)
        bus = props.get("bus")
        self.service = None if settings.monitoring == "minimal" else name
        self._partition_key = settings.partition_key
        self._policies_ready = settings.policies_ready
        here = Stack.of(self).account
        self.events = AckEvents(self, "Events", self.table, name if bus is None else bus, here)
        if key is not None:
            allow_logs_to_use(key, self)
        self._resume = ResumeAccess(self, settings, props.get("network") is not None)
        resources = Resources(
            settings=settings,
            service=name,
            table=self.table,
            queue=self.queue,
            dead_letters=self.dead_letters,
            bus=self.events.bus,
            resume=self._resume,
            encryption_key=key,
            network=props.get("network"),
        )
        self.consumer = create_consumer(Construct(self, "Consumer"), resources)
        self.messages: Any = self.node.find_child("Consumer").node.find_child("Messages")
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
        if not settings.policies_ready:
            self._check_imported(key, topic)
        self.alarms = create_alarms(monitoring, resources, functions, topic)
        self.widget = self.dashboard = None
        if settings.monitoring == "full":
            widget = create_widget(Construct(self, "Widget"), resources)
            self.widget = widget.lambda_
            self.dashboard = create_dashboard(
                monitoring, resources, functions, self.alarms.values(), widget
            )

    @staticmethod
    def from_attributes(
        scope: Construct,
        construct_id: str,
        *,
        table_arn: str,
        queue_arn: str,
        event_bus_arn: str,
        service: str | None = None,
        encryption_key_arn: str | None = None,
        partition_key: str = TAG,
        policies_ready: bool = False,
    ) -> IAcker:
        """Return an acker of another stack or app, for grants, rules and metrics.

        Args:
            scope: Where to import it.
            construct_id: Id of the import.
            table_arn: ARN of its table.
            queue_arn: ARN of its queue.
            event_bus_arn: ARN of its bus.
            service: Its name, the stack's output `Service`; its metrics need it.
            encryption_key_arn: ARN of the key of its table and queue, if it has one of yours.
            partition_key: Name of the table's partition key.
            policies_ready: As `Settings.policies_ready`.

        Examples:
            Acker.from_attributes(
                self, "Acker", table_arn=…, queue_arn=…, event_bus_arn=…, service="xorack"
            ).grant_send(loader)
        """
        return ImportedAcker(
            scope,
            construct_id,
            table_arn=table_arn,
            queue_arn=queue_arn,
            event_bus_arn=event_bus_arn,
            service=service,
            encryption_key_arn=encryption_key_arn,
            partition_key=partition_key,
            policies_ready=policies_ready,
        )

    @classmethod
    def from_stack_outputs(
        cls, scope: Construct, construct_id: str, stack_name: str, **attributes: Any
    ) -> IAcker:
        """Return the acker of a stack of this account and region that exports its outputs.

        Args:
            scope: Where to import it.
            construct_id: Id of the import.
            stack_name: Name of its stack: this repository's, or one with `add_outputs()`.
            attributes: Those of `from_attributes` that are no outputs, such as
                `encryption_key_arn`.

        Examples:
            Acker.from_stack_outputs(self, "Acker", "xorack").grant_send(loader)
        """
        exported = {
            name: Fn.import_value(f"{stack_name}-{output}")
            for name, output in (
                ("table_arn", "TableArn"),
                ("queue_arn", "QueueArn"),
                ("event_bus_arn", "EventBusArn"),
                ("service", "Service"),
            )
        }
        return cls.from_attributes(scope, construct_id, **{**exported, **attributes})

    def add_outputs(self, *, exports: bool = True, parameters: str | None = None) -> None:
        """Add outputs to the stack: names and ARNs, by which `xorack --stack` finds the acker.

        Args:
            exports: Export them for `from_stack_outputs`, as the stack's name, a hyphen and theirs.
            parameters: Prefix of SSM parameters with the same values, such as ``/xorack``.

        Examples:
            acker.add_outputs(parameters="/xorack")
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
            "Service": (self._name, "Dimension of the metrics, name of a created bus"),
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

    def grant_resume(
        self, waiting: aws_stepfunctions.IStateMachine | aws_lambda.IFunction
    ) -> aws_iam.Grant:
        """Let chains resume tasks of a state machine, or callbacks of a durable function.

        A `create` may then name who waits for its chain's end: docs/schedulers.md.

        Args:
            waiting: A state machine or a durable function of this account and region.

        Raises:
            TypeError: It is neither.
            ValueError: It is of another account or region: AWS takes no token from there.

        Examples:
            acker.grant_resume(orders)
        """
        return self._resume.allow(waiting)

    def _check_imported(self, key: aws_kms.IKey | None, topic: aws_sns.ITopic | None) -> None:
        """Name the statements that imported resources need in their own policies.

        Where it is known that one is of another account, the calls would be denied: an error.
        """
        here, stack = aws_iam.AccountPrincipal(Stack.of(self).account), Stack.of(self)
        alarms = aws_iam.ServicePrincipal("cloudwatch.amazonaws.com")
        for argument, resource, arn, grantee, action in (
            ("bus", self.events.bus, self.events.bus.event_bus_arn, here, "events:PutEvents"),
            ("alarm_topic", topic, topic and topic.topic_arn, alarms, "sns:Publish"),
        ):
            if resource is None or has_own_policy(resource) or not arn:
                continue
            owner = stack.split_arn(arn, ArnFormat.COLON_RESOURCE_NAME).account
            if owner is not None and is_known_to_differ(owner, stack.account):
                caller = for_account(grantee, stack.account)
                statement = needed_statement(self, caller, arn, action)
                self._check_policy(argument, resource, describe(grantee), statement)
        if key is not None and not has_own_policy(key):
            needed = json.dumps(stack.resolve(logs_statement(self).to_statement_json()))
            Annotations.of(self).add_warning_v2(
                "xorack:imported-key",
                f"the policy of {key.node.path} cannot be changed, since it was imported: "
                f"CloudWatch Logs needs its statement {needed}. The setting "
                "policies_ready=true says that it is there",
            )
