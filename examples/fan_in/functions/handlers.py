"""The functions: `split` sends messages, `work` handles a message, `report` ends a file.

They need xorack, Powertools and the boto3 of Lambda's runtime.
"""

from __future__ import annotations

import json
import os
import random
from typing import Any

import boto3
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

from xorack import Step, Tracker, event_tag, fan_in, fan_out, names_of

BUCKET, WORK_QUEUE_URL = os.environ["BUCKET"], os.environ["WORK_QUEUE_URL"]
TIMEOUT, FAILURE_RATE = float(os.environ["TIMEOUT"]), float(os.environ["FAILURE_RATE"])

tracker = Tracker(os.environ["XORACK_QUEUE_URL"])
s3 = boto3.client("s3")


def lines_of(key: str) -> dict[str, str]:
    """Return the lines of a file by their names."""
    text = s3.get_object(Bucket=BUCKET, Key=key)["Body"].read().decode()
    return {f"line {number}": line for number, line in enumerate(text.splitlines(), 1)}


def split(event: dict[str, Any], context: Any) -> None:
    """Send a message for each line of a new file."""
    key = event["detail"]["object"]["key"]
    if tag := event_tag(event):
        token = tracker.start(tag, timeout=TIMEOUT, detail={"key": key})
        with tracker.step(token) as step:
            fan_out(step, lines_of(key), WORK_QUEUE_URL)


@fan_in(tracker, tags=f"{BUCKET}/")
def work(record: SQSRecord, step: Step | None) -> None:
    """Handle a line. A line that contains "broken" always fails; other lines fail sometimes."""
    if "broken" in record.body or random.random() < FAILURE_RATE:
        raise RuntimeError(f"cannot handle {record.body!r}")


def report(event: dict[str, Any], context: Any) -> None:
    """Write a report on a file into the bucket: its status, and the lines that were not handled."""
    detail = event["detail"]
    key = detail["detail"]["key"]
    lines = lines_of(key)
    names = names_of(detail, lines) if detail["status"] == "failed" else {}
    lost = {str(name or unit): lines.get(str(name)) for unit, name in names.items()}
    body = json.dumps({"status": detail["status"], "units": detail["finished"], "lost": lost})
    s3.put_object(Bucket=BUCKET, Key=f"reports/{key}", Body=body.encode())
