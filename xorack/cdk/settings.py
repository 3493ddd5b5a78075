"""Every setting of the stack, typed and checked, in one place.

A setting is given with `cdk deploy -c name=value`, in the `context` of cdk.json, or as an argument
of `Settings` to whoever uses the `Acker` construct in a stack of their own. One that makes no sense
stops the synthesis with a line that names it.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

VISIBILITY_FACTOR: Final = 6
"""Lambda asks for a visibility timeout of six times the function's, so that a batch which it had
to retry while throttled is not handed out a second time meanwhile."""

DEFAULT_SERVICE: Final = "xorack"
_SECONDS_A_DAY: Final = 86_400

# Lowest and highest value, and what is being counted.
_RANGES: Final[Mapping[str, tuple[int, int, str]]] = {
    "function_timeout_seconds": (1, 900, "seconds"),
    "sweeper_timeout_seconds": (10, 900, "seconds"),
    "memory_mb": (128, 10_240, "MB"),
    "batch_size": (1, 10_000, "messages"),
    "batch_window_seconds": (0, 300, "seconds"),
    "max_concurrency": (2, 1_000, "concurrent invocations"),
    "max_receive_count": (1, 1_000, "receives"),
    "queue_retention_days": (1, 13, "days"),
    "dead_letter_retention_days": (2, 14, "days"),
    "default_timeout_seconds": (1, 10 * 365 * _SECONDS_A_DAY, "seconds"),
    "retention_days": (1, 10 * 365, "days"),
    "failed_chains_threshold": (0, 1_000_000, "failed chains"),
}

# The retentions that CloudWatch Logs knows.
_LOG_RETENTION_DAYS: Final = (
    1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545,
    731, 1096, 1827, 2192, 2557, 2922, 3288, 3653,
)  # fmt: skip

_CHOICES: Final[Mapping[str, tuple[object, ...]]] = {
    "architecture": ("arm64", "x86_64"),
    "removal_policy": ("retain", "destroy"),
    "log_level": ("DEBUG", "INFO"),
    "log_retention_days": _LOG_RETENTION_DAYS,
}

RESERVED_ATTRIBUTES: Final = frozenset(
    {
        "first_seen_at", "created_at", "deadline", "detail", "due_at", "due_shard", "ended_at", "expires_at",
        "extended", "failing", "finished", "idle_timeout", "mark", "marks", "event_pending", "reason", "version",
        "spilled", "stamp", "started", "status", "last_stamp_at",
    }
)  # fmt: skip
"""The attributes that a chain's item already has: no name for its key."""

_TOPIC = re.compile(r"arn:aws[a-z-]*:sns:[a-z0-9-]+:\d{12}:[A-Za-z0-9_-]{1,256}")
_SERVICE = re.compile(r"[A-Za-z0-9_-]{1,200}")
_VERSION = re.compile(r"[3-9]\.\d{1,3}\.\d{1,3}")


