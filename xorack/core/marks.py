"""Marks: the record in a chain of every request that it applied.

XOR undoes itself, so a request that is applied twice is a lost or a false ack. A chain therefore
carries a mark of each applied request, written together with the stamp. Marks that would make the
item large are spilled: copied to items of their own, the buckets, and only then left out of the
chain. docs/adr/0002-marks.md has the alternatives.

Spilled marks form runs, as in a log-structured merge tree: a level's run holds up to seven times
what the level below can hold, and more marks are merged upwards. The number of spilled marks tells
all runs. A run's marks are divided among its buckets by their keys.
"""

from __future__ import annotations

import json
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple
from zlib import crc32

from xorack.core.hashing import unit_id
from xorack.core.request import STEP_ID, Request

MARK_KEY_BYTES = 12
"""Bytes that identify the request's id: 96 bits. Among 100,000 requests two collide, and one is
lost, with a probability of about 10**-19."""
MARK_BYTES = 16
"""Bytes of a mark: the key, then a checksum of the request's content."""
NO_CONTENT = bytes(MARK_BYTES - MARK_KEY_BYTES)
"""The checksum in marks of units and of who waits: the key says all."""
INLINE_MARKS = 8
"""Marks that a chain's item holds before they are spilled, so many or a multiple at a time. A
traced item then has less than 1 KB: each write is one unit."""
MANY_INLINE_MARKS = 64
"""The same if a write adds more than half of that. A traced item then has less than 2 KB."""

_GROWTH = 8
"""The size of a level's smallest run, divided by that of the level below."""
_TOP_LEVEL = 5
"""The level whose run grows without end. It has 8,192 buckets, so some seconds prolong all."""


class Bucket(NamedTuple):
    """An item that holds spilled marks: one of a run's, which begins with a mark's number."""

    level: int
    start: int
    number: int


