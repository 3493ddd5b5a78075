"""Requests: the operations on chains that senders ask for, from the parser to the chain.

`_OPERATIONS` lists the fields of each operation, and `xorack.core.checks` checks their values.
docs/protocol.md is the contract.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from xorack.core.chain import Parent
from xorack.core.checks import CHECKS, IDS, Check, check_json, unknown_field
from xorack.core.errors import ArgumentError
from xorack.core.stamp import (
    PLAIN_LENGTH,
    TRACED_CELLS,
    TRACED_LENGTH,
    TRACED_LENGTHS,
    check_unit,
    sum_of,
    traced_length,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

Op = Literal["create", "stamp", "fail", "extend", "note"]


class Fields(TypedDict, total=False):
    """The optional fields of a request, as Python code passes them; `Request` describes them."""

    starts: Iterable[int]
    finishes: Iterable[int]
    finishes_once: Iterable[int]
    cells: int
    timeout: float | timedelta | None
    idle_timeout: float | timedelta | None
    tolerated_units: int
    detail: Mapping[str, Any] | None
    resume: Mapping[str, str] | None
    parents: Sequence[Parent | Mapping[str, Any]]
    fail_parent: bool
    reason: str | None
    text: str | None
    missing: Iterable[int]
    missing_count: int | None


_OF_IDS = (*IDS, "cells")
_MAX_PROBLEMS = 8
"""The most invalid fields that an error names."""
_STAMP = frozenset(("tag", "id", "stamp", "started", "finished", "starts", "finishes", "cells"))
_NOTE = frozenset(("tag", "id", "text", "missing", "missing_count"))
_OPERATIONS: dict[str, frozenset[str]] = {
    "create": _STAMP
    | {"timeout", "idle_timeout", "tolerated_units", "detail", "resume", "parents", "fail_parent"},
    "stamp": _STAMP | {"finishes_once"},
    "fail": _NOTE | {"reason"},
    "extend": frozenset(("tag", "id", "timeout")),
    "note": _NOTE,
}
STEP_ID = re.compile("step-([0-9a-f]{16})")
"""The ids that are reserved for steps of one unit. The group is the unit's id."""


CHILD_ID = re.compile("chain-[0-9a-f]{32}")
"""The ids that are reserved for the ends of child chains."""


def _validated(op: object, fields: Mapping[str, Any], check: Check) -> dict[str, Any]:
    """Check the fields of a request and return their values. The error names all invalid fields."""
    if not isinstance(op, str) or op not in _OPERATIONS:
        raise ArgumentError("op", op, "create, stamp, fail, extend or note")
    allowed = _OPERATIONS[op]
    values: dict[str, Any] = {"op": op}
    problems: list[ArgumentError] = []
    for name, value in fields.items():
        try:
            if name in allowed:
                values[name] = check(name, value)
            elif name != "op":
                known = f"{op} has {', '.join(sorted(('op', *allowed)))}"
                raise unknown_field(name, value, known)
        except ArgumentError as error:
            problems.append(error)
    if problems:
        raise _joined(problems)
    _complete(op, values)
    return values


def _joined(problems: list[ArgumentError]) -> ArgumentError:
    """Return one error that names all invalid fields in the request's order."""
    first, named = problems[0], problems[:_MAX_PROBLEMS]
    if len(problems) == 1:
        return first
    text = "; ".join(map(str, named))
    error = ArgumentError(first.field, problem=text.removeprefix(f"{first.field}: "))
    error.without_value = "; ".join(problem.without_value for problem in named)
    return error


def _complete(op: str, values: dict[str, Any]) -> None:
    """Add the values that follow from ids; raise ArgumentError if a field is missing."""
    required = ["tag", "id"]
    if "finishes_once" in values:
        required += _check_once(values)
    elif not values.keys().isdisjoint(_OF_IDS):
        _read_ids(values)
    elif "stamp" in _OPERATIONS[op]:
        required.append("stamp")
    noted = op == "note" or "missing_count" in values
    if noted and "text" not in values and "missing" not in values:
        raise ArgumentError("text", "missing", "a value: a note needs text or missing")
    for name in required:
        if name not in values:
            raise ArgumentError(name, "missing", f"a value: {op} needs it")
    _check_parents(values)
    if CHILD_ID.fullmatch(values["id"]):
        expected = "another id: this one is reserved for the end of a child chain"
        raise ArgumentError("id", values["id"], expected)
    _check_reserved_id(op, values)
    _check_tolerance(values)


