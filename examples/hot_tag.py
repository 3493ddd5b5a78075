"""One hot tag, several chains: what a tag does whose requests come faster than one item takes them.

A chain for the whole, and as many below it as are asked for (shards). A piece of work that starts
from the root goes to the shard that its id names and stays there with all its descendants: to
finish a parent and to start its children must be one request of one chain. When a shard is acked,
its event finishes the shard's unit in the whole; when it fails, the whole fails.

`requests_to_open` and `shard_of` are for whoever sends; `handler` is a Lambda function for a rule
on the bus whose pattern is `PATTERN`. It may be called several times for an event: the request's id
is the event's, so it counts once. docs/capacity.md says when this is worth it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from xorack import traced, unit_id, xor
from xorack.aws.sqs import send
from xorack.core.request import Request

PATTERN = {
    "source": ["xorack"],
    "detail-type": ["acked", "failed"],
    "detail": {"detail": {"parent": [{"exists": True}]}},
}
"""Which events `handler` is for."""


def shard_of(tag: str, unit: int, shards: int) -> str:
    """The chain that a piece of work which starts from the root belongs to.

    Args:
        tag: The whole.
        unit: The id of the piece of work.
        shards: How many there are.
    """
    return f"{tag}#{unit % shards}"


def root_of(tag: str, shard: int) -> int:
    """The unit that stands for a shard: root of its own chain, and a child of the whole."""
    return unit_id(tag, "shard", shard)


def requests_to_open(tag: str, shards: int, timeout: float | None = None) -> list[Request]:
    """What creates the whole and its shards.

    Args:
        tag: The whole.
        shards: How many, at least 2: docs/capacity.md says how to choose.
        timeout: Seconds until they fail.

    Returns:
        Requests. The root of each shard is finished by the request that starts its first work.
    """
    roots = [root_of(tag, shard) for shard in range(shards)]
    whole = xor(*map(traced, roots))
    opened = [Request.create(tag, "create", whole, started=shards, timeout=timeout)]
    for shard, root in enumerate(roots):
        detail = {"parent": tag, "shard": shard}
        opened.append(
            Request.create(f"{tag}#{shard}", "create", traced(root), timeout=timeout, detail=detail)
        )
    return opened


def request_of(event: Mapping[str, Any]) -> Request:
    """What a shard's event means for the whole.

    Args:
        event: As EventBridge delivers it.

    Returns:
        The request, of the event's own id.
    """
    told = event["detail"]
    parent, shard = told["detail"]["parent"], told["detail"]["shard"]
    if told["status"] == "acked":
        return Request.stamp_(parent, told["id"], traced(root_of(parent, shard)), finished=1)
    return Request.fail(parent, told["id"], f"{told['tag']}: {told['reason']}")


def handler(event: Mapping[str, Any], context: object) -> None:
    """The function behind the rule; an event that it raises for comes again."""
    del context
    send(os.environ["QUEUE_URL"], [request_of(event)])
