"""Windows over a log: which positions are proved, and which windows are complete.

This module does no I/O, and does not use Spark.

Theory of operation
===================

A log has partitions. A partition has ordered positions, some without a row. A *window* is a range
of positions of each partition, fixed when it is opened. A *proof* says that the rows of some ranges
are in the output of one batch of a stream. The window's chain starts a unit for each of its
partitions. The unit finishes when proved ranges reach from the window's start to its end without a
gap (`contiguous_end`). So the chain is acked if and only if all partitions are covered.

A `_Store` keeps windows, each written once, and the last two proofs of each stream. Each proof has
everything that its stream has proved so far. A store must show stored values at once. The requests
to send follow only from windows and proofs. Two rules make every interleaving safe:

1. *Keep, then look.* `prove` keeps its proof, then reads the windows. `open_window` keeps its
   window, then reads the proofs. Of any two calls, the later reader sees what both have kept, so at
   least one of them finishes a unit.
2. *A request follows only from its window and partition.* Whichever process sends it, and however
   often, it has the same id and content. So it counts once.

Spark repeats a batch whose call did not return. If its proof was kept, the new proof must be equal.
A new proof replaces the older of the two proofs, so a crash does not damage the last proof.

A batch covers a partition from its first row to its last row. Positions without a row (markers of
transactions, aborted or compacted records) at the edges are covered if the source's offsets
(``since``, ``until``) say so. A batch without any row is accepted only if its offsets begin where
the batch before it ended.

Two simultaneous calls that open a window with different ends do not see each other. Units depend on
the ends. If one call creates the chain and the other keeps the window, the chain is never acked.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from xorack.core.checks import MAX_DETAIL_BYTES
from xorack.core.errors import ArgumentError, StateError
from xorack.core.hashing import unit_id
from xorack.core.partition_names import shortened
from xorack.core.request import Request
from xorack.core.text import plural, verb

_CELLS = 16
_DATED = re.compile(r"\d{4}-\d\d-\d\d")
_MAX_SEPARATE = 8
"""Most ranges with gaps that a partition keeps separate, to know which windows contain them."""
Ends = Mapping[str, int]
Bounds = tuple[Ends, Ends]


class Range(NamedTuple):
    """Positions ``begin`` to ``end - 1``, and the number of their rows."""

    begin: int
    end: int
    rows: int

    @property
    def gaps(self) -> int:
        """Positions without a row."""
        return self.end - self.begin - self.rows


Proved = dict[str, list[Range]]
Seen = Mapping[str, Range]


class Window(NamedTuple):
    """A range of positions of each partition."""

    name: str
    starts: Ends
    ends: Ends

    @property
    def digest(self) -> str:
        """A digest of the ranges."""
        text = json.dumps([self.starts, self.ends], sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


class StreamProof(NamedTuple):
    """The ranges that a stream has proved up to a batch."""

    stream: str
    batch: int
    slot: int
    ranges: Proved

    @classmethod
    def of(cls, raw: dict[str, Any]) -> StreamProof:
        """Read a proof from JSON."""
        ranges = {
            key: [Range(*numbers) for numbers in triples] for key, triples in raw["ranges"].items()
        }
        return cls(**{**raw, "ranges": ranges})


class _Store(Protocol):
    def windows(self) -> list[Window]: ...
    def keep_window(self, window: Window) -> None: ...
    def proofs(self) -> list[StreamProof]: ...
    def keep_proof(self, proof: StreamProof) -> None: ...


@dataclass(frozen=True)
class WindowStatus:
    """How far a window is proved.

    Attributes:
        window: The window, with its ``name``, ``starts`` and ``ends`` by partition.
        proved: The position up to which each partition is proved, from its start.
        gaps: Positions without a row, by partition, in the batches that have rows of the window.
        others: Partitions that have proved rows, but no end in the window, because they appeared
            later.
    """

    window: Window
    proved: Ends
    gaps: Ends
    others: tuple[str, ...] = ()

    @classmethod
    def of(cls, window: Window, proved: Proved) -> WindowStatus:
        """Return the status of a window for these proved ranges."""
        near = {
            key: [span for span in proved.get(key, ()) if overlaps(window, key, span)]
            for key in window.starts
        }
        far = {key: contiguous_end(near[key], start) for key, start in window.starts.items()}
        gaps = {key: n for key, ranges in near.items() if (n := sum(span.gaps for span in ranges))}
        return cls(window, far, gaps, tuple(sorted(proved.keys() - window.ends.keys())))

    @property
    def lagging(self) -> dict[str, tuple[int, int]]:
        """The partitions that are not covered: the proved position of each, and its end."""
        ends, far = self.window.ends, self.proved
        return {key: (far[key], end) for key, end in ends.items() if far[key] < end}

    @property
    def complete(self) -> bool:
        """Whether all partitions are covered."""
        return not self.lagging


def overlaps(window: Window, key: str, span: Range) -> bool:
    """Return whether a range has positions of a window's partition."""
    start, end = window.starts.get(key, 0), window.ends.get(key, 0)
    return span.begin < end > start < span.end


