"""The item codec: chains as DynamoDB items."""

import pytest

from tests.support.chains import changed, make_chain
from xorack.aws.item import decode, encode
from xorack.core.errors import NotAChainError

TIMES = ("first_seen_at", "created_at", "last_stamp_at", "ended_at", "deadline", "due_at")
FULL = make_chain(
    "t",
    b"\1\2",
    "failed",
    3,
    2,
    7,
    idle_timeout=6,
    detail='{"a":1}',
    failing="f",
    reason="r",
    resume='{"lambda":"i"}',
    note='{"text":null,"missing":[],"missing_count":0}',
    resume_failed="r",
    refused_at=8,
    refused='{"event":[8,9]}',
    resumed_at=9,
    marks=b"m" * 16,
    spilled=8,
    event_pending=True,
    resume_pending=True,
    extended=10,
    **{name: number for number, name in enumerate(TIMES, 1)},
)


@pytest.mark.parametrize("chain", [FULL, make_chain("t"), make_chain("t", deadline=0, reason="")])
def test_a_chain_survives_its_item(chain):
    assert decode(encode(chain, "key", 1000), "key") == chain


def test_defaults_are_left_out_and_only_a_finished_chain_expires():
    assert encode(make_chain("t"), "key", 1000).keys() == {
        "key",
        "status",
        "started",
        "finished",
        "version",
        "spilled",
    }
    reported = changed(FULL, ended_at=4, last_late_at=5, event_pending=False, resume_pending=False)
    assert encode(reported, "key", 1000)["expires_at"] == {"N": "3"}
    assert encode(changed(reported, last_late_at=None), "key", 997)["expires_at"] == {"N": "2"}


def test_the_end_of_an_open_chain_is_not_reported_whatever_another_program_wrote():
    item = {"key": {"S": "t"}, "stamp": {"B": b"\1"}, "event_pending": {"N": "1"}}
    assert decode(item, "key").pending_reports == ()


A_TIME = "expected milliseconds since the epoch"
AN_OBJECT = "expected a JSON object"
A_FIELD = f"{AN_OBJECT} as requests have it"


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("stamp", {"S": "text"}, "of type S, expected a Binary"),
        ("status", {"NULL": True}, "of type NULL, expected a String"),
        ("started", {"N": "1.5"}, "1.5, expected a whole number"),
        ("created_at", {"S": "yesterday"}, "of type S, expected a whole number"),
        ("deadline", {"N": "253402300800000"}, f"253402300800000, {A_TIME}"),
        ("ended_at", {"N": "-1"}, f"-1, {A_TIME}"),
        ("detail", {"S": "free text"}, f"'free text', {AN_OBJECT}"),
        ("detail", {"S": "[" * 100_000}, f"'{'[' * 79}..., {AN_OBJECT}"),
        ("detail", {"S": "5"}, f"'5', {AN_OBJECT}"),
        # Otherwise one such item would stop each batch and sweep that reports its end.
        ("note", {"S": '{"missing":[5]}'}, f"'{{\"missing\":[5]}}', {A_FIELD}"),
        ("note", {"S": '{"x":1}'}, f"'{{\"x\":1}}', {A_FIELD}"),
        ("resume", {"S": '{"lambda":5}'}, f"a text, {A_FIELD}"),
        ("resume", {"S": "secret"}, f"a text, {A_FIELD}"),
        *(
            ("refused", {"S": text}, f"'{text}', {AN_OBJECT} of reports to their two times")
            for text in ("5", "[]", "{}", '{"event":[8]}', '{"event":[8,9.5]}', '{"x":[8,null]}')
        ),
        ("marks", {"B": bytes(20)}, "20 bytes, expected a multiple of 16"),
        ("status", {"S": "done"}, "'done', expected pending or open or acked or failed"),
    ],
)
def test_the_error_names_the_invalid_attribute(name, value, reason):
    with pytest.raises(NotAChainError) as caught:
        decode({"tag": {"S": "evil\n"}, name: value}, "tag")
    assert str(caught.value) == f"tag: 'evil\\n' is not a chain item: its {name} is {reason}"
    assert (caught.value.tag, caught.value.reason) == ("evil\n", f"its {name} is {reason}")
