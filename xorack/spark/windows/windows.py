"""Windows over a log on Spark: find out whether all rows of an hour were written; see `Windows`."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pyspark.sql import functions as F
from pyspark.sql.types import IntegralType, StringType

from xorack.core.errors import ArgumentError, StateError
from xorack.core.hashing import unit_id
from xorack.core.request import Request
from xorack.core.text import cut, plural
from xorack.errors import ColumnsError
from xorack.spark.evidence import check_output, collect_evidence, open_output, source_of, unit_in
from xorack.spark.folding import SUMS, Totals, named, of_units, together
from xorack.spark.messages import plain_errors
from xorack.spark.missing.comparing import Comparison, caches
from xorack.spark.missing.difference import error_of, find_difference
from xorack.spark.record import folder_part
from xorack.spark.rows import Report, Rows, check_batch
from xorack.spark.run import check_text
from xorack.spark.run_chain import Start, parent_of, start_requests
from xorack.spark.sending import send_few
from xorack.spark.storage import read_lines, read_texts, write_text
from xorack.spark.units import GLOB, column_named, encoded, field_named
from xorack.spark.windows import ledger
from xorack.spark.windows.ledger import Range, Window, WindowStatus

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from xorack.core.message import SendReport
    from xorack.spark.evidence import Evidence, Output
    from xorack.spark.observing import Observed
    from xorack.spark.windows.ledger import Bounds, Ends, Seen

_TEXT = r"[^\0\ud800-\udfff]+"
_MAX_PIECE = 1 << 20
"""Positions in one row that Spark expands, which take 8 MB."""


@dataclass(frozen=True)
class Windows(Rows):
    """The windows of a log; `Tracking.windows` makes it.

    Attributes:
        position: The column of a row's position in its partition.
        gaps: How to treat positions without rows: ``count``, ``error`` or ``ignore``.
        stream: The stream to which these batches belong; see `batch`.
        of: The window that a batch job reads; see `job`.
    """

    position: str = ""
    gaps: str = "count"
    stream: str = "stream"
    of: Window | None = None

    def open(
        self, name: str, ends: Mapping[Any, Any], starts: Mapping[Any, Any] | None = None
    ) -> WindowStatus:
        """Open a window: fix its ends and create its chain. A repeated call changes nothing.

        Args:
            name: The window's name, such as ``2026-09-14T14``. The chain's tag is ``RUN/LOG/NAME``.
            ends: The first position after the window in each partition: ``{"orders": {0: 17}}``.
            starts: The window's first positions; by default the end of the window before it, or 0.

        Raises:
            ArgumentError: The ends lack a partition, go back, or cross those of another window.
            StateError: The window is open with other ends.
            SendError: The queue did not accept all requests. Repeat the call.
        """
        check_text("name", name, rf"(?!.*/){_TEXT}", "the name of a window, without '/'")
        fixed = _positions_of(ends, self.unit, "ends")
        first = _positions_of(starts or {}, self.unit, "starts")
        if not fixed:
            raise ArgumentError("ends", problem="none, expected an end for each partition")
        window = ledger.find_window(self._store, name, fixed, first)
        detail = {"log": self.name, "window": name, "ranges": window.digest}
        names = ("timeout", "idle_timeout")
        fields: dict[str, Any] = {each: getattr(self.tracking, each) for each in names}
        tag, of_run = self.prefix + name, list[Request]()
        unit = unit_id(tag, window.digest)
        if self.tracking.keep_open:
            fields["parents"] = [parent_of(self.tracking, unit)]
            of_run = start_requests(self.tracking, Start(f"window/{unit:016x}", name), unit, 1)
        # Make the request before the window is kept, because it refuses a name that is too long.
        create = ledger.create_request(tag, detail, window.ends, **fields)
        status = ledger.open_window(self._store, window)
        passed = window.ends.keys() - status.lagging.keys()
        self._send([*of_run, create, *self._finishes(status, passed)])
        return status

    def batch(self, batch_id: int, stream: str = "stream") -> Windows:
        """Return the windows for a batch in ``foreachBatch``.

        If several streams share the log, name each stream.
        """
        check_text("stream", stream, _TEXT, "the name of a stream")
        return replace(self, batch_id=check_batch(batch_id), stream=stream)

    def job(self, name: str) -> Windows:
        """Return the windows for a batch job that reads the range of one open window."""
        return replace(self, batch_id=0, stream=f"window {name}", of=self._window(name))

    def finish(
        self,
        written: Output | Sequence[Output] | None = None,
        *,
        source: Output,
        observed: Observed | None = None,
        checkpoint: str | None = None,
    ) -> Report:
        """Prove that a batch is in its output, and finish the partitions that windows have passed.

        Args:
            written: The output in storage, as for `TrackedRows.finish`.
            source: All rows of the batch, as the log gave them.
            observed: The result of `observe`, after its frame was written.
            checkpoint: The folder of the query's checkpoint. Its offsets prove positions without
                rows at the edges of a batch.

        Returns:
            A report; its ``chains`` are the windows in which partitions finished.

        Raises:
            OutputDiffersError: Rows are missing or surplus. The windows get a note.
            StateError: The rows contradict an earlier proof, or the batch has no rows.
            SendError: The queue did not accept all requests. Repeat the call.
        """
        if self.batch_id is None:
            raise ArgumentError("batch_id", None, "a call of .batch(batch_id) or .job(window)")
        store = self._store
        frame = open_output(self.tracking, source, "source")
        header = {} if written is None else source_of(self, source, frame)
        evidence = collect_evidence(self, header, written, observed)
        # The groups of the output determine missing rows only if the frame is computed again.
        if observed is not None:
            evidence = evidence._replace(outputs=[observed.source])
        bounds: Bounds = {}, {}
        if self.of is not None:
            bounds = self.of.starts, self.of.ends
        elif checkpoint is not None:
            bounds = _offsets_of(frame.sparkSession, checkpoint, self.batch_id, self.unit)
        seen = self._seen(evidence, frame, source, bounds)
        check_output(self, header, evidence)
        passed = ledger.prove(store, (self.stream, self.batch_id), seen, bounds, gaps=self.gaps)
        sent = [request for status, keys in passed for request in self._finishes(status, keys)]
        if store.batches_with_loss(self.stream) == [self.batch_id]:
            sent = [*self._notes(seen, "did not write exactly its rows; a rerun did"), *sent]
        chains = sum(1 for _, keys in passed if keys)
        self.tracking.jobs.forget(self.namespace)
        counts = chains, evidence.totals.count, 0
        return Report(evidence.kind, *counts, *self._send(sent), evidence.stored)

    def status(self, name: str) -> WindowStatus:
        """Return how far a window is proved, from the records."""
        return WindowStatus.of(self._window(name), ledger.proved_of(self._store.proofs()))

    def _seen(self, evidence: Evidence, frame: DataFrame, source: Output, bounds: Bounds) -> Seen:
        """Return the positions of a batch's rows. If the output differs, add a note and raise."""
        if evidence.kind == "read":
            text = "the output, or the result of observe, because reading does not prove a window"
            raise ArgumentError("written", problem=f"the frame was only read, expected {text}")
        expected = None
        for units in (*self._all_positions(frame, bounds, evidence.totals.count), frame):
            totals, seen = self._folded(units)
            if evidence.totals == totals and seen == expected:
                raise StateError(
                    "the batch has as many rows as positions, but not one each: remove rows that "
                    "are there twice, because they hide missing rows"
                )
            if evidence.totals == totals:
                return seen
            expected = seen
        with caches() as keep:
            frames = self.tracking.jobs.frames(self.namespace)
            difference = find_difference(Comparison(self, evidence, totals, frame, frames, keep))
        error = error_of(self, evidence, difference, source)
        self._store.keep_batch_with_loss(self.stream, self.batch_id)
        missing = difference.missing_rows
        count = max(0, error.started - error.written, 0 if missing is None else missing.missing)
        least = "" if missing is not None and missing.is_exact else "at least "
        names = ["/".join(map(str, row)) for row in error.missing]
        lost = (
            f"lost {least}{plural(count, 'row')}" if count else "wrote other rows, or rows too many"
        )
        what = ": ".join(filter(None, (lost, ", ".join(cut(names, 10, count)) if names else "")))
        self._send(self._notes(seen, ". ".join(filter(None, (what, error.why))), count))
        raise error

    @property
    def _store(self) -> _Folder:
        folder = self.tracking.folder(f"windows of {self.label}")
        return _Folder(self.tracking.spark, folder)

    def _window(self, name: str) -> Window:
        named = {window.name: window for window in self._store.windows()}
        if name not in named:
            raise StateError(f"window {name!r} of {self.name!r} is not open: call open first")
        return named[name]

    def _all_positions(self, frame: DataFrame, bounds: Bounds, count: int) -> list[DataFrame]:
        """Return the expected units of a batch if it has as many rows as positions.

        Units follow from positions, so the rows need not be read.
        """
        *kinds, kind = (field_named(frame, name).dataType for name in self.unit)
        if not isinstance(kind, IntegralType):
            shown = kind.simpleString()
            raise ColumnsError(f"column {self.position} is {shown}, expected an integer position")
        since, until = bounds
        # Assume that an unknown begin is 0. The comparison of units shows whether this is right.
        ranges = {key: (since.get(key, 0), end) for key, end in until.items()}
        is_text = all(isinstance(type_, (StringType, IntegralType)) for type_ in kinds)
        if not until or not is_text or count != sum(end - at for at, end in ranges.values()):
            return []
        pieces = [
            (*map(unquote, key.split("/")), first, min(first + _MAX_PIECE, end) - 1)
            for key, (begin, end) in ranges.items()
            for first in range(begin, end, _MAX_PIECE)
        ]
        texts = [f"c{i}" for i in range(len(kinds))]
        schema = ", ".join([*(f"{text} string" for text in texts), "first long", "last long"])
        columns = [
            F.col(text).cast(type_).alias(name)
            for text, type_, name in zip(texts, kinds, self.chain, strict=True)
        ]
        places = F.explode(F.sequence("first", "last")).alias(self.position)
        return [frame.sparkSession.createDataFrame(pieces, schema).select(*columns, places)]

    def _folded(self, frame: DataFrame) -> tuple[Totals, Seen]:
        """Fold a batch to the sums of its units and the positions of each partition's rows."""
        columns = [column_named(frame, name)[0] for name in self.unit]
        keys = [f"c{i}" for i in range(len(self.chain))]
        places = [c.alias(name) for c, name in zip(columns, [*keys, "place"], strict=True)]
        rows = frame.select(*places, *named(of_units(unit_in(self, frame))))
        ends = [F.min("place").alias("first"), F.max("place").alias("last")]
        totals, seen = Totals(), {}
        with plain_errors():
            folded = rows.groupBy(*keys).agg(*together(), *ends).collect()
        for row in folded:
            totals += Totals(*(row[name] for name in SUMS))
            seen[_key_of(row[: len(keys)])] = Range(row["first"], row["last"] + 1, row["count"])
        return totals, seen

    def _finishes(self, status: WindowStatus, keys: Collection[str]) -> Iterator[Request]:
        """Yield a note on gaps, then the requests for partitions that have passed a window."""
        window, gaps = status.window, status.gaps
        if keys and gaps and self.gaps == "count":
            examples = ", ".join(f"{count} of {key}" for key, count in [*gaps.items()][:10])
            yield self._note(
                window, f"{plural(sum(gaps.values()), 'position')} without a row: {examples}"
            )
        for key in sorted(keys):
            yield ledger.finish_request(self.prefix + window.name, window.digest, key)

    def _notes(self, seen: Seen, what: str, count: int | None = None) -> Iterator[Request]:
        """Yield notes on a batch for the windows of its rows."""
        for window in self._store.windows():
            if any(ledger.overlaps(window, *pair) for pair in seen.items()):
                yield self._note(window, f"batch {self.batch_id} of {self.stream} {what}", count)

    def _note(self, window: Window, text: str, count: int | None = None) -> Request:
        text = text.replace("\0", "").encode(errors="replace")[:1000].decode(errors="ignore")
        id = f"note/{unit_id(text):016x}"
        return Request("note", self.prefix + window.name, id, text=text, missing_count=count)

    def _send(self, requests: Iterable[Request]) -> SendReport:
        return send_few(self.tracking.spark, requests, self.tracking.queue)


