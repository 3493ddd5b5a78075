"""The checks of a deployed acker: pure functions of facts. docs/doctor.md lists them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from xorack.aws.schema import ALIAS, EXPIRES_AT
from xorack.aws.table_check import check_definition, check_state
from xorack.core.errors import ArgumentError
from xorack.core.message import MAX_BODY_BYTES
from xorack.core.text import plural, span
from xorack.ops.doctor.check import Check, Examination, Facts, examine

_Judge = Callable[[Facts], tuple[str, Mapping[str, object]]]
_OUTPUTS: Final = (
    *("TableName", "QueueUrl", "QueueArn", "DeadLetterQueueUrl", "EventBusName"),
    *("ConsumerName", "SweeperName", "RetentionSeconds"),
)
_FUNCTIONS: Final = ("consumer", "sweeper")
_FEW_RECEIVES: Final = 10
"""With fewer receives, a queue gives messages up during an outage of a few minutes."""
_SENDER_BYTES: Final = 250_000
"""The size up to which clients fill messages by default."""
_MEMORY_MB, _SECONDS = 512, 10
"""The smallest settings of a function. With less, a large batch fails, or no write starts."""
_EXPECTED_ALARM: Final = "ChainsFailed"
"""The doctor itself makes a chain fail, which sets off this alarm."""
_SWEEPS: Final = "rate(1 minute)"
_DAY: Final = 86_400  # seconds
_TRANSIENT: Final = ("Enabled", "Enabling", "Updating", "Creating")
EXAMINATIONS: Final[list[Examination]] = []


def _examination(name: str, *reads: str, advice: str) -> Callable[[_Judge], _Judge]:
    """Add a function to the examinations. The checks have the order of these functions."""

    def add(judge: _Judge) -> _Judge:
        EXAMINATIONS.append(Examination(name, reads, advice, judge))
        return judge

    return add


def _days(seconds: str | int) -> str:
    return span(int(seconds) * 1000)


def _depth(queue: Mapping[str, str]) -> int:
    states = ("", "NotVisible", "Delayed")
    return sum(int(queue.get(f"ApproximateNumberOfMessages{state}", 0)) for state in states)


def _is_plain(queue: Mapping[str, str]) -> bool:
    return not queue.get("KmsMasterKeyId") and queue.get("SqsManagedSseEnabled") == "false"


@_examination("outputs", advice="deploy again; in a stack of yours, call acker.add_outputs()")
def _outputs(facts: Facts) -> Any:
    stack = facts["stack"]
    missing = [name for name in _OUTPUTS if name not in stack.outputs]
    return f"stack {stack.name}, {stack.status}", {
        f"the stack {stack.name} has no output {', '.join(missing)}": missing,
        f"the stack {stack.name} is {stack.status}": stack.status.endswith("FAILED"),
    }


@_examination("permissions", "caller", advice="ask for the policy of docs/doctor.md")
def _permissions(facts: Facts) -> Any:
    denied = facts["denied"]
    text = f"{facts['caller']} may not call {', '.join(denied)}"
    return f"{facts['caller']} may read all of this", {text: denied}


@_examination(
    "queue", "queue", advice="correct the queue's attributes; if it was deleted, deploy again"
)
def _queue(facts: Facts) -> Any:
    queue = facts["queue"]
    redrive = json.loads(queue.get("RedrivePolicy", "{}"))
    target = redrive.get("deadLetterTargetArn", "").rpartition(":")[2]
    expected = facts["stack"].outputs.get("DeadLetterQueueUrl", "").rpartition("/")[2]
    receives, size = int(redrive.get("maxReceiveCount", 0)), int(queue["MaximumMessageSize"])
    delay = int(queue.get("DelaySeconds", 0))
    waiting = plural(_depth(queue), "message")
    return f"{waiting} waiting, given up after {receives} receives", {
        f"no redrive policy, expected one to {expected}, as bad messages are lost": not redrive,
        f"its dead letters go to {target}, expected {expected}": redrive and target != expected,
        f"maxReceiveCount {receives}, expected 100, at least {_FEW_RECEIVES}": redrive
        and receives < _FEW_RECEIVES,
        f"MaximumMessageSize {size}, expected {MAX_BODY_BYTES}": size < _SENDER_BYTES,
        f"DelaySeconds {delay}, expected 0, because each ack waits for this time": delay,
        "messages are not encrypted, expected SqsManagedSseEnabled true": _is_plain(queue),
    }


@_examination("dead letters", "dead letters", advice="see them with xorack dead-letters list")
def _dead_letters(facts: Facts) -> Any:
    queue = facts["dead letters"]
    size = int(queue["MaximumMessageSize"])
    return f"none, kept for {_days(queue['MessageRetentionPeriod'])}", {
        f"{plural(_depth(queue), 'message')} rejected or given up": _depth(queue),
        f"the queue's MaximumMessageSize is {size}, expected {MAX_BODY_BYTES}": size
        < MAX_BODY_BYTES,
        "messages are not encrypted, expected SqsManagedSseEnabled true": _is_plain(queue),
    }


@_examination("keys", "keys", advice="enable the key, because no read or write works without it")
def _keys(facts: Facts) -> Any:
    keys = facts["keys"].values()
    unusable = [f"{key['KeyId']} is {key['KeyState']}" for key in keys if not key["Enabled"]]
    summary = f"{plural(len(keys), 'key')} of KMS, enabled" if keys else "AWS's own"
    return summary, {", ".join(unusable): unusable}


@_examination("table", "table", advice="restore the table as docs/operations.md says")
def _table(facts: Facts) -> Any:
    table = facts["table"]
    name, protected = table["TableName"], table.get("DeletionProtectionEnabled")
    key = next(key["AttributeName"] for key in table["KeySchema"] if key["KeyType"] == "HASH")
    problem = ""
    try:
        check_definition(name, table, key)
        # Another check examines the time to live.
        check_state(name, table, {"TimeToLiveStatus": "ENABLED", "AttributeName": EXPIRES_AT})
    except ArgumentError as error:
        problem = str(error)
    protection = "protected from" if protected else "open to"
    # DynamoDB bills each write by the size of the item, for each started 1,024 bytes.
    size = table.get("TableSizeBytes", 0) // max(1, table.get("ItemCount", 0))
    units = plural(-(-size // 1024), "write unit")
    bill = f", {size:,} bytes an item: {units} a write" if size else ""
    return f"{name}, {protection} deletion{bill}", {problem: problem}


@_examination(
    "time to live", "time to live", "table", advice="enable it, or the table grows for ever"
)
def _time_to_live(facts: Facts) -> Any:
    is_on = facts["time to live"]["TimeToLiveStatus"] in ("ENABLED", "ENABLING")
    attribute = facts["time to live"].get("AttributeName") if is_on else "off"
    return f"by {attribute}", {f"{attribute}, expected {EXPIRES_AT}": attribute != EXPIRES_AT}


@_examination("recovery", "recovery", "table", advice="enable point-in-time recovery of the table")
def _recovery(facts: Facts) -> Any:
    described = facts["recovery"].get("PointInTimeRecoveryDescription", {})
    is_on = described.get("PointInTimeRecoveryStatus") == "ENABLED"
    return "to any point in time", {"off, so a deleted or corrupt table is lost": not is_on}


def _function(name: str) -> _Judge:
    """Return the check of a function: it is active, may run, and has the stack's resources."""

    def judge(facts: Facts) -> Any:
        function, outputs = facts[name], facts["stack"].outputs
        state = function.get("State", "Active")
        variables = function.get("Environment", {}).get("Variables", {})
        expected = {
            "TABLE_NAME": ("TableName",),
            "DEAD_LETTER_QUEUE_URL": ("DeadLetterQueueUrl",),
            "EVENT_BUS_NAME": ("EventBusName", "EventBusArn"),
        }
        wrong = [
            variable
            for variable, names in expected.items()
            if variables.get(variable) not in map(outputs.get, names)
        ]
        reserved = facts[f"{name} concurrency"].get("ReservedConcurrentExecutions")
        memory, seconds = function["MemorySize"], function["Timeout"]
        return f"version {function['Version']}, {memory} MB, {state}", {
            f"it is {state}: {function.get('StateReason')}": state not in ("Active", "Inactive"),
            "its last update failed": function.get("LastUpdateStatus") == "Failed",
            "its reserved concurrency is 0, expected more or none": reserved == 0,
            f"its variables {', '.join(wrong)} are not the stack's resources": wrong,
            f"its memory is {memory} MB, expected at least {_MEMORY_MB}": memory < _MEMORY_MB,
            f"its time-out is {seconds} s, expected at least {_SECONDS}": seconds < _SECONDS,
        }

    return judge


