"""What is compared, and the DuckDB that compares."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xorack.core.errors import ArgumentError

if TYPE_CHECKING:
    from xorack.compare.columns import Names, Tolerance

__all__ = ["CompareOptions", "connect"]


@dataclass(frozen=True)
class CompareOptions:
    """What is compared, and how; see `xorack.spark.diff`.

    Attributes:
        key: The columns that say which rows belong together; None for whole rows.
        values: The columns to compare.
        ignore: Columns to leave out.
        tolerance: The largest difference of equal values, of all columns or by name.
        text: Columns that are compared as text.
        ignore_case: Columns whose text is compared without case; ``*`` for all.
        ignore_blanks: Columns whose text is compared without blanks at the ends.
        limit: How many rows of each kind to fetch.
    """

    key: Names | None
    values: Names | None = None
    ignore: Names = ()
    tolerance: Tolerance = None
    text: Sequence[str] = ()
    ignore_case: Sequence[str] = ()
    ignore_blanks: Sequence[str] = ()
    limit: int = 10


@contextmanager
def connect(memory: str | None = None) -> Iterator[Any]:
    """Open DuckDB in memory; what does not fit goes to a folder that is removed at the end.

    Raises:
        ImportError: DuckDB is missing.
        ArgumentError: The memory is no size.
    """
    import duckdb

    with tempfile.TemporaryDirectory(prefix="xorack-", ignore_cleanup_errors=True) as folder:
        settings: dict[str, Any] = {"temp_directory": folder, "preserve_insertion_order": False}
        with duckdb.connect(config=settings) as con:
            if memory is not None:
                try:
                    con.execute(f"SET memory_limit = '{memory.replace(chr(39), '')}'")
                except duckdb.Error as error:
                    raise ArgumentError("memory", memory, "a size such as 2GB") from error
            yield con
