"""The pages of `xorack web` as HTML. They escape all text from others, and hold no script or style.

All addresses are relative: the first part of a page's path is a secret of the server.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from string import Template
from typing import Any, get_args
from urllib.parse import urlencode

from xorack.core.event import event_detail
from xorack.ops.body import body_lines
from xorack.ops.browse import GROUPS, ChainPage, Query
from xorack.ops.dead_letters import DeadMessage
from xorack.ops.redrive import Survey
from xorack.ops.status import ChainStatus
from xorack.ops.text import plural
from xorack.ops.windows import StageTable, StageWindow, WindowState
from xorack.web.dead_letter_page import render_messages, sentence
from xorack.web.widget import (
    COLOURS,
    NamesOf,
    badge,
    bar,
    chain_address,
    chain_table,
    escaped,
    named_first,
    remarks,
    style,
    table,
    unreadable,
    variables,
)

_UNITS_SHOWN = 200
_TITLES = {"./": "Chains", "windows": "Windows", "dead-letters": "Dead letters"}
_PAGE = Template(Path(__file__).with_name("page.html").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Frame:
    """What all pages have around their content: what they show, and how many dead letters wait."""

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
        page = _PAGE.substitute(
            title=title,
            name=escaped(self.name, 80),
            links=links,
            attributes="".join(f' data-{name}="{escaped(str(v))}"' for name, v in data.items()),
            content=content,
        )
        return page.encode("utf-8", "replace")


def stylesheet(rules: str) -> str:
    """Return the style of the pages: the rules after those of the shared renderer."""
    shared = style({name: f"var(--{name})" for name in COLOURS["light"]})
    return f"{variables()}{shared}{rules}"


def error_page(frame: Frame, title: str, reason: str) -> bytes:
    problem = f'<h1>{title}</h1><p id="problem">{escaped(reason, 1000)}</p>'
    return frame.page(title, f'{problem}<p><a href="./">All chains</a></p>')


# -- chains ------------------------------------------------------------------------------------


def chains_page(frame: Frame, page: ChainPage, names: NamesOf) -> bytes:
    query, plus = page.query, "" if page.whole else "+"
    total = sum(page.counts.values())
    tabs = "".join(
        f'<a href="{_address(Query(group, query.prefix))}"{_current(group == query.group)}>'
        f"{group.capitalize() or 'All'} "
        f'<span class="count">{page.counts[group] if group else total:,}{plus}</span></a>'
        for group in ("", *GROUPS)
    )
    hidden = f'<input type="hidden" name="group" value="{query.group}">' if query.group else ""
    parts = [
        '<h1 class="unseen">Chains</h1><div class="bar-of-tools">'
        f'<nav class="tabs" aria-label="Status">{tabs}</nav>'
        f'<form role="search" action="./">{hidden}<label for="prefix">Tag begins with</label>'
        f'<input id="prefix" type="search" name="prefix" value="{escaped(query.prefix)}"></form>'
        "</div>",
        _findings(page),
        _causes(page),
        unreadable(page.invalid),
        chain_table(page.chains, names) if page.chains else _no_chains(query, page.more),
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
    given = urlencode({name: value for name, value in vars(query).items() if value})
    return escaped(f"./?{given}" if given else "./")


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
    tag, forms = status.chain.tag, []
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
        _form(
            f'class="actions change" action="chain" data-key="{action}"',
            [("tag", tag), ("token", token)],
            f'<label for="{name}">{label}</label>{control}{_button(action, verb, question)}',
        )
        for name, label, control, action, verb, question in forms
    )
    return f"<section><h2>Change</h2>{rendered}</section>" if rendered else ""


def _form(attributes: str, hidden: Iterable[tuple[str, str]], controls: str) -> str:
    fields = "".join(
        f'<input type="hidden" name="{name}" value="{escaped(value)}">' for name, value in hidden
    )
    return f'<form method="post" {attributes}>{fields}{controls}</form>'


def _button(action: str, text: str, question: str = "") -> str:
    """Return a button of a form; one that destroys something is red."""
    asks = f' data-question="{escaped(question)}"' if question else ""
    danger = ' class="danger"' if action in ("fail", "delete") else ""
    return f'<button name="action" value="{action}"{asks}{danger}>{text}</button>'


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


# -- windows -----------------------------------------------------------------------------------


def windows_page(frame: Frame, found: StageTable, prefix: str, searched: int | None) -> bytes:
    """Render windows by stage; `searched` items were read, if these are not the whole table."""
    states = Counter[str](one.state for _, _, cells in found.rows for one in cells if one)
    news = ", ".join(f"{states[state]} {state}" for state in get_args(WindowState) if states[state])
    heads = ["Window", *(escaped(log, 60) for log in found.logs)]
    rows = "".join(
        f'<tr data-key="{escaped(head)}"><th scope="row" class="tag">{escaped(head, 120)}</th>'
        + "".join(f"<td>{_window(one)}</td>" for one in cells)
        + "</tr>"
        for head, (_, _, cells) in zip(found.heads, found.rows, strict=True)
    )
    part = ""
    if searched is not None:
        part = f"Found among {searched:,} items of the table: xorack windows reads all of it."
    parts = [
        '<h1 class="unseen">Windows</h1><div class="bar-of-tools">'
        f'<p class="findings">{" ".join(filter(None, [news and f"{news}.", part]))}</p>'
        '<form role="search" action="windows"><label for="prefix">Tag begins with</label>'
        f'<input id="prefix" type="search" name="prefix" value="{escaped(prefix)}"></form></div>',
        table("stages", heads, rows) if rows else '<p class="nothing">No windows.</p>',
    ]
    return frame.page("Windows", "".join(parts), "windows", news=news)


def _window(window: StageWindow | None) -> str:
    if window is None:
        return '<span class="faint">not open</span>'
    state, percent = window.state, window.status.percent
    link = chain_address(window.status.chain.tag)
    colour = {"whole": "done", "open": "ok"}.get(state, "late")
    label = f'<a href="{link}" class="badge {colour}">{state}</a>'
    if state == "whole":
        return label
    share = "" if percent is None else f' <span class="num">{percent:g} %</span>'
    why = f'<div class="faint">{escaped(window.why, 120)}</div>'
    return f"{label}{share}{bar(percent or 0, 'failed' if state == 'failed' else colour)}{why}"


# -- dead-lettered messages --------------------------------------------------------------------


def letters_page(frame: Frame, survey: Survey, token: str, notice: str = "") -> bytes:
    """Render some dead-lettered messages, with buttons; `notice` is what one has done.

    The server expects the token from a form.
    """

    def actions(messages: Sequence[DeadMessage]) -> str:
        many = "" if len(messages) == 1 else f" {len(messages)}"
        question = f"Delete {plural(len(messages), 'message')}? There is no copy."
        buttons = [_button("delete", f"Delete{many}", question)]
        if messages[0].kind != "expired":
            buttons.insert(0, _button("retry", f"Retry{many}"))
        ids = [("id", message.id) for message in messages]
        attributes = 'class="actions" action="dead-letters"'
        return _form(attributes, [*ids, ("token", token)], " ".join(buttons))

    kind = "findings" if survey.seen else "nothing"
    done = f'<p class="notice">{escaped(notice)}</p>' if notice else ""
    content = (
        f'<h1 class="unseen">Dead letters</h1>{done}<p class="{kind}">{sentence(survey)}</p>'
        f"{render_messages(survey, actions)}"
    )
    news = notice or f"{survey.seen} messages"
    return frame.page("Dead letters", content, "dead-letters", total=frame.letters, news=news)


def _current(is_current: bool) -> str:
    return ' aria-current="page"' if is_current else ""
