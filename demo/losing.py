"""What the demo does about words that were lost: ends their chains, and has them repaired."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo.errors import DemoFailed
from demo.watching import Ended
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.aws.sqs import send
from xorack.core.clock import milliseconds
from xorack.core.request import Request
from xorack.local.deploy import Stack

__all__ = ["Lost", "Repair", "end_now", "hurt_chains", "write_events"]

_SOON_SECONDS = 0.001
_PAUSE_SECONDS = 0.2


@dataclass(frozen=True)
class Lost:
    """A word that was lost.

    Attributes:
        id: Its unit, as the failed chain's event named it: 16 hex digits.
        path: Its file.
        position: Where it is in the file: the word's number, in files of up to 1 MiB.
        word: The word.
    """

    id: str
    path: str
    position: int
    word: str


@dataclass(frozen=True)
class Repair:
    """What the repair did.

    Attributes:
        attempts: The new chain's tag by the failed one's.
        missing: How many words were missing.
        lost: They, as far as they are told.
    """

    attempts: Mapping[str, str]
    missing: int
    lost: tuple[Lost, ...]

    @classmethod
    def of(cls, summary: Mapping[str, Any], failed: Iterable[Ended]) -> Repair:
        """Read the job's summary, and hold it against the events.

        Args:
            summary: What the job told.
            failed: The chains that it was told of.

        Returns:
            What it did.

        Raises:
            DemoFailed: It found other words than the events named.
        """
        lost = tuple(
            Lost(one["id"], one["path"], one["position"], one["word"]) for one in summary["named"]
        )
        found = {one.id for one in lost}
        named = {unit for one in failed for unit in one.outstanding}
        if len(lost) == summary["missing"] and not named <= found:
            raise DemoFailed(
                f"the events name units that the repair did not find: {sorted(named - found)}"
            )
        attempts = {one["repairs"]: one["tag"] for one in summary["repaired"]}
        return cls(attempts, summary["missing"], lost)


def hurt_chains(words: Path, counts: Path) -> list[str]:
    """Which chains are missing words, by the data that the jobs left.

    Args:
        words: The folder that ``split`` wrote.
        counts: The folder that ``count`` wrote.

    Returns:
        Their tags, in order.
    """
    finished = {row["tag"]: row["finished"] for row in _rows(counts / "_tracking")}
    return sorted(
        row["tag"]
        for row in _rows(words / "files")
        if "error" not in row and finished.get(row["tag"], 0) < row["words"]
    )


def _rows(folder: Path) -> Iterator[dict[str, Any]]:
    """The rows of a folder of JSON lines, without the nulls: see `pipeline.layout`."""
    for part in sorted(folder.glob("part-*.json")):
        with part.open(encoding="utf-8") as lines:
            yield from map(json.loads, lines)


def end_now(stack: Stack, store: DynamoDBStore, tags: Sequence[str], patience: float) -> None:
    """Move the deadlines of chains to now, and let the sweeper look, a minute early.

    Args:
        stack: Where they are.
        store: Their table.
        tags: The chains.
        patience: Seconds to wait for the requests to be applied.

    Raises:
        DemoFailed: They were not, or the sweeper failed.
    """
    requests = [Request.extend(tag, "the demo has no time", _SOON_SECONDS) for tag in tags]
    send(stack.queue_url, requests, client=stack.client("sqs"))
    until = time.monotonic() + patience
    while True:
        chains = store.read(tags)
        waiting = [
            tag
            for tag in tags
            if (chain := chains.get(tag)) is None
            or not (chain.final or (chain.extended and (chain.deadline or 0) <= milliseconds()))
        ]
        if not waiting:
            break
        if time.monotonic() >= until:
            raise DemoFailed(f"the deadline of {waiting[0]} was not moved")
        time.sleep(_PAUSE_SECONDS)
    answer = stack.client("lambda").invoke(FunctionName=stack.outputs["SweeperName"])
    if "FunctionError" in answer:
        raise DemoFailed(f"the sweeper failed: {answer['Payload'].read().decode()}")


def write_events(file: Path, ended: Iterable[Ended]) -> None:
    """Write events as ``pipeline.repair`` reads them: one a line.

    Args:
        file: The file.
        ended: What was told.
    """
    lines = (json.dumps(json.loads(one.event)) for one in ended)
    file.write_text("".join(line + "\n" for line in lines))
