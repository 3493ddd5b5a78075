"""The errors that xorack raises: one tree, split by whose fault it is.

The errors of chains and requests are in `xorack.core.errors`, because the core raises them. This
module has the errors of Spark jobs and of programs on this machine. Every room may import it: it
imports only the core.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xorack.core import errors as core
from xorack.core.errors import *  # noqa: F403
from xorack.core.errors import StateError, XorAckError

__all__ = [  # noqa: PLE0604
    *core.__all__,
    "ColumnsError",
    "LocalError",
    "NotRunningError",
    "OutputDiffersError",
]


class ColumnsError(XorAckError, ValueError):
    """Columns are missing from a frame, or their types or values are unsuitable."""


class OutputDiffersError(StateError):
    """What was written is not what was started.

    Attributes:
        started: Units that were started.
        written: Units that the output has.
        chains: Some of the chains that differ, as ``tag (written of started)``; empty if nothing
            tells which ones do.
        missing: The units of up to 100 missing rows: the values of the unit columns.
        why: A sentence on what the missing rows have in common; empty if that is not known.
        found: More about the missing rows: `xorack.spark.MissingRows`; None if nothing is known.
    """

    def __init__(
        self,
        message: str,
        started: int,
        written: int,
        chains: Sequence[str] = (),
        missing: Sequence[tuple[Any, ...]] = (),
        why: str = "",
        found: Any = None,
    ) -> None:
        super().__init__(message)
        self.started = started
        self.written = written
        self.chains = tuple(chains)
        self.missing = [*missing]
        self.why = why
        self.found = found


class LocalError(XorAckError):
    """A program on this machine failed: Java, Spark, the CDK, or the embedded AWS."""


class NotRunningError(LocalError):
    """No embedded AWS runs in the background."""
