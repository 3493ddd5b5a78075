"""Chains as HTML: the dashboard widget's page, and the tables of `xorack web`.

It needs no script and no inline style, and escapes all text from others (tags, reasons). Pure.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping
from typing import Literal
from urllib.parse import urlencode

from xorack.core.errors import NotAChainError
from xorack.core.event import MAX_OUTSTANDING, rfc3339
from xorack.ops.snapshot import Snapshot
from xorack.ops.status import SOON_MS, ChainStatus
from xorack.ops.text import plural, printable, span

Theme = Literal["light", "dark"]
NamesOf = Callable[[ChainStatus], Mapping[int, str]]
"""Returns the names of a chain's outstanding units, by id, as far as they are known."""

_TAG_CHARACTERS = 120
_IDS_SHOWN = 2

COLOURS = {
    "light": {
        "text": "#16191f", "faint": "#5f6b7a", "line": "#e3e7ec", "badge": "#f2f3f3",
        "ok": "#0972d3", "soon": "#b45309", "late": "#d91515", "done": "#037f51",
    },
    "dark": {
        "text": "#d1d5db", "faint": "#8d99a8", "line": "#2f3b47", "badge": "#232f3e",
        "ok": "#539fe5", "soon": "#f2a93b", "late": "#ff7a7a", "done": "#4cc38a",
    },
}  # fmt: skip

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
.xorack pre{{font:11px/1.4 Monaco,Menlo,Consolas,"DejaVu Sans Mono",monospace;margin:4px 0 12px;
background:none;border:0;color:inherit;padding:0;white-space:pre-wrap;overflow-wrap:anywhere}}
.xorack dl{{display:grid;grid-template-columns:max-content 1fr;gap:2px 14px;margin:6px 0;
font-size:12px}}
.xorack dt{{color:{faint}}}.xorack dd{{margin:0;overflow-wrap:anywhere}}
.xorack summary{{cursor:pointer;color:{ok};font-size:12px}}
.xorack summary .tag{{font-weight:400}}.xorack>details{{margin:5px 0}}
.xorack .ok{{color:{ok}}}.xorack .soon{{color:{soon}}}.xorack .late{{color:{late}}}
.xorack .done{{color:{done}}}.xorack rect{{fill:currentColor}}
.xorack .chains th:nth-child(1){{width:34%}}.xorack .chains th:nth-child(2){{width:22%}}
.xorack .chains th:nth-child(3){{width:11%}}.xorack .chains th:nth-child(4){{width:16%}}
.xorack .chains th:nth-child(5){{width:17%}}.xorack .reasons th:nth-child(1){{width:84px}}
.xorack .reasons{{margin-bottom:14px}}.xorack .reasons th:nth-child(2){{width:96px}}
.xorack .reasons th:nth-child(4){{width:29%}}
"""


_MOST_FINISHED = 97.0
"""Percentage of a failed chain's bar beyond which what is missing is not seen."""


def render(snapshot: Snapshot, theme: Theme = "light") -> str:
    """Render a snapshot as HTML to embed in a page, without scripts or links."""
    parts = [_summary(snapshot)]
    if snapshot.chains:
        parts.append(chain_table(snapshot.chains))
    parts.append(unreadable(snapshot.invalid))
    return html_page("".join(parts), theme)


def unreadable(errors: Iterable[NotAChainError]) -> str:
    return "".join(
        f'<p class="late">{escaped(str(error.tag), _TAG_CHARACTERS)} cannot be read: '
        f"{escaped(error.reason, 200)}</p>"
        for error in errors
    )


def chain_table(chains: Iterable[ChainStatus], names: NamesOf | None = None) -> str:
    """Render chains as a table; with names of units, as on `xorack web`: each tag is a link."""
    end = "Deadline" if names is None else "Deadline or end"
    heads = ("Chain", "Progress", "Age", end, "Outstanding units")
    return table("chains", heads, "".join(_row(status, names) for status in chains))


