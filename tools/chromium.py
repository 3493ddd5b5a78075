"""A headless Chromium (or Chrome) that takes pictures of pages and runs scripts in them."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_OPTIONS = (
    "--headless",
    # Containers have neither the privileges for a sandbox nor a large /dev/shm. The page is ours,
    # and it has no network.
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--virtual-time-budget=2000",
)


class NoChromium(Exception):
    """The machine has no Chromium."""


def find() -> str:
    """Return the path of the browser: the one that $CHROMIUM names, or the first on PATH.

    Raises:
        NoChromium: The machine has no such program.
    """
    named = os.environ.get("CHROMIUM")
    for name in (named,) if named else _NAMES:
        if (path := shutil.which(name)) is not None:
            return path
    raise NoChromium(f"there is no {named or _NAMES[0]}: apt-get install chromium")


def picture(page: str, target: Path, *, width: int, height: int) -> None:
    """Take a PNG of an HTML page in a window of some pixels; the picture has two for each."""
    target.unlink(missing_ok=True)
    options = ("--force-device-scale-factor=2", "--hide-scrollbars")
    _run(page, f"--screenshot={target.resolve()}", f"--window-size={width},{height}", *options)
    if not target.is_file():
        raise RuntimeError(f"{target}: the browser took no picture")


def evaluate(page: str, script: str, *, width: int = 1200, height: int = 900) -> Any:
    """Run a script in an HTML page: the body of a function that returns a JSON value.

    Raises:
        NoChromium: The machine has no browser.
        RuntimeError: The browser or the script failed.
    """
    element = (
        "<script>addEventListener('load', () => {"
        "const result = document.createElement('pre'); result.id = 'result';"
        "try { result.textContent = JSON.stringify({value: (() => {" + script + "})()}); }"
        "catch (error) { result.textContent = JSON.stringify({error: String(error)}); }"
        "document.documentElement.append(result); });</script>"
    )
    dump = _run(page + element, "--dump-dom", f"--window-size={width},{height}")
    match = re.search(r'<pre id="result">(.*?)</pre>', dump, re.DOTALL)
    result = json.loads(html.unescape(match[1])) if match else {"error": "the script did not run"}
    if "error" in result:
        raise RuntimeError(result["error"])
    return result.get("value")


def _run(page: str, *options: str) -> str:
    program = find()
    with tempfile.TemporaryDirectory(prefix="chromium-") as folder:
        path = Path(folder, "page.html")
        path.write_text(page, encoding="utf-8")
        profile = f"--user-data-dir={folder}/profile"
        command = [program, *_OPTIONS, profile, *options, path.as_uri()]
        process = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if process.returncode != 0:
        problem = process.stderr[-2000:]
        raise RuntimeError(f"{program} ended with status {process.returncode}: {problem}")
    return process.stdout
