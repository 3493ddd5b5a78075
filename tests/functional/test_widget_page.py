"""The widget's page in a headless Chromium: its layout, and that no text in it runs."""

from __future__ import annotations

import pytest

from tools.screenshots import NOW, page, sample
from xorack.core.chain import Chain
from xorack.core.errors import NotAChain
from xorack.ops.snapshot import Snapshot
from xorack.ops.status import ChainStatus
from xorack.web.widget import render

pytestmark = [pytest.mark.browser, pytest.mark.thorough]


def evaluate(browser, source, script, width=1200):
    opened = browser.open(source, width=width)
    try:
        return opened.evaluate(script)
    finally:
        opened.close()


LAYOUT = """
const box = (node) => node.getBoundingClientRect();
const widget = document.querySelector('#widget .xorack');
const bars = [...widget.querySelectorAll('.bar')].map((bar) => ({
    share: box(bar.firstElementChild).width / box(bar).width,
    height: box(bar.firstElementChild).height,
    inside: box(bar).right <= box(bar.closest('td')).right,
    colour: getComputedStyle(bar.firstElementChild).fill,
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
def layout(browser):
    return evaluate(browser, page(render(sample())), LAYOUT)


def test_each_chain_is_a_row_of_straight_columns(layout):
    assert len(layout["rows"]) == len(sample().chains)
    assert len({tuple(row) for row in layout["columns"]}) == 1
    assert layout["columns"][0] == sorted(set(layout["columns"][0]))
    first = layout["rows"][0]
    assert "warehouse/2026-03-01/orders-00017.parquet" in first
    assert "99.9 % 48,208 of 48,210" in first
    assert "passed 1 min 24 s ago" in first


def test_bars_are_as_long_as_the_progress(layout):
    percents = [one.percent or 0 for one in sample().chains]
    shares = [bar["share"] for bar in layout["bars"] if not bar["thin"]]
    assert shares == pytest.approx([percent / 100 for percent in percents], abs=0.005)
    assert all(bar["inside"] and bar["height"] >= 3 for bar in layout["bars"])


def test_a_passed_deadline_has_another_colour(layout):
    thin = [bar["colour"] for bar in layout["bars"] if bar["thin"]]
    states = [one.deadline <= NOW for one in sample().chains]
    late = {colour for colour, passed in zip(thin, states, strict=True) if passed}
    others = {colour for colour, passed in zip(thin, states, strict=True) if not passed}
    assert late == {layout["late"]}
    assert not late & others


def test_long_lists_of_units_are_collapsed(layout):
    assert layout["more"]
    assert all(not is_open and height < 30 for is_open, height in layout["more"])


@pytest.mark.parametrize("width", [420, 1200])
def test_it_fits_its_place(browser, width):
    long = "/".join(["a-folder-of-some-length"] * 40)
    chains = (*sample().chains, ChainStatus(Chain(long, b"\1", "open", deadline=NOW + 1), NOW))
    source = page(render(Snapshot(NOW, chains)), width=width)
    result = evaluate(browser, source, LAYOUT, width=max(500, width + 60))
    # In a narrow place it scrolls: nothing is cut or sticks out.
    assert result["wider"] <= 0
    assert result["cut"] == 0


HACKS = (
    "<script>window.hacked = (window.hacked || 0) + 1</script>",
    "<img src=x onerror='window.hacked = (window.hacked || 0) + 1'>",
    '"><svg onload="window.hacked = (window.hacked || 0) + 1">',
    "</style></td></table><script>window.hacked = (window.hacked || 0) + 1</script>",
    "' onmouseover='window.hacked = (window.hacked || 0) + 1",
)


def test_no_text_of_others_runs_or_becomes_an_element(browser):
    chains = tuple(
        ChainStatus(Chain(text, b"\1", "open", failing=text, deadline=NOW + n), NOW)
        for n, text in enumerate(HACKS)
    )
    source = render(Snapshot(NOW, chains, invalid=tuple(NotAChain(text, text) for text in HACKS)))
    result = evaluate(
        browser,
        page(source),
        """
        const widget = document.querySelector('#widget .xorack');
        return {
            hacked: window.hacked === undefined ? null : window.hacked,
            elements: widget.querySelectorAll(
                'script,img,svg:not(.bar),a,iframe,[onmouseover]').length,
            tags: [...widget.querySelectorAll('.tag')].map((node) => node.innerText),
            titles: [...widget.querySelectorAll('.tag')].map((node) => node.title),
        };
        """,
    )
    assert result == {"hacked": None, "elements": 0, "tags": list(HACKS), "titles": list(HACKS)}


def test_the_browser_runs_such_text_unescaped(browser):
    # Otherwise the test before proves nothing.
    script, image, attribute, *_ = HACKS
    source = page(f'<div title="x">{script}{image}</div><div title="{attribute}"></div>')
    assert evaluate(browser, source, "return window.hacked") == 3


def contrast(one: str, other: str) -> float:
    """Return the contrast of two CSS colours by WCAG, 1 to 21."""

    def light(colour: str) -> float:
        parts = [int(p) / 255 for p in colour[colour.index("(") + 1 : -1].split(",")[:3]]
        r, g, b = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_has_enough_contrast(browser, theme):
    result = evaluate(
        browser,
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
    assert len(result["colours"]) >= 5
    for colour in result["colours"]:
        assert contrast(colour, result["under"]) >= 4.5, colour
