"""Dead-lettered messages as HTML: the widget's page, and that of `xorack web`.

It needs no script, and escapes all text from others (bodies, reasons, tags).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from xorack.aws.clock import milliseconds
from xorack.core.event import rfc3339
from xorack.ops.body import body_lines, value_line
from xorack.ops.dead_letters import DeadMessage, Group, add_to_groups
from xorack.ops.text import plural, span
from xorack.web.widget import Theme, escaped, html_page, table

Actions = Callable[[Sequence[DeadMessage]], str]
"""Renders what can be done with some messages of one kind."""

_CALLS = 10
_LINES = 40
_REASONS = 20
_TAG_CHARACTERS = 120
_COLUMNS = ("Messages", "Kind", "Reason", "For example")


@dataclass(frozen=True)
class Sample:
    """Some messages of a dead-letter queue.

    Attributes:
        at: Time of the reading, milliseconds since the epoch.
        messages: The messages that were read, at most a hundred.
        total: SQS's approximate number of messages in the queue.
    """

    at: int
    messages: tuple[DeadMessage, ...]
    total: int

    @property
    def sentence(self) -> str:
        """The number of messages, in words."""
        read = len(self.messages)
        if not read:
            return "No dead-lettered messages."
        if read < self.total:
            return f"{read} of about {self.total:,} dead-lettered messages."
        return f"{plural(read, 'dead-lettered message')}."


def read_sample(queue_url: str, client: Any, retention_ms: int) -> Sample:
    """Read some messages and hide none of them from others; SQS counts it as a receive.

    Finished chains are kept for `retention_ms` milliseconds: older messages are expired.
    """
    at = milliseconds()
    messages: dict[str, DeadMessage] = {}
    for number in range(_CALLS):
        response = client.receive_message(
            QueueUrl=queue_url,
            MaxNumberOfMessages=10,
            VisibilityTimeout=0,
            # A long poll asks all servers of the queue; an empty queue takes a second.
            WaitTimeSeconds=0 if number else 1,
            MessageAttributeNames=["All"],
            AttributeNames=["All"],
        )
        received = [
            DeadMessage.read(one, at - retention_ms) for one in response.get("Messages", [])
        ]
        if all(message.id in messages for message in received):
            break
        messages.update((message.id, message) for message in received)
    name = "ApproximateNumberOfMessages"
    response = client.get_queue_attributes(QueueUrl=queue_url, AttributeNames=[name])
    return Sample(at, tuple(messages.values()), int(response["Attributes"][name]))


def render_sample(sample: Sample, limit: int, theme: Theme = "light") -> str:
    """Render a sample as HTML: the counts by reason, and the first messages as a whole."""
    summary = f'<p>{sample.sentence} <span class="faint">{rfc3339(sample.at)}</span></p>'
    return html_page(summary + render_messages(sample, limit), theme)


def render_messages(sample: Sample, limit: int, actions: Actions | None = None) -> str:
    """Render the counts by reason, and the first messages; with actions, these of each."""
    groups = add_to_groups({}, sample.messages)
    if not groups:
        return ""
    rows = "".join(_row(group, sample, actions) for group in groups[:_REASONS])
    heads = _COLUMNS if actions is None else (*_COLUMNS[:3], '<span class="unseen">Actions</span>')
    parts = [table("reasons", heads, rows)]
    if more := groups[_REASONS:]:
        parts.append(f'<p class="faint">and {plural(len(more), "more reason")}</p>')
    parts += [_details(message, sample.at, actions) for message in sample.messages[:limit]]
    return "".join(parts)


def _row(group: Group, sample: Sample, actions: Actions | None) -> str:
    last = f'<div class="tag">{escaped(group.example or "", _TAG_CHARACTERS)}</div>'
    if actions is not None:
        key = (group.kind, group.reason)
        last = actions([one for one in sample.messages if (one.kind, one.reason) == key])
    cells = (
        f'<span class="num">{group.count}</span>',
        group.kind,
        escaped(group.reason, 300),
        last,
    )
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _details(message: DeadMessage, now: int, actions: Actions | None) -> str:
    """Render one message, collapsed: its heading is the reason."""
    reason = escaped(message.error or message.reason, 300)
    properties = {
        "message": message.id,
        "original id": "" if message.message_id == message.id else message.message_id,
        "value": value_line(*message.offending) if message.offending else "",
        "tag": message.tag or "",
        "sender": message.sender or "",
        "sent": f"{rfc3339(message.sent_at)}, {span(max(0, now - message.sent_at))} ago",
        "received": "" if message.receives is None else plural(message.receives, "time"),
    }
    rows = "".join(
        f"<dt>{name}</dt><dd>{escaped(value, 300)}</dd>"
        for name, value in properties.items()
        if value
    )
    body = "\n".join(escaped(line) for line in body_lines(message.body, _LINES))
    tag = f' <span class="tag faint">{escaped(message.tag, 60)}</span>' if message.tag else ""
    summary = f"<summary><strong>{message.kind}</strong> {reason}{tag}</summary>"
    content = f"{summary}<dl>{rows}</dl><pre>{body}</pre>"
    if actions is None:
        return f"<details>{content}</details>"
    return f'<details data-key="{escaped(message.id)}">{content}{actions([message])}</details>'
