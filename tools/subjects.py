"""Check the subjects of new commits: `python -m tools.subjects`.

A subject says in the imperative what the commit changes. A program cannot distinguish a verb from a
noun, but it finds usual mistakes: "Added", "Adding", "Adds", "Tests: fewer", "The end of rows".
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_COLUMNS = 72
NO_VERB = re.compile(
    "a|all|also|an|and|another|any|code|docs|each|for|from|in|is|it|its|more|new|no|not|now|of|on|one|"
    "only|our|some|that|the|this|to|we|what|when|where|with|.+ed|.+ing|.+s"
)
"""Words that begin a description instead of a command."""
VERB = re.compile(".+ss|bring|embed|exceed|feed|focus|heed|need|proceed|seed|shed|speed")
"""Verbs that end in -ed, -ing or -s but are correct."""


def problem_of(subject: str) -> str | None:
    """Return what is wrong with a commit's subject, or None."""
    first = re.split(r"[^\w'-]", subject, maxsplit=1)[0]
    verb = first.lower()
    if len(subject) > MAX_COLUMNS:
        return f"has {len(subject)} columns: use at most {MAX_COLUMNS}"
    if re.match(r"\S+: ", subject):
        return "begins with a topic: begin with a verb, such as 'Add', and end without the topic"
    if not first[:1].isupper():
        return "does not begin with a capital letter"
    if NO_VERB.fullmatch(verb) and not VERB.fullmatch(verb):
        return f"begins with {first!r}: begin with a verb in the imperative, such as 'Add'"
    if " " not in subject or subject.endswith("."):
        return "is one word, or ends with a full stop: write what the commit changes, without one"
    return None


def new_subjects(root: Path, base: str) -> list[tuple[str, str]]:
    """Return the short ids and subjects of the commits after `base`.

    Without a repository, or in a shallow clone that does not reach back to `base`, there are none.
    """
    log = ("git", "log", "--no-merges", "--format=%h %s", f"{base}..HEAD")
    try:
        done = subprocess.run(log, cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return []
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in done.stdout.splitlines()]


def main() -> int:
    base = Path(__file__).with_name("subjects-after").read_text(encoding="utf-8").strip()
    problems = [
        f"error: the subject of {commit} {problem}: {subject}"
        for commit, subject in new_subjects(ROOT, base)
        if (problem := problem_of(subject))
    ]
    print("\n".join(problems), end="\n" if problems else "", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
