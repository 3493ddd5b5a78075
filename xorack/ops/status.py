"""How chains stand, for people and their programs: one chain, many, and ending one by hand.

Reads the table only; `fail` writes through the same code as the consumer does.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from xorack.aws.client import error_code, make_client
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.core.chain import Chain
from xorack.core.clock import milliseconds
from xorack.core.errors import NotAChain, TagNotFound, XorAckError
from xorack.core.event import outstanding_of, rfc3339
from xorack.core.ports import ChainStore, Publisher
from xorack.core.request import Request, validate_tag
from xorack.core.retry import RetryPolicy

__all__ = [
    "STATUSES",
    "ChainStatus",
    "Failed",
    "NotAStack",
    "Resources",
    "fail",
    "find_stack",
    "list_chains",
    "look_up",
    "partition_key_of",
    "status_of",
]

STATUSES = ("pending", "open", "acked", "failed")


class NotAStack(XorAckError):
    """A CloudFormation stack that is not there, or is not one of xorack's."""


@dataclass(frozen=True)
class Resources:
    """What a stack's outputs name.

    Attributes:
        table_name: The table of the chains.
        queue_url: Where stamps are sent.
        dead_letter_queue_url: Where refused requests are.
        bus_name: Where events go.
    """

    table_name: str
    queue_url: str
    dead_letter_queue_url: str
    bus_name: str


def find_stack(name: str, client: Any = None) -> Resources:
    """Find a stack's resources by its outputs.

    Args:
        name: The CloudFormation stack's name.
        client: A boto3 CloudFormation client; one of the default chain if None.

    Returns:
        The resources.

    Raises:
        NotAStack: There is no such stack in this account and region, or it has other outputs.
        botocore.exceptions.ClientError: What CloudFormation refused.
    """
    client = make_client("cloudformation") if client is None else client
    try:
        (stack,) = client.describe_stacks(StackName=name)["Stacks"]
    except ClientError as error:
        message = error.response.get("Error", {}).get("Message", "")
        if error_code(error) == "ValidationError" and "does not exist" in message:
            region = client.meta.region_name
            raise NotAStack(f"there is no stack {name} in {region}") from error
        raise
    outputs = {one["OutputKey"]: one["OutputValue"] for one in stack.get("Outputs", [])}
    wanted = ("TableName", "QueueUrl", "DeadLetterQueueUrl", "EventBusName")
    missing = [key for key in wanted if key not in outputs]
    if missing:
        raise NotAStack(
            f"stack {name} is {stack['StackStatus']} and has no output {', '.join(missing)}"
        )
    return Resources(*(outputs[key] for key in wanted))


def partition_key_of(table_name: str, client: Any = None) -> str:
    """The name of a table's partition key.

    Args:
        table_name: The table.
        client: A boto3 DynamoDB client; one of the default chain if None.

    Returns:
        The attribute's name.

    Raises:
        botocore.exceptions.ClientError: There is no such table, or it may not be looked at.
    """
    client = make_client("dynamodb") if client is None else client
    schema = client.describe_table(TableName=table_name)["Table"]["KeySchema"]
    return str(next(key["AttributeName"] for key in schema if key["KeyType"] == "HASH"))


@dataclass(frozen=True)
class ChainStatus:
    """How a chain stands. Times are milliseconds since 1970.

    Attributes:
        chain: The chain as it is kept.
        percent: Finished of started units, 0 to 100; None where its senders do not count.
        age_ms: Since it was created or first heard of, until it ended or now; None where unknown.
        deadline: When it fails at the latest, by its timeout or its idle timeout; None: never, or
            it has ended.
        outstanding: Ids of units that are started and not finished, in order, as far as known.
        outstanding_complete: Whether these are all.
    """

    chain: Chain
    percent: float | None
    age_ms: int | None
    deadline: int | None
    outstanding: tuple[int, ...]
    outstanding_complete: bool

    def to_json(self) -> dict[str, Any]:
        """The same for programs: what `xorack show --json` prints.

        Returns:
            A JSON object.
        """
        chain = self.chain
        return {
            "tag": chain.tag,
            "status": chain.status,
            "percent": self.percent,
            "started": chain.started,
            "finished": chain.finished,
            "created_at": rfc3339(chain.created_at),
            "last_stamp_at": rfc3339(chain.last_stamp_at),
            "ended_at": rfc3339(chain.ended_at),
            "age_seconds": None if self.age_ms is None else self.age_ms / 1000,
            "deadline": rfc3339(self.deadline),
            "reason": chain.reason or chain.failing,
            "event_pending": chain.event_pending,
            "outstanding": [f"{unit:016x}" for unit in self.outstanding],
            "outstanding_complete": self.outstanding_complete,
            "stamp_bytes": len(chain.stamp),
        }


