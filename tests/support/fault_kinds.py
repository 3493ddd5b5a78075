"""The kinds of faults that the simulation injects."""

from typing import NamedTuple

CALLBACK_SERVICES = {
    "table": ("update_item", "get_item", "batch_get_item", "query"),
    "queues": (
        *("send_message_batch", "receive_message", "delete_message_batch"),
        *("change_message_visibility_batch", "get_queue_attributes"),
    ),
    "bus": ("put_events",),
    "tasks": ("send_task_success", "send_task_failure"),
}
PUBLISHING = (*CALLBACK_SERVICES["bus"], *CALLBACK_SERVICES["tasks"])
"""Calls that report the end of a chain: they fail no message."""
CALLS = tuple(call for calls in CALLBACK_SERVICES.values() for call in calls)
"""Calls to AWS."""


class Fault(NamedTuple):
    """A kind of fault: its effect, the operations that it affects and its relative rate."""

    description: str
    operations: tuple[str, ...] = CALLS
    weight: float = 1.0


FAULTS: dict[str, Fault] = {
    "dropped": Fault("the call does not arrive: connect time-out"),
    "lost": Fault("the call takes effect and its response is lost: read time-out"),
    "unanswered": Fault("the call has no effect and is never answered: read time-out"),
    "slow": Fault("the call takes 1 to 4 seconds"),
    "late": Fault("read time-out, and the call takes effect up to a minute later"),
    "twice": Fault("the call takes effect twice and returns the second response"),
    "throttled": Fault("the call is throttled"),
    "5xx": Fault("an internal error; the call has no effect"),
    "5xx applied": Fault("an internal error; the call takes effect"),
    "denied": Fault("an error that is not retryable", weight=0.3),
    "stalled": Fault("the machine pauses for up to 90 seconds before the call", weight=0.4),
    "crash before": Fault("the machine crashes before the call", weight=0.3),
    "crash after": Fault("the machine crashes after the call took effect", weight=0.4),
    "conflict": Fault("a transaction holds the item: conflict error", ("update_item",)),
    "no item": Fault("the response to a failed condition has no item", ("update_item",)),
    "unprocessed": Fault("a batch call leaves some keys out", ("batch_get_item",), 3),
    "entries failed": Fault(
        "a 200 response has failed entries", ("put_events", "send_message_batch")
    ),
    "redelivered": Fault("a message is delivered while it is in flight", ("receive",), 3),
    "delete lost": Fault("a processed message stays in the queue", ("delete",), 3),
    "timed out": Fault("an invocation that stalled runs out of time", ("invocation",)),
    "slow service": Fault("each call to a service takes 1 to 4 seconds, for a while", ()),
    "dead service": Fault("no call to a service is answered, for a while", ()),
    "throttled service": Fault("each call to a service is throttled, for a while", ()),
    "future": Fault("newer code holds a chain in a newer format, for a while", ()),
    # The last, and without weight: it changes no rate of the others.
    "refused": Fault("Step Functions or the bus refuses a report until faults end", (), weight=0),
}
OUTAGES = ("slow service", "dead service", "throttled service")
CRASHES = ("crash before", "crash after")
ERRORS = {
    "throttled service": ("ProvisionedThroughputExceededException", 400),
    "throttled": ("ProvisionedThroughputExceededException", 400),
    "conflict": ("TransactionConflictException", 400),
    "denied": ("AccessDeniedException", 400),
    "5xx": ("InternalServerError", 500),
    "5xx applied": ("InternalServerError", 500),
}
"""Faults that return an error: its code and HTTP status."""
