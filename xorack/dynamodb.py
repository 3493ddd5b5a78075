"""Chains in a DynamoDB table: `DynamoDBStore`, which services drive, and the direct API.

One item a chain, by the partition key. Each write is one conditional ``UpdateItem`` that sets
what changed and leaves every other attribute of the item alone. An item that holds nothing but
key and ``stamp``, as xor-ack-dynamodb writes it, is an open chain.

Marks that were moved out of a chain are items of the same table, their key the chain's tag, a NUL
(which no tag has), when the chain was born and the mark's key.
"""

from __future__ import annotations

import threading
import uuid
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from xorack import aws
from xorack.chain import MARK_BYTES, MARK_KEY_BYTES, MAX_FOLD, Chain
from xorack.clock import milliseconds
from xorack.errors import InvalidRequest, TagNotFound, ZeroBufferNoOp
from xorack.exactly_once import DEFAULT_RETENTION_MS, Known, apply_requests
from xorack.messages import Request, validate_tag
from xorack.ports import Conflict, Unavailable
from xorack.retry import Crowd, RetryPolicy
from xorack.stamps import Stamp, UnackedStamp, xor_bytes

__all__ = ["DUE_INDEX", "DUE_SHARDS", "DynamoDBAcker", "DynamoDBStore"]

DUE_INDEX = "due"
"""Sparse index on what is to be looked at, and when: ``due_shard`` and ``due_at``."""
DUE_SHARDS = 8
"""Partitions of that index: each takes a thousand writes a second."""

_READ_BATCH = 100
_WRITE_BATCH = 25
_UNPROCESSED_ROUNDS = 4

_NUMBERS = (
    "started",
    "finished",
    "rev",
    "born",
    "created_at",
    "touched_at",
    "ended_at",
    "deadline",
    "idle_timeout",
    "due_at",
    "spilled",
)
_STRINGS = ("status", "detail", "failing", "reason")
_BINARIES = ("stamp", "marks")
_FLAGS = ("owed", "extended")
_DERIVED = ("due_shard", "expires_at")
_ATTRIBUTES = frozenset((*_NUMBERS, *_STRINGS, *_BINARIES, *_FLAGS, *_DERIVED, "mark"))

_NO_INDEX = ("ValidationException", "ResourceNotFoundException")

Item = dict[str, dict[str, Any]]


def due_shard(tag: str) -> int:
    """The partition of the index that holds a chain: 0 to ``DUE_SHARDS`` - 1."""
    return zlib.crc32(tag.encode()) % DUE_SHARDS


