"""Reasons for missing rows: conditions with exact counts, and duplicates that a job dropped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as F

from xorack.core.conditions import Both, Range, Values
from xorack.core.masking import masked, masked_path
from xorack.core.reasons import CHARACTERS, Finding, Reasons, find_reasons
from xorack.core.text import plural
from xorack.spark.messages import plain_errors
from xorack.spark.units import comparable, has_columns, quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from xorack.core.conditions import Condition, Row
    from xorack.spark.missing.telling import Facts
    from xorack.spark.run import RowNames

SAMPLE = 10_000
"""Most rows of each kind that are compared on the driver."""
_MAX_COLUMNS = 60
_MAX_KEYS = 12
"""Most columns that are tried, up to three together, as the key of dropped duplicates."""
_MAX_COUNTED = 3
"""Findings that are counted in all rows."""
_FILE = "input file"
_STATE = """
    CASE WHEN missing_count = 0 THEN 'other' WHEN missing_count < 0 THEN 'doubled'
    WHEN is_named THEN 'missing' ELSE 'repeated' END AS state"""


class Sample(NamedTuple):
    """Rows of a source with their ``missing_count``: those that differ, and others.

    Attributes:
        kept: All rows that differ, or a sample of them, and a sample of the others.
        differing: All rows that differ.
        has_all_differing: Whether `kept` has all rows that differ.
        has_all_others: Whether `kept` has all other rows.
    """

    kept: DataFrame
    differing: DataFrame
    has_all_differing: bool
    has_all_others: bool


@dataclass(frozen=True)
class Explanation:
    """The values that missing and surplus rows have in common, and duplicates that were dropped.

    Attributes:
        of_rows: The reasons for missing rows, for surplus rows, or for suspect rows, which are
            those of groups that have other units than were started.
        key: The columns of which the output has one row for each value, if this explains all
            missing rows.
        repeated: Sentences about units that the source has more than once.
    """

    of_rows: tuple[Reasons, ...] = ()
    key: tuple[str, ...] = ()
    repeated: str = ""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The conditions on missing rows, or else on surplus or suspect rows, the best first."""
        return next((reasons.findings for reasons in self.of_rows if reasons.findings), ())

    @property
    def sentence(self) -> str:
        """The reasons in words, those of missing rows first."""
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


def explain_sample(
    rows: RowNames, facts: Facts, sample: Sample | None, source: DataFrame
) -> Explanation:
    """Find the values that the differing rows of a sample have in common; `source` has all rows."""
    repeated = _repeated(rows, facts)
    if sample is None:
        return Explanation(repeated=repeated)
    shown, handicaps = _columns(facts, source)
    columns = F.struct(*(column.alias(name) for name, column in shown.items()))
    share = min(1.0, SAMPLE / max(facts.differing, 1))
    drawn = sample.kept.where(f"missing_count = 0 OR rand(2) < {share}")
    by_state: dict[str, list[Row]] = {"missing": [], "doubled": [], "repeated": [], "other": []}
    with plain_errors():
        for row, state in drawn.select(columns, F.expr(_STATE)).collect():
            by_state[state].append(_masked(row.asDict(), rows))
    has_all = share >= 1 and sample.has_all_differing
    doubled = len(by_state["doubled"]) if has_all else _count(sample, "doubled")
    found: list[Reasons] = []
    for state, count in (("missing", facts.named), ("doubled", doubled)):
        others = [row for other, some in by_state.items() if other != state for row in some]
        word = f"{state} row"
        if count:
            reasons = find_reasons(
                by_state[state], others, count, facts.source.count, word, handicaps
            )
            if not reasons.is_exact:
                counted = _Counted(rows, sample, source, shown, state)
                reasons = counted.exactly(reasons)
            found.append(reasons)
    key: tuple[str, ...] = ()
    if facts.named == facts.missing and not doubled and found and not _is_certain(found[0]):
        names = [name for name in source.columns if name in shown][:_MAX_KEYS]
        is_all = has_all and sample.has_all_others
        key = _key_of(names, by_state["missing"], by_state["other"], is_all)
        if key and not (is_all or _is_key(key, sample, source)):
            key = ()
    return Explanation(tuple(found), key, repeated)


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
    shown, handicaps = _columns(facts, source)
    columns = F.struct(*(column.alias(name) for name, column in shown.items())).alias("row")
    units = candidates.select("xorack_unit_")
    sides: list[list[Row]] = []
    for how, number in (("left_semi", count), ("left_anti", facts.source.count - count)):
        side = source.join(units, "xorack_unit_", how).where(f"rand(1) < {SAMPLE / number}")
        with plain_errors():
            sides.append([_masked(row[0].asDict(), rows) for row in side.select(columns).collect()])
    suspect, others = sides
    return Explanation((find_reasons(suspect, others, count, facts.source.count, word, handicaps),))


