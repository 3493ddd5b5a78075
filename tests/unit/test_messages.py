"""Requests and messages: which are valid, and what the reason of a rejection names."""

import base64
import json
import pickle
import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xorack.core.errors import ArgumentError, shown
from xorack.core.marks import mark_of
from xorack.core.message import MAX_BODY_BYTES, MAX_REQUESTS, pack, parse, reject
from xorack.core.request import Request
from xorack.core.stamp import plain, traced, xor

ONE = base64.b64encode(b"\1").decode()
GOOD = {"op": "stamp", "tag": "t", "id": "i", "stamp": ONE}
CREATE = {**GOOD, "op": "create"}
SECRET = "AQCEAAAAKgAAAAMAAAAA"
FAIL = {"op": "fail", "tag": "t", "id": "i"}


def body(*requests, version=1):
    return json.dumps({"version": version, "requests": list(requests)})


def nested(depth):
    return {"x": nested(depth - 1)} if depth > 1 else {}


VALID = [
    Request.create("é" * 512, "1", traced(5), detail={"x": "\u2028"}, timeout=0.5),
    Request.create("t", "c", b"\1", detail={}),
    Request.create("t", "deep", b"\1", detail=nested(64)),
    Request.create("t", "c", b"\1", detail={"x": [2**64 - 1, {"y": -(2**63)}], "z": 1e300}),
    Request.stamp_("t", "2", b"\1\2", started=3, finished=1),
    Request.fail("t", "3", "why"),
    Request.fail("t", "4"),
    Request.fail("t", "4", ""),
    Request.extend("t", "5", 10),
    Request("note", "t", "6", text="x", missing=[5, 6], missing_count=10),
    Request("fail", "t", "7", reason="why", missing=[5]),
]


def test_packed_requests_survive_parsing():
    bodies = list(pack(VALID))
    assert len(bodies) == 1
    assert parse(bodies[0]) == (VALID, [])
    rejected = reject([(request, "why") for request in VALID])
    assert [parse(entry.body).requests for entry in rejected] == [[request] for request in VALID]


def test_the_repr_of_a_request_has_no_token():
    request = Request.create("t", "c", b"\1", resume={"lambda": SECRET})
    assert (SECRET in repr(request), SECRET in str(request.to_json())) == (False, True)


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
    assert max(map(len, pack([Request.fail("t", "i")] * 200, max_bytes=1024))) <= 1024
    assert list(pack([])) == []
    with pytest.raises(ArgumentError, match="max_bytes"):
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
    (GOOD, "op", [["stamp"]]),
    (GOOD, "tag", ["\ud800"]),
    (CREATE, "timeout", [10**30]),
    (CREATE, "idle_timeout", [False]),
    (CREATE, "detail", [{"x": "\ud800"}, nested(65), {"x": [2**64]}, {"x": -(2**63) - 1}]),
]
INVALID = [
    *(({**base, f: value}, f"{f}: {shown(value)}") for base, f, of in FIELDS for value in of),
    ({**GOOD, "stamp": base64.b64encode(b"x" * 65_537).decode()}, "stamp: '65537 bytes'"),
    ({**CREATE, "detail": {"x": "y" * 4096}}, "detail: '4104 bytes'"),
    *(
        ({**CREATE, "resume": {"lambda": token}}, "resume.lambda: ")
        for token in ("", "é", 1, "a-b", "Y2I===", "Y2I=\n", "A" * 1025)
    ),
    ({**CREATE, "resume": SECRET}, "resume: a str, expected an object"),
    *(
        ({**CREATE, name: SECRET}, f"{name}: 'a token', expected no such field")
        for name in ("step_functions", "Resume", "stepFunction", "taskToken")
    ),
    ({**GOOD, "resume": SECRET}, "resume: 'a token', expected no such field"),
    ({**CREATE, "callback-id": [SECRET]}, "callback-id: a list of 1, expected no such field"),
    (
        {**CREATE, "resume": {"lambda": f"{SECRET}-"}},
        "resume.lambda: 21 characters, expected 1 to 1,024 characters of a callback id, base64",
    ),
    (
        {**CREATE, "resume": {"step_functions": f"{SECRET}é"}},
        "resume.step_functions: 21 characters, expected 1 to 2,048 ASCII characters",
    ),
    ([], "request: a list of 0"),
]


