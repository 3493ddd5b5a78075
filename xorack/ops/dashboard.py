"""The unfinished chains that are due first, as a page: what the dashboard's widget shows.

`unfinished` reads them, `render` makes HTML of what was read: pure, no I/O. The page needs no
script, and whatever comes from others (tags, reasons) is escaped in it.

Which order is useful, and cheap? The index of deadlines is kept in the order in which chains are
due, so its head is the chains that fail next; where all chains have the same timeout, these are the
oldest. Sorting by anything else would need another index, or reading all.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from botocore.exceptions import BotoCoreError, ClientError

from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.core.chain import Chain
from xorack.core.clock import milliseconds
from xorack.core.event import rfc3339
from xorack.core.ports import ChainStore, Unavailable
from xorack.ops.status import ChainStatus, status_of

__all__ = [
    "MAX_CHAINS",
    "Overview",
    "Theme",
    "read_readable",
    "render",
    "render_trouble",
    "unfinished",
]

Theme = Literal["light", "dark"]

MAX_CHAINS = 100
"""Most chains on a page."""
_LOOKS = 4
"""For each chain that is asked for, how many at most are looked at: among those that are due, some
are finished and only owe their event."""
_TAG_SHOWN = 120
_IDS_SHOWN = 2
_SOON_MS = 600_000


@dataclass(frozen=True)
class Overview:
    """What the index of deadlines begins with.

    Attributes:
        at: When it was read, milliseconds since 1970.
        chains: Unfinished chains, the one with the nearest deadline first.
        event_pending: Finished chains among those that were looked at whose event is not published yet.
        unreadable: Items that are no chains: tag -> what is wrong.
        more: Whether there are more than were looked at.
    """

    at: int
    chains: tuple[ChainStatus, ...]
    event_pending: int = 0
    unreadable: tuple[tuple[str, str], ...] = ()
    more: bool = False


def unfinished(
    store: DynamoDBStore, limit: int = 20, *, now: Callable[[], int] = milliseconds
) -> Overview:
    """Read the unfinished chains that are due first; bounded work, however many there are.

    Chains without a deadline are not in the index: those that were created through the direct API.

    Args:
        store: The table.
        limit: How many chains at most, 1 to `MAX_CHAINS`.
        now: The clock.

    Returns:
        Their statuses, and what else was found.

    Raises:
        Unavailable: Try again.
    """
    at = now()
    tags, more = store.first_due(limit * _LOOKS)
    found: list[ChainStatus] = []
    unreadable: list[tuple[str, str]] = []
    event_pending = looked = 0
    while looked < len(tags) and len(found) < limit:
        page = tags[looked : looked + limit]
        looked += len(page)
        chains = read_readable(store, page, unreadable)
        event_pending += sum(chain.event_pending for chain in chains)
        found += (status_of(chain, at) for chain in chains if not chain.final)
    more = more or looked < len(tags) or len(found) > limit
    found.sort(key=lambda one: (one.deadline is None, one.deadline, one.chain.tag))
    return Overview(at, tuple(found[:limit]), event_pending, tuple(unreadable), more)


def read_readable(
    store: ChainStore, tags: Sequence[str], unreadable: list[tuple[str, str]]
) -> list[Chain]:
    """Read chains; an item that is none does not hide the others.

    Args:
        store: Where they are kept.
        tags: Which.
        unreadable: Where items that are no chains are added: tag and what is wrong.

    Returns:
        The chains that are there, in the order of their tags.

    Raises:
        Unavailable: Try again.
    """
    try:
        chains = store.read(tags)
    except (Unavailable, BotoCoreError, ClientError):
        raise  # the table's trouble, and not an item's
    except Exception as problem:  # noqa: BLE001 - whatever some other program wrote there
        if len(tags) == 1:
            generic = f"{type(problem).__name__}: {problem}"
            unreadable.append((tags[0], getattr(problem, "why", generic)))
            return []
        return [chain for tag in tags for chain in read_readable(store, [tag], unreadable)]
    return [chains[tag] for tag in tags if tag in chains]


# -- the page --------------------------------------------------------------------------------------

_COLOURS = {
    "light": {
        "text": "#16191f", "faint": "#5f6b7a", "line": "#e3e7ec", "track": "#e3e7ec",
        "ok": "#0972d3", "soon": "#b45309", "late": "#d91515", "badge": "#f2f3f3",
    },
    "dark": {
        "text": "#d1d5db", "faint": "#8d99a8", "line": "#2f3b47", "track": "#2f3b47",
        "ok": "#539fe5", "soon": "#f2a93b", "late": "#ff7a7a", "badge": "#232f3e",
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
.xorack .num{{white-space:nowrap;font-variant-numeric:tabular-nums}}
.xorack .tag{{font-weight:600;overflow-wrap:anywhere;unicode-bidi:isolate}}
.xorack .faint{{color:{faint};font-size:12px}}
.xorack .badge{{background:{badge};border:1px solid {line};border-radius:8px;padding:0 7px;
font-size:11px;white-space:nowrap}}
.xorack .bar{{background:{track};border-radius:3px;height:8px;margin:5px 0 3px;overflow:hidden}}
.xorack .bar.thin{{height:3px}}
.xorack .bar i{{display:block;height:100%;border-radius:3px}}
.xorack code{{font-family:Monaco,Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:11px;
background:none;color:inherit;padding:0;white-space:nowrap;display:block}}
.xorack summary{{cursor:pointer;color:{ok};font-size:12px}}
.xorack .ok{{color:{ok}}}.xorack .soon{{color:{soon}}}.xorack .late{{color:{late}}}
.xorack i.ok{{background:{ok}}}.xorack i.soon{{background:{soon}}}
.xorack i.late{{background:{late}}}.xorack i.faint{{background:{faint}}}
"""

