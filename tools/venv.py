"""Make or mend the project's virtual environment; done in no time when there is nothing to do.

What is installed is known by a stamp: the hash of the files that say what to install. An
installation that was cut short leaves a mark behind, and the next run starts from scratch (what pip
downloaded is still in its cache). Runs at the same time wait for each other.

    python3 tools/venv.py [--same-python]
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
REQUIREMENTS: Final = ("requirements.txt", "requirements-dev.txt")
LOCK: Final = "requirements.lock"
SOURCES: Final = (LOCK, "pyproject.toml")
OLDEST: Final = (3, 10)


class SetupError(Exception):
    """The environment could not be made; the text says why and what helps."""


def made_of(root: Path) -> str:
    """What a lock file says that it was made of: a hash of what is required, comments apart.

    Args:
        root: The project's folder.
    """
    digest = hashlib.sha256()
    for name in REQUIREMENTS:
        for line in (root / name).read_text(encoding="utf-8").splitlines():
            if line.strip() and not line.startswith("#"):
                digest.update(line.strip().encode() + b"\n")
    return digest.hexdigest()


class Environment:
    """A virtual environment and what is known about it.

    Attributes:
        path: Its folder.
        root: The project's folder.
    """

    def __init__(self, path: Path, root: Path) -> None:
        self.path = path
        self.root = root
        self._stamp = path / ".xorack-installed"
        self._unfinished = path / ".xorack-installing"

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.path / "bin" / "python"

    def fingerprint(self) -> str:
        """What the stamp holds once everything is installed."""
        digest = hashlib.sha256()
        for name in SOURCES:
            digest.update(name.encode() + b"\0" + (self.root / name).read_bytes() + b"\0")
        return digest.hexdigest()

    def ready(self) -> bool:
        """Whether all is installed."""
        try:
            return self._stamp.read_text() == self.fingerprint() and self.python.exists()
        except OSError:
            return False

    def usable(self) -> bool:
        """Whether it can be installed into: whole, and of a Python that still runs."""
        return not self._unfinished.exists() and self.version() >= OLDEST

    def version(self) -> tuple[int, ...]:
        """The version of its Python, such as (3, 12); () if it does not run or has no pip."""
        code = "import pip, sys; print(*sys.version_info[:2])"
        try:
            answer = subprocess.run(
                [str(self.python), "-c", code], capture_output=True, text=True, check=True
            ).stdout
        except (OSError, subprocess.CalledProcessError):
            return ()
        return tuple(int(part) for part in answer.split())

    def create(self) -> None:
        """Make it anew, empty.

        Raises:
            SetupError: The venv module does not work here.
        """
        made = subprocess.run(
            [sys.executable, "-m", "venv", "--clear", str(self.path)],
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode != 0:
            raise SetupError(
                f"{sys.executable} cannot make a virtual environment (on Debian and Ubuntu: "
                f"apt install python3-venv):\n{(made.stdout + made.stderr).strip()}"
            )

    def install(self) -> None:
        """Install what the project needs, and the project itself.

        Only files whose hashes are in the lock file are installed.

        Raises:
            SetupError: pip failed, or the lock file is of other requirements.
        """
        locked = self.root / LOCK
        if f"# Made of: {made_of(self.root)}\n" not in locked.read_text(encoding="utf-8"):
            raise SetupError(f"{' or '.join(REQUIREMENTS)} was changed: make lock renews {LOCK}")
        self._stamp.unlink(missing_ok=True)
        self._unfinished.touch()
        failed = self._pip("--no-deps", "--require-hashes", "-r", str(locked)) or self._pip(
            "--no-deps", "--editable", str(self.root)
        )
        if failed is not None:
            raise SetupError(failed)
        self._stamp.write_text(self.fingerprint())
        self._unfinished.unlink()

    def _pip(self, *arguments: str) -> str | None:
        """Run `pip install`, telling of what takes long.

        Returns:
            None, or the end of what pip said if it failed.
        """
        command = [str(self.python), "-m", "pip", "install", "--disable-pip-version-check"]
        said: list[str] = []
        with subprocess.Popen(
            [*command, "--no-input", "--progress-bar=off", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.root,
        ) as process:
            for line in process.stdout or ():
                said.append(line)
                if news := worth_telling(line):
                    print(f"  {news}", flush=True)
        status = process.returncode
        if status == 0:
            return None
        if status > 0 and not any(line.startswith("Installing collected") for line in said):
            # Nothing was touched: pip downloads everything before it installs anything.
            self._unfinished.unlink(missing_ok=True)
        return "pip could not install what the project needs:\n" + "".join(said[-15:]).rstrip()


def worth_telling(line: str) -> str | None:
    """What to show of a line of pip's: large downloads, builds, the start of the installation.

    Args:
        line: A line that pip wrote.

    Returns:
        The text to show, or None.
    """
    large = re.match(r"\s*(?:Downloading|Using cached) (\S+) \((\d+(?:\.\d+)?) MB\)", line)
    if large and float(large[2]) >= 10:
        name = large[1].rsplit("/", 1)[-1]
        return f"{re.split(r'-[0-9]', name)[0]}, {float(large[2]):.0f} MB"
    if built := re.match(r"\s*Building wheel for (\S+) .*: started", line):
        return f"building {built[1]}"
    if line.startswith("Installing collected packages:"):
        count = line.count(",") + 1
        return f"installing {count} package{'s' if count > 1 else ''}"
    return None


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, so that two runs do not install at the same time."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Waiting for another run that sets up .venv", flush=True)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def set_up(environment: Environment, same_python: bool) -> None:
    """Bring an environment to what the project needs.

    Args:
        environment: The environment.
        same_python: Make it anew if it is of another Python version than the one that runs this.

    Raises:
        SetupError: It could not be made.
    """
    if environment.ready() and not same_python:
        return
    with alone(environment.root):
        other = same_python and environment.version() != tuple(sys.version_info[:2])
        if environment.ready() and not other:
            return
        began = time.monotonic()
        version = ".".join(map(str, sys.version_info[:2]))
        if other or not environment.usable():
            print(
                f"Setting up {environment.path.name} with Python {version}. The first time this "
                "downloads some 900 MB and takes a few minutes.",
                flush=True,
            )
            environment.create()
        else:
            print(f"Bringing {environment.path.name} up to date", flush=True)
        environment.install()
        print(f"{environment.path.name} is ready ({time.monotonic() - began:.0f} s)", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Set up `.venv` at the project's root.

    Args:
        arguments: The arguments; the process's by default.

    Returns:
        The exit status: 0, 1 if it could not be set up, 130 if interrupted.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument(
        "--same-python",
        action="store_true",
        help="make it anew if it is of another Python version than this one",
    )
    options = parser.parse_args(arguments)
    try:
        set_up(Environment(ROOT / ".venv", ROOT), options.same_python)
    except SetupError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted: the next run starts .venv from scratch", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
