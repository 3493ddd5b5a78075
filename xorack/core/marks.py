"""Marks: a chain remembers every request that it applied.

XOR undoes itself. So a request that is applied twice leads to a lost ack or a false ack. A chain
therefore has a mark of each applied request, which is written together with the stamp. If marks
would make the item large, they are spilled: copied to other items, the buckets, and only then
removed from the chain's item. docs/adr/0002-marks.md describes the alternatives.

Spilled marks form runs, as in a log-structured merge tree. A run of a level holds up to seven times
as many marks as the level below can hold. Further marks are merged into the next level. All runs
follow from the number of spilled marks. A mark's key decides which of the run's buckets stores the
mark.

A chain may be the parent of a million chains. The marks of their ends are not merged, because each
merge writes them again. The mark of an end begins with the time of the child's end. Ends that are
applied together happened at about the same time. So their marks go to few buckets, each for a span
of time.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple
from zlib import crc32

from xorack.core.hashing import unit_id
from xorack.core.request import STEP_ID, Request

MARK_KEY_BYTES = 12
"""Bytes of the hash of a request's id: 96 bits. Among 100,000 requests, two ids collide and one
request is lost with a probability of about 10**-19."""
MARK_BYTES = 16
"""Bytes of a mark: the key, then a checksum of the request's content."""
NO_CONTENT = bytes(MARK_BYTES - MARK_KEY_BYTES)
"""The checksum in the marks of units and callbacks, because their key contains everything."""
END_CONTENT = NO_CONTENT[:-1] + b"\1"
"""The checksum in the marks of children's ends, because their id contains everything."""
INLINE_MARKS = 8
"""The number of marks in a chain's item before they are spilled, in multiples of this number. A
traced item then has less than 1 KB, so each write costs one unit."""
MANY_INLINE_MARKS = 64
"""The same limit if a write adds more than half of it. A traced item then has less than 2 KB."""

_GROWTH = 8
"""How many times the smallest run of a level is larger than that of the level below."""
_TOP_LEVEL = 5
"""The level whose run grows without limit. It has 8,192 buckets: prolonging them takes seconds."""


_TIME_BYTES = 4
_TICK_MS = 256
"""The time in the mark of an end, which is a number of ticks. It starts again after 34 years."""
_END_LEVELS = 5
"""A bucket of level 0 has the marks of one tick. Each higher level has 16 times as many ticks,
up to 4.7 hours. Marks go to the lowest level at which a bucket gets enough of them."""
_MARKS_A_BUCKET = 16


class Bucket(NamedTuple):
    """One of the items that hold the spilled marks of a run; `start` is the run's first mark.

    Buckets of ends have negative levels: -1 stands for level 0 of ends. Their `start` is a time.
    """

    level: int
    start: int
    number: int


