"""The folders of the jobs: the database, and the folders that a job writes to.

Local folders are read with the operating system's calls; ``s3://``, ``gs://``, ``hdfs://`` and the
like with pyarrow's file systems, which find their credentials by themselves.

The database's files are regular files and links to them. Links to folders can lead in circles and
are left out, as are pipes, sockets and devices. Files and folders whose names begin with a dot are
left out by default. A link that leads nowhere counts: it is a file that cannot be read.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import stat
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, BinaryIO, NamedTuple, cast

from pipeline.errors import JobError, UnreadableFile

__all__ = ["InputFile", "absolute", "claim", "claimed_by", "list_files", "opened", "shown"]

_CLAIM = "_run"
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
            ``*`` matches any characters, ``/`` too.
        exclude: Patterns of files to leave out.
        hidden: Includes files and folders whose names begin with a dot.

    Raises:
        JobError: The folder does not exist, cannot be listed, has no such file, or has two whose
            paths look the same.
    """
    place = absolute(database)
    files = _remote(place, hidden) if "://" in place else _local(place, hidden)
    chosen = {}
    for file in files:
        if _matches(file.relative, [glob]) and not _matches(file.relative, exclude):
            if chosen.setdefault(file.relative, file) is not file:
                raise JobError(f"database {database} has two files {file.relative!r}")
    if not chosen:
        which = "" if glob == "*" else f" of the pattern {glob!r}"
        raise JobError(f"database {database} has no files{which}")
    return [file for _, file in sorted(chosen.items())]


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

    system, root, scheme = _file_system("database", database)
    try:
        infos = system.get_file_info(fs.FileSelector(root, recursive=True))
    except OSError as error:
        raise JobError(f"database {database}: {_one_line(error)}") from None
    for info in infos:
        relative = info.path.removeprefix(root.rstrip("/") + "/")
        if info.is_file and (hidden or not f"/{relative}".count("/.")):
            yield InputFile(relative, f"{scheme}://{info.path}".encode(), info.size)


def _file_system(option: str, place: str) -> tuple[Any, str, str]:
    """Return pyarrow's file system for a place, the path in it, and the scheme."""
    from pyarrow import ArrowException, fs

    if "://" not in place:
        return fs.LocalFileSystem(), place, "file"
    scheme, _, rest = place.partition("://")
    scheme = _HADOOP_SCHEMES.get(scheme, scheme)
    try:
        return *fs.FileSystem.from_uri(f"{scheme}://{rest}"), scheme
    except (OSError, ValueError, ArrowException) as error:
        raise JobError(f"{option} {place}: {_one_line(error)}") from None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


@contextlib.contextmanager
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
        raise UnreadableFile(f"cannot be read: {error.strerror or _one_line(error)}") from None


def _open(path: bytes) -> BinaryIO:
    if path.startswith(b"/"):
        return cast(BinaryIO, open(path, "rb", buffering=0))
    scheme, _, rest = path.decode().partition("://")
    bucket = f"{scheme}://{rest.partition('/')[0]}/"
    return cast(BinaryIO, _bucket(bucket).open_input_file(rest))


@lru_cache
def _bucket(place: str) -> Any:
    """Return a file system, made once: S3's asks for the bucket's region."""
    return _file_system("database", place)[0]


def claimed_by(option: str, place: str) -> str | None:
    """Return the run that wrote to a folder."""
    system, root, _ = _file_system(option, place)
    mark = f"{root.rstrip('/')}/{_CLAIM}"
    if not system.get_file_info(mark).is_file:
        return None
    with system.open_input_file(mark) as file:
        return str(file.read().decode())


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

    system, root, _ = _file_system(option, place)
    try:
        before = claimed_by(option, place)
        if before is None and system.get_file_info(fs.FileSelector(root, allow_not_found=True)):
            raise JobError(f"{option} {place} exists already: give another folder")
        if before not in (None, run_id):
            raise JobError(f"{option} {place} exists already, from the run {before!r}")
        if before is None or not keep:
            system.create_dir(root)
            system.delete_dir_contents(root)
            with system.open_output_stream(f"{root.rstrip('/')}/{_CLAIM}") as file:
                file.write(run_id.encode())
    except OSError as error:
        raise JobError(f"{option} {place}: {_one_line(error)}") from None