def contiguous_end(ranges: Iterable[Range], start: int) -> int:
    """Return the end of the ranges that follow a start without a gap; the ranges are ordered."""
    for begin, end, _ in ranges:
        if begin > start:
            break
        start = max(start, end)
    return start


def _joined(key: str, ranges: Iterable[Range]) -> list[Range]:
    """Sort ranges and join neighbours.

    Of the ranges with gaps, the last `_MAX_SEPARATE` stay separate.
    """
    joined, ordered = [Range(-1, -1, 0)], sorted(ranges)
    for number, later in enumerate(ordered):
        last, is_old = joined[-1], len(ordered) - number >= _MAX_SEPARATE
        if last.end > later.begin:
            raise StateError(
                f"positions {later.begin} to {min(last.end, later.end) - 1} of {key} are proved "
                "twice, because another stream, or an earlier checkpoint, has written them: name "
                "each stream with stream=, and use a new run_id for a new checkpoint"
            )
        if last.end == later.begin and (is_old or not (last.gaps or later.gaps)):
            joined[-1] = Range(last.begin, later.end, last.rows + later.rows)
        else:
            joined.append(later)
    return joined[1:]


def _united(groups: Iterable[Mapping[str, Iterable[Range]]]) -> Proved:
    united: Proved = {}
    for ranges in groups:
        for key, more in ranges.items():
            united.setdefault(key, []).extend(more)
    return {key: _joined(key, ranges) for key, ranges in united.items()}


def proved_of(proofs: Iterable[StreamProof]) -> Proved:
    """Return the ranges that all streams proved, by partition."""
    newest = {proof.stream: proof.ranges for proof in sorted(proofs, key=attrgetter("batch"))}
    return _united(newest.values())


def _proved(store: _Store) -> Proved:
    """Read the proved ranges twice, because a stream may replace both proofs during one reading."""
    return proved_of([*store.proofs(), *store.proofs()])


def prove(
    store: _Store,
    batch: tuple[str, int],
    seen: Seen,
    bounds: Bounds = ({}, {}),
    *,
    gaps: str = "count",
) -> list[tuple[WindowStatus, list[str]]]:
    """Keep the proof of a batch, after its output was compared.

    Args:
        store: Keeps windows and proofs.
        batch: The stream and the number of the batch.
        seen: The positions of the batch's rows, by partition.
        bounds: The offsets of the batch, as far as the source knows them.
        gaps: What to do with positions without rows.

    Returns:
        The windows that contain positions of the batch, each with the partitions that have passed
        its end.

    Raises:
        StateError: The batch contradicts an earlier proof. Nothing was kept.
    """
    stream, number = batch
    proofs, none = store.proofs(), StreamProof(stream, -1, 1, {})
    mine = sorted((proof for proof in proofs if proof.stream == stream), key=attrgetter("batch"))
    *_, earlier, last = none, none, *mine
    before = earlier if last.batch == number else last
    own = _own(seen, bounds)
    if gaps != "ignore":
        at = {key: ranges[-1].end for key, ranges in before.ranges.items()}
        follows = before.batch == number - 1 and bool(at) and at.items() <= bounds[0].items()
        _check_gaps(own, gaps, follows=follows)
    ranges = _united([before.ranges, {key: [covered] for key, covered in own.items()}])
    proof = StreamProof(stream, number, 1 - before.slot, ranges)
    if last != proof:
        if last.batch >= number:
            raise StateError(
                f"stream {stream!r} has proved batch {last.batch}, and this is batch {number} with "
                "other rows: a new checkpoint needs a new run_id"
            )
        proved_of([*(other for other in proofs if other.stream != stream), proof])
        store.keep_proof(proof)
    # Read the windows only after the proof is kept: see rule 1.
    touched = [
        (window, keys)
        for window in store.windows()
        if (keys := {key for key, covered in own.items() if overlaps(window, key, covered)})
    ]
    proved = _proved(store) if touched else {}
    statuses = [(WindowStatus.of(window, proved), keys) for window, keys in touched]
    return [(status, sorted(keys - status.lagging.keys())) for status, keys in statuses]


def _own(seen: Seen, bounds: Bounds) -> dict[str, Range]:
    """Return the range of each partition that a batch covers; see the theory of operation."""
    since, until = bounds
    if until and (unknown := sorted(seen.keys() - until.keys())):
        raise StateError(
            f"the batch has rows of {unknown[0]}, a partition that is not in its offsets: is this "
            "the checkpoint of another query?"
        )
    own = {}
    for key in sorted({*seen, *(since.keys() & until.keys())}):
        rows = seen.get(key) or Range(until[key], until[key], 0)
        own[key] = span = Range(since.get(key, rows.begin), until.get(key, rows.end), rows.rows)
        if not span.begin <= rows.begin <= rows.end <= span.end or rows.gaps < 0:
            raise StateError(
                f"{key} has {plural(rows.rows, 'row')} at the positions {rows.begin} to "
                f"{rows.end - 1} in this batch, expected at most one each at {span.begin} to "
                f"{span.end - 1}: some belong to another batch, or are duplicates"
            )
    return {key: span for key, span in own.items() if span.begin < span.end}