class _Folder:
    """The store of windows, proofs, and each stream's last batch with a loss, as lines of JSON."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark, self._folder = spark, folder

    def windows(self) -> list[Window]:
        return self._read("window=*", lambda raw: Window(**raw))

    def keep_window(self, window: Window) -> None:
        self._write(folder_part("window", window.name), window._asdict())

    def proofs(self) -> list[ledger.StreamProof]:
        return self._read("stream=*/slot=*", ledger.StreamProof.of)

    def keep_proof(self, proof: ledger.StreamProof) -> None:
        self._write(f"{folder_part('stream', proof.stream)}/slot={proof.slot}", proof._asdict())

    def batches_with_loss(self, stream: str) -> list[int]:
        return self._read(f"{folder_part('stream', stream).translate(GLOB)}/lossy", int)

    def keep_batch_with_loss(self, stream: str, batch_id: int | None) -> None:
        self._write(f"{folder_part('stream', stream)}/lossy", batch_id)

    def _read(self, pattern: str, of: Callable[[Any], Any]) -> list[Any]:
        place = f"{self._folder.translate(GLOB)}/{pattern}"
        try:
            return [of(json.loads(text)) for text in read_texts(self._spark, place)]
        except (ValueError, TypeError, KeyError) as error:
            raise StateError(f"{place}: a record is corrupt: {error}") from error

    def _write(self, place: str, value: Any) -> None:
        write_text(self._spark, f"{self._folder}/{place}", json.dumps(value))


def _key_of(values: Sequence[object]) -> str:
    """Return a partition as text: the values of its columns."""
    return "/".join(encoded(str(value)) for value in values)


def _positions_of(nested: Any, columns: Sequence[str], option: str) -> dict[str, int]:
    """Return positions by partition from nested dicts."""
    positions: dict[str, int] = {}
    for *path, position in _leaves(nested):
        if len(path) != len(columns) - 1 or not str(position).isdecimal():
            expected = f"{', '.join(columns[:-1])}, and a position of 0 or more"
            raise ArgumentError(option, problem=f"{(*path, position)}, expected {expected}")
        if (key := _key_of(path)) in positions:
            raise ArgumentError(option, problem=f"{key} is there twice, expected each once")
        positions[key] = int(position)
    return positions


def _leaves(nested: Any) -> list[tuple[Any, ...]]:
    if not isinstance(nested, Mapping):
        return [(nested,)]
    return [(key, *path) for key, value in nested.items() for path in _leaves(value)]


def _offsets_of(
    spark: SparkSession, checkpoint: str, batch_id: int, columns: Sequence[str]
) -> Bounds:
    """Return the first and the last offsets of a batch, from the query's log of offsets."""

    def read(batch: int) -> Ends:
        lines = read_lines(spark, f"{checkpoint}/offsets/{batch}")
        if not lines:
            expected = f"the folder of the query's checkpoint, with a file offsets/{batch}"
            raise ArgumentError("checkpoint", str(checkpoint), expected)
        offsets: dict[str, int] = {}
        for line in lines[2:]:
            try:
                positions = None if line == "-" else json.loads(line)
            except ValueError:
                problem = f"{checkpoint}/offsets/{batch} has the line {line!r}, expected JSON"
                raise ArgumentError("checkpoint", problem=problem) from None
            if positions is not None:
                offsets |= _positions_of(positions, columns, "checkpoint")
        return offsets

    until = read(batch_id)
    # A partition without an earlier batch is new, and is read from its beginning.
    return ({**dict.fromkeys(until, 0), **read(batch_id - 1)} if batch_id else {}), until
