"""XXH64 as Spark SQL's ``xxhash64`` uses it, and the unit ids made of it.

Source: Yann Collet, xxHash specification,
https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md (XXH64).

The pure form serves where the ``xxhash`` package is not installed: the acker in its Lambda
function hashes only whole ids (8 bytes), to peel the residual of a failed chain.
"""

from __future__ import annotations

from xorack.core.errors import InvalidRequest

try:
    from xxhash import xxh64_intdigest as _xxh64
except ImportError:  # pragma: no cover - the Lambda function, which has no compiled packages
    _xxh64 = None  # type: ignore[assignment]

__all__ = ["SEED", "unit_id", "xxh64_long"]

SEED = 42
"""The seed of Spark SQL's ``xxhash64``."""

_MASK = (1 << 64) - 1
P1 = 0x9E3779B185EBCA87
P2 = 0xC2B2AE3D27D4EB4F
P3 = 0x165667B19E3779F9
P4 = 0x85EBCA77C2B2AE63
P5 = 0x27D4EB2F165667C5


def _xxh64_long(x: int, seed: int = SEED) -> int:
    """XXH64 of the 8 little-endian bytes of ``x``, in pure Python."""
    k = (x & _MASK) * P2 & _MASK
    k = (k << 31 | k >> 33) & _MASK
    h = (seed + P5 + 8 & _MASK) ^ (k * P1 & _MASK)
    h = (h << 27 | h >> 37) & _MASK
    h = h * P1 + P4 & _MASK
    h = (h ^ h >> 33) * P2 & _MASK
    h = (h ^ h >> 29) * P3 & _MASK
    return h ^ h >> 32


def xxh64_long(x: int, seed: int = SEED) -> int:
    """XXH64 of a 64-bit integer's 8 little-endian bytes: Spark SQL's ``xxhash64`` of a long.

    Args:
        x: The integer, signed or unsigned; taken modulo 2**64.
        seed: The seed, unsigned 64 bits.

    Returns:
        The hash, unsigned 64 bits.
    """
    if _xxh64 is None:
        return _xxh64_long(x, seed)
    return int(_xxh64((x & _MASK).to_bytes(8, "little"), seed))


def unit_id(*parts: str | bytes | int) -> int:
    """The id of the unit that these parts name: the same parts, the same id, everywhere.

    Equal to Spark SQL's ``xxhash64`` of the same columns (strings, binaries, longs) read as
    unsigned, so that a Spark job and plain Python agree. It is XXH64 with seed 42 for the first
    part, then with the hash so far as the seed.

    Args:
        *parts: At least one. A ``str`` counts as its UTF-8 bytes, an ``int`` (within signed 64
            bits) as its 8 little-endian bytes.

    Returns:
        The id, 1 to 2**64 - 1 (a hash of 0 becomes 1: an id is never zero).

    Raises:
        InvalidRequest: No parts, a part of another type, an integer beyond signed 64 bits, or a
            ``str`` that has no UTF-8 (lone surrogates).

    Example:
        >>> unit_id("database/file13", 0) == unit_id("database/file13", 0)
        True
    """
    if not parts:
        raise InvalidRequest("parts", parts, "at least one str, bytes or int")
    h = SEED
    for part in parts:
        if isinstance(part, str):
            try:
                data = part.encode()
            except UnicodeEncodeError:
                raise InvalidRequest("part", part, "a str without lone surrogates") from None
        elif isinstance(part, (bytes, bytearray, memoryview)):
            data = bytes(part)
        elif isinstance(part, int) and not isinstance(part, bool):
            if not -(1 << 63) <= part < 1 << 63:
                raise InvalidRequest("part", part, "an int within signed 64 bits")
            h = xxh64_long(part, h)
            continue
        else:
            raise InvalidRequest("part", part, "a str, bytes or int")
        if _xxh64 is None:
            raise ModuleNotFoundError(
                "unit_id of str and bytes needs the package xxhash: pip install xxhash"
            )
        h = int(_xxh64(data, h))
    return h or 1
