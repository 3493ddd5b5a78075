"""A chain may be a unit of other chains: the finishes that ended children send to their parents."""

import json
from dataclasses import replace

import pytest

from tests.support.chains import changed
from tests.support.fakes import FakeQueue
from tests.support.functions import message
from tests.support.services import DAY, NOW, World
from xorack import Tracker
from xorack.core.errors import ArgumentError, UnavailableError
from xorack.core.hashing import unit_id
from xorack.core.request import Request


@pytest.fixture
def world():
    return World()


def parent_of(*tags, name="file13", cells=16):
    unit = f"{unit_id(name):016x}"
    kind = {"kind": "plain"} if cells == 0 else {"cells": cells}
    return {"unit": unit, "tags": list(tags), **kind}


def create(tag, *units, **options):
    """Create a chain with these units, by default with one of its own name."""
    ids = [unit_id(name) for name in units or [tag]]
    return Request.create(tag, "create", starts=ids, **options)


def finish(tag):
    return Request.stamp_(tag, "finish", finishes=[unit_id(tag)])


def child(tag, *parents, **options):
    return create(tag, parents=parents, **options), finish(tag)


def status(world, tag):
    return world.store.chains[tag].status


def test_the_end_of_a_child_finishes_its_unit_in_each_parent_in_the_same_invocation(world):
    grand = parent_of("run", name="database")
    world.consume(message(create("run", "database"), create("database", "file13", parents=[grand])))
    plain = parent_of("other", name="o", cells=0)
    other = Request.create("other", "create", starts=[unit_id("o")], cells=0)
    requests = child("database/file13", parent_of("database"), plain)
    result = world.consume(message(other, *requests))
    assert {tag: status(world, tag) for tag in world.store.chains} == dict.fromkeys(
        ("run", "database", "other", "database/file13"), "acked"
    )
    assert result.ended == {"acked": 4}
    assert (result.events, result.events_pending, sorted(world.tags())) == (
        4,
        0,
        ["database", "database/file13", "other", "run"],
    )
    events = {event["tag"]: event.get("parent_tags") for event in world.bus.events}
    assert events["database/file13"] == ["database", "other"]
    assert (events["database"], events["run"]) == (["run"], None)
    # What is delivered again counts once.
    world.consume(message(*requests), receives=2)
    assert world.store.chains["database"].tombstone.late == 0


def test_a_child_that_fails_leaves_its_unit_outstanding_and_a_note(world):
    world.consume(message(create("p", "file13", timeout=100)))
    requests = create("c", parents=[parent_of("p")]), Request.fail("c", "f", "no disk")
    world.consume(message(*requests))
    note = json.loads(world.store.chains["p"].note)
    assert (note["text"], note["missing"]) == (
        "chain c failed: no disk",
        [f"{unit_id('file13'):016x}"],
    )
    assert status(world, "p") == "open"
    world.now += 100_000
    world.sweep()
    (event,) = (event for event in world.bus.events if event["tag"] == "p")
    assert (event["reason"], event["outstanding"]) == ("timed out", note["missing"])
    assert event["children"] == {"acked": 0, "failed": 1, "failed_tags": ["c"]}


def test_a_parent_counts_its_children_and_keeps_the_note_of_a_sender(world):
    """The event of a parent has the sender's note, acked or failed, and names failed children."""
    note = Request("note", "p", "n", text="70 of 75 files are loaded")
    tags = [f"{n:03}{'x' * 90}" for n in range(75)]
    world.consume(message(create("p", *tags), note))
    for tag in tags:
        end = Request.fail(tag, "f", "no disk") if tag < "070" else finish(tag)
        world.consume(message(create(tag, parents=[parent_of("p", name=tag)]), end))
    world.now += DAY
    world.sweep()
    (event,) = (event for event in world.bus.events if event["tag"] == "p")
    assert event["children"] == {"acked": 5, "failed": 70, "failed_tags": tags[:20]}
    assert event["note"]["text"] == "70 of 75 files are loaded"
    request = Request("note", "q", "n", text="all is well")
    world.consume(message(create("q"), request, *child("c", parent_of("q", name="q"))))
    (event,) = (event for event in world.bus.events if event["tag"] == "q")
    assert (event["status"], event["note"]["text"]) == ("acked", "all is well")


