"""The item codec: chains as DynamoDB items."""

import pytest

from xorack.aws.item import decode, encode
from xorack.aws.schema import FLAGS
from xorack.core.chain import Chain
from xorack.core.errors import NotAChain

FULL = Chain(
    tag="t",
    stamp=b"\1\2",
    status="failed",
    started=3,
    finished=2,
    version=7,
    first_seen_at=1,
    created_at=2,
    last_stamp_at=3,
    ended_at=4,
    deadline=5,
    idle_timeout=6,
    due_at=7,
    detail='{"a":1}',
    failing="f",
    reason="r",
    marks=b"m" * 16,
    spilled=8,
    event_pending=True,
    extended=True,
)


@pytest.mark.parametrize("chain", [FULL, Chain("t"), Chain("t", deadline=0, reason="")])
def test_a_chain_survives_its_item(chain):
    assert decode(encode(chain, "key", 1000), "key") == chain


def test_an_item_has_no_attributes_for_defaults():
    item = encode(Chain("t"), "key", 1000)
    assert item["key"] == {"S": "t"}
    assert not item.keys() & {"stamp", "marks", "detail", "due_at", "due_shard", *FLAGS}
    assert "expires_at" not in item


def test_only_a_finished_chain_expires():
    assert encode(FULL, "key", 1996)["expires_at"] == {"N": "3"}
    assert "expires_at" not in encode(Chain("t", deadline=5), "key", 1996)


def test_an_item_of_key_and_stamp_is_an_open_chain():
    assert decode({"key": {"S": "t"}, "stamp": {"B": b"\1"}}, "key") == Chain("t", b"\1", "open")


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("stamp", {"S": "text"}, "of type S, expected a Binary"),
        ("status", {"NULL": True}, "of type NULL, expected a String"),
        ("started", {"N": "1.5"}, "1.5, expected a whole number"),
        ("created_at", {"S": "yesterday"}, "of type S, expected a whole number"),
        (
            "deadline",
            {"N": "253402300800000"},
            "253402300800000, expected milliseconds since the epoch",
        ),
        ("ended_at", {"N": "-1"}, "-1, expected milliseconds since the epoch"),
        ("status", {"S": "done"}, "'done', expected pending or open or acked or failed"),
    ],
)
def test_the_error_names_the_invalid_attribute(name, value, reason):
    with pytest.raises(NotAChain) as caught:
        decode({"tag": {"S": "evil\n"}, name: value}, "tag")
    assert str(caught.value) == f"tag: 'evil\\n' is not a chain item: its {name} is {reason}"
    assert (caught.value.tag, caught.value.reason) == ("evil\n", f"its {name} is {reason}")
