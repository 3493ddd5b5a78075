"""Tracking for producers and workers in plain Python, such as Lambda functions and tasks.

A chain starts with its root unit. A step finishes a unit and starts its children in one stamp, so
the chain cannot reach zero while work is left. Each child has a token, a small JSON object that
travels with the event to the child's worker.

Ids of units and requests follow from their content. A step that runs again sends the same request
with the same id, which takes effect once. So a step that runs again must start the same children.
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
"""The most ids of a request. More ids take as many bytes as the smallest traced stamp."""


def by_run(request: Request) -> str | None:
    """Return the group of a request's message: its tag up to the first slash, or else None."""
    run, slash, _ = request.tag.partition("/")
    return run if run and slash else None


def _carried(token: Token, starts: Sequence[int], finishes: Sequence[int] = ()) -> dict[str, Any]:
    """Return the fields of a request: a stamp, or the units' ids if these are shorter."""
    cells = token.stamp_cells
    if cells and len(starts) + len(finishes) <= _MAX_IDS:
        return {"starts": starts, "finishes": finishes, "cells": cells}
    stamp = sum_of((*starts, *finishes), cells)
    return {"stamp": stamp, "started": len(starts), "finished": len(finishes)}


def _cleaned(name: str, value: Any) -> Any:
    """Return a field of a fail or a note in a valid form, without NUL and lone surrogates."""
    if name == "missing" and isinstance(value, Iterable):
        return tuple(value)  # several requests need the ids, and an iterator yields them once
    if name in ("missing", "missing_count") or (name, value) == ("text", None):
        return value  # the request itself checks the value
    if not isinstance(value, str):
        raise ArgumentError(name, value, "a string")
    data = value.replace("\0", "").encode("utf-8", "backslashreplace")[:MAX_REASON_BYTES]
    return data.decode("utf-8", "ignore")


QUEUE_VARIABLE = "XORACK_QUEUE_URL"
"""The environment variable with the URL of the acker's queue."""
TABLE_VARIABLE = "XORACK_TABLE"
"""The environment variable with the name of the acker's table."""


def _check_queue_url(url: object, has_client: bool) -> None:
    """Raise ArgumentError if a value is not a queue's URL. A custom client may use other values."""
    problem = f"{shown(url)}, expected the URL of an SQS queue, such as the output QueueUrl"
    if not isinstance(url, str) or not url:
        raise ArgumentError("queue_url", problem=f"{problem}; or set {QUEUE_VARIABLE}")
    if url.startswith("arn:") and url.count(":") == 5:
        _, _, _, region, account, name = url.split(":")
        url = f"https://sqs.{region}.amazonaws.com/{account}/{name}"
        raise ArgumentError("queue_url", problem=f"{problem}; this ARN has {url}")
    if not has_client and "://" not in url:
        raise ArgumentError("queue_url", problem=f"{problem}, and not the name of a queue")


def _name_for_errors(tracker: Tracker, name: object) -> object:
    """Return a unit's name for error messages: its hash if the tracker masks fields."""
    return masked(name) if tracker.mask else name


def _unit_of(tracker: Tracker, parts: Sequence[Any], parent: int | None = None) -> int:
    """Return the id of a unit, or of a child of `parent`. Errors show masked names as hashes."""
    try:
        return unit_id(*parts) if parent is None else child_id(parent, *parts)
    except ArgumentError as error:
        if not tracker.mask:
            raise
        raise ArgumentError("part", masked([*map(str, parts)]), error.expected) from None


