"""Dead-lettered messages as HTML: the widget's page.

It needs no script, and escapes all text from others (bodies, reasons, tags).
"""

from __future__ import annotations

from xorack.core.event import rfc3339
from xorack.ops.body import body_lines
from xorack.ops.dead_letters import DeadMessage
from xorack.ops.redrive import Survey
from xorack.ops.text import plural
from xorack.web.widget import Theme, escaped, html_page, table

_LINES = 40
_REASONS = 20
_TAG_CHARACTERS = 120
_COLUMNS = ("Messages", "Kind", "Reason", "For example")


def _sentence(survey: Survey) -> str:
    if not survey.seen:
        return "No dead-lettered messages."
    if survey.seen < survey.total:
        return f"{survey.seen} of about {survey.total:,} dead-lettered messages."
    return f"{plural(survey.seen, 'dead-lettered message')}."


def render_survey(survey: Survey, theme: Theme = "light") -> str:
    summary = f'<p>{_sentence(survey)} <span class="faint">{rfc3339(survey.at)}</span></p>'
    return html_page(summary + _messages(survey), theme)


def _messages(survey: Survey) -> str:
    """Render the counts by reason, and the messages."""
    if not survey.groups:
        return ""
    rows = ""
    for group in survey.groups[:_REASONS]:
        example = f'<div class="tag">{escaped(group.example or "", _TAG_CHARACTERS)}</div>'
        count = f'<span class="num">{group.count}</span>'
        cells = (count, group.kind, escaped(group.reason, 300), example)
        rows += "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
    parts = [table("reasons", _COLUMNS, rows)]
    if more := survey.groups[_REASONS:]:
        parts.append(f'<p class="faint">and {plural(len(more), "more reason")}</p>')
    parts += [_details(message, survey.at) for message in survey.messages]
    return "".join(parts)


def _details(message: DeadMessage, now: int) -> str:
    rows = "".join(
        f"<dt>{name}</dt><dd>{escaped(value, 300)}</dd>"
        for name, value in message.facts(now)
        if name not in ("kind", "reason")
    )
    body = "\n".join(escaped(line) for line in body_lines(message.body, _LINES))
    tag = f' <span class="tag faint">{escaped(message.tag, 60)}</span>' if message.tag else ""
    reason = escaped(message.error or message.reason, 300)
    summary = f"<summary><strong>{message.kind}</strong> {reason}{tag}</summary>"
    return f"<details>{summary}<dl>{rows}</dl><pre>{body}</pre></details>"
