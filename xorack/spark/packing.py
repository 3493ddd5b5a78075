"""Requests of many chains as JSON texts, put together column by column."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from xorack.spark.vectors import Payloads, hashes, stamp_words

if TYPE_CHECKING:
    from xorack.spark.vectors import Words

__all__ = ["FOLDS", "request_texts"]

FOLDS = (("units", "fold"), ("units_2", "fold_2"))
"""Columns whose stamps are XORed: a chain may finish units and start others in one stamp."""
_CHAINS_AT_ONCE = 4096
"""Chains whose stamps are in memory together."""
_NOT_PLAIN = r"[^ !#-\[\]-~]"
"""Characters of a string that JSON in ASCII escapes."""


def request_texts(rows: pa.RecordBatch, cells: int | None) -> Iterator[str]:
    """Make requests of rows.

    Args:
        rows: A request a row: see `xorack.spark.sending.send`.
        cells: The cells of each table of traced stamps; None for plain stamps.

    Yields:
        JSON objects, in the order of the rows.
    """
    for begin in range(0, rows.num_rows, _CHAINS_AT_ONCE):
        yield from _texts(rows.slice(begin, _CHAINS_AT_ONCE), cells).to_pylist()


def _texts(rows: pa.RecordBatch, cells: int | None) -> pa.Array:
    ops = rows.column("op")
    is_stamped = pc.not_equal(ops, "fail")
    parts = [
        *('{"op":"', ops, '","tag":', _strings(rows.column("tag"))),
        *(',"id":"', rows.column("id"), '"'),
        pc.if_else(is_stamped, _quoted("stamp", _base64(_stamps(rows, cells))), ""),
    ]
    for name, encode in _FIELDS.items():
        if name in rows.schema.names:
            value = encode(rows.column(name))
            parts.append(pc.coalesce(_join(f',"{name}":', value), ""))
    return _join(*parts, "}")


def _join(*parts: Any) -> pa.Array:
    """Concatenate texts row by row; null where one of them is."""
    # Sessions may have strings with large offsets.
    texts = [part if isinstance(part, str) else part.cast(pa.string()) for part in parts]
    return pc.binary_join_element_wise(*texts, "")


def _quoted(name: str, values: pa.Array) -> pa.Array:
    return _join(f',"{name}":"', values, '"')


def _numbers(column: pa.Array) -> pa.Array:
    return column.cast(pa.string())


def _strings(column: pa.Array) -> pa.Array:
    """Return strings as JSON; few need more than quotes."""
    texts = _join('"', column, '"')
    matches = pc.fill_null(pc.match_substring_regex(column, _NOT_PLAIN), fill_value=False)
    if not pc.any(matches).as_py():
        return texts
    escaped = [json.dumps(text) for text in column.filter(matches).to_pylist()]
    return pc.replace_with_mask(texts, matches, pa.array(escaped))


_FIELDS: dict[str, Callable[[pa.Array], pa.Array]] = {
    "started": _numbers,
    "finished": _numbers,
    "timeout": _numbers,
    "idle_timeout": _numbers,
    "detail": lambda column: column,
    "reason": _strings,
}


def _stamps(rows: pa.RecordBatch, cells: int | None) -> Words:
    """Return the words of the rows' stamps."""
    total: Words = np.zeros((1, 1), np.uint64)
    for units, fold in FOLDS:
        if units in rows.schema.names:
            ids = pc.fill_null(rows.column(units), 0).to_numpy().view(np.uint64)
            total = total ^ (
                ids.reshape(-1, 1) if cells is None else _traced(ids, rows.column(fold), cells)
            )
    return total


def _traced(ids: Words, folds: pa.Array, cells: int) -> Words:
    """Return traced stamps. A null fold is one unit, or with the id 0, none."""
    single = folds.is_null().to_numpy(zero_copy_only=False) & (ids != 0)
    words = stamp_words(Payloads.of(pc.fill_null(folds, b"")), cells)
    ones = np.ones(int(single.sum()), np.int64)
    words[single] = stamp_words(Payloads(hashes(ids[single]), ones), cells)
    return words


def _base64(words: Words) -> pa.Array:
    """Encode the stamps in base64: a string a row."""
    data = words.astype("<u8").view(np.uint8)
    rows, length = data.shape
    # Base64 of rows whose length is a multiple of three can be cut where the rows end.
    if padding := -length % 3:
        data = np.pad(data, ((0, 0), (0, padding)))
    size = (length + padding) // 3 * 4
    text = np.frombuffer(b64encode(data.tobytes()), np.uint8)
    if padding:
        text = text.reshape(rows, size).copy()
        text[:, -padding:] = ord("=")
    offsets = pa.py_buffer(np.arange(rows + 1, dtype=np.int32) * np.int32(size))
    return pa.Array.from_buffers(pa.string(), rows, [None, offsets, pa.py_buffer(text)])
