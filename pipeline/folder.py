"""The folders of the jobs: the database, and those that a job writes to.

Local folders are read with the operating system's calls, others (``s3://``, ``gs://``, ``hdfs://``)
with pyarrow's file systems, which find their credentials by themselves.

The database's files are regular files and links to them. Links to folders can lead in circles and
are left out, as are pipes, sockets and devices. A link that leads nowhere is a file that cannot be
read.
"""

from __future__ import annotations

import fnmatch
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from typing import Any, BinaryIO, NamedTuple

from pipeline.errors import JobError, UnreadableFile

_HADOOP_SCHEMES = {"s3a": "s3", "s3n": "s3"}


class InputFile(NamedTuple):
    """A file of the database.

    Attributes:
        relative: Its path in the folder, with ``/`` between the names.
        path: The operating system's bytes, or a URI in UTF-8.
        size: Bytes.
        problem: Why it cannot be read, if that is known.
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
    database: str, glob: str = "*", *, exclude: Iterable[str] = (), hidden: bool = False
) -> list[InputFile]:
    """List the files of a database in the order of their relative paths.

    Args:
        database: A folder's path, or a URI.
        glob: A pattern of the name (``*.txt``), or with a ``/`` in it of the path in the folder.
        exclude: Patterns of files to leave out.
        hidden: Includes files and folders whose names begin with a dot.

    Raises:
        JobError: The folder cannot be listed, has no such file, or two that look the same.
    """
    place = absolute(database)
    found = _remote(place, hidden) if "://" in place else _local(place, hidden)
    files = sorted(
        file
        for file in found
        if _matches(file.relative, [glob]) and not _matches(file.relative, exclude)
    )
    if not files:
        which = "" if glob == "*" else f" of the pattern {glob!r}"
        raise JobError(f"database {database} has no files{which}")
    for one, other in pairwise(files):
        if one.relative == other.relative:
            raise JobError(f"database {database} has two files {one.relative!r}")
    return files


def _matches(path: str, globs: Iterable[str]) -> bool:
    name = path.rpartition("/")[2]
    return any(fnmatch.fnmatchcase(path if "/" in glob else name, glob) for glob in globs)


def _local(database: str, hidden: bool) -> Iterator[InputFile]:
    root = os.fsencode(database)
    try:
        for folder, folders, names in os.walk(root, onerror=_raise):
            if not hidden:
                folders[:] = [name for name in folders if not name.startswith(b".")]
            for name in names:
                path = os.path.join(folder, name)
                if (hidden or not name.startswith(b".")) and (file := _local_file(path, root)):
                    yield file
    except OSError as error:
        what = "database" if error.filename == root else "folder"
        raise JobError(f"{what} {shown(error.filename)}: {error.strerror}") from None


def _raise(error: OSError) -> None:
    raise error


def _local_file(path: bytes, root: bytes) -> InputFile | None:
    relative = shown(os.path.relpath(path, root))
    try:
        status = os.stat(path)
    except OSError as error:  # a link to nowhere or in a circle, or a deleted file
        return InputFile(relative, path, 0, f"cannot be read: {error.strerror}")
    return InputFile(relative, path, status.st_size) if stat.S_ISREG(status.st_mode) else None


def _remote(database: str, hidden: bool) -> Iterator[InputFile]:
    from pyarrow import fs

    system, root = _file_system("database", database)
    scheme = _scheme(database)
    with _one_line_errors("database", database):
        infos = system.get_file_info(fs.FileSelector(root, recursive=True))
    for info in infos:
        relative = info.path.removeprefix(root.rstrip("/") + "/")
        if info.is_file and (hidden or "/." not in f"/{relative}"):
            yield InputFile(relative, f"{scheme}://{info.path}".encode(), info.size)


def _file_system(option: str, place: str) -> tuple[Any, str]:
    """Return pyarrow's file system of a folder, and the path in it."""
    from pyarrow import fs

    if "://" not in place:
        return fs.LocalFileSystem(), place
    with _one_line_errors(option, place):
        return fs.FileSystem.from_uri(f"{_scheme(place)}:{place.partition(':')[2]}")


def _scheme(place: str) -> str:
    scheme = place.partition(":")[0]
    return _HADOOP_SCHEMES.get(scheme, scheme)


@contextmanager
def _one_line_errors(option: str, place: str) -> Iterator[None]:
    from pyarrow import ArrowException

    try:
        yield
    except (OSError, ValueError, ArrowException) as error:
        raise JobError(f"{option} {place}: {' '.join(str(error).split())}") from None


@contextmanager
def opened(path: bytes, size: int) -> Iterator[BinaryIO]:
    """Open a file of the database that had a size in bytes when it was listed.

    Raises:
        UnreadableFile: It cannot be opened, or has another size now.
    """
    try:
        with _open(path) as file:
            now = file.seek(0, os.SEEK_END)
            if now != size:
                raise UnreadableFile(f"changed while it was being read: from {size} to {now} bytes")
            yield file
    except OSError as error:
        reason = error.strerror or " ".join(str(error).split())
        raise UnreadableFile(f"cannot be read: {reason}") from None


def _open(path: bytes) -> Any:
    if path.startswith(b"/"):
        return open(path, "rb", buffering=0)
    scheme, _, rest = path.decode().partition("://")
    return _bucket(f"{scheme}://{rest.partition('/')[0]}/").open_input_file(rest)


@lru_cache
def _bucket(place: str) -> Any:
    """Return a file system, made once: S3's asks for the bucket's region."""
    return _file_system("database", place)[0]


def claim(option: str, place: str, run_id: str, *, keep: bool = False) -> None:
    """Note in a folder which run writes to it, and empty it.

    Args:
        option: The folder's option, for messages.
        place: A path or URI.
        run_id: The run.
        keep: Keeps what the same run wrote.

    Raises:
        JobError: Another run wrote to the folder, or it has other files.
    """
    from pyarrow import fs

    system, root = _file_system(option, place)
    mark = f"{root.rstrip('/')}/_run"
    with _one_line_errors(option, place):
        others = system.get_file_info(fs.FileSelector(root, allow_not_found=True))
        if system.get_file_info(mark).is_file:
            with system.open_input_file(mark) as file:
                before = file.read().decode()
            if before != run_id:
                raise JobError(f"{option} {place} exists already, from the run {before!r}")
            if keep:
                return
        elif others:
            raise JobError(f"{option} {place} exists already: give another folder")
        system.create_dir(root)
        system.delete_dir_contents(root)
        with system.open_output_stream(mark) as file:
            file.write(run_id.encode())
