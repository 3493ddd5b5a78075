"""The folders of the jobs: the database, and those that a job writes to.

Local folders are read with the operating system's calls, others (``s3://``, ``gs://``, ``hdfs://``)
with pyarrow's file systems, which find their credentials by themselves. The database's files are
regular files and links to them. Links to folders, which can lead in circles, are left out, as are
pipes, sockets and devices. A link that leads nowhere is a file that cannot be read.
"""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, BinaryIO, NamedTuple

from pyarrow import ArrowException, fs


class JobError(Exception):
    """An invalid argument or folder; the message names it in one line."""


class UnreadableFile(Exception):
    """A file whose words cannot be read; the message says why in one line, without the path."""


class InputFile(NamedTuple):
    """A file: path in the database, path or URI, bytes, and why it is unreadable, if known."""

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


def list_files(database: str) -> list[InputFile]:
    """List the files of a database, a folder's path or URI, in the order of their relative paths.

    Names that begin with a dot are left out. Raises `JobError` if the folder cannot be listed or
    has no file.
    """
    place = absolute(database)
    found = _remote(place) if "://" in place else _local(os.fsencode(place))
    files = sorted(file for file in found if "/." not in f"/{file.relative}")
    if not files:
        raise JobError(f"database {database} has no files")
    if len({file.relative for file in files}) < len(files):
        raise JobError(f"database {database} has two files whose names look the same in UTF-8")
    return files


def _local(root: bytes) -> Iterator[InputFile]:
    """Yield the regular files below a folder of this machine, and those that cannot be read."""
    unreadable: list[OSError] = []
    for folder, folders, names in os.walk(root, onerror=unreadable.append):
        folders[:] = [name for name in folders if not name.startswith(b".")]
        for path in (os.path.join(folder, name) for name in names):
            relative = shown(os.path.relpath(path, root))
            try:
                status = os.stat(path)
            except OSError as error:  # a link to nowhere or in a circle, or a deleted file
                yield InputFile(relative, path, 0, f"cannot be read: {error.strerror}")
                continue
            if stat.S_ISREG(status.st_mode):
                yield InputFile(relative, path, status.st_size)
    for problem in unreadable:
        raise JobError(f"database {shown(problem.filename)}: {problem.strerror}")


def _remote(database: str) -> Iterator[InputFile]:
    system, root, scheme = _file_system(database)
    for info in system.get_file_info(fs.FileSelector(root, recursive=True)):
        if info.is_file:
            relative = info.path.removeprefix(root.rstrip("/") + "/")
            yield InputFile(relative, f"{scheme}://{info.path}".encode(), info.size)


@lru_cache  # to make S3's takes a request
def _file_system(place: str) -> tuple[Any, str, str]:
    """Return pyarrow's file system of a place, the path in it, and the scheme."""
    if "://" not in place:
        return fs.LocalFileSystem(), place, "file"
    uri = re.sub("^s3[an]:", "s3:", place)
    try:
        return *fs.FileSystem.from_uri(uri), uri.partition(":")[0]
    except (OSError, ArrowException) as error:
        raise JobError(f"{place}: {error}") from None


@contextmanager
def opened(path: bytes, size: int) -> Iterator[BinaryIO]:
    """Open a file of the database; raises `UnreadableFile`, also if its size in bytes changed."""
    try:
        with _open(path) as file:
            now = file.seek(0, os.SEEK_END)
            if now != size:
                raise UnreadableFile(f"changed while it was being read: from {size} to {now} bytes")
            file.seek(0)
            yield file
    except OSError as error:
        raise UnreadableFile(f"cannot be read: {error.strerror or error}") from None


def _open(path: bytes) -> Any:
    if path.startswith(b"/"):
        return open(path, "rb")
    scheme, _, rest = path.decode().partition("://")
    return _file_system(f"{scheme}://{rest.partition('/')[0]}/")[0].open_input_file(rest)


def claim(option: str, place: str, run_id: str, *, keep: bool = False) -> None:
    """Note in a folder which run writes to it, and empty it unless `keep` is true.

    Raises `JobError`, which names the option, if another run wrote to the folder or it has files
    of something else.
    """
    system, root, _ = _file_system(place)
    mark = f"{root.rstrip('/')}/_run"
    before = None
    if system.get_file_info(mark).is_file:
        with system.open_input_file(mark) as file:
            before = str(file.read().decode())
    if before is None and system.get_file_info(fs.FileSelector(root, allow_not_found=True)):
        raise JobError(f"{option} {place} exists already: give another folder")
    if before not in (None, run_id):
        raise JobError(f"{option} {place} exists already, from the run {before!r}")
    if before is None or not keep:
        system.create_dir(root)
        system.delete_dir_contents(root)
        with system.open_output_stream(mark) as file:
            file.write(run_id.encode())
