"""The page of unfinished chains: what is read for it, and what is told of it. Pure, no browser."""

import re
from html.parser import HTMLParser

import pytest

from xorack.core.chain import Chain
from xorack.core.ports import Unavailable
from xorack.core.stamp import traced, xor
from xorack.ops.dashboard import Overview, render, unfinished
from xorack.ops.status import status_of

NOW = 1_000_000_000
MINUTE = 60_000


def chain(tag="t", **fields):
    return Chain(
        tag,
        **{"status": "open", "first_seen_at": NOW - MINUTE, "created_at": NOW - MINUTE} | fields,
    )


def page(*chains, **beside):
    return render(Overview(NOW, tuple(status_of(one, NOW) for one in chains), **beside))


class Reader(HTMLParser):
    """Reads a page as a browser would: the tags that are opened, the text that is shown."""

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
]


@pytest.mark.parametrize("text", POISON)
def test_what_comes_from_others_is_text_and_nothing_else(text):
    plain = Reader(page(chain("tag", failing="reason"), unreadable=(("tag", "why"),)))
    source = page(chain(text, failing=text), unreadable=((text, text),))
    poisoned = Reader(source)
    assert poisoned.opened == plain.opened
    assert [name for name, _ in poisoned.attributes] == [name for name, _ in plain.attributes]
    assert not {"script", "img", "iframe", "a"} & set(poisoned.opened)
    # The title has all of it, readable again, but for what is no character to see.
    told = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    assert ("title", told) in poisoned.attributes
    assert not any(c in source for c in "\u202e\x1b\0")


def test_a_long_tag_is_cut_where_it_is_shown_and_whole_in_its_title():
    tag = "folder/" * 100
    read = Reader(page(chain(tag)))
    assert ("title", tag) in read.attributes
    assert tag[:119] + "…" in read.shown
    assert tag not in read.shown


@pytest.mark.parametrize(
    ("left", "colour", "text"),
    [
        (-90_000, "late", "passed 1 min 30 s ago"),
        (0, "late", "passed 0 s ago"),
        (599_000, "soon", "in 9 min 59 s"),
        (600_000, "soon", "in 10 min"),
        (601_000, "ok", "in 10 min 1 s"),
        (26 * 3_600_000, "ok", "in 1 d 2 h"),
    ],
)
def test_how_near_the_deadline_is(left, colour, text):
    source = page(chain(deadline=NOW + left))
    assert f'<span class="num {colour}"' in source
    assert text in shown(source)


def test_the_time_that_is_used_up_is_a_bar():
    source = page(chain(created_at=NOW - 3 * MINUTE, deadline=NOW + MINUTE))
    assert 'class="bar thin"><i class="soon" style="width:75.0%"' in source
    late = page(chain(created_at=NOW - 3 * MINUTE, deadline=NOW - MINUTE))
    assert 'class="bar thin"><i class="late" style="width:100.0%"' in late


def test_progress_is_a_bar_and_figures():
    source = page(chain(started=2_000, finished=1_500))
    assert 'class="bar"><i class="ok" style="width:75.0%"' in source
    assert "75 % 1,500 of 2,000" in shown(source)
    assert "its senders do not count" in shown(page(chain()))


