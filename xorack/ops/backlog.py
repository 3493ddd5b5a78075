"""What is in the queues of an acker: messages that are not applied yet, and dead-lettered ones."""

from __future__ import annotations

from typing import Any, NamedTuple

from botocore.exceptions import BotoCoreError, ClientError

from xorack.core.text import plural

_STATES = ("", "NotVisible", "Delayed")


class Backlog(NamedTuple):
    """Numbers of messages in the acker's queue and of dead letters, as SQS approximates them."""

    waiting: int
    dead_letters: int

    def __str__(self) -> str:
        """Say what is in the queues; empty if nothing is."""
        dead = plural(self.dead_letters, "dead letter")
        parts = [f"{plural(self.waiting, 'message')} not applied yet"] if self.waiting else []
        parts += [f"{dead}: xorack dead-letters list"] if self.dead_letters else []
        return "; ".join(parts)


def depth(client: Any, queue_url: str) -> int:
    """Ask SQS how many messages a queue holds: visible, in flight, delayed."""
    names = [f"ApproximateNumberOfMessages{state}" for state in _STATES]
    response = client.get_queue_attributes(QueueUrl=queue_url, AttributeNames=names)
    return sum(int(response.get("Attributes", {}).get(name, 0)) for name in names)


def read_backlog(client: Any, queue_url: str, dead_letters_url: str) -> Backlog | None:
    """Ask SQS for the depth of both queues; None if it does not say.

    Readers of chains go on without it: they may not have the permission sqs:GetQueueAttributes.
    """
    try:
        return Backlog(depth(client, queue_url), depth(client, dead_letters_url))
    except (ClientError, BotoCoreError):
        return None
