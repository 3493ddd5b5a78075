"""Folds of many chains at a time, by numpy and Arrow.

A fold holds the units of one chain. Its payload is the XXH64 hashes of the unit ids, one 64-bit
word each, as long as these take less room than a traced stamp. Beyond that it is the words of the
stamp. So the fold of few units is small, and no fold is larger than a stamp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from xorack.core.hashing import P1, P2, P3, P4, P5, SEED
from xorack.core.stamp import TRACED_TABLES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Words = NDArray[np.uint64]
    Numbers = NDArray[np.int64]

__all__ = ["Payloads", "combine", "hashes", "single_units", "stamp_words"]

_BLOCK = 16384
"""Ids hashed at a time: their intermediate values stay in the processor's cache."""


class Payloads(NamedTuple):
    """Payloads of folds: the words of all, one fold after another, and how many each has."""

    words: Words
    lengths: Numbers

    @classmethod
    def of(cls, column: pa.Array) -> Payloads:
        """Read a binary column without copying it."""
        offsets = np.frombuffer(column.buffers()[1], np.int32)
        offsets = offsets[column.offset : column.offset + len(column) + 1].astype(np.int64)
        data = column.buffers()[2] or b""
        words = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]].copy().view(np.uint64)
        return cls(words, np.diff(offsets) // 8)

    def column(self) -> pa.Array:
        """Return them as a binary column."""
        offsets = np.zeros(len(self.lengths) + 1, np.int32)
        np.cumsum(8 * self.lengths, out=offsets[1:])
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(self.words))]
        return pa.Array.from_buffers(pa.binary(), len(self.lengths), buffers)

    def take(self, rows: Numbers) -> Payloads:
        """Return those of some rows, in that order."""
        lengths = self.lengths[rows]
        shift = (np.cumsum(self.lengths) - self.lengths)[rows] - (np.cumsum(lengths) - lengths)
        places = np.arange(lengths.sum()) + np.repeat(shift, lengths)
        return Payloads(self.words[places], lengths)


def hashes(ids: Words) -> Words:
    """Compute `xorack.core.hashing.xxh64_long` of each id."""
    hashed = np.empty(len(ids), np.uint64)
    for begin in range(0, len(ids), _BLOCK):
        block = slice(begin, begin + _BLOCK)
        hashed[block] = _xxh64(ids[block])
    return hashed


def _xxh64(values: Words) -> Words:
    h: Words = values * np.uint64(P2)
    scratch = np.empty(len(values), np.uint64)
    _rotate(h, 31, scratch)
    h *= np.uint64(P1)
    h ^= np.uint64((SEED + P5 + 8) % (1 << 64))
    _rotate(h, 27, scratch)
    h *= np.uint64(P1)
    h += np.uint64(P4)
    for shift, factor in ((33, P2), (29, P3)):
        h ^= np.right_shift(h, np.uint64(shift), out=scratch)
        h *= np.uint64(factor)
    h ^= np.right_shift(h, np.uint64(32), out=scratch)
    return h


def _rotate(values: Words, bits: int, scratch: Words) -> None:
    np.left_shift(values, np.uint64(bits), out=scratch)
    values >>= np.uint64(64 - bits)
    values |= scratch


def stamp_words(payloads: Payloads, cells: int) -> Words:
    """Return the words of the traced stamps that payloads stand for.

    Args:
        payloads: Of each chain.
        cells: The cells of each table.

    Returns:
        A row a chain, of ``1 + 5 * cells`` words; see `xorack.core.stamp`.
    """
    width = 1 + TRACED_TABLES * cells
    whole = payloads.lengths == width
    of_whole = np.repeat(whole, payloads.lengths)
    stamps = _fold(payloads.words[~of_whole], np.where(whole, 0, payloads.lengths), cells)
    stamps[whole] = payloads.words[of_whole].reshape(-1, width)
    return stamps


def _fold(hashed: Words, lengths: Numbers, cells: int) -> Words:
    """XOR the stamps of runs of hashes: a row a run."""
    width = 1 + TRACED_TABLES * cells
    flat = np.zeros(len(lengths) * width, np.uint64)
    base = np.repeat(np.arange(len(lengths)) * width, lengths)
    bits = cells.bit_length() - 1
    for table in range(TRACED_TABLES):
        cell = (hashed >> np.uint64(bits * table) & np.uint64(cells - 1)).view(np.int64)
        cell += base
        cell += 1 + cells * table
        np.bitwise_xor.at(flat, cell, hashed)
    stamps = flat.reshape(-1, width)
    # Each unit is in one cell of each table: the first table's XOR is that of all hashes.
    stamps[:, 0] = np.bitwise_xor.reduce(stamps[:, 1 : 1 + cells], axis=1)
    return stamps


