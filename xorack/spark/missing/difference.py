"""The findings of a failing finish about an output that differs, and its error."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from xorack.core.errors import XorAckError
from xorack.core.masking import masked_paths
from xorack.core.text import plural
from xorack.errors import OutputDiffersError
from xorack.spark.messages import one_line
from xorack.spark.missing import telling
from xorack.spark.missing.found import find_missing
from xorack.spark.missing.why import NO_FINDINGS, Findings
from xorack.spark.tables import Snapshot
from xorack.spark.units import has_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from xorack.spark.evidence import Evidence
    from xorack.spark.folding import Totals
    from xorack.spark.missing.comparing import Comparison
    from xorack.spark.missing.found import MissingRows
    from xorack.spark.run import RowNames

_LOG = logging.getLogger("xorack.spark")


@dataclass(frozen=True)
class Difference:
    """The known difference between an output and what was started.

    Attributes:
        started: The sums of what was started; `written` has those of the output.
        missing_rows: The missing rows; None if the source cannot be compared.
        findings: The differing rows, the names of the first of them, and the values that they have
            in common.
        keys: A sentence that explains the entire difference by keys, or by evidence, in another
            form.
        hints: Sentences about other problems of the output.
        problem: Why rows cannot be compared.
    """

    started: Totals
    written: Totals
    missing_rows: MissingRows | None = None
    findings: Findings = NO_FINDINGS
    keys: str = ""
    hints: tuple[str, ...] = ()
    problem: str = ""

    @property
    def sentence(self) -> str:
        """The most informative sentence about the difference."""
        return self.why or (self.problem if self.missing_rows is None else self.missing_rows.proof)

    @property
    def why(self) -> str:
        """A sentence on why rows differ; empty if that is not known."""
        return self.keys or self.findings.explanation.sentence

    def tells_chains(self, rows: RowNames, source: DataFrame) -> bool:
        """Return whether the rows that differ, and their chains, are known exactly."""
        if (
            self.missing_rows is None
            or self.findings.differing is None
            or not self.missing_rows.is_exact
        ):
            return False
        is_apart = {*rows.chain} <= {*rows.unit} or self.missing_rows.is_apart
        return is_apart and not self.missing_rows.unknown and has_columns(source, rows.chain)


def find_difference(comparison: Comparison, hint: str = "") -> Difference:
    """Compare a source with an output that differs: once by unit, with names and reasons.

    `hint` is a sentence about another problem of the output.
    """
    difference = Difference(comparison.started, comparison.evidence.totals)
    _log_what_is_computed(comparison)
    try:
        hints = (*filter(None, (_doubling(comparison), hint)),)
        difference = replace(difference, hints=hints)
        missing = find_missing(comparison)
        return replace(difference, missing_rows=missing, findings=missing.examine(comparison.keep))
    except XorAckError:
        raise
    except Exception as error:  # noqa: BLE001 - the error still says that the output differs
        text = one_line(error, comparison.rows.tracking.mask)
        return replace(difference, problem=f"which rows differ could not be found: {text}")


def _doubling(comparison: Comparison) -> str:
    evidence = comparison.evidence
    times = [time for stored in evidence.stored for time in (stored.first, stored.last) if time]
    return telling.doubling_in_words(comparison.started, evidence.totals, times)


def _log_what_is_computed(comparison: Comparison) -> None:
    """Log which frames a failing finish will compute, because the computation may take long."""
    rows, frames = comparison.rows, len(comparison.frames)
    seconds = rows.tracking.jobs.seconds(rows.namespace)
    took = "" if seconds is None else f"; the job took {seconds:,.0f} s"
    what = f"reading the source{took}"
    if frames:
        what = (
            f"computing {plural(frames, 'frame')} of the job once more, and reading the "
            f"source{took}; recompute=False prevents this"
        )
    text = telling.head_of(rows.name, comparison.started, comparison.evidence.totals, None)
    _LOG.warning("%s. To name the rows: %s", text, what)


def error_of(
    rows: RowNames,
    evidence: Evidence,
    difference: Difference,
    source: Any = None,
    acked_of: tuple[int | None, int, bool] | None = None,
    examples: Sequence[str] = (),
) -> OutputDiffersError:
    """Make the error for a difference.

    `acked_of` has the number of chains that are acked after this call, the number of all chains,
    and whether more may be acked; see `chains_in_words`.
    """
    missing = difference.missing_rows
    head = telling.head_of(rows.name, difference.started, difference.written, missing)
    if difference.keys and difference.written != difference.started:
        head = f"the output lacks the units of {rows.name!r} that were started"
    if acked_of is not None:
        acked, of, is_least = acked_of
        head += f": {telling.chains_in_words(examples, acked, of, is_least=is_least)}"
    findings = difference.findings
    lines = [head, difference.keys, findings.explanation.sentence]
    if missing is not None:
        lines += [str(missing), missing.proof]
        for word, names, count in (
            ("missing", findings.names, missing.named_units),
            ("doubled", findings.doubled, missing.doubled_units),
        ):
            lines.append(telling.named_in_words(word, rows.unit, names, count) if names else "")
    lines += [*difference.hints, difference.problem]
    lines.append(_how_to_get_rows(rows, evidence, missing, source))
    return OutputDiffersError(
        masked_paths("\n".join(filter(None, lines)), rows.tracking.mask),
        difference.started.count,
        difference.written.count,
        examples,
        findings.names,
        difference.why,
        missing,
    )


def _how_to_get_rows(
    rows: RowNames, evidence: Evidence, missing: MissingRows | None, source: Any
) -> str:
    """Return the text of the call that returns the missing rows as a frame, or names them."""
    if missing is None or rows.batch_id is not None:
        return ""
    is_unnamed = missing.basis in telling.WITHOUT_FRAME and missing.named < missing.missing
    if not (missing.is_exact or is_unnamed):
        return ""
    how = "names: pass the aggregated frame to evidence, or" if is_unnamed else "as a frame"
    more = ", rows=frame" if is_unnamed or missing.asked else ""
    output, input_ = _text(evidence.place, "written"), _text(source, "source")
    return f"{how}: {rows.name}.audit({output}).missing_rows({input_}{more})"


def _text(place: Any, otherwise: str) -> str:
    if isinstance(place, Snapshot):
        return repr(place.name)
    several = place if isinstance(place, (list, tuple)) else [place]
    return repr(place) if all(isinstance(output, str) for output in several) else otherwise