def _check_tolerance(values: Mapping[str, Any]) -> None:
    """Reject a tolerance larger than the number of units that the chain's stamp can name.

    Otherwise a unit that the stamp does not name would be lost without notice.
    """
    if not (most := values.get("tolerated_units")):
        return
    has_ids = values.get("starts") or values.get("finishes")
    length = _length_of(values.get("cells", TRACED_CELLS)) if has_ids else len(values["stamp"])
    cells = TRACED_LENGTHS.get(length, 0)
    if most > cells:
        expected = f"0 to {cells}, the cells of the chain's stamps"
        nothing = "0, because plain and opaque stamps do not name outstanding units"
        raise ArgumentError("tolerated_units", most, expected if cells else nothing)


def _check_parents(values: Mapping[str, Any]) -> None:
    for parent in values.get("parents", ()):
        if values["tag"] in parent.tags:
            expected = "other chains: a chain cannot be its own parent"
            raise ArgumentError("parents", values["tag"], expected)
    if values.get("fail_parent") and "parents" not in values:
        raise ArgumentError("fail_parent", True, "parents beside it")


def _check_reserved_id(op: str, values: Mapping[str, Any]) -> None:
    """Reject a request that has the id of a unit's step and is not that step.

    The mark of such an id means that the unit is finished, so a step of several units skips the
    unit. After a note with that id, such a step would lose the unit without notice.
    """
    if not (match := STEP_ID.fullmatch(values["id"])):
        return
    unit = int(match[1], 16)
    has_ids = values.get("starts") or values.get("finishes")
    finishes_it = values.get("finishes") == (unit,) if has_ids else values.get("finished") == 1
    if op != "stamp" or "finishes_once" in values or not unit or not finishes_it:
        expected = "another id: this one is reserved for the step that finishes this unit alone"
        raise ArgumentError("id", values["id"], expected)


def _read_ids(values: dict[str, Any]) -> None:
    """Add the counts of a request that has ids. If its stamp is small, add the stamp too."""
    for name in ("stamp", "started", "finished"):
        if name in values:
            raise ArgumentError(name, values[name], "no such field beside ids")
    starts, finishes = values.get("starts", ()), values.get("finishes", ())
    cells = values.get("cells", TRACED_CELLS)
    if not starts and not finishes:
        raise ArgumentError("starts", [], "at least one id in starts or finishes")
    for name in IDS:
        _check_units(name, values.get(name, ()), cells)
    stamp = sum_of(starts + finishes, cells)
    if not any(stamp):
        raise ArgumentError("starts", "a zero stamp", "ids whose stamps do not cancel out")
    values |= {"started": len(starts), "finished": len(finishes)}
    if len(stamp) <= TRACED_LENGTH:
        values["stamp"] = stamp


def _check_units(name: str, units: Iterable[int], cells: int) -> None:
    for unit in units:
        try:
            check_unit(unit, cells)
        except ArgumentError as error:
            raise ArgumentError(name, f"{unit:016x}", error.expected) from None


def _check_once(values: dict[str, Any]) -> list[str]:
    """Check a request with ``finishes_once``, and return the fields that it also requires."""
    cells = values.get("cells", TRACED_CELLS)
    _check_units("finishes_once", values["finishes_once"], cells)
    for unit in set(values["finishes_once"]).intersection(values.get("finishes", ())):
        raise ArgumentError("finishes_once", f"{unit:016x}", "ids that are not in finishes")
    size, length = len(values.get("stamp", b"")), _length_of(cells)
    if size not in (0, length):
        expected = f"{length} bytes, as stamps of {cells} cells have"
        raise ArgumentError("stamp", f"{size} bytes", expected)
    if not values.get("starts") and not values.get("finishes"):
        return ["stamp"] if {"started", "finished"} & values.keys() else []
    _read_ids(values)
    return []


def _length_of(cells: int) -> int:
    return traced_length(cells) if cells else PLAIN_LENGTH


