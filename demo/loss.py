"""Words that the demo loses between the jobs: it deletes their rows from what ``split`` wrote."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow.parquet import ParquetFile, write_table


class LostWord(NamedTuple):
    """A word that was deleted; the names are those of the columns."""

    file: str
    position: int
    word: str


def lose_words(folder: Path, number: int) -> list[LostWord]:
    """Delete words of readable files, the same words each time, from as many files as possible.

    ``split`` wrote the folder; see `pipeline.data`. Returns the deleted words, sorted by file and
    position; fewer than `number` if there are no more.
    """
    parts = sorted((folder / "words").glob("part-*.parquet"))
    files = pd.concat([ParquetFile(part).read(["file"]).to_pandas() for part in parts], keys=parts)
    status = pd.concat(map(pd.read_parquet, (folder / "files").glob("part-*.parquet")))
    readable = files[~files["file"].isin(status["file"][status["error"].notna()])]
    rows = readable.astype("category").sort_values("file", kind="stable")
    by_file = rows.groupby("file", observed=True)["file"]
    words = by_file.transform("size")
    # The middle of a file: a loss at its beginning or end would be easier to notice.
    turns = rows.assign(turn=(by_file.cumcount() + words // 2) % words).query("turn < @number")
    chosen: list[tuple[Path, int]] = []
    for _, turn in turns.groupby("turn"):
        if count := min(number - len(chosen), len(turn)):
            chosen += [turn.index[(2 * n + 1) * len(turn) // (2 * count)] for n in range(count)]
    lost = []
    for part in {part for part, _ in chosen}:
        table = ParquetFile(part).read()
        gone = [row for other, row in chosen if other == part]
        lost += table.select(LostWord._fields).take(gone).to_pylist()
        keep = ~np.isin(np.arange(len(table)), gone)
        write_table(table.filter(pa.array(keep)), part)
        # Hadoop's checksum is of the file as it was.
        part.with_name(f".{part.name}.crc").unlink(missing_ok=True)
    return sorted(LostWord(**word) for word in lost)
