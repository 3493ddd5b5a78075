"""A worker that copies rows of a Parquet file: ``python -m demo.worker SOURCE TARGET OFFSET STOP``.

It has a common bug: it commits the offset of a row before it writes the row. At the row STOP it
waits between the commit and the write, so that the demo can kill it there.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyarrow.parquet import ParquetFile, write_table

_WAIT_SECONDS = 60


def copy(source: Path, target: Path, offset: Path, stop: int) -> None:
    """Copy the rows from the committed offset on. Wait before the row ``stop`` is written."""
    table = ParquetFile(source).read()
    begin = int(offset.read_text()) if offset.exists() else 0
    if not begin <= stop < len(table):
        write_table(table.slice(begin), target)
        return
    write_table(table.slice(begin, stop - begin), target)
    offset.write_text(str(stop + 1))
    print("committed", flush=True)
    time.sleep(_WAIT_SECONDS)


if __name__ == "__main__":
    copy(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