class _SumOfIds:
    """Computes the stamp of ids only when it is read. 1 MiB of ids stands for 600 MB of stamps."""

    def __get__(self, request: Request | None, owner: type) -> bytes | None:
        if request is None or not (request.starts or request.finishes):
            return None
        return sum_of(request.starts + request.finishes, request.cells)


_SUM_OF_IDS: Any = _SumOfIds()


def validate_tag(tag: object, field: str = "tag") -> str:
    """Return the tag; raise ArgumentError if it is invalid."""
    checked: str = CHECKS["tag"](field, tag)
    return checked


def is_valid_field(name: str, value: object) -> bool:
    """Return whether requests have a field of this name, and the JSON value is valid for it."""
    if name == "op":
        return isinstance(value, str) and value in _OPERATIONS
    try:
        return name in CHECKS and check_json(name, value) is not None
    except ArgumentError:
        return False


@dataclass(frozen=True, init=False)
class Request:
    """A request to a chain. Its fields are checked when it is created.

    Attributes:
        op: ``create``, ``stamp``, ``fail``, ``extend`` or ``note``.
        tag: The chain: a non-empty string of at most 1,024 UTF-8 bytes, without NUL.
        id: The request's id, a string of 1 to 128 bytes, unique within its chain. A request takes
            effect once, even if it arrives several times. An id of ``step-`` and 16 hex digits is
            reserved for the step that finishes this unit.
        stamp: create and stamp: the bytes to XOR in, not all zero.
        started: create and stamp: the number of units that the request starts.
        finished: create and stamp: the number of units that the request finishes.
        starts: create and stamp: the ids of the units that the request starts. Ids replace
            ``stamp``, which is then the XOR of their stamps, ``started`` and ``finished``.
        finishes: create and stamp: the ids of the units that the request finishes.
        finishes_once: stamp: the sorted ids of at most 10,000 units, beside any stamp or ids. The
            request finishes each of these units that no earlier request finished in this way or
            as ``step-<unit>``.
        cells: The number of cells of these units' stamps, which is 0 for plain stamps.
        timeout: create and extend: the deadline, in seconds or as a timedelta after the request is
            applied.
        idle_timeout: create: the seconds, or a timedelta, without a stamp or an ``extend`` after
            which the chain fails.
        tolerated_units: create: the most outstanding units with which the chain is acked at its
            deadline instead of failing. At most the number of cells of the chain's traced stamps,
            because the stamps have to name all of these units.
        detail: create: a JSON object of at most 4 KiB, returned in the chain's events.
        resume: create: the callback at the chain's end: ``{"step_functions": task token}`` or
            ``{"lambda": callback id}``.
        parents: create: the units of other chains that this chain stands for, each with ``unit``,
            ``tags`` and ``kind`` or ``cells``, as in a token. When the chain is acked, the acker
            finishes them.
        fail_parent: create: whether these chains fail as soon as this chain fails.
        reason: fail: the reason, at most 1,024 bytes.
        text: note and fail: an explanation by the sender, at most 1,024 bytes.
        missing: note and fail: ids of at most 100 units that are missing.
        missing_count: note and fail: how many units are missing.
        child: The tag of the child chain whose end the request reports. Only the acker sets it.
        child_ended_at: When that chain ended, in milliseconds since the epoch.
    """

    op: Op
    tag: str
    id: str
    stamp: bytes | None = _SUM_OF_IDS
    started: int = 0
    finished: int = 0
    starts: tuple[int, ...] = field(default=(), init=False, compare=False)
    finishes: tuple[int, ...] = field(default=(), init=False, compare=False)
    finishes_once: tuple[int, ...] = ()
    cells: int = field(default=TRACED_CELLS, init=False, compare=False)
    timeout: float | None = None
    idle_timeout: float | None = None
    tolerated_units: int = 0
    detail: dict[str, Any] | None = None
    resume: dict[str, str] | None = field(default=None, repr=False)
    parents: tuple[Parent, ...] = ()
    fail_parent: bool = False
    reason: str | None = None
    text: str | None = None
    missing: tuple[int, ...] = ()
    missing_count: int | None = None
    child: str | None = field(default=None, init=False, compare=False)
    child_ended_at: int = field(default=0, init=False, compare=False)

    def __init__(
        self,
        op: Op,
        tag: str,
        id: str,
        stamp: bytes | None = None,
        started: int = 0,
        finished: int = 0,
        **optional: Unpack[Fields],
    ) -> None:
        """Check the fields and make the request. For optional fields, None means the default.

        Raises:
            ArgumentError: A field is invalid. The error has its name, its value and a valid value.
        """
        passed = {"stamp": stamp, "started": started, "finished": finished, **optional}
        fields = {n: value for n, value in passed.items() if value != getattr(Request, n, None)}
        vars(self).update(
            _validated(op, {"tag": tag, "id": id, **fields}, lambda n, v: CHECKS[n](n, v))
        )

    @classmethod
    def create(
        cls,
        tag: str,
        id: str,
        stamp: bytes | None = None,
        started: int | None = None,
        finished: int = 0,
        **optional: Unpack[Fields],
    ) -> Request:
        """Make a request that creates a chain with its root unit.

        The unit is a stamp, or the id in ``starts``. With a stamp, ``started`` is 1 by default.
        """
        default = 0 if stamp is None else 1
        started = default if started is None else started
        return cls("create", tag, id, stamp, started, finished, **optional)

    @classmethod
    def stamp_(
        cls,
        tag: str,
        id: str,
        stamp: bytes | None = None,
        started: int = 0,
        finished: int = 0,
        **optional: Unpack[Fields],
    ) -> Request:
        """Make a request that XORs a stamp in. `stamp` without underscore is the field."""
        return cls("stamp", tag, id, stamp, started, finished, **optional)

    @classmethod
    def fail(cls, tag: str, id: str, reason: str | None = None) -> Request:
        """Make a request that fails a chain."""
        return cls("fail", tag, id, reason=reason)

    @classmethod
    def extend(cls, tag: str, id: str, timeout: float | timedelta) -> Request:
        """Make a request that sets the deadline to ``timeout`` seconds after it is applied."""
        return cls("extend", tag, id, timeout=timeout)

    def of_child(self, tag: str, event_id: str, ended_at: int) -> Request:
        """Return a copy that reports the end of a child chain, under its reserved id."""
        request = type(self).__new__(type(self))
        child = {"child": tag, "child_ended_at": ended_at}
        vars(request).update(vars(self), id=f"chain-{event_id}", **child)
        return request

    @classmethod
    def from_json(cls, raw: object) -> Request:
        """Read a request from one element of a message's ``requests``.

        Raises:
            ArgumentError: The element is not a valid request. The error names the field.
        """
        if not isinstance(raw, dict):
            raise ArgumentError("request", raw, "a JSON object")
        request = cls.__new__(cls)
        vars(request).update(_validated(raw.get("op"), raw, check_json))
        return request

    def to_json(self) -> dict[str, Any]:
        """Return the request as JSON for a message, without the fields that have their default."""
        raw = {
            name: value
            for name, value in vars(self).items()
            if value != getattr(Request, name, None)
        }
        for name in (*IDS, "finishes_once", "missing"):
            if name in raw:
                raw[name] = [f"{unit:016x}" for unit in raw[name]]
        if self.parents:
            raw["parents"] = [parent.to_json() for parent in self.parents]
        if self.starts or self.finishes:
            for name in ("stamp", "started", "finished"):
                raw.pop(name, None)
        elif self.stamp is not None:
            raw["stamp"] = base64.b64encode(self.stamp).decode("ascii")
        return raw

    @property
    def note(self) -> str | None:
        """The sender's explanation as JSON text for the chain and its event; None without one."""
        if self.text is None and not self.missing:
            return None
        missing = [f"{unit:016x}" for unit in self.missing]
        note = {"text": self.text, "missing": missing, "missing_count": self.missing_count}
        child = {} if self.child is None else {"chain": self.child}
        return json.dumps(note | child, separators=(",", ":"))

    @property
    def stamp_length(self) -> int | None:
        """The number of bytes of the stamp; None without one. The stamp is not computed."""
        if self.starts or self.finishes or self.finishes_once:
            return _length_of(self.cells)
        return None if self.stamp is None else len(self.stamp)
