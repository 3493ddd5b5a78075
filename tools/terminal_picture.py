"""Makes docs/images/lost-words.svg: runs `make demo LOSE=3` and draws what the terminal shows.

.venv/bin/python -m tools.terminal_picture
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

ROOT: Final = Path(__file__).resolve().parent.parent
TARGET: Final = ROOT / "docs" / "images" / "lost-words.svg"
TITLE: Final = "make demo LOSE=3"
COMMAND: Final = (sys.executable, "-m", "demo", "--lose", "3")
LEFT_OUT: Final = re.compile(r"✓ (Java|stack|AWS) |counts  |commonest words|  +[\d,]+  ")
"""Beginnings of lines that are of no interest in the picture."""
WIDTH: Final = 100
_CONTROL: Final = re.compile(r"(\n|\r|\x1b\[\??\d*[A-Zhl])")
# A picture on GitHub can load no fonts.
_FORMAT: Final = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL).replace(
    "Fira Code", "ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono"
)


def screen(output: str) -> list[str]:
    """Return the lines that a terminal shows at the end, with their colours.

    Knows what rich uses to draw over its progress: a new line, cursor up, erase the line.
    """
    lines, row = [""], 0
    for part in _CONTROL.split(output):
        if part == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif part == "\x1b[1A":
            row -= 1
        elif part == "\x1b[2K":
            lines[row] = ""
        elif not _CONTROL.fullmatch(part):
            lines[row] += part
    return lines


def abridged(lines: Iterable[str]) -> list[Text]:
    """Leave out the lines of no interest; an ellipsis takes the place of each run of them."""
    kept: list[Text] = []
    for line in map(Text.from_ansi, lines):
        left_out = kept and kept[-1].plain == "…"
        if LEFT_OUT.match(line.plain):
            kept += [] if left_out else [Text("…", style="dim")]
        elif line.plain or not left_out:
            kept.append(line)
    return kept


def picture(lines: Sequence[Text]) -> str:
    """Draw lines of a terminal as an SVG."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text.assemble(("$ ", "bold green"), (TITLE, "bold")))
    for line in lines:
        console.print(line, overflow="ellipsis", no_wrap=True, highlight=False)
    console.print()  # otherwise the frame cuts the last line's descenders off
    return console.export_svg(title="", code_format=_FORMAT, unique_id="terminal")


def main() -> int:
    """Run the demo, print its output and make the picture; return the demo's exit status."""
    environment = {**os.environ, "FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": str(WIDTH)}
    process = subprocess.run(
        COMMAND, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=False
    )
    lines = screen(process.stdout.decode())
    print("\n".join(lines).rstrip())
    if process.returncode == 0:
        TARGET.write_text(picture(abridged(lines[:-1])), encoding="utf-8")
    return process.returncode


if __name__ == "__main__":
    sys.exit(main())
