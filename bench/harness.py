"""Code that the benchmarks share: alternating variants, tables, and a server that accepts calls."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import floor, log10
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

from tests.support.http_server import Handler, Server
from xorack.local.isolation import isolated

ROOT = Path(__file__).resolve().parent.parent
T = TypeVar("T")


@dataclass
class Table:
    """A table of the report in Markdown."""

    head: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)

    def add(self, *cells: str | float | None) -> None:
        """Append a row.

        Floats have three significant digits, integers have all digits, None is empty.
        """
        self.rows.append([_cell(cell) for cell in cells])

    def markdown(self) -> str:
        """Format the table.

        The first column is left-aligned, and the other columns are right-aligned.
        """
        rule = ["---", *["---:"] * (len(self.head) - 1)]
        lines = ["| " + " | ".join(row) + " |" for row in (self.head, rule, *self.rows)]
        return "\n".join(lines) + "\n"


def _cell(value: str | float | None) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else figure(value)


def interleaved(variants: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """Call each variant once a round, in changing order; return the figures by name."""
    names, figures = list(variants), {name: list[T]() for name in variants}
    for number in range(rounds):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            figures[name].append(variants[name]())
    return figures


def figure(value: float) -> str:
    """Format a number with three significant digits, two below 1, and no decimals above 1,000."""
    if value == 0 or abs(value) >= 1000:
        return f"{value:,.0f}"
    exponent = floor(log10(abs(value)))
    return f"{value:.{2 - exponent if exponent >= 0 else min(1 - exponent, 6)}f}"


class _Acceptor(Handler):
    """Accepts every write, event and message, and answers every read with an empty result."""

    def do_POST(self) -> None:
        entries = [{"EventId": "e"} for _ in json.loads(self.body()).get("Entries", [])]
        response = {"Responses": {}, "UnprocessedKeys": {}, "FailedEntryCount": 0}
        data = json.dumps({**response, "Entries": entries}).encode()
        self.respond(200, data, {"Content-Type": "application/x-amz-json-1.0"})


def _serve(port: Any) -> None:
    server = Server(_Acceptor)
    port.send(server.endpoint_url)
    server.serve_forever()


def with_bytecode(folder: str) -> dict[str, str]:
    """Return an environment in which Python keeps its bytecode in a folder."""
    ours = ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    return kept | {"PYTHONPYCACHEPREFIX": folder}


@contextmanager
def accepting_server() -> Iterator[str]:
    """Run a server of AWS's responses in another process, whose CPU does not count."""
    spawn = get_context("spawn")  # a spawned process shares no state with this process
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_serve, args=[theirs], daemon=True)
    process.start()
    try:
        with patch.dict(os.environ, isolated(os.environ), clear=True):
            yield ours.recv()
    finally:
        process.terminate()
        process.join()
