"""The status of a chain."""

import pytest

from xorack import plain, traced
from xorack.acker.memory_store import MemoryStore
from xorack.core.chain import Chain
from xorack.core.errors import TagNotFound
from xorack.core.stamp import xor
from xorack.ops.status import ChainStatus, read_status

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
def test_progress_is_rounded_down_and_below_100(started, finished, percent):
    assert ChainStatus(chain(started=started, finished=finished), NOW).percent == percent


def test_an_acked_chain_is_at_100_without_counts():
    assert ChainStatus(chain(status="acked", ended_at=5000), NOW).percent == 100.0


def test_the_age_is_from_the_create_to_the_end():
    assert ChainStatus(chain(), NOW).age_ms == NOW - 2000
    assert ChainStatus(chain(status="acked", ended_at=5000), NOW).age_ms == 3000
    assert ChainStatus(chain(status="pending", created_at=None), NOW).age_ms == NOW - 1000
    assert ChainStatus(chain(first_seen_at=None, created_at=None), NOW).age_ms is None
    assert ChainStatus(chain(created_at=NOW + 50), NOW).age_ms == 0  # another machine's clock


def test_the_deadline_is_the_nearer_of_the_two():
    assert ChainStatus(chain(), NOW).deadline is None
    assert ChainStatus(chain(deadline=9000), NOW).deadline == 9000
    late = chain(deadline=9000, idle_timeout=500, last_stamp_at=3000)
    assert ChainStatus(late, NOW).deadline == 3500
    ended = chain(status="failed", ended_at=4000, deadline=9000)
    assert ChainStatus(ended, NOW).deadline is None


def test_outstanding_units():
    two = ChainStatus(chain(stamp=xor(traced(5), traced(3)), started=2), NOW)
    assert (two.outstanding, two.outstanding_complete) == ([3, 5], True)
    one = ChainStatus(chain(stamp=plain(7), started=4, finished=3), NOW)
    assert (one.outstanding, one.outstanding_complete) == ([7], True)
    mixture = ChainStatus(chain(stamp=xor(plain(7), plain(8)), started=2), NOW)
    assert (mixture.outstanding, mixture.outstanding_complete) == ([], False)
    opaque = ChainStatus(chain(stamp=b"\x29" * 64), NOW)
    assert (opaque.outstanding, opaque.outstanding_complete) == ([], False)


def test_json_has_times_as_text_and_ids_as_hex():
    value = ChainStatus(
        chain(stamp=traced(255), started=1, deadline=1_700_000_000_000, failing="x"), NOW
    ).to_json()
    assert value["deadline"] == "2023-11-14T22:13:20.000Z"
    assert value["created_at"] == "1970-01-01T00:00:02.000Z"
    assert value["ended_at"] is None
    assert value["age_seconds"] == (NOW - 2000) / 1000
    assert value["outstanding"] == ["00000000000000ff"]
    assert value["stamp_bytes"] == 648
    assert value["reason"] == "x"


def test_a_chain_that_does_not_exist():
    with pytest.raises(TagNotFound):
        read_status(MemoryStore(), "t")
