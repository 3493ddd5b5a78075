"""What a schedule asks of the acker: chains as correct senders make them, and senders' mistakes.

A chain's requests are drawn from a seed of their own, so that leaving chains or requests out (see
`shrink`) does not change the others.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random

from xorack.core.request import Request
from xorack.core.stamp import plain, traced

DAY = 86_400


def canonical(raw: object) -> str:
    """A raw request as text that tells it from others."""
    return json.dumps(raw, sort_keys=True, separators=(",", ":"))


@dataclass(eq=False)
class Asked:
    """One thing that is asked.

    Attributes:
        tag: The chain; empty for what names none.
        name: For people: the request's id, with a sign for mistakes.
        request: The request; None for what is none.
        raw: What is sent for it: a raw request, or a whole body that is no message.
        starts: Units that it starts.
        finishes: Units that it finishes.
        wrong: The field that is wrong, for what must be refused whatever comes.
        after: Milliseconds from the schedule's start until it is sent.
        direct: Whether it goes by the direct API.
    """

    tag: str
    name: str
    request: Request | None
    raw: object
    starts: tuple[int, ...] = ()
    finishes: tuple[int, ...] = ()
    wrong: str = ""
    after: int = 0
    direct: bool = False
    text: str = field(init=False)

    def __post_init__(self) -> None:
        self.text = self.raw if isinstance(self.raw, str) else canonical(self.raw)


@dataclass
class ChainPlan:
    """One chain: its requests.

    Attributes:
        foreign: Whether xor-ack-dynamodb creates it.
        copies: Requests that come again while one is still held back.
    """

    tag: str
    length: int
    asked: list[Asked]
    foreign: bool = False
    copies: list[Asked] = field(default_factory=list)


class _Maker:
    """Makes one chain's requests."""

    def __init__(self, seed: str, number: int, span: int, spilling: bool) -> None:
        self.random = random = Random(f"{seed}/chain/{number}")
        self.number = number
        self.tag = f"chain-{number}"
        self.span = span
        self.spilling = spilling
        make = random.choices((plain, traced, self._opaque), (45, 12, 43))[0]
        self._opaques: dict[int, bytes] = {}
        self.make = make
        self.asked: list[Asked] = []

    def _opaque(self, unit: int) -> bytes:
        if unit not in self._opaques:
            self._opaques[unit] = self.random.randbytes(16)
        return self._opaques[unit]

    def stamp(self, units: tuple[int, ...]) -> bytes:
        mixed = 0
        for unit in units:
            stamp = self.make(unit)
            mixed ^= int.from_bytes(stamp, "little")
        return mixed.to_bytes(len(stamp), "little")

    def add(self, request: Request, starts=(), finishes=(), *, name="") -> Asked:
        after = int(self.random.random() * self.span)
        raw = request.to_json()
        one = Asked(request.tag, name or request.id, request, raw, starts, finishes, after=after)
        self.asked.append(one)
        return one

    def plan(self) -> ChainPlan:
        random = self.random
        route = random.choices(("queue", "direct", "mixed", "foreign"), (86, 6, 5, 3))[0]
        if self.spilling:
            # The first by the queue alone, so that late copies of all of it can come; the next one
            # by the direct API, whose calls look up nothing but what they tried themselves.
            if self.number == 0:
                route, size = "queue", random.choice((66, 75, 100, 140))
            else:
                route, size = random.choice(("mixed", "direct")), random.choice((100, 140, 260))
        else:
            size = random.choices((1, 2, 4, 8, 14), (10, 20, 35, 25, 10))[0]
        counted = route not in ("foreign",) and random.random() < 0.85
        units = [random.getrandbits(64) | 1 for _ in range(size)]
        children: dict[int, list[int]] = {unit: [] for unit in units}
        for position, unit in enumerate(units[1:], 1):
            children[units[random.randrange(max(0, position - 6), position)]].append(unit)

        self._create(units[0], counted)
        pending: list[int] = []
        number = 0
        for unit in units:
            pending.append(unit)
            # A sender may fold requests of its own; a parent and its child vanish together then.
            if random.random() < 0.15 and len(units) > 2 and unit != units[-1]:
                continue
            self._step(f"r{number}", pending, children, counted)
            number += 1
            pending = []
        if random.random() < 0.12:  # work that is never done
            for _ in range(random.choice((1, 1, 2))):
                if len(self.asked) > 2:
                    self.asked.pop(random.randrange(1, len(self.asked)))
        elif random.random() < 0.03 and route == "queue":
            self.asked.pop(0)  # never created
        if route == "queue":
            self._trouble()
        self._route(route)
        made = ChainPlan(self.tag, len(self.make(1)), self.asked, route == "foreign")
        if self.spilling:
            queued = [one for one in self.asked if not one.direct]
            made.copies = random.sample(queued, len(queued) // 2)
            random.choice(self.asked).after = self.span + 60_000
        return made

    def _create(self, root: int, counted: bool) -> None:
        random = self.random
        timeout = random.choices(
            (None, 30 * DAY, random.uniform(0.5, 1.5) * self.span / 1000), (70, 20, 10)
        )[0]
        idle = random.uniform(0.3, 1) * self.span / 1000 if random.random() < 0.06 else None
        detail = {"from": self.tag, "n": random.randrange(9)} if random.random() < 0.3 else None
        self.add(
            Request.create(
                self.tag, "create", self.stamp((root,)), started=int(counted),
                timeout=timeout, idle_timeout=idle, detail=detail,
            ),
            (root,),
        )  # fmt: skip

    def _step(self, id: str, units: list[int], children: dict, counted: bool) -> None:
        starts = tuple(child for unit in units for child in children[unit])
        stamp = self.stamp((*units, *starts))
        if not any(stamp):
            return
        self.add(
            Request.stamp_(
                self.tag, id, stamp,
                started=len(starts) * counted, finished=len(units) * counted,
            ),
            starts,
            tuple(units),
        )  # fmt: skip

    def _trouble(self) -> None:
        """Fails, moved deadlines, and senders' mistakes."""
        random = self.random
        tag = self.tag
        if random.random() < 0.06:
            self.add(Request.fail(tag, "fail", "it broke" if random.random() < 0.7 else None))
        if random.random() < 0.08:
            seconds = random.choice((random.uniform(5, 120), 40 * DAY))
            self.add(Request.extend(tag, "extend", seconds))
        if random.random() < 0.04:
            victim = random.choice(self.asked).request
            assert victim is not None
            phantom = (random.getrandbits(64) | 1,)
            other = Request.stamp_(tag, victim.id, self.stamp(phantom), finished=1)
            self.add(other, (), phantom, name=f"{victim.id}?")
        if random.random() < 0.03:
            wrong = Request.stamp_(tag, "length", random.randbytes(5) + b"\1", finished=1)
            self.add(wrong, (), (random.getrandbits(64) | 1,), name="length?")
        if random.random() < 0.04:
            phantom = (random.getrandbits(64) | 1,)
            self.add(
                Request.create(tag, "create-2", self.stamp(phantom)), phantom, (), name="create-2?"
            )
        if random.random() < 0.03:
            raw, wrong = random.choice(
                (
                    ({"op": "stamp", "tag": tag, "id": "x", "stamp": "AAAA"}, "stamp"),
                    ({"op": "stamp", "tag": tag, "id": "x", "stamp": "?"}, "stamp"),
                    ({"op": "fail", "tag": tag, "id": "x", "why": "no"}, "why"),
                    ({"op": "stamp", "tag": 7, "id": f"x-{tag}", "stamp": "AQ=="}, "tag"),
                    ({"op": "extend", "tag": tag, "id": "x", "timeout": -1}, "timeout"),
                    (f"not JSON, from {tag}", "body"),
                )
            )
            after = int(random.random() * self.span)
            self.asked.append(Asked("", f"{tag}/invalid", None, raw, wrong=wrong, after=after))

    def _route(self, route: str) -> None:
        random = self.random
        if route == "queue":
            return
        for one in self.asked:
            one.direct = route == "direct" or one.name == "create" or random.random() < 0.5
            if one.request is not None and one.name == "create":
                one.after = min(one.after, 2000)
            if one.direct and one.request is not None and one.request.op == "create":
                # The direct API's create knows neither timeouts nor details.
                old = one.request
                one.request = Request.create(old.tag, old.id, old.stamp or b"", started=old.started)


@lru_cache(maxsize=64)
def plan(seed: str, number: int, span: int, spilling: bool) -> ChainPlan:
    """What a schedule asks of one of its chains.

    Kept, as shrinking runs schedules of the same few chains hundreds of times: not to be changed.

    Args:
        seed: The schedule's.
        number: The chain's.
        span: Milliseconds over which requests are sent.
        spilling: Whether it has so many requests that marks are moved out.
    """
    return _Maker(seed, number, span, spilling).plan()
