"""The work: chains of random trees, as raw requests. It uses nothing of the library.

A chain's requests are sent in two phases. After the first, each chain lacks a request without
which it cannot end, so all requests of the first phase meet an unfinished chain: the rejected ones
must be in the dead-letter queue. Chains in which that is not so have `early` set.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

Raw = dict[str, Any]
KINDS = (
    "complete", "missing", "large", "failed", "mixed", "other length", "second create",
    "reused id", "direct", "reused create", "tracker", "malformed", "early fail", "orphan",
    "complete", "unequal counts", "direct missing", "tracker missing",
)  # fmt: skip
LONG = 3600


@dataclass
class Chain:
    """A chain.

    Attributes:
        tag: Begins with its kind.
        end: `acked`, `failed`, `timed out`, `never created` or `open`; that of the requests as
            they are meant, with the first of those that exclude each other.
        first: Requests of the first phase, for the queue.
        last: Requests of the second phase, for the queue.
        direct: Requests for `DynamoDBAcker`, in the first phase and in the second.
        early: True if it may end while requests of the first phase are on their way.
        malformed: Invalid requests of the first phase.
        tree: tracker: number of units; 0 for other chains.
    """

    tag: str
    end: str
    first: list[Raw] = field(default_factory=list)
    last: list[Raw] = field(default_factory=list)
    direct: tuple[list[Raw], list[Raw]] = field(default_factory=lambda: ([], []))
    early: bool = False
    malformed: list[Raw] = field(default_factory=list)
    tree: int = 0


@dataclass
class Plan:
    """All chains, and message bodies that are no JSON."""

    seed: int
    chains: list[Chain]
    bodies: list[str]


def make_plan(seed: int, count: int, *, orphans: bool = True) -> Plan:
    """Make a plan: equal arguments give an equal plan in every process.

    Args:
        seed: Determines the plan.
        count: Number of chains; 18 have each kind once.
        orphans: False for a plan without chains that are never created: they take long to end.
    """
    chance = random.Random(f"plan {seed}")
    kinds = [kind for kind in KINDS if orphans or kind != "orphan"]
    named = [(kind, f"{kind}/{seed}/{n}") for n, kind in zip(range(count), cycle(kinds))]
    chains = [_chain(chance, tag, kind) for kind, tag in named]
    return Plan(seed, chains, ["{not JSON", '{"version":1}', '{"version":9,"requests":[]}'])


def canonical(raw: object) -> str:
    """Return JSON text that is equal for equal requests."""
    return json.dumps(raw, sort_keys=True)


def encoded(stamp: int, length: int) -> str:
    return base64.b64encode(stamp.to_bytes(length, "little")).decode()


def request(op: str, tag: str, id: str, **fields: Any) -> Raw:
    """Make a request without fields of value 0."""
    return {"op": op, "tag": tag, "id": id, **{n: value for n, value in fields.items() if value}}


def _chain(chance: random.Random, tag: str, kind: str) -> Chain:
    if kind.startswith("tracker"):
        end = "timed out" if "missing" in kind else "acked"
        return Chain(tag, end, tree=chance.randint(5, 40))
    length = chance.choice((1, 8, 16, 64, 648, 2568))
    units = chance.randint(70, 160) if kind == "large" else chance.randint(3, 40)
    create, *stamps = _tree(chance, tag, units, max(length, 8))
    chance.shuffle(stamps)
    # The last ones are sent in the second phase.
    closers = chance.randint(1, min(3, len(stamps)))
    chain = Chain(tag, "acked", [create, *stamps[closers:]], stamps[:closers])
    _VARIANTS.get(kind, lambda *_: None)(chance, chain, max(length, 8))
    return chain


def _tree(chance: random.Random, tag: str, units: int, length: int) -> list[Raw]:
    """Make the requests of a tree of units: its create, and a stamp for each unit's end."""
    counted = chance.random() < 0.8
    stamps = [chance.getrandbits(8 * length) | 1 for _ in range(units)]
    children: list[list[int]] = [[] for _ in range(units)]
    for unit in range(1, units):
        children[chance.randrange(unit)].append(unit)
    create = {"stamp": encoded(stamps[0], length), "started": int(counted), "timeout": LONG}
    requests = [request("create", tag, "create", **create, detail={"tag": tag})]
    for unit in range(units):
        total = stamps[unit]
        for child in children[unit]:
            total ^= stamps[child]
        counts = {"started": len(children[unit]), "finished": 1} if counted else {}
        stamp = encoded(total, length)
        requests.append(request("stamp", tag, f"unit {unit}", stamp=stamp, **counts))
    return requests