def test_a_child_can_fail_its_parent_at_once_also_by_its_deadline(world):
    world.consume(message(create("p", "file13")))
    world.consume(message(create("c", parents=[parent_of("p")], fail_parent=True, timeout=10)))
    world.now += 10_000
    world.sweep()
    assert world.store.chains["p"].reason == "chain c failed: timed out"
    world.now += 60_000
    world.sweep()
    assert sorted(world.tags()) == ["c", "p"]


def test_ends_that_share_a_parent_share_writes(world):
    names = [f"u{n}" for n in range(100)]
    world.consume(message(create("p", *names)))
    before = world.store.chains["p"].version
    ends = [request for name in names for request in child(f"c/{name}", parent_of("p", name=name))]
    world.consume(message(*ends))
    chain = world.store.chains["p"]
    assert (chain.status, chain.version - before) == ("acked", 2)  # the end, and its event


def test_a_parent_that_cannot_be_written_gets_the_end_by_a_sweep_and_only_once(world):
    world.consume(message(create("p", "file13")))
    error = UnavailableError(OSError("throttled"))
    world.fail("write", lambda before, after: after.tag == "p", error)
    result = world.consume(message(*child("c", parent_of("p"))))
    assert (result.failed, world.tags()) == ({}, ["c"])  # no event waits for a parent
    assert world.store.chains["c"].pending_reports == ("parents",)
    world.now += 60_000
    assert world.sweep().events_pending == 1
    del world.store.write
    world.now += 60_000
    # Another sweep did it, and crashed before it marked the child.
    again = world.store.chains["c"]
    world.sweep()
    assert status(world, "p") == "acked"
    world.store.chains["c"] = again
    world.sweep()
    parent = world.store.chains["p"]
    assert (parent.counts.finished, world.store.chains["c"].pending_reports) == (1, ())


def test_no_parent_waits_for_a_bus_that_is_down(world):
    world.consume(message(create("p", "file13")))
    world.bus.rejects = {"c", "p"}
    world.consume(message(*child("c", parent_of("p"))))
    assert (status(world, "p"), world.store.chains["c"].pending_reports) == ("acked", ("event",))


def test_two_generations_of_a_child_are_two_units(world):
    world.consume(message(create("p", "a", "b")))
    for name in ("a", "b"):
        world.consume(message(*child("c", parent_of("p", name=name))))
        del world.store.chains["c"]
    assert status(world, "p") == "acked"


def test_an_end_that_was_pending_for_the_retention_is_dropped_and_counted(world):
    """Its mark may have expired, so it could be applied a second time."""
    world.consume(message(create("p", "file13", timeout=90 * 86_400)))
    error = UnavailableError(OSError("throttled"))
    world.fail("write", lambda before, after: after.tag == "p", error)
    world.consume(message(*child("c", parent_of("p"))))
    del world.store.write
    world.now += 31 * DAY
    assert world.sweep().dropped == 1
    assert (status(world, "p"), world.store.chains["c"].pending_reports) == ("open", ())


def test_marks_of_ends_are_spilled_to_few_buckets_and_a_repeated_end_is_found(world):
    names = [f"u{n}" for n in range(300)]
    world.consume(message(create("p", *names, "last")))
    repeated = []
    for name in names:
        world.now += 20
        world.consume(message(*child(f"c/{name}", parent_of("p", name=name))))
        repeated.append(replace(world.store.chains[f"c/{name}"], version=9))
    parent = world.store.chains["p"]
    assert (parent.spilled, bin(parent.end_levels).count("1") <= 2) == (0, True)
    assert len(parent.marks) <= 8 * 16
    for one in repeated:
        # A sweep reports them again, as after a crash before the report was marked.
        world.store.chains[one.tag] = changed(one, parents_pending=True, due_at=world.now)
    world.now += 60_000
    world.sweep()
    parent = world.store.chains["p"]
    assert (parent.counts.finished, status(world, "p")) == (300, "open")
    world.consume(message(*child("c", parent_of("p", name="last"))))
    assert status(world, "p") == "acked"


