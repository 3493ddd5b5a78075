"""The widget's page in a headless Chromium: its layout and its colours."""

from __future__ import annotations

import re

import pytest

from tests.support.pictures import NOW, page, sample
from xorack.core.chain import Chain
from xorack.ops.snapshot import Snapshot
from xorack.ops.status import ChainStatus
from xorack.web.widget import render

WIDER = "document.scrollingElement.scrollWidth - innerWidth"
CUT = """[...document.querySelectorAll('td')]
    .filter((cell) => cell.scrollWidth > cell.clientWidth).map((cell) => cell.innerText)"""


@pytest.fixture(scope="module")
def shown(browser):
    """A function that shows HTML in the browser's one page here."""
    opened = browser.new_page()

    def show(source, width=1200):
        opened.set_viewport_size({"width": width, "height": 900})
        opened.goto("about:blank")  # what a test before has set in the window is gone
        opened.set_content(source)
        return opened

    yield show
    opened.close()


@pytest.mark.parametrize("width", [420, 1200])
def test_it_fits_its_place(shown, width):
    long = "/".join(["a-folder-of-some-length"] * 40)
    chains = (*sample().chains, ChainStatus(Chain(long, b"\1", "open", deadline=NOW + 1), NOW))
    opened = shown(page(render(Snapshot(NOW, chains)), width=width), width=max(500, width + 60))
    for spacing in ("0", "0.12em"):  # other fonts are as wide, and readers may set it (WCAG 1.4.12)
        opened.evaluate(f"document.body.style.letterSpacing = '{spacing}'")
        # In a narrow place it scrolls: nothing is cut or sticks out.
        assert opened.evaluate(WIDER) <= 0
        assert opened.evaluate(CUT) == []


COLOURS = """() => {
    const under = (one) => {
        const colour = getComputedStyle(one).backgroundColor;
        return colour === 'rgba(0, 0, 0, 0)' && one.parentElement
            ? under(one.parentElement) : colour;
    };
    return [...document.querySelectorAll('body :not(style)')]
        .filter((one) => [...one.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))
        .map((one) => [getComputedStyle(one).color, under(one), one.textContent]);
}"""


def light(colour: str) -> float:
    """Return the relative luminance of a CSS colour by WCAG."""
    parts = [int(part) / 255 for part in re.findall(r"[0-9]+", colour)[:3]]
    r, g, b = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def colours_with_contrast(page) -> set[str]:
    """Return the colours of a page's texts; each has enough contrast by WCAG."""
    found = page.evaluate(COLOURS)
    for colour, under, text in found:
        low, high = sorted((light(colour), light(under)))
        assert (high + 0.05) / (low + 0.05) >= 4.5, (page.url, text, colour, under)
    return {colour for colour, *_ in found}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_has_enough_contrast(shown, theme):
    assert len(colours_with_contrast(shown(page(render(sample(), theme), theme)))) >= 5
