"""The demo's database: the user's folder, or the sources of the running Python's library."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from demo.errors import InvalidDatabase

__all__ = ["Database", "copy_standard_library", "open_database"]

_SKIPPED = frozenset(
    {"__pycache__", "dist-packages", "idle_test", "site-packages", "test", "tests"}
)


@dataclass(frozen=True)
class Database:
    """A folder tree of text files.

    Attributes:
        folder: The folder.
        files: Number of files, unreadable ones included.
        size: Their bytes.
        description: A name for the user.
    """

    folder: Path
    files: int
    size: int
    description: str


def open_database(folder: Path) -> Database:
    """Count the files of the user's folder.

    Like the jobs, it skips names that begin with a dot, and links to folders.

    Raises:
        InvalidDatabase: The folder does not exist, cannot be listed or has no files.
    """
    folder = Path(os.path.abspath(folder))
    try:
        if not folder.is_dir():
            folder.stat()  # fails if it does not exist
            raise InvalidDatabase(f"{folder} is not a folder")
        sizes = [_size(path) for path in _files(folder)]
    except OSError as error:
        raise InvalidDatabase(f"{error.filename or folder}: {error.strerror}") from error
    if not sizes:
        raise InvalidDatabase(f"{folder} has no files in it")
    return Database(folder, len(sizes), sum(sizes), str(folder))


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_dir():
            if not path.is_symlink():
                yield from _files(path)
        elif path.is_file() or path.is_symlink():
            yield path


def _size(path: Path) -> int:
    try:
        status = path.stat()
    except OSError:  # a link to nothing: its chain will fail
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def copy_standard_library(work: Path, library: Path | None = None) -> Database:
    """Copy the standard library's sources into a folder without anything else.

    The library's folder may hold installed packages, and tests with invalid texts. The copy has
    every ``*.py`` of valid UTF-8, some ten megabytes. It replaces an earlier copy.

    Args:
        work: The folder for the copy.
        library: The standard library; default: that of the running Python.

    Raises:
        InvalidDatabase: This Python came without sources.
    """
    library = library or Path(sysconfig.get_path("stdlib"))
    target = work / f"python{sys.version_info.major}.{sys.version_info.minor}"
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
        raise InvalidDatabase(f"{library} has no sources in it: name a folder of text files")
    return Database(target, files, size, f"the standard library of Python {sys.version.split()[0]}")


def _sources(library: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(library):
        folders[:] = sorted(
            name
            for name in folders
            if name not in _SKIPPED and not name.startswith((".", "config-"))
        )
        for name in sorted(names):
            if name.endswith(".py") and not name.startswith("."):
                yield Path(folder, name)
