"""The virtual environment in which the embedded AWS runs.

The environment is made at the first use, and again if it is incomplete or its requirements change.
This command makes the environment and prints the path of its Python::

    python -m xorack.local.environment
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from xorack.errors import LocalError

REQUIREMENTS = Path(__file__).with_name("requirements.lock")
"""The exact versions and hashes of all packages. `make lock` makes it from requirements.txt."""
_FINGERPRINT = "made-of"
_INHERITED = ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "PIP_USER", "VIRTUAL_ENV")
"""Variables of the caller's environment that would affect the new environment."""


def default_directory() -> Path:
    """Return the environment's folder: in the checkout, or else in the user's cache."""
    root = Path(__file__).resolve().parents[2]
    if (root / "pyproject.toml").exists():
        return root / ".venv-ministack"
    # Versions of xorack share the cache, and each has a folder of its own.
    return cache_folder() / f"ministack-{_fingerprint(REQUIREMENTS)[:12]}"


def cache_folder() -> Path:
    """Return a folder in the user's cache, for files that can be made again."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "xorack"


def ensure(
    directory: Path | None = None,
    requirements: Path = REQUIREMENTS,
    *,
    notify: Callable[[str], object] = lambda _: None,
) -> Path:
    """Make the environment unless it is complete, and return its Python.

    A fingerprint of the requirements and of this Python is written last. If the fingerprint is
    missing or differs, the environment is made again. Only one process at a time makes the
    environment. `notify` is called with a line before an installation.
    """
    directory = directory or default_directory()
    python = directory / "bin" / "python"
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        fingerprint = _fingerprint(requirements)
        if _is_complete(directory, fingerprint):  # check first: the folder may be read-only
            return python
        # The lock is beside the environment, because `venv --clear` empties the folder.
        with open(f"{directory}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _is_complete(directory, fingerprint):
                notify(f"installing the embedded AWS into {directory}: about 10 to 45 s, once")
                if directory.is_symlink():  # `venv --clear` would empty another checkout's folder
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


def _fingerprint(requirements: Path) -> str:
    # An environment has links to the Python that made it, so the Python is part of it.
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
            last = f"cannot connect to the package index: check the network. pip: {last}"
        raise LocalError(f"`{' '.join(command)}` failed: {last}")


def main() -> int:
    """Make the environment and print the path of its Python. Return 0, or 1 after a failure."""
    try:
        print(ensure(notify=lambda line: print(line, file=sys.stderr)))
    except LocalError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
