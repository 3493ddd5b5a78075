"""A window is acked if and only if all of its partitions are proved: any interleaving and crash."""

from __future__ import annotations

import os
import random
from contextlib import suppress
from functools import partial
from itertools import combinations
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xorack import xor
from xorack.core.errors import ArgumentError, StateError
from xorack.spark.windows import ledger
from xorack.spark.windows.ledger import Range

SCHEDULES = int(os.environ.get("WINDOW_SCHEDULES", "30"))
"""Number of random schedules: WINDOW_SCHEDULES=1000 runs a thousand."""


class Crash(Exception):
    """The process died here."""


class Store:
    """Records that a crash may tear; `step` runs before each access."""

    def __init__(self):
        self.opened, self.slots, self.step = {}, {}, lambda: None

    def windows(self):
        self.step()
        return list(self.opened.values())

    def proofs(self):
        """List the proofs one by one: another process may keep a proof between two steps."""
        found = []
        for place in [(stream, slot) for stream in "ab" for slot in (0, 1)]:
            self.step()
            found += [self.slots[place]] if place in self.slots else []
        return found

    def keep_window(self, window):
        self.step()
        self.opened.setdefault(window.name, window)

    def keep_proof(self, proof):
        self.step()
        self.slots.pop((proof.stream, proof.slot), None)
        self.step()
        self.slots[proof.stream, proof.slot] = proof


class World:
    """A log, streams that read it in batches, windows, and an acker that adds requests up."""

    def __init__(self, chance: random.Random) -> None:
        self.chance, self.store, self.sent = chance, Store(), {}
        self.gappy = chance.random() < 0.5
        sizes = {f"t/{n}": chance.randrange(13) for n in range(chance.randint(1, 3))}
        self.rows = {
            (key, n)
            for key, size in sizes.items()
            for n in range(size)
            if not self.gappy or chance.random() < 0.7
        }
        self.batches = {"a": self._cut({key: (0, size) for key, size in sizes.items()})}
        if chance.random() < 0.5:  # two streams of one log, each with a part of each partition
            cuts = {key: chance.randint(0, size) for key, size in sizes.items()}
            self.batches["a"] = self._cut({key: (0, cut) for key, cut in cuts.items()})
            self.batches["b"] = self._cut({key: (cuts[key], size) for key, size in sizes.items()})
        self.next = dict.fromkeys(self.batches, 0)
        self.skipped = {
            (name, n)
            for name, some in self.batches.items()
            for n in range(len(some))
            if chance.random() < 0.05
        }
        marks = [sorted(chance.randint(0, size) for _ in range(3)) for size in sizes.values()]
        ends = zip(*marks, strict=True)
        self.ends = {f"w{i}": dict(zip(sizes, one, strict=True)) for i, one in enumerate(ends)}
        self.running, self.done, self.written, self.covered = set(), set(), set(), set()

    def _cut(self, parts):
        """Cut a part of each partition into three or four batches of ranges."""
        begins, batches = {key: begin for key, (begin, _) in parts.items()}, []
        for left in range(self.chance.randint(2, 3), -1, -1):
            ends = {
                key: self.chance.randint(begins[key], end) if left else end
                for key, (_, end) in parts.items()
            }
            batches.append({key: (begins[key], end) for key, end in ends.items()})
            begins = ends
        return batches

    def step(self):
        """Die, let another process take a step, or go on."""
        if self.chance.random() < 0.1:
            raise Crash
        if self.chance.random() < 0.3:
            self.act()

    def act(self, actor=None):
        free = sorted({*self.next, *self.ends} - self.running)
        actor = actor or (self.chance.choice(free) if free else None)
        if actor is None:
            return
        self.running.add(actor)
        try:
            self.finish(actor) if actor in self.next else self.open(actor)
            if self.next.get(actor) in (None, len(self.batches.get(actor, ()))):
                self.done.add(actor)
        except Crash:
            pass
        finally:
            self.running.discard(actor)

    def finish(self, stream):
        number = self.next[stream]
        if number == len(self.batches[stream]):
            number -= 1  # repeats the last one, as after a restart
        ranges = self.batches[stream][number]
        if (stream, number) in self.skipped:  # a batch that nobody proves
            self.next[stream] = number + 1
            return
        places = {
            key: sorted(n for k, n in self.rows if k == key and begin <= n < end)
            for key, (begin, end) in ranges.items()
        }
        self.written |= {(key, n) for key, some in places.items() for n in some}
        seen = {k: Range(some[0], some[-1] + 1, len(some)) for k, some in places.items() if some}
        known = {}, {}
        if self.gappy or self.chance.random() < 0.3:
            known = tuple({key: ends[i] for key, ends in ranges.items()} for i in (0, 1))
        for status, keys in ledger.prove(self.store, (stream, number), seen, known, gaps="ignore"):
            self.finished(status.window, keys)
        self.covered |= {(key, n) for key, ends in ranges.items() for n in range(*ends)}
        self.next[stream] = max(self.next[stream], number + 1)

    def open(self, name):
        window = ledger.find_window(self.store, name, self.ends[name], {})
        status = ledger.open_window(self.store, window)
        self.send([ledger.create_request(name, {"ranges": window.digest}, [*window.ends])])
        self.finished(window, window.ends.keys() - status.lagging.keys())

    def finished(self, window, keys):
        self.send(ledger.finish_request(window.name, window.digest, key) for key in sorted(keys))

    def send(self, some):
        for request in some:
            self.store.step()
            assert self.sent.setdefault((request.tag, request.id), request) == request
            for name in self.acked():
                lost = self.positions(name) & self.rows - self.written
                assert not lost, f"{name} is acked without {lost}"

    def acked(self):
        for name in self.store.opened:
            own = [one for (tag, _), one in self.sent.items() if tag == name]
            counts = sum(one.started - one.finished for one in own)
            stamp = xor(bytes(648), bytes(648), *(one.stamp for one in own))
            if any(one.op == "create" for one in own) and counts == 0 and not any(stamp):
                yield name

    def positions(self, name):
        window = self.store.opened[name]
        assert window.ends == self.ends[name]
        return {(k, n) for k, end in window.ends.items() for n in range(window.starts[k], end)}


