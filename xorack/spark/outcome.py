"""What follows from a comparison: `Agrees`, `Lost` or `Differs`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from xorack.errors import OutputDiffersError
    from xorack.spark.notes import Notes


class Finished(NamedTuple):
    """Chains that finish: ``tag`` and the columns `SUMS`, their number and that of their units."""

    chains: DataFrame
    number: int
    units: int


@dataclass(frozen=True)
class Agrees:
    """The output has what was started, but for `tolerated` units that the run tolerates."""

    finished: Finished
    tolerated: int = 0
    notes: Notes | None = None


@dataclass(frozen=True)
class Lost:
    """The output has all that the job read, which lacks `missing` units that were started."""

    finished: Finished
    missing: int
    open_chains: int
    notes: Notes


@dataclass(frozen=True)
class Differs:
    """The output differs from what was started: these chains finish, and the others do not."""

    error: OutputDiffersError
    notes: Notes
    finished: Finished | None = None


Outcome = Agrees | Lost | Differs
