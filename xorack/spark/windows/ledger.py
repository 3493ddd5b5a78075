"""Windows over a log: what is proved of it, and which windows that makes whole. No I/O, no Spark.

Theory of operation
===================

A log has partitions; a partition has positions in an order, some without a row. A *window* is a
range of positions of each partition, fixed when it is opened. A *proof* says of one batch of one
stream: the rows of these ranges lie in the output. The window's chain starts a unit for each of its
partitions. It finishes the unit when proved ranges reach from the window's start to its end without
a hole (`prefix`). So the chain is acked if and only if all partitions are covered.

What is durable. A `Store` keeps windows, each written once, and the last two proofs of each stream.
A proof has all that its stream proved so far. There is no other state: what is to be sent follows
from windows and proofs alone. Two rules make every interleaving safe:

1. *Keep, then look.* `prove` keeps its proof, then reads the windows. `open_window` keeps its
   window, then reads the proofs. Of any two calls, the one that looks last sees what both kept, so
   at least one of them finishes a unit: whether the window or the rows came first, and where two
   streams cover a window only together. The store must show at once what it has taken.
2. *A request follows from its window and partition alone.* Whoever sends it, and however often, it
   has the same id and content, and counts once.

Crashes. Before the proof is kept, only the output was written, and the batch is repeated. After it,
the batch is repeated too, as Spark commits it when the call has returned: what it proves now is
compared with its proof, and the same requests go out. A proof goes to the slot that the last one is
not in, so a slot that a crash emptied was not needed. An `open_window` that died is repeated by its
caller. Stamps that precede the `create` wait for it.

What a batch covers. Its rows show where it lies in each partition. Positions without a row (markers
of transactions, aborted or compacted records) may lie at its edges. Two things tell that they were
read: the source's own offsets (``since``, ``until``); and the order of batches, as a stream reads a
partition on from where it was. The latter counts only since the last batch that nobody proved,
which leaves a hole. A partition's first rows begin at themselves.

Two calls that open a window with other ends at once do not see each other. Units depend on the
ends: if the chain is that of one call and the record that of the other, it is never acked.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from xorack.core.errors import ArgumentError, StateError

__all__ = ["UNKNOWN", "Range", "StreamProof", "Window", "WindowStatus"]
__all__ += ["find_window", "moment", "open_window", "overlaps", "prove", "proved_of"]

_SEPARATE = 8
"""Ranges with gaps that a partition keeps apart, to tell which windows have them."""
Ends = Mapping[str, int]
UNKNOWN: tuple[Ends, Ends] = ({}, {})


class Range(NamedTuple):
    """Positions ``begin`` to ``end - 1``, and how many rows they have."""

    begin: int
    end: int
    rows: int

    @property
    def gaps(self) -> int:
        """Positions without a row."""
        return self.end - self.begin - self.rows


Proved = dict[str, list[Range]]


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
    """What a stream proved up to a batch. One of two slots keeps it.

    The next batch begins ``at`` these positions of partitions.
    """

    stream: str
    batch: int
    slot: int
    at: Ends
    ranges: Proved

    @classmethod
    def of(cls, raw: dict[str, Any]) -> StreamProof:
        """Read it from JSON."""
        ranges = {key: [Range(*one) for one in some] for key, some in raw["ranges"].items()}
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
        proved: How far each partition is proved, from its start on.
        gaps: Positions without a row, by partition, in the batches that have rows of the window.
        others: Partitions with proved rows that the window has no end of: they have appeared since
            its ends were told. Their rows are of a later window.
    """

    window: Window
    proved: Ends
    gaps: Ends
    others: tuple[str, ...] = ()

    @classmethod
    def of(cls, window: Window, proved: Proved) -> WindowStatus:
        """Return the status by what is proved."""
        far, gaps = {}, {}
        for key, start in window.starts.items():
            near = [one for one in proved.get(key, ()) if overlaps(window, key, one)]
            far[key] = prefix(near, start)
            gaps[key] = sum(one.gaps for one in near)
        others = tuple(sorted(proved.keys() - window.ends.keys()))
        return cls(window, far, {key: count for key, count in gaps.items() if count}, others)

    @property
    def lagging(self) -> dict[str, tuple[int, int]]:
        """The partitions that are not covered: how far each is proved, and its end."""
        ends, far = self.window.ends, self.proved
        return {key: (far[key], end) for key, end in ends.items() if far[key] < end}

    @property
    def whole(self) -> bool:
        """Whether all partitions are covered."""
        return not self.lagging


def overlaps(window: Window, key: str, one: Range) -> bool:
    """Tell whether a range has positions of a window's partition."""
    start, end = window.starts.get(key, 0), window.ends.get(key, 0)
    return one.begin < end > start < one.end


