"""The state machine of a chain, by docs/protocol.md, beyond the cases of docs/vectors.json."""

import itertools
from dataclasses import replace

import pytest

from xorack.core.chain import Chain
from xorack.core.errors import BufferLengthsUnequal, RequestIdReused, TagExists
from xorack.core.event import event_detail, rfc3339
from xorack.core.request import Request
from xorack.core.stamp import plain, sum_of, traced, xor
from xorack.core.transitions import Limits, apply, expire, mark_delivered
from xorack.ops.status import ChainStatus

NOW = 1_700_000_000_000
DAY = 86_400_000
LIMITS = Limits(DAY, pending_timeout_ms=4 * DAY)


def create(id="c", stamp=b"\x01", **options):
    return Request.create("t", id, stamp, **options)


def stamp(id, stamp=b"\x01", **counts):
    return Request.stamp_("t", id, stamp, **counts)


def fail(id="f", reason="broken"):
    return Request.fail("t", id, reason)


def extend(timeout):
    return Request.extend("t", "e", timeout)


FINISH = stamp("finish", finished=1)


def run(*batches, chain=None, start=NOW):
    """Apply batches one after the other, a second apart; return the chain and the outcomes."""
    kinds = []
    for number, batch in enumerate(batches):
        applied = apply(chain, batch, now=start + number * 1000, limits=LIMITS)
        chain = applied.chain
        kinds.append([outcome.kind for outcome in applied.outcomes])
        assert [outcome.request for outcome in applied.outcomes] == list(batch)
    return chain, kinds


PENDING = run([stamp("early", b"\x07")])[0]
STATES = {
    "absent": None,
    "pending": PENDING,
    "open": run([create()])[0],
    "acked": run([create(), FINISH])[0],
    "failed": run([create(), fail()])[0],
    "never created": expire(PENDING, NOW + 4 * DAY),
}


@pytest.mark.parametrize("state", ["acked", "failed", "never created"])
def test_a_finished_chain_does_not_change(state):
    chain = STATES[state]
    assert chain.event_pending
    assert chain.due_at == chain.ended_at + 60_000
    assert expire(chain, NOW + 100 * DAY) is chain


def test_create_opens_the_chain_with_its_stamp_and_settings():
    chain, _ = run([create(timeout=60, idle_timeout=5, detail={"a": 1})])
    assert (chain.status, chain.stamp, chain.event_pending) == ("open", b"\x01", False)
    assert (chain.started, chain.finished, chain.version) == (1, 0, 1)
    assert chain.created_at == chain.first_seen_at == chain.last_stamp_at == NOW
    assert (chain.deadline, chain.due_at) == (NOW + 60_000, NOW + 5000)
    assert chain.detail == '{"a":1}'


UNCOUNTED = [stamp("uncounted")]
EQUAL = [stamp("more", b"\x02", finished=1), stamp("less", b"\x02")]
LONG = extend(7200)