for _name in _FUNCTIONS:
    _examination(
        _name, _name, f"{_name} concurrency", advice="correct the function, or deploy again"
    )(_function(_name))


@_examination("code", "consumer", "sweeper", advice="deploy again")
def _code(facts: Facts) -> Any:
    codes = sorted({facts[name]["CodeSha256"][:10] for name in _FUNCTIONS})
    text = f"the functions run {' and '.join(codes)}: an update or a rollback is incomplete"
    return f"both functions run {codes[0]}", {text: len(codes) > 1}


@_examination("last errors", "consumer counts", "sweeper counts", advice="read the functions' logs")
def _errors(facts: Facts) -> Any:
    problems: dict[str, object] = {}
    for name in _FUNCTIONS:
        counts, last = facts[f"{name} counts"], facts[f"{name} error"]
        failed, throttled = (plural(int(counts[name]), "time") for name in ("Errors", "Throttles"))
        quoted = f": {last}" if last else ""
        problems[f"the {name} failed {failed} in 15 min{quoted}"] = counts["Errors"]
        problems[f"Lambda throttled the {name} {throttled} in 15 min"] = counts["Throttles"]
    runs = (int(facts[f"{name} counts"]["Invocations"]) for name in _FUNCTIONS)
    return "none in 15 min: {:,} batches, {:,} sweeps".format(*runs), problems


