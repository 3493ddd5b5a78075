"""The rows that differ, written as Parquet."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from xorack.core.errors import ArgumentError
from xorack.spark._diff.inputs import files_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from xorack.spark._diff.difference import Difference

__all__ = ["check_empty", "write_frames"]

_URI = re.compile(r"[A-Za-z][\w+.-]*:/")


def check_empty(spark: SparkSession, folder: str, *, is_local: bool) -> None:
    """Check that a folder to write to is empty or new; on this machine, that it can be written.

    Raises:
        ArgumentError: It is not.
    """
    path = Path(os.path.abspath(folder))
    if not is_local or _URI.match(folder):
        is_free = not files_in(spark, folder)
    else:
        nearest = next(one for one in (path, *path.parents) if os.path.lexists(one))
        is_free = nearest != path or (path.is_dir() and not os.listdir(path))
        if is_free and not (nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)):
            raise ArgumentError("out", problem=f"{folder}: cannot write to {nearest}")
    if not is_free:
        raise ArgumentError("out", problem=f"{folder} is not an empty folder")


def write_frames(difference: Difference, folder: str, *, is_local: bool) -> None:
    """Write all rows that differ, in a folder for each kind.

    Args:
        difference: The result of a comparison.
        folder: The path of the folder, which is made.
        is_local: True if a path without a scheme is on this machine.
    """
    frames = {
        "missing": difference.missing,
        "extra": difference.extra,
        "changed": difference.changed,
        "duplicates": difference.duplicates,
        "repair": difference.repair(),
        "deletions": difference.deletions(),
    }
    if is_local and not _URI.match(folder):
        folder = f"file:{os.path.abspath(folder)}"
    for name, frame in frames.items():
        frame.write.parquet(f"{folder}/{name}")
