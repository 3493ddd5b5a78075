"""Tracking for producers in plain Python: Lambda functions, workers, tasks.

A chain starts with its root unit. A step finishes a unit and starts its children in one stamp, so
the chain cannot reach zero while work is left. A child is a token, a small JSON value that travels
with the event to its worker, also in another process.

Unit and request ids follow from what they stand for and are never random. A step that runs again,
because its event was delivered again, sends the same request under the same id, which takes effect
once. So a step must start the same children each time it runs for the same unit.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal, cast, get_args

from xorack.aws.retry import RetryPolicy
from xorack.aws.sqs import queue_client, send_grouped
from xorack.client.names import Candidate, Part, names_of
from xorack.core.errors import ArgumentError, XorAckError
from xorack.core.hashing import child_id, unit_id
from xorack.core.request import MAX_REASON_BYTES, Op, Request, validate_tag
from xorack.core.stamp import TRACED_CELLS, check_cells, check_unit, sum_of

__all__ = ["StampKind", "Step", "Token", "Tracker"]

StampKind = Literal["traced", "plain"]

_VERSION = 1
_MOST_IDS = 40
"""Most ids of a request. A few more take as many bytes as the smallest traced stamp."""


@dataclass(frozen=True)
class Token:
    """A started unit and its chains. It travels with the event to the worker that finishes it."""

    unit: int
    tags: tuple[str, ...]
    kind: StampKind = "traced"
    cells: int = TRACED_CELLS

    def to_json(self) -> dict[str, Any]:
        """Return the token as a JSON object. It names the cells unless they are the default."""
        unit = f"{self.unit:016x}"
        token = {"v": _VERSION, "unit": unit, "tags": list(self.tags), "kind": self.kind}
        return token if self.cells == TRACED_CELLS else {**token, "cells": self.cells}

    def __str__(self) -> str:
        """Return the token as JSON text."""
        return json.dumps(self.to_json(), separators=(",", ":"))

    @classmethod
    def from_json(cls, token: Token | Mapping[str, Any] | str | bytes) -> Token:
        """Read a token: a `Token`, its JSON object, or its JSON text.

        Raises:
            ArgumentError: The token is invalid, or another version made it.
        """
        if isinstance(token, Token):
            return token
        if isinstance(token, (str, bytes)):
            try:
                token = json.loads(token)
            except (ValueError, RecursionError):
                raise ArgumentError("token text", token, "the JSON of a token") from None
        if not isinstance(token, Mapping):
            raise ArgumentError("token value", token, "a token, its JSON object or its JSON text")
        version = token.get("v")
        if isinstance(version, bool) or version != _VERSION:
            raise ArgumentError("token v", version, f"{_VERSION}: another version made this token")
        kind = token.get("kind")
        if kind not in get_args(StampKind):
            raise ArgumentError("token kind", kind, "traced or plain")
        unit, tags = _unit_of(token.get("unit")), _tags_of(token.get("tags"))
        return cls(unit, tags, cast(StampKind, kind), _cells_of(token, kind))


def _unit_of(text: object) -> int:
    if not isinstance(text, str) or not re.fullmatch("[0-9a-fA-F]{16}", text) or not int(text, 16):
        raise ArgumentError("token unit", text, "16 hex digits, not all zero")
    return int(text, 16)


def _tags_of(tags: object) -> tuple[str, ...]:
    if not isinstance(tags, list) or not tags or len(set(map(str, tags))) != len(tags):
        raise ArgumentError("token tags", tags, "a list of different tags")
    try:
        return tuple(validate_tag(tag) for tag in tags)
    except ArgumentError as error:
        raise ArgumentError("token tags", tags, error.expected) from None


def _cells_of(token: Mapping[str, Any], kind: object) -> int:
    cells = token.get("cells", TRACED_CELLS)
    if kind == "plain" and "cells" in token:
        raise ArgumentError("token cells", cells, "absent: plain stamps have none")
    try:
        return check_cells(cells)
    except ArgumentError as error:
        raise ArgumentError("token cells", cells, error.expected) from None


def _group_of(tag: str) -> str | None:
    run, slash, _ = tag.partition("/")
    return run if run and slash else None


def _cells_of_stamps(token: Token) -> int:
    return 0 if token.kind == "plain" else token.cells


def _carried(token: Token, starts: Sequence[int], finishes: Sequence[int] = ()) -> dict[str, Any]:
    """Return the fields of a request for units: their ids if those are shorter than a stamp."""
    cells = _cells_of_stamps(token)
    if cells and len(starts) + len(finishes) <= _MOST_IDS:
        return {"starts": starts, "finishes": finishes, "cells": cells}
    stamp = sum_of((*starts, *finishes), cells)
    return {"stamp": stamp, "started": len(starts), "finished": len(finishes)}


def _told(name: str, value: Any) -> Any:
    """Return a field of a fail or a note as the protocol takes it: no NUL, no surrogates."""
    if name == "missing":
        return tuple(value)
    if name == "missing_count" or (value is None and name == "text"):
        return value
    if not isinstance(value, str):
        raise ArgumentError(name, value, "a string")
    data = value.replace("\0", "").encode("utf-8", "backslashreplace")[:MAX_REASON_BYTES]
    return data.decode("utf-8", "ignore")


AnyToken = Token | Mapping[str, Any] | str


class Tracker:
    """Tracks work for producers in plain Python. Threads may share one.

    Examples:
        >>> tracker = Tracker(queue_url)                                # doctest: +SKIP
        >>> token = tracker.start("order/17", timeout=3600)             # doctest: +SKIP
        >>> with tracker.step(token) as step:                           # doctest: +SKIP
        ...     for line in order.lines:
        ...         publish(line, token=step.child(line.number).to_json())

        and the worker of a line, in another process:

        >>> with tracker.step(event["token"]):                          # doctest: +SKIP
        ...     process(event)
    """

    def __init__(
        self,
        queue_url: str,
        client: Any = None,
        *,
        stamps: StampKind = "traced",
        cells: int = TRACED_CELLS,
        group: str | None = None,
        policy: RetryPolicy | None = None,
    ) -> None:
        """Send to a queue.

        Args:
            queue_url: The acker's queue (the stack's output ``QueueUrl``).
            client: A boto3 SQS client; by default one of the default credential chain, created at
                the first send.
            stamps: The kind of stamps of chains started here. ``traced`` stamps name the
                outstanding units; ``plain`` ones have 8 bytes and do not.
            cells: The size of traced stamps, 16, 64, 256 or 1,024 cells a table; see
                `xorack.traced`. Plain stamps have none.
            group: The group of all messages, the name of a run or a customer: a backlog of one
                group does not delay others. By default each chain's is its tag up to the first
                ``/``, and chains whose tag has none have no group.
            policy: The limits of retries for messages that were not accepted.
        """
        if not isinstance(queue_url, str) or not queue_url:
            raise ArgumentError("queue_url", queue_url, "the URL of an SQS queue")
        if stamps not in get_args(StampKind):
            raise ArgumentError("stamps", stamps, "traced or plain")
        if check_cells(cells) != TRACED_CELLS and stamps == "plain":
            raise ArgumentError("cells", cells, "traced stamps: plain ones have no cells")
        if group is not None and (not isinstance(group, str) or not group):
            raise ArgumentError("group", group, "the name of a group of messages, or None")
        self.queue_url = queue_url
        self.stamps: StampKind = stamps
        self.cells = cells
        self.group = group
        self.policy = policy
        self._client = client
        self._thread = threading.local()

    def start(
        self,
        tag: str,
        *parts: str | bytes | int,
        timeout: float | timedelta | None = None,
        idle_timeout: float | timedelta | None = None,
        detail: Mapping[str, Any] | None = None,
        resume: Mapping[str, str] | None = None,
    ) -> Token:
        """Create a chain with its root unit, and return the unit's token.

        A tag names one run of the work: a second start of the tag has no effect, and is rejected if
        it differs. For a new run use a new tag, with a date or the number of the attempt.

        Args:
            tag: The chain's name.
            *parts: The name of the root unit; by default the tag.
            timeout: Seconds, or a timedelta, until the chain fails if it is not acked; by default
                the acker's.
            idle_timeout: The same without a stamp; by default no limit.
            detail: A JSON object of at most 4 KiB, returned in the chain's events.
            resume: Who waits for the chain's end: ``{"step_functions": task token}`` or
                ``{"lambda": callback id of a durable execution}``.

        Raises:
            ArgumentError: An argument is invalid.
            SendError: The queue did not accept the request.
        """
        validate_tag(tag)
        unit = unit_id(*parts) if parts else unit_id(tag)
        token = Token(unit, (tag,), self.stamps, self.cells)
        check_unit(unit, _cells_of_stamps(token))
        fields = {
            **_carried(token, [unit]),
            "timeout": timeout,
            "idle_timeout": idle_timeout,
            "detail": detail,
            "resume": resume,
        }
        self._send(Request.create(tag, f"create-{unit:016x}", **fields))
        return token

    def step(self, *tokens: AnyToken, fail: bool = False) -> Step:
        """Make a step, for use with ``with``: it finishes its units and starts their children.

        When the block ends without an exception, one stamp is sent for each finished unit and
        chain. When it raises, nothing is sent: the units stay outstanding until the event is
        delivered again.

        Units may come again in other groups, and still count once. In each chain the first unit
        starts the children. A unit that comes again with other children is rejected
        (`RequestIdReused`) and dead-lettered, so keep the unit that starts them first.

        Args:
            *tokens: The units that the step finishes, one or more, of one or several chains.
                Children belong to all of these chains (Storm's multi-anchoring).
            fail: Fail the chains when the block raises, with the exception as the reason.

        Raises:
            ArgumentError: There is no token, one is invalid or occurs twice, or the kinds of stamps
                differ.
        """
        return Step(self, tuple(map(Token.from_json, tokens)), fail=fail)

    def fail(
        self,
        chain: AnyToken,
        reason: str,
        *,
        note: Mapping[str, Any] | None = None,
        request_id: str | None = None,
    ) -> None:
        """Fail the chains of a token, for a reason that is cut off after 1,024 bytes.

        The id of the request is by default a hash of the unit and the other arguments. ``note`` has
        ``text``, ``missing`` and ``missing_count``: see `note`.

        Raises:
            ArgumentError: An argument is invalid.
            SendError: The queue did not accept the request.
        """
        self._tell("fail", chain, {"reason": reason, **(note or {})}, request_id)

    def note(
        self,
        chain: AnyToken,
        text: str | None = None,
        *,
        missing: Iterable[int] = (),
        missing_count: int | None = None,
        request_id: str | None = None,
    ) -> None:
        """Tell what was found out of a token's chains: their events have it if they fail.

        It changes neither state nor deadline; the last note of a chain stands.

        Args:
            chain: The token.
            text: What was found out, cut off after 1,024 bytes.
            missing: The ids of at most 100 units that are missing.
            missing_count: How many units are missing.
            request_id: The request's id, by default a hash of the unit and the other arguments.

        Raises:
            ArgumentError: An argument is invalid, or there is neither a text nor a missing unit.
            SendError: The queue did not accept the request.
        """
        found = {"text": text, "missing": missing, "missing_count": missing_count}
        self._tell("note", chain, found, request_id)

    def _tell(
        self, op: Op, chain: AnyToken, fields: Mapping[str, Any], request_id: str | None
    ) -> None:
        token = Token.from_json(chain)
        content = {name: _told(name, value) for name, value in fields.items()}
        text = "\0".join(str(value) for value in content.values() if value)
        digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        id = request_id or f"{op}-{token.unit:016x}-{digest}"
        self._send(*(Request(op, tag, id, **content) for tag in token.tags))

    def extend(
        self, chain: AnyToken, timeout: float | timedelta, *, request_id: str | None = None
    ) -> None:
        """Move the deadline of a token's chains to ``timeout`` from now: seconds, or a timedelta.

        The id of the request is random by default: each call is a separate request.

        Raises:
            ArgumentError: The token is invalid, or the time-out is not above 0.
            SendError: The queue did not accept the request.
        """
        token = Token.from_json(chain)
        id = request_id or f"extend-{uuid.uuid4().hex}"
        self._send(*(Request.extend(tag, id, timeout) for tag in token.tags))

    @staticmethod
    def names(
        outstanding: Mapping[str, Any] | Iterable[str | int],
        candidates: Iterable[Candidate],
        *root: Part,
    ) -> dict[str, Candidate | None]:
        """Return what outstanding units stand for; see `xorack.names_of`."""
        return names_of(outstanding, candidates, *root)

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Collect what this thread sends in the block, and send it packed at the end.

        A worker that takes several events at a time turns hundreds of steps into one message for
        each group of chains.
        Steps that ended are sent even if the block raises. Nothing is sent before the end of the
        block, so acknowledge the events after it.

        Raises:
            SendError: The queue did not accept some requests.
        """
        if getattr(self._thread, "requests", None) is not None:
            yield  # nested: the outer block sends
            return
        requests: list[Request] = []
        self._thread.requests = requests
        try:
            yield
        finally:
            self._thread.requests = None
            self._send(*requests)

    def _send(self, *requests: Request) -> None:
        collected: list[Request] | None = getattr(self._thread, "requests", None)
        if collected is not None:
            collected.extend(requests)
            return
        if self._client is None:
            self._client = queue_client(self.queue_url)
        groups: dict[str | None, list[Request]] = {}
        for request in requests:
            groups.setdefault(self.group or _group_of(request.tag), []).append(request)
        send_grouped(self.queue_url, groups, self._client, policy=self.policy)


class Step:
    """A step of the work; made by `Tracker.step`."""

    def __init__(self, tracker: Tracker, tokens: tuple[Token, ...], *, fail: bool) -> None:
        if not tokens:
            raise ArgumentError("tokens", tokens, "at least one token")
        if len({(token.kind, token.cells) for token in tokens}) > 1:
            raise ArgumentError("tokens", tokens, "tokens of one kind and size of stamps")
        units = [(tag, token.unit) for token in tokens for tag in token.tags]
        if len(set(units)) != len(units):
            raise ArgumentError("tokens", tokens, "each unit once")
        self.tokens = tokens
        self.tags = tuple(dict.fromkeys(tag for token in tokens for tag in token.tags))
        self._tracker = tracker
        self._fail = fail
        self._children: dict[int, Token] = {}
        self._ended = False

    def child(self, *parts: str | bytes | int, unit: int | None = None) -> Token:
        """Start a child of this step's units, and return its token: send it with the event.

        The child's id follows from the step's first unit and the parts, whatever units follow it.
        So name children by parts where units come again in other groups.

        Args:
            *parts: The name of the unit among the children of the step's first unit, the same each
                time the step runs. By default its number, so the order of children must be the
                same.
            unit: The unit's id, signed or unsigned, instead of parts.

        Raises:
            ArgumentError: The step has a unit of this name already: they would cancel out.
            XorAckError: The step has ended.
        """
        if self._ended:
            raise XorAckError("the step has ended: its stamp is sent, no child can be started")
        parents = [token.unit for token in self.tokens]
        if unit is None:
            unit = child_id(parents[0], *(parts or (len(self._children),)))
        unit = check_unit(unit, _cells_of_stamps(self.tokens[0]))
        token = replace(self.tokens[0], unit=unit, tags=self.tags)
        if unit in self._children or unit in parents:
            raise ArgumentError("child", parts or unit, "another unit than those of the step")
        self._children[unit] = token
        return token

    def requests(self) -> list[Request]:
        """Return the stamps that end this step: one for each finished unit, in each of its chains.

        In each chain the first unit's stamp starts the children.
        """
        requests = []
        for tag in self.tags:
            children = list(self._children)
            for unit in (token.unit for token in self.tokens if tag in token.tags):
                fields = _carried(self.tokens[0], children, [unit])
                requests.append(Request.stamp_(tag, f"step-{unit:016x}", **fields))
                children = []
        return requests

    def __enter__(self) -> Step:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._ended = True
        if error is None:
            self._tracker._send(*self.requests())
        elif self._fail and isinstance(error, Exception):
            for token in self.tokens:
                self._tracker.fail(token, f"{type(error).__name__}: {error}")
