"""Candidates for the names of outstanding units: the lines of a file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from xorack.client.names import Candidate
from xorack.core.errors import ArgumentError


def candidates_in(lines: Iterable[str]) -> Iterator[Candidate]:
    """Yield the candidates of a file's lines, for `xorack.names_of`.

    A line is a name; one that is a whole number is also tried as an int. A JSON list is a path: the
    name at each level below the root, where a list within it is a name of several parts.

    Raises:
        ArgumentError: A line that begins with ``[`` is not such a list.
    """
    for number, line in enumerate(lines, 1):
        name = line.rstrip("\r\n")
        if name.startswith("["):
            yield _path(name, number)
        elif name:
            yield name
            if name.removeprefix("-").isdecimal() and name.isascii() and len(name) < 20:
                yield int(name)


def _path(text: str, line: int) -> Candidate:
    try:
        path: Any = json.loads(text)
    except (ValueError, RecursionError):
        path = None
    steps = [tuple(step) if isinstance(step, list) else step for step in path or ()]
    parts = [p for step in steps for p in (step if isinstance(step, tuple) else (step,))]
    if not parts or not all(type(part) in (str, int) for part in parts):
        raise ArgumentError(f"line {line}", text, "a name, or a JSON list of names")
    return steps
