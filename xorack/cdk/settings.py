"""Settings of the stack: their types, defaults and checks.

A setting comes from `cdk deploy -c name=value`, from `context` in cdk.json, or from the arguments
of `Settings`. An invalid setting stops the synthesis with an error that names it.
"""

from __future__ import annotations

import difflib
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, TypeAlias

from typing_extensions import Self

from xorack.aws.schema import RESERVED, RESUME_KINDS, TAG
from xorack.core.errors import ArgumentError

_DAY: Final = 86_400  # seconds
_TEN_YEARS: Final = 3650  # days
# How long messages stay in the two queues. SQS keeps no message for longer than 14 days.
QUEUE_DAYS: Final = 4
DEAD_LETTER_DAYS: Final = 14
_LOG_RETENTION: Final = {
    name: int(days)
    for name, days in re.findall(
        r"(\w+)=(\d+)",
        "ONE_DAY=1 THREE_DAYS=3 FIVE_DAYS=5 ONE_WEEK=7 TWO_WEEKS=14 ONE_MONTH=30 TWO_MONTHS=60 "
        "THREE_MONTHS=90 FOUR_MONTHS=120 FIVE_MONTHS=150 SIX_MONTHS=180 ONE_YEAR=365 "
        "THIRTEEN_MONTHS=400 EIGHTEEN_MONTHS=545 TWO_YEARS=731 THREE_YEARS=1096 FIVE_YEARS=1827 "
        "SIX_YEARS=2192 SEVEN_YEARS=2557 EIGHT_YEARS=2922 NINE_YEARS=3288 TEN_YEARS=3653",
    )
}
"""The days that CloudWatch Logs permits, by their names in the CDK's `RetentionDays`."""
PROFILES: Final = {"low-cost": (1_000, 1), "low-latency": (10, 0)}
"""The batch size and the window in seconds of each profile."""
_PROFILED: Final = ("batch_size", "batch_window_seconds")
Time: TypeAlias = int | Any
"""A number in the unit of the setting's name, or a `Duration`, which is stored as a number."""
Late: TypeAlias = int | Any
"""A number, which may be known only at the deployment, such as a `CfnParameter`."""
Choice: TypeAlias = str | Any
"""Text, or a value of the CDK such as `RemovalPolicy.DESTROY`, which is stored as text."""
_TOPIC: Final = r"arn:aws[a-z-]*:sns:[a-z0-9-]+:\d{12}:[A-Za-z0-9_-]{1,256}"


def _setting(
    default: Any,
    expected: str,
    kind: type,
    is_valid: Any = lambda value: True,
    *,
    late: bool = False,
    **limits: Any,
) -> Any:
    """Define a setting.

    A `late` setting may be a token, because the synthesis does not need its value. `limits` are the
    limits of a `CfnParameter` for it.
    """
    metadata = {"expected": expected, "kind": kind, "is_valid": is_valid, "late": late}
    return field(default=default, metadata={**metadata, "limits": limits})


def _number(default: int | None, low: int, high: int, unit: str, *, late: bool = False) -> Any:
    expected = f"a whole number from {low} to {high} ({unit})"
    valid, limits = range(low, high + 1), {"min_value": low, "max_value": high}
    return _setting(default, expected, int, valid.__contains__, late=late, **limits)


def _choice(default: Any, *choices: object, late: bool = False) -> Any:
    expected = "one of " + ", ".join(map(str, choices))
    limits = {"allowed_values": [*map(str, choices)]}
    return _setting(default, expected, type(default), choices.__contains__, late=late, **limits)


def flag(default: bool) -> Any:
    return _setting(default, "true or false", bool)


def text(default: str | None, pattern: str, expected: str, *, late: bool = False) -> Any:
    return _setting(default, expected, str, lambda value: re.fullmatch(pattern, value), late=late)


def is_token(value: object) -> bool:
    """Return whether a value is known only at the deployment, without importing the CDK."""
    if isinstance(value, float):
        # The CDK marks tokens that are numbers by their first two bytes.
        return struct.pack(">d", value)[:2] == b"\xfb\xff"
    if type(value).__name__ == "Duration":
        return bool(value.is_unresolved())  # type: ignore[attr-defined]
    return isinstance(value, str) and "${Token[" in value


