"""The database: a folder tree of files, on this machine or in an object store.

Local folders are read by the operating system's calls; ``s3://``, ``gs://``, ``hdfs://`` and the
like by pyarrow's file systems, with the credentials that these find by themselves.

What counts as a file of the database: regular files, and links to them; not folders that are
links (they can lead in circles), nor pipes, sockets and devices. Files and folders whose names
begin with a dot are left out unless asked for. A link that leads nowhere counts: it is a file that
cannot be read.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast
from urllib.parse import urlsplit

from pipeline.errors import JobError
from pipeline.reading import UnreadableFile

__all__ = ["Found", "bytes_in", "is_local", "list_files", "opened", "shown_path"]


_HADOOP_NAMES = {"s3a": "s3", "s3n": "s3"}
"""Schemes by which Hadoop knows what pyarrow knows by another."""


class Found(NamedTuple):
    """A file of the database.

    Attributes:
        relative: Its path in the folder, with ``/`` between the names.
        path: Where it is, as `opened` takes it: the operating system's bytes, or a URI in UTF-8.
        size: Bytes.
        problem: Why it cannot be read, if that is known already.
    """

    relative: str
    path: bytes
    size: int
    problem: str | None = None


def is_local(place: str) -> bool:
    """Whether a place is a path of this machine, and no URI of something else."""
    return "://" not in place or place.startswith("file://")


def local_path(place: str) -> str:
    """The path of a local place, without its ``file://``."""
    return place.removeprefix("file://") if place.startswith("file://") else place


def bytes_in(folder: str) -> int:
    """How many bytes the files of a local folder have; 0 if it is not there."""
    return sum(
        os.lstat(os.path.join(place, name)).st_size
        for place, _, names in os.walk(folder)
        for name in names
    )


def shown_path(path: bytes) -> str:
    """A path as text; what is not UTF-8 in it in hexadecimal."""
    return path.decode("utf-8", "backslashreplace")


def list_files(
    database: str, glob: str = "*", *, exclude: Iterable[str] = (), hidden: bool = False
) -> list[Found]:
    """Find the files of a database.

    Args:
        database: A folder's path, or a URI.
        glob: Which files: a pattern of the name (``*.txt``), or, with a ``/`` in it, of the path
            in the folder. ``*`` stands for any characters, ``/`` too.
        exclude: Which files not: patterns of the same kind.
        hidden: Whether files and folders count whose names begin with a dot.

    Returns:
        The files, in the order of their relative paths.

    Raises:
        JobError: There is no such folder, it is none, a folder in it cannot be listed, or no file
            is in it.
    """
    found = (
        _local(local_path(database), hidden) if is_local(database) else _remote(database, hidden)
    )
    unwanted = list(exclude)
    chosen = [
        file
        for file in found
        if _matches(file.relative, glob) and not any(_matches(file.relative, x) for x in unwanted)
    ]
    if not chosen:
        which = "" if glob == "*" else f" of the pattern {glob!r}"
        raise JobError(f"database {database} has no files{which}")
    return sorted(chosen)


def _matches(relative: str, glob: str) -> bool:
    return fnmatch.fnmatchcase(relative if "/" in glob else relative.rpartition("/")[2], glob)


def _local(database: str, hidden: bool) -> Iterator[Found]:
    root = os.fsencode(os.path.abspath(database))
    try:
        mode = os.stat(root).st_mode
    except OSError as error:
        raise JobError(f"database {database}: {error.strerror}") from None
    if not stat.S_ISDIR(mode):
        raise JobError(f"database {database} is not a folder")
    folders = [root]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.name.startswith(b".") and not hidden:
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    elif file := _local_file(entry, root):
                        yield file
        except OSError as error:
            raise JobError(
                f"folder {shown_path(error.filename or root)}: {error.strerror}"
            ) from None


def _local_file(entry: os.DirEntry[bytes], root: bytes) -> Found | None:
    relative = shown_path(os.path.relpath(entry.path, root).replace(os.fsencode(os.sep), b"/"))
    try:
        status = entry.stat()
    except OSError as error:  # a link to nowhere, or in a circle; or it has just gone
        return Found(relative, entry.path, 0, f"cannot be read: {error.strerror}")
    if not stat.S_ISREG(status.st_mode):
        return None
    return Found(relative, entry.path, status.st_size)


def _remote(database: str, hidden: bool) -> Iterator[Found]:
    import pyarrow as pa
    from pyarrow import fs

    scheme = _HADOOP_NAMES.get(urlsplit(database).scheme, urlsplit(database).scheme)
    place = f"{scheme}:{database.partition(':')[2]}"
    try:
        system, root = fs.FileSystem.from_uri(place)
        infos = system.get_file_info(fs.FileSelector(root, recursive=True))
    except (OSError, ValueError, pa.ArrowException) as error:
        raise JobError(f"database {database}: {_one_line(error)}") from None
    prefix = root.rstrip("/") + "/"
    for info in infos:
        if info.type != fs.FileType.File:
            continue
        relative = info.path.removeprefix(prefix)
        if hidden or not any(name.startswith(".") for name in relative.split("/")):
            yield Found(relative, f"{scheme}://{info.path}".encode(), info.size)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


@contextlib.contextmanager
def opened(path: bytes, size: int) -> Iterator[BinaryIO]:
    """Open a file of the database.

    Args:
        path: As `Found` has it.
        size: The size as it was listed.

    Yields:
        The file, unbuffered, at its beginning.

    Raises:
        UnreadableFile: It cannot be opened, or has another size now.
    """
    try:
        with _open(path) as file:
            now = file.seek(0, os.SEEK_END)
            if now != size:
                raise UnreadableFile(f"changed while it was being read: from {size} to {now} bytes")
            file.seek(0)
            yield file
    except OSError as error:
        raise UnreadableFile(f"cannot be read: {error.strerror or _one_line(error)}") from None


def _open(path: bytes) -> BinaryIO:
    if b"://" not in path or path.startswith(b"/"):
        return cast(BinaryIO, Path(os.fsdecode(path)).open("rb", buffering=0))
    from pyarrow import fs

    uri = path.decode()
    scheme, _, rest = uri.partition("://")
    system = _systems.get(scheme)
    if system is None:
        system = _systems[scheme] = fs.FileSystem.from_uri(f"{scheme}://{rest.split('/')[0]}/")[0]
    return cast(BinaryIO, system.open_input_file(rest))


_systems: dict[str, object] = {}
"""One file system a scheme: making one asks for the bucket's region."""
