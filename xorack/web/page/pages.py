"""The pages of `xorack web` as HTML. They escape all text from others, and hold no script or style.

All addresses are relative: the first part of a page's path is a secret of the server.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from xorack.core.errors import NotAChainError
from xorack.core.event import event_detail
from xorack.ops.body import body_lines
from xorack.ops.browse import GROUPS, ChainPage, Query
from xorack.ops.dead_letters import DeadMessage
from xorack.ops.status import ChainStatus
from xorack.ops.text import plural
from xorack.web.dead_letter_page import Sample, render_messages
from xorack.web.widget import (
    COLOURS,
    ChainView,
    badge,
    bar,
    chain_table,
    escaped,
    named_first,
    remarks,
    style,
    table,
)

Names = Callable[[ChainStatus], Mapping[int, str]]
"""Returns the names of a chain's outstanding units, by id, as far as they are known."""
_UNITS_SHOWN = 200
_TITLES = {"./": "Chains", "windows": "Windows", "dead-letters": "Dead letters"}


@dataclass(frozen=True)
class Frame:
    """What all pages have around their content.

    Attributes:
        name: What the pages show, for example ``stack orders``.
        letters: The number of dead-lettered messages; None if it is unknown.
    """

    name: str
    letters: int | None = None

    def page(self, title: str, content: str, current: str = "", **data: object) -> bytes:
        """Return a whole page, of a title and content in HTML.

        `current` is the address of its entry in the navigation; `data` is for the page's script.
        """
        count = "" if self.letters is None else f' <span class="count">{self.letters:,}</span>'
        links = "".join(
            f'<a href="{address}"{_current(address == current)}>{name}'
            f"{count if address == 'dead-letters' else ''}</a>"
            for address, name in _TITLES.items()
        )
        attributes = "".join(f' data-{name}="{escaped(str(v))}"' for name, v in data.items())
        return (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            f"<title>{title} · xorack</title>"
            '<meta name="viewport" content="width=device-width,initial-scale=1">'
            '<link rel="icon" href="page.svg"><link rel="stylesheet" href="page.css">'
            '<script src="page.js" defer></script></head><body>'
            '<header><a class="brand" href="./">'
            '<img src="page.svg" alt="" width="20" height="20">xorack</a>'
            f'<span class="target">{escaped(self.name, 80)}</span>'
            f'<nav aria-label="Pages">{links}</nav>'
            '<p id="connection"></p></header>'
            f'<main id="main" class="xorack" tabindex="-1"{attributes}>{content}</main>'
            '<p id="news" class="unseen" role="status"></p>'
            '<dialog id="question"><form method="dialog"><p></p><button value="">Cancel</button> '
            '<button value="yes" class="danger">Yes</button></form></dialog></body></html>'
        ).encode("utf-8", "replace")


def stylesheet(rules: str) -> str:
    """Return the style of the pages: the rules after those of the shared renderer."""
    themes = [
        "".join(f"--{name}:{value};" for name, value in COLOURS[theme].items())
        for theme in ("light", "dark")
    ]
    shared = style({name: f"var(--{name})" for name in COLOURS["light"]})
    light, dark = themes
    return f":root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}{shared}{rules}"


def error_page(frame: Frame, title: str, reason: str) -> bytes:
    """Render the reason why there is nothing else to show."""
    problem = f'<h1>{title}</h1><p id="problem">{escaped(reason, 1000)}</p>'
    return frame.page(title, f'{problem}<p><a href="./">All chains</a></p>')


# -- chains ------------------------------------------------------------------------------------


def chains_page(frame: Frame, page: ChainPage, names: Names) -> bytes:
    """Render a list of chains."""
    query, plus = page.query, "" if page.whole else "+"
    total = sum(page.counts.values())
    tabs = "".join(
        f'<a href="{_address(Query(group, query.prefix))}"{_current(group == query.group)}>'
        f"{group.capitalize() or 'All'} "
        f'<span class="count">{page.counts[group] if group else total:,}{plus}</span></a>'
        for group in ("", *GROUPS)
    )
    hidden = f'<input type="hidden" name="group" value="{query.group}">' if query.group else ""
    view = ChainView("Deadline or end", lambda tag: f"chain?{urlencode({'tag': tag})}", names)
    parts = [
        '<h1 class="unseen">Chains</h1><div class="bar-of-tools">'
        f'<nav class="tabs" aria-label="Status">{tabs}</nav>'
        f'<form role="search" action="./">{hidden}<label for="prefix">Tag begins with</label>'
        f'<input id="prefix" type="search" name="prefix" value="{escaped(query.prefix)}"></form>'
        "</div>",
        _findings(page),
        _causes(page),
        _invalid(page.invalid),
        chain_table(page.chains, view) if page.chains else _no_chains(query, page.more),
        _pager(page),
    ]
    news = ", ".join(f"{page.counts[group]}{plus} {group}" for group in GROUPS)
    return frame.page("Chains", "".join(parts), "./", news=news)