@pytest.mark.parametrize(("invalid", "named"), INVALID)
def test_an_invalid_request_is_rejected_alone_and_its_field_is_named(invalid, named):
    requests, rejected = parse(body(GOOD, invalid, {**GOOD, "id": "other"}))
    assert [request.id for request in requests] == ["i", "other"]
    ((message, reason, count, *_),) = rejected
    assert f"requests[1].{named}" in reason
    assert SECRET[:4] not in reason
    assert (json.loads(message), count) == ({"version": 1, "requests": [invalid]}, 1)


ODD = st.sampled_from(
    [None, True, False, 0, 1, -1, 2**63 - 1, 2**63, 1.0, 0.5, "", "AQ==", [], {}, [1], {"a": 1}]
)
TEXTS = st.text(max_size=3) | st.sampled_from(["a\0b", "\x7f", "\ud800", "é" * 64, "é" * 65])
BASE64 = st.binary(max_size=20).map(lambda data: base64.b64encode(data).decode())
RAW = ODD | st.fixed_dictionaries(
    {
        "op": st.sampled_from(["stamp", "create", "fail", "extend", "note", "", [], {}, 1]),
        **dict.fromkeys(("tag", "id"), st.just("t") | TEXTS | ODD),
    },
    optional={
        **dict.fromkeys(("stamp", "reason", "text", "other"), BASE64 | ODD),
        **dict.fromkeys(("started", "finished", "timeout", "detail", "missing_count"), ODD),
        **dict.fromkeys(("starts", "missing"), st.lists(st.just("0" * 15 + "1"), max_size=2)),
    },
)


@given(st.lists(RAW, min_size=1, max_size=4), st.booleans())
def test_each_request_of_a_message_is_either_valid_or_rejected(raw_requests, spaces):
    message = json.dumps({"version": 1, "requests": raw_requests}, indent=1 if spaces else None)
    requests, rejected = parse(f" {message}\n" if spaces else message)
    left = [json.dumps(raw) for body, *_ in rejected for raw in json.loads(body)["requests"]]
    valid = [raw for raw in raw_requests if json.dumps(raw) not in left]
    assert len(requests) + len(left) == len(raw_requests)
    assert requests == [Request.from_json(raw) for raw in valid]
    assert [Request.from_json(request.to_json()) for request in requests] == requests


def test_requests_that_a_chain_rejects_share_messages_within_the_limit_of_a_body():
    # 2 bytes of UTF-8 are 6 in the ASCII of a dead-lettered message.
    requests = [Request.fail("\u00e9" * 512, f"f{n}") for n in range(1_000)]
    rejected = reject([(request, request.id) for request in requests])
    assert [entry.reason for entry in rejected[:100]] == [f"f{n}" for n in range(100)]
    assert rejected[100].reason.startswith("f100 (and ")
    assert max(len(entry.body) for entry in rejected) <= MAX_BODY_BYTES
    assert len(rejected) == 103
    assert [r for entry in rejected for r in parse(entry.body).requests] == requests


def text(fields, **added):
    """A request as JSON text, with fields added as they stand."""
    return json.dumps(fields)[:-1] + "".join(f', "{k}": {v}' for k, v in added.items()) + "}"


LONG = "9" * 5_000
BAD_VALUES = [
    *((text(GOOD, started=number), "started: ") for number in (LONG, f"-{LONG}", "NaN", "1e999")),
    *((text(CREATE, timeout=n), "timeout: ") for n in (LONG, "9" * 400, "Infinity", "-Infinity")),
    *((text(CREATE, detail=f'{{"x": [{n}]}}'), "detail: ") for n in (LONG, "NaN", "1e999")),
    *((text(FAIL, reason=value), "reason: ") for value in (LONG, "NaN", '"\\ud800"', '"\ud800"')),
    (text({"op": "stamp", "tag": "t", "id": "i"}, stamp="9" * 5_004), "stamp: "),
    (text(GOOD, surprise=LONG), "surprise: "),
    (LONG, "request: "),
    (text(GOOD, **{"\\u0074ag": '"t"'}), "tag: 'repeated'"),
    ('{"": 1, "": 2}', ": 'repeated'"),
]


