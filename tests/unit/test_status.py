"""How chains stand: what is made of a chain as it is kept."""

import pytest

from xorack import plain, traced
from xorack.acker.memory_store import MemoryStore
from xorack.core.chain import Chain
from xorack.core.errors import TagNotFound
from xorack.core.stamp import xor
from xorack.ops.status import look_up, status_of

NOW = 1_000_000


def chain(**fields):
    return Chain("t", **{"status": "open", "first_seen_at": 1000, "created_at": 2000, **fields})


@pytest.mark.parametrize(
    ("started", "finished", "percent"),
    [
        (0, 0, None),
        (3, 0, 0.0),
        (3, 1, 33.3),
        (3, 2, 66.6),
        (10_000, 9_999, 99.9),
        (3, 3, 99.9),
        (1, 5, 99.9),
    ],
)
def test_progress_is_rounded_down_and_only_what_is_done_is_done(started, finished, percent):
    assert status_of(chain(started=started, finished=finished), NOW).percent == percent


def test_an_acked_chain_is_done_counted_or_not():
    assert status_of(chain(status="acked", ended_at=5000), NOW).percent == 100.0


def test_the_age_ends_with_the_chain_and_begins_with_its_create():
    assert status_of(chain(), NOW).age_ms == NOW - 2000
    assert status_of(chain(status="acked", ended_at=5000), NOW).age_ms == 3000
    assert status_of(chain(status="pending", created_at=None), NOW).age_ms == NOW - 1000
    assert status_of(chain(first_seen_at=None, created_at=None), NOW).age_ms is None
    assert status_of(chain(created_at=NOW + 50), NOW).age_ms == 0  # another machine's clock


def test_the_deadline_is_the_nearer_of_two():
    assert status_of(chain(), NOW).deadline is None
    assert status_of(chain(deadline=9000), NOW).deadline == 9000
    late = chain(deadline=9000, idle_timeout=500, last_stamp_at=3000)
    assert status_of(late, NOW).deadline == 3500
    ended = chain(status="failed", ended_at=4000, deadline=9000)
    assert status_of(ended, NOW).deadline is None


def test_what_is_outstanding_is_named_as_far_as_the_stamp_tells():
    two = status_of(chain(stamp=xor(traced(5), traced(3)), started=2), NOW)
    assert (two.outstanding, two.outstanding_complete) == ((3, 5), True)
    one = status_of(chain(stamp=plain(7), started=4, finished=3), NOW)
    assert (one.outstanding, one.outstanding_complete) == ((7,), True)
    mixture = status_of(chain(stamp=xor(plain(7), plain(8)), started=2), NOW)
    assert (mixture.outstanding, mixture.outstanding_complete) == ((), False)
    opaque = status_of(chain(stamp=b"\x29" * 64), NOW)
    assert (opaque.outstanding, opaque.outstanding_complete) == ((), False)


def test_json_has_times_as_text_and_ids_as_hex():
    told = status_of(
        chain(stamp=traced(255), started=1, deadline=1_700_000_000_000, failing="x"), NOW
    ).to_json()
    assert told["deadline"] == "2023-11-14T22:13:20.000Z"
    assert told["created_at"] == "1970-01-01T00:00:02.000Z"
    assert told["ended_at"] is None
    assert told["age_seconds"] == (NOW - 2000) / 1000
    assert told["outstanding"] == ["00000000000000ff"]
    assert told["stamp_bytes"] == 648
    assert told["reason"] == "x"


def test_a_chain_that_is_not_there():
    with pytest.raises(TagNotFound):
        look_up(MemoryStore(), "t")
