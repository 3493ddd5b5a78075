"""Fan-in for Lambda functions and workers: it reads tokens, and runs handlers within steps."""

from __future__ import annotations

import functools
import inspect
import logging
import sys
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, Final

from xorack.aws.log import LOG, log_chain
from xorack.client.event_tag import layers
from xorack.client.records import NAME, attribute_of, ordering_key, records_of
from xorack.client.token import Keys, Token, TokenKey
from xorack.client.tracker import Step, Tracker, collected
from xorack.core.errors import ArgumentError, StateError, XorAckError

Handler = Callable[[dict[str, Any], Any], Any]


@dataclass(frozen=True)
class _Reader:
    """Reads the tokens of messages."""

    keys: Keys
    bodies: bool
    tags: str | None

    def __post_init__(self) -> None:
        if self.tags == "" or not isinstance(self.tags, (str, NoneType)):
            raise ArgumentError("tags", self.tags, "a prefix of tags")

    def read(self, message: Mapping[str, Any], required: bool = False) -> Token | None:
        for layer in layers(message, bodies=self.bodies):
            for value in (attribute_of(layer), layer.get(NAME) if self.bodies else None):
                if value is not None:
                    return self._checked(value)
        if required:
            raise ArgumentError("token place", None, self.place + self.hint(message))
        return None

    @staticmethod
    def hint(message: Mapping[str, Any]) -> str:
        """Return advice if receive_message returned a message without its attributes."""
        if "ReceiptHandle" in message and "MessageAttributes" not in message:
            return f': receive_message gives it with MessageAttributeNames=["{NAME}"]'
        return ""

    @property
    def place(self) -> str:
        field = f", or the field {NAME!r} of a JSON body" if self.bodies else ""
        return f"the attribute or header {NAME!r}{field}"

    def _checked(self, value: Any) -> Token:
        tag = ""
        try:
            token = Token.from_json(value)
            for tag in token.tags:
                if not tag.startswith(self.tags or ""):
                    raise ArgumentError("token tags", tag, f"a tag that begins with {self.tags!r}")
            return self.keys.verified(token)
        except ArgumentError as error:
            # The message repeats the fields, because a plain-text logger prints nothing else.
            log_chain(logging.WARNING, f"token refused: {error}", tag, why=str(error))
            raise


def _log_messages(event: str, count: int, why: str) -> None:
    """Log how many messages of a batch had this event, unless there are none."""
    if count:
        extra = {"failures": count, "why": why}
        LOG.warning(f"{event}: {count:,} with {why}", extra=extra)


def token_of(
    message: Mapping[str, Any],
    *,
    bodies: bool = False,
    tags: str | None = None,
    token_key: TokenKey | None = None,
) -> Token | None:
    """Return the token that a message carries, or None.

    Args:
        message: A message of SQS, as Lambda or ``receive_message`` returns it. Or an event of SNS
            or EventBridge, or a message with such an event in its body. Or any JSON object. The
            token is in the attribute or header ``xorack``, or with ``bodies`` in that field of the
            JSON body.
        bodies: Also look for the token in the bodies of messages, in events inside them, and in the
            ``detail`` of events. Set this only if your own code alone writes that field.
        tags: A prefix of the tags that the token may name. By default, all tags are accepted.
        token_key: The key, as in `Tracker`.

    Raises:
        ArgumentError: The token is invalid or refused. The log says why.
    """
    return _Reader(Keys(token_key), bodies, tags).read(message)


def step_of(
    tracker: Tracker,
    message: Mapping[str, Any],
    *,
    bodies: bool = False,
    tags: str | None = None,
    required: bool = False,
) -> AbstractContextManager[Step | None]:
    """Make the step that finishes a message's unit, for use with ``with``; see `Tracker.step`.

    Args:
        tracker: The tracker, whose keys verify the token.
        message: See `token_of`.
        bodies: See `token_of`.
        tags: See `token_of`.
        required: Reject a message without a token. By default, the step is None and the log
            counts the message, so that messages from before the tracking are still processed.

    Raises:
        ArgumentError: The token is invalid or refused, or it is required and missing.
    """
    reader = _Reader(tracker.keys, bodies, tags)
    if token := reader.read(message, required):
        return tracker.step(token)
    why = f"no token in {reader.place}{reader.hint(message)}"
    _log_messages("messages not tracked", 1, why)
    return nullcontext()


