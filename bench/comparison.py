"""The table of docs/comparison.md: dollars to know the end of a million units, by tool.

    python -m bench.comparison     prints the page's table

The work itself, its functions and its queue, is in no row: each tool needs it.
"""

from __future__ import annotations

from collections.abc import Callable

from bench.capacity import MILLION, PRICES, estimate
from bench.harness import Table

TRANSITIONS = 25.0
"""Dollars for a million state transitions of Step Functions: 0.025 for a thousand."""
EXPRESS_REQUESTS, EXPRESS_GB_SECONDS = 1.00, 16.67
"""Dollars for a million Express executions, and for a million GB-seconds of them."""
UNIT_SECONDS, EXPRESS_GB = 0.2, 1 / 16  # of work a unit; memory is billed in steps of 64 MB
CHAINS = (1_000, 10)
"""Units of a chain, a column each."""


def xorack(units: int, **sender: float) -> float:
    """Compute dollars of xorack's own services, without the acker's fixed price."""
    return sum(estimate(MILLION, units_per_chain=units, **sender)[1].values())


def standard_map(units: int, batch: int) -> float:
    """Compute dollars of a Distributed Map a chain, whose Standard children have one task."""
    children = MILLION / min(units, batch)
    return (2 * children + MILLION / units) * TRANSITIONS / MILLION


def express_map(units: int, batch: int) -> float:
    """Compute dollars of a Distributed Map a chain, whose children are Express."""
    children = MILLION / min(units, batch)
    transitions = (children + MILLION / units) * TRANSITIONS
    seconds = MILLION * UNIT_SECONDS * EXPRESS_GB * EXPRESS_GB_SECONDS
    return (transitions + children * EXPRESS_REQUESTS + seconds) / MILLION


def writes(write_units: float) -> Callable[[int], float]:
    """Return the dollars of so many DynamoDB write units for each unit of work."""
    return lambda _: write_units * PRICES["write units"]


ROWS: dict[str, Callable[[int], float]] = {
    "xorack, `fan_in`: 10 units a message": lambda units: xorack(units, requests_per_message=10),
    "xorack, a message for each unit": lambda units: xorack(units, messages_per_call=1),
    "xorack, a worker that folds 100 units": lambda units: xorack(
        units, units_per_request=min(100, units)
    ),
    "xorack, Spark: a request for each chain": lambda units: xorack(
        units, units_per_request=units, requests_per_message=200
    ),
    "Distributed Map, Standard, an item a child": lambda units: standard_map(units, 1),
    "Distributed Map, Standard, 100 items a child": lambda units: standard_map(units, 100),
    "Distributed Map, Express, an item a child": lambda units: express_map(units, 1),
    "Distributed Map, Express, 100 items a child": lambda units: express_map(units, 100),
    "DynamoDB counter, `ADD -1` (miscounts)": writes(1),
    "DynamoDB counter and a marker, one transaction": writes(4),  # two items, each twice
    "DynamoDB, an item a unit, deleted at its end": writes(2),
}


def table() -> str:
    """Format the table of docs/comparison.md."""
    out = Table(["dollars for a million units", *(f"chains of {units:,}" for units in CHAINS)])
    for name, dollars in ROWS.items():
        out.add(name, *(f"{dollars(units):.2g}" for units in CHAINS))
    return out.markdown()


if __name__ == "__main__":
    print(table())