class SettingError(ValueError):
    """A setting that makes no sense.

    Attributes:
        name: The setting's name.
        value: What it was given.
        expected: What it takes, in words.
    """

    def __init__(self, name: str, value: object, expected: str) -> None:
        self.name = name
        self.value = value
        self.expected = expected
        super().__init__(f"setting `{name}` is {value!r}: expected {expected}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one acker, each with the default of a production stack.

    Attributes:
        partition_key: Name of the table's partition key.
        function_timeout_seconds: The consumer's timeout. The queue's visibility timeout follows.
        sweeper_timeout_seconds: The sweeper's timeout.
        memory_mb: Memory of each function, which is also its share of a processor.
        batch_size: Most messages that one invocation of the consumer gets. Messages of a chain
            that come in one batch are one write together: large batches cost less.
        batch_window_seconds: How long Lambda gathers messages before it invokes the consumer.
            Lambda wants at least one second for batches of more than ten.
        max_concurrency: Most invocations of the consumer at a time.
        max_receive_count: Tries before a message becomes a dead letter.
        queue_retention_days: How long the queue keeps a message.
        dead_letter_retention_days: How long the dead-letter queue does. A dead letter's age counts
            from when it was first sent, so this has to be longer than the queue's.
        default_timeout_seconds: Deadline of a chain whose `create` names none.
        retention_days: How long a finished chain stays, so that a message that comes late, or back
            from the dead letters, cannot start it anew.
        deletion_protection: Whether DynamoDB refuses to delete the table.
        removal_policy: `retain` or `destroy`: what becomes of the table, the queues and the logs
            when the stack goes.
        log_retention_days: How long the functions' logs stay.
        log_level: `DEBUG` or `INFO`: the least important level that the functions log. Nothing
            quieter, since metrics are lines of the log too, and Lambda takes them for INFO.
        architecture: `arm64` or `x86_64`.
        tracing: Whether X-Ray traces the functions.
        powertools_version: Version of AWS's public layer of Powertools for Python.
        alarm_topic_arn: SNS topic that is told of alarms; without one they only show.
        failed_chains_threshold: How many chains may fail within five minutes without an alarm.
        dashboard: Whether there is a dashboard, with the function that shows unfinished chains.
        service: By which name CloudWatch tells this acker's metrics from another's of the same
            account and region. By default the stack's name, or in a stack of yours the construct's.

    Raises:
        SettingError: A value is of the wrong type, out of range, or contradicts another one.
    """

    partition_key: str = "tag"
    function_timeout_seconds: int = 60
    sweeper_timeout_seconds: int = 60
    memory_mb: int = 1024
    batch_size: int = 1_000
    batch_window_seconds: int = 1
    max_concurrency: int = 10
    max_receive_count: int = 5
    queue_retention_days: int = 4
    dead_letter_retention_days: int = 14
    default_timeout_seconds: int = _SECONDS_A_DAY
    retention_days: int = 30
    deletion_protection: bool = True
    removal_policy: str = "retain"
    log_retention_days: int = 30
    log_level: str = "INFO"
    architecture: str = "arm64"
    tracing: bool = False
    powertools_version: str = "3.37.0"
    alarm_topic_arn: str | None = None
    failed_chains_threshold: int = 0
    dashboard: bool = True
    service: str | None = None

    def __post_init__(self) -> None:
        for name, kind in _kinds().items():
            value = getattr(self, name)
            # A bool is an int to isinstance, and True no batch size.
            if type(value) is not kind and not (value is None and _optional(name)):
                raise SettingError(name, value, _expectation(name, kind))
        for name, (low, high, _) in _RANGES.items():
            if not low <= getattr(self, name) <= high:
                raise SettingError(name, getattr(self, name), _expectation(name, int))
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise SettingError(name, getattr(self, name), _expectation(name, str))
        self._check_text()
        self._check_together()

    def _check_text(self) -> None:
        key = self.partition_key
        if not 1 <= len(key.encode()) <= 255 or key.strip() != key:
            raise SettingError("partition_key", key, "1 to 255 bytes without blanks around them")
        if key in RESERVED_ATTRIBUTES:
            raise SettingError(
                "partition_key", key, "a name that a chain's item does not use otherwise"
            )
        if not _VERSION.fullmatch(self.powertools_version):
            raise SettingError(
                "powertools_version",
                self.powertools_version,
                "a released version from 3.0.0 on, such as 3.37.0",
            )
        if self.service is not None and not _SERVICE.fullmatch(self.service):
            raise SettingError(
                "service", self.service, "1 to 200 letters, digits, hyphens and underscores"
            )
        topic = self.alarm_topic_arn
        if topic is not None and not _TOPIC.fullmatch(topic):
            raise SettingError(
                "alarm_topic_arn",
                topic,
                "the ARN of an SNS topic, such as arn:aws:sns:eu-west-1:123456789012:alarms",
            )

    def _check_together(self) -> None:
        if self.batch_size > 10 and self.batch_window_seconds == 0:
            raise SettingError(
                "batch_window_seconds",
                0,
                f"1 to 300 seconds, since batch_size is {self.batch_size} and Lambda gathers "
                "more than 10 messages only within a window",
            )
        if self.dead_letter_retention_days <= self.queue_retention_days:
            raise SettingError(
                "dead_letter_retention_days",
                self.dead_letter_retention_days,
                f"more than queue_retention_days ({self.queue_retention_days}), since a dead "
                "letter's age counts from when it was first sent",
            )
        longest = self.queue_retention_days + self.dead_letter_retention_days
        if self.retention_days <= longest:
            raise SettingError(
                "retention_days",
                self.retention_days,
                f"more than {longest} days (queue_retention_days + dead_letter_retention_days): a "
                "finished chain has to outlive every message that may still come back",
            )
        if self.deletion_protection and self.removal_policy == "destroy":
            raise SettingError(
                "removal_policy",
                self.removal_policy,
                "retain, or deletion_protection=false as well: a protected table cannot be "
                "destroyed",
            )

    @property
    def service_name(self) -> str:
        """The value of the metrics' dimension `service`."""
        return self.service or DEFAULT_SERVICE

    @property
    def visibility_timeout_seconds(self) -> int:
        """How long a received message stays hidden: six times the function's timeout, in seconds.

        The window comes on top, since a message waits in it after it was received.
        """
        return VISIBILITY_FACTOR * self.function_timeout_seconds + self.batch_window_seconds

    @property
    def retention_seconds(self) -> int:
        """How long a finished chain stays, in seconds."""
        return self.retention_days * _SECONDS_A_DAY

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The settings' names, in order."""
        return tuple(field.name for field in dataclasses.fields(cls))

    @classmethod
    def from_context(cls, context: Mapping[str, object]) -> Settings:
        """The settings that a CDK context gives.

        Args:
            context: Names to values, as text (`-c name=value`) or as JSON has them (cdk.json).
                What is not a setting is left to whoever it belongs to, unless it looks like a
                setting misspelt.

        Returns:
            The settings, with defaults for what the context does not give.

        Raises:
            SettingError: A value makes no sense, or a name is nearly a setting's.
        """
        check_names(context, cls.names())
        kinds = _kinds()
        return cls(
            **{name: _read(name, context[name], kinds[name]) for name in kinds if name in context}
        )


def check_names(context: Mapping[str, object], known: tuple[str, ...]) -> None:
    """Refuse a misspelt setting, which would otherwise be ignored in silence.

    Args:
        context: A CDK context. Names with `:`, `@` or `/` in them are the CDK's own.
        known: The settings' names.

    Raises:
        SettingError: A name is close to a setting's but none.
    """
    for name in context:
        if name in known or any(sign in name for sign in ":@/"):
            continue
        near = difflib.get_close_matches(name.replace("-", "_").lower(), known, 1, 0.8)
        if near:
            raise SettingError(name, context[name], f"a known setting: did you mean `{near[0]}`?")


def _kinds() -> dict[str, type]:
    """Each setting's type, `None` left aside."""
    kinds: dict[str, type] = {}
    for name, hint in typing.get_type_hints(Settings).items():
        union = isinstance(hint, types.UnionType)
        kinds[name] = (
            next(k for k in typing.get_args(hint) if k is not type(None)) if union else hint
        )
    return kinds


def _optional(name: str) -> bool:
    return isinstance(typing.get_type_hints(Settings)[name], types.UnionType)


def _expectation(name: str, kind: type) -> str:
    """What a setting takes, in words."""
    if name in _RANGES:
        low, high, unit = _RANGES[name]
        return f"a whole number from {low} to {high} ({unit})"
    if name in _CHOICES:
        return "one of " + ", ".join(map(str, _CHOICES[name]))
    return "true or false" if kind is bool else "text"


def _read(name: str, value: object, kind: type) -> Any:
    """A context value as its setting's type; text is read, anything else left for the check."""
    if not isinstance(value, str):
        return value
    if kind is bool and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if kind is int and re.fullmatch(r"-?[0-9]{1,18}", value):
        return int(value)
    if kind is str and value == "" and _optional(name):
        return None
    return value