@pytest.mark.parametrize(
    ("batches", "fields"),
    [
        # A create without a timeout has the default one.
        ([[create()]], {"deadline": NOW + DAY}),
        # The shortest is a millisecond.
        ([[create(timeout=0.0001)]], {"deadline": NOW + 1}),
        # A chain is acked when it is created, its stamp is zero and its counts are equal.
        ([[create()], [FINISH]], {"status": "acked", "ended_at": NOW + 1000, "reason": None}),
        ([[create()], UNCOUNTED], {"status": "open", "stamp": b"\0"}),
        ([[create()], UNCOUNTED, EQUAL], {"status": "acked"}),
        # A stamp may come before the create.
        ([[FINISH]], {"status": "pending", "stamp": b"\x01", "pending_deadline": NOW + 4 * DAY}),
        ([[FINISH], [create()]], {"status": "acked", "pending_deadline": None}),
        ([[stamp("a"), stamp("b")]], {"status": "pending", "stamp": b"\0"}),
        # A fail before the create is kept.
        ([[fail()]], {"status": "pending", "failing": "broken"}),
        (
            [[fail()], [create(detail={"a": 1})]],
            {"status": "failed", "reason": "broken", "detail": '{"a":1}'},
        ),
        # A fail wins over a zero stamp of the same batch, and the first fail gives the reason.
        ([[create(), FINISH, fail()]], {"status": "failed", "reason": "broken", "stamp": b"\0"}),
        ([[create()], [fail("f", None), fail("g", "other")]], {"reason": "fail was asked"}),
        # An extend overrides the timeout of the create, in any order.
        ([[create(timeout=60)], [LONG]], {"deadline": NOW + 1000 + 7_200_000}),
        ([[stamp("s")], [create(timeout=60), LONG]], {"deadline": NOW + 1000 + 7_200_000}),
        ([[stamp("s")], [LONG, create(timeout=60)]], {"deadline": NOW + 1000 + 7_200_000}),
        ([[LONG], [create(timeout=60)]], {"deadline": NOW + 7_200_000}),
        # While a chain is pending, only its pending deadline counts.
        ([[extend(1)]], {"deadline": NOW + 1000, "effective_deadline": NOW + 4 * DAY}),
        # Its end may be later: a create may come, and an extend may have set its deadline.
        ([[fail()]], {"latest_end": NOW + 4 * DAY}),
        ([[extend(1)]], {"latest_end": NOW + 4 * DAY}),
        ([[extend(5 * 86_400)]], {"latest_end": NOW + 5 * DAY}),
        ([[create(timeout=6000)], [extend(1)]], {"deadline": NOW + 2000}),
        # Only a stamp is progress.
        ([[create(idle_timeout=10)], [extend(1000)]], {"last_stamp_at": NOW}),
    ],
)
def test_the_chain_after_valid_requests(batches, fields):
    chain, kinds = run(*batches)
    assert {name: getattr(chain, name) for name in fields} == fields
    assert {kind for batch in kinds for kind in batch} == {"applied"}


def test_a_chain_without_time_outs_has_no_deadline():
    assert apply(None, [create()], now=NOW).chain.deadline is None
    assert apply(None, [FINISH], now=NOW).chain.effective_deadline is None


def test_a_used_id_with_other_content_is_rejected():
    chain, _ = run([create(), stamp("s", b"\x06")])
    for other in (stamp("s", b"\x07"), stamp("s", b"\x06", started=1), fail("s")):
        applied = apply(chain, [other], now=NOW)
        assert isinstance(applied.outcomes[0].error, RequestIdReused)
        assert applied.chain is chain
    assert run([stamp("a", b"\x01"), stamp("a", b"\x02")])[1] == [["applied", "rejected"]]


@pytest.mark.parametrize("state", ["open", "acked", "failed"])
def test_another_create_is_rejected_whatever_its_id(state):
    """A tracker's second start of a tag has the id of the first."""
    (outcome,) = apply(STATES[state], [create(detail={"run": 2})], now=NOW).outcomes
    assert isinstance(outcome.error, TagExists)
    assert f"'t' already exists: it is {state}" in str(outcome.error)
    assert apply(STATES[state], [create()], now=NOW).outcomes[0].kind == "duplicate"


def test_the_id_of_a_rejected_request_is_not_used():
    second = create("two", b"\2")
    applied = apply(None, [create(), second, stamp("two", b"\3"), second], now=NOW)
    kinds = [outcome.kind for outcome in applied.outcomes]
    assert kinds == ["applied", "rejected", "applied", "rejected"]
    assert isinstance(applied.outcomes[1].error, TagExists)
    assert isinstance(applied.outcomes[3].error, TagExists)  # creates go first
    assert applied.chain.stamp == b"\2"


@pytest.mark.parametrize("state", ["absent", "pending"])
def test_a_create_that_is_rejected_does_not_decide_the_length_of_stamps(state):
    refused, kept = create("no", b"\x05" * 4, resume={"step_functions": "token"}), stamp("s")
    applied = apply(STATES[state], [kept, refused], now=NOW, limits=Limits(resumes=frozenset()))
    assert [outcome.kind for outcome in applied.outcomes] == ["applied", "rejected"]
    assert (len(applied.chain.stamp), applied.chain.status) == (1, "pending")


