"""What is in the queues of an acker: messages that are not applied yet, and dead-lettered ones."""

from __future__ import annotations

from typing import Any, NamedTuple

from botocore.exceptions import BotoCoreError, ClientError

from xorack.ops.text import plural

_WAITING = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)


class Backlog(NamedTuple):
    """Numbers of messages, as SQS approximates them.

    Attributes:
        waiting: Messages in the acker's queue, those that the consumer works on among them.
        dead_letters: Messages in the dead-letter queue.
    """

    waiting: int
    dead_letters: int

    def __str__(self) -> str:
        """Say what is in the queues; empty if nothing is."""
        waiting = plural(self.waiting, "message")
        dead = plural(self.dead_letters, "dead letter")
        parts = [f"{waiting} not applied yet" if self.waiting else ""]
        parts.append(f"{dead}: xorack dead-letters list" if self.dead_letters else "")
        return "; ".join(filter(None, parts))


def read_backlog(client: Any, queue_url: str, dead_letters_url: str) -> Backlog | None:
    """Ask SQS for the depth of both queues, a call each; None if it does not say.

    Readers of chains go on without it: they may lack the permission sqs:GetQueueAttributes.
    """

    def depth(url: str) -> int:
        response = client.get_queue_attributes(QueueUrl=url, AttributeNames=[*_WAITING])
        return sum(int(response.get("Attributes", {}).get(name, 0)) for name in _WAITING)

    try:
        return Backlog(depth(queue_url), depth(dead_letters_url))
    except (ClientError, BotoCoreError):
        return None
