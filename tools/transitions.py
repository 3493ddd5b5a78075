"""Write the tables of `xorack.core.transitions` into docs/protocol.md.

Run it as ``python -m tools.transitions``. A test holds the page to the code.
"""

from __future__ import annotations

from pathlib import Path

from xorack.core.transitions import TRANSITIONS, VERDICTS

PAGE = Path(__file__).parents[1] / "docs" / "protocol.md"
_BEGIN, _END = "<!-- transitions: begin -->\n", "<!-- transitions: end -->\n"


def diagram() -> str:
    """Return the transitions as a Mermaid state diagram."""
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> pending: first request"]
    for transition in TRANSITIONS:
        label = transition.condition
        if transition.reason:
            reason, _, _ = transition.reason.partition(":")  # the rest is the condition
            label += f" ({reason})"
        lines.append(f"    {transition.source} --> {transition.target}: {label}")
    return "\n".join([*lines, "    acked --> [*]", "    failed --> [*]", "```"])


def table() -> str:
    """Return the verdicts as a Markdown table."""
    ops = list(next(iter(VERDICTS.values())))
    rows = [f"| state | {' | '.join(f'`{op}`' for op in ops)} |", "| --- |" + " --- |" * len(ops)]
    rows += [
        f"| {state} | {' | '.join(verdicts[op] for op in ops)} |"
        for state, verdicts in VERDICTS.items()
    ]
    return "\n".join(rows)


def updated(page: str) -> str:
    """Return the page with the tables of the code."""
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}\n{diagram()}\n\n{table()}\n\n{_END}{after}"


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
