"""Dead-lettered messages as HTML. It escapes all text from others: bodies, reasons, tags."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xorack.ops.body import body_lines
from xorack.ops.dead_letters import DeadMessage
from xorack.ops.redrive import Survey
from xorack.ops.text import plural
from xorack.web.parts import escaped, table

Actions = Callable[[Sequence[DeadMessage]], str]
"""Renders what can be done with some messages of one kind."""

_LINES = 40
_REASONS = 20
_HEADS = ("Messages", "Kind", "Reason", '<span class="unseen">Actions</span>')


def sentence(survey: Survey) -> str:
    if not survey.seen:
        return "No dead-lettered messages."
    if survey.seen < survey.total:
        return f"{survey.seen} of about {survey.total:,} dead-lettered messages."
    return f"{plural(survey.seen, 'dead-lettered message')}."


def render_messages(survey: Survey, actions: Actions) -> str:
    """Render the counts by reason, and the messages, each with its actions."""
    if not survey.groups:
        return ""
    rows = ""
    for group in survey.groups[:_REASONS]:
        key = (group.kind, group.reason)
        forms = actions([one for one in survey.messages if (one.kind, one.reason) == key])
        count = f'<span class="num">{group.count}</span>'
        cells = (count, group.kind, escaped(group.reason, 300), forms)
        rows += "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
    parts = [table("reasons", _HEADS, rows)]
    if more := survey.groups[_REASONS:]:
        parts.append(f'<p class="faint">and {plural(len(more), "more reason")}</p>')
    parts += [_details(message, survey.at, actions) for message in survey.messages]
    return "".join(parts)


def _details(message: DeadMessage, now: int, actions: Actions) -> str:
    rows = "".join(
        f"<dt>{name}</dt><dd>{escaped(value, 300)}</dd>"
        for name, value in message.facts(now)
        if name not in ("kind", "reason")
    )
    body = "\n".join(escaped(line) for line in body_lines(message.body, _LINES))
    tag = f' <span class="tag faint">{escaped(message.tag, 60)}</span>' if message.tag else ""
    reason = escaped(message.error or message.reason, 300)
    return (
        f'<details data-key="{escaped(message.id)}">'
        f"<summary><strong>{message.kind}</strong> {reason}{tag}</summary>"
        f"<dl>{rows}</dl><pre>{body}</pre>{actions([message])}</details>"
    )
