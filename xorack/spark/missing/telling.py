"""The facts about missing rows, as values, and their texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from xorack.core.text import cut, plural, verb
from xorack.spark.folding import Totals

_MAX_SHOWN = 20
"""Most rows in the text of an error."""


class Basis(Enum):
    """The basis of the numbers of missing rows."""

    UNITS = "the output has the units of rows"
    FRAME = "the job's rows, computed again, add up to the output"
    AFTER_FRAME = "the job's rows are all that were started"
    OTHER_FRAMES = "the job's rows add up to neither side"
    OTHER_OUTPUT = "the output has other rows each time it is read"
    NOT_COMPUTED = "the job's rows cannot be computed again"
    GROUPS = "there is no frame of the job"
    SHARED_UNITS = "units of two chains are equal"
    SOURCE_CHANGED = "the source is not what was started"


WITHOUT_FRAME = (Basis.GROUPS, Basis.AFTER_FRAME, Basis.OTHER_FRAMES, Basis.NOT_COMPUTED)
"""Bases with which another frame of the job could name rows."""


@dataclass(frozen=True)
class Counts:
    """The difference between two sides, in rows of the source and in units.

    Attributes:
        missing: The number of the source's rows that the other side lacks.
        named: The number of missing rows that can be named, because the source has their unit once,
            or the other side does not have it.
        surplus: The number of units that the other side has more often than the source.
        unknown: The number of surplus units that the source does not have.
        hidden_units: The number of units that the source has more than once, and the other side
            less often. `hidden_rows` is the number of their rows in the source.
        doubled_rows: The number of the source's rows whose units the other side has more often.
        named_units: The number of units of the rows in `named`, and `doubled_units` of those in
            `doubled_rows`, because several rows may have one unit.
        differing: The number of units that differ.
    """

    missing: int = 0
    named: int = 0
    surplus: int = 0
    unknown: int = 0
    hidden_units: int = 0
    hidden_rows: int = 0
    doubled_rows: int = 0
    named_units: int = 0
    doubled_units: int = 0
    differing: int = 0


_NO_COUNTS = Counts()


@dataclass(frozen=True, kw_only=True)
class Facts(Counts):
    """The result of a comparison of a source with an output.

    Attributes:
        basis: The basis of the counts.
        started: The sums of what was started; `written` has those of the output, and `source` those
            of the source.
        is_exact: Whether the counts are proved. Otherwise missing and surplus rows may cancel out.
        by: The columns by which the output was compared in groups.
        exchanged: The number of rows in groups that have as many units as were started, but other
            units.
        is_apart: Whether no unit is in two chains.
        frames: The number of known frames of the job; `asked` of them were compared.
        of_frames: The difference between the source and these frames.
        problem: Why the job's rows could not be computed.
    """

    basis: Basis
    started: Totals
    written: Totals
    source: Totals
    is_exact: bool = False
    by: tuple[str, ...] = ()
    exchanged: int = 0
    is_apart: bool = False
    frames: int = 0
    asked: int = 0
    of_frames: Counts = _NO_COUNTS
    problem: str = ""

    @property
    def difference(self) -> Totals:
        """The sums that the differing units must have."""
        return self.started - self.written

    @property
    def is_after_frame(self) -> bool:
        """True if rows were lost after the job's frame, or a source of the job has changed."""
        return self.basis == Basis.AFTER_FRAME


def counts_in_words(facts: Facts) -> str:
    """Say how many rows are missing, how many of them have names, and how many are surplus."""
    least = "" if facts.is_exact else "at least "
    by = f", by {', '.join(facts.by)}" if facts.by else ""
    parts = []
    if facts.missing or not facts.surplus:
        of = f"{facts.named:,} of {least}{plural(facts.missing, 'missing row')}"
        is_known = facts.is_exact or facts.missing
        parts.append(f"{of if is_known else 'none of the missing rows'} can be named{by}")
    is_of_source = facts.basis != Basis.SOURCE_CHANGED  # else the source may lack the rows
    if facts.missing > facts.named and not facts.is_exact and is_of_source:
        parts.append("the others are among .candidates")
    if facts.surplus:
        parts.append(f"the output has {least}{plural(facts.surplus, 'row')} too many")
    return "; ".join(parts)


_AGAIN = "the job's rows, computed again,"
_SENTENCES = {
    Basis.UNITS: "the output has the units of rows, and each unit was compared",
    Basis.FRAME: f"{_AGAIN} are those of the output, by XOR, count and sum: the rows that are not "
    "among them are missing",
    Basis.SHARED_UNITS: "two chains have equal units, so it is unknown which of their rows are "
    "missing",
    Basis.OTHER_OUTPUT: "the output is not deterministic: it gives other rows each time it is "
    "read; write it, and finish what was written",
}
"""Sentences for bases that need no comparison of groups."""
_BEGINNINGS = {
    Basis.GROUPS: "",
    Basis.AFTER_FRAME: f"{_AGAIN} are all rows that were started. So rows were lost later, in the "
    "aggregation or its write, or a source of the job has changed since, or evidence was given "
    "another frame than the one that is aggregated; ",
    Basis.OTHER_FRAMES: "{frames} to the output: computed again, "
    "{missing} missing and {surplus} too many. A frame "
    "gives other rows each time (dropDuplicates without an order, rand), a source of the job has "
    "changed since, rows were lost after it, too, or evidence was given another frame; ",
    Basis.NOT_COMPUTED: "the job's rows cannot be computed again: {0.problem}; ",
}
_OTHER_RUN = (
    "is the output of another run or name, or were unit columns of another type or value than at "
    "the start? "
)