WRONG = stamp("wrong", b"\x01\x02")


@pytest.mark.parametrize("state", ["acked", "failed", "never created"])
def test_a_request_that_is_rejected_once_is_rejected_after_the_end(state):
    chain = STATES[state]
    used = "early" if state == "never created" else "c"
    (length, reused, second), outcomes = (WRONG, stamp(used, b"\x05"), create("two")), []
    for request in (length, reused, second):
        applied = apply(chain, [request], now=NOW + DAY)
        assert applied.chain is chain
        outcomes += applied.outcomes
    assert [outcome.kind for outcome in outcomes] == ["rejected"] * 3
    kinds = [BufferLengthsUnequal, RequestIdReused, TagExists]
    assert [type(outcome.error) for outcome in outcomes] == kinds
    ended = rfc3339(chain.ended_at)
    assert str(outcomes[2].error) == f"tag: 't' already exists: it is {state}, since {ended}"


def test_a_create_of_another_length_fails_the_chain_at_once():
    pending, _ = run([stamp("a", b"\x01\x02", started=1), stamp("b", b"\x04\x00")])
    chain, kinds = run([create(stamp=b"\xf0" * 4), stamp("s", b"\x0f" * 4)], chain=pending)
    assert kinds == [["applied"] * 2]
    assert (chain.status, chain.event_pending, chain.started) == ("failed", True, 2)
    assert "has 4 bytes" in chain.reason
    assert "stamps of 2 bytes" in chain.reason
    # The sum of all stamps, cut to the length of the create's.
    assert chain.stamp == bytes.fromhex("fafdffff")
    assert run([create(stamp=b"\x08")], chain=pending)[0].stamp == b"\x0d"
    assert run([stamp("late", b"\x01" * 4), WRONG], chain=chain)[1] == [["late", "rejected"]]
    failing, _ = run([fail()], chain=pending)
    assert run([create()], chain=failing)[0].reason == "broken"


def test_a_sender_that_gives_the_reason_never_created_changes_no_rule():
    chain, _ = run([create()], [fail("f", "never created")])
    assert chain.created
    assert run([create("other"), stamp("s")], chain=chain)[1] == [["rejected", "late"]]


def test_progress_keeps_a_chain_alive_without_index_writes():
    chain, _ = run([create(timeout=1000, idle_timeout=10)])
    due = chain.due_at
    for second in range(1, 10):
        chain, _ = run([stamp(f"s{second}", b"\x02")], chain=chain, start=NOW + second * 1000)
        assert chain.due_at == due
    assert chain.effective_deadline == NOW + 19_000
    postponed = expire(chain, NOW + 10_000)
    assert (postponed.status, postponed.due_at) == ("open", NOW + 19_000)
    assert expire(postponed, NOW + 19_000).reason == "timed out"


