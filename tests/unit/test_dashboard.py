"""The dashboard's page and its snapshot of unfinished chains. Pure, no browser."""

import re
from html.parser import HTMLParser
from unittest.mock import patch

import pytest

from xorack.core.chain import Chain
from xorack.core.errors import NotAChainError
from xorack.core.stamp import traced, xor
from xorack.ops.snapshot import Snapshot, read_snapshot
from xorack.ops.status import ChainStatus
from xorack.web.widget import render

NOW = 1_000_000_000
MINUTE = 60_000


def chain(tag="t", **fields):
    defaults = {"status": "open", "first_seen_at": NOW - MINUTE, "created_at": NOW - MINUTE}
    return Chain(tag, **defaults | fields)


def page(*chains, **beside):
    return render(Snapshot(NOW, tuple(ChainStatus(one, NOW) for one in chains), **beside))


class Reader(HTMLParser):
    """A reader of a page as a browser has it: opened tags, attributes, shown text."""

    def __init__(self, source):
        super().__init__()
        self.opened, self.attributes, self.shown = [], [], ""
        self.feed(source)

    def handle_starttag(self, tag, attrs):
        self.opened.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.shown += data + " "


def shown(source):
    return re.sub(r"\s+", " ", Reader(re.sub(r"<style>.*?</style>", "", source, flags=re.S)).shown)


POISON = [
    "<script>alert(1)</script>",
    "</div></style><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)" x="',
    "&lt;script&gt;",
    "javascript:alert(1)",
    "a\u202etxt.exe",
    "a\nb\x1b[31m\0c",
    "<" * 1024,
    "folder/" * 100,
]


@pytest.mark.parametrize("text", POISON)
def test_text_of_others_is_only_text(text):
    plain = Reader(page(chain("tag", failing="reason"), invalid=(NotAChainError("tag", "reason"),)))
    source = page(chain(text, failing=text), invalid=(NotAChainError(text, text),))
    poisoned = Reader(source)
    assert poisoned.opened == plain.opened
    assert [name for name, _ in poisoned.attributes] == [name for name, _ in plain.attributes]
    assert not {"script", "img", "iframe", "a"} & set(poisoned.opened)
    # The title has all of the text, with hidden characters escaped; what is shown is cut.
    escaped = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    assert ("title", escaped) in poisoned.attributes
    assert len(escaped) <= 120 or (
        text[:119] + "…" in poisoned.shown and text not in poisoned.shown
    )
    assert not any(c in source for c in "\u202e\x1b\0")


@pytest.mark.parametrize(
    ("left", "colour", "used", "text"),
    [
        (-90_000, "late", "100.0", "passed 1 min 30 s ago"),
        (0, "late", "100.0", "passed 0 s ago"),
        (20_000, "soon", "75.0", "in 20 s"),
        (600_000, "soon", "9.1", "in 10 min"),
        (601_000, "ok", "9.1", "in 10 min 1 s"),
        (26 * 3_600_000, "ok", "0.1", "in 1 d 2 h"),
    ],
)
def test_the_distance_of_the_deadline_and_a_bar_of_the_used_time(left, colour, used, text):
    source = page(chain(deadline=NOW + left))
    assert f'<span class="num {colour}"' in source
    assert f'class="bar thin" aria-hidden="true"><rect class="{colour}" width="{used}%"' in source
    assert text in shown(source)


def test_known_outstanding_units_are_named():
    units = [3, 5, 7, 11, 13]
    source = page(chain(stamp=xor(*map(traced, units)), started=5))
    ids = re.findall(r"<code>([0-9a-f]{16})</code>", source)
    assert ids == [f"{unit:016x}" for unit in units]
    # Two are shown, the others collapsed.
    assert source.index("<details>") > source.index(ids[1])
    assert source.index("<details>") < source.index(ids[2])
    assert "3 more" in shown(source)
    three = page(chain(stamp=xor(*map(traced, units[:3])), started=3))
    assert "<details>" not in three
    hundreds = page(chain(stamp=xor(*(traced(unit, 256) for unit in range(1, 301))), started=300))
    assert ("298 more" in shown(hundreds), hundreds.count("<code>")) == (True, 100)
    many = xor(*(traced(n * 0x9E3779B97F4A7C15 % 2**64) for n in range(1, 200)))
    too_many = "199 units, too many to name: stamps of cells=256 name 384"
    assert too_many in shown(page(chain(stamp=many, started=199)))
    assert "this stamp names none" in shown(page(chain(stamp=b"opaque")))
    assert "9 units, this stamp names none" in shown(page(chain(stamp=b"8 bytes!", started=9)))


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (page(), "No unfinished chain has a deadline."),
        (page(chain()), "1 unfinished chain."),
        (page(chain(), chain("u")), "2 unfinished chains."),
        (
            page(chain(), chain("u"), more=True),
            "The 2 unfinished chains with the earliest deadlines; there are more.",
        ),
        (
            page(event_pending=16, more=True),
            "The first chains by deadline are finished; there are more. 16 events",
        ),
        (page(chain(started=2_000, finished=1_500)), "75 % 1,500 of 2,000"),
        (page(chain()), "its senders report no counts"),
        (page(event_pending=1), "1 event of finished chains not published yet."),
        (page(event_pending=2), "2 events of finished chains not published yet."),
        (page(chain(deadline=NOW - 1), chain(deadline=NOW - 5)), "2 past the deadline."),
        (page(chain(deadline=NOW + 5)), "1 due within 10 min."),
        (page(chain(status="pending", created_at=None)), "1 not created yet."),
        (page(invalid=(NotAChainError("u", "KeyError: 'S'"),)), "u cannot be read: KeyError: 'S'"),
    ],
)
def test_the_summary(source, text):
    assert text in shown(source)


class Index(dict):
    """A store with these chains in its index."""

    def first_due(self, limit, prefix):
        return list(self)[:limit], len(self) > limit

    def read(self, tags, on_invalid=None):
        return {tag: self.pop(tag) for tag in tags}  # each is read once


def read(chains, limit):
    with patch("xorack.ops.snapshot.milliseconds", lambda: NOW):
        return read_snapshot(Index((one.tag, one) for one in chains), limit)


def test_chains_are_sorted_by_deadline_and_those_without_come_last():
    # With an idle timeout, the index may have an earlier time than the deadline.
    postponed = chain("postponed", deadline=NOW + 900, idle_timeout=500, last_stamp_at=NOW)
    chains = read([chain("never"), postponed, chain("b", deadline=NOW + 100)], 5).chains
    assert [one.chain.tag for one in chains] == ["b", "postponed", "never"]


@pytest.mark.parametrize(("events", "shown_events", "shown_chains"), [(7, 7, 4), (500, 16, 0)])
def test_pending_events_do_not_crowd_out_chains(events, shown_events, shown_chains):
    ended = {"status": "acked", "ended_at": NOW, "event_pending": True}
    chains = [chain(f"ended{n}", **ended) for n in range(events)]
    snapshot = read([*chains, *(chain(f"t{n}") for n in range(9))], 4)
    assert (len(snapshot.chains), snapshot.event_pending) == (shown_chains, shown_events)
    assert snapshot.more
