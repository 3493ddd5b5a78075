"""The folders of the jobs: the database, and those that a job writes to.

On a cluster, all machines have to see the folders under the same path. The database's files are
regular files and links to them. Links to folders, which can lead in circles, are left out, as are
pipes, sockets and devices. A link that leads nowhere is a file that cannot be read.
"""

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple


class JobError(Exception):
    """An invalid argument or folder; the message names it in one line."""


class UnreadableFile(Exception):
    """A file whose words cannot be read; the message says why in one line, without the path."""


class InputFile(NamedTuple):
    """A file: path in the database, path, bytes, and why it is unreadable, if known."""

    relative: str
    path: bytes
    size: int
    problem: str | None = None


def shown(path: bytes) -> str:
    """Return a path as text; bytes that are not UTF-8 in hexadecimal."""
    return path.decode("utf-8", "backslashreplace")


def list_files(database: str) -> list[InputFile]:
    """List the files of a database, a folder, in the order of their relative paths.

    Names that begin with a dot are left out. Raises `JobError` if the folder cannot be listed or
    has no file.
    """
    files = sorted(_files(os.fsencode(os.path.abspath(database))))
    if not files:
        raise JobError(f"database {database} has no files")
    if len({file.relative for file in files}) < len(files):
        raise JobError(f"database {database} has two files whose names look the same in UTF-8")
    return files


def _files(root: bytes) -> Iterator[InputFile]:
    """Yield the regular files below a folder, and those that cannot be read."""
    errors: list[OSError] = []
    for folder, folders, names in os.walk(root, onerror=errors.append):
        folders[:] = [name for name in folders if not name.startswith(b".")]
        for path in (os.path.join(folder, name) for name in names if not name.startswith(b".")):
            relative = shown(os.path.relpath(path, root))
            try:
                status = os.stat(path)
            except OSError as error:  # a link to nowhere or in a circle, or a deleted file
                yield InputFile(relative, path, 0, f"cannot be read: {error.strerror}")
                continue
            if stat.S_ISREG(status.st_mode):
                yield InputFile(relative, path, status.st_size)
    for error in errors:
        raise JobError(f"database {shown(error.filename)}: {error.strerror}")


@contextmanager
def opened(path: bytes, size: int) -> Iterator[BinaryIO]:
    """Open a file of the database; raises `UnreadableFile`, also if its size in bytes changed."""
    try:
        with open(path, "rb") as file:
            now = file.seek(0, os.SEEK_END)
            if now != size:
                raise UnreadableFile(f"changed while it was being read: from {size} to {now} bytes")
            file.seek(0)
            yield file
    except OSError as error:
        raise UnreadableFile(f"cannot be read: {error.strerror or error}") from None


def claim(option: str, place: str, run_id: str, *, keep: bool = False) -> None:
    """Note in a folder which run writes to it, and empty it unless `keep` is true.

    Raises `JobError`, which names the option, if another run wrote to the folder or it has files
    of something else.
    """
    mark = Path(place, "_run")
    before = mark.read_text() if mark.exists() else None
    if before is None and os.path.exists(place) and os.listdir(place):
        raise JobError(f"{option} {place} exists already: give another folder")
    if before not in (None, run_id):
        raise JobError(f"{option} {place} exists already, from the run {before!r}")
    if before is None or not keep:
        shutil.rmtree(place, ignore_errors=True)
        mark.parent.mkdir(parents=True)
        mark.write_text(run_id)