@_examination("event source mapping", "mappings", "consumer", advice="correct it, or deploy again")
def _mapping(facts: Facts) -> Any:
    mappings, consumer = facts["mappings"], facts["stack"].outputs.get("ConsumerName", "")
    target = f"{consumer}:{ALIAS}"
    ours = [each for each in mappings if each["FunctionArn"].endswith(f":{target}")]
    first: Any = ours[0] if ours else {"State": "Enabled", "FunctionResponseTypes": [_REPORT]}
    last = str(first.get("LastProcessingResult", ""))
    filters = first.get("FilterCriteria", {}).get("Filters")
    return f"{first['State']}: up to {first.get('BatchSize')} messages a batch", {
        f"no mapping polls the queue for {target}": not ours,
        "another function or version takes messages from the queue": len(mappings) > len(ours),
        "it has a filter, so Lambda deletes messages that it does not match": filters,
        f"it is {first['State']}, so it does not poll the queue": first["State"] not in _TRANSIENT,
        f"without {_REPORT}, one bad message repeats its entire batch": _REPORT
        not in first.get("FunctionResponseTypes", ()),
        last: last.startswith("PROBLEM"),
    }


_REPORT: Final = "ReportBatchItemFailures"


@_examination(
    *("visibility time-out", "queue", "consumer", "mappings"),
    advice="raise the queue's VisibilityTimeout: batches are delivered again during their retries",
)
def _visibility(facts: Facts) -> Any:
    seconds, attempt = int(facts["queue"]["VisibilityTimeout"]), facts["consumer"]["Timeout"]
    windows = [each.get("MaximumBatchingWindowInSeconds", 0) for each in facts["mappings"]]
    needed = 6 * attempt + max(windows, default=0)
    problems = {f"{seconds} s, expected at least {needed}": seconds < needed}
    return f"{seconds} s, six times the consumer's {attempt} s and its window", problems


@_examination(
    *("retention", "queue", "dead letters", "consumer"),
    advice="correct the queues' MessageRetentionPeriod, or deploy again with more retention_days",
)
def _retention(facts: Facts) -> Any:
    variables = facts["consumer"].get("Environment", {}).get("Variables", {})
    kept, dead = (int(facts[name]["MessageRetentionPeriod"]) for name in ("queue", "dead letters"))
    chains, pending = (
        int(value) if (value := variables.get(f"{name}_SECONDS", "")).isdecimal() else default
        for name, default in (("RETENTION", 30 * _DAY), ("PENDING_TIMEOUT", 14 * _DAY))
    )
    lives = f"messages {_days(kept)}, dead letters {_days(dead)}, chains {_days(chains)}"
    return lives, {
        f"{lives}, but a longer outage loses messages, expected a day or more": kept < _DAY,
        f"{lives}, expected dead letters to be kept longer than messages": dead <= kept,
        f"{lives}, so a late message may start an expired chain again": kept + dead > chains
        and dead > kept,
        f"{lives}, but a chain waits only {_days(pending)} for its create": pending < kept,
    }


