"""The widget's page in a real headless Chromium: what is seen, and that nothing in it runs."""

from __future__ import annotations

import pytest

from tools import chromium
from tools.screenshots import NOW, page, sample
from xorack.core.chain import Chain
from xorack.ops.dashboard import Overview, render
from xorack.ops.status import status_of

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module", autouse=True)
def _browser():
    try:
        chromium.find()
    except chromium.NoChromium as none:
        pytest.skip(str(none))


SEEN = """
const box = (node) => node.getBoundingClientRect();
const widget = document.querySelector('#widget .xorack');
const bars = [...widget.querySelectorAll('.bar')].map((bar) => ({
    share: box(bar.firstElementChild).width / box(bar).width,
    height: box(bar.firstElementChild).height,
    inside: box(bar).right <= box(bar.closest('td')).right,
    colour: getComputedStyle(bar.firstElementChild).backgroundColor,
    thin: bar.classList.contains('thin'),
}));
const rows = [...widget.querySelectorAll('tbody tr')];
const columns = rows.map((row) => [...row.children].map((cell) => Math.round(box(cell).left)));
return {
    rows: rows.map((row) => row.innerText),
    columns, bars,
    wider: document.scrollingElement.scrollWidth - innerWidth,
    cut: [...widget.querySelectorAll('td')].filter((c) => c.scrollWidth > c.clientWidth).length,
    more: [...widget.querySelectorAll('details')].map((d) => [d.open, box(d).height]),
    text: getComputedStyle(widget).color,
    late: getComputedStyle(widget.querySelector('.late')).color,
};
"""


@pytest.fixture(scope="module")
def seen():
    return chromium.ask(page(render(sample())), SEEN)


def test_each_chain_is_a_row_and_the_columns_are_straight(seen):
    assert len(seen["rows"]) == len(sample().chains)
    assert len({tuple(row) for row in seen["columns"]}) == 1
    assert seen["columns"][0] == sorted(set(seen["columns"][0]))
    first = seen["rows"][0]
    assert "warehouse/2026-03-01/orders-00017.parquet" in first
    assert "99.9 % 48,208 of 48,210" in first
    assert "passed 1 min 24 s ago" in first


def test_bars_are_as_long_as_the_progress(seen):
    percents = [one.percent or 0 for one in sample().chains]
    shares = [bar["share"] for bar in seen["bars"] if not bar["thin"]]
    assert shares == pytest.approx([percent / 100 for percent in percents], abs=0.005)
    assert all(bar["inside"] and bar["height"] >= 3 for bar in seen["bars"])


def test_a_deadline_that_passed_has_another_colour(seen):
    thin = [bar["colour"] for bar in seen["bars"] if bar["thin"]]
    states = [one.deadline <= NOW for one in sample().chains]
    late = {colour for colour, passed in zip(thin, states, strict=True) if passed}
    others = {colour for colour, passed in zip(thin, states, strict=True) if not passed}
    assert late == {seen["late"]}
    assert not late & others


def test_long_lists_of_units_are_closed_at_first(seen):
    assert seen["more"]
    assert all(not is_open and height < 30 for is_open, height in seen["more"])


@pytest.mark.parametrize("width", [420, 1200])
def test_it_fits_where_it_is_put(width):
    long = "/".join(["a-folder-of-some-length"] * 40)
    chains = (*sample().chains, status_of(Chain(long, b"\1", "open", deadline=NOW + 1), NOW))
    found = chromium.ask(
        page(render(Overview(NOW, chains)), width=width), SEEN, width=max(500, width + 60)
    )
    # In a narrow place it scrolls by itself: nothing is cut, and nothing sticks out.
    assert found["wider"] <= 0
    assert found["cut"] == 0


HACKS = (
    "<script>window.hacked = (window.hacked || 0) + 1</script>",
    "<img src=x onerror='window.hacked = (window.hacked || 0) + 1'>",
    '"><svg onload="window.hacked = (window.hacked || 0) + 1">',
    "</style></td></table><script>window.hacked = (window.hacked || 0) + 1</script>",
    "' onmouseover='window.hacked = (window.hacked || 0) + 1",
)


def test_nothing_that_others_wrote_runs_or_becomes_a_part_of_the_page():
    chains = tuple(
        status_of(Chain(text, b"\1", "open", failing=text, deadline=NOW + n), NOW)
        for n, text in enumerate(HACKS)
    )
    source = render(Overview(NOW, chains, unreadable=tuple((text, text) for text in HACKS)))
    found = chromium.ask(
        page(source),
        """
        const widget = document.querySelector('#widget .xorack');
        return {
            hacked: window.hacked === undefined ? null : window.hacked,
            strange: widget.querySelectorAll('script,img,svg,a,iframe,[onmouseover]').length,
            tags: [...widget.querySelectorAll('.tag')].map((node) => node.innerText),
            titles: [...widget.querySelectorAll('.tag')].map((node) => node.title),
        };
        """,
    )
    assert found == {"hacked": None, "strange": 0, "tags": list(HACKS), "titles": list(HACKS)}


def test_the_browser_would_run_it():
    # Or the test before says nothing.
    script, image, attribute, *_ = HACKS
    source = page(f'<div title="x">{script}{image}</div><div title="{attribute}"></div>')
    assert chromium.ask(source, "return window.hacked") == 3


def contrast(one: str, other: str) -> float:
    """The contrast of two CSS colours, 1 to 21, as WCAG has it."""

    def light(colour: str) -> float:
        parts = [int(p) / 255 for p in colour[colour.index("(") + 1 : -1].split(",")[:3]]
        r, g, b = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_can_be_read_on_its_background(theme):
    found = chromium.ask(
        page(render(sample(), theme), theme),
        """
        const nodes = document.querySelectorAll('#widget .xorack, #widget .xorack *');
        return {
            under: getComputedStyle(document.body).backgroundColor,
            colours: [...new Set([...nodes].filter((n) => n.innerText)
                .map((n) => getComputedStyle(n).color))],
        };
        """,
    )
    assert len(found["colours"]) >= 5
    for colour in found["colours"]:
        assert contrast(colour, found["under"]) >= 4.5, colour
