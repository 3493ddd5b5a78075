"""What became of the files that were started: those that are gone or changed have names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xorack.core.masking import masked_path
from xorack.core.text import cut
from xorack.errors import OutputDiffersError
from xorack.spark.record import summary_in
from xorack.spark.storage import MAX_NAMED, files_of, files_read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from xorack.spark.record import Header
    from xorack.spark.run import RowNames
    from xorack.spark.storage import Files

_EXAMPLES = 3


def files_started(frame: DataFrame) -> Files:
    """Return the files that a frame reads, their bytes and times; none of more than `MAX_NAMED`."""
    names = files_read(frame)
    return files_of(frame.sparkSession, names if len(names) <= MAX_NAMED else [])


def input_lost(rows: RowNames, header: Header, missing: int) -> OutputDiffersError:
    """Make the error of an output that has all that its job read, which was not all."""
    started = summary_in(header).count
    before = {name: tuple(facts) for name, facts in header.get("files", {}).items()}
    now = files_of(rows.tracking.spark, list(before))
    changes = {
        "gone": sorted(before.keys() - now.keys()),
        "written again": sorted(name for name in now if now[name] != before[name]),
    }
    texts = []
    for what, names in changes.items():
        some = ", ".join(cut([masked_path(name, rows.tracking.mask) for name in names], _EXAMPLES))
        if names:
            texts.append(f"{len(names):,} of {len(before):,} files are {what} since: {some}")
    why = f"the job's input lost {missing:,} rows that were started"
    why += f": {'; '.join(texts)}" if texts else ""
    report = [why, "bring them back and repeat the job; allow_missing=True returns the report"]
    error = OutputDiffersError(rows.name, started, started - missing, (), "", report)
    error.why = why
    return error
