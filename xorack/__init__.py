"""Know when everything that came out of a file (document, order, batch) has been processed.

XOR acking, as Apache Storm does it, for AWS: durable, serverless, exactly once. The names below
are loaded when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xorack import errors as errors
    from xorack.dynamodb import DynamoDBAcker as DynamoDBAcker
    from xorack.hashing import unit_id as unit_id
    from xorack.memory import Acker as Acker
    from xorack.stamps import Outstanding as Outstanding
    from xorack.stamps import Stamp as Stamp
    from xorack.stamps import peel as peel
    from xorack.stamps import plain as plain
    from xorack.stamps import traced as traced
    from xorack.stamps import xor as xor
    from xorack.track import Token as Token
    from xorack.track import Tracker as Tracker

__version__ = "0.1.0"

_HOMES = {
    "Acker": "xorack.memory",
    "DynamoDBAcker": "xorack.dynamodb",
    "Outstanding": "xorack.stamps",
    "Stamp": "xorack.stamps",
    "Token": "xorack.track",
    "Tracker": "xorack.track",
    "peel": "xorack.stamps",
    "plain": "xorack.stamps",
    "traced": "xorack.stamps",
    "unit_id": "xorack.hashing",
    "xor": "xorack.stamps",
}

__all__ = [*_HOMES, "errors"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name == "errors":
        return importlib.import_module("xorack.errors")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
