"""Chains in a DynamoDB table by direct calls: `DynamoDBAcker`, the npm package for Python."""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from botocore.exceptions import ClientError

from xorack.acker.chain_writer import Application, CachedChain, ChainWriter
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.aws.retry import RetryPolicy
from xorack.client.token import AnyToken, parent_fields
from xorack.core.chain import Chain
from xorack.core.errors import StateError, TagNotFound, UnavailableError, ZeroBufferNoOp
from xorack.core.ports import DEFAULT_RETENTION_MS
from xorack.core.request import Request, validate_tag
from xorack.core.stamp import Stamp, UnackedStamp, xor
from xorack.core.transitions import MAX_FOLD, Limits


class _Call(NamedTuple):
    """A call of a thread that waits until its request is applied."""

    request: Request
    is_fresh: bool  # the request's id was made for this call
    result: Future[Stamp]


class _Queue:
    """The calls that wait for a chain. The thread with the lock writes the requests of all."""

    def __init__(self) -> None:
        self.calls: list[_Call] = []
        self.lock = threading.Lock()


class DynamoDBAcker:
    """Chains in a DynamoDB table by direct calls, as in the npm package ``xor-ack-dynamodb``.

    Unlike that package, ``stamp`` retries, is exact even if a response was lost, and keeps an ended
    chain as a tombstone. Threads that share an acker share the writes of a chain.

    Each method may raise ArgumentError for an invalid argument. ``create`` and ``stamp`` raise the
    following errors without writing anything:

    - ZeroBufferNoOp: The stamp is all zeros.
    - RequestIdReused: Another call has used the ``request_id``.
    - StaleLocalData: Other writers changed the chain at each attempt.

    Errors of boto3 are raised after the retries. After a time-out, a broken connection or a 5xx
    status, the call may have taken effect. Repeat it with the same ``request_id``, and it takes
    effect once. Any other ``ClientError`` means that DynamoDB rejected the last attempt.

    Examples:
        >>> acker = DynamoDBAcker("my-table", partition_key="tagID")   # doctest: +SKIP
        >>> acker.create("database/file13", bytes.fromhex("29")).acked            # doctest: +SKIP
        False
        >>> acker.stamp("database/file13", bytes.fromhex("29")).acked             # doctest: +SKIP
        True
    """

    _CACHE_SIZE = 10_000
    _CACHE_MILLISECONDS = 5 * 60_000

    def __init__(
        self,
        table_name: str,
        partition_key: str = "tag",
        client: Any = None,
        *,
        policy: RetryPolicy | None = None,
        retention_ms: int = DEFAULT_RETENTION_MS,
    ) -> None:
        """Use a table.

        Args:
            table_name: The table.
            partition_key: The name of its partition key, a string attribute.
            client: A boto3 DynamoDB client. By default, one with the default credentials.
            policy: The limits of retries.
            retention_ms: The retention of the stack, if there is one, in milliseconds. The
                tombstone of an ended chain is kept for twice this time after its event.
        """
        self.store = DynamoDBStore(table_name, partition_key, client, retention_ms=retention_ms)
        self.policy = policy or RetryPolicy()
        limits = Limits(retention_ms=retention_ms)
        self._writer = ChainWriter(self.store, policy=self.policy, limits=limits)
        # The state after the last write saves a read. The condition of the next write verifies it.
        self._cache: OrderedDict[str, tuple[int, Chain]] = OrderedDict()
        self._queues: defaultdict[tuple[str, bool], _Queue] = defaultdict(_Queue)
        self._guard = threading.Lock()

    def create(
        self,
        tag: str,
        stamp: bytes,
        *,
        started: int = 0,
        finished: int = 0,
        request_id: str | None = None,
        parent: AnyToken | Sequence[AnyToken] | None = None,
        fail_parent: bool = False,
    ) -> Stamp:
        """Create a chain.

        Args:
            tag: The chain's name, a non-empty string of at most 1,024 UTF-8 bytes.
            stamp: The root unit's stamp, not all zero.
            started: The number of units that the stamp starts, if the senders report counts.
            finished: The number of units that it finishes, if the senders report counts.
            request_id: 1 to 128 bytes, unique among the chain's requests. By default random. Calls
                with the same id and arguments take effect once.
            parent: The token of the unit of other chains that this chain stands for, or several.
                When the chain is acked, the sweeper finishes the unit.
            fail_parent: Whether these chains fail as soon as this chain fails.

        Returns:
            The chain's stamp: the XOR of this stamp and those before it. If the stamps before it
            have another length, the chain fails.

        Raises:
            TagExists: Another call created the chain, or it ended without a create.
        """
        fields = parent_fields(parent, fail_parent)
        counts = {"started": started, "finished": finished}
        return self._apply("create", tag, stamp, request_id, **counts, **fields)

    def stamp(
        self,
        tag: str,
        stamp: bytes,
        *,
        started: int = 0,
        finished: int = 0,
        request_id: str | None = None,
    ) -> Stamp:
        """XOR a stamp into a chain, exactly once. The arguments are those of `create`.

        Returns:
            The chain's stamp. Its ``acked`` says whether the chain is acked, by this call or an
            earlier one.

        Raises:
            TagNotFound: The chain does not exist.
            BufferLengthsUnequal: The chain's stamps have another length. Nothing was written.
        """
        return self._apply("stamp", tag, stamp, request_id, started=started, finished=finished)

    def delete(self, tag: str, *, force: bool = False) -> None:
        """Delete a chain or a tombstone. No queue may still contain requests for it.

        The tag can be used again at once, so such requests would count for its next chain.

        If the table has no index of deadlines, no sweeper publishes events. Then ``delete`` does
        not wait for an event.

        Args:
            tag: The chain's name.
            force: Delete an ended chain even if its event is not published.

        Raises:
            TagNotFound: The chain does not exist.
            StateError: The chain has ended, and the sweeper has not published its event yet.
        """
        self._remember(validate_tag(tag), None)
        retry = self.policy.start()
        while True:
            try:
                return self.store.delete(tag, force=force)
            except StateError:
                if not self._is_unwatched():
                    raise
                force = True
            except UnavailableError as unavailable:
                if not retry.again():
                    raise unavailable.cause from None
            except TagNotFound:
                if retry.attempt == 1:
                    raise
                return None  # an earlier attempt has deleted the chain, and its response was lost

    def _is_unwatched(self) -> bool:
        """Return whether no sweeper can watch the table, because it has no index of deadlines."""
        try:
            return not self.store.table.has_index()
        except (ClientError, UnavailableError):
            return False  # without this permission, assume that the stack has made the table

    def _apply(
        self, op: Any, tag: str, stamp: bytes, request_id: str | None, **counts: Any
    ) -> Stamp:
        """Apply a request together with the requests of other threads for the same chain."""
        validate_tag(tag)
        if isinstance(stamp, (bytes, bytearray, memoryview)) and not any(stamp):
            raise ZeroBufferNoOp
        id = uuid.uuid4().hex if request_id is None else request_id
        call = _Call(Request(op, tag, id, stamp, **counts), request_id is None, Future())
        must_exist = op == "stamp"
        with self._guard:
            queue = self._queues[tag, must_exist]
            queue.calls.append(call)
        try:
            with queue.lock:
                while not call.result.done():
                    self._write_queue(tag, must_exist, queue)
        finally:
            with self._guard:
                queue.calls.remove(call)
                if not queue.calls:
                    del self._queues[tag, must_exist]
        return call.result.result()

    def _write_queue(self, tag: str, must_exist: bool, queue: _Queue) -> None:
        with self._guard:
            calls = [call for call in queue.calls if not call.result.done()][:MAX_FOLD]
        try:
            self._write(tag, must_exist, calls)
        except BaseException as error:
            self._remember(tag, None)
            for call in calls:
                call.result.set_exception(error)
            raise

    def _write(self, tag: str, must_exist: bool, calls: list[_Call]) -> None:
        """Apply the requests of waiting calls, and set the result of each call."""
        with self._guard:
            since, last = self._cache.get(tag, (0, None)) if must_exist else (0, None)
            # Other writers may have changed the chain, so the cache is used for minutes only.
            if self._writer.now() - since > self._CACHE_MILLISECONDS:
                last = None
        # A create expects that no chain exists. A stamp reads the chain if it is not cached.
        cached = None if must_exist and last is None else CachedChain(last, verified=False)
        requests = [call.request for call in calls]
        fresh_ids = all(call.is_fresh for call in calls)
        work = Application(tag, requests, cached, must_exist=must_exist, fresh_ids=fresh_ids)
        chain, outcomes = self._writer.apply(work)
        assert chain is not None  # every outcome implies a chain
        self._remember(tag, chain)
        # Each call returns the stamp after its own request. Only the last request can have acked
        # the chain.
        stamp = chain.stamp
        for call, outcome in zip(reversed(calls), reversed(outcomes), strict=True):
            if outcome.error is not None:
                call.result.set_exception(outcome.error)
                continue
            acked = stamp is chain.stamp and chain.status == "acked"
            call.result.set_result(Stamp(stamp) if any(stamp) or acked else UnackedStamp(stamp))
            if outcome.kind == "applied" and call.request.stamp is not None:
                stamp = xor(stamp, call.request.stamp)

    def _remember(self, tag: str, chain: Chain | None) -> None:
        """Cache an unfinished chain, or remove an ended chain from the cache."""
        with self._guard:
            self._cache.pop(tag, None)
            if chain is not None and not chain.final:
                self._cache[tag] = (self._writer.now(), chain)
            if len(self._cache) > self._CACHE_SIZE:
                self._cache.popitem(last=False)
