"""The virtual environment that the embedded AWS runs in.

Made when first needed, made again when its requirements change or when it is only half there::

    python -m xorack.local.environment

prints the path of its Python.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from xorack.local.errors import EnvironmentFailed

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
_STAMP = "made-of"
_INSTALL_SECONDS = 900


def default_directory() -> Path:
    """Returns where the environment lies: beside the checkout's own, else in the user's cache.

    Returns:
        The directory; it need not exist yet.
    """
    root = Path(__file__).resolve().parents[2]
    if (root / "pyproject.toml").exists():
        return root / ".venv-ministack"
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "xorack" / "ministack"


def ensure(
    directory: Path | None = None,
    requirements: Path = REQUIREMENTS,
    *,
    tell: Callable[[str], object] = lambda _: None,
) -> Path:
    """Makes the environment unless it is there, and returns its Python.

    A stamp, written last, says what it was made of: without the right one (an install that was
    interrupted, other requirements, another Python) everything is made anew. Only one process makes
    it at a time; the others wait.

    Args:
        directory: Where it lies; default `default_directory()`.
        requirements: What to install.
        tell: Called with one line before something slow begins.

    Returns:
        Path of the environment's Python.

    Raises:
        EnvironmentFailed: It could not be made; the message has the last line of what failed.
    """
    directory = directory or default_directory()
    python = directory / "bin" / "python"
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        made_of = _made_of(requirements)
        if _complete(directory, python, made_of):
            return python
        with _lock(directory):
            if not _complete(directory, python, made_of):
                tell(f"installing the embedded AWS into {directory}")
                _make(directory, python, requirements)
                (directory / _STAMP).write_text(made_of)
    except OSError as error:
        raise EnvironmentFailed(f"cannot make {directory}: {error}") from error
    return python


def _made_of(requirements: Path) -> str:
    # The Python counts too: an environment holds links to the one that made it.
    told = [requirements.read_text(), sys.version, os.path.realpath(sys.executable)]
    return hashlib.sha256("\0".join(told).encode()).hexdigest()


def _complete(directory: Path, python: Path, made_of: str) -> bool:
    try:
        return python.exists() and (directory / _STAMP).read_text() == made_of
    except OSError:
        return False


def _make(directory: Path, python: Path, requirements: Path) -> None:
    _run([sys.executable, "-m", "venv", "--clear", str(directory)])
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "-q"]
    _run([*pip, "-r", str(requirements)])


def _run(command: Sequence[str]) -> None:
    # The caller may itself run inside an environment, which must not leak into the new one.
    leaks = ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "PIP_USER", "VIRTUAL_ENV")
    environ = {name: value for name, value in os.environ.items() if name not in leaks}
    try:
        done = subprocess.run(
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_INSTALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        told = f"`{' '.join(command)}` did not end within {_INSTALL_SECONDS} s"
        raise EnvironmentFailed(told) from error
    if done.returncode != 0:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        last = next((line for line in lines if line.startswith("ERROR:")), (lines or ["?"])[-1])
        raise EnvironmentFailed(f"`{' '.join(command)}` failed: {last}")


@contextmanager
def _lock(directory: Path) -> Iterator[None]:
    # Beside the environment, not in it: `venv --clear` empties that.
    with open(f"{directory}.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main(arguments: Sequence[str] | None = None) -> int:
    """Makes the environment from the command line.

    Args:
        arguments: The arguments; the process's by default.

    Returns:
        The exit status: 0, or 1 when it could not be made.
    """
    parser = argparse.ArgumentParser(
        prog="python -m xorack.local.environment",
        description="Make the virtual environment of the embedded AWS unless it is there.",
    )
    parser.add_argument("--directory", type=Path, help="where; default: beside the checkout's own")
    given = parser.parse_args(arguments)
    try:
        print(ensure(given.directory, tell=lambda line: print(line, file=sys.stderr)))
    except EnvironmentFailed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