class MarkRun(NamedTuple):
    """The marks with the numbers `start` to `end` - 1, in the order in which they were spilled."""

    level: int
    start: int
    end: int

    @property
    def buckets(self) -> list[Bucket]:
        return [Bucket(self.level, self.start, number) for number in range(self._count)]

    @property
    def _count(self) -> int:
        # On average, a bucket has at most 224 marks, or 3.6 KB.
        return max(1, int(_GROWTH**self.level) // 4)

    def bucket_for(self, key: bytes) -> Bucket:
        """Return the bucket of a mark. The key may be the complete mark."""
        number = int.from_bytes(key[:MARK_KEY_BYTES], "big") % self._count
        return Bucket(self.level, self.start, number)


def runs_of(spilled: int) -> list[MarkRun]:
    """Return the runs of this number of spilled marks, the oldest and largest run first."""
    runs, start = [], 0
    for level in range(_TOP_LEVEL, -1, -1):
        end = spilled - (spilled - start) % (INLINE_MARKS * _GROWTH**level)
        if end > start:
            runs.append(MarkRun(level, start, end))
            start = end
    assert start == spilled, "marks are spilled by INLINE_MARKS"
    return runs


def changes_of(spilled: int, count: int) -> tuple[list[MarkRun], list[MarkRun]]:
    """Return the runs that end if more marks are spilled, and the runs that grow or begin."""
    before = runs_of(spilled)
    grown = [run for run in runs_of(spilled + count) if run not in before]
    # Old marks come before new marks, so the first of the new runs takes the marks of the ended
    # runs.
    first = grown[0]
    ended = [run for run in before if run.start >= first.start and run.level < first.level]
    return ended, grown


def buckets_of(spilled: int, end_levels: int, key: bytes) -> list[Bucket]:
    """Return the buckets that may hold this key's mark: one for each run and each level of ends."""
    levels = [level for level in range(_END_LEVELS) if end_levels & 1 << level]
    buckets = [run.bucket_for(key) for run in runs_of(spilled)]
    return buckets + [_end_bucket(key, level) for level in levels]


def _end_bucket(key: bytes, level: int) -> Bucket:
    time = int.from_bytes(key[:_TIME_BYTES], "big")
    return Bucket(-1 - level, time >> 4 * level, 0)


class EndMarks(NamedTuple):
    """Marks of children's ends, by the buckets of one level in which they are stored."""

    level: int
    by_bucket: dict[Bucket, list[bytes]]


def end_marks_of(marks: Sequence[bytes]) -> EndMarks:
    """Choose buckets for marks of ends, with the shortest span in which each gets enough marks."""
    most = max(2, len(marks) // _MARKS_A_BUCKET)  # marks of a short time may be in two buckets
    for level in range(_END_LEVELS):
        by_bucket: dict[Bucket, list[bytes]] = {}
        for mark in marks:
            by_bucket.setdefault(_end_bucket(mark, level), []).append(mark)
        if len(by_bucket) <= most:
            break
    return EndMarks(level, by_bucket)


def all_buckets(spilled: int) -> list[Bucket]:
    return [bucket for run in runs_of(spilled) for bucket in run.buckets]


def mark_key(request_id: str) -> bytes:
    """Return the hash of a request's id, which is the first part of its mark."""
    return blake2b(request_id.encode(), digest_size=MARK_KEY_BYTES).digest()


# A bit in the middle of the key, so that the mark's bucket stays the same.
_SHARED = 1 << 4 * MARK_KEY_BYTES


def step_id(unit: int) -> str:
    """Return the id of the request with which a step of one unit finishes this unit."""
    return f"step-{unit:016x}"


def unit_of_step(request: Request) -> int | None:
    """Return the only unit that a request finishes according to its id. None for other requests."""
    match = STEP_ID.fullmatch(request.id)  # the validation reserves such ids for steps
    return int(match[1], 16) if match else None


def note_id(unit: int, request: Request) -> str:
    """Return the id of a fail or a note about a unit, which follows from the request's content.

    A sender that runs again therefore sends the same id. docs/protocol.md specifies the derivation.
    """
    missing = " ".join(f"{unit:016x}" for unit in request.missing) or None
    count = request.missing_count
    content = {"reason": request.reason, "text": request.text, "missing": missing}
    parts: list[str | int] = [request.op]
    for name, value in {**content, "missing_count": count}.items():
        parts += () if value is None else (name, value)
    return f"{request.op}-{unit:016x}-{unit_id(*parts):016x}"


def shared_key(key: bytes) -> bytes:
    """Return the key that marks a unit of `Request.finishes_once`, from its `step_id`'s key."""
    return (int.from_bytes(key, "big") ^ _SHARED).to_bytes(MARK_KEY_BYTES, "big")


def callback_key(request: Request) -> bytes:
    """Return the key that marks the callback of a create. It contains a NUL, which no id can."""
    return mark_key(f"{request.id}\0{json.dumps(request.resume)}")


def keys_of(request: Request, mark: bytes) -> list[bytes]:
    """Return the keys of all marks that decide whether this request is a duplicate."""
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
    """Return the checksum of these fields. It is cached, because most requests share them."""
    return crc32(b"%s\0%d\0%d\0" % (op.encode(), started, finished))


def _number_of(digits: str) -> float:
    """Read a JSON number with a fraction or an exponent. The number 1.0 becomes 1."""
    number = float(digits)
    return int(number) if number.is_integer() else number


def _canonical(*values: object) -> bytes:
    """Return JSON text that is the same for equal JSON values."""
    parsed = json.loads(json.dumps(values), parse_float=_number_of)
    return json.dumps(parsed, sort_keys=True).encode()


def mark_of(request: Request) -> bytes:
    """Return a request's mark: the hash of its id, followed by a checksum of its content.

    The checksum distinguishes a reused id from a duplicate. It does not cover the callback, because
    a create that is retried may have another token.
    """
    if request.child is not None:
        time = request.child_ended_at // _TICK_MS % (1 << 8 * _TIME_BYTES)
        size = MARK_KEY_BYTES - _TIME_BYTES
        key = blake2b(request.id.encode(), digest_size=size).digest()
        return time.to_bytes(_TIME_BYTES, "big") + key + END_CONTENT
    checksum = _checksum_without_stamp(request.op, request.started, request.finished)
    if request.stamp is not None:
        checksum = crc32(request.stamp, checksum)
    if request.op != "stamp":  # a stamp has no other fields in its content
        options = (request.timeout, request.idle_timeout, request.detail, request.reason)
        parents = [parent.to_json() for parent in request.parents]
        values = (request.note, request.tolerated_units, parents, request.fail_parent)
        present = (*filter(None, values),)
        checksum = crc32(_canonical(*options, *present), checksum)
    elif request.finishes_once:
        checksum = crc32(_canonical(request.finishes_once), checksum)
    checksum = max(checksum, 2)  # lower checksums mark units, callbacks and ends
    mark = mark_key(request.id) + checksum.to_bytes(MARK_BYTES - MARK_KEY_BYTES, "big")
    assert len(mark) == MARK_BYTES, "marks are cut out of an item by their length"
    return mark


def marks_in(marks: bytes) -> list[bytes]:
    """Return concatenated marks one by one."""
    return [marks[at : at + MARK_BYTES] for at in range(0, len(marks), MARK_BYTES)]


def split_marks(marks: bytes) -> dict[bytes, bytes]:
    """Return concatenated marks as a mapping from their keys to their checksums."""
    return {
        marks[at : at + MARK_KEY_BYTES]: marks[at + MARK_KEY_BYTES : at + MARK_BYTES]
        for at in range(0, len(marks), MARK_BYTES)
    }
