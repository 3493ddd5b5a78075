"""Tracking for producers in plain Python: Lambda functions, workers, tasks.

A chain starts with its root unit. A step finishes a unit and starts its children in one stamp, so
the chain cannot reach zero while work is left. A child is a token, a small JSON value that travels
with the event to its worker.

Unit and request ids follow from what they stand for. A step that runs again sends the same request
under the same id, which takes effect once. So it must start the same children.
"""

from __future__ import annotations

import os
import threading
import uuid
import warnings
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import KW_ONLY, InitVar, dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, get_args

from xorack.aws.client import PerProcess, config_of, make_client
from xorack.aws.retry import RetryPolicy
from xorack.aws.sqs import queue_client, send
from xorack.client.token import (
    MAX_TAGS,
    AnyToken,
    Keys,
    StampKind,
    Token,
    TokenKey,
    parent_fields,
    step_group_id,
)
from xorack.core.budget import TimeOuts
from xorack.core.checks import MAX_REASON_BYTES, MAX_STEP_UNITS
from xorack.core.errors import ArgumentError, StateError, shown
from xorack.core.hashing import child_id, unit_id
from xorack.core.marks import note_id, step_id
from xorack.core.masking import mask_of, masked, masked_fields
from xorack.core.request import Op, Request, validate_tag
from xorack.core.stamp import TRACED_CELLS, check_cells, check_unit, sum_of

if TYPE_CHECKING:
    from xorack.aws.dynamodb_store import DynamoDBStore
    from xorack.core.chain import Status

_MAX_IDS = 40
"""Most ids of a request: a few more take as many bytes as the smallest traced stamp."""


def by_run(request: Request) -> str | None:
    """Return the group of a request's message: its tag up to the first slash, if it has one."""
    run, slash, _ = request.tag.partition("/")
    return run if run and slash else None


def _carried(token: Token, starts: Sequence[int], finishes: Sequence[int] = ()) -> dict[str, Any]:
    """Return the fields of a request for units: their ids if those are shorter than a stamp."""
    cells = token.stamp_cells
    if cells and len(starts) + len(finishes) <= _MAX_IDS:
        return {"starts": starts, "finishes": finishes, "cells": cells}
    stamp = sum_of((*starts, *finishes), cells)
    return {"stamp": stamp, "started": len(starts), "finished": len(finishes)}


def _cleaned(name: str, value: Any) -> Any:
    """Return a field of a fail or a note as the protocol takes it: no NUL, no surrogates."""
    if name == "missing" and isinstance(value, Iterable):
        return tuple(value)  # each chain's request needs the ids, and an iterator serves once
    if name in ("missing", "missing_count") or (name, value) == ("text", None):
        return value  # the request checks it
    if not isinstance(value, str):
        raise ArgumentError(name, value, "a string")
    data = value.replace("\0", "").encode("utf-8", "backslashreplace")[:MAX_REASON_BYTES]
    return data.decode("utf-8", "ignore")


QUEUE_VARIABLE = "XORACK_QUEUE_URL"
"""The environment variable with the URL of the acker's queue."""
TABLE_VARIABLE = "XORACK_TABLE"
"""The environment variable with the name of the acker's table."""


def _check_queue_url(url: object, has_client: bool) -> None:
    """Raise ArgumentError for what is not a queue's URL; a client of the caller may take others."""
    problem = f"{shown(url)}, expected the URL of an SQS queue, as the stack's output QueueUrl"
    if not isinstance(url, str) or not url:
        raise ArgumentError("queue_url", problem=f"{problem} or the variable {QUEUE_VARIABLE} has")
    if url.startswith("arn:") and url.count(":") == 5:
        _, _, _, region, account, name = url.split(":")
        url = f"https://sqs.{region}.amazonaws.com/{account}/{name}"
        raise ArgumentError("queue_url", problem=f"{problem}: for this ARN {url}")
    if not has_client and "://" not in url:
        raise ArgumentError("queue_url", problem=f"{problem}, and not the name of the queue")


