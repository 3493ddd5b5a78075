"""XXH64 as Spark SQL's ``xxhash64`` uses it, and unit ids.

Source: Yann Collet, xxHash specification,
https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md (XXH64).

The extra ``xorack[fast]`` installs the compiled package ``xxhash``. Without it, and in Lambda
functions, whose code has to run on every architecture, the pure Python code is used.
"""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal

from xorack.core.errors import ArgumentError

SEED = 42
"""The seed of Spark SQL's ``xxhash64``."""
MASK = (1 << 64) - 1

P1 = 0x9E3779B185EBCA87
P2 = 0xC2B2AE3D27D4EB4F
P3 = 0x165667B19E3779F9
P4 = 0x85EBCA77C2B2AE63
P5 = 0x27D4EB2F165667C5


def _rotated(x: int, bits: int) -> int:
    return (x << bits | x >> 64 - bits) & MASK


def _round(sum_: int, lane: int) -> int:
    return _rotated(sum_ + lane * P2 & MASK, 31) * P1 & MASK


def _pure_xxh64(data: bytes, seed: int) -> int:
    words, rest = divmod(len(data), 8)
    lanes = [int.from_bytes(data[8 * n : 8 * n + 8], "little") for n in range(words)]
    striped = words // 4 * 4
    h = seed + P5
    if striped:
        sums = [seed + P1 + P2, seed + P2, seed, seed - P1]
        for n in range(striped):
            sums[n % 4] = _round(sums[n % 4], lanes[n])
        h = sum(_rotated(total, bits) for total, bits in zip(sums, (1, 7, 12, 18), strict=True))
        for total in sums:
            h = (h ^ _round(0, total)) * P1 + P4
    h = h + len(data) & MASK
    for lane in lanes[striped:]:
        h = _rotated(h ^ _round(0, lane), 27) * P1 + P4 & MASK
    tail = data[8 * words :]
    if rest >= 4:
        h = _rotated(h ^ int.from_bytes(tail[:4], "little") * P1 & MASK, 23) * P2 + P3 & MASK
        tail = tail[4:]
    for byte in tail:
        h = _rotated(h ^ byte * P5 & MASK, 11) * P1 & MASK
    h = (h ^ h >> 33) * P2 & MASK
    h = (h ^ h >> 29) * P3 & MASK
    return h ^ h >> 32


try:
    from xxhash import xxh64_intdigest as _xxh64
except ImportError:  # pragma: no cover - Lambda functions have no compiled packages
    _xxh64 = _pure_xxh64  # type: ignore[assignment]


def xxh64_long(x: int, seed: int = SEED) -> int:
    """Return XXH64 of an integer's 8 little-endian bytes, like Spark's ``xxhash64`` of a long."""
    return int(_xxh64((x & MASK).to_bytes(8, "little"), seed))


_P2_INVERSE, _P3_INVERSE, _P1_INVERSE = (pow(prime, -1, 1 << 64) for prime in (P2, P3, P1))


def xxh64_long_inverse(y: int) -> int:
    """Return the unsigned integer whose `xxh64_long` with the default seed is ``y``."""
    # XXH64 of 8 bytes is a bijection. The code undoes its steps in reverse order.
    h = y ^ y >> 32
    h = h * _P3_INVERSE & MASK
    h ^= h >> 29 ^ h >> 58
    h = h * _P2_INVERSE & MASK
    h ^= h >> 33
    h = (h - P4) * _P1_INVERSE & MASK
    h = (h >> 27 | h << 37) & MASK
    h = (h ^ SEED + P5 + 8 & MASK) * _P1_INVERSE & MASK
    h = (h >> 31 | h << 33) & MASK
    return h * _P2_INVERSE & MASK


def unit_id(*parts: str | bytes | int | date | Decimal) -> int:
    """Return the id of the unit that these parts name.

    Equal parts give the same id in all languages.

    The id is the XXH64 of the first part with seed 42. Each further part is hashed with the
    hash so far as its seed. Spark SQL's ``xxhash64`` of the same values is the same signed number.

    Args:
        *parts: At least one. A part is hashed as a string (its UTF-8 bytes), as bytes, or as a long
            (its 8 little-endian bytes):

            - ``str``: a string; ``bytes``: bytes; ``Decimal``: its `decimal_text`.
            - ``int``, within signed 64 bits: a long; ``bool``: the long 0 or 1.
            - ``date``: a long, the days since 1970-01-01.
            - ``datetime``: a long, the microseconds since 1970-01-01 UTC. Without a time zone, the
              wall clock counts as UTC.

    Returns:
        The id, 1 to 2**64 - 1. A hash of 0 becomes 1. The id faec1e2ac606499c, which occurs with a
        probability of 2**-64, has no traced stamp: `xorack.traced` rejects it.

    Raises:
        ArgumentError: There are no parts, or a part has another type. An integer needs more than 64
            bits, a ``str`` holds lone surrogates, or a ``Decimal`` is not finite.

    Examples:
        >>> unit_id("database/file13", 0) == unit_id("database/file13", 0)
        True
    """
    if not parts:
        raise ArgumentError("parts", parts, f"at least one {_SUITABLE}")
    h = SEED
    for part in parts:
        h = _xxh64_part(part, h)
    return h or 1


def child_id(parent: int, *parts: str | bytes | int | date | Decimal) -> int:
    """Return the id of a unit's child: `unit_id` of the parent's signed id and the child's name."""
    parent &= MASK
    return unit_id(parent - (1 << 64) if parent >> 63 else parent, *parts)


def decimal_text(value: Decimal) -> str:
    """Return a finite decimal in plain notation, such as ``-0.25``, without trailing zeros."""
    if not value.is_finite():
        raise ArgumentError("part", value, "a finite Decimal")
    text = format(value, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return text if value else "0"


_SUITABLE = "str, bytes, int, bool, date, datetime or Decimal"
_EPOCH = datetime(1970, 1, 1)
_EPOCH_UTC = _EPOCH.replace(tzinfo=timezone.utc)


def _xxh64_part(part: object, seed: int) -> int:
    if not isinstance(part, (int, str, bytes)):
        part = _canonical(part)
    if isinstance(part, int):
        if not -(1 << 63) <= part < 1 << 63:
            raise ArgumentError("part", part, "an int within signed 64 bits")
        return xxh64_long(part, seed)
    if isinstance(part, str):
        try:
            part = part.encode()
        except UnicodeEncodeError:
            raise ArgumentError("part", part, "a str without lone surrogates") from None
    if not isinstance(part, (bytes, bytearray, memoryview)):
        raise ArgumentError("part", part, f"a {_SUITABLE}")
    return int(_xxh64(bytes(part), seed))


def _canonical(part: object) -> object:
    """Return the int or str that stands for a date, datetime or Decimal; other parts unchanged."""
    if isinstance(part, datetime):
        since = part - (_EPOCH if part.tzinfo is None else _EPOCH_UTC)
        return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    if isinstance(part, date):
        return part.toordinal() - _EPOCH.toordinal()
    return decimal_text(part) if isinstance(part, Decimal) else part
