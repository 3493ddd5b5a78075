"""The rows that differ, written as Parquet."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from xorack.spark.errors import InvalidOption
from xorack.spark.inputs import files_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from xorack.spark.diff import Difference

__all__ = ["check_empty", "write_frames"]


def check_empty(spark: SparkSession, folder: str, *, is_local: bool) -> None:
    """Check that a folder to write to is empty or does not exist.

    Raises:
        InvalidOption: It is not.
    """
    if is_local and "://" not in folder:
        is_free = not os.path.lexists(folder) or (os.path.isdir(folder) and not os.listdir(folder))
    else:
        is_free = not files_in(spark, folder)
    if not is_free:
        raise InvalidOption("out", f"{folder} is not an empty folder")


def write_frames(difference: Difference, folder: str, *, is_local: bool) -> None:
    """Write all rows that differ, in a folder for each kind.

    Args:
        difference: What to write.
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
    if is_local and "://" not in folder:
        folder = f"file:{os.path.abspath(folder)}"
    for name, frame in frames.items():
        frame.write.parquet(f"{folder}/{name}")
