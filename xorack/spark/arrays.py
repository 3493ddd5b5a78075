"""Units and stamps by the array: `xorack.core.hashing` and `xorack.core.stamp` for millions.

Needs numpy. Some tens of nanoseconds a unit, traced stamps included, where the functions for one
unit take microseconds. For work whose units come into being in Python, or are read there from
columns; units that are already in Spark's rows are folded by `xorack.spark.fold`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from xorack.core.errors import InvalidRequest
from xorack.core.hashing import P1, P2, P3, P4, P5, SEED
from xorack.core.stamp import TRACED_CELLS, TRACED_TABLES, check_cells

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = NDArray[np.uint64]

__all__ = ["Folds", "bounds_of_runs", "fold_ids", "stamp_bytes", "unit_ids"]

_BLOCK = 16384
"""Ids hashed at a time: what is in between stays in the processor's cache, three times as quick."""
_MOST_TABLES = 3
_WORTH = 2
"""Ids for each cell of a grid of several tables from which on they are quicker done at a time."""
_LONG_RUN = 8192
"""Units of one chain that follow each other, from which on they are folded by themselves."""


def unit_ids(column: NDArray[np.int64]) -> Words:
    """Return `xorack.unit_id` of each integer of an array.

    Args:
        column: Signed 64-bit integers, one dimension.

    Returns:
        The ids, unsigned, never 0.

    Raises:
        InvalidRequest: The array has another type or more than one dimension.

    Example:
        >>> [int(id) for id in unit_ids(np.arange(2))] == [unit_id(0), unit_id(1)]
        True
    """
    if column.dtype != np.int64 or column.ndim != 1:
        raise InvalidRequest(
            "column", f"{column.dtype}, {column.ndim} dimensions", "64-bit integers in a row"
        )
    ids = np.empty(len(column), np.uint64)
    for begin in range(0, len(column), _BLOCK):
        block = slice(begin, begin + _BLOCK)
        ids[block] = _xxh64(column[block])
    ids[ids == 0] = 1
    return ids


def _xxh64(values: NDArray[np.int64]) -> Words:
    """XXH64 of longs: `xorack.core.hashing.xxh64_long` with its default seed, step by step."""
    h: Words = values.view(np.uint64) * np.uint64(P2)
    other = np.empty(len(values), np.uint64)
    _rotate(h, 31, other)
    h *= np.uint64(P1)
    h ^= np.uint64((SEED + P5 + 8) % (1 << 64))
    _rotate(h, 27, other)
    h *= np.uint64(P1)
    h += np.uint64(P4)
    for shift, factor in ((33, P2), (29, P3)):
        h ^= np.right_shift(h, np.uint64(shift), out=other)
        h *= np.uint64(factor)
    h ^= np.right_shift(h, np.uint64(32), out=other)
    return h


def _rotate(values: Words, bits: int, other: Words) -> None:
    """Rotate to the left, in place; the other array is room to work in."""
    np.left_shift(values, np.uint64(bits), out=other)
    values >>= np.uint64(64 - bits)
    values |= other


def fold_ids(
    ids: Words,
    groups: NDArray[np.intp],
    number: int,
    kind: Literal["traced", "plain"] = "traced",
    cells: int = TRACED_CELLS,
) -> Words:
    """XOR the stamps of units together, group by group.

    Args:
        ids: The units' ids.
        groups: Of each unit the number of its group, 0 to ``number - 1``.
        number: How many groups there are.
        kind: ``traced`` or ``plain``.
        cells: The cells of each table of traced stamps; see `xorack.traced`.

    Returns:
        A row a group, of ``1 + 5 * cells`` words or one; see `stamp_bytes`. Zeros for a group
        without units.

    Raises:
        InvalidRequest: ``kind`` or ``cells`` is invalid.
    """
    if kind == "plain":
        sums = np.zeros(number, np.uint64)
        np.bitwise_xor.at(sums, groups, ids)
        return sums.reshape(number, 1)
    if kind != "traced":
        raise InvalidRequest("kind", kind, "'traced' or 'plain'")
    bits = check_cells(cells).bit_length() - 1
    words = np.zeros((number, 1 + TRACED_TABLES * cells), np.uint64)
    tables = words[:, 1:].reshape(number, TRACED_TABLES, cells)  # a view
    # Some tables at a time, on a grid of all their cells, where that is worth the grid's sums.
    some = 1
    while some < _MOST_TABLES and len(ids) >= _WORTH * number * cells ** (some + 1):
        some += 1
    spans = [(low, min(low + some, TRACED_TABLES)) for low in range(0, TRACED_TABLES, some)]
    grids = [np.zeros(number * cells ** (high - low), np.uint64) for low, high in spans]
    for begin in range(0, len(ids), _BLOCK):
        block = slice(begin, begin + _BLOCK)
        hashed = _xxh64(ids[block].view(np.int64))
        for (low, high), grid in zip(spans, grids, strict=True):
            places = cells ** (high - low)
            place = hashed >> np.uint64(bits * low)
            place &= np.uint64(places - 1)
            if number == 1 and len(hashed) >= places:
                grid[:] ^= _sorted_sums(hashed, place, places)
                continue
            where = place.view(np.int64)
            if number > 1:
                where += groups[block] * places
            np.bitwise_xor.at(grid, where, hashed)
    for (low, high), grid in zip(spans, grids, strict=True):
        sides = high - low
        cube = grid.reshape(number, *(cells,) * sides)
        for side in range(1, sides + 1):  # the last side is of the lowest table
            others = tuple(other for other in range(1, sides + 1) if other != side)
            tables[:, high - side] = np.bitwise_xor.reduce(cube, axis=others)
    # Each unit is in one cell of each table: the first table's sum is that of all units.
    words[:, 0] = np.bitwise_xor.reduce(tables[:, 0], axis=1)
    return words


