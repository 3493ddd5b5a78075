"""One queue, one sensor and many Dagster jobs, chosen by prefixes of tags. See docs/schedulers.md.

pip install dagster boto3 'xorack[cli]'
"""

import json
import os
from collections.abc import Iterator

import boto3
import dagster as dg

from examples.billing import bill_acked

QUEUE = os.environ.get("CHAINS_ENDED", "https://sqs.eu-west-1.amazonaws.com/123456789012/ended")


@dg.op(retry_policy=dg.RetryPolicy(max_retries=3))
def bill() -> None:
    """Bill the acked orders that are not billed yet."""
    bill_acked("order")


@dg.job
def bill_orders() -> None:
    """Bill all acked orders. Events only start this job."""
    bill()


@dg.op(config_schema={"tag": str})
def load(context: dg.OpExecutionContext) -> None:
    """Load a file."""
    context.log.info("loading %s", context.op_config["tag"])


@dg.job
def load_file() -> None:
    """Load one file."""
    load()


def request_of(detail: dict[str, str]) -> dg.RunRequest | None:
    """Return the run request for an ended chain. The prefix of the tag decides which job runs."""
    key, tag = detail["id"], detail["tag"]
    if tag.startswith("order/"):
        return dg.RunRequest(run_key=key, job_name="bill_orders")
    if tag.startswith("file/"):
        config = {"ops": {"load": {"config": {"tag": tag}}}}
        return dg.RunRequest(run_key=key, job_name="load_file", run_config=config)
    return None


@dg.sensor(jobs=[bill_orders, load_file], minimum_interval_seconds=30)
def chains_ended(context: dg.SensorEvaluationContext) -> Iterator[dg.RunRequest]:
    """Request a run for each event, and delete events whose requests Dagster has recorded.

    Messages are deleted at the next evaluation. If the runs of a message were not recorded, the
    message is delivered again with the same run key. Dagster ignores a run key that it knows.
    """
    sqs = boto3.client("sqs")
    for receipt in json.loads(context.cursor or "[]"):
        sqs.delete_message(QueueUrl=QUEUE, ReceiptHandle=receipt)
    answer = sqs.receive_message(QueueUrl=QUEUE, MaxNumberOfMessages=10, VisibilityTimeout=300)
    receipts = []
    for message in answer.get("Messages", []):
        receipts.append(message["ReceiptHandle"])
        if request := request_of(json.loads(message["Body"])["detail"]):
            yield request
    context.update_cursor(json.dumps(receipts))


defs = dg.Definitions(jobs=[bill_orders, load_file], sensors=[chains_ended])
