"""Sends records to a Kinesis stream in as few calls as possible."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from xorack.aws.client import NotAccepted, batches, budget_of, make_client, send_entries
from xorack.aws.retry import RetryPolicy
from xorack.core.errors import SendError

_RECORDS = 500
"""The most records of one PutRecords. Together they have at most 5 MiB in every region."""
_BYTES = 5 << 20


def put_records(stream: str, records: Iterable[dict[str, Any]], client: Any = None) -> int:
    """Send entries of PutRecords to a stream, given its name or ARN. Return their number.

    Raises:
        SendError: The stream did not accept some records after all retries.
    """
    client = make_client("kinesis") if client is None else client
    place = {"StreamARN" if stream.startswith("arn:") else "StreamName": stream}

    def call(entries: Mapping[int, dict[str, Any]]) -> dict[int, NotAccepted]:
        answers = client.put_records(**place, Records=[*entries.values()])["Records"]
        return {
            number: NotAccepted(f"{answer['ErrorCode']}: {answer.get('ErrorMessage')}")
            for number, answer in zip(entries, answers, strict=True)
            if answer.get("ErrorCode")
        }

    sent = 0
    for batch in batches(records, _size_of, _RECORDS, _BYTES):
        entries = dict(enumerate(batch))
        if failures := send_entries(entries, call, RetryPolicy(attempts=8), budget_of(client)):
            why = next(iter(failures.values())).reason
            raise SendError(f"stream {stream}: {len(failures)} records not sent: {why}")
        sent += len(batch)
    return sent


def _size_of(record: dict[str, Any]) -> int:
    return len(record["Data"]) + len(record["PartitionKey"].encode())
