"""The in-memory Acker: the npm package ``ack``."""

import pytest

from xorack import Acker, errors


@pytest.fixture
def told():
    return []


@pytest.fixture
def acker(told):
    acker = Acker()
    acker.on("acked", lambda tag: told.append(("acked", tag)))
    acker.on("failed", lambda tag: told.append(("failed", tag)))
    return acker


def test_the_seeds_walk(acker, told):
    acker.add("foo", bytes.fromhex("29"))
    for stamp in ("4c", "25", "a9"):
        acker.stamp("foo", bytes.fromhex(stamp))
        assert told == []
    acker.stamp("foo", bytes.fromhex("e9"))
    assert told == [("acked", "foo")]
    assert "foo" not in acker.storage


def test_the_chain_is_gone_when_its_event_comes(acker):
    seen = []
    acker.on("acked", lambda tag: seen.append(tag in acker.storage))
    acker.add("foo", b"\x10")
    acker.stamp("foo", b"\x10")
    assert seen == [False]


def test_fail_removes_and_tells(acker, told):
    acker.add("foo", b"\0\x10")
    acker.fail("foo")
    acker.fail("foo")
    assert told == [("failed", "foo")]
    acker.stamp("foo", b"\0\x10")
    assert told == [("failed", "foo")]


def test_a_stamp_for_an_unknown_tag_is_no_error(acker, told):
    acker.stamp("nobody", b"\1")
    assert told == []


def test_add_refuses(acker):
    acker.add("foo", b"\1")
    with pytest.raises(errors.TagExists, match="foo"):
        acker.add("foo", b"\2")
    with pytest.raises(errors.ZeroBufferNoOp):
        acker.add("bar", b"\0\0")
    with pytest.raises(errors.InvalidRequest, match="tag"):
        acker.add("", b"\1")
    with pytest.raises(errors.BufferLengthsUnequal):
        acker.stamp("foo", b"\1\1")
    assert acker.storage == {"foo": b"\1"}


def test_a_tag_may_be_used_again_once_it_is_gone(acker, told):
    for _ in range(2):
        acker.add("foo", b"\1")
        acker.stamp("foo", b"\1")
    assert told == [("acked", "foo")] * 2


def test_storage_is_a_read_only_copy(acker):
    acker.add("foo", b"\0\1")
    assert acker.storage == {"foo": b"\0\1"}
    assert not acker.storage["foo"].acked
    with pytest.raises(TypeError):
        acker.storage["foo"] = b"\0"
