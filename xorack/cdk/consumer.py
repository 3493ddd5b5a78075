"""The consumer: applies the queue's requests to chains."""

from __future__ import annotations

from aws_cdk import Duration, aws_lambda, aws_sqs
from constructs import Construct

from xorack.cdk.function import (
    PythonFunction,
    Surroundings,
    allow,
    read_with,
    send_with,
    write_with,
)


class Consumer(Construct):
    """The function that the queue invokes, and the mapping that invokes it.

    The mapping reports partial failures, so that a message which could not be applied comes back
    alone and not with its whole batch.

    Attributes:
        function: The function.
        mapping: Queue to function.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        around: Surroundings,
        *,
        queue: aws_sqs.IQueue,
    ) -> None:
        super().__init__(scope, construct_id)
        settings, table, dead_letters = around.settings, around.table, around.dead_letters
        python = PythonFunction(
            self,
            "Python",
            around,
            name="consumer",
            description="Applies the queue's requests to chains",
            timeout_seconds=settings.function_timeout_seconds,
            statements=[
                allow(
                    [
                        "dynamodb:BatchGetItem",
                        "dynamodb:BatchWriteItem",
                        "dynamodb:GetItem",
                        "dynamodb:UpdateItem",
                    ],
                    [table.table_arn],
                ),
                # What Lambda's poller does in the function's name.
                allow(
                    ["sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage"],
                    [queue.queue_arn],
                ),
                allow(["sqs:SendMessage"], [dead_letters.queue_arn]),
                allow(["events:PutEvents"], [around.bus.event_bus_arn]),
                *write_with(table.encryption_key),
                *read_with(queue.encryption_master_key),
                *send_with(dead_letters.encryption_master_key),
            ],
        )
        self.function = python.function
        # Not SqsEventSource, which would grant more than the poller needs.
        self.mapping = aws_lambda.EventSourceMapping(
            self,
            "Messages",
            target=self.function,
            event_source_arn=queue.queue_arn,
            batch_size=settings.batch_size,
            max_batching_window=Duration.seconds(settings.batch_window_seconds),
            max_concurrency=settings.max_concurrency,
            report_batch_item_failures=True,
        )