class DynamoDBStore:
    """A `xorack.ports.ChainStore` over a DynamoDB table."""

    def __init__(
        self,
        table_name: str,
        partition_key: str = "tag",
        client: Any = None,
        *,
        retention: int = DEFAULT_RETENTION_MS,
    ) -> None:
        """Use a table.

        Args:
            table_name: The table.
            partition_key: The name of its partition key, a string attribute.
            client: A boto3 DynamoDB client; one of the default chain if None.
            retention: How long the tombstone of a finished chain is kept, milliseconds.

        Raises:
            InvalidRequest: No table name, or a partition key of a name that chains use themselves.
        """
        if not isinstance(table_name, str) or not table_name:
            raise InvalidRequest("table_name", table_name, "the name of a DynamoDB table")
        if not isinstance(partition_key, str) or not partition_key:
            raise InvalidRequest("partition_key", partition_key, "the name of the partition key")
        if partition_key in _ATTRIBUTES:
            raise InvalidRequest(
                "partition_key", partition_key, "a name that is no attribute of a chain"
            )
        self.table_name = table_name
        self.partition_key = partition_key
        self.client = aws.client("dynamodb") if client is None else client
        self.retention = retention

    # -- items ---------------------------------------------------------------------------------

    def to_item(self, chain: Chain) -> Item:
        """A chain as an item, in DynamoDB's JSON; what is at its default is left out."""
        item: Item = {self.partition_key: {"S": chain.tag}}
        for name in _STRINGS:
            if (text := getattr(chain, name)) is not None:
                item[name] = {"S": text}
        for name in _BINARIES:
            if data := getattr(chain, name):
                item[name] = {"B": data}
        for name in _NUMBERS:
            if (number := getattr(chain, name)) is not None:
                item[name] = {"N": str(number)}
        for name in _FLAGS:
            if getattr(chain, name):
                item[name] = {"N": "1"}
        if chain.due_at is not None:
            item["due_shard"] = {"N": str(due_shard(chain.tag))}
        if chain.ended_at is not None:
            # DynamoDB's TTL counts seconds. Only finished chains have one: an open chain that
            # disappeared would be a loss.
            item["expires_at"] = {"N": str((chain.ended_at + self.retention) // 1000 + 1)}
        return item

    def from_item(self, item: Item) -> Chain:
        """Read a chain out of an item, of ours or of xor-ack-dynamodb."""
        fields: dict[str, Any] = {"tag": item[self.partition_key]["S"], "status": "open"}
        for name in _STRINGS:
            if name in item:
                fields[name] = item[name]["S"]
        for name in _BINARIES:
            if name in item:
                fields[name] = bytes(item[name]["B"])
        for name in _NUMBERS:
            if name in item:
                fields[name] = int(item[name]["N"])
        for name in _FLAGS:
            fields[name] = name in item
        return Chain(**fields)

    def _key(self, value: str) -> Item:
        return {self.partition_key: {"S": value}}

    def _mark_item_keys(self, chain: Chain, keys: Sequence[bytes]) -> list[str]:
        before = f"{chain.tag}\0{chain.born}\0"
        return [before + key.hex() for key in keys]

    # -- the port ------------------------------------------------------------------------------

    def read(self, tags: Sequence[str]) -> dict[str, Chain]:
        """See `xorack.ports.ChainStore.read`."""
        return {
            chain.tag: chain
            for item in self._batch_get(list(tags))
            for chain in (self.from_item(item),)
        }

    def write(self, before: Chain | None, after: Chain) -> None:
        """See `xorack.ports.ChainStore.write`."""
        item = self.to_item(after)
        old = {} if before is None else self.to_item(before)
        names = {"#key": self.partition_key}
        values: dict[str, dict[str, Any]] = {}
        sets, removes = [], []
        for name, value in item.items():
            if name != self.partition_key and old.get(name) != value:
                names[f"#{name}"] = name
                values[f":{name}"] = value
                sets.append(f"#{name} = :{name}")
        for name in old:
            if name not in item:
                names[f"#{name}"] = name
                removes.append(f"#{name}")
        if before is None:
            condition = "attribute_not_exists(#key)"
        else:
            condition = "attribute_exists(#key)"
            names["#rev"] = "rev"
            if before.rev:
                condition += " AND #rev = :old_rev"
                values[":old_rev"] = {"N": str(before.rev)}
            else:
                condition += " AND attribute_not_exists(#rev)"
            if before.stamp:
                # Beside rev, as xor-ack-dynamodb changes the stamp and knows nothing of rev.
                condition += " AND #stamp = :old_stamp"
                names["#stamp"] = "stamp"
                values[":old_stamp"] = {"B": before.stamp}
        update = "SET " + ", ".join(sets)
        if removes:
            update += " REMOVE " + ", ".join(removes)
        try:
            self.client.update_item(
                TableName=self.table_name,
                Key=self._key(after.tag),
                UpdateExpression=update,
                ConditionExpression=condition,
                ExpressionAttributeNames=names,
                ExpressionAttributeValues=values,
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except ClientError as error:
            if aws.error_code(error) != "ConditionalCheckFailedException":
                raise _sorted_out(error) from error
            # boto3 tried again by itself: then the write it lost the answer of may have landed.
            retried = error.response.get("ResponseMetadata", {}).get("RetryAttempts", 0) > 0
            item = error.response.get("Item")
            # Without one: nothing there; or an engine that does not send it. A read tells.
            there = self.from_item(item) if item else self.read([after.tag]).get(after.tag)
            raise Conflict(there, perhaps_ours=retried) from error
        except BotoCoreError as error:
            raise _sorted_out(error) from error

    def look_up_marks(self, chain: Chain, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """See `xorack.ports.ChainStore.look_up_marks`."""
        marks = [
            bytes(item["mark"]["B"]) for item in self._batch_get(self._mark_item_keys(chain, keys))
        ]
        return {mark[:MARK_KEY_BYTES]: mark[MARK_KEY_BYTES:] for mark in marks}

    def keep_marks(self, chain: Chain, marks: bytes, until: int) -> None:
        """See `xorack.ports.ChainStore.keep_marks`."""
        held = [marks[at : at + MARK_BYTES] for at in range(0, len(marks), MARK_BYTES)]
        keys = self._mark_item_keys(chain, [mark[:MARK_KEY_BYTES] for mark in held])
        expires_at = {"N": str(until // 1000 + 1)}
        for at in range(0, len(held), _WRITE_BATCH):
            puts = [
                {
                    "PutRequest": {
                        "Item": {**self._key(key), "mark": {"B": mark}, "expires_at": expires_at}
                    }
                }
                for key, mark in zip(
                    keys[at : at + _WRITE_BATCH], held[at : at + _WRITE_BATCH], strict=True
                )
            ]
            left: dict[str, Any] | None = {self.table_name: puts}
            for _ in range(_UNPROCESSED_ROUNDS):
                left = self._call("batch_write_item", RequestItems=left).get("UnprocessedItems")
                if not left:
                    break
            else:
                raise Unavailable(_unprocessed("BatchWriteItem", len(held) - at))

    # -- for the sweeper and for people --------------------------------------------------------

    def due_pages(self, now: int) -> Iterator[list[str]]:
        """The chains whose time to be looked at has come: to be ended, or their event owed.

        Reads a sparse index, so chains that are not due cost nothing. A table that has no such
        index (made by hand, or for xor-ack-dynamodb) is scanned instead.

        Args:
            now: Milliseconds since 1970.

        Yields:
            Tags, at most 100 at a time. The index lags behind the table: look at the chains.

        Raises:
            Unavailable: Try again.
        """
        # Another shard first each minute: none waits for the others for ever.
        first = now // 60_000
        values = {":now": {"N": str(now)}}
        try:
            for offset in range(DUE_SHARDS):
                shard = (first + offset) % DUE_SHARDS
                yield from self._pages(
                    "query",
                    IndexName=DUE_INDEX,
                    KeyConditionExpression="#shard = :shard AND #at <= :now",
                    ExpressionAttributeNames={"#shard": "due_shard", "#at": "due_at"},
                    ExpressionAttributeValues={":shard": {"N": str(shard)}, **values},
                    Limit=_READ_BATCH,
                )
        except ClientError as error:
            message = error.response.get("Error", {}).get("Message", "")
            if aws.error_code(error) not in _NO_INDEX or "index" not in message:
                raise
            yield from self._pages(
                "scan",
                FilterExpression="#at <= :now",
                ProjectionExpression="#key",
                ExpressionAttributeNames={"#at": "due_at", "#key": self.partition_key},
                ExpressionAttributeValues=values,
            )

    def first_due(self, limit: int) -> tuple[list[str], bool]:
        """The chains that are due first, by the sparse index: those that nobody is done with.

        One query a shard, of as many keys as are asked for; since each shard is in order, the first
        of all are among them.

        Args:
            limit: How many at most, at least 1.

        Returns:
            Tags, the one that is due first first; and whether there are more. The index lags behind
            the table: look at the chains.

        Raises:
            Unavailable: Try again.
        """
        due: list[tuple[int, str]] = []
        more = False
        for shard in range(DUE_SHARDS):
            page = self._call(
                "query",
                IndexName=DUE_INDEX,
                KeyConditionExpression="#shard = :shard",
                ExpressionAttributeNames={"#shard": "due_shard"},
                ExpressionAttributeValues={":shard": {"N": str(shard)}},
                Limit=limit,
            )
            due += [(int(i["due_at"]["N"]), i[self.partition_key]["S"]) for i in page["Items"]]
            more = more or "LastEvaluatedKey" in page
        due.sort()
        return [tag for _, tag in due[:limit]], more or len(due) > limit

    def _pages(self, operation: str, **arguments: Any) -> Iterator[list[str]]:
        more: dict[str, Any] = {}
        while True:
            page = self._call(operation, **arguments, **more)
            if tags := [item[self.partition_key]["S"] for item in page["Items"]]:
                yield tags
            if "LastEvaluatedKey" not in page:
                return
            more = {"ExclusiveStartKey": page["LastEvaluatedKey"]}

    def scan(self) -> Iterator[Chain]:
        """All chains, in no order, page by page: reads the whole table, eventually consistent."""
        more: dict[str, Any] = {}
        while True:
            page = self._call(
                "scan",
                FilterExpression="attribute_not_exists(#mark)",
                ExpressionAttributeNames={"#mark": "mark"},
                **more,
            )
            yield from map(self.from_item, page["Items"])
            if "LastEvaluatedKey" not in page:
                return
            more = {"ExclusiveStartKey": page["LastEvaluatedKey"]}

    def delete(self, tag: str) -> None:
        """Delete a chain.

        Raises:
            TagNotFound: There is none.
        """
        try:
            self._call(
                "delete_item",
                Key=self._key(tag),
                ConditionExpression="attribute_exists(#key)",
                ExpressionAttributeNames={"#key": self.partition_key},
            )
        except ClientError as error:
            if aws.error_code(error) != "ConditionalCheckFailedException":
                raise
            raise TagNotFound(tag) from error

    # -- calls ---------------------------------------------------------------------------------

    def _call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        if "RequestItems" not in arguments:
            arguments["TableName"] = self.table_name
        try:
            answer: dict[str, Any] = getattr(self.client, operation)(**arguments)
        except (ClientError, BotoCoreError) as error:
            raise _sorted_out(error) from error
        return answer

    def _batch_get(self, keys: list[str]) -> Iterator[Item]:
        """Items by key, read consistently."""
        if len(keys) == 1:
            answer = self._call("get_item", Key=self._key(keys[0]), ConsistentRead=True)
            if item := answer.get("Item"):
                yield item
            return
        for at in range(0, len(keys), _READ_BATCH):
            wanted = [self._key(key) for key in keys[at : at + _READ_BATCH]]
            rounds = 0
            while wanted:
                asked = {self.table_name: {"Keys": wanted, "ConsistentRead": True}}
                answer = self._call("batch_get_item", RequestItems=asked)
                yield from answer["Responses"].get(self.table_name, [])
                left = answer.get("UnprocessedKeys", {}).get(self.table_name, {})
                still = left.get("Keys", [])
                # An answer stops at 16 MB: as long as some come, go on.
                rounds = rounds + 1 if len(still) == len(wanted) else 0
                if rounds >= _UNPROCESSED_ROUNDS:
                    raise Unavailable(_unprocessed("BatchGetItem", len(still)))
                wanted = still


def _sorted_out(error: Exception) -> Exception:
    """What a failed call raises: whether another try may help."""
    return Unavailable(error) if aws.is_transient(error) else error


def _unprocessed(operation: str, count: int) -> ClientError:
    return ClientError(
        {
            "Error": {
                "Code": "ProvisionedThroughputExceededException",
                "Message": f"{count} keys were not processed",
            }
        },
        operation,
    )


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
        known: Known | None = None
        if not must_exist:
            known = Known(None, fresh=False)
        elif last is not None and not crowd.level:  # in a crowd what was ours is not the last
            known = Known(last, fresh=False)
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
        if last is not None and chain.rev == last.rev + 1:
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
