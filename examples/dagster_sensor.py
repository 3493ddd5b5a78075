"""A Dagster sensor that requests a run for each ended chain. See docs/schedulers.md.

pip install dagster boto3
"""

import json
import os
from collections.abc import Iterator

import boto3
import dagster as dg

QUEUE = os.environ.get("ORDERS_ENDED", "https://sqs.eu-west-1.amazonaws.com/123456789012/ended")


@dg.op(config_schema={"tag": str, "status": str, "receipt": str})
def bill(context: dg.OpExecutionContext) -> None:
    """Bill an order, then delete its message. The message of a failed run is delivered again."""
    chain = context.op_config
    if chain["status"] == "failed":
        context.log.error("chain %s failed", chain["tag"])
    boto3.client("sqs").delete_message(QueueUrl=QUEUE, ReceiptHandle=chain["receipt"])


@dg.job
def bill_order() -> None:
    """Bill one order."""
    bill()


@dg.sensor(job=bill_order, minimum_interval_seconds=30)
def orders_ended(context: dg.SensorEvaluationContext) -> Iterator[dg.RunRequest]:
    """Request one run for each event. Dagster skips a run key that it knows."""
    answer = boto3.client("sqs").receive_message(QueueUrl=QUEUE, MaxNumberOfMessages=10)
    for message in answer.get("Messages", []):
        detail = json.loads(message["Body"])["detail"]
        chain = {"tag": detail["tag"], "status": detail["status"]}
        config = {**chain, "receipt": message["ReceiptHandle"]}
        yield dg.RunRequest(run_key=detail["id"], run_config={"ops": {"bill": {"config": config}}})


defs = dg.Definitions(jobs=[bill_order], sensors=[orders_ended])
