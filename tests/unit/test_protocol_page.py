"""docs/protocol.md shows the transitions that the code runs."""

from tools.transitions import PAGE, TRANSITIONS, updated
from xorack.core.chain import Chain


def test_the_page_shows_the_tables_of_the_code():
    page = PAGE.read_text(encoding="utf-8")
    assert updated(page) == page
    assert page.count("stateDiagram-v2") == 1


def test_no_transition_leaves_a_final_state():
    assert not [t for t in TRANSITIONS if Chain("t", status=t.source).final]
