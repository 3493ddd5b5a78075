"""Audits: compare a table with what was started, chain by chain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from xorack.core.errors import ArgumentError
from xorack.core.notebook import table
from xorack.spark.evidence import (
    Evidence,
    as_list,
    frames_in,
    names_run,
    open_output,
    open_written,
    per_chain,
    total,
)
from xorack.spark.finishing import header_of
from xorack.spark.folding import SUMS, Totals
from xorack.spark.messages import readable
from xorack.spark.missing.comparing import Comparison, caches, compare_chains, tells_chains
from xorack.spark.missing.found import MissingRows, find_missing
from xorack.spark.missing.telling import units_in_words
from xorack.spark.record import summary_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from xorack.spark.evidence import Output
    from xorack.spark.run import RowNames


@dataclass(frozen=True, eq=False, repr=False)
class Audit:
    """The comparison of a table with what was started; `TrackedRows.audit` returns it.

    Attributes:
        name: The name of the rows.
        started: The number of units that were started.
        found: The number of units in the table.
        chains: The number of chains by verdict: ``agree``; ``missing`` (the table has no unit of
            the chain), ``short``, ``surplus``, ``other`` (as many units, but different units) and
            ``unknown`` (not started). If the table lacks the chain columns, all chains ``agree`` or
            are ``undecided``.
        differing: A frame of the chains that do not agree: ``tag``, ``verdict``, and the numbers
            of units ``started`` and ``found``. None if they are undecided.
    """

    name: str
    started: int
    found: int
    chains: dict[str, int]
    differing: DataFrame | None
    _rows: RowNames = field(repr=False)
    _outputs: Sequence[DataFrame] = field(repr=False)
    _totals: Totals = field(repr=False)
    _apart: tuple[int, int] = field(repr=False)

    @property
    def agrees(self) -> bool:
        """True if the table has exactly the units that were started."""
        return set(self.chains) <= {"agree"} and self.found == self.started

    def __str__(self) -> str:
        missing, surplus = self._apart
        most, least = ("", "") if self.agrees else ("at most ", "at least ")
        head = most + units_in_words(self.started - missing, self.started, self.name, "the table")
        head += f", and {least}{surplus:,} too many" if surplus else ""
        counts = [f"{number:,} {verdict}" for verdict, number in sorted(self.chains.items())]
        return f"{head}; chains: {', '.join(counts)}" if counts else head

    def __repr__(self) -> str:
        return f"<Audit: {self}>"

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        missing, surplus = self._apart
        facts = {"started": self.started, "found": self.found}
        facts |= {f"chains: {verdict}": number for verdict, number in sorted(self.chains.items())}
        parts = (
            ("done", "in the table", self.started - missing),
            ("missing", "missing", missing),
            ("surplus", "too many", surplus),
        )
        return table(f"Audit of {self.name}", facts, parts)

    def missing_rows(
        self, source: Output, rows: DataFrame | Sequence[DataFrame] | None = None
    ) -> MissingRows:
        """Name the rows that were started and are not in the table, with a proof.

        Args:
            source: The output that `start` was given, or another frame with its rows.
            rows: The frame that was aggregated, with the column of `with_unit`, or a list of
                frames. By default the frame that `evidence` was last given in this process.

        Raises:
            ArgumentError: The source cannot be read.
            ColumnsError: A column of the unit is missing from the source.
        """
        frame = open_output(self._rows.tracking, source, "source")
        jobs = (
            self._rows.tracking.jobs.frames(self._rows.namespace)
            if rows is None
            else frames_in(rows)
        )
        problem = "the table or the source cannot be read"
        with readable("table", problem, self._rows.tracking.mask), caches() as keep:
            evidence = Evidence("read", total(self._rows, self._outputs), self._outputs)
            compared = Comparison(self._rows, evidence, self._totals, frame, jobs, keep)
            return find_missing(compared)


def audit(rows: RowNames, table: Output | Sequence[Output]) -> Audit:
    """Compare a table with the record of a start; see `TrackedRows.audit`."""
    outputs = [open_written(rows, output, "table") for output in as_list(table, "table")]
    if rows.batch_id is not None:
        raise ArgumentError("batch_id", rows.batch_id, "None, because only finish compares batches")
    header = header_of(rows)
    rows.record.check(header)
    summary = summary_in(header)
    with readable("table", "the table cannot be read", rows.tracking.mask):
        if not tells_chains(rows, outputs):
            totals = total(rows, outputs)
            verdict = "agree" if totals == summary.totals else "undecided"
            chains = {verdict: summary.chains} if summary.chains else {}
            more = summary.count - totals.count
            apart = max(more, 0), max(-more, 0)
            numbers = summary.count, totals.count, chains
            return Audit(rows.name, *numbers, None, rows, outputs, summary.totals, apart)
        started = rows.record.chains(header).select("tag", *SUMS)
        compared = compare_chains(started, per_chain(rows, outputs))
        sums = [F.count(F.lit(1)).alias("chains")]
        sums += [F.expr("bit_xor(xor) AS xor"), F.expr("sum(sum) AS sum")]
        for name, sign in (("missing", ""), ("surplus", "-")):
            sums.append(F.expr(f"sum(greatest({sign}missing_count, 0L)) AS {name}"))
        counts = compared.groupBy("verdict").agg(*sums).collect()
    apart = sum(row["missing"] for row in counts), sum(row["surplus"] for row in counts)
    chains, more = {row["verdict"]: row["chains"] for row in counts}, apart[0] - apart[1]
    differing = compared.where("verdict <> 'agree'").select("tag", "verdict", "started", "found")
    # If the output has units or evidence, the job may have changed the chain columns.
    if {*rows.chain} <= {*rows.unit} and any(names_run(rows, frame) for frame in outputs):
        if "unknown" in chains:
            apart = max(more, 0), max(-more, 0)
        parts = (Totals(row["xor"], 0, row["sum"]) for row in counts)
        if sum(parts, Totals(0, more)) == Totals():  # equal units are in equal chains
            chains, apart = ({"agree": summary.chains} if summary.chains else {}), (0, 0)
            differing = differing.limit(0)
    both = rows, outputs, summary.totals, apart
    return Audit(rows.name, summary.count, summary.count - more, chains, differing, *both)
