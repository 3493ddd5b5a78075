"""A headless Chromium for tests and pictures of pages, driven over its DevTools protocol.

It is the one that $CHROMIUM names, or the machine's, or else the one of an npm package, pinned and
hashed in tools/browser/package-lock.json, which brings the libraries that bare machines lack.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import platform
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tools.venv import locked

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FOLDER = Path(__file__).parent / "browser"
_UNPACKED = _FOLDER / "node_modules" / ".unpacked"
_UNPACK = """
import {inflate} from '@sparticuz/chromium'
const bin = 'node_modules/@sparticuz/chromium/bin/'
await Promise.all(['chromium.br', 'al2023.tar.br', 'fonts.tar.br'].map(f => inflate(bin + f)))
"""
# The package's own has the paths of Lambda. The machine's fonts come first.
_FONTS = """<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig>
<include ignore_missing="yes">/etc/fonts/fonts.conf</include>
<dir prefix="relative">fonts</dir></fontconfig>
"""
_OPTIONS = (
    "--headless",
    # Containers have neither the privileges for a sandbox nor a large /dev/shm. The pages are
    # ours, and there is no network but the loopback interface.
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--remote-debugging-pipe",
)
# Chromium talks over its file descriptors 3 and 4, which subprocess cannot choose.
_LAUNCH = """
import fcntl, os, sys
pipes = [fcntl.fcntl(int(n), fcntl.F_DUPFD, 10) for n in sys.argv[1:3]]
for number, pipe in enumerate(pipes, 3): os.dup2(pipe, number)
os.execv(sys.argv[3], sys.argv[3:])
"""
_KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32}
_PATIENCE = 30.0
"""Seconds for a response, or for a condition to become true."""


class NoChromium(Exception):
    """The machine has no Chromium, and none can be installed; the text says why."""


class NoBuild(NoChromium):
    """There is no Chromium for this machine in the package."""


def find() -> str:
    """Return the path of the browser; install the npm package's if the machine has none.

    Raises:
        NoBuild: The machine has none, and the package has none for it.
        NoChromium: $CHROMIUM names no program, or npm failed.
    """
    named = os.environ.get("CHROMIUM")
    for name in (named,) if named else _NAMES:
        if (path := shutil.which(name)) is not None:
            return path
    if named:
        raise NoChromium(f"there is no {named}: CHROMIUM names it")
    return str(_install())


def _install() -> Path:
    """Install the locked package and unpack its browser, unless it is there."""
    machine = f"{platform.system()} {platform.machine()}"
    if machine != "Linux x86_64":
        raise NoBuild(
            f"npm's package has no Chromium for {machine}: install Chromium or Chrome, and name it "
            "by the variable CHROMIUM"
        )
    lock, stamp = (_FOLDER / "package-lock.json").read_text(), _UNPACKED / "installed"
    with locked(_FOLDER):
        if not (stamp.is_file() and stamp.read_text() == lock):
            npm = ("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
            _run(*npm)
            _UNPACKED.mkdir()
            _run("node", "--input-type=module", "--eval", _UNPACK)
            (_UNPACKED / "fonts" / "fonts.conf").write_text(_FONTS)
            stamp.write_text(lock)
    return _UNPACKED / "chromium"


def _run(*command: str) -> None:
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    # The package unpacks into the folder of temporary files.
    environ = {**os.environ, "PATH": programs, "TMPDIR": str(_UNPACKED)}
    done = subprocess.run(
        command, cwd=_FOLDER, env=environ,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise NoChromium(f"no Chromium: {command[0]} failed: {done.stdout[-500:]}")


class Browser:
    """A running browser; its pages share one profile, which ends with it.

    Raises:
        NoChromium: There is none.
    """

    def __init__(self) -> None:
        program = find()
        self._folder = tempfile.TemporaryDirectory(prefix="chromium-")
        environ = {**os.environ, "HOME": self._folder.name}
        if Path(program).parent == _UNPACKED:
            environ["LD_LIBRARY_PATH"] = str(_UNPACKED / "al2023" / "lib")
            environ["FONTCONFIG_FILE"] = str(_UNPACKED / "fonts" / "fonts.conf")
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        pipes = (theirs_in, theirs_out)
        profile = f"--user-data-dir={self._folder.name}/profile"
        with open(f"{self._folder.name}/log", "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-ISc", _LAUNCH, *map(str, pipes), program, *_OPTIONS, profile],
                env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=pipes,
                start_new_session=True,
            )  # fmt: skip
        for pipe in pipes:
            os.close(pipe)
        self._last = 0
        self._received = b""
        self._pages: dict[str, Page] = {}

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the browser."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._in)
        os.close(self._out)
        with contextlib.suppress(OSError):  # a dying process may have written a file
            self._folder.cleanup()

    def open(
        self, page: str, *, width: int = 1200, height: int = 900, scale: int = 1, dark: bool = False
    ) -> Page:
        """Open a page: HTML, or a URL. A picture has `scale` pixels for one of the window."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        opened = self._pages[session] = Page(self, session, target)
        for domain in ("Page", "Runtime", "Log"):
            opened.call(f"{domain}.enable")
        metrics = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False}
        opened.call("Emulation.setDeviceMetricsOverride", **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        opened.call("Emulation.setEmulatedMedia", features=[scheme])
        if not page.startswith("http://"):
            path = Path(self._folder.name, f"{len(self._pages)}.html")
            path.write_text(page, encoding="utf-8")
            page = path.as_uri()
        opened.go(page)
        return opened

    def call(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol; raise RuntimeError if it fails."""
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + _PATIENCE
        while True:
            response = self._receive(deadline)
            if response.get("id") == self._last:
                if "error" in response:
                    raise RuntimeError(f"{method}: {response['error']}")
                return dict(response["result"])
            if page := self._pages.get(response.get("sessionId", "")):
                page.note(response)

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._received:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            part = os.read(self._in, 1 << 20) if ready else b""
            if not part:
                log = Path(self._folder.name, "log").read_text(errors="replace")[-2000:]
                raise RuntimeError(f"the browser {'ended' if ready else 'hangs'}: {log}")
            self._received += part
        message, _, self._received = self._received.partition(b"\0")
        return dict(json.loads(message))


class Page:
    """An open page.

    Attributes:
        problems: Errors of its scripts, and what its content security policy blocked.
    """

    def __init__(self, browser: Browser, session: str, target: str) -> None:
        self.problems: list[str] = []
        self._browser = browser
        self._session = session
        self._target = target

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol for this page."""
        return self._browser.call(method, self._session, **parameters)

    def note(self, event: dict[str, Any]) -> None:
        """Note an event of the page, if it is a problem."""
        parameters = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description", details["text"]))
        elif event.get("method") == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.problems.append(parameters["entry"]["text"])

    def go(self, url: str) -> None:
        """Go to a URL, and wait until it is loaded."""
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def evaluate(self, script: str) -> Any:
        """Run a script, the body of a function, and return its JSON value; await a promise.

        Raises:
            RuntimeError: The script failed.
        """
        arguments = {"returnByValue": True, "awaitPromise": True, "userGesture": True}
        code = f"(() => {{{script}\n}})()"
        result = self.call("Runtime.evaluate", expression=code, **arguments)
        if details := result.get("exceptionDetails"):
            raise RuntimeError(details.get("exception", {}).get("description", details["text"]))
        return result["result"].get("value")

    def wait(self, expression: str) -> None:
        """Wait until an expression is true, perhaps on the next page."""
        deadline = time.monotonic() + _PATIENCE
        problem = ""
        while time.monotonic() < deadline:
            try:
                if self.evaluate(f"return Boolean({expression})"):
                    return
            except RuntimeError as error:  # its page is being left
                problem = str(error)
            time.sleep(0.02)
        text = self.evaluate("return document.body.innerText")
        raise RuntimeError(f"never true: {expression}; {problem} the page: {text[:2000]}")

    def click(self, selector: str) -> None:
        """Click an element as a mouse does: scroll to it, press and release."""
        x, y = self.evaluate(
            f"const one = document.querySelector({json.dumps(selector)});"
            "one.scrollIntoView({block: 'center'}); const [box] = one.getClientRects();"
            "return [box.x + box.width / 2, box.y + box.height / 2]"
        )
        for kind in ("mousePressed", "mouseReleased"):
            place = {"x": x, "y": y, "button": "left", "clickCount": 1}
            self.call("Input.dispatchMouseEvent", type=kind, **place)

    def press(self, key: str) -> None:
        """Press a key: one of the named ones, or a character."""
        text = {"text": "\r" if key == "Enter" else key} if len(key) == 1 or key == "Enter" else {}
        code = {"key": key, "windowsVirtualKeyCode": _KEYS.get(key, ord(key[0].upper()))}
        self.call("Input.dispatchKeyEvent", type="keyDown", **code, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **code)

    def picture(self, target: Path, *, whole: bool = False) -> None:
        """Take a PNG of the window, or of the whole page."""
        data = self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        target.write_bytes(base64.b64decode(data))

    def close(self) -> None:
        """Close the page."""
        self._browser.call("Target.closeTarget", targetId=self._target)
