"""Create or update the project's virtual environment; do nothing if it is up to date.

pip installs uv, and uv everything else: only files whose hashes are in the lock file. A stamp holds
the hash of the files that say what to install. An installation that fails leaves a marker, and the
next run starts from scratch, with uv's cache. Runs at the same time wait for each other.

    python3 tools/venv.py [--same-python] [--demo]

The demo needs less than the tests (docs/adr/0047). `--demo` installs that, unless more is there
already, and makes the environment of the embedded AWS at the same time.
"""

from __future__ import annotations

import argparse
import ast
import fcntl
import hashlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
REQUIREMENTS: Final = ("requirements.txt", "requirements-dev.txt")
LOCK: Final = "requirements.lock"
DEV_LOCK: Final = "requirements-dev.lock"
"""It holds all of `LOCK`, and what tests, lints and types the project."""
SOURCES: Final = (LOCK, DEV_LOCK, "pyproject.toml")
DOWNLOADS_MB: Final = {LOCK: 750, DEV_LOCK: 850}
OLDEST: Final = (3, 10)
PIP_TO_UV: Final = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "proxy": ("ALL_PROXY", " "),
    "cert": ("SSL_CERT_FILE", " "),
}
"""pip's setting -> uv's variable, and the separator of its values."""


# PySpark comes as a source distribution of 450 MB: its wheel, used once, is not compressed again.
_PYSPARK: Final = ("--config-settings-package", "pyspark:--build-option=--compression=stored")


class SetupError(Exception):
    """The environment cannot be made; the text contains the reason and the remedy."""


def requirements_hash(root: Path) -> str:
    """Hash the requirements of the project in a folder, without comments; the lock names it."""
    digest = hashlib.sha256()
    for name in REQUIREMENTS:
        for line in (root / name).read_text(encoding="utf-8").splitlines():
            if line.strip() and not line.startswith("#"):
                digest.update(line.strip().encode() + b"\n")
    return digest.hexdigest()


def uv_settings(pip_settings: str) -> dict[str, str]:
    """Translate the output of ``pip config list`` to uv's environment variables."""
    # As pip does, uv takes a file from any index; the hashes decide what is installed.
    settings = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    for section in ("global", "install", ":env:"):  # a later one takes precedence
        for name, value in re.findall(rf"^{section}\.(.+?)=(.*)$", pip_settings, re.MULTILINE):
            if name in PIP_TO_UV:
                variable, separator = PIP_TO_UV[name]
                settings[variable] = separator.join(ast.literal_eval(value).split())
    return settings