def basis_in_words(facts: Facts) -> str:
    """Return the text that says what proves the names of rows, or why no row has a name."""
    if facts.basis == Basis.SOURCE_CHANGED:
        return f"the source is not what was started: {source_in_words(facts)}"
    if facts.basis in _SENTENCES:
        return _SENTENCES[facts.basis]
    frames = "the frame that evidence was given does not add up"
    if facts.frames > 1:
        frames = f"none of the {facts.frames} frames that evidence was given adds up"
    missing = plural(facts.of_frames.missing, "row is", "rows are")
    surplus = plural(facts.of_frames.surplus, "is", "are")
    named = {"frames": frames, "missing": missing, "surplus": surplus}
    text = _BEGINNINGS[facts.basis].format(facts, **named)
    if facts.is_exact:
        return f"{text}the rows that are named explain the sums of every group"
    text += _OTHER_RUN if facts.exchanged >= max(facts.source.count, 1) else ""
    if facts.by:
        return f"{text}no rows explain the sums of every group"
    return f"{text}it is unknown which rows the output has"


def source_in_words(facts: Facts) -> str:
    """Say how the source differs from what was started."""
    now, before = facts.source.count, facts.started.count
    if now == before:
        return f"it has {plural(now, 'unit')}, as many as were started, but other ones"
    return f"it has {plural(now, 'unit')}, and {plural(before, 'was', 'were')} started"


def head_of(name: str, started: Totals, written: Totals, facts: Facts | None) -> str:
    """Say how many of the started units the output has."""
    if facts is not None and facts.is_exact:
        there = started.count - facts.missing
        head = units_in_words(there, started.count, name)
        return head + (f", and {facts.surplus:,} too many" if facts.surplus else "")
    if written == started:
        count = plural(started.count, "unit")
        return f"the output has {count} of {name!r}, all that were started, but in other chains"
    if written.count == started.count:
        count = f"the output has {plural(written.count, 'unit')} of {name!r}"
        return f"{count}, but not those that were started"
    if 0 <= written.count < started.count:
        return f"at most {units_in_words(written.count, started.count, name)}"
    if written.count < 0:
        return f"the output lacks the units of {name!r} that were started"
    count = f"the output has {plural(written.count, 'unit')} of {name!r}"
    return f"{count}, and {plural(started.count, 'was', 'were')} started"


def units_in_words(there: int, of: int, name: str, place: str = "the output") -> str:
    """Say how many units of a name are in a place."""
    return (
        f"{there:,} of {plural(of, 'unit')} of {name!r} {verb(1 if of == 1 else there)} in {place}"
    )


def doubling_in_words(started: Totals, written: Totals, times: Sequence[Any]) -> str:
    """Say that an output has all rows several times, or return an empty text.

    Only the count and the sum can show this, because the XOR of an even number of copies is 0.
    """
    copies, rest = divmod(written.count, started.count or 1)
    is_times = copies > 1 and not rest and written.sum == copies * started.sum
    if not is_times or written.xor != (started.xor if copies % 2 else 0):
        return ""
    text = "all rows are there twice" if copies == 2 else f"all rows are there {copies:,} times"
    if len({*times}) > 1:
        first, last = (time.strftime("%H:%M:%S") for time in (min(times), max(times)))
        text += f"; the files are of two times: {first} and {last}"
    return text


def named_in_words(word: str, unit: Sequence[str], rows: Sequence[Any], count: int) -> str:
    """List the unit columns of the first rows of a kind."""
    texts = cut([*map(str, rows)], _MAX_SHOWN, count)
    return f"{word}, by ({', '.join(unit)}): {', '.join(texts)}"


def chains_in_words(
    examples: Sequence[str], acked: int | None, of: int, *, is_least: bool = False
) -> str:
    """Say how many chains stay open, and how many chains this call and earlier calls have acked.

    The number of acked chains is None in `advance`, which then sends nothing. If `is_least`, an
    earlier call died, which may have acked more chains.
    """
    if acked is None:
        return "nothing was sent for any chain"
    which = f": {', '.join(examples)}" if examples else ""
    if not of:
        return "no chain was started"
    if not acked and not is_least:
        return f"{verb(of, 'the only chain stays', 'all chains stay')} open{which}"
    if acked >= of:
        return f"no chain stays open: {verb(of, 'the only chain is', f'all {of:,} are')} acked"
    still = f"{of - acked:,} of {of:,} chains {verb(of - acked, 'stays', 'stay')} open"
    if is_least:
        why = "because an earlier call stopped while it sent stamps"
        return f"at most {still}{which}; at least {acked:,} {verb(acked)} acked, {why}"
    return f"{still}{which}; {acked:,} {verb(acked)} acked"
