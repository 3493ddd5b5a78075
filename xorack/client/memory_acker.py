"""Chains in memory: the seed's `Acker`, and `MemoryStore`, which keeps whole chains.

`MemoryStore` behaves as the DynamoDB table does towards one caller after the other; it is what
tests and simulations drive the services with.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

from pyee.base import EventEmitter

from xorack.core.errors import BufferLengthsUnequal, TagExists, ZeroBufferNoOp
from xorack.core.request import validate_tag
from xorack.core.stamp import Stamp, xor_end_to_end

__all__ = ["Acker"]

_number = int.from_bytes


class _Left(Mapping[str, Stamp]):
    """What is left of each open chain, as stamps.

    The acker itself keeps integers: XOR and the look for zero are one operation each on them, and
    a stamp is read once and never written.
    """

    def __init__(self, chains: dict[str, list[int]]) -> None:
        self._chains = chains

    def __getitem__(self, tag: str) -> Stamp:
        length, left = self._chains[tag]
        return Stamp(left.to_bytes(length, "little"))

    def __iter__(self) -> Iterator[str]:
        return iter(self._chains)

    def __len__(self) -> int:
        return len(self._chains)

    def __repr__(self) -> str:
        return repr(dict(self))


class Acker(EventEmitter):
    """Chains in memory, and events when they end: the npm package ``ack``, in Python.

    The events ``acked`` and ``failed`` carry the tag, and come once the chain is gone from the
    acker. For threads that share one acker: each call is atomic; listeners are called by the
    thread whose call ended the chain, outside the lock.

    Attributes:
        storage: What is left of each open chain, by tag; to be read only.

    Example:
        >>> acker = Acker()
        >>> _ = acker.on("acked", lambda tag: print("all of", tag, "is processed"))
        >>> acker.add("database/file13", bytes.fromhex("29"))
        >>> acker.stamp("database/file13", bytes.fromhex("29"))
        all of database/file13 is processed
    """

    def __init__(self) -> None:
        super().__init__()
        self._chains: dict[str, list[int]] = {}  # tag -> [bytes, what is left]
        self.storage: Mapping[str, Stamp] = _Left(self._chains)
        self._guard = threading.Lock()

    def add(self, tag: str, stamp: bytes) -> None:
        """Start a chain.

        Args:
            tag: Its name, a non-empty string.
            stamp: The root unit's stamp, any bytes but zeros.

        Raises:
            TagExists: There is an open chain of this tag.
            ZeroBufferNoOp: The stamp is all zeros: the chain could never be told from an acked one.
            InvalidRequest: The tag is no tag.
        """
        validate_tag(tag)
        if not any(stamp):
            raise ZeroBufferNoOp
        with self._guard:
            if tag in self._chains:
                raise TagExists(tag)
            self._chains[tag] = [len(stamp), int.from_bytes(stamp, "little")]

    def stamp(self, tag: str, stamp: bytes) -> None:
        """XOR a stamp in; at zero the chain is removed and ``acked`` is emitted.

        A tag that is not there is no error, as in the seed: it may have ended before.

        Args:
            tag: The chain.
            stamp: As many bytes as its other stamps.

        Raises:
            BufferLengthsUnequal: The chain's stamps have another length.
        """
        # By hand: `with` takes longer for the lock than everything else here together.
        guard = self._guard
        guard.acquire()
        try:
            chain = self._chains.get(tag)
            if chain is None:
                return
            if len(stamp) != chain[0]:
                raise BufferLengthsUnequal(len(stamp), chain[0])
            left = chain[1] ^ _number(stamp, "little")
            if left:
                chain[1] = left
                return
            del self._chains[tag]
        finally:
            guard.release()
        self.emit("acked", tag)

    def stamp_many(self, tag: str, stamps: bytes) -> None:
        """XOR many stamps in at once, as if they were one: the chain is looked at after the last.

        Many times quicker than one by one, most so where numpy is installed.

        Args:
            tag: The chain.
            stamps: Any number of stamps, end to end, each of as many bytes as the chain's others.

        Raises:
            BufferLengthsUnequal: They are no whole number of the chain's stamps; none is applied.
        """
        with self._guard:
            chain = self._chains.get(tag)
            if chain is None:
                return
            left = chain[1] ^ xor_end_to_end(stamps, chain[0])
            if left:
                chain[1] = left
                return
            del self._chains[tag]
        self.emit("acked", tag)

    def fail(self, tag: str) -> None:
        """Remove a chain and emit ``failed``.

        Args:
            tag: The chain. One that is not there is no error and no event: it ended before.
        """
        with self._guard:
            if self._chains.pop(tag, None) is None:
                return
        self.emit("failed", tag)