_HEADS = (
    ("Chain", "34%"), ("Progress", "22%"), ("Age", "11%"), ("Deadline", "16%"),
    ("Outstanding units", "17%"),
)  # fmt: skip


def render(overview: Overview, theme: Theme = "light") -> str:
    """The page.

    Args:
        overview: What `unfinished` read.
        theme: What it is shown on.

    Returns:
        HTML, to be put into a page: no script, no address in it, all that is not ours escaped.
    """
    style = _STYLE.format(**_COLOURS[theme])
    parts = [f"<style>{style}</style>", '<div class="xorack">', _summary(overview)]
    if overview.chains:
        heads = "".join(f'<th style="width:{width}">{name}</th>' for name, width in _HEADS)
        rows = "".join(_row(one, overview.at) for one in overview.chains)
        parts.append(
            f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>",
        )
    parts += [
        f'<p class="late">{_text(tag, _TAG_SHOWN)} cannot be read: {_text(why, 200)}</p>'
        for tag, why in overview.unreadable
    ]
    parts.append("</div>")
    return "".join(parts)


def render_trouble(why: str, theme: Theme = "light") -> str:
    """The page where the table cannot be read: whoever looks is told why.

    Args:
        why: What is wrong.
        theme: What it is shown on.

    Returns:
        HTML, as `render` makes it.
    """
    style = _STYLE.format(**_COLOURS[theme])
    return (
        f'<style>{style}</style><div class="xorack"><p><b class="late">The chains cannot be read.'
        f"</b> {_text(why, 500)}</p></div>"
    )


def _summary(overview: Overview) -> str:
    """What to know before reading on."""
    chains, at = overview.chains, overview.at
    states = [_state(one, at) for one in chains]
    told = []
    if not chains:
        told.append("No unfinished chain has a deadline.")
    elif overview.more:
        told.append(f"The {_count(len(chains), 'unfinished chain')} due first, of more.")
    else:
        told.append(f"{_count(len(chains), 'unfinished chain')}.")
    if late := states.count("late"):
        told.append(f'<b class="late">{late} past the deadline.</b>')
    if soon := states.count("soon"):
        told.append(f'<b class="soon">{soon} due within {_span(_SOON_MS)}.</b>')
    if pending := sum(one.chain.status == "pending" for one in chains):
        told.append(f"{pending} not created yet.")
    if overview.event_pending:
        told.append(
            f'<b class="late">{_count(overview.event_pending, "event")} of finished chains not published '
            "yet.</b>"
        )
    return f'<p>{" ".join(told)} <span class="faint">{rfc3339(at)}</span></p>'


