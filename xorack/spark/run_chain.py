"""The chain of a run. Each chain of the run's rows is a unit of it, so the run has one event.

The create starts one more unit, the run itself. The close finishes this unit, so the chain cannot
be acked before the close. Messages may arrive in any order, so the close may arrive before the
stamp of a start. Therefore each start finishes a unit of its own, and the close starts these units.
Such a unit is outstanding until the stamp of its start has arrived.

A folder beside the records has a small text for each start, and one for each name that is finished.
A finish that finds all names finished closes the run, unless the run is kept open until
`Tracking.close`. Two drivers may do so at the same time. So a finish announces the close, with the
starts that it has read, and closes only if it then reads the same starts. A start writes its text,
and is refused if it then reads a close without this start. So at least one of the two detects the
other.
"""

from __future__ import annotations

import json
from functools import reduce
from operator import xor
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from pyspark.sql import functions as F

from xorack.client.token import parent_fields
from xorack.core.chain import Parent
from xorack.core.checks import MAX_TIMEOUT_SECONDS
from xorack.core.errors import StateError
from xorack.core.hashing import MASK, unit_id
from xorack.core.request import Request
from xorack.core.stamp import plain
from xorack.core.text import plural
from xorack.spark.folding import SUMS
from xorack.spark.outcome import Agrees, Differs, Lost
from xorack.spark.record import json_texts, summary_in
from xorack.spark.storage import write_text
from xorack.spark.units import GLOB, hex_of

if TYPE_CHECKING:
    from pyspark.sql import Column

    from xorack.spark.outcome import Outcome
    from xorack.spark.record import Header
    from xorack.spark.run import RowNames, RunOptions

UNIT_OF_CHAIN = f"xxhash64(tag, {', '.join(SUMS)})"
"""The unit of a chain in its run, in SQL. The fingerprint of a record is the XOR of these units."""
_MARGIN_SECONDS = 300
"""How much later the run times out than its chains, so that its event names the failed chains."""
_MAX_NOTE_BYTES = 1000


class Start(NamedTuple):
    """The start of rows, a micro-batch or a window, as stored in the run's folder.

    Attributes:
        id: The id of the request to the run's chain.
        name: The name of the rows, for errors.
        is_stamped: Whether the run's chain gets a stamp. Rows that `advance` starts need none,
            because their chains are units already.
        is_first: Whether this is the run's first start, which sends the create.
        is_withdrawn: Whether the start was too late, and was refused.
    """

    id: str
    name: str
    is_stamped: bool = True
    is_first: bool = False
    is_withdrawn: bool = False


class _State(NamedTuple):
    """The starts of a run, the ids of the finished starts, and the starts that each close names."""

    starts: dict[str, Start]
    finished: set[str]
    closes: list[list[str]]

    @property
    def is_finished(self) -> bool:
        """Whether all starts are finished."""
        return bool(self.starts) and self.starts.keys() <= self.finished

    def is_closed_for(self, id: str) -> bool:
        """Return whether a finish closes or closed the run without this start."""
        return any(id not in starts for starts in self.closes)


def is_unit_of_run(rows: RowNames) -> bool:
    """Return whether the chains of rows are units of the run's chain.

    The last micro-batch of a stream is not known, so its chains are units only in a run that is
    kept open.
    """
    return rows.batch_id is None or rows.tracking.keep_open


def parents_column(tracking: RunOptions) -> Column:
    """Return the field ``parents`` of the create of a chain, as JSON text."""
    tags = json.dumps([tracking.run_id])
    unit = hex_of(F.expr(UNIT_OF_CHAIN))
    return F.concat(F.lit('[{"unit":"'), unit, F.lit(f'","tags":{tags},"kind":"plain"}}]'))


def parent_of(tracking: RunOptions, unit: int) -> Parent:
    """Return the unit of a chain in the run's chain."""
    return Parent(unit, (tracking.run_id,), 0)


def check_open(rows: RowNames) -> None:
    """Raise an error if the run is closed, because all of its other rows are finished."""
    if rows.batch_id is not None or rows.tracking.keep_open:
        return
    state, start = _read(rows.tracking), Start(_id_of(rows, "start"), rows.name)
    if start.id not in state.starts:  # `_checked` checks a start that has its text
        _check_open(rows.tracking, start, state)


def _check_open(tracking: RunOptions, start: Start, state: _State) -> None:
    if state.is_closed_for(start.id):
        others = (known.name for known in state.starts.values() if known.id != start.id)
        names = ", ".join(sorted(set(others)))
        raise StateError(
            f"run {tracking.run_id!r} is closed: its rows named {names} are finished, so it may be "
            f"acked. To start {start.name!r} after that, use Tracking(keep_open=True) in all jobs "
            "of the run, and call close() after the last start"
        )


def start_requests(tracking: RunOptions, start: Start, units: int, number: int) -> list[Request]:
    """Write the text of a start, and return the requests that start the units of its chains.

    `units` is the XOR of the ids of these units, and `number` is how many there are.
    """
    if not tracking.keep_open:
        start = _checked(tracking, start)
    else:
        _write(tracking, start)
    stamp = plain((units ^ _unit_of(tracking, start)) & MASK)
    requests = [Request.stamp_(tracking.run_id, start.id, stamp, number, 1)]
    if tracking.keep_open or start.is_first:
        requests.append(_create(tracking))
    if tracking.keep_open and tracking.timeout is not None:  # for later chains
        requests.append(Request.extend(tracking.run_id, f"{start.id}/extend", _timeout(tracking)))
    return requests


