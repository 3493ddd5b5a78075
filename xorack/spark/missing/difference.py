"""The findings of a failing finish about an output that differs, and its error."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from xorack.core.errors import XorAckError
from xorack.core.masking import masked, masked_paths
from xorack.core.text import plural
from xorack.errors import OutputDiffersError
from xorack.spark.messages import one_line
from xorack.spark.missing import telling
from xorack.spark.missing.found import resolve
from xorack.spark.missing.why import NO_REASON, Explanation
from xorack.spark.types import hints_of
from xorack.spark.units import column_named, has_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from xorack.spark.evidence import Evidence
    from xorack.spark.folding import Totals
    from xorack.spark.missing.comparing import Keep
    from xorack.spark.missing.found import MissingRows
    from xorack.spark.missing.why import Sample
    from xorack.spark.run import RowNames

_MAX_NAMED = 100
"""Most rows in an error."""
_LOG = logging.getLogger("xorack.spark")


@dataclass(frozen=True)
class Difference:
    """The known difference between an output and what was started.

    Attributes:
        started: The sums of what was started; `written` has those of the output.
        found: The missing rows; None if the source cannot be compared.
        names: The unit columns of the first missing rows; `doubled` has those of surplus rows.
        keys: A sentence that explains the entire difference, by keys or evidence in another form.
        hints: Sentences about other problems of the output.
        problem: Why rows cannot be compared.
    """

    started: Totals
    written: Totals
    found: MissingRows | None = None
    explanation: Explanation = NO_REASON
    sample: Sample | None = None
    names: Sequence[tuple[Any, ...]] = ()
    doubled: Sequence[tuple[Any, ...]] = ()
    keys: str = ""
    hints: tuple[str, ...] = ()
    problem: str = ""

    @property
    def sentence(self) -> str:
        """The reasons, or else the hints, in one sentence."""
        if self.keys or self.explanation.sentence:
            return self.keys or self.explanation.sentence
        return self.problem if self.found is None else self.found.proof

    def tells_chains(self, rows: RowNames, source: DataFrame) -> bool:
        """Return whether the differing rows and their chains are known exactly."""
        if self.found is None or self.sample is None or not self.found.is_exact:
            return False
        is_apart = {*rows.chain} <= {*rows.unit} or self.found.is_apart
        return is_apart and not self.found.unknown and has_columns(source, rows.chain)


def find_difference(
    rows: RowNames,
    evidence: Evidence,
    started: Totals,
    source: DataFrame,
    frames: Sequence[DataFrame],
    keep: Keep,
) -> Difference:
    """Compare a source with an output that differs, once and by unit, with names and reasons."""
    found = Difference(started, evidence.totals)
    _say_what_is_computed(rows, started, evidence.totals, frames)
    try:
        found = replace(found, hints=_hints(rows, evidence, started))
        missing = resolve(rows, source, evidence, started, frames, keep)
        explanation, sample = missing.explain_with(keep)
        if sample is None:
            return replace(found, found=missing, explanation=explanation)
        names = _first(rows, sample.kept.where("missing_count > 0 AND is_named"))
        doubled = _first(rows, sample.kept.where("missing_count < 0"))
    except XorAckError:
        raise
    except Exception as error:  # noqa: BLE001 - that it differs is known, and is said
        problem = f"which rows differ could not be found: {one_line(error, rows.tracking.mask)}"
        return replace(found, problem=problem)
    return replace(
        found, found=missing, explanation=explanation, sample=sample, names=names, doubled=doubled
    )


def _hints(rows: RowNames, evidence: Evidence, started: Totals) -> tuple[str, ...]:
    times = [time for stored in evidence.stored for time in (stored.first, stored.last) if time]
    doubling = telling.doubling_in_words(started, evidence.totals, times)
    stored = evidence.outputs if evidence.kind != "observed" else ()
    return tuple(filter(None, (doubling, hints_of(rows, stored))))


def _say_what_is_computed(
    rows: RowNames, started: Totals, written: Totals, frames: Sequence[DataFrame]
) -> None:
    """Log what a failing finish is going to compute."""
    seconds = rows.tracking.jobs.seconds(rows.namespace)
    took = "" if seconds is None else f"; the job took {seconds:,.0f} s"
    what = f"reading the source{took}"
    if frames:
        what = (
            f"computing {plural(len(frames), 'frame')} of the job once more, and reading the "
            f"source{took}; recompute=False prevents this"
        )
    text = telling.head_of(rows.name, started, written, None)
    _LOG.warning("%s. To name the rows: %s", text, what)


def _first(rows: RowNames, frame: DataFrame) -> list[tuple[Any, ...]]:
    columns, mask = [column_named(frame, name)[0] for name in rows.unit], rows.tracking.mask
    return [
        tuple(
            masked(row[i]) if name.lower() in mask else row[i] for i, name in enumerate(rows.unit)
        )
        for row in frame.select(*columns).distinct().limit(_MAX_NAMED).collect()
    ]


def error_of(
    rows: RowNames,
    evidence: Evidence,
    found: Difference,
    source: Any = None,
    finished_of: tuple[int, int] | None = None,
    examples: Sequence[str] = (),
) -> OutputDiffersError:
    """Make the error for a difference.

    `finished_of` has the number of chains that finish, and the number of all chains.
    """
    missing = found.found
    head = telling.head_of(rows.name, found.started, found.written, missing)
    if found.keys:
        head = f"the output lacks the units of {rows.name!r} that were started"
    if finished_of is not None:
        finished, of = finished_of
        head += f": {telling.chains_in_words(examples, of - finished, finished, of)}"
    lines = [head, found.keys, found.explanation.sentence]
    if missing is not None:
        lines += [str(missing), missing.proof]
        for word, some, count in (
            ("missing", found.names, missing.named),
            ("doubled", found.doubled, len(found.doubled)),
        ):
            lines.append(telling.named_in_words(word, rows.unit, some, count) if some else "")
    lines += [*found.hints, found.problem]
    if missing is not None and rows.batch_id is None:
        unnamed = missing.named < missing.missing
        how = "names: pass the aggregated frame to evidence, or" if unnamed else "as a frame"
        more = ", rows=frame" if unnamed or missing.asked else ""
        output, input_ = _text(evidence.given, "written"), _text(source, "source")
        lines.append(f"{how}: {rows.name}.audit({output}).missing_rows({input_}{more})")
    why = found.keys or found.explanation.sentence
    return OutputDiffersError(
        masked_paths("\n".join(filter(None, lines)), rows.tracking.mask),
        found.started.count,
        found.written.count,
        examples,
        found.names,
        why,
        missing,
    )


def _text(given: Any, otherwise: str) -> str:
    several = given if isinstance(given, (list, tuple)) else [given]
    return repr(given) if all(isinstance(output, str) for output in several) else otherwise
