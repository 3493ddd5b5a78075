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
        chains: Some of the chains, as ``tag (written of started)``; empty if the output has no
            columns that tell chains apart.
        missing: The units of up to 100 missing rows: the values of the unit columns.
        why: A sentence on what the missing rows have in common; empty if that is not known.
        found: What tells more, in memory: `xorack.spark.MissingRows`; None without an output.
    """

    def __init__(
        self,
        name: str,
        started: int,
        written: int,
        chains: Sequence[str] = (),
        differing: str = "",
        report: Sequence[str] = (),
    ) -> None:
        count = f"{written:,} of {started:,} units of {name!r} are in the output"
        if written == started:
            count = f"the output has {written:,} units of {name!r}, but not those that were started"
        which = f"; chains: {', '.join(chains)}" if chains else ""
        stay = "the chains that differ" if differing else "all chains"
        first = f"{count}{differing}: {stay} stay open{which}"
        super().__init__("\n".join([first, *report]))
        self.started = started
        self.written = written
        self.chains = tuple(chains)
        self.missing: list[tuple[Any, ...]] = []
        self.why = ""
        self.found: Any = None


class LocalError(XorAckError):
    """A program on this machine failed: Java, Spark, the CDK, or the embedded AWS."""


class NotRunningError(LocalError):
    """No embedded AWS runs in the background."""
