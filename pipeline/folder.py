"""The folders of the jobs: the database, and those that a job writes to.

Local folders are read with the operating system's calls, others (``s3://``, ``gs://``, ``hdfs://``)
with pyarrow's file systems, which find their credentials by themselves. The database's files are
regular files and links to them. Links to folders, which can lead in circles, are left out, as are
pipes, sockets and devices. A link that leads nowhere is a file that cannot be read.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, BinaryIO, NamedTuple

from pyarrow import ArrowException, fs

from pipeline.errors import JobError, UnreadableFile


class InputFile(NamedTuple):
    """A file: its path in the database with ``/``, its path, its bytes, and why it is unreadable.

    The path is the operating system's bytes, or a URI in UTF-8.
    """

    relative: str
    path: bytes
    size: int
    problem: str | None = None


def absolute(place: str) -> str:
    """Return a path as Spark's executors understand it; URIs as they are."""
    local = place.removeprefix("file://")
    return place if "://" in local else os.path.abspath(local)


def shown(path: bytes) -> str:
    """Return a path as text; bytes that are not UTF-8 in hexadecimal."""
    return path.decode("utf-8", "backslashreplace")


def list_files(
    database: str, glob: str = "*", exclude: Iterable[str] = (), *, hidden: bool = False
) -> list[InputFile]:
    """List the files of a database in the order of their relative paths.

    Args:
        database: A folder's path, or a URI.
        glob: A pattern of the name (``*.txt``), or with a ``/`` in it of the relative path.
        exclude: Patterns of files to leave out.
        hidden: Includes files and folders whose names begin with a dot.

    Raises:
        JobError: The folder cannot be listed or has no such file.
    """
    place = absolute(database)
    found = _remote(place) if "://" in place else _local(os.fsencode(place), hidden)
    files = sorted(
        file
        for file in found
        if (hidden or "/." not in f"/{file.relative}")
        and _matches(file.relative, [glob])
        and not _matches(file.relative, exclude)
    )
    if not files:
        which = "" if glob == "*" else f" of the pattern {glob!r}"
        raise JobError(f"database {database} has no files{which}")
    if len({file.relative for file in files}) < len(files):
        raise JobError(f"database {database} has two files whose names look the same in UTF-8")
    return files


def _matches(path: str, globs: Iterable[str]) -> bool:
    name = path.rpartition("/")[2]
    return any(fnmatchcase(path if "/" in glob else name, glob) for glob in globs)


def _local(root: bytes, hidden: bool) -> Iterator[InputFile]:
    try:
        for folder, folders, names in os.walk(root, onerror=_raise):
            folders[:] = [name for name in folders if hidden or not name.startswith(b".")]
            for path in (os.path.join(folder, name) for name in names):
                relative = shown(os.path.relpath(path, root))
                try:
                    status = os.stat(path)
                except OSError as error:  # a link to nowhere or in a circle, or a deleted file
                    yield InputFile(relative, path, 0, f"cannot be read: {error.strerror}")
                    continue
                if stat.S_ISREG(status.st_mode):
                    yield InputFile(relative, path, status.st_size)
    except OSError as error:
        what = "database" if error.filename == root else "folder"
        raise JobError(f"{what} {shown(error.filename)}: {error.strerror}") from None


def _raise(error: OSError) -> None:
    raise error


def _remote(database: str) -> Iterator[InputFile]:
    with _one_line(JobError, f"database {database}"):
        system, root, scheme = _file_system(database)
        infos = system.get_file_info(fs.FileSelector(root, recursive=True))
    for info in infos:
        if info.is_file:
            relative = info.path.removeprefix(root.rstrip("/") + "/")
            yield InputFile(relative, f"{scheme}://{info.path}".encode(), info.size)


@lru_cache  # to make S3's takes a request
def _file_system(place: str) -> tuple[Any, str, str]:
    """Return pyarrow's file system of a place, the path in it, and the scheme."""
    if "://" not in place:
        return fs.LocalFileSystem(), place, "file"
    uri = re.sub("^s3[an]:", "s3:", place)
    return *fs.FileSystem.from_uri(uri), uri.partition(":")[0]


@contextmanager
def _one_line(kind: type[Exception], what: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ArrowException) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise kind(f"{what}: {reason}") from None


@contextmanager
def opened(path: bytes, size: int) -> Iterator[BinaryIO]:
    """Open a file of the database; raises `UnreadableFile`, also if its size in bytes changed."""
    with _one_line(UnreadableFile, "cannot be read"), _open(path) as file:
        now = file.seek(0, os.SEEK_END)
        if now != size:
            raise UnreadableFile(f"changed while it was being read: from {size} to {now} bytes")
        file.seek(0)
        yield file


def _open(path: bytes) -> Any:
    if path.startswith(b"/"):
        return open(path, "rb")
    scheme, _, rest = path.decode().partition("://")
    return _file_system(f"{scheme}://{rest.partition('/')[0]}/")[0].open_input_file(rest)


def claim(option: str, place: str, run_id: str, *, keep: bool = False) -> None:
    """Note in a folder which run writes to it, and empty it unless it is to keep its files.

    Raises:
        JobError: Another run wrote to the folder, or it has other files. Names the option.
    """
    with _one_line(JobError, f"{option} {place}"):
        system, root, _ = _file_system(place)
        mark = f"{root.rstrip('/')}/_run"
        before = None
        if system.get_file_info(mark).is_file:
            with system.open_input_file(mark) as file:
                before = file.read().decode()
        elif system.get_file_info(fs.FileSelector(root, allow_not_found=True)):
            raise JobError(f"{option} {place} exists already: give another folder")
        if before not in (None, run_id):
            raise JobError(f"{option} {place} exists already, from the run {before!r}")
        if before is None or not keep:
            system.create_dir(root)
            system.delete_dir_contents(root)
            with system.open_output_stream(mark) as file:
                file.write(run_id.encode())
