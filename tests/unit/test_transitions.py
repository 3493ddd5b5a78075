"""The chain's state machine, rule by rule of docs/protocol.md."""

import pytest

from xorack.core.chain import Chain
from xorack.core.errors import BufferLengthsUnequal, RequestIdReused, TagExists
from xorack.core.marks import INLINE_MARKS, MARK_BYTES, mark_key, mark_of
from xorack.core.request import Request
from xorack.core.transitions import apply, expire, mark_published

NOW = 1_700_000_000_000
DAY = 86_400_000


def create(id="c", stamp=b"\x01", **more):
    return Request.create("t", id, stamp, **more)


def stamp(id, stamp=b"\x01", **more):
    return Request.stamp_("t", id, stamp, **more)


def fail(id="f", reason="broken"):
    return Request.fail("t", id, reason)


def run(*batches, chain=None, start=NOW, step=1000, **more):
    """Apply batches one after the other, a second apart."""
    kinds = []
    for number, batch in enumerate(batches):
        applied = apply(chain, batch, now=start + number * step, default_timeout=DAY, **more)
        chain = applied.chain
        kinds.append([outcome.kind for outcome in applied.outcomes])
        assert [outcome.request for outcome in applied.outcomes] == list(batch)
    return chain, kinds


def test_create_opens_with_its_stamp_and_settings():
    chain, kinds = run([create(timeout=60, idle_timeout=5, detail={"a": 1})])
    assert kinds == [["applied"]]
    assert chain.status == "open"
    assert chain.stamp == b"\x01"
    assert (chain.started, chain.finished, chain.version) == (1, 0, 1)
    assert chain.created_at == chain.first_seen_at == chain.last_stamp_at == NOW
    assert chain.deadline == NOW + 60_000
    assert chain.due_at == NOW + 5000
    assert chain.detail == '{"a":1}'
    assert not chain.event_pending


def test_the_default_timeout_is_for_creates_that_name_none():
    chain, _ = run([create()])
    assert chain.deadline == NOW + DAY
    chain, _ = run([create()], chain=None)
    assert apply(None, [create()], now=NOW).chain.deadline is None


def test_acked_when_created_zero_and_counts_equal():
    chain, kinds = run([create()], [stamp("s", b"\x01", finished=1)])
    assert kinds[1] == ["applied"]
    assert chain.status == "acked"
    assert chain.ended_at == NOW + 1000
    assert chain.event_pending
    assert chain.reason is None


def test_not_acked_while_counts_differ():
    chain, _ = run([create()], [stamp("s", b"\x01")])
    assert (chain.status, chain.stamp) == ("open", b"\0")
    chain, _ = run([stamp("more", b"\x02", finished=1), stamp("less", b"\x02")], chain=chain)
    assert chain.status == "acked"


def test_a_stamp_may_come_before_its_create():
    chain, kinds = run([stamp("s", b"\x01", finished=1)])
    assert kinds == [["applied"]]
    assert (chain.status, chain.stamp) == ("pending", b"\x01")
    assert chain.deadline == NOW + DAY
    chain, _ = run([create()], chain=chain)
    assert chain.status == "acked"


def test_a_pending_chain_of_zero_is_not_acked():
    chain, _ = run([stamp("a"), stamp("b")])
    assert (chain.status, chain.stamp) == ("pending", b"\0")


def test_a_second_create_is_refused_by_tag_exists():
    chain, kinds = run([create()], [create("d", b"\x07"), stamp("s", b"\x02")])
    assert kinds[1] == ["rejected", "applied"]
    assert chain.stamp == b"\x03"
    _, kinds = run([create("x"), create("y")])
    assert kinds == [["applied", "rejected"]]
    applied = apply(chain, [create("z")], now=NOW)
    assert isinstance(applied.outcomes[0].error, TagExists)
    assert applied.chain is chain


def test_fail_is_sticky_before_create():
    chain, _ = run([fail()])
    assert (chain.status, chain.failing) == ("pending", "broken")
    chain, _ = run([create(detail={"a": 1})], chain=chain)
    assert (chain.status, chain.reason) == ("failed", "broken")
    assert chain.event_pending
    assert chain.detail


def test_fail_beats_zero_within_a_batch():
    chain, kinds = run([create(), stamp("s", b"\x01", finished=1), fail()])
    assert kinds == [["applied"] * 3]
    assert (chain.status, chain.reason, chain.stamp) == ("failed", "broken", b"\0")


def test_fail_without_a_reason_and_the_first_of_two():
    chain, _ = run([create()], [fail("f", None), fail("g", "other")])
    assert chain.reason == "fail was asked"


@pytest.mark.parametrize("end", [stamp("s", b"\x01", finished=1), fail()])
def test_ends_are_final_and_what_comes_then_is_late(end):
    chain, _ = run([create()], [end])
    after, kinds = run(
        [stamp("late"), fail("late too"), Request.extend("t", "e", 5)], chain=chain, start=NOW + DAY
    )
    assert kinds == [["late"] * 3]
    assert after is chain
    assert expire(chain, NOW + 100 * DAY) is chain
    again, kinds = run([create("other"), create(), end], chain=chain)
    assert kinds == [["rejected", "duplicate", "duplicate"]]
    assert again is chain


def test_duplicates_have_no_effect_in_a_batch_and_later():
    s = stamp("s", b"\x06", started=2)
    chain, kinds = run([create(), s, s], [s, create(), stamp("x", b"\x08"), s])
    assert kinds == [
        ["applied", "applied", "duplicate"],
        ["duplicate", "duplicate", "applied", "duplicate"],
    ]
    assert (chain.stamp, chain.started) == (b"\x0f", 3)
    same, kinds = run([s], chain=chain)
    assert same is chain


