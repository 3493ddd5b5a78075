"""The event bus and its rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from aws_cdk import (
    Aws,
    CfnCondition,
    Duration,
    Fn,
    Stack,
    aws_dynamodb,
    aws_events,
    aws_iam,
)
from constructs import Construct

from xorack.cdk.validation import check_place, has_own_policy, is_known_to_differ

SOURCE: Final = "xorack"
STATUSES: Final = ("acked", "failed")


def name_for(bus: aws_events.IEventBus, caller: Construct) -> str:
    """Return the name by which a caller reaches a bus: its ARN if it is in another account."""
    same_account = bus.env.account == Stack.of(caller).account
    return bus.event_bus_name if same_account else bus.event_bus_arn


def _stack_of_targets(targets: Sequence[Any]) -> Stack | None:
    """Return the stack of the first target that is a queue, topic or state machine of this app."""
    for target in targets:
        for attribute in ("queue", "topic", "machine"):
            resource = getattr(target, attribute, None)
            if resource is not None and has_own_policy(resource):
                return Stack.of(resource)
    return None


class AckEvents(Construct):
    """The bus of the chains' events: a new bus with this name, or the user's bus.

    Attributes:
        bus: The bus.
        table: The table of the chains. Its ARN distinguishes the events of several ackers.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        table: aws_dynamodb.ITable,
        bus: aws_events.IEventBus | str,
        account: str,
    ) -> None:
        super().__init__(scope, construct_id)
        self.table, self._account, self.denies_others = table, account, False
        if isinstance(bus, str):
            text = "Chains that were acked or that failed"
            bus = aws_events.EventBus(self, "Bus", event_bus_name=bus, description=text)
        if ":event-busv2/" in bus.event_bus_arn:
            raise ValueError(
                f"bus: {bus.node.path} is a custom event bus of AWS::EventsV2, expected a bus of "
                "AWS::Events, because the functions call PutEvents, which does not accept it"
            )
        self.bus = bus
        owner: Any = bus.node.scope
        if isinstance(owner, AckEvents) and owner is not self and owner.denies_others:
            raise ValueError(
                f"bus: {bus.node.path} denies events of all but its own acker: set "
                "deny_forged_events=false for the acker that creates it"
            )

    def check_at_deployment(self) -> None:
        """Make the deployment fail if an imported bus of this account does not exist.

        CloudFormation can create a rule only on an existing bus. The rule is disabled, and its
        pattern matches no events.
        """
        stack, bus = Stack.of(self), self.bus
        if has_own_policy(bus) or is_known_to_differ(bus.env.account, stack.account):
            return
        rule = aws_events.Rule(
            self,
            "BusExists",
            description="Makes the deployment fail if the bus does not exist; it does nothing else",
            event_bus=bus,
            enabled=False,
            event_pattern=aws_events.EventPattern(source=["xorack.bus-exists"]),
        )
        # Only the deployment knows whether the accounts are equal.
        if bus.env.account != stack.account:
            same = Fn.condition_equals(bus.env.account, Aws.ACCOUNT_ID)
            resource: Any = rule.node.default_child
            resource.cfn_options.condition = CfnCondition(self, "BusIsHere", expression=same)

    def deny_forged_events(self, publishers: Sequence[aws_iam.IRole]) -> None:
        """Deny all principals except these roles to put events of the acker's source on the bus."""
        self.denies_others = True
        arns = [role.role_arn for role in publishers]
        statement = aws_iam.PolicyStatement(
            sid="OnlyTheAckerPublishes",
            effect=aws_iam.Effect.DENY,
            principals=[aws_iam.AnyPrincipal()],
            actions=["events:PutEvents"],
            resources=[self.bus.event_bus_arn],
            conditions={
                # A call with several entries has several sources.
                "ForAnyValue:StringEquals": {"events:source": SOURCE},
                "ArnNotEquals": {"aws:PrincipalArn": arns},
            },
        )
        bus: Any = self.bus  # the acker created this bus, so its policy can be changed
        bus.add_to_resource_policy(statement)

    def rule(
        self,
        construct_id: str,
        *,
        targets: Sequence[aws_events.IRuleTarget],
        statuses: Sequence[str] = STATUSES,
        scope: Construct | None = None,
    ) -> aws_events.Rule:
        """Send events of this acker's ended chains to targets.

        A rule for a queue, a topic or a state machine in another stack of the app is created in
        that stack. So only that stack depends on the acker's stack, and the acker's stack does not
        depend on it.

        Args:
            construct_id: The id of the rule, unique on this bus.
            targets: The receivers of the events.
            statuses: `acked`, `failed` or both.
            scope: The scope in which to create the rule. By default, the scope of the acker, or the
                stack of the targets' queue, topic or state machine. For functions in another stack,
                pass that stack.

        Raises:
            ValueError: `statuses` is empty or has an unknown status. Or the bus is in another
                account, in which its rules have to be created.

        Examples:
            acker.events.rule("Done", targets=[targets.SqsQueue(done)], statuses=["acked"])
        """
        hint = ": a rule has to be where its bus is"
        check_place(f"rule: {self.bus.node.path}", self.bus.env, Stack.of(self), hint)
        if not statuses or not set(statuses) <= set(STATUSES):
            raise ValueError(f"statuses is {list(statuses)!r}: expected some of {STATUSES}")
        scope, own = scope or _stack_of_targets(targets), Stack.of(self)
        if scope is not None and Stack.of(scope) is not own:
            # Several ackers may have rules with this id in that stack.
            construct_id = f"{self.node.addr}{construct_id}"
        return aws_events.Rule(
            scope or self,
            construct_id,
            event_bus=self.bus,
            event_pattern=aws_events.EventPattern(
                # Other accounts may put events with any source and resource, but not with this
                # account.
                account=[self._account],
                source=[SOURCE],
                detail_type=list(statuses),
                resources=[self.table.table_arn],
            ),
            targets=list(targets),
        )

    def archive(self, construct_id: str, *, retention: Duration) -> aws_events.Archive:
        """Archive the events of this acker's chains, so that EventBridge can replay them.

        Args:
            construct_id: The id of the archive.
            retention: How long the archive keeps an event; 0 means for ever.

        Examples:
            acker.events.archive("Archive", retention=Duration.days(30))
        """
        return aws_events.Archive(
            self,
            construct_id,
            source_event_bus=self.bus,
            event_pattern=aws_events.EventPattern(
                source=[SOURCE], resources=[self.table.table_arn]
            ),
            retention=retention,
        )