class MarkRun(NamedTuple):
    """Marks from the number `start` up to `end`, in the order in which they were spilled."""

    level: int
    start: int
    end: int

    @property
    def buckets(self) -> list[Bucket]:
        return [Bucket(self.level, self.start, number) for number in range(self._count)]

    @property
    def _count(self) -> int:
        return max(1, int(_GROWTH**self.level) // 4)  # at most 224 marks each on average, 3.6 KB

    def bucket_for(self, key: bytes) -> Bucket:
        """Return the bucket of a mark; the key may be the entire mark."""
        number = int.from_bytes(key[:MARK_KEY_BYTES], "big") % self._count
        return Bucket(self.level, self.start, number)


def runs_of(spilled: int) -> list[MarkRun]:
    """Return the runs that hold a number of spilled marks, the oldest and largest first."""
    runs, start = [], 0
    for level in range(_TOP_LEVEL, -1, -1):
        end = spilled - (spilled - start) % (INLINE_MARKS * _GROWTH**level)
        if end > start:
            runs.append(MarkRun(level, start, end))
            start = end
    assert start == spilled, "marks are spilled by INLINE_MARKS"
    return runs


def changes_of(spilled: int, count: int) -> tuple[list[MarkRun], list[MarkRun]]:
    """Return the runs that end, and those that grow or begin, if more marks are spilled."""
    before = runs_of(spilled)
    grown = [run for run in runs_of(spilled + count) if run not in before]
    first = grown[0]  # it takes the marks of those that end, all older than the new ones
    ended = [run for run in before if run.start >= first.start and run.level < first.level]
    return ended, grown


def buckets_of(spilled: int, key: bytes) -> list[Bucket]:
    """Return the buckets that may hold the mark of this key: one a run."""
    return [run.bucket_for(key) for run in runs_of(spilled)]


def all_buckets(spilled: int) -> list[Bucket]:
    return [bucket for run in runs_of(spilled) for bucket in run.buckets]


def mark_key(request_id: str) -> bytes:
    """Hash a request's id: the first part of its mark."""
    return blake2b(request_id.encode(), digest_size=MARK_KEY_BYTES).digest()


_SHARED = 1 << 4 * MARK_KEY_BYTES  # in the middle: the bucket stays the same


def step_id(unit: int) -> str:
    """Return the id of the request by which a step finishes this unit alone."""
    return f"step-{unit:016x}"


def unit_of_step(request: Request) -> int | None:
    """Return the unit that a request finishes alone, by the meaning of its id; else None."""
    match = STEP_ID.fullmatch(request.id)  # a valid request with such an id is a step
    return int(match[1], 16) if match else None


def note_id(unit: int, request: Request) -> str:
    """Return the id of a fail or a note about a unit, which follows from what the request says.

    A sender that runs again sends the same id. docs/protocol.md describes the derivation.
    """
    missing = " ".join(f"{unit:016x}" for unit in request.missing) or None
    count = request.missing_count
    content = {"reason": request.reason, "text": request.text, "missing": missing}
    parts: list[str | int] = [request.op]
    for name, value in {**content, "missing_count": count}.items():
        parts += () if value is None else (name, value)
    return f"{request.op}-{unit:016x}-{unit_id(*parts):016x}"


def shared_key(key: bytes) -> bytes:
    """Return the key of a unit that `Request.finishes_once` named, from that of its `step_id`."""
    return (int.from_bytes(key, "big") ^ _SHARED).to_bytes(MARK_KEY_BYTES, "big")


def callback_key(request: Request) -> bytes:
    """Return the key of the mark of who waits, of a create: no id of a request has a NUL."""
    return mark_key(f"{request.id}\0{json.dumps(request.resume)}")


def keys_of(request: Request, mark: bytes) -> list[bytes]:
    """Return the keys of all marks that decide on a request with this mark."""
    keys = [mark[:MARK_KEY_BYTES]]
    if request.resume is not None:
        keys.append(callback_key(request))
    if unit_of_step(request) is not None:
        keys.append(shared_key(keys[0]))
    for unit in request.finishes_once:
        key = mark_key(step_id(unit))
        keys += (key, shared_key(key))
    return keys


@lru_cache(maxsize=64)
def _checksum_without_stamp(op: str, started: int, finished: int) -> int:
    """Compute a checksum, which is cached: most requests differ in id and stamp only."""
    return crc32(b"%s\0%d\0%d\0" % (op.encode(), started, finished))


def _whole_if_possible(digits: str) -> float:
    """Read a JSON number with a fraction or exponent, so that 1.0 equals 1."""
    number = float(digits)
    return int(number) if number.is_integer() else number


def _canonical(*values: object) -> bytes:
    """Return JSON that is the same for equal JSON values."""
    parsed = json.loads(json.dumps(values), parse_float=_whole_if_possible)
    return json.dumps(parsed, sort_keys=True).encode()


def mark_of(request: Request) -> bytes:
    """Return a request's mark: the hash of its id, then a checksum of its content.

    The checksum tells a reused id from a true duplicate. Who waits is no part of it: a create that
    runs again may bring another token.
    """
    checksum = _checksum_without_stamp(request.op, request.started, request.finished)
    if request.stamp is not None:
        checksum = crc32(request.stamp, checksum)
    if request.op != "stamp":  # a stamp has no other fields
        options = (request.timeout, request.idle_timeout, request.detail, request.reason)
        parents = [parent.to_json() for parent in request.parents]
        values = (request.note, request.tolerated_units, parents, request.fail_parent)
        given = (*filter(None, values),)
        checksum = crc32(_canonical(*options, *given), checksum)
    elif request.finishes_once:
        checksum = crc32(_canonical(request.finishes_once), checksum)
    mark = mark_key(request.id) + checksum.to_bytes(MARK_BYTES - MARK_KEY_BYTES, "big")
    assert len(mark) == MARK_BYTES, "marks are cut out of an item by their length"
    return mark


def split_marks(marks: bytes) -> dict[bytes, bytes]:
    """Return concatenated marks as a mapping from key to checksum."""
    return {
        marks[at : at + MARK_KEY_BYTES]: marks[at + MARK_KEY_BYTES : at + MARK_BYTES]
        for at in range(0, len(marks), MARK_BYTES)
    }
