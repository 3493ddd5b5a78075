"""What a producer in plain Python uses instead of raw stamps: Lambda functions, workers, tasks.

A chain is started with its root unit; a step finishes a unit and starts its children, in one
stamp, so that the chain cannot reach zero while work is left. A child is a token, a little JSON,
that travels with the event to whoever works on it, in another process too.

Unit and request ids are fixed by what they stand for, never random: a step that is run again,
because its event was delivered again, sends the same request under the same id, which takes effect
once. So a step must make the same children each time it is run for the same unit.
"""

from __future__ import annotations

import hashlib
import json
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

from xorack.aws.sqs import SendReport, send
from xorack.core.errors import InvalidRequest, InvalidToken, XorAckError
from xorack.core.hashing import unit_id
from xorack.core.request import MAX_REASON_BYTES, Request, validate_tag
from xorack.core.retry import RetryPolicy
from xorack.core.stamp import Stamp, plain, traced, xor_bytes

__all__ = ["Kind", "Step", "Token", "Tracker"]

Kind = Literal["traced", "plain"]

_VERSION = 1
_STAMPS = {"traced": traced, "plain": plain}


@dataclass(frozen=True)
class Token:
    """A unit that is started and has to be finished: what travels with the event.

    Attributes:
        unit: The unit's id.
        tags: The chains that it belongs to, at least one.
        kind: The kind of stamps that these chains use.
    """

    unit: int
    tags: tuple[str, ...]
    kind: Kind = "traced"

    def to_json(self) -> dict[str, Any]:
        """The token as a JSON object."""
        return {
            "v": _VERSION,
            "unit": f"{self.unit:016x}",
            "tags": list(self.tags),
            "kind": self.kind,
        }

    def __str__(self) -> str:
        """The token as JSON text."""
        return json.dumps(self.to_json(), separators=(",", ":"))

    @classmethod
    def from_json(cls, token: Token | Mapping[str, Any] | str | bytes) -> Token:
        """Read a token, however it travelled.

        Args:
            token: A token, its JSON object, or its JSON text.

        Returns:
            The token.

        Raises:
            InvalidToken: It is none, or was made by another version.
        """
        if isinstance(token, Token):
            return token
        if isinstance(token, (str, bytes)):
            try:
                token = json.loads(token)
            except (ValueError, RecursionError):
                raise InvalidToken("text", token, "the JSON of a token") from None
        if not isinstance(token, Mapping):
            raise InvalidToken("value", token, "a token, its JSON object or its JSON text")
        version = token.get("v")
        if isinstance(version, bool) or version != _VERSION:
            raise InvalidToken("v", version, f"{_VERSION}: another version made this token")
        unit, tags, kind = token.get("unit"), token.get("tags"), token.get("kind")
        try:
            number = int(unit, 16) if isinstance(unit, str) and len(unit) == 16 else 0
        except ValueError:
            number = 0
        if not 0 < number < 1 << 64:
            raise InvalidToken("unit", unit, "16 hex digits, not all zero")
        if not isinstance(tags, list) or not tags or len(set(map(str, tags))) != len(tags):
            raise InvalidToken("tags", tags, "a list of different tags")
        try:
            checked = tuple(validate_tag(tag) for tag in tags)
        except InvalidRequest as error:
            raise InvalidToken("tags", tags, error.expected) from None
        if kind not in ("traced", "plain"):
            raise InvalidToken("kind", kind, "traced or plain")
        return cls(number, checked, kind)


AnyToken = Token | Mapping[str, Any] | str


