"""The errors of programs on this machine; `xorack.errors` has them for users."""

from __future__ import annotations

from xorack.core.errors import XorAckError

__all__ = ["LocalError", "NotRunningError"]


class LocalError(XorAckError):
    """A program on this machine failed: Java, Spark, the CDK, or the embedded AWS."""


class NotRunningError(LocalError):
    """No embedded AWS runs in the background."""
