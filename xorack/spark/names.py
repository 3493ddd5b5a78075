"""The names of some rows in a run: of their chains, units, evidence and record."""

from __future__ import annotations

from dataclasses import dataclass

from xorack.spark.folding import Totals
from xorack.spark.record import Record, summary_in
from xorack.spark.run import Run

__all__ = ["Rows"]


@dataclass(frozen=True)
class Rows:
    """The rows of one name in one run.

    Attributes:
        tracking: The run.
        name: The name of the rows.
        chain: The columns that tell chains apart.
        unit: The columns that tell rows apart.
        label: The part of the tags between the run and the values of the chain columns.
        batch_id: The micro-batch of a stream, if any: see `batch`.
    """

    tracking: Run
    name: str
    chain: tuple[str, ...]
    unit: tuple[str, ...]
    label: str
    batch_id: int | None = None

    @property
    def prefix(self) -> str:
        """The beginning of the chains' tags."""
        return f"{self.tracking.run_id}/{self.label}/"

    @property
    def record(self) -> Record:
        """The record of what was started."""
        folder = self.tracking.folder(self.label)
        return Record(self.tracking.spark, folder, self.name, self.batch_id)

    def run_with(self, totals: Totals) -> str | None:
        """Return another run whose rows of this name add up to these totals, if there is one."""
        for line in Record.lines(self.tracking.spark, self.tracking.records, self.name):
            if summary_in(line).totals == totals and line["run"] != self.tracking.run_id:
                return str(line["run"])
        return None

    def started_types(self) -> list[tuple[str, str]]:
        """Return the unit columns at the start, with their types."""
        _, line = self.record.read()
        return list(zip(line["unit"], line["types"], strict=True)) if line else []

    @property
    def salt(self) -> str:
        """The first part of the unit ids: a stale output of another run is no evidence."""
        return f"{self.tracking.run_id}/{self.name}"

    @property
    def unit_name(self) -> str:
        """The column that `with_unit` adds."""
        return f"xorack_{self.name}"

    @property
    def evidence_names(self) -> tuple[str, str, str]:
        """The columns of `evidence`: the XOR, the count and the sum."""
        return f"{self.unit_name}_xor", f"{self.unit_name}_count", f"{self.unit_name}_sum"
