"""Logs. Lambda's runtime writes each line of `logging` as JSON, and this module adds fields.

docs/operations.md describes the lines.
"""

from __future__ import annotations

import logging

_SDK = ("boto3", "botocore", "s3transfer", "urllib3")


def set_up_logs(service: str) -> None:
    """Add a service's name to each line, log warnings, and silence boto3's details.

    At DEBUG, boto3 would log the content of requests and the session token.
    """

    def add_service(record: logging.LogRecord) -> bool:
        record.service = service
        return True

    for handler in logging.getLogger().handlers:
        handler.addFilter(add_service)
    logging.captureWarnings(True)
    for name in _SDK:
        logging.getLogger(name).setLevel(logging.WARNING)
