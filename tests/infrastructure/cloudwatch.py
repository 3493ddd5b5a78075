"""CloudWatch's rules for alarms, over the alarms of a template and synthetic data.

From the user guide (`alarm-evaluation`, `alarms-and-missing-data`, `using-metric-math` and
`Create_Composite_Alarm_Suppression`). It does not say some things: `Rules` has them as options.
"""

from __future__ import annotations

import ast
import operator
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .templates import Template, target

Key = tuple[str, str, frozenset[tuple[str, str]]]
Points = list[float | None]
"""Values of consecutive periods, the oldest first; None where data is missing."""
_OPERATORS: dict[type, Callable[[float, float], float]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Lt: operator.lt,
}  # fmt: skip
_COMPARISONS = {
    "GreaterThanThreshold": operator.gt,
    "GreaterThanOrEqualToThreshold": operator.ge,
    "LessThanThreshold": operator.lt,
}
_STATISTICS: dict[str, Callable[[list[float]], float]] = {
    "Sum": sum, "Maximum": max, "Minimum": min
}  # fmt: skip


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

    def has(self, metric: Metric) -> bool:
        """True if there is any data of a metric."""
        return bool(self._values.get(metric.key))

    def read(self, metric: Metric, minute: int, periods: int, rules: Rules) -> Points:
        """Read the latest periods that end at a minute."""
        series, cache = self._values[metric.key], metric.cache
        known = minute - rules.delays.get(metric.key[0], 0)
        points = []
        for end in range(minute - (periods - 1) * metric.minutes, minute + 1, metric.minutes):
            if (part := (end, min(end, known))) not in cache:
                window = range(end - metric.minutes + 1, part[1] + 1)
                values = [series[at] for at in window if at in series]
                cache[part] = _STATISTICS[metric.statistic](values) if values else None
            points.append(cache[part])
        return points


