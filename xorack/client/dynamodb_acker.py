"""Chains in a DynamoDB table, by direct calls: `DynamoDBAcker`.

The table itself, which services drive, is `xorack.aws.dynamodb_store`: the functions do not load what is here.
"""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from typing import Any

from xorack.acker.chain_writer import CachedChain, apply_requests
from xorack.aws.dynamodb_store import DUE_INDEX, DUE_SHARDS, DynamoDBStore
from xorack.core.chain import MAX_FOLD, Chain
from xorack.core.clock import milliseconds
from xorack.core.errors import TagNotFound, ZeroBufferNoOp
from xorack.core.ports import DEFAULT_RETENTION_MS, Unavailable
from xorack.core.request import Request, validate_tag
from xorack.core.retry import Crowd, RetryPolicy
from xorack.core.stamp import Stamp, UnackedStamp, xor_bytes

__all__ = ["DUE_INDEX", "DUE_SHARDS", "DynamoDBAcker", "DynamoDBStore"]


class _Waiting:
    """A thread that waits for its request to be applied."""

    __slots__ = ("done", "error", "request", "stamp", "turn")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.turn = threading.Event()
        self.done = False
        self.stamp: Stamp | None = None
        self.error: BaseException | None = None


class DynamoDBAcker:
    """Chains in a DynamoDB table, by direct calls: the npm package ``xor-ack-dynamodb``.

    As there, but ``stamp`` retries by itself, is exact when a write landed and its answer was
    lost, and keeps a finished chain as a tombstone. Threads may share one: what several of them
    stamp into one chain while a write is under way goes together into the next.

    Example:
        >>> acker = DynamoDBAcker("my-table", partition_key="tagID")   # doctest: +SKIP
        >>> acker.create("database/file13", bytes.fromhex("29")).acked            # doctest: +SKIP
        False
        >>> acker.stamp("database/file13", bytes.fromhex("29")).acked             # doctest: +SKIP
        True
    """

    _REMEMBERED = 10_000
    _CROWD_LASTS_MS = 30_000

    def __init__(
        self,
        table_name: str,
        partition_key: str = "tag",
        client: Any = None,
        *,
        policy: RetryPolicy | None = None,
        retention: int = DEFAULT_RETENTION_MS,
    ) -> None:
        """Use a table.

        Args:
            table_name: The table.
            partition_key: The name of its partition key, a string attribute.
            client: A boto3 DynamoDB client; one of the default chain if None.
            policy: When to try again.
            retention: How long the tombstone of a finished chain is kept, milliseconds.

        Raises:
            InvalidRequest: No table name, or a partition key of a name that chains use themselves.
        """
        self.store = DynamoDBStore(table_name, partition_key, client, retention=retention)
        self.policy = policy or RetryPolicy()
        # What our last write left: a guess that saves the read before the next one, and that the
        # write's condition proves or refutes.
        self._last: OrderedDict[str, Chain] = OrderedDict()
        # Chains that others write too, as it turned out: how far apart tries have to be.
        self._crowds: OrderedDict[str, tuple[Crowd, int]] = OrderedDict()
        self._queues: dict[tuple[str, bool], list[_Waiting]] = {}
        self._guard = threading.Lock()

    def create(self, tag: str, stamp: bytes, *, started: int = 0, finished: int = 0) -> Stamp:
        """Create a chain.

        Args:
            tag: Its name, a non-empty string of at most 1,024 UTF-8 bytes.
            stamp: The root unit's stamp, any bytes but zeros.
            started: How many units this starts, where the senders count.
            finished: How many it finishes, likewise.

        Returns:
            The chain's stamp: this one, XORed with what came for the chain before its create.

        Raises:
            TagExists: The chain was created before.
            ZeroBufferNoOp: The stamp is all zeros.
            BufferLengthsUnequal: Stamps of another length came before the create.
            InvalidRequest: The tag, the stamp or a count is none.
            StaleLocalData: Others kept writing the chain until the retries were spent.
            botocore.exceptions.ClientError: What DynamoDB refused.
        """
        self._check(tag, stamp)
        request = Request("create", tag, uuid.uuid4().hex, stamp, started, finished)
        return self._apply(request, must_exist=False)

    def stamp(self, tag: str, stamp: bytes, *, started: int = 0, finished: int = 0) -> Stamp:
        """XOR a stamp into a chain, exactly once.

        Args:
            tag: The chain.
            stamp: As many bytes as its other stamps, not all zero.
            started: How many units this starts, where the senders count.
            finished: How many it finishes, likewise.

        Returns:
            The chain's stamp now. ``acked`` says whether the chain is acked, by this stamp or
            before; a chain that ended before is not changed any more.

        Raises:
            TagNotFound: There is no such chain.
            ZeroBufferNoOp: The stamp is all zeros.
            BufferLengthsUnequal: The chain's stamps have another length.
            InvalidRequest: The tag, the stamp or a count is none.
            StaleLocalData: Others kept writing the chain until the retries were spent; it was not
                applied.
            botocore.exceptions.ClientError: What DynamoDB refused.
        """
        self._check(tag, stamp)
        request = Request("stamp", tag, uuid.uuid4().hex, stamp, started, finished)
        return self._apply(request, must_exist=True)

    def delete(self, tag: str) -> None:
        """Delete a chain, also a tombstone.

        Args:
            tag: The chain.

        Raises:
            TagNotFound: There is no such chain.
            InvalidRequest: The tag is none.
            botocore.exceptions.ClientError: What DynamoDB refused.
        """
        validate_tag(tag)
        self._forget(tag)
        retry = self.policy.start()
        while True:
            try:
                return self.store.delete(tag)
            except Unavailable as unavailable:
                if not retry.again():
                    raise unavailable.cause from None
            except TagNotFound:
                # After a try whose answer was lost, gone is what was wanted.
                if retry.attempt > 1:
                    return None
                raise

    @staticmethod
    def _check(tag: str, stamp: bytes) -> None:
        validate_tag(tag)
        if isinstance(stamp, (bytes, bytearray, memoryview)) and not any(stamp):
            raise ZeroBufferNoOp

    def _apply(self, request: Request, *, must_exist: bool) -> Stamp:
        """Apply a request, together with those of other threads that wait for the same chain."""
        waiting = _Waiting(request)
        with self._guard:
            queue = self._queues.setdefault((request.tag, must_exist), [])
            queue.append(waiting)
            leads = len(queue) == 1
        if not leads:
            waiting.turn.wait()
        if not waiting.done:
            # Whoever is first in the queue writes for all who are in it by then, in one write.
            self._write_for_all(request.tag, must_exist)
        if waiting.error is not None:
            raise waiting.error
        assert waiting.stamp is not None  # done without an error
        return waiting.stamp

    def _write_for_all(self, tag: str, must_exist: bool) -> None:
        with self._guard:
            together = self._queues[tag, must_exist][:MAX_FOLD]
        try:
            self._write(tag, together, must_exist)
        except BaseException as error:
            for waiting in together:
                waiting.error = error
            raise
        finally:
            with self._guard:
                queue = self._queues[tag, must_exist]
                del queue[: len(together)]
                if queue:
                    queue[0].turn.set()  # leads the next
                else:
                    del self._queues[tag, must_exist]
            for waiting in together:
                waiting.done = True
                waiting.turn.set()

    def _write(self, tag: str, together: list[_Waiting], must_exist: bool) -> None:
        """Apply the requests of all who wait together; note for each what became of it."""
        with self._guard:
            last = self._last.get(tag)
            crowd, seen = self._crowds.pop(tag, (Crowd(), 0))
        if milliseconds() - seen > self._CROWD_LASTS_MS:
            crowd = Crowd()
        known: CachedChain | None = None
        if not must_exist:
            known = CachedChain(None, fresh=False)
        elif last is not None and not crowd.level:  # in a crowd what was ours is not the last
            known = CachedChain(last, fresh=False)
        try:
            applied = apply_requests(
                self.store,
                tag,
                [waiting.request for waiting in together],
                now=milliseconds,
                policy=self.policy,
                known=known,
                retention=self.store.retention,
                must_exist=must_exist,
                new_ids=True,
                crowd=crowd,
            )
        except Exception:
            self._forget(tag)
            self._note_crowd(tag, crowd)
            raise
        chain = applied.chain
        assert chain is not None  # applied, duplicate, late and refused all need one
        if last is not None and chain.version == last.version + 1:
            crowd.level = 0  # nobody else wrote meanwhile
        self._remember(tag, chain)
        self._note_crowd(tag, crowd)
        # Each is told what the chain was after its own stamp, as if they had come one by one; only
        # the last of them can have been the one that acked it.
        after = chain.stamp
        for waiting, outcome in zip(reversed(together), reversed(applied.outcomes), strict=True):
            if outcome.error is not None:
                waiting.error = outcome.error
                continue
            acked = after is chain.stamp and chain.status == "acked"
            waiting.stamp = Stamp(after) if any(after) or acked else UnackedStamp(after)
            if outcome.kind == "applied" and waiting.request.stamp is not None:
                after = xor_bytes(after, waiting.request.stamp)

    def _forget(self, tag: str) -> None:
        with self._guard:
            self._last.pop(tag, None)

    def _remember(self, tag: str, chain: Chain) -> None:
        with self._guard:
            self._last.pop(tag, None)
            if not chain.final:
                self._last[tag] = chain
            while len(self._last) > self._REMEMBERED:
                self._last.popitem(last=False)

    def _note_crowd(self, tag: str, crowd: Crowd) -> None:
        if not crowd.level:
            return
        with self._guard:
            self._crowds[tag] = (crowd, milliseconds())
            while len(self._crowds) > self._REMEMBERED:
                self._crowds.popitem(last=False)