class _Collected:
    """The requests of a batch. Tasks and forked processes from its block may outlive it."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self._open = True
        self._lock = threading.Lock()
        self._process = os.getpid()

    def add(self, requests: Sequence[Request]) -> bool:
        """Add requests; return False if the batch was sent or belongs to another process."""
        if self._process != os.getpid():  # in a fork, the lock may stay locked for ever
            return False
        with self._lock:
            if self._open:
                self.requests += requests
            return self._open

    def close(self) -> list[Request]:
        """Return the requests of this process and accept no more. Safe to repeat."""
        if self._process == os.getpid():
            with self._lock:
                self._open = False
            return self.requests
        return []


_BATCHES: ContextVar[Mapping[Tracker, _Collected]] = ContextVar("batches", default={})  # noqa: B039


def collected(tracker: Tracker) -> int:
    """Return the number of requests in the innermost open batch of a tracker."""
    batch = _BATCHES.get().get(tracker)
    return 0 if batch is None else len(batch.requests)


@dataclass(eq=False)
class Tracker:
    """Tracks work for producers and workers in plain Python. Threads and tasks may share it.

    Attributes:
        queue_url: The acker's queue (the stack's output ``QueueUrl``). By default, the value of the
            environment variable ``XORACK_QUEUE_URL``.
        client: A boto3 SQS client. By default, each process makes one with the default credentials
            when it first sends.
        stamps: The kind of stamps of the chains that this tracker starts. ``traced`` stamps name
            the outstanding units; ``plain`` stamps have 8 bytes and do not.
        cells: The size of traced stamps: 16, 64, 256 or 1,024 cells a table; see `xorack.traced`.
        group: The group of all messages, or a function that returns the group of a request. The
            backlog of one group does not delay others. By default, the group is the tag up to the
            first ``/``, if there is one. None sets no group, because some emulators refuse it.
        policy: The limits of retries for messages that were not accepted.
        token_key: A secret of at least 16 bytes that signs and verifies tokens. By default, the
            value of the environment variable ``XORACK_TOKEN_KEY``, or none. With two keys, the
            first signs and both are accepted.
        mask: Fields of details whose values are sent as hashes, at any depth and in upper or lower
            case; see docs/security.md. With a mask, errors show names of units as hashes, too.
        table_name: The acker's table (the stack's output ``TableName``), which `state` reads. By
            default, the value of the environment variable ``XORACK_TABLE``.

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
            raise ArgumentError(
                "cells", self.cells, "traced stamps, because plain stamps have no cells"
            )
        is_name = isinstance(self.group, str) and self.group
        if not (self.group is None or is_name or callable(self.group)):
            raise ArgumentError("group", self.group, "the name of a group of messages, or None")
        if self.client is None:
            self.client = PerProcess(lambda: queue_client(self.queue_url))
        self.mask = mask_of(self.mask)
        self.keys = Keys(token_key)
        self._store: DynamoDBStore | None = None

    def state(self, tag: str) -> Status | None:
        """Read the status of a chain, for example to skip work for a chain that has ended.

        The call makes one eventually consistent read. The first call also describes the table.
        `Acker.grant_read` permits both calls.

        Returns:
            ``pending`` before the create, then ``open``, ``acked`` or ``failed``. None if no
            request of the chain has arrived, or its tombstone has expired.

        Raises:
            ArgumentError: The tag is invalid, or the tracker has no `table_name`.
            StateError: The table does not exist, or the item is not a chain.
            UnavailableError: DynamoDB did not answer within several seconds.
        """
        validate_tag(tag)
        if self._store is None:
            if not self.table_name:
                expected = "the name of the acker's table, which is the stack's output TableName"
                raise ArgumentError("table_name", self.table_name, expected)
            from xorack.aws.stack import open_table  # imported here: few producers need it

            # The caller can work without an answer, so a call must not delay it for long.
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

        A second start of the tag has no effect. If its arguments differ, it is rejected.

        Args:
            tag: The chain's name.
            *parts: The name of the root unit. By default, the tag.
            timeout: The chain fails after this time, in seconds or as a timedelta. By default, the
                acker's setting.
            idle_timeout: The chain fails after this time without a step that ends and without an
                `extend`. By default, there is no limit.
            tolerated_units: The chain is acked at its deadline if at most so many units are
                outstanding. The limit is ``cells``, because the stamp has to name these units, and
                0 for plain stamps. A tolerated unit may stand for children that it did not start.
            detail: A JSON object of at most 4 KiB, which the chain's events contain. As a part of
                the chain's item it makes each write more expensive: 100 bytes by two thirds
                (docs/capacity.md).
            resume: The callback at the chain's end: ``{"step_functions": task token}`` or
                ``{"lambda": callback id of a durable execution}``.
            parent: The token of the unit that this chain stands for, such as
                ``step.child("file13")``, or several tokens. When the chain is acked, the acker
                finishes the unit.
            fail_parent: If True, the chains of that unit fail as soon as this chain fails. If
                False, the unit stays outstanding.

        Raises:
            ArgumentError: An argument is invalid.
            SendError: The queue did not accept the request.
        """
        validate_tag(tag)
        unit = _unit_of(self, parts or (tag,))
        token = self.keys.sign(Token(unit, (tag,), self.stamps, self.cells))
        check_unit(unit, token.stamp_cells)
        if not (detail is None or isinstance(detail, Mapping)):
            visible = _name_for_errors(self, detail)
            raise ArgumentError("detail", visible, "a mapping of JSON values, or None")
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
        """Make a step, for use with ``with``.

        The step finishes its units and starts their children.

        At the end of the block, one request is sent for each chain. If the block raises, nothing is
        sent, so the units stay outstanding until the event is delivered again.

        The units may be delivered again in other groups. Each unit is finished once, and each group
        starts children of its own. If the same units start other children, the request is rejected.

        Args:
            *tokens: The units that the step finishes: 1 to 10,000, of one or several chains, in any
                order. The children belong to all of these chains (Storm's multi-anchoring).

        Raises:
            ArgumentError: There is no token, or more than 10,000. A token is invalid or occurs
                twice, or the kinds of stamps differ.
        """
        return Step(self, tuple(map(self.keys.verified, tokens)))

    def fail(self, token: AnyToken, reason: str) -> None:
        """Fail the chains of a token. The reason is cut off after 1,024 bytes.

        Raises:
            ArgumentError: An argument is invalid.
            SendError: The queue did not accept the request.
        """
        self._send_about("fail", token, {"reason": reason})

    def note(
        self,
        token: AnyToken,
        text: str | None = None,
        *,
        missing: Iterable[int] = (),
        missing_count: int | None = None,
    ) -> None:
        """Add a note to the chains of a token. If they fail, their events contain it.

        A note changes neither the state nor the deadline. A later note replaces an earlier one.

        Args:
            token: The token.
            text: An explanation, which is cut off after 1,024 bytes.
            missing: The ids of at most 100 units that are missing.
            missing_count: The number of missing units.

        Raises:
            ArgumentError: An argument is invalid, or there is neither a text nor a missing unit.
            SendError: The queue did not accept the request.
        """
        fields = {"text": text, "missing": missing, "missing_count": missing_count}
        self._send_about("note", token, fields)

    def _send_about(self, op: Op, token: AnyToken, fields: dict[str, Any]) -> None:
        """Send a fail or a note to each chain of a token."""
        token = self.keys.verified(token)
        content = {name: _cleaned(name, value) for name, value in fields.items()}
        requests = [Request(op, tag, op, **content) for tag in token.tags]
        self._send(*(replace(each, id=note_id(token.unit, each)) for each in requests))

    def extend(self, token: AnyToken, timeout: float | timedelta) -> None:
        """Set the deadline of a token's chains to ``timeout`` from now: seconds or a timedelta.

        An idle time-out also starts again. So a step that takes long should call this method at
        intervals. The request's id is random, so each call is a separate request.

        Raises:
            ArgumentError: The token is invalid, or the time-out is not above 0.
            SendError: The queue did not accept the request.
        """
        token = self.keys.verified(token)
        if timeout is None:  # a request without a timeout would take the acker's default
            raise ArgumentError("timeout", timeout, "seconds, above 0")
        id = f"extend-{uuid.uuid4().hex}"
        self._send(*(Request.extend(tag, id, timeout) for tag in token.tags))

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Collect the requests that this thread or asyncio task sends in the block.

        The requests are sent at the end of the block, even if it raises. So hundreds of steps
        become one message for each group of chains. Acknowledge messages only after the block.
        Tasks that start in the block, and blocks inside it, share the batch. Threads and forked
        processes do not.

        Raises:
            SendError: The queue did not accept some requests.
        """
        outer = _BATCHES.get()
        if self in outer and outer[self].add([]):
            yield  # in a nested block, the outer block sends the requests
            return
        collected, reset = _Collected(), None
        # A signal handler may raise between any two lines. A batch that stays open would swallow
        # later requests.
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
    """A step of the work. `Tracker.step` makes it."""

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
        """Start a child of this step's units, and return its token. Send it with the event.

        Args:
            *parts: The name of the unit among the children of this step. It must be the same each
                time the step runs. By default, the child's number. The id follows from the name
                and from all units of the step.
            unit: The unit's id, signed or unsigned, instead of parts. Only one step may start this
                unit. If two steps start it, the unit counts as not started, and its chain times
                out.

        Raises:
            ArgumentError: The step already has a unit of this name, so that the two would cancel
                out. Or its units have more than 16 chains together.
            StateError: The step has ended.
        """
        if len(self.tags) > MAX_TAGS:
            raise ArgumentError("tokens", self.tags, f"tokens of at most {MAX_TAGS} chains")
        if self._ended:
            raise StateError("the step has ended and its stamp is sent: start children before that")
        parents = [token.unit for token in self.tokens]
        if unit is None:
            names = parts or (len(self._children),)
            unit = _unit_of(self._tracker, names, step_group_id(self.tokens))
        unit = check_unit(unit, self.tokens[0].stamp_cells)
        token = self._tracker.keys.sign(replace(self.tokens[0], unit=unit, tags=self.tags))
        if unit in self._children or unit in parents:
            expected = "a name or an id that no other unit of the step has"
            raise ArgumentError("child", self.name_for_errors(parts or unit), expected)
        self._children[unit] = token
        return token

    def name_for_errors(self, name: object) -> object:
        """Return a unit's name for error messages: its hash if the tracker masks fields."""
        return _name_for_errors(self._tracker, name)

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
        # If the constructor has raised, the step has no such attribute.
        if not getattr(self, "_is_used", True):
            text = f"the step of {', '.join(self.tags[:3])} was never entered and sent nothing"
            text += ": write `with tracker.step(token):`"
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._ended = True
        if error is None:
            self._tracker._send(*self.requests())  # noqa: SLF001 - a private part of the tracker