def prefix(ranges: Iterable[Range], start: int) -> int:
    """Return how far ranges, which are in order, prove from a start on, without a hole."""
    for one in ranges:
        if one.begin > start:
            break
        start = max(start, one.end)
    return start


def _joined(key: str, ranges: Iterable[Range]) -> list[Range]:
    """Sort ranges and join neighbours; of those with gaps, the last `_SEPARATE` stay apart."""
    joined: list[Range] = []
    for one in sorted(ranges):
        last = joined[-1] if joined else Range(-1, -1, 0)
        if last.end > one.begin:
            raise StateError(
                f"positions {one.begin} to {min(last.end, one.end) - 1} of {key} are proved twice: "
                "another stream, or one with an earlier checkpoint, has written them"
            )
        if last.end == one.begin and not last.gaps and not one.gaps:
            joined[-1] = Range(last.begin, one.end, last.rows + one.rows)
        else:
            joined.append(one)
    for i in range(len(joined) - _SEPARATE, 0, -1):
        one, other = joined[i - 1 : i + 1]
        if one.end == other.begin:
            joined[i - 1 : i + 1] = [Range(one.begin, other.end, one.rows + other.rows)]
    return joined


def _united(some: Iterable[Mapping[str, Iterable[Range]]]) -> Proved:
    found: Proved = {}
    for ranges in some:
        for key, more in ranges.items():
            found.setdefault(key, []).extend(more)
    return {key: _joined(key, ranges) for key, ranges in found.items()}


def proved_of(proofs: Iterable[StreamProof]) -> Proved:
    """Return what all streams proved, by partition."""
    newest = {one.stream: one.ranges for one in sorted(proofs, key=attrgetter("batch"))}
    return _united(newest.values())


def _proved(store: _Store, before: Iterable[StreamProof] | None = None) -> Proved:
    """Return what all streams proved; `before` are the proofs that the caller read, if any.

    A reading may miss a stream that replaces both of its proofs meanwhile, so there are two. One is
    enough if all proofs, before and now, are the caller's own: it replaces none meanwhile.
    """
    found = store.proofs()
    if before is None or len({one.stream for one in (*before, *found)}) > 1:
        found += store.proofs()
    return proved_of(found)


def prove(
    store: _Store,
    batch: tuple[str, int],
    seen: Mapping[str, Range],
    bounds: tuple[Ends, Ends] = UNKNOWN,
    *,
    gaps: str = "count",
    lost: bool = False,
) -> list[tuple[WindowStatus, list[str]]]:
    """Keep the proof of a batch. Call it once its output is durable and was compared.

    Args:
        store: The windows and proofs.
        batch: The stream and the number of its batch: the same when it is repeated.
        seen: Where the rows of each partition lie.
        bounds: Where the batch begins and ends in partitions, as far as the source tells.
        gaps: As `Tracking.windows` has it.
        lost: Whether the batch before was refused, or lacked rows, since it was last proved.

    Returns:
        The windows that it has positions of, each with the partitions whose requests are to be
        sent.

    Raises:
        StateError: The batch contradicts what was proved before. Nothing was kept.
    """
    stream, number = batch
    proofs, none = store.proofs(), StreamProof(stream, -1, 1, {}, {})
    mine = [none, *sorted((one for one in proofs if one.stream == stream), key=attrgetter("batch"))]
    last = mine[-1]
    before = mine[-2] if last.batch == number else last
    # Where a stream is after a batch that nobody proved is not known, nor where it went back.
    at = before.at if before.batch == number - 1 and not lost else {}
    own = _own(seen, bounds, at)
    if own and gaps != "ignore" and not any(one.rows for one in own.values()):
        raise StateError(
            f"the batch has no row at any of the {sum(one.gaps for one in own.values()):,} "
            "positions that it covers: is it a wrong path, or another query's checkpoint? If they "
            "have none, as markers, give gaps='ignore'"
        )
    for key, one in own.items():
        if one.gaps and gaps == "error":
            raise StateError(
                f"{one.gaps} of the positions {one.begin} to {one.end - 1} of {key} have no row in "
                "this batch, and gaps='error' refuses that"
            )
    ranges = _united([before.ranges, {key: [one] for key, one in own.items()}])
    at = {**at, **{key: one.end for key, one in own.items()}}
    proof = StreamProof(stream, number, 1 - before.slot, at, ranges)
    if last.batch >= number and last != proof:
        raise StateError(
            f"stream {stream!r} has proved batch {last.batch}, and this is batch {number} with "
            "other rows: a checkpoint made anew needs another run_id"
        )
    if last != proof:
        proved_of([*(one for one in proofs if one.stream != stream), proof])
        store.keep_proof(proof)
    # Only now: a window or a proof that is kept meanwhile sees this one, or is seen here.
    touched = [
        (window, keys)
        for window in store.windows()
        if (keys := {key for key, one in own.items() if overlaps(window, key, one)})
    ]
    proved, found = _proved(store, proofs) if touched else {}, []
    for window, keys in touched:
        status = WindowStatus.of(window, proved)
        found.append((status, sorted(keys - status.lagging.keys())))
    return found


