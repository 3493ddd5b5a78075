"""The browser that the tests of pages run in, and the pictures of the docs."""

import re

from tools.pictures import TARGET
from xorack.core.notebook import table


def test_fonts_of_the_machine_play_no_part(browser):
    page = browser.new_page()
    families = ("monospace", "sans-serif", "DejaVu Sans", "Helvetica")
    page.set_content("".join(f"<p style='font-family:{one}'>million</p>" for one in families))
    devtools = page.context.new_cdp_session(page)
    devtools.send("DOM.enable")
    devtools.send("CSS.enable")
    root = devtools.send("DOM.getDocument")["root"]["nodeId"]
    found = devtools.send("DOM.querySelectorAll", {"nodeId": root, "selector": "p"})
    for node in found["nodeIds"]:
        fonts = devtools.send("CSS.getPlatformFontsForNode", {"nodeId": node})["fonts"]
        assert [font["familyName"] for font in fonts] == ["Open Sans"]
    page.close()


def test_a_picture_loads_nothing():
    pictures = {path.name: path.read_text(encoding="utf-8") for path in TARGET.glob("*.svg")}
    assert "make&#160;demo&#160;LOSE=3" in pictures["lost-words.svg"]
    for name, picture in pictures.items():
        assert not re.search(r"url\((?!#)|<image|@import|@font-face", picture), name


def test_what_a_notebook_shows_has_the_colour_of_its_theme(browser):
    """A table has the colour even in a frame without a doctype, and a tag in a name is text."""
    page = browser.new_page()
    shown = table("Rows of <script>document.title = 1</script>", {"<script>": "<b>"})
    page.set_content(f"<body style='background:#111;color:#ddd'>{shown}")
    colours = "cells => cells.map(cell => [getComputedStyle(cell).color, cell.textContent])"
    assert page.locator("th, td, strong").evaluate_all(colours) == [
        ["rgb(221, 221, 221)", text]
        for text in ("Rows of <script>document.title = 1</script>", "<script>", "<b>")
    ]
    assert page.title() == ""
    page.close()