class Tracker:
    """Tracks work for producers in plain Python. Threads may share one.

    Example:
        >>> tracker = Tracker(queue_url)                                # doctest: +SKIP
        >>> token = tracker.start("order/17", timeout=3600)             # doctest: +SKIP
        >>> with tracker.step(token) as step:                           # doctest: +SKIP
        ...     for line in order.lines:
        ...         publish(line, token=step.child(line.number).to_json())

        and whoever works on a line, elsewhere:

        >>> with tracker.step(event["token"]):                          # doctest: +SKIP
        ...     process(event)
    """

    def __init__(
        self,
        queue_url: str,
        client: Any = None,
        *,
        stamps: Kind = "traced",
        policy: RetryPolicy | None = None,
    ) -> None:
        """Send to a queue.

        Args:
            queue_url: The acker's queue (the stack's output ``QueueUrl``).
            client: A boto3 SQS client; one of the default chain if None, made when first needed.
            stamps: The stamps of chains started here: ``traced`` can be read back into the ids of
                what is missing; ``plain`` are 8 bytes instead of 648 and cannot.
            policy: When to try again what the queue did not accept.

        Raises:
            InvalidRequest: No queue URL, or another kind of stamps.
        """
        if not isinstance(queue_url, str) or not queue_url:
            raise InvalidRequest("queue_url", queue_url, "the URL of an SQS queue")
        if stamps not in _STAMPS:
            raise InvalidRequest("stamps", stamps, "traced or plain")
        self.queue_url = queue_url
        self.stamps: Kind = stamps
        self.policy = policy
        self._client = client
        self._here = threading.local()

    def start(
        self,
        tag: str,
        *parts: str | bytes | int,
        timeout: float | None = None,
        idle_timeout: float | None = None,
        detail: Mapping[str, Any] | None = None,
    ) -> Token:
        """Create a chain, with its root unit started.

        A tag names one run of the work: started again, it is the same chain and the same request.
        To do the work anew, take another tag, with a date or the number of the attempt.

        Args:
            tag: The chain's name.
            *parts: What names the root unit; the tag, if nothing.
            timeout: Seconds until the chain fails if it is not acked; the acker's default if None.
            idle_timeout: Seconds without a stamp until it fails; forever if None.
            detail: A JSON object of at most 4 KiB, given back in the chain's events.

        Returns:
            The root unit's token.

        Raises:
            InvalidRequest: An argument is wrong; the error names it.
            SendFailed: The queue did not accept it.
        """
        validate_tag(tag)
        token = Token(unit_id(*parts) if parts else unit_id(tag), (tag,), self.stamps)
        self._send(
            Request.create(
                tag,
                f"create-{token.unit:016x}",
                _STAMPS[self.stamps](token.unit),
                timeout=timeout,
                idle_timeout=idle_timeout,
                detail=detail,
            )
        )
        return token

    def step(self, *tokens: AnyToken, fail: bool = False) -> Step:
        """A step of the work: finishes its units, starts their children. Use it with ``with``.

        When the block ends well, one stamp for each chain is sent. When it raises, nothing is: the
        units stay outstanding, and whoever delivers the event again has it tried again.

        Args:
            *tokens: The units that the step finishes, one or more; of several chains or of one.
                Children then belong to all of these chains (Storm's multi-anchoring).
            fail: When the block raises, fail the chains, with the error as the reason.

        Returns:
            The step.

        Raises:
            InvalidToken: A token is none.
            InvalidRequest: No token, the same token twice, or chains of different stamps.
        """
        return Step(self, tuple(map(Token.from_json, tokens)), fail=fail)

    def fail(self, chain: AnyToken, reason: str, *, request_id: str | None = None) -> None:
        """Fail the chains of a token.

        Args:
            chain: A token of the chains.
            reason: Why; what exceeds 1,024 bytes is cut off.
            request_id: The request's id; by default one for this unit and reason.

        Raises:
            InvalidToken: The token is none.
            SendFailed: The queue did not accept it.
        """
        token = Token.from_json(chain)
        reason = _cut(reason)
        told = hashlib.blake2b(reason.encode(), digest_size=8).hexdigest()
        name = request_id or f"fail-{token.unit:016x}-{told}"
        self._send(*(Request.fail(tag, name, reason) for tag in token.tags))

    def extend(self, chain: AnyToken, timeout: float, *, request_id: str | None = None) -> None:
        """Move the deadline of a token's chains to ``timeout`` seconds from now.

        Args:
            chain: A token of the chains.
            timeout: Seconds, above 0.
            request_id: The request's id; by default a new one, as each call is a new wish.

        Raises:
            InvalidToken: The token is none.
            InvalidRequest: The time is not above 0: the deadline would be in the past.
            SendFailed: The queue did not accept it.
        """
        token = Token.from_json(chain)
        name = request_id or f"extend-{uuid.uuid4().hex}"
        self._send(*(Request.extend(tag, name, timeout) for tag in token.tags))

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Collect what is sent in this block, by this thread, and send it packed at its end.

        For a worker that takes several events at a time: hundreds of steps become one message.
        Ends of steps inside are sent also if the block raises: these steps ended well. Nothing has
        left before the block ended, so acknowledge the events after it.

        Raises:
            SendFailed: The queue did not accept some of it.
        """
        if getattr(self._here, "requests", None) is not None:
            yield  # inside another: the outer one sends
            return
        requests: list[Request] = []
        self._here.requests = requests
        try:
            yield
        finally:
            self._here.requests = None
            self._send(*requests)

    def _send(self, *requests: Request) -> SendReport | None:
        collected: list[Request] | None = getattr(self._here, "requests", None)
        if collected is not None:
            collected.extend(requests)
            return None
        if self._client is None:
            from xorack.aws.client import make_client

            self._client = make_client("sqs")
        return send(self.queue_url, requests, self._client, policy=self.policy)


class Step:
    """A step of the work; made by `Tracker.step`."""

    def __init__(self, tracker: Tracker, tokens: tuple[Token, ...], *, fail: bool) -> None:
        if not tokens:
            raise InvalidRequest("tokens", tokens, "at least one token")
        if len({token.kind for token in tokens}) > 1:
            raise InvalidRequest("tokens", tokens, "tokens of one kind of stamps")
        units = [(tag, token.unit) for token in tokens for tag in token.tags]
        if len(set(units)) != len(units):
            raise InvalidRequest("tokens", tokens, "each unit once")
        self.tokens = tokens
        self.tags = tuple(dict.fromkeys(tag for token in tokens for tag in token.tags))
        self._tracker = tracker
        self._fail = fail
        self._children: dict[int, Token] = {}
        self._ended = False

    def child(self, *parts: str | bytes | int, unit: int | None = None) -> Token:
        """Start a unit that descends from those that this step finishes.

        Args:
            *parts: What names the unit among the children of its parents, the same each time the
                step is run. Its number among them, if nothing: then their order must be the same.
            unit: The unit's id, where it is known by other means; instead of parts.

        Returns:
            Its token: send it along with the event.

        Raises:
            InvalidRequest: Two children of one name: they would cancel each other out.
            XorAckError: The step has ended.
        """
        if self._ended:
            raise XorAckError("the step has ended: its stamp is sent, no child can be started")
        if unit is None:
            parents = sorted(token.unit for token in self.tokens)
            signed = (parent - (1 << 64) if parent >> 63 else parent for parent in parents)
            unit = unit_id(*signed, *(parts or (len(self._children),)))
        token = Token(unit, self.tags, self.tokens[0].kind)
        _STAMPS[token.kind](unit)  # checks the id
        parents_too = {parent.unit for parent in self.tokens}
        if unit in self._children or unit in parents_too:
            raise InvalidRequest("child", parts or unit, "another unit than those of the step")
        self._children[unit] = token
        return token

    def requests(self) -> list[Request]:
        """The stamps that end this step, one a chain.

        Returns:
            Requests, for who sends them by other means.
        """
        make = _STAMPS[self.tokens[0].kind]
        requests = []
        children = Stamp(bytes(len(make(self.tokens[0].unit))))
        for child in self._children:
            children = Stamp(xor_bytes(children, make(child)))
        for tag in self.tags:
            finished = sorted(token.unit for token in self.tokens if tag in token.tags)
            stamp: bytes = children
            for unit in finished:
                stamp = xor_bytes(stamp, make(unit))
            told = hashlib.blake2b(
                b"".join(unit.to_bytes(8, "little") for unit in finished), digest_size=16
            )
            requests.append(
                Request.stamp_(
                    tag,
                    f"step-{told.hexdigest()}",
                    stamp,
                    started=len(self._children),
                    finished=len(finished),
                )
            )
        return requests

    def __enter__(self) -> Step:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended = True
        if error is None:
            self._tracker._send(*self.requests())
        elif self._fail and isinstance(error, Exception):
            for token in self.tokens:
                self._tracker.fail(token, f"{type(error).__name__}: {error}")


def _cut(reason: str) -> str:
    """A reason as the protocol allows it: no NUL, nothing without UTF-8, not too long."""
    if not isinstance(reason, str):
        raise InvalidRequest("reason", reason, "a string")
    data = reason.replace("\0", "").encode("utf-8", "backslashreplace")[:MAX_REASON_BYTES]
    return data.decode("utf-8", "ignore")
