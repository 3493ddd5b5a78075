"""The acker as a single construct."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import aws_cdk as cdk
from constructs import Construct

from xorack.aws.schema import TAG
from xorack.cdk.alarms import create_alarms
from xorack.cdk.callbacks import KINDS, statement_of_all
from xorack.cdk.dashboard import create_dashboard
from xorack.cdk.events import AckEvents, name_for
from xorack.cdk.functions import create_consumer, create_sweeper
from xorack.cdk.grants import AckerParts, IAcker, place_of
from xorack.cdk.network import Network
from xorack.cdk.permissions import (
    allow_alarms_to_use,
    as_json,
    check_policy,
    for_account,
    logs_statement,
)
from xorack.cdk.queue import create_queues
from xorack.cdk.roles import grant_to, name_policy, own_role
from xorack.cdk.settings import Settings
from xorack.cdk.table import adopt_table, create_table, key_of
from xorack.cdk.validation import (
    as_text,
    check_arguments,
    check_key,
    check_service,
    claim,
    has_own_policy,
    is_known_to_differ,
    warn_if_nothing_is_attached,
)

_Topic: TypeAlias = "cdk.aws_sns.ITopic | None"


def name_of(acker: Construct) -> str:
    """Return the name of an acker: its stack's name, its path and a hash of both.

    The hash distinguishes `prod-Acker` in the stack `orders` from `Acker` in `orders-prod`. The
    name of a dashboard also has the region, and both together may have 255 characters.
    """
    return cdk.Names.unique_resource_name(
        acker, separator="-", max_length=128, allowed_special_characters="-_"
    )


class Acker(AckerParts):
    """All resources between a queue of requests and a bus of events.

    Args:
        scope: The scope in which to create it, such as a stack.
        construct_id: Its id in the scope.
        settings: The settings of the acker.
        table: Your table of chains, which nothing else uses. It needs the key, the index of
            deadlines and the TTL attribute. The functions check an imported table.
        queue: Your standard queue of requests, which nothing else uses.
        dead_letters: Your queue of rejected requests. By default, the queue that `queue` names.
        bus: Your bus for the chains' events.
        encryption_key: Your key for the table, for the queues that the acker creates, and for the
            functions' logs and environments. If the key is in this app, CloudWatch Logs gets access
            to it. If it is imported, its policy must allow that.
        alarm_topic: Your topic for
            alarms, as in `Settings.alarm_topic_arn`. If the topic and its key are in this app, the
            account's alarms get access. If they are imported, their policies must allow that.
        network: Your VPC for the functions.
        role: Your role for both functions, which Lambda may assume. A policy in the acker's stack
            gives it their permissions. By default, each function has a role of its own, which
            takes no further permissions.
        service: The name of the metrics' dimension, the bus and the dashboard. By default, the
            stack's name and the construct's path in it.

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
        events: The bus (`events.bus`), its rules (`events.rule`) and its archive
            (`events.archive`).
        name: The name of the metrics' dimension, the bus and the dashboard.
        service: The same name; None with `monitoring="minimal"`, because there are no metrics.
        encryption_key: Your key, or None.
        network: Your VPC for the functions, or None.
        own_role: Your role for the functions, or None.
        consumer: The function that applies requests.
        messages: The event source mapping from the queue to the consumer.
        sweeper: The function that ends chains at their deadline.
        alarms: The alarms by construct id. With `monitoring="full"`, two of them are composites.
        dashboard: The dashboard, or None.

    Raises:
        ArgumentError: A setting is invalid.
        TypeError: An argument has the wrong type.
        ValueError: A resource that you passed cannot work.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: Settings | None = None,
        table: cdk.aws_dynamodb.ITable | None = None,
        queue: cdk.aws_sqs.IQueue | None = None,
        dead_letters: cdk.aws_sqs.IQueue | None = None,
        bus: cdk.aws_events.IEventBus | None = None,
        encryption_key: cdk.aws_kms.IKey | None = None,
        alarm_topic: _Topic = None,
        network: Network | None = None,
        role: cdk.aws_iam.IRole | None = None,
        service: str | None = None,
    ) -> None:
        super().__init__(scope, construct_id)
        self.settings = settings = settings or Settings()
        resources = {"table": table, "queue": queue, "dead_letters": dead_letters, "bus": bus}
        others = {"encryption_key": encryption_key, "alarm_topic": alarm_topic, "network": network}
        check_arguments(self, {"settings": settings, **resources, **others, "role": role})
        self.encryption_key = key = encryption_key
        self.network = network
        if service is not None:
            check_service(service)
        self.name = name = service or name_of(self)
        self.service = None if settings.monitoring == "minimal" else name
        self._partition_key = settings.partition_key
        self._policies_ready = settings.policies_ready
        self._keep_state(table, queue, dead_letters)
        account = cdk.Stack.of(self).account
        self.events = AckEvents(self, "Events", self.table, bus or name, account)
        self.events.check_at_deployment()
        if key is not None:
            key.add_to_resource_policy(logs_statement(self))
        self._create_functions(role)
        if bus is None and settings.deny_forged_events:
            self.events.deny_forged_events(self._roles)
        self._monitor(alarm_topic)

    def _keep_state(
        self,
        table: cdk.aws_dynamodb.ITable | None,
        queue: cdk.aws_sqs.IQueue | None,
        dead_letters: cdk.aws_sqs.IQueue | None,
    ) -> None:
        """Create the table and the queues, unless the user passes them."""
        settings, key = self.settings, self.encryption_key
        chains, queues = Construct(self, "Chains"), Construct(self, "Stamps")
        adopted = adopt_table(chains, settings, table, key)
        self.table = adopted or create_table(chains, settings, key)
        self.table_key = key_of(self.table, key)
        self.queue, self.dead_letters = create_queues(queues, settings, key, queue, dead_letters)
        claim(table=self.table, queue=self.queue, dead_letters=self.dead_letters)

    def _create_functions(self, role: cdk.aws_iam.IRole | None) -> None:
        """Create the consumer and the sweeper, each with a new role or with the user's role."""
        self.own_role = own_role(self, role)
        if role is not None:
            warn_if_nothing_is_attached(self, role, "dynamodb:UpdateItem", self.table.table_arn)
        self.consumer = create_consumer(Construct(self, "Consumer"), self)
        self.messages: Any = self.node.find_child("Consumer").node.find_child("Messages")
        self.sweeper = create_sweeper(Construct(self, "Sweeper"), self)
        functions: list[Any] = [self.consumer, self.sweeper]
        self._roles = (
            [self.own_role] if self.own_role else [function.role for function in functions]
        )
        self.role_names = [role.role_name for role in self._roles]
        if self.own_role is not None:
            name_policy(self.own_role)
        self._callbacks: set[str] = set()
        for kind in KINDS:
            if self.settings.resume in (kind, "all", "granted"):
                self._accept_callbacks(kind)
            if self.settings.resume in (kind, "all"):
                grant_to(self._roles, statement_of_all(self, kind))

    def _monitor(self, alarm_topic: _Topic) -> None:
        """Create the alarms and, with full monitoring, the dashboard."""
        monitoring = Construct(self, "Monitoring")
        topic = self._topic(monitoring, alarm_topic)
        if not self.settings.policies_ready:
            self._check_imported(self.encryption_key, topic)
        self.alarms = create_alarms(monitoring, self, topic)
        is_full = self.settings.monitoring == "full"
        self.dashboard = create_dashboard(monitoring, self) if is_full else None

    def _topic(self, scope: Construct, topic: _Topic) -> _Topic:
        """Return the topic for alarms, after allowing alarms to use it; warn if there is none."""
        arn = self.settings.alarm_topic_arn
        if topic is not None and arn is not None:
            raise ValueError(
                f"alarm_topic: {topic.node.path} was passed, and the setting `alarm_topic_arn` is "
                f"{arn!r}: expected only one of the two"
            )
        if arn:
            topic = cdk.aws_sns.Topic.from_topic_arn(scope, "Topic", arn)
        if topic is not None:
            check_arguments(self, {"alarm_topic": topic})
            allow_alarms_to_use(topic, self)
            return topic
        cdk.Annotations.of(self).add_warning_v2(
            "xorack:no-alarm-topic",
            "no one is notified of alarms: name a topic with the setting alarm_topic_arn, or "
            "acknowledge this if you have added actions to the alarms",
        )
        return None

    @staticmethod
    def from_attributes(
        scope: Construct,
        construct_id: str,
        *,
        table_arn: str,
        queue_arn: str,
        event_bus_arn: str,
        dead_letters_arn: str | None = None,
        service: str | None = None,
        encryption_key_arn: str | None = None,
        role_names: Sequence[str] = (),
        partition_key: str = TAG,
        policies_ready: bool = False,
    ) -> IAcker:
        """Return an acker of another stack or app, for grants, rules and metrics.

        Args:
            scope: The scope in which to import it.
            construct_id: The id of the import.
            table_arn: The ARN of its table.
            queue_arn: The ARN of its queue.
            event_bus_arn: The ARN of its bus.
            dead_letters_arn: The ARN of its dead-letter queue, which `grant_operate` needs.
            service: Its name, which is the stack's output `Service`. Its metrics need the name.
            encryption_key_arn: The ARN of the key of its table and queue, if it uses your key.
            role_names: The names of its functions' roles, which `grant_resume` needs.
            partition_key: The name of the table's partition key.
            policies_ready: See `Settings.policies_ready`.

        Examples:
            Acker.from_attributes(
                self, "Acker", table_arn=…, queue_arn=…, event_bus_arn=…, service="xorack"
            ).grant_send(loader)
        """
        if isinstance(role_names, str):
            raise TypeError(f"role_names is {role_names!r}: expected a list of names")
        place = place_of(scope, table_arn, queue_arn=queue_arn, dead_letters_arn=dead_letters_arn)
        acker = IAcker(scope, construct_id, partition_key, policies_ready, place)
        acker.service, arn, acker.role_names = service, encryption_key_arn, role_names
        key = cdk.aws_kms.Key.from_key_arn(acker, "Key", arn) if arn else None
        if key is not None:
            check_key("encryption_key_arn", key)
        acker.table_key = key
        acker.table = cdk.aws_dynamodb.Table.from_table_attributes(
            acker, "Table", table_arn=table_arn, encryption_key=key
        )
        acker.queue = cdk.aws_sqs.Queue.from_queue_attributes(
            acker, "Queue", queue_arn=queue_arn, key_arn=arn
        )
        queues = cdk.aws_sqs.Queue
        acker.dead_letters = None
        if dead_letters_arn is not None:
            acker.dead_letters = queues.from_queue_attributes(
                acker, "DeadLetters", queue_arn=dead_letters_arn, key_arn=arn
            )
        bus = cdk.aws_events.EventBus.from_event_bus_arn(acker, "Bus", event_bus_arn)
        account = place.account or cdk.Stack.of(acker).account
        acker.events = AckEvents(acker, "Events", acker.table, bus, account)
        return acker

    @classmethod
    def from_stack_outputs(
        cls,
        scope: Construct,
        construct_id: str,
        stack_name: str,
        *,
        prefix: str = "",
        **attributes: Any,
    ) -> IAcker:
        """Return the acker of a stack in this account and region that exports its outputs.

        Args:
            scope: The scope in which to import it.
            construct_id: The id of the import.
            stack_name: The name of its stack, which is this repository's or has `add_outputs()`.
            prefix: The prefix that was passed to `add_outputs`, if any.
            attributes: Arguments of `from_attributes` that are not outputs, such as
                `encryption_key_arn`.

        Examples:
            Acker.from_stack_outputs(self, "Acker", "xorack").grant_send(loader)
        """
        outputs = {
            "table_arn": "TableArn",
            "queue_arn": "QueueArn",
            "event_bus_arn": "EventBusArn",
            "dead_letters_arn": "DeadLetterQueueArn",
            "service": "Service",
        }
        exported: Any = {
            name: cdk.Fn.import_value(f"{stack_name}-{prefix}{output}")
            for name, output in outputs.items()
        }
        exported["role_names"] = [
            cdk.Fn.import_value(f"{stack_name}-{prefix}{function}RoleName")
            for function in ("Consumer", "Sweeper")
        ]
        return cls.from_attributes(scope, construct_id, **{**exported, **attributes})

    def add_outputs(self, *, prefix: str = "", stack_name: str | None = None) -> None:
        """Add names and ARNs to the stack's outputs.

        `xorack --stack` finds the acker by these outputs.

        The exports for `from_stack_outputs` begin with the stack's name and a hyphen.

        Args:
            prefix: A prefix of the names, for stacks that have several ackers.
            stack_name: The stack's name, if it is known only at the deployment.

        Examples:
            acker.add_outputs(prefix="Orders")
        """
        bus = self.events.bus
        outputs = {
            "TableName": (self.table.table_name, "Table of chains"),
            "TableArn": (self.table.table_arn, "Its ARN, also the resource of events"),
            "QueueUrl": (self.queue.queue_url, "Queue of requests"),
            "QueueArn": (self.queue.queue_arn, "Its ARN"),
            "DeadLetterQueueUrl": (self.dead_letters.queue_url, "Rejected and failed messages"),
            "DeadLetterQueueArn": (self.dead_letters.queue_arn, "Its ARN"),
            "EventBusName": (name_for(bus, self), "Bus of the chains' events"),
            "EventBusArn": (bus.event_bus_arn, "Its ARN"),
            "ConsumerName": (self.consumer.function_name, "Applies requests"),
            "RetentionSeconds": (
                as_text(self.settings.retention_seconds),
                "How long ended chains are kept",
            ),
            "Service": (self.name, "Dimension of the metrics, name of a created bus"),
            "SweeperName": (self.sweeper.function_name, "Times chains out"),
            "ConsumerRoleName": (self._roles[0].role_name, "Role of the consumer"),
            "SweeperRoleName": (self._roles[-1].role_name, "Role of the sweeper"),
        }
        if self.dashboard is not None:
            outputs["DashboardName"] = (self.dashboard.dashboard_name, "Dashboard")
        stack = cdk.Stack.of(self)
        if stack.node.try_find_child(f"{prefix}TableName"):
            raise ValueError(
                f"add_outputs: the stack {stack.node.path} has the outputs of another acker: give "
                "a prefix of their names"
            )
        for name, (value, description) in outputs.items():
            export = cdk.Fn.join("-", [stack_name or stack.stack_name, prefix + name])
            cdk.CfnOutput(
                stack, prefix + name, value=value, description=description, export_name=export
            )

    def _accept_callbacks(self, kind: str) -> None:
        self._callbacks.add(kind)
        for function in (self.consumer, self.sweeper):
            kinds = [name for name in KINDS if name in self._callbacks]
            function.add_environment("RESUME", ",".join(kinds))

    def _roles_beside(self, waiting: cdk.IResource) -> Sequence[cdk.aws_iam.IRole]:
        is_imported = waiting.node.default_child is None
        if is_imported or cdk.Stack.of(waiting) is cdk.Stack.of(self):
            return self._roles
        return super()._roles_beside(waiting)

    def _check_imported(self, key: cdk.aws_kms.IKey | None, topic: _Topic) -> None:
        """Check the policies of imported resources, and name the statements that they need.

        Raise an error if a resource is known to be in another account, because it would deny the
        calls.
        """
        account, bus = cdk.Stack.of(self).account, self.events.bus
        if is_known_to_differ(bus.env.account, account):
            functions = cdk.aws_iam.AccountPrincipal(account)
            check_policy("bus", bus, functions, bus.event_bus_arn, "events:PutEvents")
        if topic is not None and is_known_to_differ(topic.env.account, account):
            alarms: Any = cdk.aws_iam.ServicePrincipal("cloudwatch.amazonaws.com")
            grantee = for_account(alarms, account)
            check_policy("alarm_topic", topic, grantee, topic.topic_arn, "sns:Publish")
        if key is not None and not has_own_policy(key):
            needed = as_json(self, logs_statement(self))
            cdk.Annotations.of(self).add_warning_v2(
                "xorack:imported-key",
                f"the policy of {key.node.path} cannot be changed, because it was imported. "
                f"CloudWatch Logs needs its statement {needed}. Set policies_ready=true once it "
                "exists",
            )
