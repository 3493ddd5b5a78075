"""A chain that cannot be read fails its own messages and no others."""

import pytest

from tests.support.fakes import NO_WAIT, FakeBus, FakeDeadLetters
from tests.support.services import Message, consume
from xorack.acker.memory_store import MemoryStore
from xorack.aws.item import decode
from xorack.core.chain import Chain
from xorack.core.errors import NotAChain
from xorack.core.message import pack
from xorack.core.request import Request


class DamagedStore(MemoryStore):
    """Holds an item that is no chain: as one that some other program wrote under a chain's tag."""

    def read(self, tags):
        if "damaged" in tags:
            raise KeyError("B")
        return super().read(tags)


def test_a_damaged_item_does_not_hold_up_the_batch():
    store = DamagedStore()
    store.write(None, Chain("good", b"\1", "open", version=1))
    bus, letters = FakeBus(), FakeDeadLetters()
    bodies = [
        *pack([Request.stamp_("damaged", "a", b"\1")]),
        *pack([Request.stamp_("good", "a", b"\1")]),
        "no JSON",
    ]
    messages = [Message(str(number), body) for number, body in enumerate(bodies)]
    done = consume(messages, store, bus, letters, policy=NO_WAIT, workers=1)
    assert list(done.failed) == ["0"]
    assert "KeyError" in done.failed["0"]
    assert [event["tag"] for event in bus.events] == ["good"]
    assert len(letters.letters) == 1


@pytest.mark.parametrize(
    ("item", "why"),
    [
        ({"stamp": {"S": "text"}}, "its stamp is of type S, expected a Binary"),
        ({"status": {"NULL": True}}, "its status is of type NULL, expected a String"),
        ({"started": {"N": "1.5"}}, "its started is 1.5, expected a whole number"),
        (
            {"created_at": {"S": "yesterday"}},
            "its created_at is of type S, expected a whole number",
        ),
        (
            {"deadline": {"N": "253402300800000"}},
            "its deadline is 253402300800000, expected milliseconds since the epoch",
        ),
        ({"ended_at": {"N": "-1"}}, "its ended_at is -1, expected milliseconds since the epoch"),
        (
            {"status": {"S": "done"}},
            "its status is 'done', expected pending or open or acked or failed",
        ),
    ],
)
def test_what_is_wrong_with_an_item_is_told(item, why):
    with pytest.raises(NotAChain) as caught:
        decode({"tag": {"S": "evil\n"}, **item}, "tag")
    assert str(caught.value) == f"tag: 'evil\\n' is not a chain item: {why}"
    assert (caught.value.tag, caught.value.reason) == ("evil\n", why)