@_examination(
    *("schedule", "schedule", "permission", "sweeper"),
    advice="correct the rule, or deploy again, because no chain times out without it",
)
def _schedule(facts: Facts) -> Any:
    rules = facts["schedule"]
    rates = [
        rule.get("ScheduleExpression", "") for rule in rules.values() if rule["State"] == "ENABLED"
    ]
    rate = f"the sweeper runs at {', '.join(rates)}"
    return rate, {
        "no rule invokes the sweeper": not rules,
        f"the rule {', '.join(rules)} is disabled": rules and not rates,
        f"{rate}, expected {_SWEEPS}": rates and _SWEEPS not in rates,
        "EventBridge may not invoke the sweeper": "events.amazonaws.com" not in facts["permission"],
    }


@_examination("bus", "bus", advice="create a bus of this name, because events are lost until then")
def _bus(facts: Facts) -> Any:
    return facts["bus"], {}


@_examination("rules", "rules", "bus", advice="repair the rule, or delete it")
def _rules(facts: Facts) -> Any:
    rules = facts["rules"]
    disabled = [name for name, (state, _) in rules.items() if state != "ENABLED"]
    idle = [name for name, (state, targets) in rules.items() if state == "ENABLED" and not targets]
    targets = sum(len(targets) for _, targets in rules.values())
    summary = f"{plural(len(rules), 'rule')} for events, {plural(targets, 'target')}"
    return summary if rules else "none yet, so no one receives the events", {
        f"{', '.join(disabled)}: disabled, so its targets receive no events": disabled,
        f"{', '.join(idle)}: without a target": idle,
    }


@_examination(
    "alarms", "alarms", advice="follow the alarm's runbook; deploy again if it was deleted"
)
def _alarms(facts: Facts) -> Any:
    alarms, gone = facts["alarms"]["present"], facts["alarms"]["gone"]
    on = [alarm["AlarmName"] for alarm in alarms if alarm.get("StateValue") == "ALARM"]
    unexpected = [name for name in on if _EXPECTED_ALARM not in name]
    silenced = [alarm["AlarmName"] for alarm in alarms if not alarm.get("ActionsEnabled", True)]
    return f"{plural(len(alarms), 'alarm')}, on: {', '.join(on) or 'none'}", {
        "the stack has no alarms": not alarms and not gone,
        f"deleted: {', '.join(gone)}": gone,
        f"on: {', '.join(unexpected)}": unexpected,
        f"actions disabled: {', '.join(silenced)}": silenced,
    }


@_examination(
    *("recipients", "subscriptions", "alarms"),
    advice="name a topic with the setting alarm_topic_arn, and confirm a subscription to it",
)
def _recipients(facts: Facts) -> Any:
    alarms, topics = facts["alarms"]["present"], facts["subscriptions"]
    loud = [alarm for alarm in alarms if alarm["AlarmActions"]]
    # An alarm that belongs to a composite alarm needs no action of its own.
    heard = " ".join(alarm["AlarmName"] + alarm.get("AlarmRule", "") for alarm in loud)
    mute = [alarm["AlarmName"] for alarm in alarms if alarm["AlarmName"] not in heard]
    confirmed = {
        topic: [each for each in hearers if each["SubscriptionArn"].startswith("arn:")]
        for topic, hearers in topics.items()
    }
    empty = [topic for topic, hearers in confirmed.items() if not hearers]
    return f"{plural(sum(map(len, confirmed.values())), 'subscription')} to the alarms' topics", {
        f"no one is notified of {', '.join(mute)}": mute,
        f"no one has confirmed a subscription to {', '.join(empty)}": empty,
    }


NAMES: Final = tuple(examination.name for examination in EXAMINATIONS)
VITAL: Final = frozenset(
    ("outputs", "queue", "keys", "table", "event source mapping", *_FUNCTIONS, "bus")
)
"""Checks without which no chain can end. If one of them failed, no chain is sent."""


def check_all(facts: Facts) -> list[Check]:
    return examine(facts, EXAMINATIONS)
