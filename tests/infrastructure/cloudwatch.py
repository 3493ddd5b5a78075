"""CloudWatch's rules for alarms, over the alarms of a template and synthetic data.

From the user guide (`alarm-evaluation`, `alarms-and-missing-data`, `using-metric-math` and
`Create_Composite_Alarm_Suppression`). It does not say some things: `Rules` has them as options.
"""

from __future__ import annotations

import operator
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from typing import Any

from .templates import Template, target

Key = tuple[str, str, frozenset[tuple[str, str]]]
"""Namespace, name and dimensions of a metric."""
_COMPARISONS = {
    "GreaterThanThreshold": operator.gt,
    "GreaterThanOrEqualToThreshold": operator.ge,
    "LessThanThreshold": operator.lt,
}
_STATISTICS: dict[str, Callable[[list[float]], float]] = {"Sum": sum, "Maximum": max}


@dataclass(frozen=True)
class Rules:
    """What the documentation leaves open.

    Attributes:
        extra: Periods that CloudWatch retrieves besides those that it evaluates.
        fills_empty: FILL fills a metric without any data.
        dynamodb_ignores: Alarms on DynamoDB's metrics keep their state if data is missing.
        delays: Minutes until data arrives, by namespace.
    """

    extra: int = 2
    fills_empty: bool = True
    dynamodb_ignores: bool = False
    delays: Mapping[str, int] = field(default_factory=dict)


class Data:
    """Metric data: a value for each minute that has one."""

    def __init__(self) -> None:
        self._values: dict[Key, dict[int, float]] = defaultdict(dict)

    def put(self, minute: int, namespace: str, dimensions: dict[str, str], **values: float) -> None:
        """Put the values of a minute, by metric name."""
        for name, value in values.items():
            self._values[namespace, name, frozenset(dimensions.items())][minute] = value

    def read(self, metric: Metric, minute: int, periods: int, rules: Rules) -> Points:
        """Read the latest periods that end at a minute."""
        series = self._values.get(metric.key)
        if not series:
            return Points(repeat(None, periods))
        known = minute - rules.delays.get(metric.key[0], 0)
        ends = range(minute - (periods - 1) * metric.minutes, minute + 1, metric.minutes)
        if metric.minutes == 1:
            return Points(series.get(end) if end <= known else None for end in ends)
        return Points(metric.value(series, end, min(end, known)) for end in ends)


