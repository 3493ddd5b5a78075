"""The exit status of a command that fails. It needs no other package."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def failure_status(arguments: Sequence[str] | None) -> int:
    """Return the exit status of a failure: not 1 for ``diff``, which says so that inputs differ."""
    words = sys.argv[1:] if arguments is None else arguments
    return 2 if [word for word in words if not word.startswith("-")][:1] == ["diff"] else 1
