"""Saved queries of CloudWatch Logs Insights over the functions' logs. docs/logs.md explains them.

TAG and MESSAGE-ID stand for what the user looks for. Query parameters would ask for it, but not
every region has them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from aws_cdk import aws_logs
from constructs import Construct

_QUERIES: Final = {
    "errors": """
fields @timestamp, level, coalesce(message, errorMessage, record.status) as text, why, failures,
  tag, requestId, @log
| filter level in ["WARNING", "ERROR", "CRITICAL"]
  or (type = "platform.report" and record.status != "success")
| sort @timestamp desc
| limit 1000""",
    "one chain by tag": """
fields @timestamp, level, message, status, why, event_id, message_ids, requestId, @log
| filter tag = "TAG"
| sort @timestamp asc
| limit 1000""",
    "one message by id": """
fields @timestamp, level, message, tag, status, why, event_id, requestId, @log
| filter message_ids like "MESSAGE-ID"
| sort @timestamp asc
| limit 1000""",
    "rejected requests": """
fields @timestamp, failures, why, message_ids, requestId
| filter message = "requests rejected"
| sort @timestamp desc
| limit 1000""",
    "slow batches": """
fields @timestamp, duration_ms, messages, counts.Writes, counts.Conflicts, requestId
| filter message = "batch"
| sort duration_ms desc
| limit 100""",
}


def create_queries(
    scope: Construct, service: str, log_groups: Iterable[aws_logs.ILogGroup]
) -> None:
    """Create the queries, in a folder with the service's name."""
    names = [group.log_group_name for group in log_groups]
    for title, text in _QUERIES.items():
        aws_logs.CfnQueryDefinition(
            scope,
            title.title().replace(" ", ""),
            name=f"{service}/{title}",
            query_string=text.strip(),
            log_group_names=names,
        )
