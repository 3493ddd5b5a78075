"""The command line: ``xorack``, or ``python -m xorack.cli``."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line with these arguments, by default the process's.

    Returns:
        The exit status: 0; 1 for a failure; 2 for invalid arguments; 3 for a time-out of ``wait``;
        130 when interrupted.
    """
    try:
        import click  # noqa: F401
        import rich  # noqa: F401
    except ImportError as error:
        print(f"error: {error}: install xorack with the extra cli", file=sys.stderr)
        return 1
    try:
        from xorack.cli.commands import run
    except KeyboardInterrupt:  # the imports take a second
        return 130
    return run(arguments)
