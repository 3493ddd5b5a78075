"""All errors that xorack raises.

`xorack.core.errors` defines the errors of chains and requests, because the core raises them. This
module adds the errors of Spark jobs and of programs on this machine. Every folder may import this
module, because it imports only the core.
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
    """Columns are missing from a frame, or their types or values are not suitable."""


class OutputDiffersError(StateError):
    """The output does not have the rows that were started.

    Attributes:
        started: The number of units that were started.
        written: The number of units in the output.
        chains: Some of the chains that differ, as ``tag (written of started)``. Empty if the
            chains that differ are not known.
        missing: The units of up to 100 missing rows, as values of the unit columns. Dates and times
            of years that Python does not have are texts.
        why: A sentence on what the missing rows have in common. Empty if it is not known.
        found: Details on the missing rows: `xorack.spark.MissingRows`. None if there are none.
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
    """A program on this machine failed: Java, Spark, the CDK or the embedded AWS."""


class NotRunningError(LocalError):
    """The embedded AWS does not run in the background."""
