"""The simulated table evaluates expressions as DynamoDB does."""

import pytest

from tests.simulation.table import holds, updated

ITEM = {"n": {"N": "3"}, "s": {"BS": [b"a"]}, "t": {"S": "x"}}
NAMES = {f"#{name}": name for name in ("n", "s", "t", "other")}
VALUES = {":2": {"N": "2"}, ":3": {"N": "3"}, ":x": {"S": "x"}, ":b": {"BS": [b"b", b"a"]}}
CALL = {"ExpressionAttributeNames": NAMES, "ExpressionAttributeValues": VALUES}


@pytest.mark.parametrize(
    ("condition", "item", "expected"),
    [
        (None, None, True),
        ("attribute_not_exists(#t)", None, True),
        ("attribute_exists(#t) AND #t = :x", ITEM, True),
        ("attribute_exists(#t) AND #t = :3", ITEM, False),
        ("#n <= :3", ITEM, True),
        ("#n <= :2", ITEM, False),
        ("#n < :3", ITEM, False),
        ("#n = :3", None, False),
        ("#other <= :3", ITEM, False),
        ("attribute_not_exists(#n) OR #n <= :3", ITEM, True),
        ("#n = :2 OR #n = :3 AND #t = :3", ITEM, False),
        ("(#n = :2 OR #n = :3) AND #t = :x", ITEM, True),
    ],
)
def test_a_condition(condition, item, expected):
    assert holds(condition, item, CALL) is expected


def test_an_unknown_condition_is_an_error():
    with pytest.raises((AssertionError, KeyError)):
        holds("begins_with(#t, :x)", ITEM, CALL)


@pytest.mark.parametrize(
    ("update", "changes"),
    [
        ("SET #t = :3, #other = :x", {"t": {"N": "3"}, "other": {"S": "x"}}),
        (
            "SET #n = if_not_exists(#n, :2), #other = if_not_exists(#other, :2)",
            {"other": {"N": "2"}},
        ),
        ("SET #other = :2 ADD #s :b", {"other": {"N": "2"}, "s": {"BS": [b"a", b"b"]}}),
        ("ADD #n :2, #other :b", {"n": {"N": "5"}, "other": {"BS": [b"a", b"b"]}}),
    ],
)
def test_an_update(update, changes):
    assert updated(ITEM, {"UpdateExpression": update, **CALL}) == {**ITEM, **changes}


def test_an_update_removes_attributes():
    update = "SET #t = :x REMOVE #n, #other"
    assert updated(ITEM, {"UpdateExpression": update, **CALL}) == {"s": ITEM["s"], "t": ITEM["t"]}
