"""The command line: ``xorack``, or ``python -m xorack.cli``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: The arguments; the process's by default.

    Returns:
        The exit status: 0; 1 for trouble; 2 for a mistake in the arguments; 130 when interrupted.
    """
    try:
        import click  # noqa: F401
        import rich  # noqa: F401
    except ImportError as error:
        print(f"error: {error}: pip install 'xorack[cli]'", file=sys.stderr)
        return 1
    from xorack.cli.commands import run

    return run(arguments)
