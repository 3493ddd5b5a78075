"""The demo's database: the user's folder, or the text of the Python that runs this."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from demo.errors import BadDatabase

__all__ = ["Database", "gather_python", "user_database"]

_NO_TEXTS = frozenset(
    {"__pycache__", "dist-packages", "idle_test", "site-packages", "test", "tests"}
)


@dataclass(frozen=True)
class Database:
    """A folder tree of text files.

    Attributes:
        folder: Where it is.
        files: How many files, those that cannot be read included.
        size: Their bytes.
        what: What it is, in words.
    """

    folder: Path
    files: int
    size: int
    what: str


def user_database(folder: Path) -> Database:
    """Look at the folder that the user named.

    Args:
        folder: The folder.

    Returns:
        The database. Like the jobs, it leaves out what begins with a dot, and links to folders.

    Raises:
        BadDatabase: There is no such folder, it is none, cannot be listed, or has no files in it.
    """
    folder = Path(os.path.abspath(folder))
    files = size = 0
    try:
        if not stat.S_ISDIR(folder.stat().st_mode):
            raise BadDatabase(f"{folder} is not a folder")
        for path in _files(folder):
            files += 1
            size += _size(path)
    except OSError as error:
        raise BadDatabase(f"{error.filename or folder}: {error.strerror}") from error
    if not files:
        raise BadDatabase(f"{folder} has no files in it")
    return Database(folder, files, size, str(folder))


def _files(folder: Path) -> Iterator[Path]:
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from _files(Path(entry.path))
            elif entry.is_file() or (entry.is_symlink() and not entry.is_dir()):
                yield Path(entry.path)


def _size(path: Path) -> int:
    try:
        status = path.stat()
    except OSError:  # a link that leads nowhere: its chain will fail
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def gather_python(work: Path, library: Path | None = None) -> Database:
    """Copy the standard library's sources to where they are alone.

    Its folder may hold other things too (installed packages, tests with texts that are broken on
    purpose), so the database is a copy: every ``*.py`` that is valid UTF-8, some ten megabytes.

    Args:
        work: Where to put it; what an earlier call put there is replaced.
        library: The standard library; default: that of the Python that runs this.

    Returns:
        The database.

    Raises:
        BadDatabase: There are no sources, as in a Python that came without them.
    """
    library = library or Path(sysconfig.get_path("stdlib"))
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    target = work / name
    shutil.rmtree(target, ignore_errors=True)
    files = size = 0
    for source in _sources(library):
        try:
            content = source.read_bytes()
            content.decode()
        except (OSError, UnicodeDecodeError):
            continue
        copy = target / source.relative_to(library)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(content)
        files += 1
        size += len(content)
    if not files:
        raise BadDatabase(f"{library} has no sources in it: name a folder of text files")
    return Database(target, files, size, f"the standard library of Python {sys.version.split()[0]}")


def _sources(library: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(library):
        folders[:] = sorted(
            one for one in folders if one not in _NO_TEXTS and not one.startswith((".", "config-"))
        )
        for name in sorted(names):
            if name.endswith(".py") and not name.startswith("."):
                yield Path(folder, name)
