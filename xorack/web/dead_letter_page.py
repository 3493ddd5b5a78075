"""Dead-lettered messages as HTML: the widget's page, and that of `xorack web`.

It needs no script, and escapes all text from others (bodies, reasons, tags).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xorack.core.event import rfc3339
from xorack.ops.body import body_lines
from xorack.ops.dead_letters import DeadMessage
from xorack.ops.redrive import Survey
from xorack.ops.text import plural
from xorack.web.widget import Theme, escaped, html_page, table

Actions = Callable[[Sequence[DeadMessage]], str]
"""Renders what can be done with some messages of one kind."""

_LINES = 40
_REASONS = 20
_TAG_CHARACTERS = 120
_COLUMNS = ("Messages", "Kind", "Reason", "For example")


def sentence(survey: Survey) -> str:
    if not survey.seen:
        return "No dead-lettered messages."
    if survey.seen < survey.total:
        return f"{survey.seen} of about {survey.total:,} dead-lettered messages."
    return f"{plural(survey.seen, 'dead-lettered message')}."


def render_survey(survey: Survey, theme: Theme = "light") -> str:
    summary = f'<p>{sentence(survey)} <span class="faint">{rfc3339(survey.at)}</span></p>'
    return html_page(summary + render_messages(survey), theme)


def render_messages(survey: Survey, actions: Actions | None = None) -> str:
    """Render the counts by reason, and the messages; with actions, these of each."""
    if not survey.groups:
        return ""
    rows = ""
    for group in survey.groups[:_REASONS]:
        last = f'<div class="tag">{escaped(group.example or "", _TAG_CHARACTERS)}</div>'
        if actions is not None:
            key = (group.kind, group.reason)
            last = actions([one for one in survey.messages if (one.kind, one.reason) == key])
        count = f'<span class="num">{group.count}</span>'
        cells = (count, group.kind, escaped(group.reason, 300), last)
        rows += "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
    heads = _COLUMNS if actions is None else (*_COLUMNS[:3], '<span class="unseen">Actions</span>')
    parts = [table("reasons", heads, rows)]
    if more := survey.groups[_REASONS:]:
        parts.append(f'<p class="faint">and {plural(len(more), "more reason")}</p>')
    parts += [_details(message, survey.at, actions) for message in survey.messages]
    return "".join(parts)


def _details(message: DeadMessage, now: int, actions: Actions | None) -> str:
    rows = "".join(
        f"<dt>{name}</dt><dd>{escaped(value, 300)}</dd>"
        for name, value in message.facts(now)
        if name not in ("kind", "reason")
    )
    body = "\n".join(escaped(line) for line in body_lines(message.body, _LINES))
    tag = f' <span class="tag faint">{escaped(message.tag, 60)}</span>' if message.tag else ""
    reason = escaped(message.error or message.reason, 300)
    summary = f"<summary><strong>{message.kind}</strong> {reason}{tag}</summary>"
    content = f"{summary}<dl>{rows}</dl><pre>{body}</pre>"
    if actions is None:
        return f"<details>{content}</details>"
    return f'<details data-key="{escaped(message.id)}">{content}{actions([message])}</details>'
