"""The virtual environment that the embedded AWS runs in.

It is made at first use, and again when it is incomplete or its requirements change::

    python -m xorack.local.environment

prints the path of its Python.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from xorack.errors import LocalError

REQUIREMENTS = Path(__file__).with_name("requirements.lock")
"""Exact versions and hashes of all packages; `make lock` makes it of requirements.txt."""
_FINGERPRINT = "made-of"
_INHERITED = ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "PIP_USER", "VIRTUAL_ENV")
"""Variables of the caller's own environment that would change the new one."""


def default_directory() -> Path:
    """Return the environment's directory: in the checkout, or else in the user's cache."""
    root = Path(__file__).resolve().parents[2]
    if (root / "pyproject.toml").exists():
        return root / ".venv-ministack"
    # Installations of several versions share the cache: none replaces another's.
    return cache_folder() / f"ministack-{_fingerprint(REQUIREMENTS)[:12]}"


def cache_folder() -> Path:
    """Return the folder in the user's cache for what can be made again."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "xorack"


def ensure(
    directory: Path | None = None,
    requirements: Path = REQUIREMENTS,
    *,
    notify: Callable[[str], object] = lambda _: None,
) -> Path:
    """Make the environment unless it is complete, and return its Python.

    A fingerprint of the requirements and of this Python is written last; without the right one the
    environment is made again. One process makes it; others wait. `notify` gets one line before an
    installation starts.
    """
    directory = directory or default_directory()
    python = directory / "bin" / "python"
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        fingerprint = _fingerprint(requirements)
        if _is_complete(directory, fingerprint):  # its folder may be read-only
            return python
        # The lock lies beside the environment: `venv --clear` empties the directory.
        with open(f"{directory}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _is_complete(directory, fingerprint):
                notify(f"installing the embedded AWS into {directory}, some 10 to 45 s (once)")
                if directory.is_symlink():  # to another checkout's: `venv --clear` would empty it
                    directory.unlink()
                _run([sys.executable, "-m", "venv", "--clear", str(directory)])
                # A source distribution would run code whose dependencies have no hashes.
                options = ["--require-hashes", "--no-deps", "--only-binary", ":all:"]
                options += ["--disable-pip-version-check", "--no-input", "-q"]
                _run([str(python), "-m", "pip", "install", *options, "-r", str(requirements)])
                (directory / _FINGERPRINT).write_text(fingerprint)
    except OSError as error:
        raise LocalError(f"cannot make {directory}: {error}") from error
    return python


def remove(path: Path) -> bool:
    """Remove a folder or file of the cache, with its lock; return False if there is none."""
    exists = path.is_symlink() or path.exists()
    if path.is_symlink() or not path.is_dir():  # a link may lead to another checkout's
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path)
    Path(f"{path}.lock").unlink(missing_ok=True)
    return exists


def _fingerprint(requirements: Path) -> str:
    # An environment holds links to the Python that made it.
    parts = [requirements.read_text(), sys.version, os.path.realpath(sys.executable)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _is_complete(directory: Path, fingerprint: str) -> bool:
    try:
        kept = (directory / _FINGERPRINT).read_text()
    except OSError:
        return False
    return kept == fingerprint and (directory / "bin" / "python").exists()


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(
        command,
        env={name: value for name, value in os.environ.items() if name not in _INHERITED},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        last = next((line for line in lines if line.startswith("ERROR:")), (lines or ["?"])[-1])
        if any("connection broken by" in line for line in lines):
            last = f"cannot connect to the package index: is there a network? pip: {last}"
        raise LocalError(f"`{' '.join(command)}` failed: {last}")


def main() -> int:
    """Make the environment and print its Python; return the exit status, 1 for a failure."""
    try:
        print(ensure(notify=lambda line: print(line, file=sys.stderr)))
    except LocalError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
