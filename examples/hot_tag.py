"""Shards of one hot tag, for a tag whose requests arrive faster than its one item takes them.

The tag has a chain, and so has each shard. A piece of work that starts from the root goes to the
shard that its id selects, and its descendants stay there: finishing a parent and starting its
children must be one request of one chain. An acked shard finishes its unit in the tag's chain; a
failed shard fails it.

Senders use `requests_to_open` and `shard_of`. `handler` is a Lambda function for a rule on the bus
with `PATTERN`. Duplicate events count once: the request's id is the event's. docs/capacity.md says
when sharding is worth it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from xorack import Request, send, traced, unit_id, xor

PATTERN = {
    "source": ["xorack"],
    "detail-type": ["acked", "failed"],
    "detail": {"detail": {"parent": [{"exists": True}]}},
}
"""Selects the events of shards."""


def shard_of(tag: str, unit: int, shards: int) -> str:
    """Return the chain of a piece of work that starts from the root."""
    return f"{tag}#{unit % shards}"


def root_of(tag: str, shard: int) -> int:
    """Return the unit that stands for a shard: its own root, and a child of the tag's chain."""
    return unit_id(tag, "shard", shard)


def requests_to_open(tag: str, shards: int, timeout: float | None = None) -> list[Request]:
    """Create the chains of a tag and of its shards.

    Args:
        tag: The tag.
        shards: How many, at least 2: docs/capacity.md says how to choose.
        timeout: Seconds until they fail.

    Returns:
        The requests to send. The request that starts a shard's first work finishes its root.
    """
    roots = [root_of(tag, shard) for shard in range(shards)]
    whole = xor(*map(traced, roots))
    requests = [Request.create(tag, "create", whole, started=shards, timeout=timeout)]
    for shard, root in enumerate(roots):
        detail = {"parent": tag, "shard": shard}
        requests.append(
            Request.create(f"{tag}#{shard}", "create", traced(root), timeout=timeout, detail=detail)
        )
    return requests


def request_of(event: Mapping[str, Any]) -> Request:
    """Translate a shard's event, as EventBridge delivers it, to a request of the tag's chain."""
    detail = event["detail"]
    parent, shard = detail["detail"]["parent"], detail["detail"]["shard"]
    if detail["status"] == "acked":
        return Request.stamp_(parent, detail["id"], traced(root_of(parent, shard)), finished=1)
    return Request.fail(parent, detail["id"], f"{detail['tag']}: {detail['reason']}")


def handler(event: Mapping[str, Any], context: object) -> None:
    """Handle an event of a shard; EventBridge repeats it after an exception."""
    del context
    send(os.environ["QUEUE_URL"], [request_of(event)])
