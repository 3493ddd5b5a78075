"""Requests and messages: which are valid, and what the reason of a rejection names."""

import base64
import json
import pickle
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xorack.core.errors import InvalidRequest, shown
from xorack.core.message import MAX_BODY_BYTES, pack, parse, rejected_body
from xorack.core.request import Request
from xorack.core.stamp import traced

ONE = base64.b64encode(b"\1").decode()
GOOD = {"op": "stamp", "tag": "t", "id": "i", "stamp": ONE}
CREATE = {**GOOD, "op": "create"}
FAIL = {"op": "fail", "tag": "t", "id": "i"}


def body(*requests, version=1):
    return json.dumps({"version": version, "requests": list(requests)})


def nested(depth):
    return {"x": nested(depth - 1)} if depth > 1 else {}


def test_the_example_of_the_protocol():
    times = {"timeout": 3600, "idle_timeout": 600}
    detail = {"any": ["JSON", {"object": None}]}
    raw = [
        {**CREATE, "started": 1, **times, "detail": detail},
        {**GOOD, "started": 3, "finished": 1},
        {**FAIL, "reason": "why"},
        {"op": "extend", "tag": "t", "id": "3", "timeout": 7200},
        GOOD,
    ]
    requests, rejected = parse(body(*raw))
    assert rejected == []
    assert requests == [
        Request.create("t", "i", b"\1", **times, detail=detail),
        Request.stamp_("t", "i", b"\1", started=3, finished=1),
        Request.fail("t", "i", "why"),
        Request.extend("t", "3", 7200),
        Request.stamp_("t", "i", b"\1", started=0, finished=0),
    ]
    assert [request.to_json() for request in requests] == raw


VALID = [
    Request.create("é" * 512, "1", traced(5), detail={"x": "\u2028"}, timeout=0.5),
    Request.create("t", "c", b"\1", detail={}),
    Request.create("t", "deep", b"\1", detail=nested(64)),
    Request.stamp_("t", "2", b"\1\2", started=3, finished=1),
    Request.fail("t", "3", "why"),
    Request.fail("t", "4"),
    Request.fail("t", "4", ""),
    Request.extend("t", "5", 10),
]


def test_packed_requests_survive_parsing():
    bodies = list(pack(VALID))
    assert len(bodies) == 1
    assert parse(bodies[0]) == (VALID, [])
    assert [parse(rejected_body(request)).requests for request in VALID] == [[r] for r in VALID]


@pytest.mark.parametrize("request_", VALID)
def test_a_request_can_be_copied_and_pickled_and_not_changed(request_):
    other = replace(request_, id="other")
    assert other.to_json() == {**request_.to_json(), "id": "other"}
    assert replace(other, id=request_.id) == request_
    assert pickle.loads(pickle.dumps(request_)) == request_
    for name in ("tag", "other"):
        with pytest.raises(AttributeError):
            setattr(request_, name, 1)


def test_packing_keeps_the_limit_and_the_order():
    requests = [Request.stamp_("t", str(i), traced(i + 1), started=1) for i in range(500)]
    bodies = list(pack(requests, max_bytes=50_000))
    assert len(bodies) == 10
    assert all(len(body.encode()) <= 50_000 for body in bodies)
    assert [request for body in bodies for request in parse(body).requests] == requests
    assert list(pack([])) == []
    with pytest.raises(InvalidRequest, match="max_bytes"):
        list(pack(requests, max_bytes=2_000_000))


def test_the_largest_request_fits_a_message():
    face = "\U0001f600"
    times = {"timeout": 1, "idle_timeout": 1}
    detail = {"x": face * 1020}
    largest = Request.create(face * 256, face * 32, b"\1" * 65536, detail=detail, **times)
    (message,) = pack([largest], max_bytes=1024)
    assert len(message) <= MAX_BODY_BYTES
    assert parse(message).requests == [largest]


FIELDS = [
    (GOOD, "op", ["zap", None, ["stamp"]]),
    (GOOD, "tag", ["", 7, "x" * 1025, "é" * 513, "a\0b", "\ud800"]),
    (GOOD, "id", ["", 1, "x" * 129]),
    (GOOD, "stamp", [1, "!!!!", "AQ", "AQ==\n", "A-_=", "é"]),
    (GOOD, "started", [-1, 1.0, True, None]),
    (GOOD, "finished", [2**63]),
    (GOOD, "timeout", [5]),
    (GOOD, "surprise", [5]),
    (FAIL, "stamp", [ONE]),
    (FAIL, "reason", [5]),
    (CREATE, "timeout", [0, -5, "5", 10**30]),
    (CREATE, "idle_timeout", [False]),
    (CREATE, "detail", [[], {"x": "\ud800"}, nested(70)]),
]
INVALID = [
    *(({**base, f: value}, f"{f}: {shown(value)}") for base, f, of in FIELDS for value in of),
    ({**GOOD, "stamp": ""}, "stamp: '0 bytes'"),
    ({**GOOD, "stamp": "AAAA"}, "stamp: '3 zero bytes'"),
    ({**GOOD, "stamp": base64.b64encode(b"x" * 65_537).decode()}, "stamp: '65537 bytes'"),
    ({**CREATE, "detail": {"x": "y" * 4096}}, "detail: '4104 bytes'"),
    ({"op": "stamp", "tag": "t", "id": "i"}, "stamp: 'missing'"),
    ({"op": "stamp", "tag": "t", "stamp": ONE}, "id: 'missing'"),
    ({"op": "fail", "id": "i"}, "tag: 'missing'"),
    (5, "request: 5"),
    (None, "request: None"),
    ([], "request: a list of 0"),
]