def test_outstanding_units_are_named_as_far_as_they_are_known():
    units = [3, 5, 7, 11, 13]
    stamp = xor(*map(traced, units))
    source = page(chain(stamp=bytes(stamp), started=5))
    ids = re.findall(r"<code>([0-9a-f]{16})</code>", source)
    assert ids == [f"{unit:016x}" for unit in units]
    # Two are shown at once, the others when asked for.
    assert source.index("<details>") > source.index(ids[1])
    assert source.index("<details>") < source.index(ids[2])
    assert "3 more" in shown(source)
    three = page(chain(stamp=bytes(xor(*map(traced, units[:3]))), started=3))
    assert "<details>" not in three
    many = bytes(xor(*(traced(n * 0x9E3779B97F4A7C15 % 2**64) for n in range(1, 200))))
    assert "199, too many to name" in shown(page(chain(stamp=many, started=199)))
    assert "not to be named" in shown(page(chain(stamp=b"opaque")))


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (page(), "No unfinished chain has a deadline."),
        (page(chain()), "1 unfinished chain."),
        (page(chain(), chain("u")), "2 unfinished chains."),
        (page(chain(), chain("u"), more=True), "The 2 unfinished chains due first, of more."),
        (page(event_pending=1), "1 event of finished chains not published yet."),
        (page(event_pending=2), "2 events of finished chains not published yet."),
        (page(chain(deadline=NOW - 1), chain(deadline=NOW - 5)), "2 past the deadline."),
        (page(chain(deadline=NOW + 5)), "1 due within 10 min."),
        (page(chain(status="pending", created_at=None)), "1 not created yet."),
        (page(unreadable=(("u", "KeyError: 'S'"),)), "u cannot be read: KeyError: 'S'"),
    ],
)
def test_what_is_told_before_the_chains(source, text):
    assert text in shown(source)


def test_both_themes_say_the_same_in_their_own_colours():
    read = Overview(NOW, (status_of(chain(deadline=NOW - 1), NOW),))
    light, dark = render(read), render(read, "dark")
    assert light != dark
    assert light.partition("</style>")[2] == dark.partition("</style>")[2]


class Index:
    """A store that has so many chains in its index, some of which cannot be read."""

    def __init__(self, chains, damaged=()):
        self.chains = {one.tag: one for one in chains}
        self.damaged = set(damaged)
        self.reads = []

    def first_due(self, limit):
        tags = [*self.damaged, *self.chains]
        return tags[:limit], len(tags) > limit

    def read(self, tags):
        self.reads.append(list(tags))
        if self.damaged & set(tags):
            raise KeyError("S")
        return {tag: self.chains[tag] for tag in tags if tag in self.chains}


def look(store, limit):
    return unfinished(store, limit, now=lambda: NOW)


def test_no_more_is_read_than_is_shown():
    store = Index([chain(f"t{n}", deadline=NOW + n) for n in range(50)])
    read = look(store, 5)
    assert [one.chain.tag for one in read.chains] == ["t0", "t1", "t2", "t3", "t4"]
    assert read.more
    assert sum(map(len, store.reads)) == 5
    every = look(store, 50)
    assert (len(every.chains), every.more) == (50, False)


def test_the_order_is_the_true_deadlines_and_chains_without_one_come_last():
    # With an idle timeout the index says when to look, which is at or before the deadline.
    moved = chain("moved", deadline=NOW + 900, idle_timeout=500, last_stamp_at=NOW)
    store = Index([chain("never"), moved, chain("b", deadline=NOW + 100)])
    assert [one.chain.tag for one in look(store, 5).chains] == ["b", "moved", "never"]


def test_finished_chains_whose_events_are_owed_do_not_crowd_out_the_others():
    done = [
        chain(f"done{n}", status="acked", ended_at=NOW - MINUTE, event_pending=True)
        for n in range(7)
    ]
    store = Index([*done, *(chain(f"t{n}") for n in range(9))])
    read = look(store, 4)
    assert (len(read.chains), read.event_pending, read.more) == (4, 7, True)
    # However many they are, the work has an end.
    store = Index(
        [chain(f"d{n}", status="acked", ended_at=NOW, event_pending=True) for n in range(500)]
    )
    read = look(store, 4)
    assert (read.chains, read.event_pending, read.more) == ((), 16, True)


def test_an_item_that_is_no_chain_hides_no_chain():
    store = Index([chain("good"), chain("better")], damaged=["bad"])
    read = look(store, 10)
    assert {one.chain.tag for one in read.chains} == {"good", "better"}
    assert read.unreadable == (("bad", "KeyError: 'S'"),)


def test_a_table_that_does_not_answer_is_told_and_not_taken_for_a_damaged_item():
    class Away(Index):
        def read(self, tags):
            raise Unavailable(TimeoutError("no answer"))

    with pytest.raises(Unavailable, match="no answer"):
        look(Away([chain()]), 5)