def play(chance: random.Random) -> None:
    world = World(chance)
    world.store.step = world.step
    for _ in range(chance.randint(5, 25)):
        world.act()
    world.store.step = lambda: None
    for actor in (*world.ends, *world.next) * 5:  # what died is repeated, and no more
        if actor not in world.done:
            world.act(actor)
    complete = {name for name in world.store.opened if world.positions(name) <= world.covered}
    assert {*world.acked()} == complete
    for name, window in world.store.opened.items():
        proved = ledger.proved_of(world.store.proofs())
        assert ledger.WindowStatus.of(window, proved).complete == (name in complete)


@settings(max_examples=SCHEDULES)
@given(st.integers(0, 2**32))
def test_any_interleaving(seed):
    play(random.Random(seed))


@pytest.mark.parametrize("kept", ["near", "far"])
@pytest.mark.parametrize("created", ["near", "far"])
def test_two_opens_at_once_with_other_ends(kept, created):
    """The store keeps one, the acker creates one: acked only if they are the same, by its ends."""
    rivals = {"near": {"t/0": 3, "t/1": 2}, "far": {"t/0": 5, "t/1": 2}}
    world = World(random.Random(0))
    world.ends = {"w": rivals[kept]}
    world.rows = {("t/0", n) for n in range(5)} | {("t/1", n) for n in range(2)}
    opened = {who: ledger.find_window(world.store, "w", ends, {}) for who, ends in rivals.items()}
    for who in sorted(opened, key=lambda who: who == kept):
        world.store.opened.clear()  # the record is replaced
        assert ledger.open_window(world.store, opened[who]).lagging
    create = ledger.create_request("w", {"ranges": opened[created].digest}, [*rivals[created]])
    world.send([create])
    batches = [{"t/0": Range(0, 3, 3), "t/1": Range(0, 2, 2)}, {"t/0": Range(3, 5, 2)}]
    for number, seen in enumerate(batches):
        world.written |= {(key, n) for key, one in seen.items() for n in range(one.begin, one.end)}
        for status, keys in ledger.prove(world.store, ("a", number), seen):
            world.finished(status.window, keys)
        complete = number == 1 or kept == "near"
        assert bool([*world.acked()]) == (kept == created and complete)


def test_a_stream_keeps_two_proofs_while_they_are_listed():
    """Its slots are empty in turn, each as the listing passes it."""
    store, places = Store(), [("a", 0), ("a", 1)]
    for number in range(2):
        ledger.prove(store, ("a", number), {"t/0": Range(number, number + 1, 1)})
    later = Store()
    later.slots = dict(store.slots)
    for number in (2, 3):
        ledger.prove(later, ("a", number), {"t/0": Range(number, number + 1, 1)})
    window = ledger.find_window(store, "w", {"t/0": 2}, {})
    looks = iter(places)

    def step():
        if window.name in store.opened and (place := next(looks, None)):
            store.slots |= {one: later.slots[one] for one in places if one not in store.slots}
            del store.slots[place]

    store.step = step
    assert ledger.open_window(store, window).complete


def rewind(chance: random.Random) -> None:
    """Play a stream without offsets that goes back, and whose errors are swallowed."""
    store, begins, written = Store(), [0], set()
    rows = {n for n in range(12) if chance.random() < 0.8}
    for _ in range(chance.randint(2, 8)):
        if chance.random() < 0.3:
            del begins[chance.randint(1, len(begins)) :]
        number, begin = len(begins) - 1, begins[-1]
        begins.append(end := chance.randint(begin, 12))
        places = sorted(n for n in rows if begin <= n < end)
        seen = {"t/0": Range(places[0], places[-1] + 1, len(places))} if places else {}
        if chance.random() < 0.7:  # else its rows are missing, and finish raises
            with suppress(StateError):
                ledger.prove(store, ("a", number), seen, gaps="ignore")
                written |= {*places}
    proved = ledger.proved_of(store.proofs())
    for start, end in combinations(range(13), 2):
        status = ledger.WindowStatus.of(ledger.Window("w", {"t/0": start}, {"t/0": end}), proved)
        assert not status.complete or rows & {*range(start, end)} <= written


