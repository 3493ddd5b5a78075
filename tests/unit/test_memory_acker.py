"""The in-memory acker: the npm package ``ack``."""

import importlib
import sys

import pytest

from tests.support.threads import in_threads
from xorack import Acker, errors


@pytest.fixture
def events():
    return []


@pytest.fixture
def acker(events):
    """An acker whose events are noted, with True if the chain was still open."""
    acker = Acker()
    for name in ("acked", "failed"):
        acker.on(name, lambda tag, name=name: events.append((name, tag, tag in acker.storage)))
    return acker


def test_the_example_of_the_npm_package(acker, events):
    acker.add("foo", bytes.fromhex("29"))
    for stamp in ("4c", "25", "a9"):
        acker.stamp("foo", bytes.fromhex(stamp))
        assert events == []
    acker.stamp("foo", bytes.fromhex("e9"))
    assert events == [("acked", "foo", False)]
    acker.add("foo", b"\1")  # the tag is free again
    acker.stamp("foo", b"\1")
    assert events == [("acked", "foo", False)] * 2


def test_fail_removes_the_chain_and_emits_failed_also_for_an_unknown_tag(acker, events):
    acker.add("foo", b"\0\x10")
    acker.fail("foo")
    acker.stamp("foo", b"\0\x10")
    acker.fail("unknown")
    assert events == [("failed", "foo", False), ("failed", "unknown", False)]


def test_invalid_calls_raise(acker):
    acker.add("foo", b"\1")
    with pytest.raises(errors.TagExists, match="foo"):
        acker.add("foo", b"\2")
    for call, tag in ((acker.add, "bar"), (acker.stamp, "foo"), (acker.stamp, "unknown")):
        with pytest.raises(errors.ZeroBufferNoOp):
            call(tag, b"\0\0")
    with pytest.raises(errors.ArgumentError, match="tag"):
        acker.add("", b"\1")
    with pytest.raises(errors.BufferLengthsUnequal):
        acker.stamp("foo", b"\1\1")
    for invalid in ("t", "text", 5, [1], None):
        for call in (acker.add, acker.stamp):
            with pytest.raises(errors.ArgumentError, match=r"^stamp: .*, expected bytes$"):
                call("foo", invalid)
    assert acker.storage == {"foo": b"\1"}


def test_storage_is_a_read_only_copy(acker):
    acker.add("foo", b"\0\1")
    before = acker.storage
    assert before == {"foo": b"\0\1"}
    assert not before["foo"].acked
    with pytest.raises(TypeError):
        before["foo"] = b"\0"
    acker.fail("foo")
    assert before != acker.storage == {}


def test_threads_share_an_acker_and_one_of_them_ends_each_chain(acker, events):
    tags = [f"t{number}" for number in range(50)]
    for tag in tags:
        acker.add(tag, b"\1\2\4")
    stamps = [b"\1\0\0", b"\0\2\0", b"\0\0\4"]
    in_threads(lambda stamp: [acker.stamp(tag, stamp) for tag in tags], stamps)
    assert sorted(events) == sorted(("acked", tag, False) for tag in tags)


def test_without_pyee_it_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "xorack.compat.memory_acker")
    monkeypatch.setitem(sys.modules, "pyee", None)
    monkeypatch.delitem(sys.modules, "pyee.base")
    with pytest.raises(ModuleNotFoundError, match=r"^xorack.Acker needs pyee: .*extra memory"):
        importlib.import_module("xorack.compat.memory_acker")
