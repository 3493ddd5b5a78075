"""Words that the demo loses between the jobs: it deletes their rows from what ``split`` wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow.parquet import ParquetFile, write_table


class LostWord(NamedTuple):
    """A word that was deleted; the names are those of the columns."""

    file: str
    position: int
    word: str


def lose_words(folder: Path, number: int) -> list[LostWord]:
    """Delete words of readable files, the same words each time, from as many files as possible.

    Args:
        folder: The folder that ``split`` wrote; see `pipeline.data`.
        number: The number of words to delete.

    Returns:
        The deleted words, sorted by file and position; fewer than `number` if there are no more.
    """
    parts = sorted((folder / "words").glob("part-*.parquet"))
    words: Counter[str] = Counter()
    for part in parts:
        words.update({file: len(rows) for file, rows in _rows_by_file(part).items()})
    for part in (folder / "files").glob("part-*.parquet"):
        for row in ParquetFile(part).read(["file", "error"]).to_pylist():
            if row["error"] is not None:
                del words[row["file"]]
    # The middle of a file: a loss at its beginning or end would be easier to notice.
    left, lost = _shares(words, number), []
    for part in parts:
        chosen: list[int] = []
        for file, rows in _rows_by_file(part).items():
            middle = np.roll(rows, len(rows) // 2)[: left[file]]
            left[file] -= len(middle)
            chosen += middle.tolist()
        if chosen:
            table = ParquetFile(part).read()
            lost += table.select(LostWord._fields).take(chosen).to_pylist()
            keep = ~np.isin(np.arange(len(table)), chosen)
            write_table(table.filter(pa.array(keep)), part)
            # Hadoop's checksum is of the file as it was.
            part.with_name(f".{part.name}.crc").unlink(missing_ok=True)
    return sorted(LostWord(**word) for word in lost)


def _rows_by_file(part: Path) -> dict[str, Any]:
    """Return the numbers of each file's rows, as arrays."""
    files = ParquetFile(part).read(["file"])["file"].combine_chunks().dictionary_encode()
    codes, names = files.indices.to_numpy(), files.dictionary.to_pylist()
    return {name: np.flatnonzero(codes == code) for code, name in enumerate(names)}


def _shares(words: Mapping[str, int], number: int) -> Counter[str]:
    """Divide a number of words among files: one of each file, then another of each."""
    shares: Counter[str] = Counter()
    files = sorted(words)
    while number > 0 and files:
        count = min(number, len(files))
        shares.update(files[(2 * n + 1) * len(files) // (2 * count)] for n in range(count))
        number -= count
        files = [file for file in files if shares[file] < words[file]]
    return shares
