"""The rows that differ, written as Parquet."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from xorack.compare.inputs import check_out
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
    if is_local and not _URI.match(folder):
        check_out(folder)
    elif files_in(spark, folder):
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
        "repair": difference.repair,
        "deletions": difference.deletions,
    }
    if is_local and not _URI.match(folder):
        folder = f"file:{os.path.abspath(folder)}"
    for name, frame in frames.items():
        frame.write.parquet(f"{folder}/{name}")