def _missing(chance: random.Random, chain: Chain, length: int) -> None:
    chain.last.clear()
    chain.end = "timed out"


def _failed(chance: random.Random, chain: Chain, length: int) -> None:
    chain.last[:] = [request("fail", chain.tag, "fail", reason="it broke")]
    chain.end = "failed"


def _early_fail(chance: random.Random, chain: Chain, length: int) -> None:
    chain.first.append(request("fail", chain.tag, "fail", reason="it broke early"))
    chain.end, chain.early = "failed", True


def _orphan(chance: random.Random, chain: Chain, length: int) -> None:
    chain.first.pop(0)
    chain.end, chain.early = "never created", True


def _other_length(chance: random.Random, chain: Chain, length: int) -> None:
    stamp = encoded(chance.getrandbits(24) | 1, 3)
    chain.first.append(request("stamp", chain.tag, "other length", stamp=stamp, finished=1))


def _second_create(chance: random.Random, chain: Chain, length: int) -> None:
    chain.first.append({**chain.first[0], "id": "second create"})


def _reused_id(chance: random.Random, chain: Chain, length: int) -> None:
    used = chance.choice(chain.first[1:] or chain.first)
    chain.first.append({**used, "stamp": encoded(chance.getrandbits(8 * length) | 1, length)})


def _reused_create(chance: random.Random, chain: Chain, length: int) -> None:
    create = chain.first[0]
    other = chance.choice(({"detail": {"tag": "another"}}, {"timeout": LONG + 1}))
    chain.first.append({**create, **other})


def _malformed(chance: random.Random, chain: Chain, length: int) -> None:
    tag, stamp = chain.tag, encoded(1, length)
    chain.malformed = [
        request("stamp", tag, "zero", stamp=encoded(0, length)),
        request("stamp", tag, "base64", stamp="***"),
        request("stamp", tag, "field", stamp=stamp, colour="red"),
        request("stamp", tag, "count", stamp=stamp, finished=-1),
        request("stamp", tag, "no stamp"),
        request("explode", tag, "op"),
        request("stamp", tag, "i" * 200, stamp=stamp),
    ]


def _unequal_counts(chance: random.Random, chain: Chain, length: int) -> None:
    chain.last[0] = {**chain.last[0], "finished": chain.last[0].get("finished", 0) + 1}
    chain.end = "timed out"


def _direct(chance: random.Random, chain: Chain, length: int) -> None:
    chain.first[0].pop("timeout")
    chain.first[0].pop("detail")
    chain.direct = (chain.first, chain.last)
    chain.first, chain.last = [], []


def _direct_missing(chance: random.Random, chain: Chain, length: int) -> None:
    _direct(chance, chain, length)
    chain.direct[1].clear()
    chain.end = "open"


def _mixed(chance: random.Random, chain: Chain, length: int) -> None:
    """Send some stamps by the queue and the others directly."""
    create, *stamps = chain.first
    chain.direct = (stamps[::2], chain.last[::2])
    chain.first, chain.last = [create, *stamps[1::2]], chain.last[1::2]


_VARIANTS: dict[str, Callable[[random.Random, Chain, int], None]] = {
    "missing": _missing,
    "failed": _failed,
    "early fail": _early_fail,
    "orphan": _orphan,
    "other length": _other_length,
    "second create": _second_create,
    "reused id": _reused_id,
    "reused create": _reused_create,
    "malformed": _malformed,
    "unequal counts": _unequal_counts,
    "direct": _direct,
    "direct missing": _direct_missing,
    "mixed": _mixed,
}
