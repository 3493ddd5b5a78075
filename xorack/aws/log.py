"""Log lines of the functions.

Each kind of failure has one line a batch, so that an outage writes few lines.

docs/operations.md describes the lines and their fields.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from xorack.core.errors import printable

LOG = logging.getLogger("xorack")


def log_chain(level: int, message: str, tag: str, **fields: Any) -> None:
    # Line separators and control characters would disturb people who read the log in a terminal.
    LOG.log(level, message, extra={"tag": printable(tag), **fields})


def log_failures(
    level: int,
    message: str,
    reasons: Mapping[str, str],
    describe: Callable[[Iterable[str]], Mapping[str, Any]] = lambda tags: {},
) -> None:
    """Log failures of chains: one line for each kind of reason, with one chain as an example.

    ``reasons`` maps tags to reasons. A kind is AWS's error code, or the text before the first
    colon. ``describe`` returns further fields of a line for its tags.
    """
    kinds: dict[str, list[str]] = defaultdict(list)
    for tag, reason in reasons.items():
        kinds[_kind(reason)].append(tag)
    for tags in kinds.values():
        fields = {"failures": len(tags), "why": reasons[tags[0]], **describe(tags)}
        log_chain(level, message, tags[0], **fields)


def _kind(reason: str) -> str:
    _, failed, code = reason.partition("An error occurred (")  # botocore's text
    return code.partition(")")[0] if failed else reason.partition(":")[0]