def status_of(chain: Chain, now: int) -> ChainStatus:
    """How a chain stands.

    Args:
        chain: The chain.
        now: Milliseconds since 1970.

    Returns:
        Its status.
    """
    percent: float | None = None
    if chain.status == "acked":
        percent = 100.0
    elif chain.started > 0:
        # Rounded down: 100 % is what is done, and not what is nearly done. And more finished than
        # started is what comes of messages that overtake each other.
        percent = min(chain.finished * 1000 // chain.started, 999) / 10
    first_seen_at = chain.created_at if chain.created_at is not None else chain.first_seen_at
    age = None if first_seen_at is None else max(0, (chain.ended_at or now) - first_seen_at)
    found = outstanding_of(chain)
    return ChainStatus(
        chain,
        percent,
        age,
        None if chain.final else chain.effective_deadline,
        tuple(sorted(found.ids)),
        found.complete,
    )


def look_up(store: ChainStore, tag: str, *, now: Callable[[], int] = milliseconds) -> ChainStatus:
    """Read how one chain stands, consistently.

    Args:
        store: Where it is kept.
        tag: The chain.
        now: The clock.

    Returns:
        Its status.

    Raises:
        InvalidRequest: The tag is none.
        NotAChain: What is there under this tag is some other program's.
        TagNotFound: There is no such chain.
        Unavailable: Try again.
    """
    chain = store.read([validate_tag(tag)]).get(tag)
    if chain is None:
        raise TagNotFound(tag)
    return status_of(chain, now())


def list_chains(
    store: DynamoDBStore,
    statuses: Collection[str] = STATUSES,
    *,
    now: Callable[[], int] = milliseconds,
    strange: Callable[[NotAChain], None] | None = None,
) -> Iterator[ChainStatus]:
    """Read how chains stand, in no order. Reads the table until the caller has enough.

    Args:
        store: The table.
        statuses: Which chains.
        now: The clock.
        strange: Is told of items that are no chains, and the others are read all the same.

    Yields:
        Their statuses.

    Raises:
        NotAChain: There is such an item, and nobody to tell.
        Unavailable: Try again.
    """
    for chain in store.scan(strange):
        if chain.status in statuses:
            yield status_of(chain, now())


@dataclass(frozen=True)
class Failed:
    """What `fail` did.

    Attributes:
        status: How the chain stands now.
        changed: Whether it was this that ended it; False where it had ended before.
        event_owed: Whether its event is left to the sweeper.
    """

    status: ChainStatus
    changed: bool
    event_owed: bool


def fail(
    store: ChainStore,
    tag: str,
    reason: str,
    *,
    publisher: Publisher | None = None,
    policy: RetryPolicy | None = None,
    now: Callable[[], int] = milliseconds,
) -> Failed:
    """End a chain as failed, now, and tell of it.

    The same write as the consumer's. Where no publisher is given, or it cannot be reached, the
    event stays owed, and the stack's sweeper publishes it within some minutes.

    Args:
        store: Where the chain is kept.
        tag: The chain.
        reason: Why, at most 1,024 bytes.
        publisher: Where its event goes.
        policy: When to try again.
        now: The clock.

    Returns:
        How the chain stands now.

    Raises:
        InvalidRequest: The tag or the reason is none.
        TagNotFound: There is no such chain.
        StaleLocalData: Others kept writing the chain until the retries were spent.
    """
    # Those who only look, such as the dashboard's widget, load none of it.
    from xorack.acker.chain_writer import ChainWriter
    from xorack.acker.outbox import Outbox

    writer = ChainWriter(store, clock=now, retry_policy=policy)
    request = Request("fail", tag, f"fail-{uuid.uuid4().hex}", reason=reason)
    chain, (outcome,) = writer.apply(tag, [request], must_exist=True)
    if chain is None:
        raise TagNotFound(tag)
    if outcome.error is not None:
        raise outcome.error
    pending = chain.event_pending
    if pending and publisher is not None:
        pending = tag in Outbox(writer, publisher).publish([chain])
    return Failed(status_of(chain, now()), outcome.kind == "applied", pending)
