"""The pages of `xorack web`: the values that the templates beside this file get.

The templates escape all values, and contain no scripts or styles. All addresses are relative,
because the first part of a page's path is a secret of the server.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args
from urllib.parse import urlencode

from xorack.core.event import event_detail, rfc3339
from xorack.core.text import plural, printable, span
from xorack.ops.backlog import Backlog
from xorack.ops.body import body_lines
from xorack.ops.browse import GROUPS, ChainPage, Query
from xorack.ops.dead_letters import DeadMessage
from xorack.ops.explain import run_prefix
from xorack.ops.explain_chain import explain_chain
from xorack.ops.log_windows import WindowState, WindowTable
from xorack.ops.redrive import Survey
from xorack.ops.similar_texts import cause_of
from xorack.ops.status import SOON_MS, ChainStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from jinja2 import Environment

    NamesOf = Callable[[ChainStatus], Mapping[int, str]]

_UNITS_SHOWN = 200
_JSON_LINES = 200
_HEADS = (
    ("tag", "Chain"),
    ("progress", "Units finished"),
    ("age", "Age, or time taken"),
    ("", "Deadline, or end"),
    (None, "Outstanding units"),
)
"""The columns of chains, and the order by which each sorts. The last column has none."""
_WHY_NOT = {
    "failed": "",
    "rejected": "will be rejected again while the chain exists",
    "malformed": "will be rejected again; correct it with xorack dead-letters send",
    "expired": "too old, because it could start an expired chain again",
}


@functools.cache
def templates() -> Environment:
    """Return the templates, which escape all values and make invisible characters visible."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # the import takes 60 ms

    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    made.filters |= {"address": _address, "cut": _cut, "plural": plural}
    made.filters |= {"rfc3339": rfc3339, "local": local_time, "span": span}
    made.globals["body_lines"] = body_lines
    return made


def local_time(time: int, zone: tzinfo | None = None) -> str:
    """Return a time by this machine's clock; empty if its time zone is UTC."""
    moment = datetime.fromtimestamp(time / 1000, timezone.utc).astimezone(zone)
    return f"{moment:%a %H:%M:%S %Z}" if moment.utcoffset() else ""


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _address(query: Query, **changes: Any) -> str:
    """Return the address of a query's page. If the query changes, the first page is shown."""
    changed = replace(query, **{"after": "", "skip": 0, **changes}) if changes else query
    parameters = urlencode({name: value for name, value in vars(changed).items() if value})
    return f"./?{parameters}" if parameters else "./"


@dataclass(frozen=True)
class Frame:
    """The parts that all pages have around their content, and the names of outstanding units.

    The server expects `token` from a form. `notice` is the result of a form. The number of dead
    letters and the backlog are None if they are unknown.
    """

    name: str
    token: str = ""
    names: NamesOf = lambda _: {}
    notice: str = ""
    letters: int | None = None
    backlog: Backlog | None = None

    def page(self, template: str, *, current: str = "", news: str = "", **values: Any) -> bytes:
        """Render a page. `current` is its address, and `news` is for screen readers."""
        alarm = self.backlog.stuck_text if self.backlog else ""
        common = {
            **vars(self),
            "alarm": alarm,
            "waiting": self._waiting,
            "current": current,
            "news": self.notice or news,
            **values,
        }
        page = templates().get_template(template).render(common, named=self._named)
        return page.encode("utf-8", "replace")

    @property
    def _waiting(self) -> int | None:
        return None if self.backlog is None else self.backlog.waiting

    def _named(self, status: ChainStatus) -> list[tuple[str, str]]:
        """Return the ids and names of a chain's outstanding units, those with names first."""
        names = self.names(status)
        units = sorted(status.outstanding, key=lambda id: (id not in names, names.get(id, ""), id))
        return [(f"{unit:016x}", names.get(unit, "")) for unit in units]


def error_page(frame: Frame, title: str, reason: str) -> bytes:
    return frame.page("error.html", title=title, reason=reason)