def _repeated(rows: RowNames, facts: Facts) -> str:
    """Say which units are more than once in the source and have missing rows."""
    count = facts.missing - facts.named
    if not facts.is_exact or not count:
        return ""
    number = facts.hidden_units
    units = f"{plural(number, 'unit')} of {rows.name!r} {'is' if number == 1 else 'are'} there"
    if facts.hidden_rows == 2 * facts.hidden_units == 2 * count:
        return f"{units} twice in the source; one row of each is missing"
    more = f"{units} more than once in the source, in {facts.hidden_rows:,} rows"
    return f"{more}; {count:,} of these rows are missing"


def _columns(facts: Facts, source: DataFrame) -> tuple[dict[str, Column], dict[str, float]]:
    """Return the columns to compare, and handicaps for columns that are not the user's."""
    shown = dict([*comparable(source, CHARACTERS).items()][:_MAX_COLUMNS])
    handicaps = {_FILE: 10.0}
    if has_columns(source, ["xorack_file_"]):
        shown[_FILE] = F.col("xorack_file_")
    # Rows can only be lost with a task after the job's frame.
    if facts.is_after_frame and facts.by and has_columns(source, facts.by):
        tasks = int(source.sparkSession.conf.get("spark.sql.shuffle.partitions") or 200)
        task = f"shuffle partition by {', '.join(facts.by)}"
        shown[task] = F.pmod(F.hash(*map(F.col, map(quoted, facts.by))), F.lit(tasks))
        handicaps[task] = 0.5
    return shown, handicaps


def _masked(row: dict[str, Any], rows: RowNames) -> dict[str, Any]:
    mask = rows.tracking.mask
    if mask:
        row.update({name: masked(value) for name, value in row.items() if name.lower() in mask})
        row.update({_FILE: masked_path(row[_FILE], mask)} if row.get(_FILE) else {})
    return row


def _count(sample: Sample, state: str) -> int:
    with plain_errors():
        return sample.differing.select(F.expr(_STATE)).where(f"state = '{state}'").count()


def _is_certain(reasons: Reasons) -> bool:
    """Return whether values of a column match all missing rows, and no other row."""
    best = next(iter(reasons.findings), None)
    is_only = best is not None and (best.missing, best.others) == (reasons.compared[0], 0)
    return best is not None and is_only and isinstance(best.condition, Values)


class _Counted(NamedTuple):
    """Counts conditions in all rows of a source, by one scan."""

    rows: RowNames
    sample: Sample
    source: DataFrame
    shown: dict[str, Column]
    state: str

    def exactly(self, reasons: Reasons) -> Reasons:
        """Return reasons with the counts of all rows, if Spark can test the conditions."""
        tests: list[Column] = []
        for finding in reasons.findings[:_MAX_COUNTED]:
            test = self._column(finding.condition)
            if test is None:
                break
            tests.append(F.count_if(test).alias(f"n{len(tests)}"))
        if not tests:
            return reasons
        some = self.sample.kept if self.sample.has_all_differing else self.sample.differing
        some = some.withColumn("_state", F.expr(_STATE.replace("AS state", "")))
        with plain_errors():
            own = some.where(f"_state = '{self.state}'").agg(*tests).first() or ()
            every = self.source.agg(*tests).first() or ()
        return reasons.with_counts([(n, total - n) for n, total in zip(own, every, strict=True)])

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


def _key_of(
    names: Sequence[str], missing: Sequence[Row], others: Sequence[Row], is_all: bool
) -> tuple[str, ...]:
    """Return the smallest key that is unique in other rows, and that missing rows share with them.

    In samples, one such missing row is enough, because the caller counts all rows.
    """
    if len(missing) <= 2:
        return ()
    for size in (1, 2, 3):
        for key in combinations(names, size):
            kept: set[Any] = set()
            for row in others:
                if (value := tuple(row[name] for name in key)) in kept:
                    break
                kept.add(value)
            else:
                twins = (tuple(row[name] for name in key) in kept for row in missing)
                if all(twins) if is_all else any(twins):
                    return key
    return ()


def _is_key(key: Iterable[str], sample: Sample, source: DataFrame) -> bool:
    """Return whether exactly one row of each key is not missing."""
    columns = [F.col(quoted(name)) for name in key]
    lost = sample.differing.select("xorack_unit_")
    others = source.join(lost, "xorack_unit_", "left_anti").select(*columns, F.lit(1).alias("_n"))
    sides = others.union(sample.differing.select(*columns, F.lit(0)))
    kept = sides.groupBy(*columns).agg(F.sum("_n").alias("_n"))
    with plain_errors():
        return not kept.where("_n <> 1").take(1)