def _findings(page: ChainPage) -> str:
    sentences = remarks(page.chains, page.event_pending)
    if page.hour:
        parts = [f"{n:,} {what}" for what, n in page.hour.items()]
        rate = f"{page.hour['acked'] / 60:.2g} acked a minute"
        sentences.append(f"In the last hour: {', '.join(parts)} ({rate}).")
    if not page.whole:
        sentences.append(
            f"Found among {page.searched:,} items of the table, and the nearest deadlines."
        )
    return f'<p class="findings">{" ".join(sentences)}</p>' if sentences else ""


def _causes(page: ChainPage) -> str:
    """List the groups of failed chains, with what each has in common."""
    if page.query.group not in ("", "failed"):
        return ""
    lines = []
    for one in page.causes:
        address = _address(Query("failed", one.prefix))
        run = f"of run {escaped(one.prefix[:-1], 80)}" if one.prefix else ""
        lines.append(
            f'<li><a href="{address}"><span class="num">{one.count:,}</span> failed</a> {run}: '
            f'<span class="late">{escaped(one.reason, 120)}</span>'
            f'<br><span class="faint">{escaped(one.sentence, 300)}</span></li>'
        )
    return f'<ul class="causes">{"".join(lines)}</ul>' if lines else ""


def _invalid(errors: Iterable[NotAChainError]) -> str:
    return "".join(
        f'<p class="late">{escaped(str(error.tag), 120)} cannot be read: '
        f"{escaped(error.reason, 200)}</p>"
        for error in errors
    )


def _no_chains(query: Query, more: Query | None) -> str:
    where = " in this part of the table" if query.after or more else ""
    which = f" {query.group}" if query.group else ""
    begin = f" whose tag begins with “{escaped(query.prefix)}”" if query.prefix else ""
    return f'<p class="nothing">No{which} chains{begin}{where}.</p>'


def _pager(page: ChainPage) -> str:
    links = []
    if page.query.after or page.query.skip:
        first = replace(page.query, after="", skip=0)
        links.append(f'<a href="{_address(first)}">First page</a>')
    if page.more is not None:
        links.append(f'<a href="{_address(page.more)}">More chains</a>')
    return f'<nav class="pager" aria-label="More">{" ".join(links)}</nav>' if links else ""


def _address(query: Query) -> str:
    values = {"group": query.group, "prefix": query.prefix, "after": query.after}
    given = {name: value for name, value in values.items() if value}
    if query.skip:
        given["skip"] = str(query.skip)
    return escaped(f"./?{urlencode(given)}" if given else "./")


# -- one chain ---------------------------------------------------------------------------------


def chain_page(
    frame: Frame, status: ChainStatus, names: Mapping[int, str], token: str, notice: str = ""
) -> bytes:
    """Render one chain, with forms to change it; `notice` is what one has done."""
    chain = status.chain
    state = badge(status) or '<span class="badge ok">open</span>'
    colour = {"acked": "done", "failed": "failed"}.get(chain.status, "ok")
    done = f'<p class="notice">{escaped(notice)}</p>' if notice else ""
    parts = [
        f'<p class="crumb"><a href="./">Chains</a></p><h1 class="tag">{escaped(chain.tag)}</h1>'
        f'{done}<p class="state">{state}</p>',
        bar(status.percent or 0, colour if status.percent is not None else "faint"),
        _facts(status),
        "" if chain.status == "acked" else _units(status, names),
        _changes(status, token),
    ]
    if status.detail:
        parts.append(f"<section><h2>Detail</h2>{_json(status.detail)}</section>")
    if chain.final:
        state = "not published yet" if chain.event_pending else "published"
        parts.append(
            f'<section><h2>Event <span class="faint">{state}</span></h2>'
            f"{_json(event_detail(chain))}</section>"
        )
    return frame.page(escaped(chain.tag, 60), "".join(parts), news=notice or chain.status)