def _own(seen: Mapping[str, Range], bounds: tuple[Ends, Ends], at: Ends) -> dict[str, Range]:
    """Return what a batch covers of each partition; see the theory of operation."""
    since, until = bounds
    if until and (strange := sorted(seen.keys() - until.keys())):
        raise StateError(
            f"the batch has rows of {strange[0]}, a partition that its offsets lack: are they of "
            "another query's checkpoint, or has the window no end of it?"
        )
    own = {}
    for key in sorted({*seen, *(since.keys() & until.keys())}):
        rows = seen.get(key) or Range(until[key], until[key], 0)
        begin = since.get(key, at.get(key, rows.begin))
        one = Range(begin, until.get(key, rows.end), rows.rows)
        if not one.begin <= rows.begin <= rows.end <= one.end or rows.gaps < 0:
            raise StateError(
                f"{key} has {rows.rows} rows at the positions {rows.begin} to {rows.end - 1} in "
                f"this batch, expected one each at {one.begin} to {one.end - 1}: some were proved "
                "before, are not of this batch, or are there twice"
            )
        if one.begin < one.end:
            own[key] = one
    return own


def moment(when: datetime | str) -> float:
    """Return seconds since 1970 of a time, or of its text in ISO 8601; UTC if it has no zone."""
    if isinstance(when, str):
        try:
            when = datetime.fromisoformat(when.replace("Z", "+00:00"))
        except ValueError:
            raise ArgumentError("time", when, "ISO 8601, such as 2026-09-14T15") from None
    return (when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp()


def find_window(store: _Store, name: str, ends: Ends, starts: Ends) -> Window:
    """Return the open window of a name, or a new one, which `open_window` keeps.

    A new one starts where the one before ends, or at 0.

    Raises:
        ArgumentError: The ends lack a partition, go back or cross another window's.
        StateError: The window is open with other ends or starts.
    """
    windows = store.windows()
    window = next((one for one in windows if one.name == name), None)
    if window is None:
        known = {key for one in windows for key in one.ends}
        known |= {key for one in store.proofs() for key in one.ranges}
        return _new_window(windows, known, name, ends, starts)
    if window.ends != ends or not starts.items() <= window.starts.items():
        others = (window.ends.items() ^ ends.items()) | (starts.items() - window.starts.items())
        key, _ = min(others)
        raise StateError(
            f"window {name!r} is open with {key} at {window.starts.get(key)} to "
            f"{window.ends.get(key)}, and now {starts.get(key, '')} to {ends.get(key)} are given"
        )
    return window


def open_window(store: _Store, window: Window) -> WindowStatus:
    """Keep a window that `find_window` returned, unless it is open.

    Returns:
        Its status. Its `create` and the requests of the partitions that do not lag are to be sent.
    """
    if window not in store.windows():
        store.keep_window(window)
    # Only now, as in `prove`.
    return WindowStatus.of(window, _proved(store))


def _new_window(
    windows: Iterable[Window], known: Iterable[str], name: str, ends: Ends, starts: Ends
) -> Window:
    """Return a window that begins where `starts` say, or else at the ends of the one before.

    Windows may be opened in any order. Of two, one ends in no partition before the other.
    """
    if lacking := sorted(set(known) - ends.keys()):
        problem = (
            f"no end of {', '.join(lacking[:5])}, a partition of this log: give its end, 0 if "
            "the window has no row of it, the last one if the partition is gone"
        )
        raise ArgumentError("ends", problem=problem)
    last: Ends = {}
    for one in windows:
        earlier = next((key for key, end in one.ends.items() if ends[key] < end), None)
        later = next((key for key, end in one.ends.items() if ends[key] > end), None)
        if earlier and (later or _is_later(name, one.name)):
            problem = (
                f"{name!r} ends before window {one.name!r} in {earlier}, but its name or its end "
                f"in {later or 'no partition'} is later: a topic made anew needs another run_id"
            )
            raise ArgumentError("ends", problem=problem)
        # Ends grow together, so of the windows before, the last has the greatest sum.
        if not earlier and sum(one.ends.values()) >= sum(last.values()):
            last = one.ends
    begins = {key: starts.get(key, last.get(key, 0)) for key in ends}
    for key, end in ends.items():
        if not 0 <= begins[key] <= end:
            raise ArgumentError("ends", problem=f"{key} ends at {end}, and starts at {begins[key]}")
    return Window(name, begins, dict(ends))


def _is_later(name: str, other: str) -> bool:
    """Tell whether two names are times, and the first one is later."""
    try:
        return moment(name) > moment(other)
    except ArgumentError:
        return False
