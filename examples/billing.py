"""A scheduler's task that bills each acked order once. docs/schedulers.md describes it.

It needs ``pip install boto3 'xorack[cli]'``.
"""

import json
import os
import subprocess
from typing import Any

import boto3

BILLED = os.environ.get("BILLED_TABLE", "billed")
"""A table with the partition key ``tag``."""


def charge(tag: str, idempotency_key: str) -> None:
    """Call the payment service, which charges once for each idempotency key."""
    print("charging", tag, idempotency_key)


def acked(run: str) -> list[str]:
    """Return the tags of a run's acked chains from the acker's table."""
    command = ["xorack", "list", "--run", run, "--status", "acked", "--limit", "0", "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return [json.loads(line)["tag"] for line in done.stdout.splitlines()]


def bill_acked(run: str, table: Any = None) -> list[str]:
    """Bill the acked chains of a run that are not billed yet; return their tags.

    A bill is recorded after the charge. If the task is killed between the two, its next run charges
    again with the same key, which has no effect.
    """
    table = table or boto3.resource("dynamodb").Table(BILLED)
    billed = []
    for tag in acked(run):
        if "Item" not in table.get_item(Key={"tag": tag}, ConsistentRead=True):
            charge(tag, idempotency_key=tag)
            table.put_item(Item={"tag": tag})
            billed.append(tag)
    return billed
