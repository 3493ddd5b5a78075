"""Know when everything that came out of a file (document, order, batch) has been processed.

This is XOR acking as in Apache Storm, on AWS: durable, serverless, exactly once. The names below
are loaded at their first use, so importing the package is cheap.

The public API is what `xorack`, `xorack.spark`, `xorack.cdk` and `xorack.errors` export, and
`xorack.testing.MemoryTracker`. All other modules are private and may change with each release.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xorack import errors as errors
from xorack._lazy import lazy_names

if TYPE_CHECKING:
    from xorack.aws.retry import RetryPolicy as RetryPolicy
    from xorack.aws.sqs import send as send
    from xorack.client.event_tag import event_tag as event_tag
    from xorack.client.fan_in import fan_in as fan_in
    from xorack.client.fan_in import step_of as step_of
    from xorack.client.fan_in import token_of as token_of
    from xorack.client.fan_out import fan_out as fan_out
    from xorack.client.names import names_of as names_of
    from xorack.client.token import Token as Token
    from xorack.client.tracker import Step as Step
    from xorack.client.tracker import Tracker as Tracker
    from xorack.compat.dynamodb_acker import DynamoDBAcker as DynamoDBAcker
    from xorack.compat.memory_acker import Acker as Acker
    from xorack.core.hashing import unit_id as unit_id
    from xorack.core.message import SendReport as SendReport
    from xorack.core.peeling import Outstanding as Outstanding
    from xorack.core.peeling import peel as peel
    from xorack.core.request import Request as Request
    from xorack.core.stamp import Stamp as Stamp
    from xorack.core.stamp import plain as plain
    from xorack.core.stamp import traced as traced
    from xorack.core.stamp import xor as xor

__version__ = "0.1.0"

__getattr__, __dir__, _NAMES = lazy_names(
    __name__,
    {
        "aws.retry": "RetryPolicy",
        "aws.sqs": "send",
        "client.event_tag": "event_tag",
        "client.fan_in": "fan_in step_of token_of",
        "client.fan_out": "fan_out",
        "client.names": "names_of",
        "client.token": "Token",
        "client.tracker": "Step Tracker",
        "compat.dynamodb_acker": "DynamoDBAcker",
        "compat.memory_acker": "Acker",
        "core.hashing": "unit_id",
        "core.message": "SendReport",
        "core.peeling": "Outstanding peel",
        "core.request": "Request",
        "core.stamp": "Stamp plain traced xor",
    },
)
__all__ = [*_NAMES, "errors"]  # noqa: PLE0604