def table(kind: str, heads: Iterable[str], rows: str) -> str:
    """Return a table of rendered rows; the style knows the widths of the kind's columns."""
    cells = "".join(f'<th scope="col">{head}</th>' for head in heads)
    return f'<table class="{kind}"><thead><tr>{cells}</tr></thead><tbody>{rows}</tbody></table>'


def render_error(reason: str, theme: Theme = "light", content: str = "chains") -> str:
    """Render the reason why the content cannot be read, as HTML like that of `render`."""
    problem = f'<b class="late">The {content} cannot be read.</b>'
    return html_page(f"<p>{problem} {escaped(reason, 500)}</p>", theme)


def html_page(content: str, theme: Theme) -> str:
    """Return a page of the widget: escaped content with its style."""
    return f'<style>{style(COLOURS[theme])}</style><div class="xorack">{content}</div>'


def style(colours: Mapping[str, str]) -> str:
    """Return the style of everything that this module renders, in these colours."""
    return _STYLE.format(**colours)


def variables() -> str:
    """Return the colours as variables of CSS, for both themes; `style` may name them."""
    light, dark = (
        "".join(f"--{name}:{value};" for name, value in COLOURS[theme].items()) for theme in COLOURS
    )
    return f":root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}"


def _summary(snapshot: Snapshot) -> str:
    chains = snapshot.chains
    count = plural(len(chains), "unfinished chain")
    if snapshot.more and chains:
        text = f"The {count} with the earliest deadlines; there are more."
    elif snapshot.more:
        text = "The first chains by deadline are finished; there are more."
    else:
        text = f"{count}." if chains else "No unfinished chain has a deadline."
    sentences = " ".join([text, *remarks(chains, snapshot.event_pending)])
    return f'<p>{sentences} <span class="faint">{rfc3339(snapshot.at)}</span></p>'


def remarks(chains: Iterable[ChainStatus], event_pending: int) -> list[str]:
    """Return sentences on what needs attention: deadlines, missing creates, pending events."""
    unfinished = [status for status in chains if not status.chain.final]
    urgencies = [status.urgency for status in unfinished]
    sentences = []
    if late := urgencies.count("late"):
        sentences.append(f'<b class="late">{late} past the deadline.</b>')
    if soon := urgencies.count("soon"):
        sentences.append(f'<b class="soon">{soon} due within {span(SOON_MS)}.</b>')
    if pending := sum(status.chain.status == "pending" for status in unfinished):
        sentences.append(f"{pending} not created yet.")
    if event_pending:
        events = plural(event_pending, "event")
        sentences.append(f'<b class="late">{events} of finished chains not published yet.</b>')
    return sentences


def _row(status: ChainStatus, names: NamesOf | None) -> str:
    age = "unknown" if status.age_ms is None else span(status.age_ms)
    cells = (
        _name(status, is_link=names is not None),
        _progress(status),
        f'<span class="num">{age}</span>',
        _deadline(status),
        _outstanding(status, names(status) if names else {}),
    )
    key = f' data-key="{escaped(status.chain.tag)}"' if names else ""
    return f"<tr{key}>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _name(status: ChainStatus, *, is_link: bool) -> str:
    chain = status.chain
    notes = [badge(status)]
    if chain.last_stamp_at is not None and not chain.final:
        notes.append(f"last stamp {span(max(0, status.now - chain.last_stamp_at))} ago")
    full, short = escaped(chain.tag), escaped(chain.tag, _TAG_CHARACTERS)
    if is_link:
        short = f'<a href="{chain_address(chain.tag)}">{short}</a>'
    name = f'<div class="tag" title="{full}">{short}</div>'
    return f'{name}<div class="faint">{" ".join(filter(None, notes))}</div>'


def chain_address(tag: str) -> str:
    return escaped(f"chain?{urlencode({'tag': tag})}")


