"""Headless Chromium for the tests and pictures of pages, driven by Playwright.

The browser and its one font come from an npm package, pinned and hashed in tools/browser: what a
page looks like depends on nothing of the machine.
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from tests.support.npm import Environ, install

FOLDER = Path(__file__).parents[2] / "tools" / "browser"
_UNPACKED = FOLDER / "node_modules" / ".unpacked"
_PARTS = ("chromium", "al2023.tar", "fonts.tar")
_UNPACK = """
import {inflate} from '@sparticuz/chromium'
const [, bin, ...parts] = process.argv
await Promise.all(parts.map((part) => inflate(`${bin}/${part}.br`)))
"""
# The package's own names folders of Lambda.
_FONTS = """<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig>
<dir prefix="relative">fonts</dir><cachedir prefix="xdg">fontconfig</cachedir></fontconfig>
"""
_ARGUMENTS = (
    # Containers have a small /dev/shm. There is no network but the loopback interface.
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
)


class NoBrowser(Exception):
    """npm has no browser for this machine; the text says why."""


def installed() -> Path:
    """Return the folder of npm's Chromium, its libraries and its font; install it once.

    Raises:
        NoBrowser: The package has none for this machine.
        subprocess.CalledProcessError: npm or node failed.
    """
    machine = f"{platform.system()} {platform.machine()}"
    if machine != "Linux x86_64":
        raise NoBrowser(f"npm's package has no Chromium for {machine}")

    def unpack(environ: Environ) -> None:
        _UNPACKED.mkdir()
        node = ("node", "--input-type=module", "--eval", _UNPACK)
        bin_ = FOLDER / "node_modules" / "@sparticuz" / "chromium" / "bin"
        # The package unpacks into the folder of temporary files.
        environ["TMPDIR"] = str(_UNPACKED)
        subprocess.run([*node, bin_, *_PARTS], cwd=FOLDER, env=environ, check=True)
        (_UNPACKED / "fonts.conf").write_text(_FONTS)

    install(FOLDER, unpack)
    return _UNPACKED


@contextmanager
def running_browser() -> Iterator[Browser]:
    """Run npm's browser."""
    folder = installed()
    environ = {
        **os.environ,
        "LD_LIBRARY_PATH": str(folder / "al2023" / "lib"),
        "FONTCONFIG_FILE": str(folder / "fonts.conf"),
        "XDG_CACHE_HOME": str(folder),
    }
    program = str(folder / "chromium")
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(
            executable_path=program, args=_ARGUMENTS, env=environ, timeout=120_000
        ) as started,
    ):
        yield started
