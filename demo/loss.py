"""Words that the demo loses between the jobs: it deletes their rows from what ``split`` wrote."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow.parquet import ParquetFile, write_table

from pipeline.scan import file_id
from xorack import unit_id

RUN = "demo"
_SEED = 1


class LostWord(NamedTuple):
    """A word that was deleted; the names are those of the columns."""

    file: str
    position: int
    word: str

    @property
    def id(self) -> str:
        """The id of the word's unit, as an event names it."""
        return f"{unit_id(f'{RUN}/words', file_id(self.file), self.position):016x}"


def lose_words(folder: Path, number: int) -> list[LostWord]:
    """Delete words of as many readable files, chosen by chance.

    ``split`` wrote the folder; see `pipeline.data`. Returns the deleted words, sorted by file;
    fewer than `number` if there are no more files. An event names a word that is missing alone.
    """
    parts = sorted((folder / "words").glob("part-*.parquet"))
    files = pd.concat([ParquetFile(part).read(["file"]).to_pandas() for part in parts], keys=parts)
    status = pd.concat(map(pd.read_parquet, (folder / "files").glob("part-*.parquet")))
    readable = files[~files["file"].isin(status["file"][status["error"].notna()])]
    one_each = readable.groupby("file").sample(1, random_state=_SEED)
    chosen = list(one_each.sample(min(number, len(one_each)), random_state=_SEED).index)
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
