"""Reasons for missing rows: conditions with exact counts, and duplicates that a job dropped."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as F

from xorack.core.conditions import AnyOf, Both, Range, Values
from xorack.core.masking import masked, masked_path
from xorack.core.reasons import CHARACTERS, Finding, Reasons, find_reasons
from xorack.core.text import plural, verb
from xorack.spark.messages import plain_errors
from xorack.spark.units import comparable, has_columns, python_values, quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from xorack.core.conditions import Condition, Row
    from xorack.spark.missing.comparing import Keep
    from xorack.spark.missing.telling import Facts
    from xorack.spark.run import RowNames

SAMPLE = 4_000
"""Most rows of each kind that are compared on the driver."""
_MAX_COLUMNS = 60
_MAX_KEYS = 12
"""Most columns that are tried, up to three together, as the key of dropped duplicates."""
_FEW = 20
"""Missing rows whose keys are tested before those of all."""
_MAX_COUNTED = 3
"""Findings that are counted in all rows."""
_FILE, _TASK = "input file", "shuffle partition"
STATE = """
    CASE WHEN xorack_missing_ = 0 THEN 'other' WHEN xorack_missing_ < 0 THEN 'doubled'
    WHEN xorack_named_ THEN 'missing' ELSE 'repeated' END AS xorack_state_"""
"""The state of a row in an exact comparison. Otherwise it is ``suspect`` or ``other``."""
_DIFFERS = "xorack_state_ <> 'other'"
MAX_NAMED = 100
"""Rows of each kind that an error names."""


class Sample(NamedTuple):
    """Rows of a source with their state: all differing rows, and samples of each state.

    Attributes:
        differing: All rows that differ.
        is_complete: Whether the driver has all missing rows, and all rows that do not differ.
        rows: The rows that the driver has, by state.
        names: The unit columns of some of these rows, by state.
    """

    differing: DataFrame
    is_complete: bool
    rows: Mapping[str, Sequence[Row]]
    names: Mapping[str, Sequence[tuple[Any, ...]]]

    def others(self, state: str) -> list[Row]:
        """Return the rows that have another state."""
        return [row for other, rows in self.rows.items() if other != state for row in rows]


@dataclass(frozen=True)
class Explanation:
    """The values that missing and surplus rows have in common, and duplicates that were dropped.

    Attributes:
        of_rows: The reasons for missing rows, for surplus rows, or for suspect rows. Suspect rows
            belong to groups that have other units than were started.
        key: Columns whose values occur once each in the output, if this explains all missing rows.
        repeated: Sentences about units that the source has more than once.
    """

    of_rows: tuple[Reasons, ...] = ()
    key: tuple[str, ...] = ()
    repeated: str = ""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The conditions on missing rows, or if there are none, on surplus or suspect rows.

        The best condition comes first.
        """
        return next((reasons.findings for reasons in self.of_rows if reasons.findings), ())

    @property
    def sentence(self) -> str:
        """The reasons in words. The reasons for missing rows come first."""
        parts = [self.repeated]
        if self.key:
            same = f"has a row with the same {', '.join(self.key)} that is in the output"
            parts.append(f"Each of the {self.of_rows[0].missing:,} missing rows {same}")
        parts += [reasons.sentence for reasons in self.of_rows[bool(self.key) :]]
        return "; ".join(filter(None, parts))

    def __str__(self) -> str:
        """Return the sentence, and a line for each further condition."""
        return "\n".join([self.sentence, *(str(reasons) for reasons in self.of_rows)])


NO_REASON = Explanation()


@dataclass(frozen=True)
class Findings:
    """The differing rows, and the values that they have in common.

    Attributes:
        differing: The differing rows of the source; None if they are not known.
        names: The unit columns of the first missing rows; `doubled` has those of doubled rows.
    """

    explanation: Explanation = NO_REASON
    differing: DataFrame | None = None
    names: Sequence[tuple[Any, ...]] = ()
    doubled: Sequence[tuple[Any, ...]] = ()


NO_FINDINGS = Findings()


