"""Stamps: the bytes that stand for units, and their XOR.

A stamp is opaque (any bytes), plain (8 bytes, the unit's id) or traced (648 bytes, an invertible
Bloom lookup table whose cells are XORed). `xorack.core.peeling` reads ids out of traced stamps.

Sources: Apache Storm's acker for the XOR; Goodrich and Mitzenmacher, "Invertible Bloom Lookup
Tables" (2011), for the tables.
"""

from __future__ import annotations

from xorack.core.errors import BufferLengthsUnequal, InvalidRequest, LessThanTwoBuffers
from xorack.core.hashing import MASK, xxh64_long

__all__ = [
    "PLAIN_LENGTH",
    "TRACED_CELLS",
    "TRACED_LENGTH",
    "TRACED_TABLES",
    "TRACED_WORDS",
    "Stamp",
    "UnackedStamp",
    "check_bytes",
    "plain",
    "traced",
    "words_of",
    "xor",
    "xor_bytes",
]

PLAIN_LENGTH = 8
"""Bytes of a plain stamp."""
TRACED_TABLES = 5
TRACED_CELLS = 16
"""Cells of each table of a traced stamp."""
TRACED_WORDS = 1 + TRACED_TABLES * TRACED_CELLS
"""64-bit words of a traced stamp: the XOR of all ids, then the tables."""
TRACED_LENGTH = 8 * TRACED_WORDS
"""Bytes of a traced stamp."""


class Stamp(bytes):
    """The bytes of a stamp, or of a chain: the XOR of its stamps.

    Example:
        >>> xor(b"A", b"A").acked
        True
    """

    __slots__ = ()

    @property
    def acked(self) -> bool:
        """True if all bytes are zero: every started unit is finished."""
        return not any(self)


class UnackedStamp(Stamp):
    """The zero stamp of a chain that is not acked: it failed, or its counts differ."""

    __slots__ = ()

    @property
    def acked(self) -> bool:
        """Always False."""
        return False


def check_bytes(field: str, value: object) -> bytes | bytearray | memoryview:
    """Return the value if it is bytes; raise InvalidRequest that names the field if not."""
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise InvalidRequest(field, value, "bytes")
    return value


def xor_bytes(first: bytes, second: bytes) -> bytes:
    """XOR two byte strings; raise BufferLengthsUnequal if their lengths differ."""
    length = len(first)
    if len(second) != length:
        raise BufferLengthsUnequal(len(second), length)
    total = int.from_bytes(first, "little") ^ int.from_bytes(second, "little")
    return total.to_bytes(length, "little")


def xor(*stamps: bytes) -> Stamp:
    """XOR all stamps.

    Args:
        *stamps: Two or more byte strings of one length.

    Returns:
        The XOR. Its ``acked`` is True if all bytes are zero.

    Raises:
        LessThanTwoBuffers: Fewer than two stamps were given.
        BufferLengthsUnequal: The lengths differ.
        InvalidRequest: A stamp is not bytes.
    """
    if len(stamps) < 2:
        raise LessThanTwoBuffers
    length = len(check_bytes("stamp", stamps[0]))
    total = 0
    for stamp in stamps:
        if len(check_bytes("stamp", stamp)) != length:
            raise BufferLengthsUnequal(len(stamp), length)
        total ^= int.from_bytes(stamp, "little")
    return Stamp(total.to_bytes(length, "little"))


def _id_bytes(unit: int) -> bytes:
    """Encode a unit's id in 8 little-endian bytes; Spark's negative longs in two's complement."""
    if isinstance(unit, bool) or not isinstance(unit, int):
        raise InvalidRequest("unit", unit, "an int")
    if unit == 0 or not -(1 << 63) <= unit <= MASK:
        raise InvalidRequest("unit", unit, "a non-zero 64-bit integer")
    return (unit & MASK).to_bytes(8, "little")


def plain(unit: int) -> Stamp:
    """Make the plain stamp of a unit: its id, little-endian (Storm's ack value).

    Args:
        unit: The unit's id, a non-zero 64-bit integer, unsigned or signed.

    Returns:
        8 bytes.

    Raises:
        InvalidRequest: The id is not a non-zero 64-bit integer.
    """
    return Stamp(_id_bytes(unit))


def traced(unit: int) -> Stamp:
    """Make the traced stamp of a unit. `xorack.peel` reads ids back out of the XOR of such stamps.

    Args:
        unit: The unit's id, a non-zero 64-bit integer, unsigned or signed.

    Returns:
        648 bytes: the id, then five tables of 16 cells, each with the id in one cell.

    Raises:
        InvalidRequest: The id is not a non-zero 64-bit integer.
    """
    id_bytes = _id_bytes(unit)
    stamp = bytearray(TRACED_LENGTH)
    for word in (0, *words_of(unit & MASK)):
        stamp[8 * word : 8 * word + 8] = id_bytes
    return Stamp(stamp)


def words_of(unit: int) -> tuple[int, int, int, int, int]:
    """Return the positions of the five words, one in each table, that hold an id."""
    y = xxh64_long(unit)
    return (
        1 + (y & 15),
        17 + (y >> 4 & 15),
        33 + (y >> 8 & 15),
        49 + (y >> 12 & 15),
        65 + (y >> 16 & 15),
    )
