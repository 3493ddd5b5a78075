"""Chains in memory: `Acker`, the npm package ``ack`` for Python."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import MappingProxyType

from xorack.core.errors import BufferLengthsUnequal, TagExists, ZeroBufferNoOp
from xorack.core.request import validate_tag
from xorack.core.stamp import Stamp, check_bytes

try:
    from pyee.base import EventEmitter
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "pyee":
        raise
    message = "xorack.Acker needs pyee: install xorack with the extra memory"
    raise ModuleNotFoundError(message, name=error.name) from None


class Acker(EventEmitter):
    """Chains in memory, with events when they end.

    The events ``acked`` and ``failed`` contain the tag. Threads may share an acker. The thread that
    ends a chain removes it and then calls the listeners.

    Examples:
        >>> acker = Acker()
        >>> _ = acker.on("acked", lambda tag: print("all of", tag, "is processed"))
        >>> acker.add("database/file13", bytes.fromhex("29"))
        >>> acker.stamp("database/file13", bytes.fromhex("29"))
        all of database/file13 is processed
    """

    def __init__(self) -> None:
        super().__init__()
        # By tag: the length in bytes, and the XOR of the stamps.
        self._chains: dict[str, tuple[int, int]] = {}
        self._guard = threading.Lock()

    @property
    def storage(self) -> Mapping[str, Stamp]:
        """A read-only copy of the open chains: each tag with the XOR of its stamps so far."""
        with self._guard:
            chains = [*self._chains.items()]
        return MappingProxyType({tag: Stamp(xor.to_bytes(n, "little")) for tag, (n, xor) in chains})

    def add(self, tag: str, stamp: bytes) -> None:
        """Start a chain with the stamp of its root unit.

        Raises:
            TagExists: An open chain has this tag.
            ZeroBufferNoOp: The stamp is all zeros, as if the chain were already acked.
            ArgumentError: The tag is invalid, or the stamp is not bytes.
        """
        validate_tag(tag)
        stamp = bytes(check_bytes("stamp", stamp))
        if not any(stamp):
            raise ZeroBufferNoOp
        with self._guard:
            if tag in self._chains:
                raise TagExists(tag)
            self._chains[tag] = (len(stamp), int.from_bytes(stamp, "little"))

    def stamp(self, tag: str, stamp: bytes) -> None:
        """XOR a stamp into a chain. At zero, remove the chain and emit ``acked``.

        A stamp for an unknown tag is ignored.

        Raises:
            BufferLengthsUnequal: The chain's stamps have another length.
            ZeroBufferNoOp: The stamp is all zeros, so it would change nothing.
            ArgumentError: The stamp is not bytes.
        """
        stamp = bytes(check_bytes("stamp", stamp))
        if not any(stamp):
            raise ZeroBufferNoOp
        with self._guard:
            if tag not in self._chains:
                return
            length, total = self._chains[tag]
            if len(stamp) != length:
                raise BufferLengthsUnequal(len(stamp), length)
            total ^= int.from_bytes(stamp, "little")
            if total:
                self._chains[tag] = (length, total)
                return
            del self._chains[tag]
        self.emit("acked", tag)

    def fail(self, tag: str) -> None:
        """Remove the chain if it is open, and emit ``failed``, even for an unknown tag."""
        with self._guard:
            self._chains.pop(tag, None)
        self.emit("failed", tag)
