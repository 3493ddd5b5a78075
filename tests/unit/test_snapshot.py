"""The unfinished chains with the nearest deadlines, as read from the index of deadlines."""

import pytest

from tests.support.chains import make_chain
from xorack.ops import snapshot

NOW = 1_000_000_000


def chain(tag, **fields):
    return make_chain(tag, **{"status": "open", "first_seen_at": NOW, "created_at": NOW, **fields})


class Index(dict):
    """A store with these chains in its index."""

    def first_due(self, limit):
        return list(self)[:limit]

    def read(self, tags, on_invalid=None):
        return {tag: self.pop(tag) for tag in tags}  # each chain is read once


def tags(chains, limit):
    found = snapshot.read_snapshot(Index((one.tag, one) for one in chains), limit)
    return [status.chain.tag for status in found.chains]


def test_chains_are_sorted_by_deadline_and_those_without_come_last():
    # With an idle timeout, the index may have an earlier time than the deadline.
    postponed = chain("postponed", deadline=NOW + 900, idle_timeout=500, last_stamp_at=NOW)
    assert tags([chain("never"), postponed, chain("b", deadline=NOW + 100)], 5) == [
        "b",
        "postponed",
        "never",
    ]


@pytest.mark.parametrize(("events", "shown"), [(7, 4), (500, 0)])
def test_pending_events_take_the_place_of_chains_only_in_large_numbers(events, shown):
    ended = {"status": "acked", "ended_at": NOW, "event_pending": True}
    pending = [chain(f"ended{n}", **ended) for n in range(events)]
    assert len(tags([*pending, *(chain(f"t{n}") for n in range(9))], 4)) == shown