def _is_key_name(name: str) -> bool:
    return name == name.strip() and 1 <= len(name.encode()) <= 255 and name not in RESERVED


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one acker. The defaults suit a production stack.

    Attributes:
        table_name: The name of an existing table in this account and region. By default, the acker
            creates a table.
        partition_key: The name of the table's partition key.
        profile: `low-cost` has batches of up to 1,000 messages and a window of one second. On a
            quiet queue, Lambda can wait up to 20 seconds for it. `low-latency` has batches of up to
            10 messages and no window, which causes more invocations and writes (docs/capacity.md).
        function_timeout_seconds: The timeout of the consumer and the sweeper. The queue's
            visibility timeout follows from it. No write starts in the last 19 seconds, or with a
            timeout of 10 seconds in the last 6.
        memory_mb: The memory of each function, at least 512, because a batch of 6 MB needs 399.
            Lambda gives processor time in proportion.
        batch_size: The most messages in one invocation of the consumer. By default, the profile
            decides. Large batches cost less, because one write applies all messages of a chain.
        batch_window_seconds: How long Lambda collects messages before it invokes the consumer. By
            default, the profile decides. Batches of more than ten messages need at least 1 second.
        max_concurrency: The most concurrent invocations of the consumer. In an account with a limit
            of ten, five leaves capacity for the sweeper.
        max_receive_count: The attempts before SQS moves a message to the dead-letter queue. The
            default takes ten hours. Rejected requests go there at once.
        resume: The kinds of callbacks that a `create` may name: `none`, `step_functions` (task
            tokens), `lambda` (callbacks of durable functions) or `all`. The functions get the
            permission for the account and region. With `granted`, a `create` may name both kinds,
            but only `grant_resume` gives permissions. Requests with other kinds are rejected.
        default_timeout_seconds: The time-out of a chain whose `create` has none.
        mask: Fields of details, as a list or separated by commas, that are stored as hashes. No
            event, page or dead letter shows their values (docs/security.md).
        retention_days: The largest age of a message that is applied. An ended chain is kept for
            twice this time, so that late or redriven messages do not start it again.
        deletion_protection: Whether DynamoDB rejects the deletion of the table.
        removal_policy: `retain` or `destroy`, or a `RemovalPolicy`. It says what happens to the
            table, the queues and the logs when the stack is deleted.
        log_retention_days: How long the functions' logs are kept, in days or as `RetentionDays`.
        architecture: `arm64` or `x86_64`, or an `Architecture`.
        tracing: Whether X-Ray traces the invocations of the functions.
        alarm_topic_arn: An SNS topic for alarms. Without it, alarms are visible only in CloudWatch.
        failed_chains_threshold: How many chains may fail in five minutes without an alarm.
        monitoring: `standard` has all alarms and the functions' metrics. `full` also has composite
            alarms and a dashboard. `minimal` has only alarms on metrics that AWS emits for free.
        contributor_insights: Whether CloudWatch names the throttled keys of the table and its
            index, such as the hot chain. Each throttled call costs. It does not change your table.
        deny_forged_events: Whether the policy of a bus that the acker creates denies all principals
            but its functions to put events of the source `xorack`.
        policies_ready: Set it to True once the policies of imported resources have the statements
            that the synthesis asks for, because the CDK cannot see these policies.

    Examples:
        Settings(profile="low-latency", default_timeout_seconds=Duration.hours(6))

    Raises:
        ArgumentError: A value has the wrong type, is out of range, or contradicts another setting.
    """

    table_name: str | None = text(
        None, r"[A-Za-z0-9_.-]{3,255}", "the name of a table: 3 to 255 letters, digits, _, - and ."
    )
    partition_key: str = _setting(
        TAG,
        "text of 1 to 255 bytes without blanks at its ends, and not the name of another attribute",
        str,
        _is_key_name,
    )
    profile: str = _choice("low-cost", *PROFILES)
    function_timeout_seconds: Time = _number(60, 10, 900, "seconds")
    memory_mb: Late = _number(1024, 512, 10_240, "MB", late=True)
    # __post_init__ sets these two from the profile.
    batch_size: Late = _number(None, 1, 10_000, "messages", late=True)
    batch_window_seconds: Time = _number(None, 0, 300, "seconds")
    # A new account may have ten executions for all functions. The consumer takes half of them.
    max_concurrency: Late = _number(5, 2, 1_000, "concurrent invocations", late=True)
    max_receive_count: int = _number(100, 1, 1_000, "receives")
    resume: str = _choice("none", "none", *RESUME_KINDS, "all", "granted")
    default_timeout_seconds: Time = _number(_DAY, 1, _TEN_YEARS * _DAY, "seconds", late=True)
    mask: Choice | None = text(
        None,
        r"\s*[^,\s\0][^,\0]*(,\s*[^,\s\0][^,\0]*)*",
        "names of fields, such as customer,email",
    )
    # An ended chain has to be kept longer than every message that may still be delivered.
    retention_days: Time = _number(
        30, QUEUE_DAYS + DEAD_LETTER_DAYS + 1, _TEN_YEARS, "days", late=True
    )
    deletion_protection: bool = flag(True)
    removal_policy: Choice = _choice("retain", "retain", "destroy")
    log_retention_days: Time = _choice(30, *_LOG_RETENTION.values(), late=True)
    architecture: Choice = _choice("arm64", "arm64", "x86_64")
    tracing: bool = flag(False)
    alarm_topic_arn: str | None = text(
        None,
        _TOPIC,
        "the ARN of an SNS topic, such as arn:aws:sns:eu-west-1:123456789012:alarms",
        late=True,
    )
    failed_chains_threshold: Late = _number(0, 0, 1_000_000, "failed chains", late=True)
    monitoring: str = _choice("standard", "standard", "full", "minimal")
    contributor_insights: bool = flag(False)
    deny_forged_events: bool = flag(True)
    policies_ready: bool = flag(False)

    def __post_init__(self) -> None:
        for setting in fields(self):
            value, check = _plain(setting.name, getattr(self, setting.name)), setting.metadata
            object.__setattr__(self, setting.name, value)  # the class is frozen
            if value is None and setting.default is None:
                continue
            if is_token(value):
                _check_token(setting.name, value, check)
            # isinstance would accept True as an int.
            elif type(value) is not check["kind"] or not check["is_valid"](value):
                raise ArgumentError(f"setting {setting.name}", value, check["expected"])
        for name, default in zip(_PROFILED, PROFILES[self.profile], strict=True):
            if getattr(self, name) is None:
                object.__setattr__(self, name, default)
        is_large = is_token(self.batch_size) or self.batch_size > 10
        if is_large and self.batch_window_seconds == 0:
            name = "batch_window_seconds"
            expected = (
                f"1 to 300 seconds, because batch_size is {self.batch_size} and Lambda collects "
                "more than 10 messages only within a window"
            )
        elif self.deletion_protection and self.removal_policy == "destroy":
            name = "removal_policy"
            expected = "retain, or also deletion_protection=false, because a protected table stays"
        else:
            return
        raise ArgumentError(f"setting {name}", getattr(self, name), expected)

    @property
    def visibility_timeout_seconds(self) -> int:
        """The visibility timeout of the queue: six times the function's timeout, and the window.

        AWS recommends this time, because otherwise SQS delivers a batch again while Lambda retries
        it.
        """
        return int(6 * self.function_timeout_seconds + self.batch_window_seconds)

    @property
    def retention_seconds(self) -> Late:
        """The retention of an ended chain, in seconds."""
        days: Any = self.retention_days
        return days.to_seconds() if is_token(days) else int(days * _DAY)

    @classmethod
    def from_context(cls, context: Mapping[str, object]) -> Self:
        """Read the settings from a CDK context.

        Args:
            context: Names and values: text (`-c name=value`) or JSON (cdk.json). Names of other
                programs are ignored.

        Raises:
            ArgumentError: A value is invalid, or a name looks like a misspelt setting.
        """
        settings = {setting.name: setting for setting in fields(cls)}
        for name in context:
            # Names with these characters belong to the CDK.
            if name in settings or any(sign in name for sign in ":@/"):
                continue
            for close in difflib.get_close_matches(
                name.replace("-", "_").lower(), settings, 1, 0.8
            ):
                known_name = f"a known setting; did you mean `{close}`?"
                raise ArgumentError(f"setting {name}", context[name], known_name)
        return cls(
            **{
                name: _parse(context[name], setting.metadata["kind"], setting.default)
                for name, setting in settings.items()
                if name in context
            }
        )


def _check_token(name: str, value: Any, check: Mapping[str, Any]) -> None:
    """Raise ArgumentError for a token if the synthesis needs the value."""
    expected = f"{check['expected']}, not a token, because the synthesis needs its value"
    if name == "retention_days":
        expected = "a number of days, or `Duration.seconds` of a token"
        is_allowed = type(value).__name__ == "Duration"
    else:
        is_allowed = check["late"]
    if not is_allowed:
        raise ArgumentError(f"setting {name}", value, expected)


def _plain(name: str, value: Any) -> Any:
    """Return a value of the CDK as a number or as text, and other values unchanged."""
    match type(value).__name__:  # importing the CDK would start Node
        case "Duration" if name.endswith("_days") and is_token(value):
            return value  # the unit of a token cannot be changed
        case "Duration":
            amount = value.to_seconds(integral=False)
            if is_token(amount):
                return amount
            amount /= _DAY if name.endswith("_days") else 1
            return int(amount) if amount.is_integer() else amount
        case "RemovalPolicy":
            # The acker's `retain` already means RETAIN_ON_UPDATE_OR_DELETE.
            return value.name.lower().removesuffix("_on_update_or_delete")
        case "RetentionDays":
            return _LOG_RETENTION.get(value.name, value.name)
        case "Architecture":
            return value.name
        case "list" | "tuple" if name == "mask":
            return ",".join(map(str, value))
    return value


def _parse(value: object, kind: type, default: object) -> Any:
    """Convert text to a setting's type. Invalid values are left to the check in `Settings`."""
    if not isinstance(value, str):
        return value
    if kind is bool and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if kind is int and re.fullmatch(r"-?[0-9]{1,18}", value):
        return int(value)
    return None if value == "" and default is None else value
