"""The errors that xorack raises: one tree, split by whose fault it is.

Those of Spark jobs and of programs on this machine are loaded when they are first used: what AWS
runs does not have them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xorack._lazy import lazy_names
from xorack.core import errors as core
from xorack.core.errors import *  # noqa: F403

if TYPE_CHECKING:
    from xorack.local.errors import LocalError, NotRunningError
    from xorack.spark.errors import ColumnsError, OutputDiffersError

__getattr__, __dir__, _ = lazy_names(
    __name__,
    {
        "local.errors": "LocalError NotRunningError",
        "spark.errors": "ColumnsError OutputDiffersError",
    },
)
__all__ = [  # noqa: PLE0604
    *core.__all__,
    "ColumnsError",
    "LocalError",
    "NotRunningError",
    "OutputDiffersError",
]
