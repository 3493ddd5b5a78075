"""The workload: chains as correct senders send them, and senders' mistakes.

Each chain has a random generator of its own: another number of chains does not change the others.
"""

import json
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from random import Random
from typing import Any

from tests.simulation.options import DAY_SECONDS, PENDING_TIMEOUT, Options, pick
from xorack.core.chain import Parent
from xorack.core.checks import MAX_COUNT
from xorack.core.request import Request
from xorack.core.stamp import plain, traced, xor


def canonical(raw: object) -> str:
    """Return a raw request as text that identifies it."""
    return json.dumps(raw, sort_keys=True, separators=(",", ":"))


@dataclass(eq=False)
class Submission:
    """A request, or an invalid one, as a sender submits it. Times are milliseconds.

    Attributes:
        tag: The chain; empty if invalid.
        name: For people: the request's id; a mistake ends with "?".
        request: The request; None if invalid. `other` has ids instead of a stamp.
        attempts: The create as retried tasks send it: with other tokens.
        units: Units that it starts or finishes, and not both; the children if it is a step.
        finishes: Units that a step finishes, unless another step did.
        started_work, finished_work: Names of the messages that a step publishes, and of those it
            took.
        invalid: The raw request or body that is invalid; the rejection names `invalid_field`.
        after: The time from the run's start until it is sent, through the API if `direct`.
        has_id: True if the caller of the direct API passes the request's id.
        run: Number of the run: each but the first uses the tag again.
        copies, repeats: Times when it is sent again: before, and after the chain's end.
    """

    tag: str
    name: str
    request: Request | None
    units: frozenset[int] = frozenset()
    invalid: Any = None
    invalid_field: str = ""
    after: int = 0
    direct: bool = False
    has_id: bool = False
    run: int = 0
    copies: tuple[int, ...] = ()
    repeats: tuple[int, ...] = ()
    other: Request | None = None
    attempts: tuple[Request, ...] = ()
    finishes: frozenset[int] = frozenset()
    started_work: frozenset[str] = frozenset()
    finished_work: frozenset[str] = frozenset()

    @property
    def forms(self) -> list[Request]:
        return [self.request, *([self.other] if self.other else ()), *self.attempts]

    def sent(self, random: Random) -> Request:
        """Return the request in one of its forms, as a sender sends it."""
        return random.choice(self.forms) if len(self.forms) > 1 else self.request

    @property
    def raw(self) -> Any:
        return self.request.to_json() if self.request else self.invalid

    @cached_property
    def texts(self) -> list[str]:
        """Texts that identify the request in all its forms."""
        return [self.text, *(canonical(one.to_json()) for one in self.forms[1:])]

    @property
    def created_late(self) -> bool:
        """True for a create that may find that the chain has ended without it."""
        late = self.after > PENDING_TIMEOUT - DAY_SECONDS * 1000
        return late and self.request is not None and self.request.op == "create"

    @cached_property
    def text(self) -> str:
        """Text that identifies the request."""
        return self.raw if isinstance(self.raw, str) else canonical(self.raw)


@dataclass(eq=False)
class End(Submission):
    """The finish that a parent gets when a chain ends. The acker sends it, and no sender does.

    Attributes:
        created_at: When the create of the child was sent.
    """

    created_at: int = 0

    def is_older_than(self, milliseconds: int, now: int) -> bool:
        return now - self.created_at > milliseconds


@dataclass(frozen=True)
class ChainWorkload:
    """The requests of one chain.

    Attributes:
        patient: True if the tag is used again only when no message of the run before is in flight.
    """

    tag: str
    submissions: list[Submission]
    patient: bool = True

    def run(self, number: int) -> list[Submission]:
        """Return the submissions of a run; -1 for the last."""
        last = max((one.run for one in self.submissions), default=0)
        return [one for one in self.submissions if one.run == (last if number < 0 else number)]


