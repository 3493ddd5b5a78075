"""Stamps: the bytes that stand for units, and their XOR.

A stamp is opaque (any bytes), plain (8 bytes, the unit's id) or traced. A traced stamp is an
invertible Bloom lookup table, whose length shows its number of cells. `xorack.core.peeling` reads
ids out of it.

Sources: Apache Storm's acker for the XOR; Goodrich and Mitzenmacher, "Invertible Bloom Lookup
Tables" (2011), for the tables.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import xor as xor_of_integers

from xorack.core.errors import ArgumentError, BufferLengthsUnequal, LessThanTwoBuffers
from xorack.core.hashing import MASK, xxh64_long, xxh64_long_inverse

PLAIN_LENGTH = 8
"""Bytes of a plain stamp."""
TRACED_TABLES = 5
TRACED_SIZES = (16, 64, 256, 1024)
"""The numbers of cells that a table of a traced stamp can have."""
TRACED_CELLS = 16
"""The default number of cells of a table."""


def traced_length(cells: int) -> int:
    """Return the bytes of a traced stamp: 8 for the XOR of all hashes, and 8 for each cell."""
    return 8 * (1 + TRACED_TABLES * cells)


TRACED_LENGTH = traced_length(TRACED_CELLS)
"""The bytes of a traced stamp of the default size."""
TRACED_LENGTHS = {traced_length(cells): cells for cells in TRACED_SIZES}
"""Maps the length of a traced stamp to the number of cells of a table."""
_UNIT_OF_ZERO = xxh64_long_inverse(0)


class Stamp(bytes):
    """The bytes of a stamp, or the XOR of the stamps of a chain.

    Examples:
        >>> xor(b"A", b"A").acked
        True
    """

    __slots__ = ()

    @property
    def acked(self) -> bool:
        """Return whether all bytes are zero, so that every started unit is finished."""
        return not any(self)


class UnackedStamp(Stamp):
    """The zero stamp of a chain that is not acked, because it failed or its counts differ."""

    __slots__ = ()

    @property
    def acked(self) -> bool:
        """Return False."""
        return False


def check_bytes(field: str, value: object) -> bytes | bytearray | memoryview:
    """Return the value if it is bytes; else raise ArgumentError, which names the field."""
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise ArgumentError(field, value, "bytes")
    return value


def xor(*stamps: bytes) -> Stamp:
    """XOR all stamps.

    Args:
        *stamps: Two or more byte strings of one length.

    Returns:
        The XOR. Its ``acked`` is True if all bytes are zero.

    Raises:
        LessThanTwoBuffers: Fewer than two stamps were given.
        BufferLengthsUnequal: The lengths differ.
        ArgumentError: A stamp is not bytes.
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


def check_unit(unit: object, cells: int = 0) -> int:
    """Return a unit's unsigned id. Raise ArgumentError if it has no stamp of this size."""
    if isinstance(unit, bool) or not isinstance(unit, int):
        raise ArgumentError("unit", unit, "an int")
    if unit == 0 or not -(1 << 63) <= unit <= MASK:
        raise ArgumentError("unit", unit, "a non-zero 64-bit integer")
    if cells and unit & MASK == _UNIT_OF_ZERO:
        expected = f"an id other than {_UNIT_OF_ZERO:016x}, which hashes to 0"
        raise ArgumentError("unit", unit, expected)
    return unit & MASK


def sum_of(units: Iterable[int], cells: int) -> Stamp:
    """XOR the stamps of ids that `check_unit` returned. The stamps are plain if `cells` is 0."""
    if not cells:
        return Stamp(reduce(xor_of_integers, units, 0).to_bytes(PLAIN_LENGTH, "little"))
    sums: dict[int, int] = {}
    for unit in units:
        y = xxh64_long(unit)
        for word in (0, *words_of(y, cells)):
            sums[word] = sums.get(word, 0) ^ y
    stamp = bytearray(traced_length(cells))
    for word, value in sums.items():
        stamp[8 * word : 8 * word + 8] = value.to_bytes(8, "little")
    assert len(stamp) == traced_length(cells), "each word has its place"
    return Stamp(stamp)


def plain(unit: int) -> Stamp:
    """Make the plain stamp of a unit: its id, little-endian (Storm's ack value).

    Args:
        unit: The unit's id, a non-zero 64-bit integer, unsigned or signed.

    Returns:
        8 bytes.

    Raises:
        ArgumentError: The id is not a non-zero 64-bit integer.
    """
    return sum_of([check_unit(unit)], 0)


def check_cells(cells: object, field: str = "cells") -> int:
    """Return the number of cells if it is valid; else raise ArgumentError for the field."""
    if isinstance(cells, bool) or not isinstance(cells, int) or cells not in TRACED_SIZES:
        raise ArgumentError(field, cells, "16, 64, 256 or 1024")
    return cells


def traced(unit: int, cells: int = TRACED_CELLS) -> Stamp:
    """Make the traced stamp of a unit. `xorack.peel` reads ids from the XOR of traced stamps.

    All stamps of a chain must have the same size.

    Args:
        unit: The unit's id, a non-zero 64-bit integer, unsigned or signed. The id faec1e2ac606499c
            is invalid: its hash is 0, so its stamp would be all zeros.
        cells: The cells of each table: 16, 64, 256 or 1,024. Such stamps name about 32, 80, 384 or
            1,792 outstanding units, and larger numbers of units with a lower probability.

    Returns:
        648, 2,568, 10,248 or 40,968 bytes: the XXH64 of the id, then five tables of cells. One cell
        of each table has that hash.

    Raises:
        ArgumentError: The id or the number of cells is invalid.
    """
    size = check_cells(cells)
    return sum_of([check_unit(unit, size)], size)


def words_of(y: int, cells: int) -> tuple[int, int, int, int, int]:
    """Return the positions of the five words that hold a hash, one in each table."""
    bits, last = cells.bit_length() - 1, cells - 1
    return (
        1 + (y & last),
        1 + cells + (y >> bits & last),
        1 + 2 * cells + (y >> 2 * bits & last),
        1 + 3 * cells + (y >> 3 * bits & last),
        1 + 4 * cells + (y >> 4 * bits & last),
    )
