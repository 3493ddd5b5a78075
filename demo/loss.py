"""Loses rows between the two jobs by three mistakes that people make."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow.parquet import ParquetFile, write_table

from pipeline.scan import file_id
from xorack import unit_id

RUN = "demo"
_SEED = 1
_COLUMNS = ("file", "position", "word")


class LostWord(NamedTuple):
    """A word that was lost, and the mistake that lost it."""

    file: str
    position: int
    word: str
    mistake: str

    @property
    def tag(self) -> str:
        """The tag of the chain of the word's file."""
        return f"{RUN}/file/{self.file}"

    @property
    def id(self) -> str:
        """The id of the word's unit, as an event names it."""
        return f"{unit_id(f'{RUN}/words', file_id(self.file), self.position):016x}"


def lose_words(folder: Path, number: int) -> list[LostWord]:
    """Lose a word of each of `number` readable files, which are chosen by chance.

    The mistakes alternate. ``split`` has written the folder: see `pipeline.data`. Returns the lost
    words, sorted by file. There are fewer words if there are not enough files.
    """
    parts = sorted((folder / "words").glob("part-*.parquet"))
    files = pd.concat([ParquetFile(part).read(["file"]).to_pandas() for part in parts], keys=parts)
    status = pd.concat(map(pd.read_parquet, (folder / "files").glob("part-*.parquet")))
    readable = files[~files["file"].isin(status["file"][status["error"].notna()])]
    one_each = readable.groupby("file").sample(1, random_state=_SEED)
    chosen = one_each.sample(min(number, len(one_each)), random_state=_SEED).index
    mistakes = [*MISTAKES]
    lost = []
    # Begin at the end of each part, because removing a row moves the rows behind it.
    for turn, (part, row) in enumerate(sorted(chosen, reverse=True)):
        mistake = mistakes[turn % len(mistakes)]
        (word,) = ParquetFile(part).read(_COLUMNS).slice(row, 1).to_pylist()
        MISTAKES[mistake](part, row)
        # Hadoop's checksum belongs to the unchanged file, so delete it.
        part.with_name(f".{part.name}.crc").unlink(missing_ok=True)
        lost.append(LostWord(**word, mistake=mistake))
    return sorted(lost)


def _join_on_null(part: Path, row: int) -> None:
    """Join with another table. One row has a null key, so an inner join drops it."""
    table = ParquetFile(part).read()
    keys = [None if number == row else 1 for number in range(len(table))]
    rows = pa.table({"key": pa.array(keys, pa.int64()), "row": np.arange(len(table))})
    joined = rows.join(pa.table({"key": pa.array([1], pa.int64())}), "key", join_type="inner")
    write_table(table.take(joined.sort_by("row")["row"]), part)


def _kill_worker(part: Path, row: int) -> None:
    """Copy the rows with a worker that is killed between two steps and started again."""
    offset, copies = part.with_name("_offset"), [part.with_name(f"_copy{n}") for n in range(2)]
    command = [sys.executable, "-m", "demo.worker", str(part)]
    root = Path(__file__).parents[1]
    for copy in copies:
        arguments = [*command, str(copy), str(offset), str(row)]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, cwd=root) as worker:
            if worker.stdout is not None and worker.stdout.readline():
                worker.kill()
    write_table(pa.concat_tables(ParquetFile(copy).read() for copy in copies), part)
    for path in (offset, *copies):
        path.unlink()


def _skip_row(part: Path, row: int) -> None:
    """Read the rows page by page. Before the second page, another program deletes a row."""
    table = ParquetFile(part).read()
    first, second = table.slice(0, row), table.slice(row)
    # OFFSET counts rows. If an earlier row was deleted, the page begins one row too late.
    write_table(pa.concat_tables([first, second.slice(1)]), part)


MISTAKES: Final[Mapping[str, Callable[[Path, int], None]]] = {
    "null key: an inner join dropped it": _join_on_null,
    "killed worker: committed, not written": _kill_worker,
    "paging: OFFSET skipped it": _skip_row,
}
"""Maps a mistake in words to the function that makes it on a row of a part."""


def rows_in(folder: Path) -> int:
    """Count the rows of words on disk, like a check of row counts."""
    parts = (folder / "words").glob("part-*.parquet")
    return sum(ParquetFile(part).metadata.num_rows for part in parts)
