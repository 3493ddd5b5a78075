"""The unfinished chains with the nearest deadlines, as read from the index of deadlines."""

import pytest

from tests.support.chains import make_chain
from xorack.ops.browse import nearest_deadlines


class Index(dict):
    """A store with these chains in its index."""

    def first_due(self, limit):
        return list(self)[:limit]

    def read(self, tags, _):
        return {tag: self.pop(tag) for tag in tags}  # each chain is read once


@pytest.mark.parametrize(("events", "shown"), [(7, [0, 1, 2, 3, 4]), (500, [])])
def test_pending_events_take_the_place_of_chains_only_in_large_numbers(events, shown):
    ended = (
        make_chain(f"ended{n}", status="acked", ended_at=1, event_pending=True)
        for n in range(events)
    )
    chains = [*ended, *(make_chain(f"t{n}", status="open") for n in range(9))]
    found = nearest_deadlines(Index((each.tag, each) for each in chains), 4, None)
    assert [chain.tag for chain in found] == [f"t{n}" for n in shown]
