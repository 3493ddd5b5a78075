"""The queue of stamps and its dead letters."""

from __future__ import annotations

from aws_cdk import Duration, aws_sqs
from constructs import Construct

from infra.settings import Settings
from infra.table import removal_policy


class StampQueue(Construct):
    """A standard queue and its dead-letter queue, both encrypted and open to TLS only.

    A standard queue, not FIFO: the order of requests does not matter to XOR, and what makes a
    request count once is its id, which outlasts the five minutes of a FIFO queue.

    Attributes:
        queue: Where producers send requests.
        dead_letters: Where requests go that were refused, and messages that failed too often.
    """

    def __init__(self, scope: Construct, construct_id: str, *, settings: Settings) -> None:
        super().__init__(scope, construct_id)
        self.dead_letters = aws_sqs.Queue(
            self,
            "DeadLetters",
            encryption=aws_sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=Duration.days(settings.dead_letter_retention_days),
            removal_policy=removal_policy(settings),
        )
        self.queue = aws_sqs.Queue(
            self,
            "Queue",
            encryption=aws_sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=Duration.days(settings.queue_retention_days),
            visibility_timeout=Duration.seconds(settings.visibility_timeout_seconds),
            dead_letter_queue=aws_sqs.DeadLetterQueue(
                queue=self.dead_letters, max_receive_count=settings.max_receive_count
            ),
            removal_policy=removal_policy(settings),
        )
