"""Requests and messages: what is taken, what is refused, and what the reason names."""

import base64
import json
import pickle
from dataclasses import replace

import pytest

from xorack.core.errors import InvalidRequest
from xorack.core.message import MAX_BODY_BYTES, pack, parse
from xorack.core.request import Request
from xorack.core.stamp import traced

ONE = base64.b64encode(b"\1").decode()
GOOD = {"op": "stamp", "tag": "t", "id": "i", "stamp": ONE}


def body(*requests, version=1):
    return json.dumps({"version": version, "requests": list(requests)})


def test_the_protocols_example():
    message = body(
        {
            "op": "create",
            "tag": "database/file13",
            "id": "1",
            "stamp": ONE,
            "started": 1,
            "timeout": 3600,
            "idle_timeout": 600,
            "detail": {"any": ["JSON", {"object": None}]},
        },
        {**GOOD, "started": 3, "finished": 1},
        {"op": "fail", "tag": "t", "id": "2", "reason": "why"},
        {"op": "extend", "tag": "t", "id": "3", "timeout": 7200},
    )
    requests, refused = parse(message)
    assert refused == []
    assert [request.op for request in requests] == ["create", "stamp", "fail", "extend"]
    create, stamp, fail, extend = requests
    assert create.stamp == b"\1"
    assert (create.started, create.timeout, create.idle_timeout) == (1, 3600, 600)
    assert create.detail == {"any": ["JSON", {"object": None}]}
    assert (stamp.started, stamp.finished) == (3, 1)
    assert fail.reason == "why"
    assert extend.timeout == 7200


def test_counts_are_zero_where_the_sender_does_not_count():
    (request,), _ = parse(body(GOOD))
    assert (request.started, request.finished) == (0, 0)


def test_packing_and_parsing_again_is_the_identity():
    requests = [
        Request.create("é" * 512, "1", traced(5), detail={"x": "\u2028"}, timeout=0.5),
        Request.stamp_("t", "2", b"\1\2", started=3, finished=1),
        Request.fail("t", "3", "why"),
        Request.fail("t", "4"),
        Request.extend("t", "5", 10),
    ]
    bodies = list(pack(requests))
    assert len(bodies) == 1
    assert parse(bodies[0]) == (requests, [])


def test_packing_keeps_to_the_limit_and_the_order():
    requests = [Request.stamp_("t", str(i), traced(i + 1), started=1) for i in range(500)]
    bodies = list(pack(requests, max_bytes=50_000))
    assert all(len(b.encode()) <= 50_000 for b in bodies)
    assert len(bodies) == 10
    assert [r for b in bodies for r in parse(b).requests] == requests
    assert list(pack([])) == []


def test_the_largest_request_still_fits_a_message():
    largest = Request.create(
        "\U0001f600" * 256,
        "\U0001f600" * 32,
        b"\1" * 65536,
        detail={"x": "\U0001f600" * 1020},
        timeout=1,
        idle_timeout=1,
    )
    (message,) = pack([largest], max_bytes=1024)
    assert len(message) <= MAX_BODY_BYTES
    assert parse(message).requests == [largest]
    with pytest.raises(InvalidRequest, match="max_bytes"):
        list(pack([largest], max_bytes=2_000_000))


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({**GOOD, "op": "zap"}, "op: 'zap'"),
        ({**GOOD, "op": None}, "op: None"),
        ({**GOOD, "op": ["stamp"]}, "op: "),
        ({**GOOD, "tag": ""}, "tag: ''"),
        ({**GOOD, "tag": 7}, "tag: 7"),
        ({**GOOD, "tag": "x" * 1025}, "tag: 'xxx"),
        ({**GOOD, "tag": "é" * 513}, "tag: "),
        ({**GOOD, "tag": "a\0b"}, "tag: 'a\\x00b'"),
        ({**GOOD, "tag": "\ud800"}, "tag: '\\ud800'"),
        ({**GOOD, "id": ""}, "id: ''"),
        ({**GOOD, "id": "x" * 129}, "id: "),
        ({**GOOD, "id": 1}, "id: 1"),
        ({**GOOD, "stamp": 1}, "stamp: 1"),
        ({**GOOD, "stamp": "!!!!"}, "stamp: '!!!!'"),
        ({**GOOD, "stamp": "AQ"}, "stamp: 'AQ'"),
        ({**GOOD, "stamp": "é"}, "stamp: "),
        ({**GOOD, "stamp": ""}, "stamp: '0 bytes'"),
        ({**GOOD, "stamp": "AAAA"}, "stamp: '3 zero bytes'"),
        ({**GOOD, "started": -1}, "started: -1"),
        ({**GOOD, "started": 1.0}, "started: 1.0"),
        ({**GOOD, "started": True}, "started: True"),
        ({**GOOD, "finished": 2**63}, "finished: "),
        ({**GOOD, "timeout": 5}, "timeout: 5"),
        ({**GOOD, "surprise": 5}, "surprise: 5"),
        ({**GOOD, "started": None}, "started: None"),
        ({"op": "stamp", "tag": "t", "id": "i"}, "stamp: 'missing'"),
        ({"op": "stamp", "tag": "t", "stamp": ONE}, "id: 'missing'"),
        ({"op": "fail", "id": "i"}, "tag: 'missing'"),
        ({"op": "fail", "tag": "t", "id": "i", "reason": 5}, "reason: 5"),
        ({"op": "fail", "tag": "t", "id": "i", "stamp": ONE}, "stamp: "),
        ({**GOOD, "op": "create", "timeout": 0}, "timeout: 0"),
        ({**GOOD, "op": "create", "timeout": -5}, "timeout: -5"),
        ({**GOOD, "op": "create", "timeout": "5"}, "timeout: '5'"),
        ({**GOOD, "op": "create", "timeout": 10**30}, "timeout: "),
        ({**GOOD, "op": "create", "idle_timeout": False}, "idle_timeout: False"),
        ({**GOOD, "op": "create", "detail": []}, "detail: "),
        ({**GOOD, "op": "create", "detail": {"x": "y" * 4096}}, "detail: "),
        ({**GOOD, "op": "create", "detail": {"x": "\ud800"}}, "detail: "),
        (5, "request: 5"),
        (None, "request: None"),
        ([], "request: "),
    ],
)
def test_a_refused_request_is_named_and_those_around_it_stay(wrong, named):
    requests, refused = parse(body(GOOD, wrong, {**GOOD, "id": "other"}))
    assert [request.id for request in requests] == ["i", "other"]
    (letter,) = refused
    assert f"requests[1].{named}" in letter.reason
    assert "expected" in letter.reason
    assert letter.reason.isascii()
    assert json.loads(letter.body) == {"version": 1, "requests": [wrong]}


