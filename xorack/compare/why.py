"""Why rows differ: what missing, extra and changed rows have in common, and all others do not."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from xorack.compare.report import KINDS, DiffReport
from xorack.core.explaining import Explanation, Row, Term, explain, sentence_of

__all__ = ["COLUMNS", "ROWS", "Looked", "explain_kinds"]

ROWS = 10_000
"""Rows of each kind that are looked at, and of all rows of each side."""
COLUMNS = 60
"""Columns of each side that are looked at."""


class Looked(NamedTuple):
    """Rows of a side that were looked at: their values by column.

    Attributes:
        kinds: Some rows of each kind that the side has.
        sample: Some of all rows.
        count: Counts all rows of the side that meet terms.
    """

    kinds: Mapping[str, Sequence[Row]]
    sample: Sequence[Row]
    count: Callable[[Sequence[Term]], int]


def explain_kinds(
    report: DiffReport, sides: Sequence[Looked], changed: Collection[str]
) -> dict[str, Explanation]:
    """Say what the rows of each kind have in common; kinds without a finding are left out.

    Changed rows are looked at on both sides: on the right, at the columns that changed, whose
    names there are given.
    """
    found = {}
    for kind in KINDS:
        of_kind = [
            _explain(report, side, looked, kind, changed)
            for side, looked in enumerate(sides)
            if looked.kinds.get(kind)
        ]
        # Of two that tell as much, the left has the cause, and the right its effect.
        of_kind.sort(key=lambda one: -round(one.findings[0].nats if one.findings else 0.0, 1))
        if findings := [finding for one in of_kind for finding in one.findings]:
            found[kind] = Explanation(of_kind[0].sentence, tuple(findings))
    return found


def _explain(
    report: DiffReport, side: int, looked: Looked, kind: str, changed: Collection[str]
) -> Explanation:
    some, sample, suffix = looked.kinds[kind], looked.sample, ""
    if side and kind == "changed":
        suffix = " on the right"
        some, sample = (
            [{f"{name}{suffix}": row.get(name) for name in changed} for row in rows]
            for rows in (some, sample)
        )
    count, total = getattr(report.counts, kind), (report.counts.left, report.counts.right)[side]
    found = explain(some, sample, count, total, f"{kind} row")
    if not found.findings or len(sample) == total:
        return found
    best = found.findings[0]
    terms = [(name.removesuffix(suffix), low, high) for name, low, high in best.terms]
    share = max(looked.count(terms), 1) / total
    findings = (replace(best, all=share, lift=best.missing / share), *found.findings[1:])
    return Explanation(sentence_of(findings, len(some), count, total, f"{kind} row"), findings)
