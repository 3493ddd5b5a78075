"""The queue of stamps and its dead letters."""

from __future__ import annotations

from typing import Any

from aws_cdk import Annotations, Duration, aws_kms, aws_sqs
from constructs import Construct

from xorack.cdk.settings import Settings
from xorack.cdk.table import removal_policy
from xorack.cdk.validation import check_key

_SQS_VISIBILITY_SECONDS = 30
_SQS_RETENTION_SECONDS = 4 * 86_400


class StampQueue(Construct):
    """A standard queue and its dead-letter queue, both encrypted and open to TLS only.

    A standard queue, not FIFO: the order of requests does not matter to XOR, and what makes a
    request count once is its id, which outlasts the five minutes of a FIFO queue.

    Attributes:
        queue: Where producers send requests.
        dead_letters: Where requests go that were refused, and messages that failed too often.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: Settings,
        queue: aws_sqs.IQueue | None = None,
        dead_letters: aws_sqs.IQueue | None = None,
        encryption_key: aws_kms.IKey | None = None,
    ) -> None:
        super().__init__(scope, construct_id)
        if queue is not None:
            # Only a queue that is defined in this app says which its dead letters are.
            named = getattr(queue, "dead_letter_queue", None)
            if dead_letters is None and named is not None:
                dead_letters = named.queue
            elif dead_letters is not None and named is not None:
                _check_same(dead_letters, named.queue, queue)
            key = queue.encryption_master_key
            # AWS's own key lets in whoever may use the queue.
            if key is not None and ":alias/aws/" not in key.key_arn:
                check_key("queue", key)
        made: dict[str, Any] = {
            "encryption": (
                aws_sqs.QueueEncryption.SQS_MANAGED
                if encryption_key is None
                else aws_sqs.QueueEncryption.KMS
            ),
            "encryption_master_key": encryption_key,
            "enforce_ssl": True,
            "removal_policy": removal_policy(settings),
        }
        self.dead_letters: aws_sqs.IQueue = dead_letters or aws_sqs.Queue(
            self,
            "DeadLetters",
            retention_period=Duration.days(settings.dead_letter_retention_days),
            **made,
        )
        self.queue: aws_sqs.IQueue = queue or aws_sqs.Queue(
            self,
            "Queue",
            retention_period=Duration.days(settings.queue_retention_days),
            visibility_timeout=Duration.seconds(settings.visibility_timeout_seconds),
            dead_letter_queue=aws_sqs.DeadLetterQueue(
                queue=self.dead_letters, max_receive_count=settings.max_receive_count
            ),
            **made,
        )
        self._check(settings)

    def _check(self, settings: Settings) -> None:
        """What is known of a queue that was brought must fit; of an imported one nothing is."""
        for name, queue in (("queue", self.queue), ("dead_letters", self.dead_letters)):
            if queue.fifo:
                raise ValueError(
                    f"{name}: {queue.node.path} is a FIFO queue, expected a standard one"
                )
        if self.dead_letters.queue_arn == self.queue.queue_arn:
            raise ValueError(
                f"dead_letters: {self.dead_letters.node.path} is the queue itself, expected "
                "another one: what is refused would come back, for ever"
            )
        resource: Any = self.queue.node.default_child
        if isinstance(resource, aws_sqs.CfnQueue) and resource.redrive_policy is None:
            Annotations.of(self).add_warning_v2(
                "xorack:no-dead-letter-queue",
                f"{self.queue.node.path} has no dead-letter queue: a message that fails again and "
                "again is tried until it is too old, and is lost then, without an alarm",
            )
        visibility = _known(self.queue, "visibility_timeout", _SQS_VISIBILITY_SECONDS)
        if visibility is not None and visibility < settings.visibility_timeout_seconds:
            raise ValueError(
                f"queue: the visibility timeout of {self.queue.node.path} is {visibility} seconds, "
                f"expected at least {settings.visibility_timeout_seconds}, six times the "
                "function's timeout and the batch window"
            )
        waits = [
            _known(queue, "message_retention_period", _SQS_RETENTION_SECONDS) or 0
            for queue in (self.queue, self.dead_letters)
        ]
        if 0 < waits[1] <= waits[0]:
            raise ValueError(
                f"dead_letters: {self.dead_letters.node.path} keeps messages for {waits[1]} "
                f"seconds, expected more than the queue ({waits[0]}), since a dead letter's age "
                "counts from when it was first sent"
            )
        if sum(waits) >= settings.retention_seconds:
            raise ValueError(
                f"queue: messages may come back for {sum(waits)} seconds, expected less than "
                f"retention_days, {settings.retention_days} days"
            )


def _check_same(given: aws_sqs.IQueue, named: aws_sqs.IQueue, queue: aws_sqs.IQueue) -> None:
    """Alarms and redriving look at one queue of dead letters: there must be no other."""
    if given.queue_arn != named.queue_arn:
        raise ValueError(
            f"dead_letters: {given.node.path} was given, but the dead letters of "
            f"{queue.node.path} are {named.node.path}: expected these, or none given"
        )


def _known(queue: aws_sqs.IQueue, attribute: str, default: int) -> int | None:
    """A queue's attribute in seconds; None where nobody knows it before it is deployed."""
    resource: Any = queue.node.default_child
    if not isinstance(resource, aws_sqs.CfnQueue):
        return None
    value = getattr(resource, attribute)
    if value is None:
        return default
    # A token, which stands for a value of the deployment, is a number below zero.
    return int(value) if isinstance(value, (int, float)) and value >= 0 else None