def chains_page(frame: Frame, page: ChainPage) -> bytes:
    plus = "" if page.complete else "+"
    news = ", ".join(f"{page.counts[group]}{plus} {group}" for group in GROUPS)
    values = {"page": page, "groups": GROUPS, "heads": _HEADS, "soon_ms": SOON_MS}
    return frame.page("chains.html", title="Chains", current="./", news=news, **values)


def chain_page(
    frame: Frame,
    status: ChainStatus,
    dead_letters: Sequence[DeadMessage],
    children: Sequence[ChainStatus],
) -> bytes:
    """Render one chain: an explanation, its dead letters, and forms that change it."""
    chain = status.chain
    failed = chain.status == "failed"
    likes = Query(
        group="failed" if failed else "",
        prefix=run_prefix(chain.tag),
        cause=cause_of(status.reason or "") if failed else "",
    )
    return frame.page(
        "chain.html",
        title=chain.tag,
        news=chain.status,
        status=status,
        why=explain_chain(status, dead_letters, frame.backlog, children=children),
        children=children,
        likes=likes,
        run=replace(likes, group="", cause=""),
        timeline=timeline(status),
        dead_letters=dead_letters,
        detail=_json_lines(status.detail),
        event=_json_lines(event_detail(chain)) if chain.final else [],
        units_shown=_UNITS_SHOWN,
    )


def _json_lines(value: Any) -> list[str]:
    return body_lines(json.dumps(value, ensure_ascii=False), _JSON_LINES)


class Moment(NamedTuple):
    """A step in the life of a chain. Its time, if known, is in milliseconds since 1970."""

    at: int | None
    label: str
    detail: str = ""
    kind: str = ""


def timeline(status: ChainStatus) -> list[Moment]:
    """Return the known steps of a chain's life in their order."""
    chain, deadline = status.chain, status.chain.effective_deadline
    moments = []
    if status.begin is not None:
        created = chain.created_at is not None
        moments.append(Moment(status.begin, "Created" if created else "First request"))
    if chain.last_stamp_at is not None:
        moments.append(Moment(chain.last_stamp_at, "Last step", status.counts))
    if status.note_text:
        moments.append(Moment(None, "Note", status.note_text))
    if deadline is not None and not chain.final:
        urgent = "next" if status.urgency == "ok" else status.urgency
        timeout = status.timeout_text and f"time-out: {status.timeout_text}"
        moments.append(Moment(deadline, "Deadline", timeout, kind=urgent))
    if chain.final:
        kind = "done" if chain.status == "acked" else "late"
        ended = status.tolerance if chain.tolerated else chain.reason or ""
        moments.append(Moment(chain.ended_at, chain.status.capitalize(), ended, kind))
        event = (
            ("Event not published", "", "late")
            if chain.reports.event_pending
            else ("Event published",)
        )
        moments.append(Moment(None, *event))
        if status.callback:
            kind = "late" if chain.reports.resume_failed else ""
            moments.append(Moment(chain.reports.resumed_at, "Callback", status.callback, kind))
        if status.after_end:
            moments.append(Moment(chain.tombstone.last_late_at, "After the end", status.after_end))
    placed: list[tuple[int, Moment]] = []
    for moment in moments:  # a step without a time keeps its place
        placed.append((moment.at or (placed[-1][0] if placed else 0), moment))
    return [moment for _, moment in sorted(placed, key=lambda pair: pair[0])]


def windows_page(frame: Frame, table: WindowTable, prefix: str, searched: int | None) -> bytes:
    """Render windows by log.

    `searched` is the number of items that were read, if the table has more.
    """
    states = Counter[str](window.state for _, _, cells in table.rows for window in cells if window)
    news = ", ".join(f"{states[state]} {state}" for state in get_args(WindowState) if states[state])
    values = {"table": table, "prefix": prefix, "searched": searched}
    return frame.page("windows.html", title="Windows", current="windows", news=news, **values)


def letters_page(frame: Frame, survey: Survey, retryable: Collection[str]) -> bytes:
    """Render dead letters with buttons. `retryable` has the ids of messages that can be retried."""
    return frame.page(
        "dead_letters.html",
        title="Dead letters",
        current="dead-letters",
        news=plural(survey.seen, "message"),
        survey=survey,
        retryable=retryable,
        why_not=_WHY_NOT,
        total=frame.letters,
    )
