"""What tasks say of files, and what comes of it."""

from pipeline.files import POSITION_BITS, Said, about, gathered, position_of
from xorack import traced, unit_id, xor


def test_what_is_said_in_parts_is_put_together():
    parts = [traced(unit_id(at)) for at in range(3)]
    rows = [
        (-1, about(parts[0], 5)),
        (-8, about(parts[1], 1)),
        (-1, about(parts[2], 7)),
    ]
    assert gathered(rows) == {0: Said(12, xor(parts[0], parts[2])), 7: Said(1, parts[1])}


def test_what_is_wrong_is_said_once_and_always_the_same():
    rows = [(-3, about(error="is no text")), (-3, about(traced(1), 9)), (-3, about(error="gone"))]
    for order in (rows, rows[::-1]):
        assert gathered(order)[2].error == "gone"


def test_nothing_said():
    assert gathered([]) == {}


def test_positions():
    assert position_of((7 << POSITION_BITS) + 12) == 12
