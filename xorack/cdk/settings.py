"""Settings of the stack: types, defaults, checks.

A setting comes from `cdk deploy -c name=value`, from `context` in cdk.json, or from the arguments
of `Settings`. An invalid setting stops the synthesis with a line that names it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from typing_extensions import Self

from xorack.aws.schema import RESERVED, RESUME_KINDS, TAG
from xorack.core.errors import ArgumentError

_DAY: Final = 86_400  # seconds
_TEN_YEARS: Final = 3650  # days
# Lambda's advice: otherwise SQS delivers a batch again while Lambda retries it for throttling.
_VISIBILITY_FACTOR: Final = 6
# A new account may have ten executions for all functions: half of them for the consumer.
_CONCURRENCY: Final = 5
# Lambda's: concurrent invocations of one provisioned poller, and the default of their number.
_PER_POLLER: Final = 10
_MAX_POLLERS: Final = 200
# CloudWatch Logs allows these.
_LOG_RETENTION_DAYS: Final = (
    1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545,
    731, 1096, 1827, 2192, 2557, 2922, 3288, 3653,
)  # fmt: skip
_ARNS: Final = {
    "step_functions": r"arn:aws[a-z-]*:states:[a-z0-9-]+:\d{12}:stateMachine:[A-Za-z0-9_-]{1,80}",
    "lambda": r"arn:aws[a-z-]*:lambda:[a-z0-9-]+:\d{12}:function:[A-Za-z0-9_-]{1,64}",
}
_WAITING: Final = "|".join((*RESUME_KINDS, *_ARNS.values()))
_TOPIC: Final = r"arn:aws[a-z-]*:sns:[a-z0-9-]+:\d{12}:[A-Za-z0-9_-]{1,256}"


def _setting(default: Any, expected: str, kind: type, is_valid: Any = lambda value: True) -> Any:
    metadata = {"expected": expected, "kind": kind, "is_valid": is_valid}
    return field(default=default, metadata=metadata)


def _number(default: int | None, low: int, high: int, unit: str) -> Any:
    expected = f"a whole number from {low} to {high} ({unit})"
    return _setting(default, expected, int, lambda value: low <= value <= high)


def _choice(default: Any, *choices: object) -> Any:
    expected = "one of " + ", ".join(map(str, choices))
    return _setting(default, expected, type(default), lambda value: value in choices)


def flag(default: bool) -> Any:
    return _setting(default, "true or false", bool)


def text(default: str | None, pattern: str, expected: str) -> Any:
    return _setting(default, expected, str, lambda value: re.fullmatch(pattern, value))


def _is_key_name(name: str) -> bool:
    return name == name.strip() and 1 <= len(name.encode()) <= 255 and name not in RESERVED


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of one acker; the defaults suit a production stack.

    Attributes:
        table_name: Name of an existing table of this account and region; by default the acker
            creates one.
        partition_key: Name of the table's partition key.
        function_timeout_seconds: Timeout of the consumer. The queue's visibility timeout follows.
            No write starts in its last 19 seconds (of 10 seconds, in the last 6): they are for
            events, dead letters and the response.
        sweeper_timeout_seconds: Timeout of the sweeper.
        memory_mb: Memory of each function, at least 512: a batch of 6 MB takes 399. Lambda gives
            processor time in proportion.
        batch_size: Maximum number of messages in one invocation of the consumer. One write applies
            all messages of a chain in a batch, so large batches cost less.
        batch_window_seconds: Time for which Lambda gathers messages before it invokes the consumer.
            Batches of more than ten messages need at least one second.
        max_concurrency: Maximum number of concurrent invocations of the consumer; by default 5,
            which leaves room for the sweeper in an account of ten. Pollers replace it.
        min_pollers: Minimum number of provisioned pollers of the queue. They are paid by the hour,
            and invoke up to ten consumers each. By default there are none, or with `max_pollers`
            Lambda's two.
        max_pollers: Maximum number of provisioned pollers; by default Lambda's, 200.
        sweeper_reserved_concurrency: Concurrent executions that Lambda reserves for the sweeper. It
            leaves 100 unreserved, so an account needs more than that.
        max_receive_count: Attempts before SQS moves a message to the dead-letter queue: by default
            those of ten hours. Requests that are rejected go there at once.
        queue_retention_days: Time for which the queue keeps a message.
        dead_letter_retention_days: Time for which the dead-letter queue keeps a message. For failed
            messages it counts from the first send, so it must be longer than the queue's.
        resume: Who may wait for a chain's end: `none`; ARNs of state machines (tasks with a task
            token) and of durable functions (callbacks), separated by commas; or each of the account
            and region: `step_functions`, `lambda` or `all`. It gives the functions the permission;
            a request with another kind is rejected. See also `Acker.grant_resume`.
        default_timeout_seconds: Deadline of a chain whose `create` sets none.
        pending_timeout_seconds: Time for which a chain waits for its `create`; by default the
            retention of the queue, since the `create` can arrive until then.
        retention_days: Longest age of a message that is applied. A finished chain stays for twice
            as long, so that late or redriven messages do not start it again.
        deletion_protection: DynamoDB rejects deletion of the table.
        removal_policy: `retain` or `destroy`: what happens to the table, the queues and the logs
            when the stack is deleted.
        log_retention_days: Time for which the functions' logs stay.
        log_level: `DEBUG` or `INFO`, the lowest level that the functions log. A higher level would
            drop the metrics, which are log lines of level INFO.
        architecture: `arm64` or `x86_64`.
        tracing: X-Ray traces the invocations of the functions.
        alarm_topic_arn: SNS topic for alarms; without one, they only show in CloudWatch.
        failed_chains_threshold: Number of chains that may fail in five minutes without an alarm.
        queue_age_threshold_seconds: Age of a message above which the queue is behind; by default
            more than an attempt that is repeated once takes. SQS counts no message that fails for
            longer than two visibility timeouts: a higher value finds a slow consumer only.
        monitoring: `full` or `minimal`: all alarms, the functions' metrics and a dashboard; or a
            few alarms on metrics that AWS emits for nothing.
        notify_ok: Notify the topic when an alarm ends, too. CloudWatch then also notifies it once
            of each new alarm, whatever its state.
        service: Dimension of the metrics that tells ackers of one account and region apart. By
            default the stack's name, or in a stack of yours the construct's path.

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
    function_timeout_seconds: int = _number(60, 10, 900, "seconds")
    sweeper_timeout_seconds: int = _number(60, 10, 900, "seconds")
    memory_mb: int = _number(1024, 512, 10_240, "MB")
    batch_size: int = _number(1_000, 1, 10_000, "messages")
    batch_window_seconds: int = _number(1, 0, 300, "seconds")
    max_concurrency: int | None = _number(None, 2, 1_000, "concurrent invocations")
    min_pollers: int | None = _number(None, 2, 200, "pollers")
    max_pollers: int | None = _number(None, 2, 2_000, "pollers")
    sweeper_reserved_concurrency: int | None = _number(None, 1, 100, "concurrent executions")
    max_receive_count: int = _number(100, 1, 1_000, "receives")
    queue_retention_days: int = _number(4, 1, 13, "days")
    dead_letter_retention_days: int = _number(14, 2, 14, "days")
    resume: str = text(
        "none",
        rf"none|all|({_WAITING})(,({_WAITING}))*",
        f"none, all, or some of {', '.join(RESUME_KINDS)} and ARNs of state machines and functions "
        "of this account and region, separated by commas",
    )
    default_timeout_seconds: int = _number(_DAY, 1, _TEN_YEARS * _DAY, "seconds")
    pending_timeout_seconds: int | None = _number(None, 1, _TEN_YEARS * _DAY, "seconds")
    retention_days: int = _number(30, 1, _TEN_YEARS, "days")
    deletion_protection: bool = flag(True)
    removal_policy: str = _choice("retain", "retain", "destroy")
    log_retention_days: int = _choice(30, *_LOG_RETENTION_DAYS)
    log_level: str = _choice("INFO", "DEBUG", "INFO")
    architecture: str = _choice("arm64", "arm64", "x86_64")
    tracing: bool = flag(False)
    alarm_topic_arn: str | None = text(
        None, _TOPIC, "the ARN of an SNS topic, such as arn:aws:sns:eu-west-1:123456789012:alarms"
    )
    failed_chains_threshold: int = _number(0, 0, 1_000_000, "failed chains")
    queue_age_threshold_seconds: int | None = _number(None, 60, 1_209_600, "seconds")
    monitoring: str = _choice("full", "full", "minimal")
    notify_ok: bool = flag(False)
    service: str | None = text(
        None, r"[A-Za-z0-9_-]{1,200}", "1 to 200 letters, digits, hyphens and underscores"
    )

    def __post_init__(self) -> None:
        for setting in fields(self):
            value, check = getattr(self, setting.name), setting.metadata
            if value is None and setting.default is None:
                continue
            # isinstance would accept True as an int.
            if type(value) is not check["kind"] or not check["is_valid"](value):
                raise ArgumentError(f"setting {setting.name}", value, check["expected"])
        self._check_combinations()

    def _check_combinations(self) -> None:
        queue_days = self.queue_retention_days
        longest = queue_days + self.dead_letter_retention_days
        low, high = self.min_pollers, self.max_pollers
        rules = (
            ("batch_window_seconds", self.batch_size > 10 and self.batch_window_seconds == 0,
             f"1 to 300 seconds, since batch_size is {self.batch_size} and Lambda gathers more "
             "than 10 messages only within a window"),
            ("dead_letter_retention_days", self.dead_letter_retention_days <= queue_days,
             f"more than queue_retention_days ({queue_days}), since a message's age counts from "
             "when it was first sent"),
            ("retention_days", self.retention_days <= longest,
             f"more than {longest} days (queue_retention_days + dead_letter_retention_days): a "
             "finished chain has to outlive every message that may still come back"),
            ("removal_policy", self.deletion_protection and self.removal_policy == "destroy",
             "retain, or deletion_protection=false as well: a protected table cannot be destroyed"),
            ("max_concurrency", self.has_pollers and self.max_concurrency is not None,
             "none, since provisioned pollers replace it"),
            ("max_pollers", low is not None and high is not None and high < low,
             f"min_pollers ({low}) or more"),
        )  # fmt: skip
        for name, broken, expected in rules:
            if broken:
                raise ArgumentError(f"setting {name}", getattr(self, name), expected)

    @property
    def has_pollers(self) -> bool:
        """True with provisioned pollers, which replace `max_concurrency`."""
        return self.min_pollers is not None or self.max_pollers is not None

    @property
    def consumer_concurrency(self) -> int:
        """Maximum number of concurrent invocations of the consumer."""
        if self.has_pollers:
            return _PER_POLLER * (self.max_pollers or _MAX_POLLERS)
        return self.max_concurrency or _CONCURRENCY

    @property
    def visibility_timeout_seconds(self) -> int:
        """Visibility timeout of the queue: six times the function's timeout, plus the window.

        A message waits in the window after SQS has delivered it.
        """
        return _VISIBILITY_FACTOR * self.function_timeout_seconds + self.batch_window_seconds

    @property
    def resume_targets(self) -> dict[str, list[str]]:
        """The kinds of waiting executions, each with the ARNs of who waits; none for all."""
        targets: dict[str, list[str]] = {}
        for one in RESUME_KINDS if self.resume == "all" else self.resume.split(","):
            for kind, pattern in _ARNS.items():
                if one == kind or re.fullmatch(pattern, one):
                    targets.setdefault(kind, []).extend([] if one == kind else [one])
        return targets

    @property
    def retention_seconds(self) -> int:
        """Retention of a finished chain, in seconds."""
        return self.retention_days * _DAY

    @classmethod
    def from_context(cls, context: Mapping[str, object]) -> Self:
        """Read the settings from a CDK context.

        Args:
            context: Names to values: text (`-c name=value`) or JSON (cdk.json). Other programs'
                names are ignored.

        Raises:
            ArgumentError: A value is invalid, or a name looks like a misspelt setting.
        """
        settings = {setting.name: setting for setting in fields(cls)}
        for name in context:
            # Names with these signs are the CDK's own.
            if name in settings or any(sign in name for sign in ":@/"):
                continue
            close = difflib.get_close_matches(name.replace("-", "_").lower(), settings, 1, 0.8)
            if close:
                known_name = f"a known name: did you mean `{close[0]}`?"
                raise ArgumentError(f"setting {name}", context[name], known_name)
        return cls(
            **{
                name: _parse(context[name], setting.metadata["kind"], setting.default)
                for name, setting in settings.items()
                if name in context
            }
        )


def _parse(value: object, kind: type, default: object) -> Any:
    """Convert text to a setting's type; leave invalid values to the check in `Settings`."""
    if not isinstance(value, str):
        return value
    if kind is bool and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if kind is int and re.fullmatch(r"-?[0-9]{1,18}", value):
        return int(value)
    return None if value == "" and default is None else value
