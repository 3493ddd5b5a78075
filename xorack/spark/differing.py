"""What an error says of an output that differs: which rows, why, and how to have all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from xorack.core.errors import ColumnsError, OutputDiffersError
from xorack.spark.messages import one_line
from xorack.spark.missing import MissingRows, resolve

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from xorack.spark.evidence import Output, Proof
    from xorack.spark.run import Rows

__all__ = ["find", "output_differs"]

_NAMED = 100
"""Rows that an error names."""


def find(rows: Rows, proof: Proof, started: int, source: DataFrame) -> MissingRows | None:
    """Compare an output with what the job read; None if the output cannot be read.

    Raises:
        ColumnsError: Columns or values are unsuitable.
        OutputDiffersError: They cannot be compared.
    """
    numbers = started, proof.totals.count
    try:
        return resolve(rows, source, proof.outputs, numbers) if proof.outputs else None
    except ColumnsError:
        raise
    except Exception as problem:
        raise OutputDiffersError(rows.name, *numbers, (), "", _unknown(problem)) from problem


def output_differs(
    rows: Rows,
    proof: Proof,
    started: int,
    source: tuple[Output, MissingRows | None],
    chains: tuple[Sequence[str], str] = ((), ""),
) -> OutputDiffersError:
    """Make the error of an output that differs, with the rows that it lacks.

    Args:
        rows: The rows that finish.
        proof: The evidence of the output.
        started: How many units were started.
        source: What the job read, as it was given, and what `find` found.
        chains: Some of the chains that differ, and how many differ.
    """
    first = rows.name, started, proof.totals.count, *chains
    given, found = source
    if found is None:
        return OutputDiffersError(*first)
    try:
        missing, why = found.looked.rows, found.explain().sentence
        report = [*filter(None, [*_causes(rows, proof, found), why]), str(found)]
        report += _examples(rows, missing, "missing")
        report += _examples(rows, found.looked.doubled, "doubled")
    except Exception as problem:  # noqa: BLE001 - that it differs is known, and is told
        return OutputDiffersError(*first, _unknown(problem))
    if rows.batch_id is None:
        report.append(f"as a frame: {rows.name}.audit({_text(proof.given, 'written')})"
                      f".missing_rows({_text(given, 'rows')})")  # fmt: skip
    error = OutputDiffersError(*first, report)
    error.missing = [_values(rows, row) for row in missing[:_NAMED]]
    error.why, error.found = why, found
    return error


def _unknown(problem: Exception) -> list[str]:
    return [f"which rows differ could not be found: {one_line(problem)}"]


def _causes(rows: Rows, proof: Proof, found: MissingRows) -> Iterable[str]:
    """Say whose units an output may have that are as many as those that were started."""
    if rows.batch_id is None and proof.totals.count and not (found.missing or found.surplus):
        run = rows.run_with(proof.totals)
        if run is not None:
            yield f"they are those of the run {run!r}: the output is of that run"
        else:
            types = ", ".join(f"{name} {type_}" for name, type_ in rows.started_types())
            yield (
                "with_unit saw a unit column of another type or value than start, or another name "
                f"or run: at the start they were {types}; int and bigint are equal, a string is not"
            )


def _examples(rows: Rows, some: Sequence[dict[str, Any]], word: str) -> Iterable[str]:
    if some:
        named = ", ".join(str(_values(rows, row)) for row in some[:_NAMED])
        yield f"{word}, by ({', '.join(rows.unit)}): {named}"


def _values(rows: Rows, row: dict[str, Any]) -> tuple[Any, ...]:
    """Return the unit of a row: the values of its columns, or else all that is shown of it."""
    names = {name.lower(): name for name in row}
    own = [names[name.lower()] for name in rows.unit if name.lower() in names]
    return tuple(row[name] for name in own) or tuple(row.values())


def _text(given: Any, otherwise: str) -> str:
    several = given if isinstance(given, (list, tuple)) else [given]
    if all(isinstance(one, str) for one in several):
        return repr(given if isinstance(given, str) else list(given))
    return otherwise
