"""The table of findings that stand, and its comparison with the judges' findings."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

from tools.judges.stacks import Judged
from tools.venv import ROOT

PAGE = ROOT / "docs" / "security.md"
HEAD = "| rule | on | gone with | why it stands |"


class Finding(NamedTuple):
    """A rule that a resource violates, to a judge."""

    judge: str
    rule: str
    resource: str


@dataclass(frozen=True)
class Row:
    """A row of the table: rules that judges find violated, and that stay so.

    Attributes:
        rules: Pairs of judge and rule.
        resources: Patterns of the resources' names.
        cures: Settings with which nothing of this is found.
        reason: The answer to the finding.
    """

    rules: frozenset[tuple[str, str]]
    resources: tuple[str, ...]
    cures: frozenset[str]
    reason: str

    def covers(self, finding: Finding) -> bool:
        """Return True if the row answers a finding."""
        return (finding.judge, finding.rule) in self.rules and any(
            fnmatchcase(finding.resource, pattern) for pattern in self.resources
        )


def read_table(text: str) -> list[Row]:
    """Read the rows below `HEAD`.

    Raises:
        ValueError: There is no such table, or a row is malformed.
    """
    _, found, below = text.partition(f"{HEAD}\n")
    if not found:
        raise ValueError(f"no table begins with {HEAD}")
    rows = []
    for line in below.splitlines()[1:]:
        if not line.startswith("|"):
            break
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        rules = frozenset(
            (judge.strip(), rule)
            for part in cells[0].split(";")
            for judge in part.partition("`")[0].split(",")
            for rule in re.findall("`([^`]+)`", part)
        )
        resources = tuple(re.findall("`([^`]+)`", cells[1])) if len(cells) == 4 else ()
        if not (rules and resources and cells[3].strip("?")):
            raise ValueError(f"expected rules, resources, settings and a reason: {line}")
        cures = frozenset(re.findall("`([^`]+)`", cells[2]))
        rows.append(Row(rules, resources, cures, cells[3]))
    return rows


def unanswered(findings: Iterable[Finding], rows: Iterable[Row]) -> list[str]:
    """Return a row, yet without a reason, for each rule whose findings have none."""
    rows = list(rows)
    left = (finding for finding in findings if not any(row.covers(finding) for row in rows))
    return [f"{cells} | - | ? |" for cells in _grouped(left)]


def _grouped(findings: Iterable[Finding]) -> list[str]:
    """Return the first two cells of a row for each rule."""
    resources: dict[tuple[str, str], set[str]] = defaultdict(set)
    for judge, rule, resource in findings:
        resources[judge, rule].add(f"`{resource}`")
    return [
        f"| {judge} `{rule}` | {', '.join(sorted(names))}"
        for (judge, rule), names in sorted(resources.items())
    ]


def outdated(
    found: Mapping[Judged, Collection[Finding]], rows: Iterable[Row], judges: Set[str]
) -> list[str]:
    """Return the parts of rows that these judges do not find, or find in spite of a setting."""
    lines = []
    every = {finding for findings in found.values() for finding in findings}
    for row in rows:
        hits = {finding for finding in every if row.covers(finding)}
        lines += [
            f"no longer found: {judge} `{rule}` on {', '.join(row.resources)}"
            for judge, rule in sorted(row.rules - {finding[:2] for finding in hits})
            if judge in judges
        ]
        if judges >= {judge for judge, _ in row.rules}:
            lines += [
                f"no longer found: {sorted(row.rules)} on `{pattern}`"
                for pattern in row.resources
                if not any(fnmatchcase(finding.resource, pattern) for finding in hits)
            ]
        uncured = {
            finding
            for judged, findings in found.items()
            if row.cures & judged.given
            for finding in findings
            if row.covers(finding)
        }
        names = ", ".join(sorted(row.cures))
        lines += [f"not gone with {names}: {cells} |" for cells in _grouped(uncured)]
    return lines
