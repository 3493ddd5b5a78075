"""What tasks say of files, and what comes of it."""

from pipeline.files import POSITION_BITS, Said, gathered, position_of
from xorack import traced, unit_id, xor


def test_what_is_said_in_parts_is_put_together():
    parts = [traced(unit_id(at)) for at in range(3)]
    tasks = [
        {0: Said(5, parts[0], bounds=0b0110), 7: Said(1, parts[1], bounds=-1)},
        {0: Said(7, parts[2], bounds=0b1010)},
    ]
    assert gathered(tasks) == {
        0: Said(12, xor(parts[0], parts[2]), bounds=0b1100),
        7: Said(1, parts[1], bounds=-1),
    }
    assert tasks[0][0] == Said(5, parts[0], bounds=0b0110)


def test_what_is_wrong_is_said_once_and_always_the_same():
    tasks = [{2: Said(error="is no text")}, {2: Said(9, traced(1))}, {2: Said(error="gone")}]
    for order in (tasks, tasks[::-1]):
        assert gathered(order)[2] == Said(9, traced(1), "gone")


def test_nothing_said():
    assert gathered([]) == {}


def test_positions():
    assert position_of((7 << POSITION_BITS) + 12) == 12
