"""The command line: ``xorack``, or ``python -m xorack.cli``."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line with these arguments, by default the process's.

    Returns:
        The exit status: 0; 1 for a failure; 2 for invalid arguments; 3 for a time-out of ``wait``;
        130 when interrupted. Of ``diff``: 0; 1 if the inputs differ; 2 for a failure.
    """
    try:
        import click  # noqa: F401
        import rich  # noqa: F401
    except ImportError as error:
        print(f"error: {error}: pip install 'xorack[cli]'", file=sys.stderr)
        return failure_status(arguments)
    try:
        from xorack.cli.commands import run
    except KeyboardInterrupt:  # the imports take a second
        return 130
    return run(arguments)


def failure_status(arguments: Sequence[str] | None) -> int:
    """Return the exit status of a failure: not 1 for ``diff``, which says so that inputs differ."""
    words = sys.argv[1:] if arguments is None else arguments
    return 2 if [word for word in words if not word.startswith("-")][:1] == ["diff"] else 1
