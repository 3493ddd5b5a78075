"""The workload: chains as correct senders send them, and senders' mistakes.

Each chain has a random generator of its own: leaving chains or requests out (see `shrink`) does not
change the others.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random
from typing import Any

from tests.simulation.options import DAY_SECONDS, Options, pick
from xorack.core.request import Request
from xorack.core.stamp import plain, traced


def canonical(raw: object) -> str:
    """Return a raw request as text that identifies it."""
    return json.dumps(raw, sort_keys=True, separators=(",", ":"))


@dataclass(eq=False)
class Submission:
    """A request, or an invalid one, as a sender submits it.

    Attributes:
        tag: The chain; empty if invalid.
        name: For people: the request's id; a mistake ends with "?".
        request: The request; None if invalid.
        raw: The raw request, or a whole invalid body.
        units: Units that it starts or finishes; one that it starts and finishes is not there.
        invalid_field: The field that the rejection must name.
        after: Milliseconds from the schedule's start until it is sent.
        direct: True if it is sent through the direct API.
    """

    tag: str
    name: str
    request: Request | None
    raw: Any
    units: frozenset[int] = frozenset()
    invalid_field: str = ""
    after: int = 0
    direct: bool = False
    text: str = field(init=False)

    def __post_init__(self) -> None:
        self.text = self.raw if isinstance(self.raw, str) else canonical(self.raw)


@dataclass(frozen=True)
class ChainWorkload:
    """The requests of one chain.

    Attributes:
        foreign: True if xor-ack-dynamodb creates it.
        copies: Requests that are sent again while another one is still held back.
    """

    tag: str
    stamp_length: int
    submissions: list[Submission]
    foreign: bool
    copies: list[Submission]


class _ChainBuilder:
    def __init__(self, seed: int, number: int) -> None:
        self.options = Options(seed)
        self.random = Random(f"{seed}/chain/{number}")
        self.number = number
        self.tag = f"chain-{number}"
        opaque = lru_cache(maxsize=None)(lambda unit: self.random.randbytes(16))
        stamps = {"plain": plain, "traced": traced, "opaque": opaque}
        self.stamp_of = stamps[pick(self.random, self.options.stamps)]
        self.submissions: list[Submission] = []

    def happens(self, probability: float) -> bool:
        return self.random.random() < probability

    def new_unit(self) -> int:
        return self.random.getrandbits(64) | 1

    def stamp(self, units: Iterable[int]) -> bytes:
        length = len(self.stamp_of(1))
        mixed = 0
        for unit in units:
            mixed ^= int.from_bytes(self.stamp_of(unit), "little")
        return mixed.to_bytes(length, "little")

    def add(self, request: Request, units: Iterable[int] = (), name: str = "") -> None:
        one = Submission(request.tag, name or request.id, request, request.to_json())
        one.units, one.after = frozenset(units), int(self.random.random() * self.options.span)
        self.submissions.append(one)

    def build(self) -> ChainWorkload:
        random, options = self.random, self.options
        route, size = pick(random, options.routes), pick(random, options.units)
        spilling = self.number < options.spilling_chains
        if spilling and self.number == 0:
            # Through the queue alone, so that late copies of all requests can arrive.
            route, size = "queue", random.choice((66, 75, 100, 140))
        elif spilling:
            # The direct API looks up only the marks of its own attempts.
            route, size = random.choice(("mixed", "direct")), random.choice((100, 140, 260))
        self._add_tree(size, counted=route != "foreign" and self.happens(options.unit_counts))
        if self.happens(options.missing_work):
            for _ in range(random.choice((1, 1, 2))):
                if len(self.submissions) > 2:
                    self.submissions.pop(random.randrange(1, len(self.submissions)))
        elif route == "queue" and self.happens(options.missing_create):
            self.submissions.pop(0)
        if route == "queue":
            self._add_irregular_requests()
            self._add_invalid_request()
        else:
            self._send_directly(everything=route == "direct")
        copies = []
        if spilling:
            queued = [one for one in self.submissions if not one.direct]
            copies = random.sample(queued, len(queued) // 2)
            random.choice(self.submissions).after = options.span + 60_000
        length = len(self.stamp_of(1))
        return ChainWorkload(self.tag, length, self.submissions, route == "foreign", copies)

    def _add_tree(self, size: int, counted: bool) -> None:
        """Add the create and the stamps of a random tree of units."""
        random = self.random
        units = [self.new_unit() for _ in range(size)]
        children: dict[int, list[int]] = {unit: [] for unit in units}
        for position, unit in enumerate(units[1:], 1):
            children[units[random.randrange(max(0, position - 6), position)]].append(unit)
        self._add_create(units[0], counted)
        number = 0
        finished: list[int] = []
        for unit in units:
            finished.append(unit)
            # A sender may merge several requests of its own into one.
            if unit != units[-1] and size > 2 and self.happens(self.options.merged_units):
                continue
            started = [child for unit in finished for child in children[unit]]
            changed = {*started} ^ {*finished}
            counts = {"started": len(started) * counted, "finished": len(finished) * counted}
            request = Request.stamp_(self.tag, f"r{number}", self.stamp(changed), **counts)
            self.add(request, changed)
            number += 1
            finished = []

    def _add_create(self, root: int, counted: bool) -> None:
        random, options = self.random, self.options
        span = options.span / 1000
        limits: dict[str, Any] = {"timeout": pick(random, options.timeouts)}
        stamp = self.stamp((root,))
        if limits["timeout"] == "short":
            limits["timeout"] = random.uniform(0.5, 1.5) * span
        if self.happens(options.idle_timeout):
            limits["idle_timeout"] = random.uniform(0.3, 1) * span
        if self.happens(options.detail):
            limits["detail"] = {"from": self.tag, "n": random.randrange(9)}
        request = Request.create(self.tag, "create", stamp, started=int(counted), **limits)
        self.add(request, (root,))

    def _add_irregular_requests(self) -> None:
        """Add fails, extends and valid requests that contradict others."""
        random, options, tag = self.random, self.options, self.tag
        unit = (self.new_unit(),)
        stamp = self.stamp(unit)
        used_id = random.choice(self.submissions).name
        reason = pick(random, (("it broke", 70), (None, 30)))
        seconds = random.choice((random.uniform(5, 120), 40 * DAY_SECONDS))
        other_length = random.randbytes(5) + b"\1"
        with_other_length = Request.stamp_(tag, "length", other_length, finished=1)
        for probability, name, request in (
            (options.fail, "fail", Request.fail(tag, "fail", reason)),
            (options.extend, "extend", Request.extend(tag, "extend", seconds)),
            (options.reused_id, f"{used_id}?", Request.stamp_(tag, used_id, stamp, finished=1)),
            (options.wrong_length, "length?", with_other_length),
            (options.second_create, "create-2?", Request.create(tag, "create-2", stamp)),
        ):
            if self.happens(probability):
                self.add(request, unit if request.stamp else (), name)

    def _add_invalid_request(self) -> None:
        if not self.happens(self.options.invalid_request):
            return
        tag = self.tag
        raw, invalid_field = self.random.choice(
            (
                ({"op": "stamp", "tag": tag, "id": "x", "stamp": "AAAA"}, "stamp"),
                ({"op": "stamp", "tag": tag, "id": "x", "stamp": "?"}, "stamp"),
                ({"op": "fail", "tag": tag, "id": "x", "why": "no"}, "why"),
                ({"op": "stamp", "tag": 7, "id": f"x-{tag}", "stamp": "AQ=="}, "tag"),
                ({"op": "extend", "tag": tag, "id": "x", "timeout": -1}, "timeout"),
                (f"not JSON, from {tag}", "body"),
            )
        )
        after = int(self.random.random() * self.options.span)
        self.submissions.append(
            Submission("", f"{tag}/invalid", None, raw, frozenset(), invalid_field, after)
        )

    def _send_directly(self, everything: bool) -> None:
        """Send the create, and some or all stamps, through the direct API."""
        for one in self.submissions:
            one.direct = everything or one.name == "create" or self.happens(0.5)
            if one.name == "create" and one.request is not None:
                one.after = min(one.after, 2000)
                # The direct API's create has no timeouts and no detail.
                old = one.request
                one.request = Request.create(old.tag, old.id, old.stamp or b"", started=old.started)


@lru_cache(maxsize=64)
def chain_workload(seed: int, number: int) -> ChainWorkload:
    """Return the workload of a chain, cached for `shrink`: do not change it."""
    return _ChainBuilder(seed, number).build()