def single_units(rows: pa.Table) -> pa.Table:
    """Replace each row's ``unit`` by a fold: ``units``, ``count`` and ``fold``."""
    ids = rows.column("unit").to_numpy()
    ones = np.ones(len(ids), np.int64)
    fold = Payloads(hashes(ids.view(np.uint64)), ones).column()
    columns = [*rows.drop_columns("unit").columns, pa.array(ids), pa.array(ones), fold]
    names = [*(name for name in rows.column_names if name != "unit"), "units", "count", "fold"]
    return pa.table(columns, names)


def combine(rows: pa.Table, chain: Sequence[str], cells: int) -> pa.Table:
    """Merge the folds of each chain into one.

    Args:
        rows: The columns that tell chains apart; ``units``, the XOR of unit ids; ``count``;
            ``fold``.
        chain: The names of the columns that tell chains apart.
        cells: The cells of each table.

    Returns:
        A row a chain, with the same columns.
    """
    order, begins = _grouped(rows.select(chain))
    units = np.bitwise_xor.reduceat(rows.column("units").to_numpy()[order], begins)
    counts = np.add.reduceat(rows.column("count").to_numpy()[order], begins)
    payloads = Payloads.of(rows.column("fold").combine_chunks()).take(order)
    runs, fold = _merged(payloads, begins, cells)
    columns = rows.select(chain).take(pa.array(order[begins[runs]])).columns
    columns += [pa.array(units[runs]), pa.array(counts[runs]), fold.column()]
    return pa.table(columns, [*chain, "units", "count", "fold"])


def _grouped(columns: pa.Table) -> tuple[Numbers, Numbers]:
    """Order rows by the values of all columns; return the order, and where each group begins."""
    codes, groups = _codes(columns.column(0).combine_chunks())
    for column in columns.columns[1:]:
        others, number = _codes(column.combine_chunks())
        codes, groups = _codes(pa.array(codes * number + others))
    # A radix sort: numpy sorts 16-bit integers by counting, ten times as quick as longs.
    order = np.argsort(codes.astype(np.uint16), kind="stable")
    for shift in range(16, groups.bit_length(), 16):
        order = order[np.argsort((codes >> shift).astype(np.uint16)[order], kind="stable")]
    lengths = np.bincount(codes, minlength=groups)
    return order, np.cumsum(lengths) - lengths


def _codes(values: pa.Array) -> tuple[Numbers, int]:
    """Number values from 0; return the number of each, and how many there are."""
    encoded = values.dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)


def _merged(payloads: Payloads, begins: Numbers, cells: int) -> tuple[Numbers, Payloads]:
    """Merge runs of payloads that begin at some rows; return the runs' numbers in a new order."""
    width = 1 + TRACED_TABLES * cells
    lengths = np.add.reduceat(payloads.lengths, begins)
    large = lengths >= width
    few, many = np.flatnonzero(~large), np.flatnonzero(large)
    in_large = np.repeat(large, lengths)
    if not len(many):
        return few, Payloads(payloads.words, lengths)
    rows = np.diff(begins, append=len(payloads.lengths))
    part = Payloads(payloads.words[in_large], payloads.lengths[np.repeat(large, rows)])
    run, whole = np.repeat(np.arange(len(many)), rows[large]), part.lengths == width
    in_whole = np.repeat(whole, part.lengths)
    counts = np.zeros(len(many), np.int64)
    np.add.at(counts, run, np.where(whole, 0, part.lengths))
    stamps = _fold(part.words[~in_whole], counts, cells)
    stamps ^= _xor_runs(part.words[in_whole].reshape(-1, width), run[whole], len(many))
    words = np.concatenate((payloads.words[~in_large], stamps.reshape(-1)))
    return np.concatenate((few, many)), Payloads(
        words, np.minimum(lengths, width)[np.concatenate((few, many))]
    )


def _xor_runs(stamps: Words, run: Numbers, runs: int) -> Words:
    """XOR the stamps of each run; ``run`` ascends."""
    sums = np.zeros((runs, stamps.shape[1]), np.uint64)
    if len(run):
        begins = np.flatnonzero(np.concatenate(([True], run[1:] != run[:-1])))
        sums[run[begins]] = np.bitwise_xor.reduceat(stamps, begins, axis=0)
    return sums
