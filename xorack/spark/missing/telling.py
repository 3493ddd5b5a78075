"""What the error says of an output that differs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from xorack.core.masking import masked
from xorack.core.text import cut
from xorack.errors import ColumnsError, OutputDiffersError
from xorack.spark.messages import one_line
from xorack.spark.missing.found import resolve
from xorack.spark.units import column_named

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from xorack.spark.evidence import Output, Proof
    from xorack.spark.run import RowNames

_MAX_NAMED = 100
"""Rows that an error has."""
_MAX_SAID = 20
"""Rows in the text of an error."""


def output_differs(
    rows: RowNames,
    proof: Proof,
    started: int,
    source: tuple[Output, DataFrame],
    chains: Sequence[str] = (),
    differing: str = "",
) -> OutputDiffersError:
    """Make the error of an output that differs, with the rows that are missing from it."""
    given, frame = source
    counts = rows.name, started, proof.totals.count, chains, differing
    try:
        found = resolve(rows, frame, proof, started)
        names = _first(rows, found.tagged) if found.named else []
        doubled = _first(rows, found.doubled) if found.surplus else []
        why = found.explain().sentence
        report = [*([why] if why else []), str(found), found.proof]
    except ColumnsError:
        raise
    except Exception as problem:  # noqa: BLE001 - that it differs is known, and is said
        text = f"which rows differ could not be found: {one_line(problem)}"
        return OutputDiffersError(*counts, [text])
    for some, count, word in (names, found.named, "missing"), (doubled, len(doubled), "doubled"):
        if some:
            texts = cut([*map(str, some)], _MAX_SAID, count)
            report.append(f"{word}, by ({', '.join(rows.unit)}): {', '.join(texts)}")
    if rows.batch_id is None:
        unnamed = found.named < found.missing
        how = "names: give evidence the frame that it adds up, or" if unnamed else "as a frame"
        more = ", rows=frame" if unnamed or found.jobs else ""
        output, input_ = _text(proof.given, "written"), _text(given, "rows")
        report.append(f"{how}: {rows.name}.audit({output}).missing_rows({input_}{more})")
    error = OutputDiffersError(*counts, report)
    error.missing, error.why, error.found = names, why, found
    return error


def _first(rows: RowNames, frame: DataFrame) -> list[tuple[Any, ...]]:
    columns, mask = [column_named(frame, name)[0] for name in rows.unit], rows.tracking.mask
    return [
        tuple(
            masked(row[i]) if name.lower() in mask else row[i] for i, name in enumerate(rows.unit)
        )
        for row in frame.select(*columns).limit(_MAX_NAMED).collect()
    ]


def _text(given: Any, otherwise: str) -> str:
    several = given if isinstance(given, (list, tuple)) else [given]
    return repr(given) if all(isinstance(output, str) for output in several) else otherwise
