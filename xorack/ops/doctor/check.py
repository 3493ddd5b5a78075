"""A check of a deployed acker, as a value: its name, its verdict, the finding, and advice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple

Verdict = Literal["ok", "failed", "not checked"]
Facts = Mapping[str, Any]
"""AWS's answers by name. A value that could not be read is an `Unread`."""


class Unread(NamedTuple):
    """A value that AWS did not return, and the reason."""

    kind: Literal["absent", "denied", "unsupported", "unknown"]
    reason: str


class Check(NamedTuple):
    """The result of a check. If it failed, ``advice`` says what to do."""

    name: str
    verdict: Verdict
    finding: str
    advice: str = ""


class Examination(NamedTuple):
    """A check that follows from facts.

    ``judge`` is a pure function. It returns a summary for a healthy stack, and the possible
    problems, each with whether it exists.
    """

    name: str
    reads: tuple[str, ...]
    advice: str
    judge: Callable[[Facts], tuple[str, Mapping[str, object]]]


def conclude(name: str, summary: str, problems: Mapping[str, object], advice: str) -> Check:
    """Return a failed check if a problem exists, or else a passed check with the summary."""
    findings = [problem for problem, exists in problems.items() if exists]
    if findings:
        return Check(name, "failed", "; ".join(findings), advice)
    return Check(name, "ok", summary)


def examine(facts: Facts, examinations: Iterable[Examination]) -> list[Check]:
    """Make all checks. If a resource is missing, only the first check that reads it fails."""
    checks: list[Check] = []
    reported: set[str] = set()
    for name, reads, advice, judge in examinations:
        unread = [reading for reading in reads if isinstance(facts[reading], Unread)]
        if not unread:
            checks.append(conclude(name, *judge(facts), advice))
            continue
        fact = facts[unread[0]]
        failed = fact.kind == "absent" and not reported & {*unread}
        reported |= {*unread}
        checks.append(Check(name, "failed" if failed else "not checked", fact.reason, advice))
    return checks
