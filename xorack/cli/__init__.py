"""The command line: ``xorack``, or ``python -m xorack``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line with these arguments, or with the arguments of the process.

    Returns:
        The exit status: 0; 1 after a failure; 2 for invalid arguments; 3 after a time-out of
        ``wait``; 130 when interrupted.
    """
    missing = [name for name in ("click", "jinja2", "rich") if find_spec(name) is None]
    if missing:
        extra = "local" if "local" in (arguments or sys.argv[1:]) else "cli"
        needed = f"needs {', '.join(missing)}: install xorack with the extra {extra}"
        print(f"error: the command line {needed}", file=sys.stderr)
        return 1
    try:
        from xorack.cli.commands import run
    except KeyboardInterrupt:  # importing the commands takes a second
        return 130
    return run(arguments)