def test_many_wrong_requests_of_a_message_are_not_as_many_letters():
    # 40 KB of rubbish would be 20,000 letters: an invocation's time, and its neighbours'.
    wrong = [*range(19_998), {**GOOD, "tag": ""}]
    requests, refused = parse(body(*wrong[:5_000], GOOD, *wrong[5_000:]))
    assert [request.id for request in requests] == ["i"]
    assert len(refused) == 101
    assert [letter.reason.partition(":")[0] for letter in refused] == [
        f"requests[{index}].request" for index in range(101)
    ]
    assert refused[-1].reason.endswith(" (and 19898 more of this message)")
    # Nothing is lost: the letters' bodies are messages, and hold all that was wrong.
    held = [raw for letter in refused for raw in json.loads(letter.body)["requests"]]
    assert held == wrong
    assert sum(letter.request_count for letter in refused) == len(wrong)


def test_detail_nested_too_deep_is_refused():
    deep = {}
    for _ in range(70):
        deep = {"x": deep}
    _, (letter,) = parse(body({**GOOD, "op": "create", "detail": deep}))
    assert "detail" in letter.reason


@pytest.mark.parametrize(
    ("message", "named"),
    [
        ("", "body"),
        ("not JSON", "body"),
        ("5", "body"),
        ("[]", "body"),
        ('{"version":1,"requests":[NaN]}', "body"),
        ("[" * 100_000, "body"),
        ('{"version":1,"requests":' + "[" * 100_000 + "]" * 100_000 + "}", "body"),
        ('{"requests":[]}', "version: None"),
        ('{"version":2,"requests":[]}', "version: 2"),
        ('{"version":true,"requests":[]}', "version: True"),
        ('{"version":1}', "requests: None"),
        ('{"version":1,"requests":[]}', "requests: a list of 0"),
        ('{"version":1,"requests":{}}', "requests: an object of 0"),
        (
            '{"version":1,"requests":[' + ",".join("1" * 100_000) + "]}",
            "requests: a list of 100000",
        ),
        ('{"version":1,"requests":[1],"x":1}', "x: 1"),
        ("9" * 10_000, "body"),
        ("\0", "body"),
    ],
)
def test_a_message_that_is_none_is_refused_whole(message, named):
    requests, (letter,) = parse(message)
    assert requests == []
    assert letter.body == message
    assert letter.reason.startswith(named)
    assert len(letter.reason) < 500


@pytest.mark.parametrize(
    "request_",
    [
        Request.create("t", "i", b"\1", timeout=5, detail={}),
        Request.stamp_("t", "i", b"\1", finished=1),
        Request.fail("t", "i", ""),
        Request.extend("t", "i", 5),
    ],
)
def test_a_copy_of_a_request_with_another_id_is_a_request(request_):
    other = replace(request_, id="other")
    assert other.to_json() == {**request_.to_json(), "id": "other"}
    assert replace(other, id="i") == request_
    assert pickle.loads(pickle.dumps(request_)) == request_


def test_a_request_made_by_hand_is_checked_at_once():
    with pytest.raises(InvalidRequest) as caught:
        Request.stamp_("t", "i", b"\0\0")
    assert caught.value.field == "stamp"
    with pytest.raises(InvalidRequest, match="reason"):
        Request("stamp", "t", "i", b"\1", reason="none of its business")
    with pytest.raises(InvalidRequest, match="stamp"):
        Request("stamp", "t", "i", "text")
