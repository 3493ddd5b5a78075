"""What is compared, and the DuckDB that compares."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xorack.compare.texts import literal
from xorack.core.errors import ArgumentError

if TYPE_CHECKING:
    from xorack.compare.columns import Names, Tolerance

__all__ = ["CompareOptions", "connect", "open_network"]


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
        settings["python_enable_replacements"] = False  # a query sees no variable of ours
        with duckdb.connect(config=settings) as con:
            if memory is not None:
                try:
                    con.execute(f"SET memory_limit = '{memory.replace(chr(39), '')}'")
                except duckdb.Error as error:
                    raise ArgumentError("memory", memory, "a size such as 2GB") from error
            yield con


def open_network(con: Any, name: str) -> None:
    """Load DuckDB's extension for S3 and HTTP, with the credentials that boto3 finds."""
    try:
        from duckdb_extensions import import_extension

        import_extension("httpfs")
    except ImportError:
        con.execute("INSTALL httpfs")
    con.execute("LOAD httpfs")
    if not name.startswith("s3://"):
        return
    import boto3

    session = boto3.Session(region_name=os.environ.get("AWS_REGION") or None)
    secret = {"TYPE": "s3", "REGION": session.region_name}
    if found := session.get_credentials():
        keys = found.get_frozen_credentials()
        secret |= {"KEY_ID": keys.access_key, "SECRET": keys.secret_key}
        secret |= {"SESSION_TOKEN": keys.token}
    if address := os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL"):
        scheme, _, host = address.rstrip("/").partition("://")
        secret |= {"ENDPOINT": host, "URL_STYLE": "path", "USE_SSL": str(scheme == "https")}
    given = ", ".join(f"{key} {literal(value)}" for key, value in secret.items() if value)
    con.execute(f"CREATE OR REPLACE SECRET xorack ({given})")