def _shown(tracker: Tracker, name: object) -> object:
    """Return what errors show of a unit's name: its hash if the tracker masks fields."""
    return masked(name) if tracker.mask else name


def _unit_of(tracker: Tracker, parts: Sequence[Any], parent: int | None = None) -> int:
    """Return the id of a unit, or of a child of `parent`; errors show names as `_shown` does."""
    try:
        return unit_id(*parts) if parent is None else child_id(parent, *parts)
    except ArgumentError as error:
        if not tracker.mask:
            raise
        raise ArgumentError("part", masked([*map(str, parts)]), error.expected) from None


class _Collected:
    """The requests of a batch. Tasks and forks that were started in its block may outlive it."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self._open = True
        self._lock = threading.Lock()
        self._process = os.getpid()

    def add(self, requests: Sequence[Request]) -> bool:
        """Add requests; return False if the batch was sent or belongs to another process."""
        if self._process != os.getpid():  # a fork's lock may be locked for ever
            return False
        with self._lock:
            if self._open:
                self.requests += requests
            return self._open

    def close(self) -> list[Request]:
        """Return the requests of this process, and take no more; safe to repeat."""
        if self._process == os.getpid():
            with self._lock:
                self._open = False
            return self.requests
        return []


_BATCHES: ContextVar[Mapping[Tracker, _Collected]] = ContextVar("batches", default={})  # noqa: B039


def collected(tracker: Tracker) -> int:
    """Return how many requests the innermost open batch of a tracker holds."""
    batch = _BATCHES.get().get(tracker)
    return 0 if batch is None else len(batch.requests)


@dataclass(eq=False)
class Tracker:
    """Tracks work for producers in plain Python. Threads and tasks may share one.

    Attributes:
        queue_url: The acker's queue (the stack's output ``QueueUrl``); by default that of the
            environment variable ``XORACK_QUEUE_URL``.
        client: A boto3 SQS client; by default each process makes one of the default credential
            chain at its first send.
        stamps: The kind of stamps of chains started here: ``traced`` ones name the outstanding
            units; ``plain`` ones have 8 bytes and do not.
        cells: The size of traced stamps, 16, 64, 256 or 1,024 cells a table; see `xorack.traced`.
        group: The group of all messages, or a function that returns that of a request: a backlog
            of one group does not delay others. By default each chain's is its tag up to the first
            ``/``, if it has one. None sends no group: emulators may refuse one.
        policy: The limits of retries for messages that were not accepted.
        token_key: A secret of at least 16 bytes that signs and verifies tokens; by default that of
            the environment variable ``XORACK_TOKEN_KEY``, or none. Of two keys, the first signs.
        mask: Fields of details whose values are sent as hashes, at any depth and in any case; see
            docs/security.md. If there are any, errors show names of units as hashes, too.
        table_name: The acker's table (the stack's output ``TableName``), which `state` reads; by
            default that of the environment variable ``XORACK_TABLE``.

    Examples:
        >>> tracker = Tracker(queue_url)                                # doctest: +SKIP
        >>> token = tracker.start("order/17", timeout=3600)             # doctest: +SKIP
        >>> with tracker.step(token) as step:                           # doctest: +SKIP
        ...     for line in order.lines:
        ...         publish({"line": line, "token": step.child(line.number).to_json()})

        and the worker of a line, in another process:

        >>> with tracker.step(event["token"]):                          # doctest: +SKIP
        ...     process(event)
    """

    queue_url: str = ""
    client: Any = field(default=None, repr=False)
    _: KW_ONLY
    stamps: StampKind = "traced"
    cells: int = TRACED_CELLS
    group: str | Callable[[Request], str | None] | None = field(default=by_run, repr=False)
    policy: RetryPolicy | None = field(default=None, repr=False)
    token_key: InitVar[TokenKey | None] = None
    mask: Collection[str] = ()
    table_name: str | None = None

    def __post_init__(self, token_key: TokenKey | None) -> None:
        if self.queue_url == "":
            self.queue_url = os.environ.get(QUEUE_VARIABLE, "")
        self.table_name = self.table_name or os.environ.get(TABLE_VARIABLE)
        _check_queue_url(self.queue_url, has_client=self.client is not None)
        if self.stamps not in get_args(StampKind):
            raise ArgumentError("stamps", self.stamps, "traced or plain")
        if check_cells(self.cells) != TRACED_CELLS and self.stamps == "plain":
            raise ArgumentError("cells", self.cells, "traced stamps: plain ones have no cells")
        is_name = isinstance(self.group, str) and self.group
        if not (self.group is None or is_name or callable(self.group)):
            raise ArgumentError("group", self.group, "the name of a group of messages, or None")
        if self.client is None:
            self.client = PerProcess(lambda: queue_client(self.queue_url))
        self.mask = mask_of(self.mask)
        self.keys = Keys(token_key)
        self._store: DynamoDBStore | None = None

    def state(self, tag: str) -> Status | None:
        """Read the status of a chain by one eventually consistent read: is it still worth working?

        The first call also describes the table. `Acker.grant_read` permits both.

        Returns:
            ``pending`` before the create, ``open``, ``acked`` or ``failed``. None if nothing of the
            chain has arrived, or it ended long ago.

        Raises:
            ArgumentError: The tag is invalid, or the tracker has no `table_name`.
            StateError: There is no such table, or the item is no chain.
            UnavailableError: DynamoDB did not answer within seconds.
        """
        validate_tag(tag)
        if self._store is None:
            if not self.table_name:
                expected = "the name of the acker's table: the stack's output TableName"
                raise ArgumentError("table_name", self.table_name, expected)
            from xorack.aws.stack import open_table  # few producers read

            # The work can go on without an answer: no call holds it up.
            config = config_of(TimeOuts(connect=1, read=1), attempts=2)
            client = PerProcess(lambda: make_client("dynamodb", config=config))
            self._store = open_table(self.table_name, client)
        return self._store.status(tag)

    def start(
        self,
        tag: str,
        *parts: str | bytes | int,
        timeout: float | timedelta | None = None,
        idle_timeout: float | timedelta | None = None,
        tolerated_units: int = 0,
        detail: Mapping[str, Any] | None = None,
        resume: Mapping[str, str] | None = None,
        parent: AnyToken | Sequence[AnyToken] | None = None,
        fail_parent: bool = False,
    ) -> Token:
        """Create a chain with its root unit, and return the unit's token.

        A second start of the tag has no effect, and is rejected if it differs.

        Args:
            tag: The chain's name.
            *parts: The name of the root unit; by default the tag.
            timeout: Seconds, or a timedelta, until the chain fails; by default the acker's.
            idle_timeout: The same without a step that ends, and without `extend`; by default no
                limit.
            tolerated_units: The most units outstanding with which the chain is acked at its
                deadline: at most ``cells``, because the stamp has to name all of them, and 0 for
                plain stamps. One of them may stand for children that it has not started.
            detail: A JSON object of at most 4 KiB, returned in the chain's events. It is part of
                the chain's item, so it makes each write dearer: 100 bytes by two thirds
                (docs/capacity.md).
            resume: Who waits for the chain's end: ``{"step_functions": task token}`` or
                ``{"lambda": callback id of a durable execution}``.
            parent: The token of the unit that this chain is, such as ``step.child("file13")``, or
                several. The acker finishes the unit when the chain is acked.
            fail_parent: True if the unit's chains fail as soon as this chain does. Otherwise the
                unit stays outstanding.

        Raises:
            ArgumentError: An argument is invalid.
            SendError: The queue did not accept the request.
        """
        validate_tag(tag)
        unit = _unit_of(self, parts or (tag,))
        token = self.keys.sign(Token(unit, (tag,), self.stamps, self.cells))
        check_unit(unit, token.stamp_cells)
        if not (detail is None or isinstance(detail, Mapping)):
            raise ArgumentError("detail", _shown(self, detail), "a mapping of JSON values, or None")
        fields = {
            **_carried(token, [unit]),
            "timeout": timeout,
            "idle_timeout": idle_timeout,
            "tolerated_units": tolerated_units,
            "detail": masked_fields(detail, self.mask),
            "resume": resume,
            **parent_fields(parent, fail_parent, self.keys.verified),
        }
        self._send(Request.create(tag, f"create-{unit:016x}", **fields))
        return token

    def step(self, *tokens: AnyToken) -> Step:
        """Make a step, for use with ``with``: it finishes its units and starts their children.

        One request a chain is sent at the block's end. If the block raises, nothing is sent: the
        units stay outstanding until the event is delivered again.

        Units may come again in other groups: each is finished once, and each group starts children
        of its own. The same units with other children are rejected and dead-lettered.

        Args:
            *tokens: The units that the step finishes, 1 to 10,000, of one or several chains, in any
                order. Children belong to all of these chains (Storm's multi-anchoring).

        Raises:
            ArgumentError: There is no token or more than 10,000, one is invalid or occurs twice, or
                the kinds of stamps differ.
        """
        return Step(self, tuple(map(self.keys.verified, tokens)))

    def fail(self, token: AnyToken, reason: str) -> None:
        """Fail the chains of a token, for a reason that is cut off after 1,024 bytes.

        Raises:
            ArgumentError: An argument is invalid.
            SendError: The queue did not accept the request.
        """
        self._tell("fail", token, {"reason": reason})

    def note(
        self,
        token: AnyToken,
        text: str | None = None,
        *,
        missing: Iterable[int] = (),
        missing_count: int | None = None,
    ) -> None:
        """Tell what was found out of a token's chains: their events have it if they fail.

        It changes neither state nor deadline; the last note of a chain stands.

        Args:
            token: The token.
            text: What was found out, cut off after 1,024 bytes.
            missing: The ids of at most 100 units that are missing.
            missing_count: How many units are missing.

        Raises:
            ArgumentError: An argument is invalid, or there is neither a text nor a missing unit.
            SendError: The queue did not accept the request.
        """
        found = {"text": text, "missing": missing, "missing_count": missing_count}
        self._tell("note", token, found)

    def _tell(self, op: Op, token: AnyToken, fields: dict[str, Any]) -> None:
        """Send a fail or a note to each chain of a token."""
        token = self.keys.verified(token)
        content = {name: _cleaned(name, value) for name, value in fields.items()}
        requests = [Request(op, tag, op, **content) for tag in token.tags]
        self._send(*(replace(one, id=note_id(token.unit, one)) for one in requests))

    def extend(self, token: AnyToken, timeout: float | timedelta) -> None:
        """Move the deadline of a token's chains to ``timeout`` from now: seconds, or a timedelta.

        An idle time-out counts from the call, too. So a step that takes longer than it calls this
        now and then. The request's id is random: each call is a separate request.

        Raises:
            ArgumentError: The token is invalid, or the time-out is not above 0.
            SendError: The queue did not accept the request.
        """
        token = self.keys.verified(token)
        if timeout is None:  # a request without one takes the acker's default
            raise ArgumentError("timeout", timeout, "seconds, above 0")
        id = f"extend-{uuid.uuid4().hex}"
        self._send(*(Request.extend(tag, id, timeout) for tag in token.tags))

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Collect what this thread or task of asyncio sends in the block; send it at the end.

        Hundreds of steps become one message a group of chains, also if the block raises.
        Acknowledge the events after the block. Tasks that start in it share it, blocks inside it
        too; threads and forked processes do not.

        Raises:
            SendError: The queue did not accept some requests.
        """
        outer = _BATCHES.get()
        if self in outer and outer[self].add([]):
            yield  # nested: the outer block sends
            return
        collected, reset = _Collected(), None
        # A signal may raise between any two lines: what stays open would swallow later requests.
        try:
            try:
                reset = _BATCHES.set({**outer, self: collected})
                yield
            finally:
                collected.close()
        finally:
            requests = collected.close()
            with suppress(ValueError):  # a generator may be closed in another context
                if reset is not None:
                    _BATCHES.reset(reset)
            self._send(*requests)

    def _send(self, *requests: Request) -> None:
        collected = _BATCHES.get().get(self)
        if collected is not None and collected.add(requests):
            return
        send(self.queue_url, requests, self.client, group=self.group, policy=self.policy)


class Step:
    """A step of the work; made by `Tracker.step`."""

    def __init__(self, tracker: Tracker, tokens: tuple[Token, ...]) -> None:
        if not 1 <= len(tokens) <= MAX_STEP_UNITS:
            raise ArgumentError("tokens", f"{len(tokens)} tokens", f"1 to {MAX_STEP_UNITS} tokens")
        if len({(token.kind, token.cells) for token in tokens}) > 1:
            raise ArgumentError("tokens", tokens, "tokens of one kind and size of stamps")
        units = [(tag, token.unit) for token in tokens for tag in token.tags]
        if len(set(units)) != len(units):
            raise ArgumentError("tokens", tokens, "each unit once")
        self._is_used = False
        self.tokens = tokens
        self.tags = tuple(dict.fromkeys(tag for token in tokens for tag in token.tags))
        self._tracker = tracker
        self._children: dict[int, Token] = {}
        self._ended = False

    def child(self, *parts: str | bytes | int, unit: int | None = None) -> Token:
        """Start a child of this step's units, and return its token: send it with the event.

        Args:
            *parts: The name of the unit among the children of the step, the same each time the step
                runs; by default its number. The id follows from it and all units of the step.
            unit: The unit's id, signed or unsigned, instead of parts. Of one parent alone: two that
                start the same unit cancel it out, and its chain fails at its deadline.

        Raises:
            ArgumentError: The step has a unit of this name already: they would cancel out. Or
                its units have more than 16 chains together.
            StateError: The step has ended.
        """
        if len(self.tags) > MAX_TAGS:
            raise ArgumentError("tokens", self.tags, f"tokens of at most {MAX_TAGS} chains")
        if self._ended:
            raise StateError("the step has ended: its stamp is sent, no child can be started")
        parents = [token.unit for token in self.tokens]
        if unit is None:
            names = parts or (len(self._children),)
            unit = _unit_of(self._tracker, names, step_group_id(self.tokens))
        unit = check_unit(unit, self.tokens[0].stamp_cells)
        token = self._tracker.keys.sign(replace(self.tokens[0], unit=unit, tags=self.tags))
        if unit in self._children or unit in parents:
            expected = "another unit than those of the step"
            raise ArgumentError("child", self.shown(parts or unit), expected)
        self._children[unit] = token
        return token

    def shown(self, name: object) -> object:
        """Return what errors show of a unit's name: its hash if the tracker masks fields."""
        return _shown(self._tracker, name)

    def requests(self) -> list[Request]:
        """Return the requests that end this step, one in each chain."""
        self._is_used = True
        first, children, group = self.tokens[0], list(self._children), step_group_id(self.tokens)
        if len(self.tokens) == 1:
            fields = _carried(first, children, [group])
            return [Request.stamp_(tag, step_id(group), **fields) for tag in self.tags]
        units: dict[str, list[int]] = defaultdict(list)
        for token in self.tokens:
            for tag in token.tags:
                units[tag].append(token.unit)
        fields = {"cells": first.stamp_cells, **(_carried(first, children) if children else {})}
        id = f"steps-{group:016x}"
        return [Request.stamp_(tag, id, finishes_once=units[tag], **fields) for tag in self.tags]

    def __enter__(self) -> Step:
        self._is_used = True
        return self

    def __del__(self) -> None:
        # An invalid step has no such attribute.
        if not getattr(self, "_is_used", True):
            text = f"a step of {', '.join(self.tags[:3])} was never entered, so nothing was sent"
            text += ": write `with tracker.step(token):`"
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._ended = True
        if error is None:
            self._tracker._send(*self.requests())  # noqa: SLF001 - no user needs it