class Environment:
    """The virtual environment of the project in a folder, with all packages of a lock file."""

    def __init__(self, root: Path, lock: str = DEV_LOCK) -> None:
        self.root = root
        self.lock = lock
        self.path = root / ".venv"
        self.python = self.path / "bin" / "python"
        self._stamp = self.path / ".xorack-installed"
        self._unfinished = self.path / ".xorack-installing"

    def fingerprint(self, lock: str) -> str:
        """Name the lock file, and hash the files that say what to install."""
        digest = hashlib.sha256()
        for name in SOURCES:
            digest.update(name.encode() + b"\0" + (self.root / name).read_bytes() + b"\0")
        return f"{lock} {digest.hexdigest()}"

    def ready(self) -> bool:
        """Return True if everything is installed, or more."""
        suitable = map(self.fingerprint, {self.lock, DEV_LOCK})
        try:
            return self._stamp.read_text() in suitable and self.python.exists()
        except OSError:
            return False

    def usable(self) -> bool:
        """Return True if it can be updated: its own, not half installed, and its Python runs."""
        unsuitable = self.path.is_symlink() or self._unfinished.exists()
        return not unsuitable and self.version() >= OLDEST

    def version(self) -> tuple[int, ...]:
        """Return its Python's version, such as (3, 12); () if it does not run or has no pip."""
        code = "import pip, sys; print(*sys.version_info[:2])"
        try:
            return tuple(map(int, self._output("-c", code).split()))
        except (OSError, subprocess.CalledProcessError):
            return ()

    def create(self) -> None:
        """Create it, empty."""
        try:
            self.run(sys.executable, "-m", "venv", "--clear", str(self.path))
        except SetupError as error:
            raise SetupError(f"{error} (on Debian and Ubuntu: apt install python3-venv)") from error

    def install(self) -> None:
        """Install the requirements and the project.

        Raises:
            SetupError: The lock file is outdated, or the installation failed.
        """
        locked = (self.root / self.lock).read_text(encoding="utf-8")
        uv = re.search(r"^uv==.*?(?=^\S|\Z)", locked, re.MULTILINE | re.DOTALL)
        if uv is None or f"# Made of: {requirements_hash(self.root)}\n" not in locked:
            raise SetupError(
                f"{' or '.join(REQUIREMENTS)} was changed: make lock renews {self.lock}"
            )
        self._stamp.unlink(missing_ok=True)
        self._unfinished.write_text(uv[0])
        pip = (str(self.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        self.run(*pip, "--no-deps", "--require-hashes", "-r", str(self._unfinished))
        settings = uv_settings(self._output("-m", "pip", "config", "list"))
        uv_pip = (str(self.path / "bin" / "uv"), "pip", "install", "--python", str(self.python))
        lock = str(self.root / self.lock)
        packages = ("--require-hashes", "-r", lock, "--build-constraints", lock, *_PYSPARK)
        self.run(*uv_pip, "--no-deps", *packages, **settings)
        project = ("--no-build-isolation", "--editable", str(self.root))
        self.run(*uv_pip, "--no-deps", *project, **settings)
        self._stamp.write_text(self.fingerprint(self.lock))
        self._unfinished.unlink()

    @contextmanager
    def embedded_aws(self) -> Iterator[None]:
        """Make the embedded AWS's environment meanwhile; the demo tries again if this fails."""
        process = subprocess.Popen(
            [sys.executable, "-m", "xorack.local.environment"],
            cwd=self.root,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            yield
            process.wait()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def run(self, *command: str, **settings: str) -> None:
        """Run an installer, or raise SetupError; the environment's variables override settings."""
        if subprocess.run(command, env={**settings, **os.environ}, check=False).returncode != 0:
            raise SetupError(f"{' '.join(command[:3])} failed: see above")

    def _output(self, *arguments: str) -> str:
        command = [self.python, *arguments]
        return subprocess.check_output(command, stderr=subprocess.DEVNULL, text=True)


def tool_environment(path: Path, needs: Sequence[str] | Path) -> Path:
    """Create an environment of some requirements, unless it is up to date; return its programs.

    A path names a lock file, whose hashes are checked.
    """
    programs, done = path / "bin", path / ".installed"
    text = needs.read_text() if isinstance(needs, Path) else "\n".join(needs)
    wanted = hashlib.sha256(text.encode()).hexdigest()
    if not (done.is_file() and done.read_text() == wanted and (programs / "python").exists()):
        print(f"Setting up {path.name}", flush=True)
        subprocess.check_call([sys.executable, "-m", "venv", "--clear", path])
        pip = [programs / "python", "-m", "pip", "install", "--quiet"]
        locked_needs = ("--no-deps", "--require-hashes", "--requirement", needs)
        arguments = locked_needs if isinstance(needs, Path) else needs
        subprocess.check_call([*pip, "--disable-pip-version-check", *arguments])
        done.write_text(wanted)
    return programs


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder's lock: only one run installs at a time."""
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
    """Create or update an environment; create it again if ``same_python`` and it has another.

    Raises:
        SetupError: It cannot be made.
    """
    if environment.ready() and not same_python:
        return
    with locked(environment.root):
        version = tuple(sys.version_info[:2])
        other = same_python and environment.version() != version
        if environment.ready() and not other:
            return
        began, name = time.monotonic(), environment.path.name
        meanwhile: AbstractContextManager[None] = nullcontext()
        if environment.lock == LOCK:
            meanwhile = environment.embedded_aws()
        with meanwhile:
            if other or not environment.usable():
                print(
                    f"Setting up {name} with Python {version[0]}.{version[1]}. The first time this "
                    f"downloads some {DOWNLOADS_MB[environment.lock]} MB.",
                    flush=True,
                )
                if environment.path.is_symlink():  # `venv --clear` would empty what it leads to
                    environment.path.unlink()
                environment.create()
            else:
                print(f"Updating {name}", flush=True)
            environment.install()
        print(f"{name} is ready ({time.monotonic() - began:.0f} s)", flush=True)


def main() -> int:
    """Set up `.venv`; return the exit status: 0, 1 if it failed, 130 if interrupted."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--same-python", action="store_true", help="of this Python's version")
    parser.add_argument("--demo", action="store_true", help="only what the demo needs")
    options = parser.parse_args()
    try:
        set_up(Environment(ROOT, LOCK if options.demo else DEV_LOCK), options.same_python)
    except SetupError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted: the next run starts .venv from scratch", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
