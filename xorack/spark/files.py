"""Parquet files that tasks read by themselves, with pyarrow: found, shared out, looked into."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "BATCH_ROWS",
    "TASK_BYTES",
    "Slice",
    "can_read",
    "check_columns",
    "groups_in",
    "located",
    "long_column",
    "parts_of",
    "slices_of",
    "with_sizes",
]

BATCH_ROWS = 1 << 16
"""Rows that are looked at together."""
TASK_BYTES = 32 << 20
"""The most that a task is given."""
LEAST_TASK_BYTES = 1 << 20
_TASKS_A_CORE = 3
_TASK_FILES = 1_000
_ASKED_AT_ONCE = 16
_URI_CHARACTERS = "%:/?#[]@!$&'()*+,;=~"


class Slice(NamedTuple):
    """A part of a file: the row groups whose first byte is in it."""

    uri: str
    start: int
    end: int


def can_read(uri: str) -> bool:
    """Whether tasks can read a place's files by themselves.

    Args:
        uri: A file or a folder, as Spark names it.

    Returns:
        Whether pyarrow has a file system for it.
    """
    import pyarrow as pa

    try:
        located(uri)
    except (pa.ArrowException, OSError, ValueError):
        return False
    return True


def located(uri: str) -> tuple[Any, str]:
    """The file system and the path of a URI as Spark writes them."""
    from pyarrow import fs

    scheme, _, rest = uri.partition(":")
    if scheme == "file":
        return fs.LocalFileSystem(), unquote(urlsplit(uri).path)
    if scheme in ("s3a", "s3n"):  # Hadoop's names
        scheme = "s3"
    # Spark leaves letters beyond ASCII as they are.
    system, path = fs.FileSystem.from_uri(f"{scheme}:{quote(rest, safe=_URI_CHARACTERS)}")
    return system, path


def with_sizes(files: Iterable[str]) -> list[tuple[str, int]]:
    """The files that are not empty, by their URIs, and their sizes in bytes.

    They are asked for side by side, as each may be a request.
    """
    names = sorted(files)
    with ThreadPoolExecutor(_ASKED_AT_ONCE) as pool:
        return [
            (uri, size) for uri, size in zip(names, pool.map(_size, names), strict=True) if size
        ]


def _size(uri: str) -> int:
    system, path = located(uri)
    info = system.get_file_info(path)
    if not info.is_file:
        raise FileNotFoundError(f"Parquet file {uri} is not there")
    return int(info.size)


def slices_of(
    files: Sequence[tuple[str, int]], cores: int, *, a_core: int = _TASKS_A_CORE, times: int = 1
) -> list[list[Slice]]:
    """Share files out to tasks: small ones together, large ones cut.

    Args:
        files: URIs and sizes: see `with_sizes`.
        cores: How many tasks run at once.
        a_core: How many tasks there are for each of them, if none gets too much.
        times: How many times `TASK_BYTES` a task is given at most.

    Returns:
        What each task reads, none of them nothing.
    """
    total = sum(size for _, size in files)
    target = min(times * TASK_BYTES, max(LEAST_TASK_BYTES, -(-total // (cores * a_core))))
    tasks: list[list[Slice]] = []
    filled = 0
    for uri, size in files:
        for start in range(0, size, target):
            end = min(start + target, size)
            if not tasks or filled + end - start > target or len(tasks[-1]) >= _TASK_FILES:
                tasks.append([])
                filled = 0
            tasks[-1].append(Slice(uri, start, end))
            filled += end - start
    return tasks


def parts_of(tasks: list[list[Slice]], batches: Iterator[pa.RecordBatch]) -> Iterator[Slice]:
    """What the tasks read whose numbers come."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from tasks[number]


def groups_in(part: Slice, metadata: Any) -> list[int]:
    """The row groups of a slice of a file."""
    inside = []
    for group in range(metadata.num_row_groups):
        chunk = metadata.row_group(group).column(0)
        first = chunk.dictionary_page_offset or chunk.data_page_offset
        if part.start <= first < part.end:
            inside.append(group)
    return inside


def check_columns(uri: str, wanted: list[str], there: list[str]) -> None:
    """Raise an error that names file and columns, if the file lacks some."""
    if missing := [name for name in wanted if name not in there]:
        raise ValueError(
            f"xorack: {uri} has no column {', '.join(missing)}: it has {', '.join(there)}"
        )


def long_column(rows: pa.RecordBatch, name: str, uri: str) -> pa.Array:
    """A column of longs."""
    import pyarrow as pa

    column = rows.column(name)
    if column.type != pa.int64():
        raise ValueError(f"xorack: unit column {name} of {uri} is {column.type}, expected int64")
    return column
