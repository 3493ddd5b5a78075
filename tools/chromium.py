"""A headless Chromium: pages into pictures, and what a script finds in a page.

Debian's package is `chromium`; a Chrome does as well.
"""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_SECONDS: Final = 60


class NoChromium(Exception):
    """There is no Chromium on this machine."""


def find() -> str:
    """The browser's program.

    Returns:
        Its path: what $CHROMIUM names, else the first one on PATH.

    Raises:
        NoChromium: There is none.
    """
    named = os.environ.get("CHROMIUM")
    for name in (named,) if named else _NAMES:
        if (path := shutil.which(name)) is not None:
            return path
    raise NoChromium(f"there is no {named or _NAMES[0]}: apt-get install chromium")


def picture(page: str, target: Path, *, width: int, height: int) -> None:
    """Show a page and take a picture of it.

    Args:
        page: HTML.
        target: Where the PNG goes.
        width: Of the window, in pixels of the page; the picture has two for each.
        height: Likewise.

    Raises:
        NoChromium: There is no browser.
        RuntimeError: It failed; the text is what it said.
    """
    target.unlink(missing_ok=True)
    _run(
        page,
        f"--screenshot={target.resolve()}",
        f"--window-size={width},{height}",
        "--force-device-scale-factor=2",
        "--hide-scrollbars",
    )
    if not target.is_file():
        raise RuntimeError(f"{target}: the browser took no picture")


def ask(page: str, question: str, *, width: int = 1200, height: int = 900) -> Any:
    """Show a page, run a script in it, and return what it finds.

    Args:
        page: HTML, complete.
        question: The body of a JavaScript function that returns something that JSON knows.
        width: Of the window, in pixels.
        height: Likewise.

    Returns:
        What it returned.

    Raises:
        NoChromium: There is no browser.
        RuntimeError: It failed, or the script did; the text is what was said.
    """
    script = (
        "<script>addEventListener('load', () => {"
        "const said = document.createElement('pre'); said.id = 'said';"
        "try { said.textContent = JSON.stringify({found: (() => {" + question + "})()}); }"
        "catch (error) { said.textContent = JSON.stringify({error: String(error)}); }"
        "document.documentElement.append(said); });</script>"
    )
    shown = _run(page + script, "--dump-dom", f"--window-size={width},{height}")
    found = re.search(r'<pre id="said">(.*?)</pre>', shown, re.DOTALL)
    if found is None:
        raise RuntimeError("the script did not run")
    said = json.loads(html.unescape(found[1]))
    if "error" in said:
        raise RuntimeError(said["error"])
    return said["found"]


def _run(page: str, *arguments: str) -> str:
    program = find()
    with tempfile.TemporaryDirectory(prefix="chromium-") as folder:
        path = Path(folder, "page.html")
        path.write_text(page, encoding="utf-8")
        command = [
            program,
            "--headless",
            # Containers have neither the privileges for a sandbox nor a large /dev/shm; the page
            # is ours, and there is no network for it.
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--disable-extensions",
            "--disable-background-networking",
            "--disable-component-update",
            "--no-first-run",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--user-data-dir={folder}/profile",
            "--virtual-time-budget=2000",
            *arguments,
            path.as_uri(),
        ]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if ran.returncode != 0:
        raise RuntimeError(f"{program} ended with status {ran.returncode}: {ran.stderr[-2000:]}")
    return ran.stdout