def fan_in(
    tracker: Tracker,
    *,
    bodies: bool = False,
    tags: str | None = None,
    required: bool = False,
    skip_ended: bool = False,
) -> Callable[[Callable[[Any, Step | None], Any]], Handler]:
    """Turn a function that handles one message into a Lambda handler of batches; a decorator.

    The handler takes batches of SQS, Kinesis, DynamoDB Streams and Kafka. The function gets
    Powertools' record (``SQSRecord``, ``KinesisStreamRecord``, ``DynamoDBRecord``,
    ``KafkaEventRecord``) and the message's step, or None if the message has no token. When the
    function returns, the message's unit is finished. When it raises, or the token is invalid or
    refused, the message is reported in ``batchItemFailures``. Later messages of the same shard,
    partition or FIFO group are reported too.

    The steps of a batch end before the handler returns, with one message to the acker for each
    group of chains. If the acker's queue does not accept it, each message fails whose function made
    requests. They are delivered again, and their requests take effect once.

    The event source mapping must have ``ReportBatchItemFailures``. The decorator needs Powertools:
    install the extra ``fan-in``.

    Args:
        tracker: The tracker.
        bodies: See `token_of`. Kinesis needs it, because its records have only a body.
        tags: See `token_of`.
        required: See `step_of`.
        skip_ended: Skip a message as handled if all its chains have ended. The handler asks
            `Tracker.state` for a chain at most every 10 seconds. If the state cannot be read, the
            function is called, and the log says why.

    Raises:
        ArgumentError: An argument is invalid, or the function is a coroutine function or a
            generator, even inside a wrapper. If the function returns a coroutine or a generator,
            that message fails.

    Examples:
        >>> @fan_in(Tracker(queue_url), tags="order/")                  # doctest: +SKIP
        ... def handler(record, step):
        ...     process(record.json_body)
    """
    if not isinstance(tracker, Tracker):
        raise ArgumentError("tracker", tracker, "a Tracker: write @fan_in(tracker)")
    reader = _Reader(tracker.keys, bodies, tags)
    # Several threads may run the handler, so this scope has only objects that they can share.
    ended, processor_of = _Ended(tracker) if skip_ended else None, _processors()

    def decorate(function: Callable[[Any, Step | None], Any]) -> Handler:
        _refuse_deferred(function)

        @functools.wraps(function)
        def handler(event: dict[str, Any], context: Any) -> Any:
            kind, records = records_of(event)
            if kind == "KinesisDataStreams" and not bodies:
                expected = "True, because a Kinesis record can have a token only in its data"
                raise ArgumentError("bodies", bodies, expected)
            processor = processor_of(kind)
            batch = _RecordBatch(tracker, reader, required, function, ended)
            with processor(records, batch.handle, context):
                try:
                    with tracker.batch():
                        processor.process()
                except XorAckError:
                    for record in batch.unsent():
                        processor.failure_handler(record, sys.exc_info())
            why = f"no token in {reader.place}"
            _log_messages("messages not tracked", batch.untracked, why)
            _log_messages("messages skipped", batch.skipped, "chains that have ended")
            return processor.response()

        return handler

    return decorate