def examine(
    rows: RowNames,
    facts: Facts,
    source: DataFrame,
    stated: DataFrame,
    keep: Keep,
    *,
    is_few: bool,
) -> Findings:
    """Name the differing rows, and find the values that they have in common.

    `stated` are the rows of the source with ``xorack_state_``. If few rows differ, one scan of the
    source returns all of them and a sample of the other rows. A second scan counts the conditions.
    """
    numbers = {
        "missing": facts.named,
        "doubled": facts.doubled_rows,
        "repeated": facts.hidden_rows,
        "suspect": facts.exchanged if not facts.is_exact else 0,
    }
    if not any(numbers.values()):
        return NO_FINDINGS
    # Most rows have this state, so it is the first that `_draw` tests.
    numbers = {"other": facts.source.count - sum(numbers.values()), **numbers}
    shown = _columns(facts, source)
    sample = _draw(rows, numbers, shown, stated, keep, is_few=is_few)
    reasons = {
        state: find_reasons(
            sample.rows[state],
            sample.others(state),
            numbers[state],
            facts.source.count,
            f"{state} row",
            _handicaps(shown),
        )
        for state in ("missing", "doubled", "suspect")
        if numbers[state]
    }
    exact = _counted(reasons, sample, source, partial(_test, shown, rows.tracking.mask))
    key: tuple[str, ...] = ()
    if {*exact} == {"missing"} and not facts.hidden_rows and not _is_certain(exact["missing"]):
        key = _dropped_key([name for name in source.columns if name in shown], sample, stated)
    explanation = Explanation((*exact.values(),), key, _repeated(rows, facts))
    differing = sample.differing if facts.is_exact else None
    return Findings(explanation, differing, sample.names["missing"], sample.names["doubled"])


def _draw(
    rows: RowNames,
    numbers: Mapping[str, int],
    shown: Mapping[str, Column],
    stated: DataFrame,
    keep: Keep,
    *,
    is_few: bool,
) -> Sample:
    """Draw rows of each state."""
    shares = {state: min(1.0, SAMPLE / max(number, 1)) for state, number in numbers.items()}
    share = " ".join(f"WHEN '{state}' THEN {share}" for state, share in shares.items())
    is_drawn = F.expr(f"rand(1) < CASE xorack_state_ {share} END")
    drawn = stated.withColumn("xorack_drawn_", is_drawn)
    kept = keep(drawn.where(f"xorack_drawn_ OR {_DIFFERS}" if is_few else "xorack_drawn_"))
    columns = F.struct(*(column.alias(name) for name, column in shown.items()))
    unit, key_of = python_values(kept, rows.unit)
    drawn_rows: dict[str, list[Row]] = {state: [] for state in numbers}
    names: dict[str, dict[tuple[Any, ...], None]] = {state: {} for state in numbers}
    states = F.when(F.expr(_DIFFERS), unit), "xorack_state_"
    selected = kept.where("xorack_drawn_").select(columns, *states)
    with plain_errors():
        for row, key, state in selected.collect():
            drawn_rows[state].append(_masked(row.asDict(), rows))
            if key and len(names[state]) < MAX_NAMED:
                names[state][_masked_key(key_of(key), rows)] = None
    return Sample(
        (kept if is_few else stated).where(_DIFFERS),
        min(shares["missing"], shares["other"]) >= 1,
        drawn_rows,
        {state: [*keys] for state, keys in names.items()},
    )


def _masked_key(key: tuple[Any, ...], rows: RowNames) -> tuple[Any, ...]:
    named = zip(rows.unit, key, strict=True)
    return tuple(masked(v) if name.lower() in rows.tracking.mask else v for name, v in named)


def _repeated(rows: RowNames, facts: Facts) -> str:
    """Say which units have missing rows and occur more than once in the source."""
    count = facts.missing - facts.named
    if not facts.is_exact or not count:
        return ""
    number = facts.hidden_units
    units = f"{plural(number, 'unit')} of {rows.name!r} {verb(number)} there"
    if facts.hidden_rows == 2 * facts.hidden_units == 2 * count:
        each = "it" if number == 1 else "each"
        return f"{units} twice in the source; one row of {each} is missing"
    more = f"{units} more than once in the source, in {facts.hidden_rows:,} rows"
    return f"{more}; {count:,} of these rows are missing"


def _columns(facts: Facts, source: DataFrame) -> dict[str, Column]:
    """Return the columns to compare, by their names in reasons."""
    shown = dict([*comparable(source, CHARACTERS).items()][:_MAX_COLUMNS])
    if has_columns(source, ["xorack_file_"]):
        shown[_FILE] = F.substring_index("xorack_file_", "/", -1)
    # A task can only lose rows after the job's frame.
    if facts.is_after_frame and facts.by and has_columns(source, facts.by):
        tasks = int(source.sparkSession.conf.get("spark.sql.shuffle.partitions") or 200)
        hashed = F.pmod(F.hash(*map(F.col, map(quoted, facts.by))), F.lit(tasks))
        shown[f"{_TASK} by {', '.join(facts.by)}"] = hashed
    return shown


def _handicaps(shown: Mapping[str, Column]) -> dict[str, float]:
    """Return the handicaps of columns that do not describe a row, such as its file.

    Reasons with other columns are preferred.
    """
    return {_FILE: 10.0, **{name: 0.5 for name in shown if name.startswith(_TASK)}}


def _masked(row: dict[str, Any], rows: RowNames) -> dict[str, Any]:
    mask = rows.tracking.mask
    if mask:
        row.update({name: masked(value) for name, value in row.items() if name.lower() in mask})
        row.update({_FILE: masked_path(row[_FILE], mask)} if row.get(_FILE) else {})
    return row


