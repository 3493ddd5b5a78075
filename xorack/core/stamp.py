"""Stamps: the bytes that stand for units, how they are XORed, and how ids are read back.

Three kinds (docs/how-it-works.md): opaque (any bytes), plain (8 bytes, the unit's id) and traced
(648 bytes, an invertible Bloom lookup table whose cells are XORed). Sources: Apache Storm's acker
for the XOR; Goodrich and Mitzenmacher, "Invertible Bloom Lookup Tables" (2011), and Eppstein et
al., "What's the Difference? Efficient Set Reconciliation without Prior Context" (2011) for the
tables and their peeling.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from xorack.core.errors import BufferLengthsUnequal, InvalidRequest, LessThanTwoBuffers
from xorack.core.hashing import xxh64_long

__all__ = [
    "PLAIN_LENGTH",
    "TRACED_CELLS",
    "TRACED_LENGTH",
    "TRACED_TABLES",
    "Outstanding",
    "Stamp",
    "check_bytes",
    "peel",
    "plain",
    "traced",
    "xor",
    "xor_bytes",
    "xor_end_to_end",
]

PLAIN_LENGTH = 8
"""Bytes of a plain stamp."""
TRACED_TABLES = 5
"""Tables of a traced stamp."""
TRACED_CELLS = 16
"""Cells of each table of a traced stamp."""
TRACED_WORDS = 1 + TRACED_TABLES * TRACED_CELLS
"""64-bit words of a traced stamp: the XOR of all ids, then the tables."""
TRACED_LENGTH = 8 * TRACED_WORDS
"""Bytes of a traced stamp."""

_WORTH_NUMPY = 64
"""Stamps from which on numpy is quicker than integers."""
_WIDE_WORDS = 128
_FOLDED_BYTES = 32 * 1024
_MASK = (1 << 64) - 1


class Stamp(bytes):
    """The bytes of a stamp, or of a chain: the XOR of stamps.

    Example:
        >>> xor(b"A", b"A").acked
        True
    """

    __slots__ = ()

    @property
    def acked(self) -> bool:
        """Whether all bytes are zero: whatever was started is finished."""
        return not any(self)


class UnackedStamp(Stamp):
    """The zero bytes of a chain that is not acked all the same: it failed, or its counts differ."""

    __slots__ = ()

    @property
    def acked(self) -> bool:
        """Always False."""
        return False


class Outstanding(NamedTuple):
    """What is left in a chain.

    Attributes:
        ids: The ids of units started and not finished (or finished and not started), each 1 to
            2**64 - 1.
        complete: Whether these are all of them.
    """

    ids: frozenset[int]
    complete: bool


def xor_bytes(first: bytes, second: bytes) -> bytes:
    """XOR of two byte strings of one length.

    Args:
        first: Any bytes.
        second: As many bytes.

    Returns:
        As many bytes.

    Raises:
        BufferLengthsUnequal: The lengths differ.
    """
    length = len(first)
    if len(second) != length:
        raise BufferLengthsUnequal(len(second), length)
    x = int.from_bytes(first, "little") ^ int.from_bytes(second, "little")
    return x.to_bytes(length, "little")


def check_bytes(field: str, value: object) -> bytes | bytearray | memoryview:
    """Check that something is bytes.

    Args:
        field: What it is called.
        value: What was given.

    Returns:
        The same.

    Raises:
        InvalidRequest: It is not.
    """
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise InvalidRequest(field, value, "bytes")
    return value


def xor(*stamps: bytes) -> Stamp:
    """XOR across all stamps.

    Args:
        *stamps: Two or more byte strings of one length.

    Returns:
        The XOR; its ``acked`` says whether it is all zeros.

    Raises:
        LessThanTwoBuffers: Fewer than two stamps.
        BufferLengthsUnequal: The lengths differ.
        InvalidRequest: Not bytes.
    """
    if len(stamps) < 2:
        raise LessThanTwoBuffers
    for stamp in stamps:
        check_bytes("stamp", stamp)
    length = len(stamps[0])
    folded = 0
    for stamp in stamps:
        if len(stamp) != length:
            raise BufferLengthsUnequal(len(stamp), length)
        folded ^= int.from_bytes(stamp, "little")
    return Stamp(folded.to_bytes(length, "little"))


def xor_end_to_end(stamps: bytes, length: int) -> int:
    """XOR across stamps that lie end to end in one buffer.

    Args:
        stamps: Any number of stamps, or none.
        length: Bytes of each, at least 1.

    Returns:
        The XOR, read as a little-endian number; 0 of none.

    Raises:
        BufferLengthsUnequal: The last of them is shorter.
    """
    count, rest = divmod(len(stamps), length)
    if rest:
        raise BufferLengthsUnequal(rest, length)
    if count >= _WORTH_NUMPY and length % 8 == 0 and (numpy := _numpy()) is not None:
        words, each = numpy.frombuffer(stamps, numpy.uint64), length // 8
        if 1 < each <= _WIDE_WORDS // 2 and count >= 4 * _WORTH_NUMPY:
            # Short rows are slow: several stamps side by side first, what is left over after them.
            wide = _WIDE_WORDS // each
            whole = count // wide * wide * each
            folded = numpy.bitwise_xor.reduce(words[:whole].reshape(-1, wide * each), axis=0)
            words = numpy.concatenate((folded, words[whole:]))
        rows = words.reshape(-1, each)
        return int.from_bytes(numpy.bitwise_xor.reduce(rows, axis=0).tobytes(), "little")
    folded = 0
    # Integers of many pages are slow to make: some stamps at a time.
    step = max(1, _FOLDED_BYTES // length)
    for at in range(0, count, step):
        part = int.from_bytes(stamps[at * length : (at + step) * length], "little")
        left = min(step, count - at)
        while left > 1:  # half onto half: all in all as many steps as there are bytes
            left = (left + 1) // 2
            bits = 8 * length * left
            part = (part >> bits) ^ (part & ((1 << bits) - 1))
        folded ^= part
    return folded


@lru_cache(maxsize=1)
def _numpy() -> Any:
    """numpy, where it happens to be installed; imported when there is much to XOR."""
    try:
        import numpy
    except ImportError:
        return None
    return numpy


def _id_bytes(unit: int) -> bytes:
    """A unit's id as 8 little-endian bytes; Spark's signed longs are taken as two's complement."""
    if isinstance(unit, bool) or not isinstance(unit, int):
        raise InvalidRequest("unit", unit, "an int")
    if unit == 0 or not -(1 << 63) <= unit <= _MASK:
        raise InvalidRequest("unit", unit, "a non-zero 64-bit integer")
    return (unit & _MASK).to_bytes(8, "little")