def _changes(status: ChainStatus, token: str) -> str:
    """Return the forms of a chain: names to try, a new deadline, a failure."""
    tag = escaped(status.chain.tag)
    forms = []
    if status.chain.status != "acked":
        among = '<textarea id="among" name="among" rows="3" required></textarea>'
        forms.append(("among", "Names to try, one a line", among, "names", "Find names", ""))
    if not status.chain.final:
        minutes = '<input id="minutes" type="number" name="minutes" value="60" min="1" required>'
        question = f"Move the deadline of {tag}?"
        forms.append(("minutes", "Minutes from now", minutes, "extend", "Extend", question))
        reason = '<input id="reason" name="reason" maxlength="250" required>'
        question = f"Fail {tag}? Its event goes out, and a failed chain stays failed."
        forms.append(("reason", "Reason", reason, "fail", "Fail", question))
    rendered = "".join(
        f'<form class="actions change" method="post" action="chain" data-key="{action}">'
        f'<input type="hidden" name="tag" value="{tag}">'
        f'<input type="hidden" name="token" value="{token}">'
        f'<label for="{name}">{label}</label>{control}<button name="action" value="{action}"'
        + (f' data-question="{question}"' if question else "")
        + (' class="danger"' if action == "fail" else "")
        + f">{verb}</button></form>"
        for name, label, control, action, verb, question in forms
    )
    return f"<section><h2>Change</h2>{rendered}</section>" if rendered else ""


def _facts(status: ChainStatus) -> str:
    rows = "".join(
        f"<div><dt>{name.capitalize()}</dt><dd>{escaped(value)}"
        + (f'<small class="faint">{escaped(detail)}</small>' if detail else "")
        + "</dd></div>"
        for name, value, detail in status.facts()
        if name != "reason"  # the badge has it
    )
    return f'<dl class="facts">{rows}</dl>'


def _units(status: ChainStatus, names: Mapping[int, str]) -> str:
    units = named_first(status, names)
    note = status.outstanding_note or ("" if units else "none")
    if len(units) > _UNITS_SHOWN:
        note = f"and {len(units) - _UNITS_SHOWN:,} more: xorack show lists all"
    heads = ("Name", "Id") if names else ("Id",)
    rows = "".join(
        "<tr>"
        + (f'<td class="tag">{escaped(names.get(unit, ""))}</td>' if names else "")
        + f"<td><code>{unit:016x}</code></td></tr>"
        for unit in units[:_UNITS_SHOWN]
    )
    listed = table("units", heads, rows) if rows else ""
    count = f' <span class="count">{len(units):,}</span>' if units else ""
    hint = "" if names or not units else "xorack web --among FILE tries the names of a file."
    end = "".join(f'<p class="faint">{escaped(one)}</p>' for one in (note, hint) if one)
    return f"<section><h2>Outstanding units{count}</h2>{listed}{end}</section>"


def _json(value: Any) -> str:
    lines = body_lines(json.dumps(value, ensure_ascii=False), 200)
    text = "\n".join(map(escaped, lines))
    return f"<pre>{text}</pre>"


# -- dead-lettered messages --------------------------------------------------------------------


def letters_page(frame: Frame, sample: Sample, token: str, notice: str = "") -> bytes:
    """Render a sample of the dead-lettered messages, with buttons; `notice` is what one has done.

    The server expects the token from a form.
    """

    def actions(messages: Sequence[DeadMessage]) -> str:
        return _form(messages, token)

    read = len(sample.messages)
    kind = "findings" if read else "nothing"
    done = f'<p class="notice">{escaped(notice)}</p>' if notice else ""
    content = (
        f'<h1 class="unseen">Dead letters</h1>{done}<p class="{kind}">{sample.sentence}</p>'
        f"{render_messages(sample, read, actions)}"
    )
    return frame.page(
        "Dead letters",
        content,
        "dead-letters",
        total=frame.letters,
        news=notice or f"{read} messages",
    )


def _form(messages: Sequence[DeadMessage], token: str) -> str:
    count = len(messages)
    ids = "".join(f'<input type="hidden" name="id" value="{escaped(m.id)}">' for m in messages)
    retry = "" if messages[0].kind == "expired" else (
        f'<button name="action" value="retry">{_of("Retry", count)}</button> '
    )  # fmt: skip
    question = f"Delete {plural(count, 'message')}? There is no copy."
    return (
        f'<form class="actions" method="post" action="dead-letters">{ids}'
        f'<input type="hidden" name="token" value="{token}">{retry}'
        f'<button name="action" value="delete" class="danger" data-question="{question}">'
        f"{_of('Delete', count)}</button></form>"
    )


def _of(verb: str, count: int) -> str:
    return verb if count == 1 else f"{verb} {count}"


def _current(is_current: bool) -> str:
    return ' aria-current="page"' if is_current else ""