def _is_certain(reasons: Reasons) -> bool:
    """Return whether values of a column match all missing rows, and no other row."""
    best = next(iter(reasons.findings), None)
    is_only = best is not None and (best.missing, best.others) == (reasons.compared[0], 0)
    return best is not None and is_only and isinstance(best.condition, Values)


def _counted(
    sampled: Mapping[str, Reasons],
    sample: Sample,
    source: DataFrame,
    test_of: Callable[[Condition], Column | None],
) -> dict[str, Reasons]:
    """Return reasons by state with the counts of all rows, if Spark can test the conditions."""
    tests: dict[tuple[str, int], Column] = {}
    for state, reasons in sampled.items():
        for n, finding in enumerate(reasons.findings[:_MAX_COUNTED]):
            test = None if reasons.is_exact else test_of(finding.condition)
            if test is None:
                break
            tests[state, n] = test
    if not tests:
        return dict(sampled)
    is_of = F.col("xorack_state_")
    own = [F.count_if(test & (is_of == state)) for (state, _), test in tests.items()]
    every = [F.count_if(test) for test in tests.values()]
    with plain_errors():
        of_state = sample.differing.agg(*own).first() or ()
        of_all = source.agg(*every).first() or ()
    counts: dict[str, list[tuple[int, int]]] = {}
    for (state, _), n, total in zip(tests, of_state, of_all, strict=True):
        counts.setdefault(state, []).append((n, total - n))
    return {
        state: reasons.with_counts(counts[state]) if state in counts else reasons
        for state, reasons in sampled.items()
    }


def _test(
    shown: Mapping[str, Column], mask: Collection[str], condition: Condition
) -> Column | None:
    """Return a condition as a column, or None if its values are masked or only a sample."""
    if isinstance(condition, Both):
        first, second = (_test(shown, mask, each) for each in (condition.first, condition.second))
        return None if first is None or second is None else first & second
    name, column = condition.column, shown[condition.column]
    if isinstance(condition, AnyOf) or name.lower() in mask or (mask and name == _FILE):
        return None
    if isinstance(condition, Range):
        low, high = condition.low, condition.high
        above = F.lit(True) if low is None else column >= _literal(low)
        return above if high is None else above & (column <= _literal(high))
    values = [_literal(value) for value in condition.values if value is not None]
    is_met = F.coalesce(column.isin(values), F.lit(False)) if values else F.lit(False)
    return is_met | column.isNull() if len(values) < len(condition.values) else is_met


def _literal(value: Any) -> Column:
    """Return a value of a sample, whose times are in the session's zone."""
    if isinstance(value, datetime):
        return F.lit(value.isoformat(" ")).cast("timestamp_ntz")
    return F.lit(value)


def _dropped_key(names: Sequence[str], sample: Sample, stated: DataFrame) -> tuple[str, ...]:
    """Return columns whose values occur once in the output, if this explains all missing rows."""
    missing, others = sample.rows["missing"], sample.rows["other"]
    unlike: list[set[str]] = []  # keys whose values no missing row shares with another row
    for size in (1, 2, 3) if len(missing) > 2 else ():
        for key in combinations(names[:_MAX_KEYS], size):
            if any(columns <= {*key} for columns in unlike):
                continue
            twins = _twins(key, missing, others)
            if twins is not None and (
                twins == len(missing) or (twins > 0 and not sample.is_complete)
            ):
                return key if sample.is_complete or _is_key(key, sample, stated) else ()
            if twins is not None:
                unlike.append({*key})
    return ()


def _twins(key: Sequence[str], missing: Sequence[Row], others: Sequence[Row]) -> int | None:
    """Return how many missing rows share their key with another row.

    Return None if two of the other rows share a key.
    """
    kept: set[Any] = set()
    for row in others:
        if (value := tuple(row[name] for name in key)) in kept:
            return None
        kept.add(value)
    return sum(tuple(row[name] for name in key) in kept for row in missing)


def _is_key(key: Sequence[str], sample: Sample, stated: DataFrame) -> bool:
    """Return whether exactly one row of each key is not missing.

    The keys of the first missing rows are tested first, because this needs no shuffle of all rows.
    """
    columns = [F.col(quoted(name)) for name in key]
    hashed = F.xxhash64(*columns)
    with plain_errors():
        few = {row[0] for row in sample.differing.limit(_FEW).select(hashed).collect()}
        for rows in (stated.where(hashed.isin([*few])), stated):
            kept = F.count_if(F.col("xorack_state_") != "missing").alias("xorack_kept_")
            counted = rows.groupBy(*columns).agg(kept).where("xorack_kept_ <> 1")
            if counted.select("xorack_kept_").take(1):  # Python does not have all dates of a key
                return False
    return True