class _ChainBuilder:
    def __init__(self, seed: int, number: int, options: Options) -> None:
        self.options = options
        self.random = Random(f"{seed}/chain/{number}")
        self.seed, self.number = seed, number
        self.tag = f"chain-{number}"
        opaque = lru_cache(maxsize=None)(lambda unit: self.random.randbytes(16))
        large = partial(traced, cells=64)
        stamps = {"plain": plain, "traced": traced, "large": large, "opaque": opaque}
        kind = pick(self.random, self.options.stamps)
        self.stamp_of = stamps[kind]
        self.cells = {"plain": 0, "traced": 16, "large": 64}.get(kind)
        self.notes = Random(f"{seed}/notes/{number}")
        self.retries = Random(f"{seed}/retries/{number}")
        self.tolerance = Random(f"{seed}/tolerance/{number}")
        self.submissions: list[Submission] = []

    def happens(self, probability: float) -> bool:
        return self.random.random() < probability

    def new_unit(self) -> int:
        return self.random.getrandbits(64) | 1

    def stamp(self, units: Iterable[int]) -> bytes:
        length = len(self.stamp_of(1))
        return xor(bytes(length), bytes(length), *map(self.stamp_of, units))

    def add(self, request: Request, units: Iterable[int] = (), name: str = "", **ids: Any) -> None:
        """Add a request. With `ids`, the units that it counts, it has a second form."""
        one = Submission(request.tag, name or request.id, request)
        one.units, one.after = frozenset(units), int(self.random.random() * self.options.span)
        if ids and self.cells is not None:
            sums = ("stamp", "started", "finished")
            fields = {n: value for n, value in vars(request).items() if n not in sums}
            one.other = Request(**fields, cells=self.cells, **ids)
        self.submissions.append(one)

    def build(self) -> ChainWorkload:
        random, options = self.random, self.options
        reused = options.rounds > 1 and self.happens(options.reused_tag)
        routes = options.reused_routes if reused else options.routes
        route, size = pick(random, routes), pick(random, options.units)
        spilling = self.number < options.spilling_chains
        months = options.months and self.number == 0
        if months or (spilling and self.number == 0):
            # Through the queue alone, so that late copies of all requests can arrive.
            route, size = "queue", random.choice((66, 75, 100, 140))
        elif spilling:
            # The direct API looks up only the marks of its own attempts.
            route, size = random.choice(("both", "direct")), random.choice((100, 140, 260))
        self._add_tree(size, counted=self.happens(options.unit_counts))
        if options.months:
            self._add_old_child(counted=bool(self.submissions[0].request.started))
        if months:
            self._add_months()
        else:
            self._lose_work(route)
        if route == "queue" and not months:
            self._add_disorder(reused=reused, spilling=spilling)
        elif route != "queue":
            self._send_directly(everything=route == "direct")
        if options.months and route == "queue" and self.number:
            # The create comes when the chain has ended without it, or just before.
            self.submissions[0].after = random.randint(10, 20) * DAY_SECONDS * 1000
        if spilling:
            self._hold_back()
        if reused:
            self._reuse(route)
        patient = not self.happens(options.impatient)
        return ChainWorkload(self.tag, self.submissions, patient)

    def _lose_work(self, route: str) -> None:
        """Lose steps, or the create, of some chains."""
        random = self.random
        if self.submissions[0].request.tolerated_units and self.tolerance.random() < 0.7:
            self._lose_steps()
        elif self.happens(self.options.missing_work):
            for _ in range(random.choice((1, 1, 2))):
                if len(self.submissions) > 2:
                    self.submissions.pop(random.randrange(1, len(self.submissions)))
        elif route == "queue" and self.happens(self.options.missing_create):
            self.submissions.pop(0)

    def _add_disorder(self, *, reused: bool, spilling: bool) -> None:
        """Add what careless or retried senders send to the queue."""
        if self.happens(self.options.wrong_counts) or self.tolerance.random() < 0.03:
            self._miscount()
        self._add_irregular_requests()
        self._add_invalid_request()
        if not spilling:  # marks in buckets do not tell which note was the last
            self._add_notes()
        if not reused:
            self._retry()

    def _lose_steps(self) -> None:
        """Lose steps of a chain that tolerates some units, also a step whose children are finished.

        Such a step was killed after its fan-out. Its children's finishes hide other units.
        """
        starting = [one for one in self.submissions[1:] if one.request.started]
        lost = self.tolerance.sample(starting, min(len(starting), self.tolerance.randrange(3)))
        left = [one for one in self.submissions[1:] if one not in lost]
        lost += self.tolerance.sample(left, min(len(left), self.tolerance.randrange(6)))
        self.submissions = [one for one in self.submissions if one not in lost]

    def _retry(self) -> None:
        """Let the task that waits run again, with another token, also after the chain's end."""
        create, random = self.submissions[0], self.retries
        waits = create.request and create.request.op == "create" and create.request.resume
        if not waits or random.random() >= self.options.retried:
            return
        tokens = [f"{waits['step_functions']} again {n}" for n in range(random.choice((1, 2)))]
        create.attempts = tuple(
            Request.from_json({**create.raw, "resume": {"step_functions": token}})
            for token in tokens
        )
        latest = random.choice((self.options.span, 4 * self.options.span + 300_000))
        create.copies = tuple(random.randrange(latest) for _ in range(random.choice((1, 2, 3))))

    def _add_notes(self) -> None:
        """Add notes, of units that are missing or not, before the create and after the end."""
        random, units = self.notes, sorted(self.submissions[0].units) or [self.new_unit()]
        noted = [Request("note", self.tag, f"note-{n}", **self._found(units)) for n in range(3)]
        if random.random() < self.options.note:
            for request in noted[: random.choice((1, 2, 3))]:
                self.add(request)
                self.submissions[-1].after = int(random.random() * 2 * self.options.span)
        for one in self.submissions:
            if one.name == "fail" and random.random() < 0.5:
                one.request = Request.from_json({**one.raw, **noted[0].to_json(), **one.raw})

    def _found(self, units: list[int]) -> dict[str, Any]:
        random = self.notes
        missing = [*units, random.getrandbits(64) | 1][: random.randint(1, 2)]
        found = {"text": f"note {random.randrange(100)}", "missing": missing}
        if random.random() < 0.5:
            del found[random.choice(sorted(found))]
        return found | ({"missing_count": random.randrange(9)} if random.random() < 0.5 else {})

    def _hold_back(self) -> None:
        """Send copies of half of the requests, and send one request later than all copies."""
        queued = [one for one in self.submissions if not one.direct]
        for one in self.random.sample(queued, len(queued) // 2):
            one.copies = (self.options.span + 30_000,)
        self.random.choice(self.submissions).after = self.options.span + 60_000

    def _add_old_child(self, counted: bool) -> None:
        """Let the chain that lives for months be a unit of the next one, which may end before."""
        shared, create = Random(f"{self.seed}/old child"), self.submissions[0]
        unit, cells = shared.getrandbits(64) | 1, shared.choice((0, 16, 64))
        is_extended = shared.random() < 0.5
        if shared.random() >= self.options.old_child:
            return
        if self.number == 0:
            parents = [Parent(unit, (f"chain-{self.number + 1}",), cells)]
            fields = {**create.raw, "parents": [one.to_json() for one in parents]}
            create.request = Request.from_json(fields)
            create.other = create.other and Request.from_json(
                {**create.other.to_json(), "parents": fields["parents"]}
            )
            return
        stamp = xor(create.request.stamp or b"", self.stamp([unit]))
        started = create.request.started + counted
        text = b64encode(stamp).decode()
        create.request = Request.from_json({**create.raw, "stamp": text, "started": started})
        create.units, create.other = create.units | {unit}, None
        for n, day in enumerate((15, 40, 65, 90, 115) if is_extended else ()):
            self.add(Request.extend(self.tag, f"prolong-{n}", 30 * DAY_SECONDS))
            self.submissions[-1].after = day * DAY_SECONDS * 1000

    def _add_months(self) -> None:
        """Extend the chain again and again, and send copies weeks later."""
        random, days = self.random, random_days(self.random)
        for number, day in enumerate(days[:-1]):
            extend = Request.extend(self.tag, f"extend-{number}", 30 * DAY_SECONDS)
            self.add(extend)
            self.submissions[-1].after = day * DAY_SECONDS * 1000
        for one in self.submissions:
            if one.after < DAY_SECONDS * 1000 and self.happens(0.3):
                day = random.uniform(days[0], days[-1])
                one.copies = (int(day * DAY_SECONDS * 1000),)
        stamps = [one for one in self.submissions if one.request and one.request.op == "stamp"]
        for one in stamps:
            if not one.copies and self.happens(0.4):
                one.after = int(random.uniform(0, days[-1]) * DAY_SECONDS * 1000)
        last = random.choice(stamps)
        last.after, last.copies = days[-1] * DAY_SECONDS * 1000, ()
        for one in self.submissions:
            # A create would begin a chain that never ends: a tombstone prevents it.
            if one.request and one.request.op in ("create", "stamp") and random.random() < 0.2:
                day = days[-1] + random.choice((random.uniform(0, 29), random.uniform(31, 59)))
                one.repeats = (int(day * DAY_SECONDS * 1000),)

    def _reuse(self, route: str) -> None:
        """Use the tag again: the same units, under the same request ids or others."""
        random, options = self.random, self.options
        first = list(self.submissions)
        for one in first:
            one.has_id = True  # another run may have used it
        gap = random.choice((3_000, 8_000))
        steady = self.happens(options.steady)
        if steady:
            # One request at a time, so that versions and stamps are equal in all runs.
            for position, one in enumerate(first):
                one.after, one.copies = position * gap, ()
        for run in range(1, options.rounds):
            same_ids = self.happens(options.same_ids)
            for one in first:
                self.submissions.append(self._repeated(one, run, same_ids))
                if route == "both" and one.name != "create" and not same_ids:
                    self.submissions[-1].direct = self.happens(0.5)
            if steady:
                # Copies come before the last request is sent.
                *others, last = self.submissions[-len(first) :]
                last.after += 60_000
                for one in others:
                    one.copies = (last.after - 20_000,) if not one.direct else ()

    def _repeated(self, one: Submission, run: int, same_id: bool) -> Submission:
        """Return a request as another run sends it."""
        if same_id or one.request is None:
            return replace(one, run=run)
        id, mistake, _ = one.name.partition("?")
        request, other = (
            form and Request.from_json({**form.to_json(), "id": f"{id}.{run}"})
            for form in (one.request, one.other)
        )
        return replace(one, name=f"{id}.{run}{mistake}", request=request, other=other, run=run)

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
            self.add(
                request, changed, **({"starts": started, "finishes": finished} if counted else {})
            )
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
        if self.happens(options.resume):
            limits["resume"] = {"step_functions": f"{self.tag} {random.randrange(1 << 30)}"}
        if counted and self.cells and self.tolerance.random() < options.tolerance:
            limits["tolerated_units"] = self.tolerance.choice((1, 1, 2, 5))
        request = Request.create(self.tag, "create", stamp, started=int(counted), **limits)
        self.add(request, (root,), **({"starts": [root]} if counted else {}))

    def _miscount(self) -> None:
        """Let a sender count wrongly."""
        one = self.random.choice(self.submissions)
        if one.request is not None and one.request.op == "stamp":
            wrong = {**one.raw, "finished": one.request.finished + 1}
            if self.submissions[0].request.tolerated_units:
                wrong = {**one.raw, "started": one.request.started + 1}
            elif len(self.submissions) % 2:
                wrong |= {"started": MAX_COUNT, "finished": MAX_COUNT}
            one.request, one.other, one.name = Request.from_json(wrong), None, f"{one.name}?"

    def _add_irregular_requests(self) -> None:
        """Add fails, extends, and valid requests that contradict other requests."""
        random, options, tag = self.random, self.options, self.tag
        unit = (self.new_unit(),)
        stamp = self.stamp(unit)
        # A late extend may come when the mark of another request with its id has expired.
        ids = [one.request.id for one in self.submissions if one.request.op != "extend"]
        used_id = random.choice(ids)
        reason = pick(random, (("it broke", 70), (None, 30)))
        seconds = random.choice((random.uniform(5, 120), 40 * DAY_SECONDS))
        create = self.submissions[0]
        changed = {**create.raw, "detail": {"changed": True}}
        other_length = random.randbytes(5) + b"\1"
        with_other_length = Request.stamp_(tag, "length", other_length, finished=1)
        resume = {"lambda": "bm9ib2R5IG1heQ=="}
        unserved = Request.create(tag, "create-3", other_length, resume=resume)
        for probability, name, request in (
            (options.fail, "fail", Request.fail(tag, "fail", reason)),
            (options.extend, "extend", Request.extend(tag, "extend", seconds)),
            (options.reused_id, f"{used_id}?", Request.stamp_(tag, used_id, stamp, finished=1)),
            (options.wrong_length, "length?", with_other_length),
            (options.second_create, "create-2?", Request.create(tag, "create-2", stamp)),
            (options.unserved, "create-3?", unserved),
        ):
            if self.happens(probability):
                self.add(request, unit if request.stamp else (), name)
        if create.name == "create" and self.happens(options.reused_id):
            self.add(Request.from_json(changed), create.units, "create?")

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
            Submission("", f"{tag}/invalid", None, frozenset(), raw, invalid_field, after)
        )

    def _send_directly(self, everything: bool) -> None:
        """Send the create, and some or all stamps, through the direct API."""
        for one in self.submissions:
            if one.request and one.request.op == "extend":
                continue
            one.direct = everything or one.name == "create" or self.happens(0.5)
            one.has_id = self.happens(0.3)
            if one.name == "create" and one.request is not None:
                one.after = min(one.after, 2000)
                # The direct API's create has no timeouts and no detail.
                old = one.request
                one.request = Request.create(old.tag, old.id, old.stamp or b"", started=old.started)
                one.other = None


def random_days(random: Random) -> list[int]:
    """Return days on which a chain is extended, each before the last deadline."""
    days = [random.randint(10, 18)]
    while days[-1] < 100:
        days.append(days[-1] + random.randint(10, 25))
    return days


def chain_workload(seed: int, number: int, options: Options) -> ChainWorkload:
    """Return the workload of a chain."""
    return _ChainBuilder(seed, number, options).build()
