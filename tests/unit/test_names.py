"""Names of outstanding units."""

import itertools

import pytest

from xorack import Tracker, names_of, unit_id

TAG = "order/18"


@pytest.fixture
def tokens():
    """The units of a chain of three levels by their names, as a tracker starts them."""
    tracker = Tracker("https://queue")
    requests = []
    tracker._send = lambda *sent: requests.extend(sent)
    with tracker.step(tracker.start(TAG)) as root:
        tokens = {"oil": root.child("oil"), ("line", 3): root.child("line", 3), 17: root.child(17)}
        page = root.child("page 2")
    with tracker.step(page) as step:
        tokens["page 2", "rope"] = step.child("rope")
        deep = step.child("box", 1)
    with tracker.step(deep) as step:
        tokens["page 2", ("box", 1), b"nail"] = step.child(b"nail")
    return {**tokens, ("page 2",): page, ("page 2", ("box", 1)): deep}


def id_of(token):
    return f"{token.unit:016x}"


def test_an_events_ids_are_named_at_each_level(tokens):
    detail = {"tag": TAG, "outstanding": [id_of(token) for token in tokens.values()]}
    paths = [["page 2", "rope"], ["page 2", ("box", 1), b"nail"], ["page 3", "rope"]]
    names = names_of(detail, ["lamp", "oil", ("line", 2), ("line", 3), "17", 17, *paths])
    assert list(names) == detail["outstanding"]
    assert {name: id for id, name in names.items() if not isinstance(name, list)} == {
        name: id_of(tokens[name]) for name in ("oil", ("line", 3), 17)
    }
    paths = [name for name in tokens if isinstance(name, tuple) and name[0] == "page 2"]
    assert [names[id_of(tokens[path])] for path in paths] == [*map(list, paths)]


def test_the_root_has_its_own_name(tokens):
    assert names_of([f"{unit_id(TAG):016X}"], [], TAG) == {f"{unit_id(TAG):016x}": TAG}
    root = unit_id("bucket", "key")
    assert names_of({"outstanding": [root]}, [], "bucket", "key").popitem()[1] == ("bucket", "key")
    assert names_of({"tag": TAG, "status": "acked"}, ["oil"]) == {}
    detail = {"tag": TAG, "outstanding": [f"{unit_id(TAG):016x}"]}
    event = {"detail-type": "failed", "source": "xorack", "detail": detail}
    assert names_of(event, ["oil"]) == names_of(detail, ["oil"]) == {detail["outstanding"][0]: TAG}


def test_endless_candidates_are_read_until_each_id_has_a_name(tokens):
    numbers = itertools.count()
    assert names_of([tokens[17].unit], numbers, TAG) == {id_of(tokens[17]): 17}
    assert next(numbers) == 18