def badge(status: ChainStatus) -> str:
    """Render a chain's status and its reason, unless it is just open."""
    chain = status.chain
    badges = []
    if chain.status == "pending":
        badges.append('<span class="badge">not created yet</span>')
    if chain.failing is not None:
        badges.append(f'<span class="badge late">failing: {escaped(chain.failing, 80)}</span>')
    if chain.status == "failed":
        badges.append(f'<span class="badge late">failed: {escaped(chain.reason or "", 80)}</span>')
    if chain.status == "acked":
        text = escaped(status.tolerance if chain.tolerated else "acked")
        badges.append(f'<span class="badge done">{text}</span>')
    return " ".join(badges)


def _progress(status: ChainStatus) -> str:
    chain = status.chain
    if status.percent is None:
        return f'{bar(0, "faint")}<span class="faint">its senders report no counts</span>'
    colour = {"acked": "done", "failed": "failed"}.get(chain.status, "ok")
    counts = f"{chain.finished:,} of {chain.started:,}" if chain.started > 0 else ""
    return (
        f'{bar(status.percent, colour)}<span class="num">{status.percent:g} %</span> '
        f'<span class="faint num">{counts}</span>'
    )


def _deadline(status: ChainStatus) -> str:
    if (ended := status.chain.ended_at) is not None:
        title = escaped(str(rfc3339(ended)))
        return f'<span class="num" title="{title}">{span(max(0, status.now - ended))} ago</span>'
    if status.deadline is None:
        return '<span class="faint">none</span>'
    left = status.deadline - status.now
    text = f"in {span(left)}" if left > 0 else f"passed {span(-left)} ago"
    title = escaped(str(rfc3339(status.deadline)))
    used = ""
    if status.age_ms is not None:
        # The share of the time that is used: ahead of the progress, the chain is likely to fail.
        share = 100 * status.age_ms / max(1, status.age_ms + left)
        used = bar(share, status.urgency, thin=True)
    return f'<span class="num {status.urgency}" title="{title}">{text}</span>{used}'


def _outstanding(status: ChainStatus, names: Mapping[int, str]) -> str:
    """Render the outstanding units of a chain, those with a name by it; most are collapsed."""
    if status.chain.status == "acked" and not status.chain.tolerated:
        return '<span class="faint">none</span>'
    ids = [_unit(unit, names.get(unit)) for unit in named_first(status, names)]
    shown = len(ids) if len(ids) <= _IDS_SHOWN + 1 else _IDS_SHOWN
    parts = ids[:shown]
    if rest := ids[shown:]:
        listed = rest[: MAX_OUTSTANDING - shown]  # `xorack show` has them all
        parts.append(f"<details><summary>{len(rest)} more</summary>{''.join(listed)}</details>")
    # A chain with nothing outstanding lacks its create, or its counts differ.
    note = status.outstanding_note or ("" if ids else "none")
    return "".join(parts) + (f'<span class="faint">{note}</span>' if note else "")


def named_first(status: ChainStatus, names: Mapping[int, str]) -> list[int]:
    """Return the ids of the outstanding units, those with names first, by name."""
    return sorted(status.outstanding, key=lambda id_: (id_ not in names, names.get(id_, ""), id_))


def _unit(unit: int, name: str | None) -> str:
    if name is None:
        return f"<code>{unit:016x}</code>"
    return f'<code class="name" title="{unit:016x}">{escaped(name, 80)}</code>'


def bar(percent: float, colour: str, *, thin: bool = False) -> str:
    """Return a bar that is filled up to a percentage; the rest of a failed one is missing."""
    width = min(100.0, percent)
    kind = "bar thin" if thin else "bar"
    rect = ""
    if colour == "failed":
        width, colour = min(width, _MOST_FINISHED), "done"
        rest = f'x="{width:.1f}%" width="{100 - width:.1f}%"'
        rect = f'<rect class="late" {rest} height="100%" rx="3"/>'
    rect += f'<rect class="{colour}" width="{width:.1f}%" height="100%" rx="3"/>'
    return f'<svg class="{kind}" aria-hidden="true">{rect}</svg>'


def escaped(text: str, limit: int | None = None) -> str:
    """Cut a text from others, and escape it for HTML; hidden characters become visible."""
    cut = text if limit is None or len(text) <= limit else text[: limit - 1] + "…"
    return html.escape(printable(cut), quote=True)
