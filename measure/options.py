"""The options of a load, and the plan of each of its chains: functions of the seed alone."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from math import ceil
from typing import Any, get_args

from xorack.client.token import StampKind
from xorack.core.errors import ArgumentError, shown
from xorack.core.hashing import unit_id
from xorack.core.stamp import PLAIN_LENGTH, TRACED_CELLS, check_cells, traced_length

TAG = re.compile(r'"tag":"([^"]+)"')
"""The tags in a message's text."""
MALFORMED = {
    "not JSON": "body: ",
    "unknown operation": "op: 'measure', expected create, ",
    "zero stamp": "expected at least one non-zero byte",
}
"""Malformed requests: what is wrong, and a part of the reason in the dead-letter queue."""
REJECTED = {
    "second create": "already exists",
    "changed create": "already exists",
}
"""Requests that their chain rejects: likewise."""
_MOST_LOST = 5
_REQUEST_BYTES = 160
"""Bytes of a request's JSON without its stamp, at least."""

Spread = tuple[tuple[int, float], ...]
"""Numbers of units, each with its weight."""


def option(default: Any, help_text: str, low: float = 0, high: float = 1) -> Any:
    """Declare an option of the command; a number from `low` to `high`, by default a probability."""
    return field(default=default, metadata={"help": help_text, "range": (low, high)})


_SPREAD: Spread = ((1, 50.0), (100, 40.0), (1000, 10.0))


@dataclass(frozen=True, kw_only=True)
class Options:
    """A load and its faults. Equal options make equal chains and messages, besides the run's name.

    The faults are probabilities. The fields' help is that of the command's options.
    """

    seed: int
    chains: int = option(100, "Chains.", 1, 1_000_000)
    units: Spread = option(_SPREAD, "Units of a chain, by share.")  # noqa: RUF009
    stamps: StampKind = option("traced", "traced or plain")  # noqa: RUF009
    cells: int = option(TRACED_CELLS, "Size of traced stamps: 16, 64, 256 or 1024.", 16, 1024)
    fold: int = option(1, "Units that a request finishes.", 1, 1_000_000)
    open_chains: int = option(20, "Chains that are sent in turn.", 1, 100_000)
    message_bytes: int = option(250_000, "Largest body of a message.", 1024, 1 << 20)
    senders: int = option(4, "Threads that send; each has one call in flight.", 1, 64)
    rate: float = option(1e6, "Most messages a second.", 0.1, 1e6)
    timeout: float = option(3600.0, "Seconds until a chain fails; must outlast the run.", 60, 1e6)
    duplicate: float = option(0.0, "Messages that are sent twice.")
    late_duplicate: float = option(0.0, "Messages sent again after all chains have ended.")
    delay: float = option(0.0, "Messages that SQS delays.")
    max_delay: int = option(5, "Longest delay, in seconds.", 1, 900)
    reorder: float = option(0.0, "Chains that send their create last.")
    lose: float = option(0.0, "Chains of which one to five units never finish.")
    malformed: float = option(0.0, "Chains with a malformed request.")
    reject: float = option(0.0, "Chains with a request that they reject.")
    patience: float = option(300.0, "Seconds without progress after which to give up.", 1, 86_400)
    settle: float = option(5.0, "Seconds to wait for events that must not come.", 0, 3600)

    def __post_init__(self) -> None:
        """Reject stamps that do not exist."""
        if self.stamps not in get_args(StampKind):
            raise ArgumentError("stamps", self.stamps, "traced or plain")
        if check_cells(self.cells) != TRACED_CELLS and self.stamps == "plain":
            raise ArgumentError("cells", self.cells, "traced stamps: plain ones have no cells")

    @property
    def stamp_bytes(self) -> int:
        """Bytes of a stamp."""
        return PLAIN_LENGTH if self.stamps == "plain" else traced_length(self.cells)

    @property
    def request_bytes(self) -> int:
        """Bytes of a request in a message, about."""
        return _REQUEST_BYTES + ceil(self.stamp_bytes / 3) * 4

    def plan(self, run: str, number: int) -> Plan:
        """Plan a chain of a run by its number."""
        draw = random.Random(f"{self.seed}/chain/{number}")
        sizes, weights = zip(*self.units, strict=True)
        units, lost, bad = draw.choices(sizes, weights)[0], 0, None
        if draw.random() < self.lose:
            lost = draw.randint(1, min(_MOST_LOST, max(1, units - 1)))
        if draw.random() < self.malformed:
            bad = draw.choice(list(MALFORMED))
        elif draw.random() < self.reject:
            bad = draw.choice(list(REJECTED))
        return Plan(self, f"{run}/{number}", number, units, lost, draw.random() < self.reorder, bad)

    def plans(self, run: str) -> Iterator[Plan]:
        """Plan the chains of a run."""
        return (self.plan(run, number) for number in range(self.chains))

    def describe(self) -> str:
        """Return the options that replay the load, as the command takes them."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        values["units"] = format_units(self.units)
        given = [f.name for f in fields(self) if getattr(self, f.name) != f.default]
        return " ".join(f"--{name.replace('_', '-')} {values[name]}" for name in given)


@dataclass(frozen=True)
class Plan:
    """What a chain sends, and so its expected end.

    Attributes:
        tag: The run's name and the chain's number.
        units: Units, the root included.
        lost: Units that never finish: the last ones.
        reverse: The create goes last.
        bad: The request of `MALFORMED` or `REJECTED` that it sends besides.
    """

    options: Options
    tag: str
    number: int
    units: int
    lost: int
    reverse: bool
    bad: str | None

    @property
    def status(self) -> str:
        """The expected status."""
        return "failed" if self.lost else "acked"

    @property
    def finished(self) -> int:
        """Units that finish."""
        return self.units - self.lost

    @property
    def requests(self) -> int:
        """Requests, without a bad one."""
        root = 1 if self.finished else 0
        return 1 + root + ceil(max(0, self.finished - root) / self.options.fold)

    @property
    def reason(self) -> str | None:
        """A part of the reason that its dead-lettered message has; None for none."""
        return None if self.bad is None else (MALFORMED | REJECTED)[self.bad]

    def unit(self, position: int) -> int:
        """Return a unit's id; the root's position is 0."""
        return unit_id("measure", self.options.seed, self.number, position)

    def outstanding(self) -> list[str]:
        """Return the lost units as an event names them."""
        return sorted(f"{self.unit(n):016x}" for n in range(self.finished, self.units))


def parse_units(text: str) -> Spread:
    """Read a spread, such as ``100`` or ``1:50%,100:40%,10000:10%``.

    Raises:
        ValueError: The text is not a spread.
    """
    matches = [re.fullmatch(r"(?a)([1-9]\d{0,6})(?::(\d{1,6}(?:\.\d{1,6})?)%?)?", part.strip())
               for part in text.split(",")]  # fmt: skip
    sizes = {int(match[1]): float(match[2] or 100) for match in matches if match}
    if len(sizes) < len(matches) or not any(sizes.values()):
        expected = "expected units:share,... each once, such as 100 or 1:50%,100:40%,10000:10%"
        raise ValueError(f"{shown(text)}: {expected}")
    return tuple((size, share) for size, share in sizes.items() if share)


def format_units(units: Spread) -> str:
    """Write a spread as `parse_units` reads it."""
    return ",".join(f"{size}:{share:.12g}%" for size, share in units)