def test_the_sweep_that_ends_a_child_publishes_its_event_too(world):
    """The report to the parent must not delay the event by the grace of a consumer."""
    world.consume(message(create("p", "file13"), create("c", parents=[parent_of("p")], timeout=9)))
    world.now += 9_000
    world.sweep()
    assert (status(world, "c"), world.store.chains["c"].pending_reports) == ("failed", ())
    assert world.tags() == ["c"]


def test_a_parent_that_has_ended_counts_the_end_as_late(world):
    world.consume(message(create("p", "file13"), Request.fail("p", "f")))
    world.consume(message(*child("c", parent_of("p"))))
    assert (status(world, "p"), world.store.chains["p"].tombstone.late) == ("failed", 1)


def test_a_cycle_ends_by_its_deadlines(world):
    for tag, other in (("a", "b"), ("b", "a")):
        world.consume(message(create(tag, other, parents=[parent_of(other, name=tag)], timeout=9)))
    world.now += 9_000
    world.sweep()
    assert [status(world, tag) for tag in ("a", "b")] == ["failed", "failed"]
    world.now += 60_000
    world.sweep()
    # Each has counted the other's late end, and was written by this while it was reported itself.
    assert [world.store.chains[tag].pending_reports for tag in ("a", "b")] == [(), ()]


def test_the_ids_of_ends_belong_to_the_acker_and_parents_are_content(world):
    with pytest.raises(ArgumentError, match="reserved for the end of a child chain"):
        Request.stamp_("p", f"chain-{5:032x}", b"\1")
    with pytest.raises(ArgumentError, match="fail_parent"):
        create("c", fail_parent=True)
    request = create("c", parents=[parent_of("p", "q")], fail_parent=True)
    assert Request.from_json(request.to_json()) == request
    world.consume(message(request))
    result = world.consume(message(create("c", parents=[parent_of("q")])))
    assert result.outcomes["rejected"] == 1
    assert world.now == NOW


@pytest.mark.parametrize(
    ("parents", "error"),
    [
        (
            [{"unit": "faec1e2ac606499c", "tags": ["p"]}],
            "requests[1].parents.unit: 'faec1e2ac606499c', expected an id other than "
            "faec1e2ac606499c, which hashes to 0",
        ),
        (
            [parent_of("p"), parent_of("p")],
            "requests[1].parents: '2 tags', expected at most 100 different chains",
        ),
    ],
)
def test_an_invalid_parent_is_refused_by_its_name_and_the_rest_is_applied(world, parents, error):
    raw = {**create("c").to_json(), "parents": parents}
    body = json.dumps({"version": 1, "requests": [create("p").to_json(), raw]})
    world.consume(body)
    (letter,) = world.dead_letters.letters
    assert (letter.reason, [*world.store.chains]) == (error, ["p"])


def test_a_tracker_starts_a_chain_that_is_a_child_of_a_step(world):
    queue = FakeQueue()
    tracker = Tracker("https://queue", queue, stamps="plain", token_key="k" * 16)
    root = tracker.start("2026-01-31")
    with tracker.step(root) as step:
        token = step.child("file13")
    file = tracker.start("2026-01-31/file13", parent=token, fail_parent=True)
    with tracker.step(file):
        pass
    world.consume(*(entry["MessageBody"] for entry in queue.entries))
    assert [status(world, tag) for tag in ("2026-01-31", "2026-01-31/file13")] == ["acked"] * 2
    with pytest.raises(ArgumentError, match="mac"):
        tracker.start("x", parent={**token.to_json(), "mac": "0" * 32})
    with pytest.raises(ArgumentError, match="own parent"):
        tracker.start("2026-01-31", parent=token)
