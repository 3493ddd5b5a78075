"""Folds and packed requests, made by numpy and Arrow, equal those of plain Python."""

from __future__ import annotations

import json
from functools import reduce
from operator import xor as xor_int

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xorack import plain, traced, xor
from xorack.core.hashing import xxh64_long
from xorack.core.message import pack, parse
from xorack.core.request import Request
from xorack.core.stamp import TRACED_SIZES, traced_length
from xorack.spark import folding
from xorack.spark.folding import merge_folds
from xorack.spark.packing import request_texts
from xorack.spark.units import signed
from xorack.spark.vectors import Payloads, combine, hashes, single_units, stamp_words

# The id whose hash is 0 has no traced stamp.
IDS = st.integers(1, 2**64 - 1).filter(xxh64_long)
CHAIN = ["name", "day"]


def stamp_of(ids, cells):
    """XOR the stamps of ids, in plain Python."""
    make = plain if cells is None else lambda id: traced(id, cells)
    size = 8 if cells is None else traced_length(cells)
    return bytes(reduce(xor, map(make, ids), bytes(size)))


def table_of(units):
    """Return rows of ``name``, ``day`` and ``unit``: a row for each pair of a chain and an id."""
    names = pa.array([f"chain {chain // 2}" for chain, _ in units], pa.string())
    days = pa.array([chain % 2 for chain, _ in units], pa.int16())
    ids = pa.array([signed(id) for _, id in units], pa.int64())
    return pa.table([names, days, ids], [*CHAIN, "unit"])


def folded_parts(parts, cells):
    return pa.concat_tables(
        combine(single_units(table_of(part)), CHAIN, cells) for part in parts if part
    )


def merged(parts, cells):
    """Fold each part, then merge all of them, sorted and a few rows at a time."""
    rows = folded_parts(parts, cells).sort_by([(name, "ascending") for name in CHAIN])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folding, "_MERGED_BYTES", 150)
        batches = merge_folds(CHAIN, cells)(iter(rows.to_batches(max_chunksize=2)))
        return pa.Table.from_batches(batches)


def stamps_in(table, cells):
    words = stamp_words(Payloads.of(table.column("fold").combine_chunks()), cells)
    stamps = [row.astype("<u8").tobytes() for row in words]
    return dict(zip(chains_in(table), stamps, strict=True))


def chains_in(table):
    return [f"{row['name']}/{row['day']}" for row in table.select(CHAIN).to_pylist()]


def check(parts, cells):
    table = merged(parts, cells)
    by_chain = {}
    for chain, id in (unit for part in parts for unit in part):
        by_chain.setdefault(f"chain {chain // 2}/{chain % 2}", []).append(id)
    assert stamps_in(table, cells) == {c: stamp_of(ids, cells) for c, ids in by_chain.items()}
    for name, row in zip(chains_in(table), table.to_pylist(), strict=True):
        ids = by_chain[name]
        assert (row["count"], row["units"] % 2**64) == (len(ids), reduce(xor_int, ids))
        assert len(row["fold"]) <= traced_length(cells)


@given(
    st.lists(st.lists(st.tuples(st.integers(-2, 2), IDS), max_size=60), min_size=1, max_size=6)
    .filter(any),
    st.sampled_from([16, 64]),
)  # fmt: skip
@settings(max_examples=30)
def test_units_fold_in_any_order_and_grouping(parts, cells):
    check(parts, cells)


@given(
    st.lists(st.sampled_from([1, 2, 79, 80, 81, 82, 161, 162, 500]), min_size=1, max_size=4),
    st.integers(1, 5),
    st.randoms(use_true_random=True),
)
@settings(max_examples=8)
def test_chains_about_the_size_of_a_stamp(sizes, tasks, rng):
    units = [(chain, rng.randrange(1, 2**64)) for chain, n in enumerate(sizes) for _ in range(n)]
    rng.shuffle(units)
    check([units[task::tasks] for task in range(tasks)], 16)


@pytest.mark.parametrize("cells", TRACED_SIZES)
def test_a_chain_larger_than_any_stamp(cells):
    size = 1 + traced_length(cells) // 8
    check([[(1, id) for id in range(1, size)], [(1, size)], [(2, 5)]], cells)


def test_more_chains_than_sixteen_bits_count():
    units = [(chain, 1 + (chain * 7919 + 1) % 2**61) for chain in range(70_000)]
    table = combine(folded_parts([units[::2], units[1::2], units[:1000]], 16), CHAIN, 16)
    assert table.num_rows == len(units)
    twice = {f"chain {chain // 2}/{chain % 2}" for chain in range(1000)}
    ids = {f"chain {chain // 2}/{chain % 2}": id for chain, id in units}
    for name, units_, count in zip(
        chains_in(table), table["units"].to_pylist(), table["count"].to_pylist(), strict=True
    ):
        assert (units_, count) == ((0, 2) if name in twice else (ids[name], 1))


