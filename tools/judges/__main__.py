"""Compare the findings of all judges with the table; see the package."""

import sys
from collections.abc import Sequence

from tools.judges.inside import INSIDE, inside_findings, unacknowledged
from tools.judges.outside import OUTSIDE, JudgeError, outside_findings
from tools.judges.table import PAGE, outdated, read_table, unanswered


def main() -> int:
    """Print rows that are missing and rows that are outdated; return 1 if there are any."""
    stacks = unacknowledged()
    try:
        rows = read_table(PAGE.read_text(encoding="utf-8"))
        outside = outside_findings(stacks)
    except (JudgeError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    found = {judged: outside[judged] | inside_findings(judged) for judged in stacks}
    every = [finding for findings in found.values() for finding in findings]
    missing = unanswered(every, rows)
    stale = outdated(found, rows, {*INSIDE, *OUTSIDE})
    _print(f"Rules that need a row in {PAGE.name}:", missing)
    _print(f"Rows of {PAGE.name} that need a change:", stale)
    if not (missing or stale):
        print(f"{len(set(every))} findings in {len(stacks)} stacks, each with an answer")
    return 1 if missing or stale else 0


def _print(title: str, lines: Sequence[str]) -> None:
    if lines:
        print(title, *lines, sep="\n")


if __name__ == "__main__":
    sys.exit(main())