def _checked(tracking: RunOptions, start: Start) -> Start:
    """Write the text of a start; withdraw it if a finish may have closed the run."""
    state = _read(tracking)
    start = state.starts.get(start.id) or start._replace(is_first=not state.starts)
    _write(tracking, start)
    try:
        _check_open(tracking, start, _read(tracking))
    except StateError:
        _write(tracking, start._replace(is_withdrawn=True))
        raise
    return start


def start_of_rows(rows: RowNames, header: Header) -> list[Request]:
    """Return the requests to the run's chain for rows that are started, from their record."""
    if not is_unit_of_run(rows):
        return []
    summary = summary_in(header)
    start = Start(_id_of(rows, "start"), rows.name)
    return start_requests(rows.tracking, start, summary.fingerprint, summary.all_chains)


def following_started(rows: RowNames) -> None:
    """Write that `advance` starts rows, so that the run stays open until they are finished."""
    if rows.batch_id is None:
        _write(rows.tracking, Start(_id_of(rows, "start"), rows.name, is_stamped=False))


def finish_requests(rows: RowNames, proof: str, outcome: Outcome) -> list[Request]:
    """Return the note about a finish, and the close if the entire run is finished."""
    if not is_unit_of_run(rows):
        return []
    tracking, text = rows.tracking, _sentence(rows, proof, outcome).replace("\0", "")
    text = text.encode(errors="replace")[:_MAX_NOTE_BYTES].decode(errors="ignore")
    id = f"{_id_of(rows, 'note')}/{unit_id(text):016x}"
    note = Request("note", tracking.run_id, id, text=text)
    if rows.batch_id is not None or not isinstance(outcome, Agrees):
        return [note]
    started = _id_of(rows, "start")
    _write_text(tracking, f"finished={_hash(started)}", started)
    return [note, *([] if tracking.keep_open else _close_if_finished(tracking))]


def _close_if_finished(tracking: RunOptions) -> list[Request]:
    """Return the requests that close a run if all of its rows are finished, or else no requests."""
    if not (before := _read(tracking)).is_finished:
        return []
    place = f"close={uuid4().hex}"
    _write_text(tracking, place, {"close": [*before.starts]})
    state = _read(tracking)
    if state.starts.keys() != before.starts.keys():
        _write_text(tracking, place, {})
        return []
    return [_close(tracking, state)]


def close_requests(tracking: RunOptions) -> list[Request]:
    """Return the requests that close a run whose rows have all been started."""
    state = _read(tracking)
    return [*([] if state.starts else [_create(tracking)]), _close(tracking, state)]


def _close(tracking: RunOptions, state: _State) -> Request:
    units = [_unit_of(tracking, known) for known in state.starts.values() if known.is_stamped]
    stamp = plain(reduce(xor, units, _root(tracking)))
    return Request.stamp_(tracking.run_id, "close", stamp, len(units), 1)


def _sentence(rows: RowNames, proof: str, outcome: Outcome) -> str:
    name = rows.name if rows.batch_id is None else f"{rows.name}, batch {rows.batch_id}"
    match outcome:
        case Differs(error):
            head = str(error).split("\n")[0]
            return f"{head}; {error.why}" if error.why else head
        case Lost(finished, missing, open_chains, _, is_at_most):
            lost = f"{name}: {plural(missing, 'unit')} not in what the job read"
            rest = f"{'at most ' if is_at_most else ''}{plural(open_chains, 'stays', 'stay')}"
            return f"{lost}; {plural(finished.number, 'chain')} finished, {rest} open"
        case Agrees(finished, tolerated):
            units = f"{name}: {plural(finished.units - tolerated, 'unit')}"
            more = f", {tolerated:,} missing and tolerated" if tolerated else ""
            return f"{units} in {plural(finished.number, 'chain')} finished{more}; proof: {proof}"


def _create(tracking: RunOptions) -> Request:
    fields: dict[str, Any] = parent_fields(tracking.parent, fail_parent=False)
    fields["timeout"] = None if tracking.timeout is None else _timeout(tracking)
    root = [_root(tracking)]
    return Request.create(
        tracking.run_id, "create", starts=root, cells=0, resume=tracking.resume, **fields
    )


def _timeout(tracking: RunOptions) -> float:
    assert isinstance(tracking.timeout, (int, float))
    return min(tracking.timeout + _MARGIN_SECONDS, MAX_TIMEOUT_SECONDS)


def _root(tracking: RunOptions) -> int:
    return unit_id(tracking.run_id)


def _unit_of(tracking: RunOptions, start: Start) -> int:
    return unit_id(tracking.run_id, start.id)


def _id_of(rows: RowNames, step: str) -> str:
    """Return the id of a step. It contains the label, because two labels may have the same name."""
    return f"{rows.request_id(step)}/{unit_id(rows.label):016x}"


def _hash(id: str) -> str:
    return f"{unit_id(id):016x}"


def _folder(tracking: RunOptions) -> str:
    return f"{tracking.run_folder}/chain"


def _write(tracking: RunOptions, start: Start) -> None:
    _write_text(tracking, f"start={_hash(start.id)}", start._asdict())


def _write_text(tracking: RunOptions, name: str, value: Any) -> None:
    write_text(tracking.spark, f"{_folder(tracking)}/{name}", json.dumps(value))


def _read(tracking: RunOptions) -> _State:
    place = f"{_folder(tracking).translate(GLOB)}/{{start=*,finished=*,close=*}}"
    texts = json_texts(tracking.spark, place)
    starts = [Start(**text) for text in texts if isinstance(text, dict) and "id" in text]
    return _State(
        {start.id: start for start in starts if not start.is_withdrawn},
        {text for text in texts if isinstance(text, str)},
        [text["close"] for text in texts if isinstance(text, dict) and "close" in text],
    )