def test_a_used_id_that_says_something_else_is_refused():
    chain, _ = run([create(), stamp("s", b"\x06")])
    for other in (stamp("s", b"\x07"), stamp("s", b"\x06", started=1), fail("s")):
        applied = apply(chain, [other], now=NOW)
        assert isinstance(applied.outcomes[0].error, RequestIdReused)
        assert applied.chain is chain
    _, kinds = run([stamp("a", b"\x01"), stamp("a", b"\x02")])
    assert kinds == [["applied", "rejected"]]


def test_marks_elsewhere_count():
    s = stamp("s", b"\x06")
    mark = mark_of(s)
    chain, _ = run([create()])
    applied = apply(chain, [s], now=NOW, spilled_marks={mark[:12]: mark[12:]})
    assert applied.chain is chain
    assert applied.outcomes[0].kind == "duplicate"


def test_a_stamp_of_another_length_is_refused_and_named():
    chain, _ = run([create()])
    applied = apply(chain, [stamp("s", b"\x01\x02"), stamp("u", b"\x04")], now=NOW)
    assert [o.kind for o in applied.outcomes] == ["rejected", "applied"]
    assert isinstance(applied.outcomes[0].error, BufferLengthsUnequal)
    assert "2 bytes, expected 1" in str(applied.outcomes[0].error)
    assert applied.chain.stamp == b"\x05"


def test_the_creates_length_counts_within_a_batch():
    chain, kinds = run([stamp("s", b"\x01\x02"), create()])
    assert kinds == [["rejected", "applied"]]
    assert chain.stamp == b"\x01"


def test_a_refused_request_leaves_no_mark():
    chain, _ = run([create()])
    wrong = apply(chain, [stamp("s", b"\x01\x02")], now=NOW)
    assert wrong.chain is chain
    right = apply(chain, [stamp("s", b"\x04")], now=NOW)
    assert right.outcomes[0].kind == "applied"


def test_extend_moves_the_deadline_wherever_it_stands():
    want = NOW + 1000 + 7_200_000
    extend = Request.extend("t", "e", 7200)
    assert run([create(timeout=60)], [extend])[0].deadline == want
    assert run([stamp("s")], [create(timeout=60), extend])[0].deadline == want
    chain, _ = run([extend], [create(timeout=60)], start=NOW + 1000)
    assert chain.deadline == want
    assert run([create(timeout=6000)], [Request.extend("t", "e", 1)])[0].deadline == NOW + 2000


def test_deadlines_pass():
    chain, _ = run([create(timeout=60)])
    assert expire(chain, NOW + 59_999) is chain
    late = expire(chain, NOW + 60_000)
    assert (late.status, late.reason, late.event_pending) == ("failed", "timed out", True)
    assert late.version == chain.version + 1
    chain, _ = run([stamp("s")])
    assert expire(chain, NOW + DAY).reason == "never created"
    assert not expire(chain, NOW + DAY).created


def test_a_create_after_never_created_is_late():
    chain, _ = run([stamp("s")])
    chain = expire(chain, NOW + DAY)
    _, kinds = run([create()], chain=chain)
    assert kinds == [["late"]]


def test_a_sender_that_gives_the_reason_never_created_changes_no_rule():
    chain, _ = run([create()], [fail("f", "never created")])
    assert chain.created
    _, kinds = run([create("other"), stamp("s")], chain=chain)
    assert kinds == [["rejected", "late"]]


def test_progress_keeps_a_chain_alive_and_costs_no_index_write():
    chain, _ = run([create(timeout=1000, idle_timeout=10)])
    due = chain.due_at
    for second in range(1, 10):
        chain, _ = run([stamp(f"s{second}")], chain=chain, start=NOW + second * 1000)
        assert chain.due_at == due
    assert chain.effective_deadline == NOW + 19_000
    looked = expire(chain, NOW + 10_000)
    assert looked.status == "open"
    assert looked.due_at == NOW + 19_000
    assert expire(looked, NOW + 19_000).reason == "timed out"


def test_a_fail_that_waits_for_its_create_is_no_progress():
    chain, _ = run([create(idle_timeout=10)], [Request.extend("t", "e", 1000)], step=5000)
    assert chain.last_stamp_at == NOW


def test_an_item_of_the_npm_package_is_an_open_chain():
    chain, _ = run([stamp("s", b"\x01")], chain=Chain("t", b"\x01", "open"))
    assert chain.status == "acked"
    assert chain.created_at is None
    assert chain.first_seen_at == NOW


def test_published_crosses_off():
    chain, _ = run([create()], [fail()])
    told = mark_published(chain)
    assert not told.event_pending
    assert told.due_at is None
    assert told.version == chain.version + 1


def test_marks_are_moved_out_when_they_would_be_many():
    chain = None
    for number in range(INLINE_MARKS):
        chain, _ = run([stamp(f"s{number}")], chain=chain)
        assert chain.overflow(1) == (b"" if number < INLINE_MARKS - 1 else chain.marks)
    moved = chain.overflow(1)
    assert moved[:12] == mark_key("s0")
    after, _ = run([stamp("more")], chain=chain)
    after = after.without_marks(moved)
    assert len(after.marks) == MARK_BYTES
    assert after.spilled == INLINE_MARKS