def test_no_reordering_acks_more_units_than_are_tolerated():
    """Of a tree whose stamps arrive in any order, and in part: those known to be outstanding."""
    tree = {1: (2, 3), 2: (4, 5), 3: (6,), 4: (), 5: (), 6: ()}
    acked = set()
    for tolerated in (1, 2, 3):
        root = create(stamp=traced(1), tolerated_units=tolerated)
        for arrived in itertools.chain.from_iterable(itertools.combinations(tree, n) for n in tree):
            units = [unit for unit in arrived for _ in (1, 2)]  # each twice
            steps = [
                stamp(
                    f"s{unit}", sum_of((unit, *tree[unit]), 16), started=len(tree[unit]), finished=1
                )
                for unit in units[::-1]
            ]
            chain, _ = run(steps[:3], [root], steps[3:])
            ended = chain if chain.final else expire(chain, NOW + 2 * DAY)
            started = {1, *(child for unit in arrived for child in tree[unit])}
            left = started - {*arrived}
            if ended.status == "acked" and left:
                assert 0 < len(left) <= tolerated, arrived
                detail = event_detail(ended)
                assert (detail["status"], detail["tolerated_units"]) == ("acked", tolerated)
                acked.add((tolerated, len(left)))
            elif {*arrived} <= started and left:
                assert (ended.status, len(left) > tolerated) == ("failed", True), arrived
    assert acked == {(1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (3, 3)}


@pytest.mark.parametrize(
    ("missing", "early", "tolerated", "status"),
    [
        (100, 99, 1, "failed"),
        (60, 50, 40, "failed"),
        (200, 0, 200, "acked"),
        (200, 0, 199, "failed"),
    ],
)
def test_a_stamp_that_should_name_the_outstanding_units_and_does_not(
    missing, early, tolerated, status
):
    """So many finishes overtook their starts that the stamp names nobody; the counts say few."""
    units, others = range(1, missing + 1), range(1001, 1001 + early)
    left = create(stamp=sum_of(units, 16), started=missing, tolerated_units=tolerated)
    overtaken = [stamp("s", sum_of(others, 16), finished=early)] if early else []
    assert expire(run([left, *overtaken])[0], NOW + 2 * DAY).status == status


@pytest.mark.parametrize("batches", [1, 4])
def test_counts_beyond_64_bits_tell_an_event_no_units(batches):
    much = [stamp(f"s{n}", traced(n + 1), started=2**63 - 1) for n in range(4)]
    requests = [create(stamp=traced(9)), *much]
    chain, _ = run(*([requests] if batches == 1 else [[one] for one in requests]), [fail()])
    detail = event_detail(chain)
    assert (detail["started"], detail["outstanding_units"]) == (2**63 - 1, None)
    assert (detail["outstanding_named"], detail["outstanding_complete"]) == (5, False)
    old = replace(STATES["open"], stamp=traced(9), started=2**64)
    assert event_detail(run([much[0]], [fail()], chain=old)[0])["outstanding_units"] is None


RESUME = {"step_functions": "token"}


def test_whoever_waits_is_reported_with_the_event():
    opened, _ = run([create(resume=RESUME)])
    assert (opened.resume, opened.undelivered) == ('{"step_functions":"token"}', ())
    assert "token" not in repr(opened)
    acked, _ = run([FINISH], chain=opened)
    assert acked.undelivered == ("event", "step_functions")
    assert expire(opened, NOW + DAY).undelivered == ("event", "step_functions")
    published = mark_delivered(acked, ["event"], now=NOW)
    assert (published.undelivered, published.due_at) == (("step_functions",), acked.due_at)
    assert published.resume == opened.resume
    resumed = mark_delivered(published, ["step_functions"], now=NOW + 1)
    assert (resumed.undelivered, resumed.due_at, resumed.version) == ((), None, acked.version + 2)
    # A token is a secret: it is gone with the write that marks its delivery.
    assert (resumed.resume, resumed.resumed_at) == (None, NOW + 1)
    assert mark_delivered(acked, ["step_functions"], now=NOW).undelivered == ("event",)


def refusals(chain, refused, *, delivered=(), days=2):
    """Return the minutes of the attempts, each of which is refused, and the chain after them."""
    now, minutes = NOW, []
    while now is not None and now < NOW + days * DAY:
        minutes.append((now - NOW) // 60_000)
        chain = mark_delivered(chain, delivered, now=now, refused=refused)
        now = chain.due_at
    return minutes, chain


def test_a_refused_callback_is_repeated_for_a_day():
    opened, _ = run([create(resume=RESUME)])
    acked, _ = run([FINISH], chain=opened)
    refused = {"step_functions": "AccessDeniedException"}
    minutes, last = refusals(acked, refused, delivered=["event"])
    assert minutes[:9] == [0, 1, 3, 7, 15, 31, 63, 123, 183]
    assert 24 * 60 <= minutes[-1] < 25 * 60
    assert (last.undelivered, last.resume, last.resumed_at) == ((), None, None)
    assert (last.resume_failed, last.refused_at) == ("AccessDeniedException", NOW)


def test_each_channel_has_a_day_and_a_back_off_of_its_own():
    opened, _ = run([create(resume=RESUME)])
    chain, _ = run([FINISH], chain=opened)
    task, (minute, hour) = "step_functions", (60_000, 3_600_000)
    assert chain.due_channels(NOW) == ["event", task]
    for at in range(25):
        chain = mark_delivered(chain, [], now=NOW + at * hour, refused={"event": "bad"})
    # The callback, in an outage so far, is refused for the first time: the event waits on.
    now = NOW + 24 * hour + minute
    chain = mark_delivered(chain, [], now=now, refused={task: "no"})
    assert (chain.resume_failed, chain.refused_at) == (None, NOW)
    assert (chain.due_at, chain.due_channels(now)) == (now + minute, [])
    assert chain.due_channels(now + minute) == [task]
    chain = mark_delivered(chain, [], now=now + minute, refused={task: "no"})
    assert chain.due_at == now + 3 * minute
    # The event goes out, and the callback keeps its times.
    chain = mark_delivered(chain, ["event"], now=now + 2 * minute)
    assert (chain.undelivered, chain.due_at) == ((task,), now + 3 * minute)
    assert mark_delivered(chain, [], now=now + DAY - 1, refused={task: "no"}).undelivered
    last = mark_delivered(chain, [], now=now + DAY, refused={task: "no"})
    assert (last.undelivered, last.resume_failed) == ((), "no")
    assert (last.refused, last.due_at) == (None, None)
    # Code before this wrote one time for both: the callback's day begins anew.
    old = replace(chain, refused=None, refused_at=NOW - DAY)
    assert mark_delivered(old, [], now=NOW, refused={task: "no"}).resume is not None


def test_an_acker_without_the_permission_rejects_who_waits():
    limits = Limits(resumes=frozenset({"lambda"}))
    applied = apply(None, [create(resume=RESUME)], now=NOW, limits=limits)
    assert applied.chain is None
    (outcome,) = applied.outcomes
    message = "resume: 'step_functions', expected lambda: see this acker's setting resume"
    assert (outcome.kind, str(outcome.error)) == ("rejected", message)
    applied = apply(None, [create(resume={"lambda": "i"})], now=NOW, limits=limits)
    assert applied.chain.status == "open"


def attempt(token, **options):
    return create(resume={"step_functions": token}, **options)


def retried(*attempts, chain=None):
    """Apply attempts, each a token and when it was sent, one a write; return the last chain."""
    for token, sent_at in attempts:
        applied = apply(chain, [attempt(token)], now=NOW + 100, sent_at=[sent_at])
        chain, (outcome,) = applied
        assert outcome.error is None
    return chain


@pytest.mark.parametrize("order", [*itertools.permutations([("A", 1), ("B", 2), ("C", 3)])])
def test_the_attempt_that_was_sent_last_waits(order):
    chain = retried(*order, *order)
    assert (chain.resume, chain.resume_sent_at) == ('{"step_functions":"C"}', 3)
    # A repeat of the attempt that was sent later is no newer attempt.
    assert apply(chain, [attempt("C")], now=NOW + DAY).chain is chain
    repeats, times = [attempt(token) for token, _ in order], [sent_at for _, sent_at in order]
    assert apply(None, repeats, now=NOW, sent_at=times).chain.resume == chain.resume
    other = attempt("D", detail={"other": 1})
    assert isinstance(apply(chain, [other], now=NOW).outcomes[0].error, TagExists)


def test_an_ended_chain_answers_a_new_attempt_at_once():
    chain, _ = run([FINISH], chain=retried(("A", 1)))
    refused = {"step_functions": "no"}
    chain = mark_delivered(chain, ["event"], now=NOW + 2000, refused=refused)
    assert apply(chain, [attempt("A"), create()], now=NOW + 3000, sent_at=[9, 9]).chain is chain
    again = retried(("B", 2), chain=chain)
    assert (again.status, again.ended_at, again.stamp) == ("acked", chain.ended_at, chain.stamp)
    assert again.due_channels(NOW + 3000) == ["step_functions"]
    assert again.due_at <= NOW + 100 + 60_000
    answered = mark_delivered(again, ["step_functions"], now=NOW + 4000)
    assert (answered.resume, answered.resumed_at, answered.resume_pending) == (
        None,
        NOW + 4000,
        False,
    )
    assert retried(("A", 1), ("B", 2), ("C", 1), chain=answered) is answered
    assert retried(("C", 3), chain=answered).resumed_at is None


@pytest.mark.parametrize("by_ids", [True, False])
def test_an_adopted_chain_ends_at_zero_whoever_stamps(by_ids):
    """xor-ack-dynamodb has no counts: those of others are not equal."""
    adopted = Chain("t", xor(traced(1), traced(2), traced(3)), "open")
    chain, _ = run([Request.stamp_("t", "step-1", finishes=[1])], chain=adopted)
    assert (chain.adopted, chain.status, chain.finished) == (True, "open", 1)
    chain = replace(chain, stamp=xor(chain.stamp, traced(2)))  # as that program writes
    if by_ids:
        chain, _ = run([Request.stamp_("t", "step-3", finishes=[3])], chain=chain)
    else:
        chain = expire(replace(chain, stamp=bytes(648)), NOW + DAY)
    assert (chain.status, chain.event_pending, chain.created_at) == ("acked", True, None)
    created, _ = run([create(stamp=traced(1)), stamp("s", traced(1), finished=2)])
    assert created.status == "open"


def test_a_step_of_one_unit_after_one_of_several_finishes_nothing():
    """Also if it carries a stamp, whose units nobody can see."""
    root = Request.create("t", "c", starts=[1, 2], cells=0)
    both = Request.stamp_("t", "steps-1", finishes_once=[2, 1], starts=[3], cells=0)
    own = Request.stamp_("t", f"step-{1:016x}", xor(plain(1), plain(4)), started=1, finished=1)
    for batches in ([[root], [both], [own, own]], [[own], [both, root]], [[both, own, root]]):
        chain, _ = run(*batches, [both, own])
        assert (chain.stamp, chain.started, chain.finished) == (xor(plain(3), plain(4)), 4, 2)
    other = Request.stamp_("t", own.id, plain(1), finished=1)
    assert isinstance(apply(chain, [other], now=NOW).outcomes[0].error, RequestIdReused)
    # Another request whose id looks like a step's, but which does not finish the unit.
    other_step = Request.stamp_("t", f"step-{2:016x}", starts=[9], cells=0)
    after, _ = run([other_step], chain=chain)
    assert after.stamp == xor(chain.stamp, plain(9))


def note(id="n", **found):
    return Request("note", "t", id, **found)


FOUND = {"text": "all have l_linenumber = 7", "missing": [5], "missing_count": 21_440}
NOTED = {"text": FOUND["text"], "missing": ["0000000000000005"], "missing_count": 21_440}


@pytest.mark.parametrize("by", ["note", "fail"])
@pytest.mark.parametrize(
    ("stamp_", "named"),
    [(b"\1" * 8, 0), (b"\1", 0), (traced(9), 1)],
    ids=["plain", "opaque", "traced"],
)
def test_the_event_of_a_failed_chain_has_its_note(by, stamp_, named):
    found = [note(**FOUND), fail()] if by == "note" else [Request("fail", "t", "f", **FOUND)]
    chain, _ = run([create(stamp=stamp_, timeout=60), *found])
    detail = event_detail(chain)
    assert (detail["status"], detail["note"]) == ("failed", NOTED)
    # Where the stamp names none, the note does.
    expected = [9] if named else [5]
    assert detail["outstanding"] == [f"{unit:016x}" for unit in expected]
    assert (detail["outstanding_named"], detail["outstanding_complete"]) == (named, bool(named))
    assert ChainStatus(chain, NOW).outstanding == expected
    assert FOUND["text"] in ChainStatus(chain, NOW).note_text