def _sorted_sums(hashes: Words, cell: Words, cells: int) -> Words:
    """XOR the hashes of each cell, quicker than ``bitwise_xor.at`` by a third.

    Small numbers are sorted by counting. After the sort, a cell's sum is the difference of two
    sums of all hashes so far.
    """
    small = cell.astype(np.uint8 if cells <= 1 << 8 else np.uint16)
    order = np.argsort(small, kind="stable")
    so_far = np.zeros(len(hashes) + 1, np.uint64)
    np.bitwise_xor.accumulate(hashes.take(order), out=so_far[1:])
    ends = np.cumsum(np.bincount(small, minlength=cells))
    sums = so_far.take(ends)
    sums[1:] ^= sums[:-1].copy()
    return sums


def bounds_of_runs(firsts: NDArray[np.int64], lengths: NDArray[np.int64]) -> Words:
    """Fold runs of consecutive numbers to what tells them apart, without a look at each number.

    Their XOR does not depend on how runs are cut. It is the plain stamp of the runs where the stamp
    of a number n is ``unit_id(n) ^ unit_id(n + 1)``, of which all but the ends cancel out.

    Args:
        firsts: The first number of each run.
        lengths: How many numbers it has.

    Returns:
        Of each run the XOR of the ids of its first number and of the one after its last.
    """
    return unit_ids(firsts) ^ unit_ids(firsts + lengths)


def stamp_bytes(words: Words) -> list[bytes]:
    """The stamps that rows of words are.

    Args:
        words: As from `fold_ids`.

    Returns:
        A byte string a row, of 8 little-endian bytes a word.
    """
    data, length = words.astype("<u8").tobytes(), 8 * words.shape[1]
    return [data[begin : begin + length] for begin in range(0, len(data), length)]


class Folds:
    """Stamps and counts of chains, to which units are added array by array.

    Args:
        kind: Of the stamps: ``traced`` or ``plain``.
        cells: The cells of each table of traced stamps.
    """

    def __init__(
        self, kind: Literal["traced", "plain"] = "traced", cells: int = TRACED_CELLS
    ) -> None:
        self._kind: Literal["traced", "plain"] = kind
        self._cells = cells
        self._rows: dict[int, int] = {}
        self._words: Any = None
        self._counts: Any = None

    def add(
        self, keys: NDArray[np.int64], ids: Words, counts: NDArray[np.int64] | None = None
    ) -> None:
        """Add units.

        Args:
            keys: Of each unit the key of its chain. Quickest where units of one chain follow each
                other.
            ids: The units' ids.
            counts: How much each of them counts; 1 if None.
        """
        begins = np.flatnonzero(keys[1:] != keys[:-1]) + 1
        begins = np.concatenate(([0], begins)) if len(keys) else begins
        lengths = np.diff(begins, append=len(keys))
        added = lengths if counts is None or not len(keys) else np.add.reduceat(counts, begins)
        self._add(keys[begins], lengths, ids, added)

    def add_runs(self, keys: NDArray[np.int64], lengths: NDArray[np.int64], ids: Words) -> None:
        """Add units of which it is known where those of one chain begin and end.

        Args:
            keys: Of each run of units the key of its chain.
            lengths: How many units it has, at least one.
            ids: The units' ids, run after run.
        """
        self._add(keys, lengths, ids, lengths)

    def _add(
        self,
        keys: NDArray[np.int64],
        lengths: NDArray[np.int64],
        ids: Words,
        counts: NDArray[np.int64],
    ) -> None:
        """Add runs of units, which count so much each."""
        if not len(keys):
            return
        begins = np.cumsum(lengths) - lengths
        long = lengths >= _LONG_RUN
        if len(keys) > 1 and long.any():
            # Each by itself: one group's ids need no number of it.
            for at in np.flatnonzero(long).tolist():
                some, run = slice(at, at + 1), slice(begins[at], begins[at] + lengths[at])
                self._add(keys[some], lengths[some], ids[run], counts[some])
            ids = ids[np.repeat(~long, lengths)] if not long.all() else ids[:0]
            self._add(keys[~long], lengths[~long], ids, counts[~long])
            return
        found, runs = np.unique(keys, return_inverse=True)
        if self._kind == "plain":
            ids, groups = np.bitwise_xor.reduceat(ids, begins), runs
        else:
            groups = np.repeat(runs, lengths)
        words = fold_ids(ids, groups, len(found), self._kind, self._cells)
        added = np.zeros(len(found), np.int64)
        np.add.at(added, runs, counts)
        at_rows = self._places(found.tolist(), words.shape[1])
        self._words[at_rows] ^= words
        self._counts[at_rows] += added

    def results(self, rows: int = 4096) -> Iterator[tuple[list[int], Words, NDArray[np.int64]]]:
        """What has been added, some chains at a time.

        Args:
            rows: At most how many at a time.

        Yields:
            Keys in the order in which they came; the words of their stamps, a row each (see
            `stamp_bytes`); how many units that is.
        """
        keys = list(self._rows)
        for begin in range(0, len(keys), rows):
            end = min(begin + rows, len(keys))
            yield keys[begin:end], self._words[begin:end], self._counts[begin:end]

    def _places(self, keys: list[int], width: int) -> list[int]:
        """The rows of these keys, made where there are none yet."""
        at = [self._rows.setdefault(key, len(self._rows)) for key in keys]
        have = 0 if self._words is None else len(self._words)
        if len(self._rows) > have:
            words = np.zeros((2 * len(self._rows), width), np.uint64)
            counts = np.zeros(2 * len(self._rows), np.int64)
            if have:
                words[:have], counts[:have] = self._words, self._counts
            self._words, self._counts = words, counts
        return at
