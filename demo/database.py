"""The demo's database: the user's folder, or the sources of Python's standard library."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

from pipeline.folder import JobError, list_files
from xorack.core.errors import XorAckError

_SKIPPED = frozenset(
    {"__pycache__", "dist-packages", "idle_test", "site-packages", "test", "tests"}
)


class DemoFailed(XorAckError):
    """The demo cannot continue. The message says why."""


class InvalidDatabase(DemoFailed):
    """The folder cannot be read, or has no text files."""


class Database(NamedTuple):
    """A folder tree with the number and size of its files, and a description for the user."""

    folder: Path
    files: int
    size: int
    description: str


def open_database(folder: Path) -> Database:
    """Count the files in the user's folder that the jobs will read."""
    folder = Path(os.path.abspath(folder))
    try:
        sizes = [file.size for file in list_files(str(folder)).files]
    except JobError as error:
        raise InvalidDatabase(str(error).removeprefix("database ")) from error
    return Database(folder, len(sizes), sum(sizes), str(folder))


def copy_standard_library(work: Path, library: Path | None = None) -> Database:
    """Copy the library's sources, about ten megabytes, and replace an earlier copy.

    The library's folder may also contain installed packages, and tests with invalid texts. The copy
    leaves these out, and has all other ``*.py`` files that are valid UTF-8.
    """
    library = library or Path(sysconfig.get_path("stdlib"))
    target = work / f"python{sys.version_info.major}.{sys.version_info.minor}"
    shutil.rmtree(target, ignore_errors=True)
    for source in library.rglob("*.py"):
        relative = source.relative_to(library)
        if any(name in _SKIPPED or name.startswith((".", "config-")) for name in relative.parts):
            continue
        try:
            content = source.read_bytes()
            content.decode()
        except (OSError, UnicodeDecodeError):
            continue
        copy = target / relative
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(content)
    if not target.exists():
        raise InvalidDatabase(f"{library} has no sources in it: name a folder of text files")
    description = f"the standard library of Python {sys.version.split()[0]}"
    return open_database(target)._replace(description=description)
