"""What the tasks that read files say of them, and what is made of it: a row a file. No Spark.

A word's place is a number: that of its file, in the order in which the files were listed, and below
it the word's position in the file (see `pipeline.reading`). It is all that a row needs besides the
word: one more column costs as much as a tenth of the whole job.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from xorack.core.stamp import xor_bytes

__all__ = ["MOST_FILES", "POSITION_BITS", "Said", "gathered", "position_of"]

POSITION_BITS = 40
"""Of a place, for the position: files of up to 1 TiB."""
MOST_FILES = 1 << 63 - POSITION_BITS


@dataclass
class Said:
    """What is known of a file's words.

    Attributes:
        words: How many there are.
        stamp: The XOR of their stamps; None if there are none.
        error: Why the file cannot be read; None if it could.
        bounds: What says which words they are: see `xorack.spark.fold_runs`.
    """

    words: int = 0
    stamp: bytes | None = None
    error: str | None = None
    bounds: int = 0


def gathered(tasks: Iterable[Mapping[int, Said]]) -> dict[int, Said]:
    """Put together what the tasks said.

    Args:
        tasks: What each said, by the file's number: of the words that it read of the file, or what
            was wrong. Several may have read parts of one file.

    Returns:
        By the file's number; files that have neither words nor an error are left out.
    """
    found: dict[int, Said] = {}
    for task in tasks:
        for number, said in task.items():
            file = found.setdefault(number, Said())
            file.words += said.words
            file.bounds ^= said.bounds
            if said.stamp is not None:
                file.stamp = said.stamp if file.stamp is None else xor_bytes(file.stamp, said.stamp)
            if said.error is not None:
                file.error = min(filter(None, (file.error, said.error)))
    return found


def position_of(at: int) -> int:
    """A word's position in its file.

    Args:
        at: The word's place.

    Returns:
        The position.
    """
    return at & (1 << POSITION_BITS) - 1
