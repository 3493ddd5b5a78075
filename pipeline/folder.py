"""The folders of the jobs: the database, and the folders to which a job writes.

Local folders are read with the operating system's calls. Other folders (``s3://``, ``gs://``,
``hdfs://``) are read with pyarrow's file systems, which find their credentials themselves. The
files of a database are regular files and links to them. Hidden names are left out, because Spark
does not see them. Links to folders are left out, because they can lead in circles. Pipes, sockets
and devices are left out too. A broken link is a file that cannot be read.
"""

import os
import re
import stat
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, BinaryIO, NamedTuple

from pyarrow import ArrowException, fs


class JobError(Exception):
    """An argument or folder is invalid. The message names the argument or folder in one line."""


class UnreadableFile(Exception):
    """The words of a file cannot be read. The message says why in one line, without the path."""


class InputFile(NamedTuple):
    """A file: path in the database, path or URI, size, and why it is unreadable, if known."""

    relative: str
    path: bytes
    size: int
    problem: str | None = None


_KINDS = {
    "hidden": ("hidden name", "hidden names"),
    "linked": ("link to a folder", "links to folders"),
    "special": ("pipe, socket or device", "pipes, sockets and devices"),
    "encoding": ("name that is not UTF-8", "names that are not UTF-8"),
    "empty": ("empty file", "empty files"),
    "broken": ("broken link", "broken links"),
}
"""Reasons why names are left out, in words for one name and for several."""


class Listing(NamedTuple):
    """The files of a folder, ordered by their relative paths, and the names that are left out."""

    files: list[InputFile]
    skipped: list[tuple[str, str]]
    """Each reason, a key of `_KINDS`, with a relative path."""

    def skipped_in_words(self) -> str:
        """Return a line on the names that are left out; empty if there are none."""
        by_kind: dict[str, list[str]] = defaultdict(list)
        for kind, relative in sorted(self.skipped):
            by_kind[kind].append(relative)
        parts = [
            f"{len(names):,} {_KINDS[kind][len(names) > 1]}, such as {names[0]!r}"
            for kind, names in by_kind.items()
        ]
        return f"left out: {'; '.join(parts)}" if parts else ""


def is_hidden(name: str) -> bool:
    """Return whether Spark ignores a file or folder of this name."""
    has_underscore = name.startswith("_") and "=" not in name
    return name.startswith(".") or has_underscore or name.endswith("._COPYING_")


def absolute(place: str) -> str:
    """Return a path that Spark's executors understand. URIs stay as they are."""
    local = place.removeprefix("file://")
    return place if "://" in local else os.path.abspath(local)


def shown(path: bytes) -> str:
    """Return a path as text. Bytes that are not UTF-8 are shown in hexadecimal."""
    return path.decode("utf-8", "backslashreplace")


def list_folder(folder: str, option: str = "database") -> Listing:
    """List the files of a folder, which is a path or a URI, and the names that are left out.

    Raises:
        JobError: The folder cannot be listed. The error names the option.
    """
    place, listing = absolute(folder), Listing([], [])
    try:
        _list_remote(place, listing) if "://" in place else _list_local(place, listing)
    except OSError as error:
        name = shown(error.filename) if isinstance(error.filename, bytes) else folder
        raise JobError(f"{option} {name}: {error.strerror or error}") from None
    listing.files.sort()
    return listing


def list_files(database: str) -> Listing:
    """List a database; raise `JobError` if it cannot be listed or has no files."""
    listing = list_folder(database)
    files, skipped = listing.files, listing.skipped_in_words()
    if not files:
        raise JobError(
            f"database {database} has no files"
            + (skipped and f" ({skipped})")
            + ": name another folder"
        )
    if len({file.relative for file in files}) < len(files):
        raise JobError(
            f"database {database} has two files whose names are equal as UTF-8: rename one"
        )
    return listing


def _fail(error: OSError) -> None:
    raise error


def _list_local(place: str, listing: Listing) -> None:
    root = os.fsencode(place)
    for folder, folders, names in os.walk(root, onerror=_fail):
        for name in (*folders, *names):
            path = os.path.join(folder, name)
            relative = shown(os.path.relpath(path, root))
            if is_hidden(shown(name)):
                listing.skipped.append(("hidden", relative))
            elif name in folders:
                listing.skipped.extend([("linked", relative)] if os.path.islink(path) else [])
            else:
                _list_file(path, relative, listing)
        folders[:] = [name for name in folders if not is_hidden(shown(name))]


def _list_file(path: bytes, relative: str, listing: Listing) -> None:
    try:
        status = os.stat(path)
    except OSError as error:  # a broken or circular link, or a deleted file
        listing.files.append(InputFile(relative, path, 0, f"cannot be read: {error.strerror}"))
        return
    if stat.S_ISREG(status.st_mode):
        listing.files.append(InputFile(relative, path, status.st_size))
    else:
        listing.skipped.append(("special", relative))


def _list_remote(place: str, listing: Listing) -> None:
    system, root, scheme = _file_system(place)
    hidden = set()
    for info in system.get_file_info(fs.FileSelector(root, recursive=True)):
        relative = info.path.removeprefix(root.rstrip("/") + "/")
        parts = relative.split("/")
        if first := next((n for n, part in enumerate(parts, 1) if is_hidden(part)), None):
            hidden.add("/".join(parts[:first]))
        elif info.is_file:
            path = f"{scheme}://{info.path}".encode()
            listing.files.append(InputFile(relative, path, info.size))
    listing.skipped.extend(("hidden", relative) for relative in hidden)


@lru_cache  # to make the file system of S3 takes a request
def _file_system(place: str) -> tuple[Any, str, str]:
    """Return pyarrow's file system for a place, the path in it, and the scheme."""
    if "://" not in place:
        return fs.LocalFileSystem(), place, "file"
    uri = re.sub("^s3[an]:", "s3:", place)
    try:
        return *fs.FileSystem.from_uri(uri), uri.partition(":")[0]
    except (OSError, ArrowException) as error:
        raise JobError(f"{place}: {error}") from None


@contextmanager
def opened(path: bytes, size: int) -> Iterator[BinaryIO]:
    """Open a file of the database; raise `UnreadableFile` even if only its size has changed."""
    try:
        with _open(path) as file:
            now = file.seek(0, os.SEEK_END)
            if now != size:
                raise UnreadableFile(f"changed while it was being read, from {size} to {now} bytes")
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
    """Record in a folder which run writes to it, and empty the folder unless `keep` is true.

    Raises:
        JobError: Another run has written to the folder, or it has other files. The error names the
            option.
    """
    system, root, _ = _file_system(place)
    mark = f"{root.rstrip('/')}/_run"
    before = None
    if system.get_file_info(mark).is_file:
        with system.open_input_file(mark) as file:
            before = str(file.read().decode())
    if before is None and system.get_file_info(fs.FileSelector(root, allow_not_found=True)):
        raise JobError(f"{option} {place} already exists: name another folder")
    if before not in (None, run_id):
        raise JobError(f"{option} {place} already exists, from the run {before!r}")
    if before is None or not keep:
        system.create_dir(root)
        system.delete_dir_contents(root)
        with system.open_output_stream(mark) as file:
            file.write(run_id.encode())
