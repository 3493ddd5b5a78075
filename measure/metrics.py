"""Figures of the stack from CloudWatch, as far as the endpoint has them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from botocore.exceptions import BotoCoreError, ClientError

from xorack.aws.schema import DUE_INDEX, METRIC_NAMESPACE, Metric

_POLL_SECONDS = 15.0
_PERIOD = 60
_SERVICE = "POWERTOOLS_SERVICE_NAME"
_TABLE = {
    "write units": "ConsumedWriteCapacityUnits",
    "read units": "ConsumedReadCapacityUnits",
    "throttled writes": "WriteThrottleEvents",
    "throttled reads": "ReadThrottleEvents",
}
_FUNCTION = {
    "invocations": "Invocations",
    "errors": "Errors",
    "throttled invocations": "Throttles",
    "GB-seconds": "Duration",
}
_ACKER = {
    "applied": Metric.REQUESTS_APPLIED,
    "duplicate": Metric.REQUESTS_DUPLICATE,
    "late": Metric.REQUESTS_LATE,
    "rejected": Metric.REQUESTS_REJECTED,
    "writes": Metric.WRITES,
    "conflicts": Metric.CONFLICTS,
    "spilled marks": Metric.MARKS_SPILLED,
    "messages to retry": Metric.MESSAGES_FAILED,
}
FIGURES = (*_TABLE, *_FUNCTION, *_ACKER)
"""The names of all figures: sums over the run's whole minutes."""


class Functions(NamedTuple):
    """The functions of a stack.

    Attributes:
        memory: GB by name of the function.
        service: Dimension of the stack's own metrics.
    """

    memory: Mapping[str, float]
    service: str


def find_functions(stack: str, client: Callable[[str], Any]) -> Functions:
    """Find the functions of a stack by its outputs; without a permission, none."""
    try:
        (described,) = client("cloudformation").describe_stacks(StackName=stack)["Stacks"]
        outputs = {one["OutputKey"]: one["OutputValue"] for one in described.get("Outputs", [])}
        names = [outputs[key] for key in ("ConsumerName", "SweeperName") if key in outputs]
        get = client("lambda").get_function_configuration
        functions = {name: get(FunctionName=name) for name in names}
    except (ClientError, BotoCoreError):
        return Functions({}, stack)
    variables = [one.get("Environment", {}).get("Variables", {}) for one in functions.values()]
    services = [one[_SERVICE] for one in variables if _SERVICE in one]
    memory = {name: one["MemorySize"] / 1024 for name, one in functions.items()}
    return Functions(memory, services[0] if services else stack)


class _Query(NamedTuple):
    figure: str
    namespace: str
    metric: str
    dimensions: Mapping[str, str]
    factor: float = 1.0


def _queries(table: str, functions: Functions) -> Iterator[_Query]:
    for index in ({}, {"GlobalSecondaryIndexName": DUE_INDEX}):
        for figure, metric in _TABLE.items():
            yield _Query(figure, "AWS/DynamoDB", metric, {"TableName": table, **index})
    for name, memory in functions.memory.items():
        for figure, metric in _FUNCTION.items():
            factor = memory / 1000 if metric == "Duration" else 1.0
            yield _Query(figure, "AWS/Lambda", metric, {"FunctionName": name}, factor)
    for figure, metric in _ACKER.items():
        yield _Query(figure, METRIC_NAMESPACE, metric, {"service": functions.service})


def read_metrics(
    table: str,
    functions: Functions,
    cloudwatch: Any,
    times: tuple[float, float],
    requests: int,
    wait_seconds: float,
) -> dict[str, float | None]:
    """Read the figures, again until all requests are in them: metrics are minutes late.

    Args:
        table: The table's name.
        functions: The stack's functions.
        cloudwatch: A boto3 CloudWatch client.
        times: Begin and end of the run, seconds since the epoch.
        requests: Requests that were sent.
        wait_seconds: Longest time to wait.

    Returns:
        The `FIGURES`; None for those of which the endpoint has no data.
    """
    queries = list(_queries(table, functions))
    deadline = time.monotonic() + wait_seconds
    while True:
        figures = _sums(queries, cloudwatch, times)
        seen = sum(figures[name] or 0 for name in ("applied", "duplicate", "late", "rejected"))
        complete = seen >= requests and figures["write units"] and figures["invocations"]
        if complete or time.monotonic() >= deadline:
            return figures
        time.sleep(min(_POLL_SECONDS, max(0.0, deadline - time.monotonic())))


def _sums(
    queries: list[_Query], cloudwatch: Any, times: tuple[float, float]
) -> dict[str, float | None]:
    figures: dict[str, float | None] = dict.fromkeys(FIGURES)
    values: dict[int, list[float]] = {}
    data = []
    for n, query in enumerate(queries):
        dimensions = [{"Name": name, "Value": value} for name, value in query.dimensions.items()]
        metric = {"Namespace": query.namespace, "MetricName": query.metric}
        stat = {"Metric": {**metric, "Dimensions": dimensions}, "Period": _PERIOD, "Stat": "Sum"}
        data.append({"Id": f"q{n}", "MetricStat": stat})
    begin, end = times[0] // _PERIOD * _PERIOD, (times[1] // _PERIOD + 1) * _PERIOD
    try:
        pages = cloudwatch.get_paginator("get_metric_data").paginate(
            MetricDataQueries=data, StartTime=begin, EndTime=end
        )
        for result in (one for page in pages for one in page["MetricDataResults"]):
            values.setdefault(int(result["Id"][1:]), []).extend(result["Values"])
    except (ClientError, BotoCoreError):
        return figures  # not permitted, or no CloudWatch
    for n, query in enumerate(queries):
        # The first of a figure's metrics, of the table or the consumer, always has data.
        known = figures[query.figure] is not None or query.figure not in [
            earlier.figure for earlier in queries[:n]
        ]
        if known and values.get(n):
            figures[query.figure] = (figures[query.figure] or 0) + sum(values[n]) * query.factor
    return figures
