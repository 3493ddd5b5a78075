"""The acker as one construct, for this project's stack and for anybody's."""

from __future__ import annotations

import dataclasses
import re

from aws_cdk import aws_events, aws_iam, aws_kms, aws_sns, aws_sqs
from constructs import Construct

from xorack.cdk.consumer import Consumer
from xorack.cdk.events import AckEvents
from xorack.cdk.function import Network, Surroundings, let_logs_use, read_with, send_with
from xorack.cdk.monitoring import Monitoring
from xorack.cdk.queue import StampQueue
from xorack.cdk.settings import Settings
from xorack.cdk.sweeper import Sweeper
from xorack.cdk.table import ChainTable
from xorack.cdk.validation import (
    check_grantee,
    check_key,
    check_kind,
    check_region,
    from_outside,
    who,
)
from xorack.cdk.widget import ChainsWidget


class Acker(Construct):
    """Everything that turns stamps on a queue into events on a bus.

    Example:
        In a stack of your own::

            acker = Acker(self, "Acker", settings=Settings(batch_size=500))
            acker.grant_send(my_producer)
            acker.events.rule("Done", targets=[targets.SqsQueue(done)], statuses=["acked"])

    Attributes:
        settings: The settings that it was made with.
        table: Where chains live (`table.table`).
        queue: The queue and its dead letters (`queue.queue`, `queue.dead_letters`).
        events: The bus (`events.bus`), and rules on it (`events.rule`).
        consumer: What applies requests (`consumer.function`).
        sweeper: What ends chains whose time is up (`sweeper.function`).
        widget: What shows unfinished chains on the dashboard (`widget.function`); None without one.
        monitoring: The alarms and the dashboard.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: Settings | None = None,
        queue: aws_sqs.IQueue | None = None,
        dead_letters: aws_sqs.IQueue | None = None,
        bus: aws_events.IEventBus | None = None,
        encryption_key: aws_kms.IKey | None = None,
        alarm_topic: aws_sns.ITopic | None = None,
        network: Network | None = None,
    ) -> None:
        """Make an acker; what is not given is made with it.

        Args:
            scope: Where it belongs.
            construct_id: Its name there.
            settings: How it is to be; sensible for production by default.
            queue: A standard queue of yours that takes the requests, and nothing else.
            dead_letters: A queue of yours for what was refused. By default the one that `queue`
                itself names, as far as is known, else one of its own.
            bus: A bus of yours that the ends of chains are told on.
            encryption_key: A key of yours for the table, the queues that are made here, and the
                functions' logs. One that is made in this app is told to let CloudWatch Logs use
                it; an imported one has to by its own policy.
            alarm_topic: A topic of yours that is told of alarms, as `Settings.alarm_topic_arn`.
            network: A network of yours for the functions.

        Raises:
            SettingError: A setting makes no sense.
            TypeError: What was given is of another kind than what it is given as.
            ValueError: What was given is of the right kind, but cannot be worked with.
        """
        super().__init__(scope, construct_id)
        if settings is not None and not isinstance(settings, Settings):
            raise TypeError(f"settings is {settings!r}: expected a Settings")
        if network is not None and not isinstance(network, Network):
            raise TypeError(f"network is {network!r}: expected a Network")
        for name, given, attribute, kind in (
            ("queue", queue, "queue_arn", "an IQueue"),
            ("dead_letters", dead_letters, "queue_arn", "an IQueue"),
            ("bus", bus, "event_bus_arn", "an IEventBus"),
            ("encryption_key", encryption_key, "key_arn", "an IKey"),
            ("alarm_topic", alarm_topic, "topic_arn", "an ITopic"),
        ):
            check_kind(name, given, attribute, kind)
            check_region(name, given, self)
        check_key("encryption_key", encryption_key)
        settings = settings or Settings()
        if settings.service is None:
            # Two ackers, in one stack or in two, must not count as one.
            name = re.sub("[^A-Za-z0-9_-]", "-", self.node.path)[-200:]
            settings = dataclasses.replace(settings, service=name)
        self.settings = settings
        self.table = ChainTable(self, "Chains", settings=settings, encryption_key=encryption_key)
        self.queue = StampQueue(
            self,
            "Stamps",
            settings=settings,
            queue=queue,
            dead_letters=dead_letters,
            encryption_key=encryption_key,
        )
        self.events = AckEvents(self, "Events", bus=bus)
        if encryption_key is not None:
            let_logs_use(encryption_key, self)
        around = Surroundings(
            settings=settings,
            table=self.table.table,
            index_arn=self.table.index_arn,
            dead_letters=self.queue.dead_letters,
            bus=self.events.bus,
            encryption_key=encryption_key,
            network=network,
        )
        self.consumer = Consumer(self, "Consumer", around, queue=self.queue.queue)
        self.sweeper = Sweeper(self, "Sweeper", around)
        self.widget = ChainsWidget(self, "Widget", around) if settings.dashboard else None
        self.monitoring = Monitoring(
            self,
            "Monitoring",
            settings=settings,
            table=self.table.table,
            queue=self.queue.queue,
            dead_letters=self.queue.dead_letters,
            consumer=self.consumer.function,
            sweeper=self.sweeper.function,
            widget=None if self.widget is None else self.widget.function,
            topic=alarm_topic,
        )

    def grant_send(self, grantee: aws_iam.IGrantable) -> aws_iam.Grant:
        """Let somebody send requests: a Spark job, a producer.

        Args:
            grantee: Who may. Somebody of another account, or a service, is let in by the queue's
                policy, and by that of its key.

        Returns:
            The grant.

        Raises:
            TypeError: The grantee is none.
            ValueError: It takes the queue's policy, and the queue is an imported one.
        """
        check_grantee(grantee)
        queue = self.queue.queue
        made_here = isinstance(queue.node.default_child, aws_sqs.CfnQueue)
        if not made_here and from_outside(grantee, queue.env.account):
            raise ValueError(
                f"grant_send: the policy of {queue.node.path} cannot be changed, since it was "
                f"imported: it has to let {who(grantee)} in by itself"
            )
        grant = aws_iam.Grant.add_to_principal_or_resource(
            grantee=grantee,
            actions=["sqs:SendMessage"],
            resource_arns=[queue.queue_arn],
            resource=queue,
        )
        key = queue.encryption_master_key
        return _with_key(grant, grantee, key, send_with(key))

    def grant_read(self, grantee: aws_iam.IGrantable) -> aws_iam.Grant:
        """Let somebody look at chains: a dashboard, `xorack show` and `xorack list`.

        Args:
            grantee: Who may: a role, user or group of the account that the table is in.

        Returns:
            The grant.

        Raises:
            TypeError: The grantee is none.
            ValueError: The grantee is somebody else, whom nothing here could let in.
        """
        check_grantee(grantee)
        table = self.table.table
        grant = aws_iam.Grant.add_to_principal(
            grantee=grantee,
            actions=[
                "dynamodb:BatchGetItem",
                "dynamodb:DescribeTable",
                "dynamodb:GetItem",
                "dynamodb:Query",
                "dynamodb:Scan",
            ],
            resource_arns=[table.table_arn, self.table.index_arn],
        )
        if not grant.success or from_outside(grantee, table.env.account):
            raise ValueError(
                f"grant_read: {who(grantee)} reads nothing of this account: expected a "
                "role, user or group of it (which others may assume)"
            )
        return _with_key(grant, grantee, table.encryption_key, read_with(table.encryption_key))


def _with_key(
    grant: aws_iam.Grant,
    grantee: aws_iam.IGrantable,
    key: aws_kms.IKey | None,
    statements: list[aws_iam.PolicyStatement],
) -> aws_iam.Grant:
    """A grant and what the key of its resource takes besides."""
    if key is not None:
        for statement in statements:
            grant = grant.combine(key.grant(grantee, *statement.actions))
    return grant
