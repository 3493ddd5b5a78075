"""The picture of a terminal shows what a terminal would, and loads nothing."""

import io
import re

from rich.console import Console
from rich.live import Live

from tools import terminal_picture
from tools.terminal_picture import abridged, picture, screen


def test_a_screen_is_what_is_left_after_rich_drew_over_it():
    out = Console(file=io.StringIO(), force_terminal=True, width=40)
    with Live("one\ntwo", console=out, auto_refresh=False) as live:
        out.print("[green]above[/green]")
        live.update("three\nfour", refresh=True)
    out.print("below")
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line).rstrip() for line in screen(out.file.getvalue())]
    assert lines == ["above", "three", "four", "below", ""]
    assert screen("\x1b[32mabove\x1b[0m\n")[0] == "\x1b[32mabove\x1b[0m"


def test_runs_of_lines_of_no_interest_become_an_ellipsis():
    lines = ["\x1b[32m✓\x1b[0m Java  17", "✓ split  x", "counts  y", "", "commonest words",
             "  55,175  self", "", "lost words", "  0123456789abcdef  a.py"]  # fmt: skip
    shown = [line.plain for line in abridged(lines)]
    assert shown == ["…", "✓ split  x", "…", "lost words", "  0123456789abcdef  a.py"]


def test_a_picture_loads_nothing():
    drawn = picture(abridged(["✓ split  a <b>"]))
    for svg in (drawn, terminal_picture.TARGET.read_text(encoding="utf-8")):
        assert not re.search(r"url\((?!#)|<image|@import|@font-face", svg)
        assert "make&#160;demo&#160;LOSE=3" in svg
    assert "a&#160;&lt;b&gt;" in drawn
    assert "the&#160;events&#160;name&#160;3&#160;of&#160;3" in svg
