"""A chain that cannot be read fails its own messages and no others."""

from tests.support.fakes import NO_WAIT, FakeBus, FakeDeadLetters
from xorack.chain import Chain
from xorack.consume import Message, consume
from xorack.memory import MemoryStore
from xorack.messages import Request, pack


class DamagedStore(MemoryStore):
    """Holds an item that is no chain: as one that some other program wrote under a chain's tag."""

    def read(self, tags):
        if "damaged" in tags:
            raise KeyError("B")
        return super().read(tags)


def test_a_damaged_item_does_not_hold_up_the_batch():
    store = DamagedStore()
    store.write(None, Chain("good", b"\1", "open", rev=1))
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
