"""The outcome of a comparison: `Agrees`, `Lost` or `Differs`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from xorack.errors import OutputDiffersError
    from xorack.spark.notes import Notes


class Finished(NamedTuple):
    """Chains to finish: ``tag`` and the columns `SUMS`, their number, and the number of units."""

    chains: DataFrame
    number: int
    units: int


@dataclass(frozen=True)
class Agrees:
    """The output has all started units except `tolerated` units, which the run tolerates."""

    finished: Finished
    tolerated: int = 0
    notes: Notes | None = None


@dataclass(frozen=True)
class Lost:
    """The output has all rows that the job read, but its input lost `missing` started units.

    If `is_at_most`, fewer than `open_chains` may be open; see `Record.may_have_sent`.
    """

    finished: Finished
    missing: int
    open_chains: int
    notes: Notes
    is_at_most: bool = False


@dataclass(frozen=True)
class Differs:
    """The output differs from what was started. The chains in `finished` agree, and finish."""

    error: OutputDiffersError
    notes: Notes
    finished: Finished | None = None


Outcome = Agrees | Lost | Differs