class _Ended:
    """Knows which chains have ended. It caches a status for seconds. Threads may share it."""

    _SECONDS = 10
    _MAX_TAGS = 10_000

    def __init__(self, tracker: Tracker) -> None:
        if not tracker.table_name:
            expected = "the name of the acker's table, where skip_ended reads the chains' states"
            raise ArgumentError("table_name", tracker.table_name, expected)
        self._tracker = tracker
        self._known: dict[str, tuple[bool, float]] = {}
        self._asks_after = 0.0

    def all_of(self, token: Token) -> bool:
        return all(map(self._has_ended, token.tags))

    def _has_ended(self, tag: str) -> bool:
        now = time.monotonic()
        ended, until = self._known.get(tag, (False, 0.0))
        if now < max(until, self._asks_after):
            return ended
        try:
            ended = self._tracker.state(tag) in ("acked", "failed")
        except Exception as error:  # noqa: BLE001 - without the state, the message is handled
            self._asks_after = now + self._SECONDS
            why = f"{type(error).__name__}: {error}"
            text = f"chains not checked for their end: all messages are handled: {why}"
            LOG.warning(text, extra={"why": why})
        if len(self._known) >= self._MAX_TAGS:
            self._known.clear()
        self._known[tag] = ended, now + self._SECONDS
        return ended


@dataclass
class _RecordBatch:
    """The records of one event, in their order."""

    tracker: Tracker
    reader: _Reader
    required: bool
    function: Callable[[Any, Step | None], Any]
    ended: _Ended | None
    untracked: int = 0
    skipped: int = 0
    _handled: list[tuple[Any, Hashable | None, bool]] = field(default_factory=list)
    _blocked: set[Hashable] = field(default_factory=set)

    def handle(self, record: Any) -> Any:
        """Call the function with a record and its step, unless an earlier record failed."""
        key = ordering_key(record.raw_event)
        if key in self._blocked:
            raise StateError(f"an earlier record of {key!r} failed; both are delivered again")
        try:
            before = collected(self.tracker)
            token = self.reader.read(record.raw_event, self.required)
            if token and self.ended and self.ended.all_of(token):
                self.skipped += 1
                return None
            with self.tracker.step(token) if token else nullcontext() as step:
                result = _finished(self.function(record, step))
        except Exception:
            self._blocked.update(() if key is None else (key,))
            raise
        self.untracked += not token
        self._handled.append((record, key, collected(self.tracker) > before))
        return result

    def unsent(self) -> Iterator[Any]:
        """Yield the records that made requests, and the later records of the same order."""
        keys: set[Hashable] = set()
        for record, key, made_requests in self._handled:
            if made_requests or key in keys:
                keys.update(() if key is None else (key,))
                yield record


_DEFERRED: Final = (
    inspect.iscoroutinefunction,
    inspect.isgeneratorfunction,
    inspect.isasyncgenfunction,
)
_NOT_DEFERRED: Final = "a plain function, because fan_in awaits no coroutine and runs no generator"


def _refuse_deferred(function: Any) -> None:
    """Raise ArgumentError if calling a function, even inside wrappers, only makes a coroutine."""
    if not callable(function):
        raise ArgumentError("handler", function, "a function that takes a record and its step")
    if any(kind(function) for kind in _DEFERRED):
        raise ArgumentError("handler", function, _NOT_DEFERRED)
    if (inner := getattr(function, "__wrapped__", None)) is not None:
        _refuse_deferred(inner)
    if isinstance(function, functools.partial):
        _refuse_deferred(function.func)
    elif not inspect.isroutine(function):
        _refuse_deferred(type(function).__call__)


def _finished(result: Any) -> Any:
    """Return the result of a function; raise ArgumentError if it still has to be awaited or run."""
    if inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
        if close := getattr(result, "close", None):
            close()  # otherwise Python warns that the coroutine was never awaited
        raise ArgumentError("handler", result, _NOT_DEFERRED)
    return result


def _processors() -> Callable[[str], Any]:
    """Return a function that makes a batch processor for a kind of source.

    A processor holds the records of one invocation, so each invocation needs a processor.
    """
    try:
        from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "fan_in needs Powertools: install xorack with the extra fan-in", name=error.name
        ) from error
    return lambda kind: BatchProcessor(event_type=EventType[kind])