@dataclass
class Metric:
    """A metric of an alarm, and the periods that were read: its end, and the end of its data."""

    key: Key
    statistic: str
    minutes: int
    cache: dict[tuple[int, int], float | None] = field(default_factory=dict)

    @classmethod
    def of(cls, metric: dict[str, Any], statistic: str, seconds: int) -> Metric:
        dimensions = {(one["Name"], target(one["Value"])) for one in metric["Dimensions"]}
        key = (metric["Namespace"], metric["MetricName"], frozenset(dimensions))
        return cls(key, statistic, seconds // 60)


class MetricAlarm:
    """An alarm on a metric or an expression."""

    def __init__(self, properties: dict[str, Any]) -> None:
        self.periods = properties["EvaluationPeriods"]
        self.datapoints = properties.get("DatapointsToAlarm", self.periods)
        self.treat_missing = properties["TreatMissingData"]
        self._threshold = properties["Threshold"]
        self._breaches = _COMPARISONS[properties["ComparisonOperator"]]
        self._without_data: tuple[str | None] | None = None
        self.expression: ast.expr | None = None
        self.metrics: dict[str, Metric] = {}
        if "MetricName" in properties:
            one = Metric.of(properties, properties["Statistic"], properties["Period"])
            self.metrics["metric"] = one
        for query in properties.get("Metrics", []):
            if "Expression" in query:
                self.expression = ast.parse(query["Expression"], mode="eval").body
            else:
                of, stat = query["MetricStat"]["Metric"], query["MetricStat"]["Stat"]
                one = Metric.of(of, stat, query["MetricStat"]["Period"])
                self.metrics[query["Id"]] = one

    def state(self, data: Data, minute: int, rules: Rules) -> str | None:
        """The state after an evaluation; None if it stays."""
        if any(map(data.has, self.metrics.values())):
            return self._judge(data, minute, rules)
        if self._without_data is None:
            self._without_data = (self._judge(data, minute, rules),)
        return self._without_data[0]

    def _judge(self, data: Data, minute: int, rules: Rules) -> str | None:
        size = self.periods + rules.extra
        read = {name: data.read(one, minute, size, rules) for name, one in self.metrics.items()}
        points = read.get("metric", [])
        if self.expression is not None:
            points = compute(self.expression, read, rules.fills_empty)  # type: ignore[assignment]
        ignored = rules.dynamodb_ignores and any(
            metric.key[0] == "AWS/DynamoDB" for metric in self.metrics.values()
        )
        breaching = [None if p is None else self._breaches(p, self._threshold) for p in points]
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


def compute(node: ast.expr, read: Mapping[str, Points], fills_empty: bool) -> Points | float | str:
    """Compute an expression of metric math: the few forms that the alarms use."""

    def value(node: ast.expr) -> Any:
        return compute(node, read, fills_empty)

    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.Name(id="REPEAT"):
            return "REPEAT"
        case ast.Name(id=name):
            return read[name]
        case ast.BinOp(left=left, op=op, right=right):
            return _combine(_OPERATORS[type(op)], value(left), value(right))
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _combine(_OPERATORS[type(op)], value(left), value(right))
        case ast.Call(func=ast.Name(id="IF"), args=[condition, then, *otherwise]):
            return _choose(value(condition), value(then), *map(value, otherwise))
        case ast.Call(func=ast.Name(id="FILL"), args=[points, filler]):
            return _fill(value(points), value(filler), fills_empty)
        case ast.Call(func=ast.Name(id="DIFF"), args=[points]):
            return _differences(value(points))
    raise NotImplementedError(ast.dump(node))


def _combine(
    apply: Callable[[float, float], float], left: Points | float, right: Points | float
) -> Points | float:
    """Combine series; a value that only one of two series lacks is 0, and x / 0 is dropped."""
    if not isinstance(left, list) and not isinstance(right, list):
        return float(apply(left, right))
    size = len(left) if isinstance(left, list) else len(right)  # type: ignore[arg-type]
    columns = [one if isinstance(one, list) else [one] * size for one in (left, right)]
    scalar = not (isinstance(left, list) and isinstance(right, list))
    points: Points = []
    for a, b in zip(*columns, strict=True):
        missing = a is None or b is None if scalar else a is None and b is None
        try:
            points.append(None if missing else float(apply(a or 0, b or 0)))
        except ZeroDivisionError:
            points.append(None)
    return points


def _choose(
    condition: Points, then: Points | float, otherwise: Points | float | None = None
) -> Points:
    def at(index: int) -> float | None:
        if condition[index] is None:
            return None
        if condition[index]:
            return (then[index] or 0) if isinstance(then, list) else then
        return otherwise[index] if isinstance(otherwise, list) else otherwise

    return [at(index) for index in range(len(condition))]


def _fill(points: Points, filler: float | str, fills_empty: bool) -> Points:
    if not fills_empty and all(point is None for point in points):
        return points
    filled: Points = []
    for point in points:
        last = filled[-1] if filled else None
        filled.append(point if point is not None else last if filler == "REPEAT" else filler)  # type: ignore[arg-type]
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
        return cls(
            re.findall(one, rule),
            target(properties["ActionsSuppressor"]) if "ActionsSuppressor" in properties else None,
            properties.get("ActionsSuppressorWaitPeriod", 0) // 60,
            properties.get("ActionsSuppressorExtensionPeriod", 0) // 60,
        )

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
        created = {
            **template.of("AWS::CloudWatch::Alarm"),
            **template.of("AWS::CloudWatch::CompositeAlarm"),
        }
        self._alarms: dict[str, MetricAlarm | Composite] = {
            name: Composite.of(one) if "AlarmRule" in one else MetricAlarm(one)
            for name, one in created.items()
        }
        # Without a topic, the composite alarms would notify one.
        self._notifies = {(name, "ALARM") for name, one in created.items() if "AlarmRule" in one}
        for name, one in created.items():
            for action, state in (("AlarmActions", "ALARM"), ("OKActions", "OK")):
                if action in one:
                    self._notifies.add((name, state))
        self._states = dict.fromkeys(created, "INSUFFICIENT_DATA")
        self._left: dict[str, int] = {}
        self.changes: dict[str, list[tuple[int, str]]] = defaultdict(list)
        self.messages: list[tuple[int, str, str]] = []

    def run(self, data: Data, minutes: range) -> None:
        """Evaluate the alarms in each of these minutes."""
        for minute in minutes:
            for name, alarm in self._alarms.items():
                if isinstance(alarm, MetricAlarm):
                    self._change(minute, name, alarm.state(data, minute, self._rules))
            for name, alarm in self._alarms.items():
                if isinstance(alarm, Composite):
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


def short(name: str) -> str:
    """The construct id of an alarm's logical id, which ends in eight characters of a hash."""
    return name.removeprefix("AckerMonitoring")[:-8]