@given(st.lists(IDS, max_size=40))
def test_hashes_equal_those_of_plain_python(ids):
    assert hashes(np.array(ids, np.uint64)).tolist() == [xxh64_long(id) for id in ids]


@given(st.lists(st.lists(IDS, max_size=3), max_size=5), st.data())
def test_payloads_are_columns(chains, data):
    column = pa.array([np.array(ids, np.uint64).tobytes() for ids in chains], pa.binary())
    begin = data.draw(st.integers(0, len(chains)))
    payloads = Payloads.of(column.slice(begin))
    assert payloads.column().to_pylist() == column.slice(begin).to_pylist()
    rows = data.draw(st.permutations(range(len(chains) - begin)))
    taken = payloads.take(np.array(rows, np.int64)).column()
    assert taken.to_pylist() == [column[begin + row].as_py() for row in rows]


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
DETAILS = st.dictionaries(TEXTS, st.none() | st.integers() | TEXTS | st.lists(TEXTS), max_size=3)
COUNTS = st.none() | st.integers(1, 2**63 - 1)
SECONDS = st.none() | st.floats(1e-6, 3e8) | st.integers(1, 10**6).map(float)
ANY_UNITS = st.lists(IDS, max_size=3, unique=True)
CREATES = st.fixed_dictionaries(
    {
        "op": st.sampled_from(["create", "stamp", "fail"]),
        "tag": TEXTS.filter(bool),
        "id": st.sampled_from(["lines/start", "a-b_9/finish/2"]),
        "first": st.lists(IDS, min_size=1, max_size=3, unique=True),
        "second": ANY_UNITS,
        "started": COUNTS,
        "finished": COUNTS,
        "timeout": SECONDS,
        "idle_timeout": SECONDS,
        "detail": st.none() | DETAILS,
        "reason": st.none() | TEXTS,
    }
)
FIELDS = {
    "create": {"started", "finished", "timeout", "idle_timeout", "detail"},
    "stamp": {"started", "finished"},
    "fail": {"reason"},
}
SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("op", "tag", "id")),
        *(("units", pa.int64()), ("fold", pa.binary())),
        *(("units_2", pa.int64()), ("fold_2", pa.binary())),
        *((name, pa.int64()) for name in ("started", "finished")),
        *((name, pa.float64()) for name in ("timeout", "idle_timeout")),
        *((name, pa.string()) for name in ("detail", "reason")),
    ]
)


def row_of(request, single):
    """Return the row that a request is made of, and the request."""
    allowed = FIELDS[request["op"]]
    row = {name: request[name] for name in ("op", "tag", "id")}
    row |= {
        name: request[name] if name in allowed else None
        for name in ("started", "finished", "timeout", "idle_timeout", "detail", "reason")
    }
    fields = {name: value for name, value in row.items() if value is not None}
    if row["detail"] is not None:
        row["detail"] = json.dumps(row["detail"])
    for ids, units, fold in (
        (request["first"], "units", "fold"),
        (request["second"], "units_2", "fold_2"),
    ):
        row[units] = signed(reduce(xor_int, ids)) if ids else None
        alone = len(ids) == 1 and single
        hashed = np.array([xxh64_long(id) for id in ids], np.uint64)
        row[fold] = None if alone or not ids else hashed.tobytes()
    return row, fields  # fmt: skip


@given(st.lists(CREATES, min_size=1, max_size=8), st.sampled_from([None, 16, 64]), st.booleans())
@settings(max_examples=60)
def test_packed_requests_parse_to_those_given(requests, cells, single):
    pairs = [row_of(request, single) for request in requests]
    expected = []
    for request, (_, fields) in zip(requests, pairs, strict=True):
        stamp = stamp_of(request["first"] + request["second"], cells)
        if request["op"] != "fail":
            if not any(stamp):
                return
            fields["stamp"] = stamp
        expected.append(Request(**fields))
    batch = pa.RecordBatch.from_pylist([row for row, _ in pairs], SCHEMA)
    # A task gets slices of batches.
    rows = pa.concat_batches([batch.slice(0, 1), batch]).slice(1)
    texts = list(request_texts(rows, cells))
    assert all(text.isascii() for text in texts)
    (body,) = pack(texts)
    parsed = parse(body)
    assert not parsed.rejected
    assert parsed.requests == expected


def test_more_chains_than_are_packed_at_once():
    tags = [f"t{i}" for i in range(4097)]
    ids = list(range(1, 4098))
    columns = {"op": ["stamp"] * 4097, "tag": tags, "id": ["i"] * 4097, "units": ids}
    rows = pa.record_batch({**columns, "fold": pa.nulls(4097, pa.binary())})
    bodies = pack(request_texts(rows, 16))
    parsed = [request for body in bodies for request in parse(body).requests]
    assert parsed == [
        Request("stamp", tag, "i", traced(id)) for tag, id in zip(tags, ids, strict=True)
    ]
