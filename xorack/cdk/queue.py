"""The queue of requests and its dead-letter queue."""

from __future__ import annotations

from typing import Any, Final

from aws_cdk import Annotations, Duration, aws_kms, aws_sqs
from constructs import Construct

from xorack.cdk.settings import DEAD_LETTER_DAYS, QUEUE_DAYS, Settings, is_token
from xorack.cdk.table import removal_policy

# Defaults of SQS.
_VISIBILITY_SECONDS: Final = 30
_RETENTION_SECONDS: Final = 4 * 86_400
_MAX_BYTES: Final = 1_048_576
_FEW_ATTEMPTS: Final = 10
"""With fewer attempts, an outage of the table for an hour dead-letters messages."""


def create_queues(
    scope: Construct,
    settings: Settings,
    encryption_key: aws_kms.IKey | None,
    queue: aws_sqs.IQueue | None,
    dead_letters: aws_sqs.IQueue | None,
) -> tuple[aws_sqs.IQueue, aws_sqs.IQueue]:
    """Create the queues that the user does not pass, encrypted and only for TLS."""
    if queue is not None:
        dead_letters = _dead_letters_of(queue, dead_letters)
    encryption = aws_sqs.QueueEncryption
    common: dict[str, Any] = {
        "encryption": encryption.KMS if encryption_key else encryption.SQS_MANAGED,
        "encryption_master_key": encryption_key,
        "enforce_ssl": True,
        "removal_policy": removal_policy(settings),
    }
    days, attempts = Duration.days, settings.max_receive_count
    dead_letters = dead_letters or aws_sqs.Queue(
        scope, "DeadLetters", retention_period=days(DEAD_LETTER_DAYS), **common
    )
    queue = queue or aws_sqs.Queue(
        scope,
        "Queue",
        retention_period=days(QUEUE_DAYS),
        visibility_timeout=Duration.seconds(settings.visibility_timeout_seconds),
        dead_letter_queue=aws_sqs.DeadLetterQueue(queue=dead_letters, max_receive_count=attempts),
        # Otherwise the dead letters of other queues could become requests without a permission.
        redrive_allow_policy=aws_sqs.RedriveAllowPolicy(
            redrive_permission=aws_sqs.RedrivePermission.DENY_ALL
        ),
        **common,
    )
    _check(settings, queue, dead_letters)
    _warn(scope, queue)
    return queue, dead_letters


def _warn(scope: Construct, queue: aws_sqs.IQueue) -> None:
    """Warn of problematic attributes of a queue of this app."""
    resource: Any = queue.node.default_child
    if not isinstance(resource, aws_sqs.CfnQueue):
        return
    path, warnings = queue.node.path, Annotations.of(scope)
    if resource.redrive_policy is None:
        warnings.add_warning_v2(
            "xorack:no-dead-letter-queue",
            f"{path} has no dead-letter queue, so a message that always fails is lost without an "
            "alarm when its retention ends: add one",
        )
    named: Any = getattr(queue, "dead_letter_queue", None)
    if named is not None and named.max_receive_count < _FEW_ATTEMPTS:
        warnings.add_warning_v2(
            "xorack:few-attempts",
            f"{path} dead-letters a message after {named.max_receive_count} attempts, so an outage "
            "of minutes is enough. The acker's own queue makes 100 attempts in ten hours",
        )
    size = _size_limit(queue)
    if size < _MAX_BYTES:
        warnings.add_warning_v2(
            "xorack:small-messages",
            f"{path} accepts messages of {size} bytes, but senders make messages of up to "
            f"{_MAX_BYTES}, which SQS would refuse",
        )


def _size_limit(queue: aws_sqs.IQueue) -> int:
    """Return the most bytes of a message, or SQS's limit if it is unknown."""
    resource: Any = queue.node.default_child
    size = getattr(resource, "maximum_message_size", None)
    return int(size) if isinstance(size, (int, float)) and size > 0 else _MAX_BYTES


def pending_timeout_seconds(queue: aws_sqs.IQueue) -> int:
    """Return how long a chain waits for its create: as long as the queue keeps messages."""
    kept = _seconds(queue, "message_retention_period", _RETENTION_SECONDS)
    return kept or DEAD_LETTER_DAYS * 86_400  # the longest retention of any queue


def visibility_timeout_seconds(settings: Settings, queue: aws_sqs.IQueue) -> int:
    """Return the queue's visibility timeout, or the least valid timeout for an imported queue."""
    known = _seconds(queue, "visibility_timeout", _VISIBILITY_SECONDS)
    return known or settings.visibility_timeout_seconds


def _dead_letters_of(
    queue: aws_sqs.IQueue, supplied: aws_sqs.IQueue | None
) -> aws_sqs.IQueue | None:
    named = getattr(queue, "dead_letter_queue", None)  # None for an imported queue
    if named is None or supplied is None:
        return supplied if named is None else named.queue
    # Alarms and redriving work with a single dead-letter queue.
    if supplied.queue_arn != named.queue.queue_arn:
        raise ValueError(
            f"dead_letters: got {supplied.node.path}, but {queue.node.path} uses "
            f"{named.queue.node.path}: expected the same queue, or None"
        )
    return supplied


def _check(settings: Settings, queue: aws_sqs.IQueue, dead_letters: aws_sqs.IQueue) -> None:
    """Reject queues that cannot work. The attributes of imported queues are unknown."""
    needed = settings.visibility_timeout_seconds
    visibility = visibility_timeout_seconds(settings, queue)
    kept = _seconds(queue, "message_retention_period", _RETENTION_SECONDS) or 0
    dead_kept = _seconds(dead_letters, "message_retention_period", _RETENTION_SECONDS) or 0
    path, dead_path = queue.node.path, dead_letters.node.path
    for is_wrong, problem in (
        (queue.fifo, f"queue: {path} is a FIFO queue, expected a standard one"),
        (dead_letters.fifo, f"dead_letters: {dead_path} is a FIFO queue, expected a standard one"),
        (
            dead_letters.queue_arn == queue.queue_arn,
            f"dead_letters: {dead_path} is the queue itself, expected another queue, because "
            "rejected requests would come back for ever",
        ),
        (
            _size_limit(dead_letters) < _size_limit(queue),
            f"dead_letters: {dead_path} accepts {_size_limit(dead_letters)} bytes, expected at "
            f"least {_size_limit(queue)} as {path}, because SQS would drop larger messages",
        ),
        (
            visibility < needed,
            f"queue: the visibility timeout of {path} is {visibility} seconds, expected at least "
            f"{needed}, six times the function's timeout and the batch window",
        ),
        (
            0 < dead_kept <= kept,
            f"dead_letters: {dead_path} keeps messages for {dead_kept} seconds, expected more than "
            f"the queue ({kept}), because a message's age counts from when it was first sent",
        ),
        (
            not is_token(settings.retention_seconds)
            and kept + dead_kept >= settings.retention_seconds,
            f"queue: messages can stay in the queues for {kept + dead_kept} seconds, expected less "
            f"than retention_days, {settings.retention_days} days",
        ),
    ):
        if is_wrong:
            raise ValueError(problem)


def _seconds(queue: aws_sqs.IQueue, attribute: str, default: int) -> int | None:
    """Return an attribute in seconds; None if it is unknown before the deployment."""
    resource: Any = queue.node.default_child
    if not isinstance(resource, aws_sqs.CfnQueue):
        return None
    value = getattr(resource, attribute)
    if value is None:
        return default
    # A negative number is a token, whose value is known only at the deployment.
    return int(value) if isinstance(value, (int, float)) and value >= 0 else None
