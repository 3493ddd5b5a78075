"""What is missing in counts, by the data at rest; and the failed events that ask for it. No Spark.

The truth is what ``split`` wrote and what ``count`` recorded as counted, not what an event says: a
stamp may be late, or lost, though the words are counted, and a word may not be counted twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.errors import JobError
from xorack.core.errors import XorAckError
from xorack.core.hashing import unit_id
from xorack.core.peeling import peel
from xorack.core.request import MAX_DETAIL_BYTES, MAX_TAG_BYTES
from xorack.core.stamp import PLAIN_LENGTH, TRACED_LENGTHS, plain, traced, xor_bytes

__all__ = [
    "Chain",
    "Failed",
    "Inconsistent",
    "Overfull",
    "attempt_tag",
    "base_of",
    "detail_of",
    "form_of",
    "missing_units",
    "read_events",
    "root_stamp",
]

_ATTEMPT = re.compile(r"(.+)~([1-9][0-9]{0,8})", re.DOTALL)
_ID = re.compile(r"[0-9a-fA-F]{16}")
_CUT_MARK = "..."
_PATH_CHARACTERS = 500


@dataclass(frozen=True)
class Failed:
    """A chain that was told as failed.

    Attributes:
        tag: Its tag.
        outstanding: The ids of the units that its event named, unsigned.
        run: The run of ``split`` that created it, where its event says so.
    """

    tag: str
    outstanding: frozenset[int] = frozenset()
    run: str | None = None


def read_events(lines: Iterable[str], name: str) -> list[Failed]:
    """Read ``failed`` events: as EventBridge delivers them, or just their details; one a line.

    Args:
        lines: JSON Lines; empty ones are passed over.
        name: What they come from, for messages.

    Returns:
        One for each chain, in the order they came; an event that came twice counts once.

    Raises:
        JobError: A line is no event, or of a chain that has not failed; names the line. Or there
            is no event at all.
    """
    found: dict[str, Failed] = {}
    for number, line in enumerate(lines, 1):
        if line.strip():
            one = _event(line, f"{name} line {number}")
            found.setdefault(one.tag, one)
    if not found:
        raise JobError(f"{name} has no events in it")
    return list(found.values())


def _event(line: str, where: str) -> Failed:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        raise JobError(f"{where} is no JSON") from None
    if isinstance(event, dict) and "detail-type" in event:
        if event.get("source") != "xorack":
            raise JobError(f"{where} is no event of xorack: its source is {event.get('source')!r}")
        event = event.get("detail")
    if not isinstance(event, dict) or not isinstance(event.get("tag"), str):
        raise JobError(f"{where} is no event of xorack: it has no tag")
    tag = event["tag"]
    if event.get("status") != "failed":
        raise JobError(
            f"{where}: {tag!r} has not failed, its status is {event.get('status')!r}: "
            "nothing is to be repaired"
        )
    outstanding = event.get("outstanding", [])
    if not isinstance(outstanding, list) or not all(
        isinstance(one, str) and _ID.fullmatch(one) for one in outstanding
    ):
        raise JobError(f"{where}: {tag!r}: outstanding is no list of ids of 16 hex digits")
    detail = event.get("detail")
    run = detail.get("run") if isinstance(detail, dict) else None
    ids = frozenset(int(one, 16) for one in outstanding)
    return Failed(tag, ids, run if isinstance(run, str) else None)


def base_of(tag: str) -> tuple[str, int] | None:
    """Take the tag of a later attempt apart.

    Args:
        tag: For example ``texts/a.txt~2``.

    Returns:
        The first attempt's tag and the attempt's number; None if it looks like no later attempt.
    """
    parts = _ATTEMPT.fullmatch(tag)
    return None if parts is None else (parts[1], int(parts[2]))


def attempt_tag(tag: str, attempt: int) -> str:
    """The tag of a later attempt at a chain's work.

    Args:
        tag: The first attempt's.
        attempt: Its number, at least 2.

    Returns:
        For example ``texts/a.txt~2``; of a tag that leaves no room for that its beginning, its
        hash and the number.
    """
    end = f"~{attempt}"
    whole = tag + end
    if len(whole.encode()) <= MAX_TAG_BYTES:
        return whole
    end = f"{_CUT_MARK}{unit_id(tag):016x}{end}"
    return tag.encode()[: MAX_TAG_BYTES - len(end)].decode(errors="ignore") + end


@dataclass(frozen=True)
class Chain:
    """A file's chain, as the data at rest have it.

    Attributes:
        key: ``unit("tag")``, signed.
        tag: The first attempt's.
        words: How many words the file has.
        stamp: The XOR of the stamps of the root and of all words.
        finished: How many words were counted.
        counted: The XOR of their stamps; None if there are none.
    """

    key: int
    tag: str
    words: int
    stamp: bytes
    finished: int = 0
    counted: bytes | None = None

    @property
    def residual(self) -> bytes:
        """The XOR of the stamps of the words that were not counted."""
        left = self.of_all_words
        return left if self.counted is None else xor_bytes(left, self.counted)

    @property
    def of_all_words(self) -> bytes:
        """The XOR of the stamps of all words: all zeros if there are none."""
        return xor_bytes(self.stamp, root_stamp(self.key, self.stamp))

    @property
    def missing(self) -> int:
        """How many words were not counted."""
        return self.words - self.finished


def root_stamp(unit: int, like: bytes) -> bytes:
    """A root unit's stamp, of the kind that another stamp has."""
    form = form_of(like)
    return plain(unit) if form["kind"] == "plain" else traced(unit, form["cells"])