def test_what_a_batch_lost_is_no_gap_of_the_next_one():
    for seed in range(10 * SCHEDULES):
        rewind(random.Random(seed))


def opened(store, name, **ends):
    return ledger.open_window(store, ledger.find_window(store, name, ends, {}))


def test_a_topic_made_anew_is_refused_where_a_later_hour_ends_earlier():
    """Else its hour would be complete by the rows of the old topic."""
    store = Store()
    ledger.prove(store, ("a", 0), {"p": Range(0, 5, 5)})
    opened(store, "2026-09-14T14", p=5)
    problem = "'2026-09-14T15' ends before window '2026-09-14T14' in p, but its name is later: "
    with pytest.raises(ArgumentError, match=problem):
        opened(store, "2026-09-14T15", p=3)
    assert opened(store, "2026-09-14T13", p=3).complete  # opened later, and earlier in the log
    assert opened(store, "closed by hand", p=4).complete  # a name that is no time


def test_a_batch_without_rows_is_believed_where_its_offsets_follow_on():
    """Markers of transactions may be all that a batch has; so may another query's offsets."""
    store = Store()

    def prove(number, since, until, gaps="count", **seen):
        return ledger.prove(store, ("a", number), seen, ({"p": since}, {"p": until}), gaps=gaps)

    prove(0, 0, 5, p=Range(0, 5, 5))
    with pytest.raises(StateError, match="2 of the positions 5 to 6 of p have no row in"):
        prove(1, 5, 7, gaps="error")
    prove(1, 5, 7)
    prove(2, 7, 8)
    assert (opened(store, "w", p=8).complete, opened(store, "w", p=8).gaps) == (True, {"p": 3})
    for number, since in ((3, 9), (4, 8)):  # of others; after a batch that nobody proved
        with pytest.raises(StateError, match="no row at the 2 positions that it covers"):
            prove(number, since, since + 2)


def test_names_of_partitions_leave_a_long_name_of_a_window_its_place():
    detail, keys = {"window": "w" * 700, "ranges": "d"}, [f"topic-{n}/x" for n in range(230)]
    assert ledger.create_request("run/log/" + "w" * 700, detail, keys).started == 230


def looks_early(real, store, *given, late, **how):
    """Call with a store that shows what was there at the first look, but for one answer."""
    seen = SimpleNamespace(windows=store.windows(), proofs=store.proofs())
    early = SimpleNamespace(keep_window=store.keep_window, keep_proof=store.keep_proof)
    early.windows, early.proofs = (lambda: seen.windows), (lambda: seen.proofs)
    setattr(early, late, getattr(store, late))
    return real(early, *given, **how)


def forgets(real, store, name, ends, starts):
    """Open without the last partition."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "proofs", list)
        fewer = dict(list(ends.items())[:-1]) or ends
        return real(store, name, fewer, starts)


def proved_twice(real, store, batch, *given, **how):
    """Take a batch that is repeated for the next one."""
    last = max((one.batch for one in store.slots.values() if one.stream == batch[0]), default=-1)
    return real(store, (batch[0], max(batch[1], last + 1)), *given, **how)


def jumps(_, ranges, start):
    return max([start, *(found.end for found in ranges)])


def one_slot(real, stream, batch, _, *given):
    return real(stream, batch, 0, *given)


def covers_all_before(real, *given):
    return {key: found._replace(begin=0) for key, found in real(*given).items()}


MUTANTS = {
    "a contiguous end that jumps over a hole": ("contiguous_end", jumps),
    "a partition forgotten at open": ("find_window", forgets),
    "a batch proved twice": ("prove", proved_twice),
    "ends read before the proof is kept": ("prove", partial(looks_early, late="proofs")),
    "proofs read before the window is kept": ("open_window", partial(looks_early, late="windows")),
    "one slot": ("StreamProof", one_slot),
    "one stream alone": ("proved_of", lambda real, proofs: real([*proofs][-1:])),
    "a batch that covers what came before it": ("_own", covers_all_before),
}
SEEDS = (503, 1168, 1188, 1685, 20286, *range(1000))  # the first catch mutants that few catch


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(name, monkeypatch):
    function, broken = MUTANTS[name]
    monkeypatch.setattr(ledger, function, partial(broken, getattr(ledger, function)))
    with pytest.raises((AssertionError, ArgumentError, StateError)):
        any(map(play, map(random.Random, SEEDS)))
