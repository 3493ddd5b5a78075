"""What the tasks that read files say of them, and what is made of it: a row a file. No Spark.

A word's place is a number: that of its file, in the order in which the files were listed, and below
it the word's position in the file (see `pipeline.reading`). It is all that a row needs besides the
word: one more column costs as much as a tenth of the whole job.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass

from xorack.stamps import xor_bytes

__all__ = ["MOST_FILES", "POSITION_BITS", "Said", "about", "gathered", "position_of"]

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
    """

    words: int = 0
    stamp: bytes | None = None
    error: str | None = None


def about(stamp: bytes | None = None, words: int = 0, *, error: str | None = None) -> str:
    """What a task says of a file: of the words that it read of it, or what was wrong.

    Args:
        stamp: The XOR of the words' stamps.
        words: How many words.
        error: Why the file cannot be read.

    Returns:
        JSON, for `gathered`.
    """
    if error is not None:
        return json.dumps({"error": error})
    return json.dumps({"words": words, "stamp": base64.b64encode(stamp or b"").decode()})


def gathered(rows: Iterable[tuple[int, str]]) -> dict[int, Said]:
    """Put together what the tasks said.

    Args:
        rows: ``at`` (minus the file's number, minus 1) and ``word`` (see `about`), of all tasks.

    Returns:
        By the file's number; files that have neither words nor an error are left out.
    """
    found: dict[int, Said] = {}
    for at, text in rows:
        said, file = json.loads(text), found.setdefault(-1 - at, Said())
        if "error" in said:
            file.error = min(filter(None, (file.error, said["error"])))
        else:
            stamp = base64.b64decode(said["stamp"])
            file.stamp = stamp if file.stamp is None else xor_bytes(file.stamp, stamp)
            file.words += said["words"]
    return found


def position_of(at: int) -> int:
    """A word's position in its file.

    Args:
        at: The word's place.

    Returns:
        The position.
    """
    return at & (1 << POSITION_BITS) - 1
