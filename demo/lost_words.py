"""Lost words: their chains fail at once, and a job repairs them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from demo.errors import DemoFailed
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.aws.sqs import send
from xorack.core.clock import milliseconds
from xorack.core.request import Request
from xorack.local.deploy import Stack

__all__ = ["check_repair", "end_chains", "incomplete_chains"]

_TIMEOUT_SECONDS = 0.001
_PAUSE_SECONDS = 0.2


def incomplete_chains(words: Path, counts: Path) -> list[str]:
    """Return the sorted tags of the files of which ``count`` counted fewer words than ``split``."""
    finished = {row["tag"]: row["finished"] for row in _rows(counts / "_tracking")}
    return sorted(
        row["tag"]
        for row in _rows(words / "files")
        if "error" not in row and finished.get(row["tag"], 0) < row["words"]
    )


def _rows(folder: Path) -> Iterator[dict[str, Any]]:
    """The rows of a folder of JSON lines, without nulls: see `pipeline.layout`."""
    for part in sorted(folder.glob("part-*.json")):
        with part.open(encoding="utf-8") as lines:
            yield from map(json.loads, lines)


def check_repair(summary: Mapping[str, Any], events: Iterable[Mapping[str, Any]]) -> None:
    """Check that the repair found every unit that the failed events name.

    Raises:
        DemoFailed: The repair did not find a unit.
    """
    if len(summary["named"]) < summary["missing"]:
        return  # the summary lists only the first of very many words
    units = {unit for event in events for unit in event["detail"].get("outstanding", ())}
    if unknown := sorted(units - {word["id"] for word in summary["named"]}):
        raise DemoFailed(f"the events name units that the repair did not find: {unknown}")


def end_chains(stack: Stack, store: DynamoDBStore, tags: Sequence[str], patience: float) -> None:
    """Move the deadlines of chains to now and invoke the sweeper before its schedule does.

    Args:
        stack: The stack.
        store: Its table.
        tags: The chains.
        patience: Seconds to wait for the requests to be applied.

    Raises:
        DemoFailed: The requests were not applied, or the sweeper failed.
    """
    requests = [Request.extend(tag, "end of the demo", _TIMEOUT_SECONDS) for tag in tags]
    send(stack.queue_url, requests, client=stack.client("sqs"))
    until = time.monotonic() + patience
    while unmoved := _unmoved(store, tags):
        if time.monotonic() >= until:
            raise DemoFailed(f"the deadline of {unmoved[0]} was not moved")
        time.sleep(_PAUSE_SECONDS)
    answer = stack.client("lambda").invoke(FunctionName=stack.outputs["SweeperName"])
    if "FunctionError" in answer:
        raise DemoFailed(f"the sweeper failed: {answer['Payload'].read().decode()}")


def _unmoved(store: DynamoDBStore, tags: Sequence[str]) -> list[str]:
    """Return the chains that have neither ended nor passed an extended deadline."""
    chains = store.read(tags)
    ready = {
        tag
        for tag, chain in chains.items()
        if chain.final or (chain.extended and (chain.deadline or 0) <= milliseconds())
    }
    return [tag for tag in tags if tag not in ready]