@pytest.mark.parametrize(("invalid", "named"), BAD_VALUES, ids=[named for _, named in BAD_VALUES])
@pytest.mark.parametrize("gap", ["", " \n\t\r"])
def test_a_value_that_python_or_json_cannot_hold_rejects_its_own_request_only(invalid, named, gap):
    parts = ['{"requests"', ":", "[", text(GOOD), ",", invalid, ",", text(FAIL), "]"]
    requests, (rejected,) = parse(gap + gap.join([*parts, ",", '"version"', ":", "1", "}"]) + gap)
    assert requests == [Request.from_json(GOOD), Request.from_json(FAIL)]
    assert rejected.reason.startswith(f"requests[1].{named}")
    # The text keeps all digits and keys, so the request is rejected again after a redrive.
    escaped = invalid.replace("\ud800", "\\ud800")
    assert rejected.body == f'{{"version":1,"requests":[{escaped}]}}'
    (again,) = parse(rejected.body).rejected
    assert again.reason.startswith(f"requests[0].{named}")


A, B, C = 0x938F21E4BFAD2991, 0x00D6A5EB7227AC67, 0x0F4DF2083E1AD229
SHORT = {"op": "stamp", "tag": "t", "id": "i", "finishes": [f"{A:016x}"], "starts": [f"{B:016x}"]}


@pytest.mark.parametrize("cells", [0, 16, 64, 256, 1024])
@pytest.mark.parametrize("op", ["create", "stamp"])
def test_a_request_with_ids_is_the_request_with_the_sum_of_their_stamps(op, cells):
    make = (lambda unit: traced(unit, cells)) if cells else plain
    raw = {**SHORT, "op": op, "starts": [f"{B:016x}", f"{C:016x}"], "cells": cells}
    stamp = xor(*map(make, (A, B, C)))
    (short,) = parse(body(raw)).requests
    long = Request(op, "t", "i", stamp, started=2, finished=1)
    assert short == long == Request(op, "t", "i", starts=[B, C], finishes=[A - 2**64], cells=cells)
    assert (short.stamp, short.stamp_length) == (stamp, len(stamp))
    assert (mark_of(short), hash(short)) == (mark_of(long), hash(long))
    assert pickle.loads(pickle.dumps(short)).to_json() == short.to_json()
    assert parse(next(pack([short]))).requests == parse(next(pack([long]))).requests
    assert short.to_json() == ({n: raw[n] for n in raw if n != "cells"} if cells == 16 else raw)


def test_the_time_and_memory_of_a_message_of_ids_are_bounded():
    """500 of them would be 20 MB of stamps of 1,024 cells."""
    raw = [
        {**SHORT, "id": str(n), "starts": [f"{n:016x}"], "finishes": [], "cells": 1024}
        for n in range(1, 500)
    ]
    (text,) = pack([Request.from_json(one) for one in raw], MAX_BODY_BYTES)
    tracemalloc.start()
    requests, rejected = parse(text)
    assert tracemalloc.get_traced_memory()[1] < 3e6
    tracemalloc.stop()
    assert (len(requests), rejected) == (len(raw), [])
    assert len(next(pack([Request.stamp_("t", "i", starts=range(1, 50_001))]))) < MAX_BODY_BYTES


def test_a_message_may_hold_as_many_requests_as_fit():
    smallest = json.dumps(FAIL, separators=(",", ":"))
    message = '{"version":1,"requests":[' + ",".join([smallest] * MAX_REQUESTS) + "]}"
    assert MAX_BODY_BYTES - len(smallest) - 1 < len(message) <= MAX_BODY_BYTES
    assert len(parse(message).requests) == MAX_REQUESTS > 28_000
    assert len(list(pack([Request.fail("t", "i")] * MAX_REQUESTS, MAX_BODY_BYTES))) == 1
    (rejected,) = parse(message.replace("[", f"[{smallest},")).rejected
    assert rejected.reason.startswith("requests: a list of 31775")