@pytest.mark.parametrize(("invalid", "named"), INVALID)
def test_an_invalid_request_is_rejected_alone_and_its_field_is_named(invalid, named):
    requests, rejected = parse(body(GOOD, invalid, {**GOOD, "id": "other"}))
    assert [request.id for request in requests] == ["i", "other"]
    ((message, reason, count),) = rejected
    assert f"requests[1].{named}" in reason
    assert "expected" in reason
    assert reason.isascii()
    assert (json.loads(message), count) == ({"version": 1, "requests": [invalid]}, 1)


STRANGE = st.sampled_from(
    [None, True, False, 0, 1, -1, 2**63 - 1, 2**63, 1.0, 0.5, "", "AQ==", [], {}, [1], {"a": 1}]
)
TEXTS = st.text(max_size=3) | st.sampled_from(["a\0b", "\x7f", "\ud800", "é" * 64, "é" * 65])
BASE64 = st.binary(max_size=20).map(lambda data: base64.b64encode(data).decode())
RAW = STRANGE | st.fixed_dictionaries(
    {
        "op": st.sampled_from(["stamp", "create", "fail", "extend", "", [], {}, 1]),
        **dict.fromkeys(("tag", "id"), st.just("t") | TEXTS | STRANGE),
    },
    optional={
        **dict.fromkeys(("stamp", "reason", "other"), BASE64 | STRANGE),
        **dict.fromkeys(("started", "finished", "timeout", "detail"), STRANGE),
    },
)


@given(st.lists(RAW, min_size=1, max_size=4), st.booleans())
def test_each_request_of_a_message_is_either_valid_or_rejected(raw_requests, spaces):
    message = json.dumps({"version": 1, "requests": raw_requests}, indent=1 if spaces else None)
    requests, rejected = parse(f" {message}\n" if spaces else message)
    left = [json.dumps(raw) for body, _, _ in rejected for raw in json.loads(body)["requests"]]
    valid = [raw for raw in raw_requests if json.dumps(raw) not in left]
    assert len(requests) + len(left) == len(raw_requests)
    assert requests == [Request.from_json(raw) for raw in valid]
    assert [Request.from_json(request.to_json()) for request in requests] == requests


def test_many_invalid_requests_of_a_message_share_a_dead_lettered_message():
    invalid = [*range(19_998), {**GOOD, "tag": ""}]
    requests, rejected = parse(body(*invalid[:5_000], GOOD, *invalid[5_000:]))
    assert [request.id for request in requests] == ["i"]
    assert [reason.partition(":")[0] for _, reason, _ in rejected] == [
        f"requests[{index}].request" for index in range(101)
    ]
    assert rejected[-1].reason.endswith(" (and 19898 more of this message)")
    # Nothing is lost: the bodies are messages that hold all invalid requests.
    assert [raw for body, _, _ in rejected for raw in json.loads(body)["requests"]] == invalid
    assert sum(entry.request_count for entry in rejected) == len(invalid)


NOT_MESSAGES = ["", "not JSON", "5", "[]", "\0", "9" * 10_000, "[" * 100_000, "[NaN]"]
TRAILING = ["x", "{}", '{"version":1}', "]", "\0"]
INVALID_MESSAGES = [
    *((text, "body: ") for text in NOT_MESSAGES),
    *((f"{body(GOOD)} \n{text}", "body: ") for text in TRAILING),
    ('{"version":1,"requests":' + "[" * 100_000 + "]" * 100_000 + "}", "body: "),
    ('{"requests":[]}', "version: None"),
    *((body(GOOD, version=version), f"version: {version}") for version in (2, True)),
    ('{"version":1}', "requests: None"),
    ('{"version":1,"requests":{}}', "requests: an object of 0"),
    (body(), "requests: a list of 0"),
    (body(*[1] * 100_000), "requests: a list of 100000"),
    ('{"version":1,"requests":[1],"x":1}', "x: 1"),
]


@pytest.mark.parametrize(("message", "named"), INVALID_MESSAGES)
def test_an_invalid_message_is_rejected_whole(message, named):
    requests, ((rejected, reason, count),) = parse(message)
    assert (requests, rejected, count) == ([], message, 1)
    assert reason.startswith(named)
    assert len(reason) < 500


def test_json_that_can_be_decoded_and_not_encoded_is_rejected_whole(monkeypatch):
    def too_deep(*_, **__):
        raise RecursionError

    message = body(GOOD, [])
    monkeypatch.setattr("xorack.core.message.json.dumps", too_deep)
    requests, ((rejected, reason, _),) = parse(message)
    assert (requests, rejected) == ([], message)
    assert "nested" in reason


@pytest.mark.parametrize(
    ("arguments", "options", "field"),
    [
        (("stamp", "t", "i", b"\0\0"), {}, "stamp"),
        (("stamp", "t", "i", "text"), {}, "stamp"),
        (("stamp", "t", "i", b"\1"), {"reason": "unused"}, "reason"),
        (("create", "t", "i", b"\1"), {"detail": {"x": {1}}}, "detail"),
        (("fail", "t", "i"), {"started": 1}, "started"),
        (("fail", None, "i"), {}, "tag"),
        (("fail", 10**5000, "i"), {}, "tag"),
    ],
)
def test_a_new_request_is_validated(arguments, options, field):
    with pytest.raises(InvalidRequest) as caught:
        Request(*arguments, **options)
    assert caught.value.field == field