def _row(one: ChainStatus, at: int) -> str:
    state = _state(one, at)
    cells = (
        _name(one, at),
        _progress(one),
        f'<span class="num">{"unknown" if one.age_ms is None else _span(one.age_ms)}</span>',
        _deadline(one, at, state),
        _outstanding(one),
    )
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _state(one: ChainStatus, at: int) -> str:
    """How near the deadline is: the name of a colour."""
    if one.deadline is None:
        return "ok"
    left = one.deadline - at
    return "late" if left <= 0 else "soon" if left <= _SOON_MS else "ok"


def _name(one: ChainStatus, at: int) -> str:
    chain = one.chain
    notes = []
    if chain.status == "pending":
        notes.append('<span class="badge">not created yet</span>')
    if chain.failing is not None:
        notes.append(f'<span class="badge late">failing: {_text(chain.failing, 80)}</span>')
    if chain.last_stamp_at is not None:
        notes.append(f"last stamp {_span(max(0, at - chain.last_stamp_at))} ago")
    full, short = _text(chain.tag), _text(chain.tag, _TAG_SHOWN)
    return (
        f'<div class="tag" title="{full}">{short}</div><div class="faint">{" ".join(notes)}</div>'
    )


def _progress(one: ChainStatus) -> str:
    chain = one.chain
    if one.percent is None:
        return f'{_bar(0, "faint")}<span class="faint">its senders do not count</span>'
    return (
        f"{_bar(one.percent, 'ok')}"
        f'<span class="num">{one.percent:g} %</span> '
        f'<span class="faint num">{chain.finished:,} of {chain.started:,}</span>'
    )


def _deadline(one: ChainStatus, at: int, state: str) -> str:
    if one.deadline is None:
        return '<span class="faint">none</span>'
    left = one.deadline - at
    told = f"in {_span(left)}" if left > 0 else f"passed {_span(-left)} ago"
    # How much of its time is used up: beside the progress, it tells who will not make it.
    used = ""
    if one.age_ms is not None:
        used = _bar(100 * one.age_ms / max(1, one.age_ms + left), state, thin=True)
    return (
        f'<span class="num {state}" title="{_text(str(rfc3339(one.deadline)))}">{told}</span>{used}'
    )


def _outstanding(one: ChainStatus) -> str:
    chain = one.chain
    left = chain.started - chain.finished
    ids = [f"<code>{unit:016x}</code>" for unit in one.outstanding]
    if not ids:
        if one.outstanding_complete:
            # Nothing is left of the stamps, and yet it is not acked: its create has not come, or
            # the counts do not agree.
            return '<span class="faint">none</span>'
        why = "too many to name" if left > 1 else "not to be named"
        return f'<span class="faint">{f"{left:,}, " if left > 0 else ""}{why}</span>'
    at_once = len(ids) if len(ids) <= _IDS_SHOWN + 1 else _IDS_SHOWN
    shown, rest = ids[:at_once], ids[at_once:]
    parts = ["".join(shown)]
    if rest:
        parts.append(f"<details><summary>{len(rest)} more</summary>{''.join(rest)}</details>")
    if not one.outstanding_complete:
        in_all = f", {left:,} in all" if left > len(ids) else ""
        parts.append(f'<span class="faint">and others{in_all}</span>')
    return "".join(parts)


def _bar(percent: float, colour: str, *, thin: bool = False) -> str:
    width = min(100.0, max(0.0, percent))
    kind = "bar thin" if thin else "bar"
    return f'<div class="{kind}"><i class="{colour}" style="width:{width:.1f}%"></i></div>'


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def _span(time: int) -> str:
    """A time span of so many milliseconds in two units at most, for example ``3 h 20 min``."""
    seconds = time // 1000
    if seconds < 60:
        return f"{seconds} s"
    for unit, name, part, part_name in (
        (86_400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if seconds >= unit:
            whole, rest = divmod(seconds, unit)
            return f"{whole} {name}" + (f" {rest // part} {part_name}" if rest // part else "")
    raise AssertionError("unreachable")


def _text(text: str, limit: int | None = None) -> str:
    """Somebody else's text: cut, what is not printable (or turns the writing) shown, escaped."""
    cut = text if limit is None or len(text) <= limit else text[: limit - 1] + "…"
    shown = "".join(
        c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode()
        for c in cut
    )
    return html.escape(shown, quote=True)