def form_of(stamp: bytes) -> dict[str, Any]:
    """Return the kind and the cells of a stamp, as arguments of `xorack.spark.fold`."""
    if len(stamp) == PLAIN_LENGTH:
        return {"kind": "plain"}
    return {"kind": "traced", "cells": TRACED_LENGTHS[len(stamp)]}


class Overfull(JobError):
    """So many words of a chain are missing that its stamp cannot name them."""

    def __init__(self, tag: str) -> None:
        super().__init__(f"{tag!r}: too many words are missing")


class Inconsistent(JobError):
    """The words and the counts are not of each other."""

    def __init__(self, tag: str, why: str) -> None:
        super().__init__(f"{tag!r}: {why}: --counts are not those of --words")


def missing_units(chain: Chain) -> frozenset[int] | None:
    """Which words of a chain were not counted.

    Args:
        chain: The chain.

    Returns:
        Their units' ids, unsigned; None for all words of the chain, however many.

    Raises:
        Overfull: They cannot be named: too many, or more than one of plain stamps.
        Inconsistent: The words and the counts are not of each other.
    """
    try:
        residual = chain.residual
    except XorAckError as error:
        raise Inconsistent(chain.tag, str(error)) from None
    if not 0 <= chain.missing <= chain.words or any(residual) != bool(chain.missing):
        raise Inconsistent(
            chain.tag, f"{chain.finished:,} of its {chain.words:,} words are said to be counted"
        )
    if chain.missing == 0:
        return frozenset()
    if chain.finished == 0:
        return None
    if len(residual) == PLAIN_LENGTH:  # nothing is on its way: the counts are exact
        if chain.missing > 1:
            raise Overfull(chain.tag)
        return frozenset((int.from_bytes(residual, "little"),))
    ids, complete = peel(residual)
    if not complete:
        raise Overfull(chain.tag)
    if len(ids) != chain.missing:
        raise Inconsistent(
            chain.tag, f"{chain.missing:,} words are missing, but {len(ids):,} are named"
        )
    return ids


def detail_of(parts: Mapping[str, Any]) -> str:
    """The detail of a repairing chain, as JSON, shortened where it would be too long.

    Args:
        parts: What it says; ``path`` and ``repairs`` are texts.

    Returns:
        A JSON object of at most 4 KiB.
    """
    detail = dict(parts)
    for name, most in (("path", _PATH_CHARACTERS), ("path", 0), ("repairs", _PATH_CHARACTERS)):
        text = json.dumps(detail, ensure_ascii=False, separators=(",", ":"))
        if len(text.encode()) <= MAX_DETAIL_BYTES:
            break
        detail[name] = detail[name][:most]
    return json.dumps(detail)