def plain(unit: int) -> Stamp:
    """The plain stamp of a unit: its id, little-endian (Storm's ack value).

    Args:
        unit: The unit's id, a non-zero 64-bit integer, unsigned or signed.

    Returns:
        8 bytes.

    Raises:
        InvalidRequest: Not a non-zero 64-bit integer.
    """
    return Stamp(_id_bytes(unit))


def traced(unit: int) -> Stamp:
    """The traced stamp of a unit, from whose XORs ids can be read back with `peel`.

    Args:
        unit: The unit's id, a non-zero 64-bit integer, unsigned or signed.

    Returns:
        648 bytes: the id, then five tables of 16 cells, each with the id in one cell.

    Raises:
        InvalidRequest: Not a non-zero 64-bit integer.
    """
    x = _id_bytes(unit)
    stamp = bytearray(TRACED_LENGTH)
    stamp[0:8] = x
    for word in words_of(unit & _MASK):
        stamp[8 * word : 8 * word + 8] = x
    return Stamp(stamp)


def words_of(unit: int) -> tuple[int, int, int, int, int]:
    """The words, one in each table, that hold the id ``unit``."""
    y = xxh64_long(unit)
    return (
        1 + (y & 15),
        17 + (y >> 4 & 15),
        33 + (y >> 8 & 15),
        49 + (y >> 12 & 15),
        65 + (y >> 16 & 15),
    )


def peel(residual: bytes) -> Outstanding:
    """Read the ids of the outstanding units out of what is left in a chain.

    A traced residual (648 bytes) is peeled: a value that hashes to the very cell it stands in may
    be an id; it is taken out of its other cells, and so on. A mixture of ids hashes to its cell by
    chance once in 16 times, so what two cells agree on is taken first, and what rests on one cell
    counts only if everything ends at zero. Up to about 30 units are read back whole.

    A plain residual (8 bytes) is one id, if one unit is outstanding; where more are, it is a
    mixture that no look at it can tell from an id: hold the counts (started - finished) against it.

    Residuals of other lengths are opaque and are not guessed at.

    Args:
        residual: The chain's stamp, any bytes.

    Returns:
        The ids found and whether they are all. It always ends: hostile bytes cost at most some
        hundred passes over 80 cells.

    Raises:
        InvalidRequest: Not bytes.
    """
    check_bytes("residual", residual)
    if not any(residual):
        return Outstanding(frozenset(), True)
    if len(residual) == PLAIN_LENGTH:
        return Outstanding(frozenset((int.from_bytes(residual, "little"),)), True)
    if len(residual) != TRACED_LENGTH:
        return Outstanding(frozenset(), False)
    # Loaded when it is needed: hardly any call of a function sees a chain fail.
    from xorack.core.peeling import peeled

    return peeled(residual)
