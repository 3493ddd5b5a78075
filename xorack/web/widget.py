"""The dashboard widget's HTML: chains that have not ended.

It needs no script and no inline style, and escapes all text from others (tags, reasons). Pure.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Literal

from xorack.core.event import MAX_OUTSTANDING, rfc3339
from xorack.ops.snapshot import Snapshot
from xorack.ops.status import SOON_MS, ChainStatus
from xorack.ops.text import plural, printable, span

Theme = Literal["light", "dark"]

_TAG_CHARACTERS = 120
_IDS_SHOWN = 2

COLOURS = {
    "light": {
        "text": "#16191f",
        "faint": "#5f6b7a",
        "line": "#e3e7ec",
        "badge": "#f2f3f3",
        "ok": "#0972d3",
        "soon": "#b45309",
        "late": "#d91515",
    },
    "dark": {
        "text": "#d1d5db",
        "faint": "#8d99a8",
        "line": "#2f3b47",
        "badge": "#232f3e",
        "ok": "#539fe5",
        "soon": "#f2a93b",
        "late": "#ff7a7a",
    },
}

_STYLE = """
.xorack{{color:{text};font-size:13px;line-height:1.45;overflow-x:auto}}
.xorack p{{margin:0 0 10px;overflow-wrap:anywhere}}
.xorack table{{border-collapse:collapse;width:100%;min-width:860px;table-layout:fixed}}
.xorack th{{text-align:left;font-weight:600;font-size:12px;color:{faint};padding:4px 16px 6px 0;
border-bottom:2px solid {line};background:none}}
.xorack td{{vertical-align:top;padding:8px 16px 8px 0;border-bottom:1px solid {line};
background:none}}
.xorack .num{{font-variant-numeric:tabular-nums}}
.xorack .tag{{font-weight:600;overflow-wrap:anywhere;unicode-bidi:isolate}}
.xorack .faint{{color:{faint};font-size:12px}}
.xorack .badge{{background:{badge};border:1px solid {line};border-radius:8px;padding:0 7px;
font-size:11px;overflow-wrap:anywhere}}
.xorack .bar{{display:block;background:{line};border-radius:3px;width:100%;height:8px;
margin:5px 0 3px}}
.xorack .bar.thin{{height:3px}}
.xorack code{{font-family:Monaco,Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:11px;
background:none;color:inherit;padding:0;white-space:nowrap;display:block}}
.xorack summary{{cursor:pointer;color:{ok};font-size:12px}}
.xorack .ok{{color:{ok}}}.xorack .soon{{color:{soon}}}.xorack .late{{color:{late}}}
.xorack rect{{fill:currentColor}}
.xorack th:nth-child(1){{width:34%}}.xorack th:nth-child(2){{width:22%}}
.xorack th:nth-child(3){{width:11%}}.xorack th:nth-child(4){{width:16%}}
.xorack th:nth-child(5){{width:17%}}
"""


def render(snapshot: Snapshot, theme: Theme = "light") -> str:
    """Render a snapshot as HTML to embed in a page, without scripts or links."""
    parts = [_summary(snapshot)]
    if snapshot.chains:
        names = ("Chain", "Progress", "Age", "Deadline", "Outstanding units")
        heads = "".join(f'<th scope="col">{name}</th>' for name in names)
        rows = "".join(map(_row, snapshot.chains))
        parts.append(f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>")
    parts += (
        f'<p class="late">{_escaped(str(error.tag), _TAG_CHARACTERS)} cannot be read: '
        f"{_escaped(error.reason, 200)}</p>"
        for error in snapshot.invalid
    )
    return _page("".join(parts), theme)


def render_error(reason: str, theme: Theme = "light") -> str:
    """Render the reason why the chains cannot be read, as HTML like that of `render`."""
    problem = '<b class="late">The chains cannot be read.</b>'
    return _page(f"<p>{problem} {_escaped(reason, 500)}</p>", theme)


def _page(content: str, theme: Theme) -> str:
    """Return escaped content with its style."""
    style = _STYLE.format(**COLOURS[theme])
    return f'<style>{style}</style><div class="xorack">{content}</div>'


def _summary(snapshot: Snapshot) -> str:
    chains = snapshot.chains
    count = plural(len(chains), "unfinished chain")
    if snapshot.more and chains:
        text = f"The {count} with the earliest deadlines; there are more."
    elif snapshot.more:
        text = "The first chains by deadline are finished; there are more."
    else:
        text = f"{count}." if chains else "No unfinished chain has a deadline."
    sentences = " ".join([text, *_remarks(chains, snapshot.event_pending)])
    return f'<p>{sentences} <span class="faint">{rfc3339(snapshot.at)}</span></p>'


def _remarks(chains: Iterable[ChainStatus], event_pending: int) -> list[str]:
    """Return sentences on what needs attention: deadlines, missing creates, pending events."""
    chains = [*chains]
    urgencies = [status.urgency for status in chains]
    sentences = []
    if late := urgencies.count("late"):
        sentences.append(f'<b class="late">{late} past the deadline.</b>')
    if soon := urgencies.count("soon"):
        sentences.append(f'<b class="soon">{soon} due within {span(SOON_MS)}.</b>')
    if pending := sum(status.chain.status == "pending" for status in chains):
        sentences.append(f"{pending} not created yet.")
    if event_pending:
        events = plural(event_pending, "event")
        sentences.append(f'<b class="late">{events} of finished chains not published yet.</b>')
    return sentences


def _row(status: ChainStatus) -> str:
    age = "unknown" if status.age_ms is None else span(status.age_ms)
    cells = (
        _name(status),
        _progress(status),
        f'<span class="num">{age}</span>',
        _deadline(status),
        _outstanding(status),
    )
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _name(status: ChainStatus) -> str:
    chain = status.chain
    notes = []
    if chain.status == "pending":
        notes.append('<span class="badge">not created yet</span>')
    if chain.failing is not None:
        notes.append(f'<span class="badge late">failing: {_escaped(chain.failing, 80)}</span>')
    if chain.last_stamp_at is not None:
        notes.append(f"last stamp {span(max(0, status.now - chain.last_stamp_at))} ago")
    full, short = _escaped(chain.tag), _escaped(chain.tag, _TAG_CHARACTERS)
    name = f'<div class="tag" title="{full}">{short}</div>'
    return f'{name}<div class="faint">{" ".join(notes)}</div>'


def _progress(status: ChainStatus) -> str:
    if status.percent is None:
        return f'{_bar(0, "faint")}<span class="faint">{status.counts}</span>'
    return (
        f'{_bar(status.percent, "ok")}<span class="num">{status.percent:g} %</span> '
        f'<span class="faint num">{status.counts}</span>'
    )


def _deadline(status: ChainStatus) -> str:
    if status.deadline is None:
        return '<span class="faint">none</span>'
    left = status.deadline - status.now
    text = f"in {span(left)}" if left > 0 else f"passed {span(-left)} ago"
    title = _escaped(str(rfc3339(status.deadline)))
    used = ""
    if status.age_ms is not None:
        # The share of the time that is used: ahead of the progress, the chain is likely to fail.
        share = 100 * status.age_ms / max(1, status.age_ms + left)
        used = _bar(share, status.urgency, thin=True)
    return f'<span class="num {status.urgency}" title="{title}">{text}</span>{used}'


def _outstanding(status: ChainStatus) -> str:
    """Render the outstanding units of a chain; most are collapsed."""
    ids = [f"<code>{unit:016x}</code>" for unit in status.outstanding]
    shown = len(ids) if len(ids) <= _IDS_SHOWN + 1 else _IDS_SHOWN
    parts = ids[:shown]
    if rest := ids[shown:]:
        listed = rest[: MAX_OUTSTANDING - shown]  # `xorack show` has them all
        parts.append(f"<details><summary>{len(rest)} more</summary>{''.join(listed)}</details>")
    # The create of a chain with nothing outstanding is missing, or its counts differ.
    note = status.outstanding_note or ("" if ids else "none")
    return "".join(parts) + (f'<span class="faint">{note}</span>' if note else "")


def _bar(percent: float, colour: str, *, thin: bool = False) -> str:
    """Return a bar that is filled up to a percentage."""
    kind = "bar thin" if thin else "bar"
    rect = f'<rect class="{colour}" width="{min(100.0, percent):.1f}%" height="100%" rx="3"/>'
    return f'<svg class="{kind}" aria-hidden="true">{rect}</svg>'


def _escaped(text: str, limit: int | None = None) -> str:
    """Cut a text from others, and escape it for HTML; hidden characters become visible."""
    cut = text if limit is None or len(text) <= limit else text[: limit - 1] + "…"
    return html.escape(printable(cut), quote=True)