def _check_gaps(own: Mapping[str, Range], gaps: str, *, follows: bool) -> None:
    """Refuse gaps if `gaps` is ``error``.

    Refuse a batch without rows if it does not follow another batch.
    """
    if own and not follows and not any(span.rows for span in own.values()):
        positions = plural(sum(span.gaps for span in own.values()), "position")
        raise StateError(
            f"the batch has no row at the {positions} that it covers: is the path wrong, or the "
            "checkpoint of another query? If it covers markers, pass checkpoint= to each batch, or "
            "gaps='ignore'"
        )
    for key, span in own.items():
        if span.gaps and gaps == "error":
            raise StateError(
                f"{span.gaps} of the positions {span.begin} to {span.end - 1} of {key} "
                f"{verb(span.gaps, 'has', 'have')} no row in this batch, and gaps='error' "
                "refuses this"
            )


def find_window(store: _Store, name: str, ends: Ends, starts: Ends) -> Window:
    """Return the open window with a name, or a new window, which `open_window` keeps.

    Windows may be opened in any order. Of any two windows, one ends after the other in each
    partition, or at the same position. A new window begins at `starts`, or else where the window
    before it ends, or at 0.
    """
    windows, before = store.windows(), dict[str, int]()
    for window in windows:
        if window.name == name:
            others = (window.ends.items() ^ ends.items()) | (starts.items() - window.starts.items())
            for key, _ in sorted(others)[:1]:
                raise StateError(
                    f"window {name!r} is open with {key} at {window.starts.get(key)} to "
                    f"{window.ends.get(key)}, not {starts.get(key, '')} to {ends.get(key)}: pass "
                    "the same range, or use another name"
                )
            return window
    known = proved_of(store.proofs()).keys() | {key for window in windows for key in window.ends}
    if missing := sorted(known - ends.keys()):
        problem = (
            f"no end of {', '.join(missing[:5])}, a partition of this log: pass its end, 0 if "
            "the window has no row of it, or its last end if the partition was deleted"
        )
        raise ArgumentError("ends", problem=problem)
    for window in windows:
        earlier = next((key for key, end in window.ends.items() if ends[key] < end), None)
        later = next((key for key, end in window.ends.items() if ends[key] > end), None)
        is_later = name > window.name and _DATED.match(name) and _DATED.match(window.name)
        if earlier and (later or is_later):
            what = f"end in {later}" if later else "name"
            problem = (
                f"{name!r} ends before window {window.name!r} in {earlier}, but its {what} is "
                "later: a new topic needs a new run_id"
            )
            raise ArgumentError("ends", problem=problem)
        # The ends of all partitions grow together, so the last of the earlier windows has the
        # greatest sum of ends.
        if not earlier and sum(window.ends.values()) >= sum(before.values()):
            before = dict(window.ends)
    begins = {key: starts.get(key, before.get(key, 0)) for key in ends}
    for key, end in ends.items():
        if not 0 <= begins[key] <= end:
            problem = f"{key} ends at {end}, expected its start {begins[key]} or a later position"
            raise ArgumentError("ends", problem=problem)
    return Window(name, begins, dict(ends))


def open_window(store: _Store, window: Window) -> WindowStatus:
    """Keep a window of `find_window`. Return its status, which decides which requests to send."""
    if window not in store.windows():
        store.keep_window(window)
    # The window is stored before the proofs are read. `prove` has the same order.
    return WindowStatus.of(window, _proved(store))


def create_request(
    tag: str, detail: Mapping[str, Any], keys: Iterable[str], **times: Any
) -> Request:
    """Return the request that creates a window's chain, with a unit for each partition.

    The detail has ``ranges``, the window's digest, and the names of partitions if they fit.
    """
    units = [unit_id(tag, detail["ranges"], key) for key in keys]
    named = {**detail, "partitions": shortened(keys)}
    detail = named if len(json.dumps(named)) <= MAX_DETAIL_BYTES else detail
    return Request.create(tag, "open", starts=units, cells=_CELLS, detail=detail, **times)


def finish_request(tag: str, digest: str, key: str) -> Request:
    """Return the request that finishes a partition of a window.

    Every sender makes the same request.
    """
    unit = unit_id(tag, digest, key)
    return Request.stamp_(tag, f"pass/{unit:016x}", finishes=[unit], cells=_CELLS)