@dataclass
class Metric:
    """A metric of an alarm, and the values of periods: their end, and the end of their data."""

    key: Key
    statistic: str
    minutes: int
    cache: dict[tuple[int, int], float | None] = field(default_factory=dict)

    @classmethod
    def of(cls, metric: dict[str, Any], statistic: str, seconds: int) -> Metric:
        dimensions = {(one["Name"], target(one["Value"])) for one in metric["Dimensions"]}
        key = (metric["Namespace"], metric["MetricName"], frozenset(dimensions))
        return cls(key, statistic, seconds // 60)

    def value(self, series: Mapping[int, float], end: int, known: int) -> float | None:
        """The value of a period of which the minutes up to `known` have arrived."""
        if (end, known) not in self.cache:
            minutes = range(end - self.minutes + 1, known + 1)
            values = [series[minute] for minute in minutes if minute in series]
            self.cache[end, known] = _STATISTICS[self.statistic](values) if values else None
        return self.cache[end, known]


class MetricAlarm:
    """An alarm on a metric or an expression."""

    def __init__(self, properties: dict[str, Any]) -> None:
        self.periods = properties["EvaluationPeriods"]
        self.datapoints = properties.get("DatapointsToAlarm", self.periods)
        self.treat_missing = properties["TreatMissingData"]
        self._threshold = properties["Threshold"]
        self._breaches = _COMPARISONS[properties["ComparisonOperator"]]
        self._states: dict[Any, str | None] = {}
        self._expression = "metric"
        self._metrics: dict[str, Metric] = {}
        if "MetricName" in properties:
            one = Metric.of(properties, properties["Statistic"], properties["Period"])
            self._metrics["metric"] = one
        for query in properties.get("Metrics", []):
            if "Expression" in query:
                self._expression = query["Expression"]
            else:
                of = query["MetricStat"]
                self._metrics[query["Id"]] = Metric.of(of["Metric"], of["Stat"], of["Period"])

    def state(self, data: Data, minute: int, rules: Rules) -> str | None:
        """The state after an evaluation by the same rules as before; None if it stays."""
        size = self.periods + rules.extra
        read = {name: data.read(one, minute, size, rules) for name, one in self._metrics.items()}
        key = tuple(map(tuple, read.values()))
        if key not in self._states:
            self._states[key] = self._judge(read, rules)
        return self._states[key]

    def _judge(self, read: Mapping[str, Points], rules: Rules) -> str | None:
        points = compute(self._expression, read, rules.fills_empty)
        breaching = [None if p is None else self._breaches(p, self._threshold) for p in points]
        of_dynamodb = any(one.key[0] == "AWS/DynamoDB" for one in self._metrics.values())
        ignored = rules.dynamodb_ignores and of_dynamodb
        treat_missing = "ignore" if ignored else self.treat_missing
        return judge(breaching, self.datapoints, self.periods, treat_missing)


def judge(
    breaching: list[bool | None], datapoints: int, periods: int, treat_missing: str
) -> str | None:
    """Judge the points that were retrieved, None for missing ones; return None to keep a state."""
    real = [point for point in breaching if point is not None][-periods:]
    missing = periods - len(real)
    if treat_missing == "ignore" and missing and sum(real) < datapoints:
        return "OK" if not all(real) else None
    filled = missing if treat_missing == "breaching" else 0
    return "ALARM" if sum(real) + filled >= datapoints else "OK"


def _operator(apply: Callable[[float, float], float], reflected: bool = False) -> Any:
    """An operator of metric math: what only one of two series lacks is 0, x / 0 is dropped."""

    def operate(points: Points, other: Points | float) -> Points:
        both = isinstance(other, Points)

        def value(a: float | None, b: float | None) -> float | None:
            if a is None and (b is None or not both):
                return None
            left, right = (b or 0, a or 0) if reflected else (a or 0, b or 0)
            try:
                return float(apply(left, right))
            except ZeroDivisionError:
                return None

        return Points(map(value, points, other if both else repeat(other)))

    return operate


class Points(list):
    """Values of consecutive periods, the oldest first; None where data is missing."""

    __add__ = _operator(operator.add)
    __sub__ = _operator(operator.sub)
    __rsub__ = _operator(operator.sub, reflected=True)
    __rmul__ = _operator(operator.mul, reflected=True)
    __truediv__ = _operator(operator.truediv)
    __gt__ = _operator(operator.gt)
    __ge__ = _operator(operator.ge)


def compute(expression: str, read: Mapping[str, Points], fills_empty: bool) -> Points:
    """Compute an expression of metric math, which is one of Python."""
    functions = {
        "IF": lambda conditions, points: Points(
            (point or 0) if condition else None
            for condition, point in zip(conditions, points, strict=True)
        ),
        "FILL": partial(_fill, fills_empty),
        "DIFF": _differences,
        "REPEAT": "REPEAT",
    }
    points: Points = eval(expression, {**functions, **read})
    return points


def _fill(fills_empty: bool, points: Points, filler: float | str) -> Points:
    if not fills_empty and all(point is None for point in points):
        return points
    filled = Points()
    for point in points:
        last = filled[-1] if filled else None
        filled.append(point if point is not None else last if filler == "REPEAT" else filler)
    return filled


def _differences(points: Points) -> Points:
    last, differences = None, Points()
    for point in points:
        differences.append(None if point is None or last is None else point - last)
        last = last if point is None else point
    return differences


@dataclass
class Composite:
    """A composite alarm of others, any of which sets it off.

    Attributes:
        due: Minute of its action, which waits for the suppressor.
    """

    members: list[str]
    suppressor: str | None
    wait: int
    extension: int
    due: int | None = None

    @classmethod
    def of(cls, properties: dict[str, Any]) -> Composite:
        rule = "".join(map(target, properties["AlarmRule"]["Fn::Join"][1]))
        one = r'ALARM\("(\w+)"\)'
        assert re.fullmatch(rf"\({one}( OR {one})*\)", rule)
        suppressor = properties.get("ActionsSuppressor")
        times = (f"ActionsSuppressor{name}Period" for name in ("Wait", "Extension"))
        wait, extension = (properties.get(name, 0) // 60 for name in times)
        return cls(re.findall(one, rule), suppressor and target(suppressor), wait, extension)

    def state(self, states: Mapping[str, str]) -> str:
        """The state by those of other alarms."""
        return "ALARM" if any(states[name] == "ALARM" for name in self.members) else "OK"


class CloudWatch:
    """The alarms of a template, evaluated each minute from their creation on.

    Attributes:
        changes: Minute and new state of each change, by construct id.
        messages: What the topic receives: minute, construct id, state.
    """

    def __init__(self, template: Template, rules: Rules) -> None:
        self._rules = rules
        created = alarms_of(template)
        self._alarms: dict[str, MetricAlarm | Composite] = {
            name: Composite.of(one) if "AlarmRule" in one else MetricAlarm(one)
            for name, one in created.items()
        }
        self._notifies = {
            (name, state)
            for name, one in created.items()
            for action, state in (("AlarmActions", "ALARM"), ("OKActions", "OK"))
            if action in one
        }
        if not self._notifies:  # without a topic: those that no composite alarm speaks for
            composites = [one for one in self._alarms.values() if isinstance(one, Composite)]
            spoken = {member for one in composites for member in one.members}
            self._notifies = {(name, "ALARM") for name in created.keys() - spoken}
        self._states = dict.fromkeys(created, "INSUFFICIENT_DATA")
        self._left: dict[str, int] = {}
        self.changes: dict[str, list[tuple[int, str]]] = defaultdict(list)
        self.messages: list[tuple[int, str, str]] = []

    def run(self, data: Data, minutes: range) -> None:
        """Evaluate the alarms in each of these minutes: composite alarms after the others."""
        for minute in minutes:
            for name, alarm in self._alarms.items():
                if isinstance(alarm, MetricAlarm):
                    self._change(minute, name, alarm.state(data, minute, self._rules))
                else:
                    self._change(minute, name, alarm.state(self._states))
                    self._act_if_due(minute, name, alarm)

    def _change(self, minute: int, name: str, state: str | None) -> None:
        before = self._states[name]
        if state is None or state == before:
            return
        self._states[name] = state
        self.changes[short(name)].append((minute, state))
        if before == "ALARM":
            self._left[name] = minute
        alarm = self._alarms[name]
        if isinstance(alarm, Composite) and alarm.suppressor:
            alarm.due = minute + alarm.wait if state == "ALARM" else None
            if state == "ALARM":
                return
        self._notify(minute, name, state)

    def _act_if_due(self, minute: int, name: str, alarm: Composite) -> None:
        if alarm.due is None or alarm.suppressor is None:
            return
        if self._states[alarm.suppressor] == "ALARM":
            alarm.due = minute + alarm.extension
        resumed = self._left.get(alarm.suppressor, -alarm.extension) + alarm.extension
        if minute >= max(alarm.due, resumed):
            alarm.due = None
            self._notify(minute, name, "ALARM")

    def _notify(self, minute: int, name: str, state: str) -> None:
        if (name, state) in self._notifies:
            self.messages.append((minute, short(name), state))


def alarms_of(template: Template) -> dict[str, dict[str, Any]]:
    """The properties of all alarms, composite alarms last, by logical id."""
    kinds = ("AWS::CloudWatch::Alarm", "AWS::CloudWatch::CompositeAlarm")
    return {name: alarm for kind in kinds for name, alarm in template.of(kind).items()}


def short(name: str) -> str:
    """The construct id of an alarm's logical id, which ends in eight characters of a hash."""
    return name.removeprefix("AckerMonitoring")[:-8]
