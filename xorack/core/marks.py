"""Marks: the record in a chain of every request that it applied.

XOR undoes itself, so a request that is applied twice is a lost or a false ack. A chain therefore
carries a mark of each applied request, written together with the stamp. Marks that would make the
item large are spilled: copied to items of their own, and only then left out of the chain.
docs/adr/0002-marks.md has the alternatives.
"""

from __future__ import annotations

import json
from functools import lru_cache
from hashlib import blake2b
from zlib import crc32

from xorack.core.request import Request

__all__ = ["INLINE_MARKS", "MARK_BYTES", "MARK_KEY_BYTES", "mark_key", "mark_of", "split_marks"]

MARK_KEY_BYTES = 12
"""Bytes that identify the request's id: 96 bits. Among 100,000 requests two collide, and one is
lost, with a probability of about 10**-19."""
MARK_BYTES = 16
"""Bytes of a mark: the key, then a checksum of the request's content."""
INLINE_MARKS = 64
"""Marks that a chain's item holds before they are spilled. A traced item then has about 2 KB."""


def mark_key(request_id: str) -> bytes:
    """Hash a request's id: the first part of its mark."""
    return blake2b(request_id.encode(), digest_size=MARK_KEY_BYTES).digest()


@lru_cache(maxsize=64)
def _checksum_without_stamp(op: str, started: int, finished: int) -> int:
    """Cached: few requests differ in anything but id and stamp."""
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

    The checksum tells a reused id with other content from a true duplicate.
    """
    checksum = _checksum_without_stamp(request.op, request.started, request.finished)
    if request.stamp is not None:
        checksum = crc32(request.stamp, checksum)
    if request.op != "stamp":  # a stamp has no other fields
        options = (request.timeout, request.idle_timeout, request.detail, request.reason)
        checksum = crc32(_canonical(*options), checksum)
    return mark_key(request.id) + checksum.to_bytes(MARK_BYTES - MARK_KEY_BYTES, "big")


def split_marks(marks: bytes) -> dict[bytes, bytes]:
    """Return concatenated marks as a mapping from key to checksum."""
    return {
        marks[at : at + MARK_KEY_BYTES]: marks[at + MARK_KEY_BYTES : at + MARK_BYTES]
        for at in range(0, len(marks), MARK_BYTES)
    }
