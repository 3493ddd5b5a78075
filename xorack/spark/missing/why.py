"""Reasons for missing rows: conditions with exact counts, and duplicates that a job dropped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as F

from xorack.core.conditions import Both, Range, Values
from xorack.core.masking import masked, masked_path
from xorack.core.reasons import CHARACTERS, Finding, Reasons, find_reasons
from xorack.core.text import plural
from xorack.spark.messages import plain_errors
from xorack.spark.units import column_named, comparable, has_columns, quoted

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
_STATE = """
    CASE WHEN missing_count = 0 THEN 'other' WHEN missing_count < 0 THEN 'doubled'
    WHEN is_named THEN 'missing' ELSE 'repeated' END"""


MAX_NAMED = 100
"""Rows of each kind that an error names."""


class Sample(NamedTuple):
    """Rows of a source, with their ``missing_count`` and their state.

    Some rows differ, and others are in the output.

    Attributes:
        kept: All rows that differ, or a sample of them, and a sample of the other rows.
        differing: All rows that differ.
        shares: The share of the rows of each state that the driver has.
        rows: These rows, by state.
        names: The unit columns of some of these rows, by state.
    """

    kept: DataFrame
    differing: DataFrame
    shares: Mapping[str, float]
    rows: Mapping[str, Sequence[Row]]
    names: Mapping[str, Sequence[tuple[Any, ...]]]


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
    marked: DataFrame,
    keep: Keep,
    *,
    is_few: bool,
) -> Findings:
    """Name the differing rows, and find the values that they have in common.

    `marked` are the rows of the source with their ``missing_count``. If few rows differ, one scan
    of the source returns all of them and a sample of the other rows. A second scan counts the
    conditions.
    """
    shown = _columns(facts, source)
    sample = _draw(rows, facts, shown, marked, keep, is_few=is_few)
    reasons: dict[str, Reasons] = {}
    for state, count in (("missing", facts.named), ("doubled", facts.doubled_rows)):
        others = [row for other, drawn in sample.rows.items() if other != state for row in drawn]
        if count:
            word, total = f"{state} row", facts.source.count
            reasons[state] = find_reasons(
                sample.rows[state], others, count, total, word, _handicaps(shown)
            )
    exact = _Counted(rows, sample, source, shown).exactly(reasons)
    key: tuple[str, ...] = ()
    is_apart = facts.named == facts.missing and not facts.doubled_rows
    if is_apart and "missing" in exact and not _is_certain(exact["missing"]):
        key = _dropped_key(rows, sample, source, shown)
    explanation = Explanation((*exact.values(),), key, _repeated(rows, facts))
    names_by_state = sample.names["missing"], sample.names["doubled"]
    return Findings(explanation, sample.differing, *names_by_state)


def _draw(
    rows: RowNames,
    facts: Facts,
    shown: Mapping[str, Column],
    marked: DataFrame,
    keep: Keep,
    *,
    is_few: bool,
) -> Sample:
    """Draw a sample of the differing rows, and a sample of the other rows."""
    numbers = {
        "missing": facts.named,
        "doubled": facts.doubled_rows,
        "repeated": facts.hidden_rows,
        "other": facts.source.count - facts.named - facts.doubled_rows - facts.hidden_rows,
    }
    shares = {state: min(1.0, SAMPLE / max(number, 1)) for state, number in numbers.items()}
    stated = marked.withColumn("state", F.expr(_STATE))
    share = " ".join(f"WHEN '{state}' THEN {share}" for state, share in shares.items())
    is_drawn = F.expr(f"rand(1) < CASE state {share} END")
    drawn = stated.withColumn("is_drawn", is_drawn)
    differing = "missing_count <> 0"
    kept = keep(drawn.where(f"is_drawn OR {differing}" if is_few else "is_drawn"))
    columns = F.struct(*(column.alias(name) for name, column in shown.items()))
    keys = F.when(F.expr(differing), F.struct(*(column_named(kept, n)[0] for n in rows.unit)))
    drawn_rows: dict[str, list[Row]] = {state: [] for state in numbers}
    names: dict[str, dict[tuple[Any, ...], None]] = {state: {} for state in numbers}
    with plain_errors():
        for row, key, state in kept.where("is_drawn").select(columns, keys, "state").collect():
            drawn_rows[state].append(_masked(row.asDict(), rows))
            if key and len(names[state]) < MAX_NAMED:
                names[state][_masked_key(tuple(key), rows)] = None
    all_differing = (kept if is_few else stated).where(differing)
    return Sample(
        kept, all_differing, shares, drawn_rows, {s: [*keys] for s, keys in names.items()}
    )


def _masked_key(key: tuple[Any, ...], rows: RowNames) -> tuple[Any, ...]:
    named = zip(rows.unit, key, strict=True)
    return tuple(masked(v) if name.lower() in rows.tracking.mask else v for name, v in named)


def explain_groups(
    rows: RowNames, facts: Facts, source: DataFrame, candidates: DataFrame
) -> Explanation:
    """Find the values that rows of groups with other units than were started have in common."""
    count = facts.exchanged
    if not count:
        return Explanation()
    word = "suspect row"
    if count >= facts.source.count:
        return Explanation((find_reasons([], [], count, facts.source.count, word),))
    shown = _columns(facts, source)
    columns = F.struct(*(column.alias(name) for name, column in shown.items())).alias("row")
    units = candidates.select("xorack_unit_")
    sides: list[list[Row]] = []
    for how, number in (("left_semi", count), ("left_anti", facts.source.count - count)):
        side = source.join(units, "xorack_unit_", how).where(f"rand(1) < {SAMPLE / number}")
        with plain_errors():
            sides.append([_masked(row[0].asDict(), rows) for row in side.select(columns).collect()])
    suspect, others = sides
    return Explanation(
        (find_reasons(suspect, others, count, facts.source.count, word, _handicaps(shown)),)
    )


def _repeated(rows: RowNames, facts: Facts) -> str:
    """Say which units have missing rows and occur more than once in the source."""
    count = facts.missing - facts.named
    if not facts.is_exact or not count:
        return ""
    number = facts.hidden_units
    units = f"{plural(number, 'unit')} of {rows.name!r} {'is' if number == 1 else 'are'} there"
    if facts.hidden_rows == 2 * facts.hidden_units == 2 * count:
        return f"{units} twice in the source; one row of each is missing"
    more = f"{units} more than once in the source, in {facts.hidden_rows:,} rows"
    return f"{more}; {count:,} of these rows are missing"


def _columns(facts: Facts, source: DataFrame) -> dict[str, Column]:
    """Return the columns to compare, by their names in reasons."""
    shown = dict([*comparable(source, CHARACTERS).items()][:_MAX_COLUMNS])
    if has_columns(source, ["xorack_file_"]):
        shown[_FILE] = F.col("xorack_file_")
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


class _Counted(NamedTuple):
    """Counts how many rows of a source meet each condition, by one scan."""

    rows: RowNames
    sample: Sample
    source: DataFrame
    shown: Mapping[str, Column]

    def exactly(self, sampled: Mapping[str, Reasons]) -> dict[str, Reasons]:
        """Return reasons by state with the counts of all rows, if Spark can test the conditions."""
        tests: dict[tuple[str, int], Column] = {}
        for state, reasons in sampled.items():
            for n, finding in enumerate(reasons.findings[:_MAX_COUNTED]):
                test = None if reasons.is_exact else self._column(finding.condition)
                if test is None:
                    break
                tests[state, n] = test
        if not tests:
            return dict(sampled)
        own = [F.count_if(test & (F.col("state") == state)) for (state, _), test in tests.items()]
        every = [F.count_if(test) for test in tests.values()]
        with plain_errors():
            of_state = self.sample.differing.agg(*own).first() or ()
            of_all = self.source.agg(*every).first() or ()
        counts: dict[str, list[tuple[int, int]]] = {}
        for (state, _), n, total in zip(tests, of_state, of_all, strict=True):
            counts.setdefault(state, []).append((n, total - n))
        return {
            state: reasons.with_counts(counts[state]) if state in counts else reasons
            for state, reasons in sampled.items()
        }

    def _column(self, condition: Condition) -> Column | None:
        """Return a condition as a column, or None if its values are masked."""
        if isinstance(condition, Both):
            first, second = map(self._column, (condition.first, condition.second))
            return None if first is None or second is None else first & second
        column = self.shown[condition.column]
        is_path_masked = condition.column == _FILE and self.rows.tracking.mask
        if condition.column.lower() in self.rows.tracking.mask or is_path_masked:
            return None
        if isinstance(condition, Range):
            is_met = F.lit(True)
            if condition.low is not None:
                is_met = is_met & (column >= F.lit(condition.low))
            return is_met if condition.high is None else is_met & (column <= F.lit(condition.high))
        values = [value for value in condition.values if value is not None]
        is_met = column.isin(values) if values else F.lit(False)
        return F.coalesce(is_met, F.lit(False)) | (
            column.isNull() if len(values) < len(condition.values) else F.lit(False)
        )


def _dropped_key(
    rows: RowNames, sample: Sample, source: DataFrame, shown: Mapping[str, Column]
) -> tuple[str, ...]:
    """Return columns whose values occur once each in the output, if this explains the rows."""
    names = [name for name in source.columns if name in shown][:_MAX_KEYS]
    missing, others = sample.rows["missing"], sample.rows["other"]
    is_all = min(sample.shares["missing"], sample.shares["other"]) >= 1
    unlike: list[set[str]] = []  # no missing row has the values of another row in these columns
    for size in (1, 2, 3) if len(missing) > 2 else ():
        for key in combinations(names, size):
            if any(columns <= {*key} for columns in unlike):
                continue
            twins = _twins(key, missing, others)
            if twins is not None and (twins == len(missing) or (twins > 0 and not is_all)):
                is_key = is_all or _is_key(rows, key, sample, source, shown)
                return key if is_key else ()
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


def _is_key(
    rows: RowNames,
    key: Sequence[str],
    sample: Sample,
    source: DataFrame,
    shown: Mapping[str, Column],
) -> bool:
    """Return whether exactly one row of each key is not missing.

    The keys of the first missing rows are tested first, because this needs no shuffle of all rows.
    """
    columns = [F.col(quoted(name)) for name in key]
    lost = sample.differing.select("xorack_unit_")
    tests: list[Column | None] = [None]
    if not {name.lower() for name in key} & {*rows.tracking.mask}:
        values = [F.struct(*(F.lit(row[n]) for n in key)) for row in sample.rows["missing"][:_FEW]]
        tests.insert(0, F.struct(*(shown[name] for name in key)).isin(values))
    for test in tests:
        sides = [
            frame if test is None else frame.where(test) for frame in (source, sample.differing)
        ]
        others = sides[0].join(lost, "xorack_unit_", "left_anti").select(*columns, F.lit(1))
        both = others.toDF(*key, "_n").union(sides[1].select(*columns, F.lit(0)))
        kept = both.groupBy(*map(quoted, key)).agg(F.sum("_n").alias("_n"))
        with plain_errors():
            if kept.where("_n <> 1").take(1):
                return False
    return True