def marks(*raw_requests):
    """Return the marks of requests as parsed, and as sent again."""
    requests = parse(body(*raw_requests)).requests
    assert len(requests) == len(raw_requests)
    return {mark_of(request) for request in [*requests, *parse(next(pack(requests))).requests]}


TIMES = {**CREATE, "timeout": 60, "idle_timeout": 5}
DETAIL = {**CREATE, "detail": {"a": 1, "b": [2, {"c": 10**18}]}}
EXTEND = {"op": "extend", "tag": "t", "id": "i", "timeout": 60}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        *((TIMES, {**TIMES, field: 61}) for field in ("timeout", "idle_timeout")),
        (TIMES, CREATE),
        (TIMES, {**TIMES, "timeout": 5, "idle_timeout": 60}),
        (DETAIL, {**DETAIL, "detail": {"a": True, "b": [2, {"c": 10**18}]}}),
        (DETAIL, {**DETAIL, "detail": {"a": 1, "b": [{"c": 10**18}, 2]}}),
        (CREATE, {**CREATE, "detail": {}}),
        (EXTEND, {**EXTEND, "timeout": 60.5}),
        (FAIL, {**FAIL, "reason": ""}),
        (GOOD, {**GOOD, "started": 1}),
    ],
)
def test_a_mark_tells_requests_apart_by_every_field(one, other):
    assert len(marks(one, other)) == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (TIMES, {**TIMES, "timeout": 60.0, "idle_timeout": 5.0}),
        (DETAIL, {**DETAIL, "detail": {"b": [2.0, {"c": 1e18}], "a": 1.0}}),
        (EXTEND, {**EXTEND, "timeout": 6e1}),
        ({**CREATE, "detail": {"zero": -0.0}}, {**CREATE, "detail": {"zero": 0}}),
    ],
)
def test_equal_json_values_have_one_mark(one, other):
    assert len(marks(one, other)) == 1


@pytest.mark.parametrize(
    ("arguments", "options", "named"),
    [
        (("stamp", "t", "i", "text"), {}, "stamp"),
        (("create", "t", "i", b"\1"), {"detail": {"x": {1}}}, "detail"),
        (("create", "t", "i", b"\1"), {"detail": {1: 2, "1": 3}}, "detail"),
        (("create", "t", "i", b"\1"), {"detail": {"x": [({None: 1},)]}}, "detail"),
        (("stamp", "t", "i"), {"starts": 5}, "starts"),
        (("stamp", "t", "i"), {"starts": [5, 5]}, "starts: a list of 2, expected each id once"),
        (("stamp", "t", "i"), {"starts": [7, "x"]}, "starts: 'x', expected ids, each an int"),
        (("stamp", "t", "i"), {"finishes": ["0f4df2083e1ad229"]}, "finishes"),
        (("stamp", "t", "i"), {"starts": [5], "finishes": [-1, 2**64 - 1]}, "finishes"),
        (("note", "t", "i"), {"missing": range(1, 102)}, "missing"),
        (("fail", None, "i"), {}, "tag"),
        (("fail", 10**5000, "i"), {}, "tag"),
    ],
)
def test_a_new_request_is_validated(arguments, options, named):
    field, _, problem = named.partition(": ")
    with pytest.raises(ArgumentError, match=f"^{field}: {problem or '.*'}$") as caught:
        Request(*arguments, **options)
    assert caught.value.field == field


def test_an_error_names_all_that_is_wrong_with_a_request():
    text = '{"op":"create","tag":"","id":5,"stamp":"!","timeout":-1,"colour":"red"}'
    (_, (invalid,)) = parse(f'{{"version":1,"requests":[{text}]}}')
    fields = ("requests[0].tag: ", "; id: 5, ", "; stamp: ", "; timeout: -1, ", "; colour: 'red', ")
    places = [invalid.reason.index(field) for field in fields]
    assert places == sorted(places)
    many = json.dumps({"op": "fail", "tag": "t", "id": "i", **{f"x{n}": n for n in range(99)}})
    (_, (invalid,)) = parse(f'{{"version":1,"requests":[{many}]}}')
    assert invalid.reason.count("no such field") == 8
