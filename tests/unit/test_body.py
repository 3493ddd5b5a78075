"""Bodies of messages for people."""

import json

import pytest

from xorack.core.message import parse
from xorack.core.text import printable
from xorack.ops.body import body_lines, read_json, value_line


def test_json_is_indented_and_its_stamps_are_cut():
    request = {"stamp": "A" * 864, "tag": "t" * 1024, "detail": "d" * 2000}
    body = json.dumps({"requests": [{**request, "resume": {"lambda": "secret-" * 9}}]})
    shown = json.loads("\n".join(body_lines(body)))["requests"][0]
    assert shown["resume"]["lambda"] == "… (63 characters)"
    assert shown["stamp"] == "A" * 24 + "… (864 characters)"
    assert shown["tag"] == "t" * 1024
    assert shown["detail"] == "d" * 1024 + "… (2,000 characters)"


TOKEN = "secret-" * 9
WITH_TOKENS = [
    {"resume": {"step_functions": TOKEN}},
    {"resume": {"stepfunctions": TOKEN}},
    {"resume": {"step_functions": {"token": TOKEN}}},
    {"resume": {"step_functions": f"'{TOKEN}"}},
    {"resume": [1, TOKEN]},
    {"resume": f"/\n{TOKEN}"},
    {"Resume": TOKEN},
    {"Lambda": TOKEN},
    {"stepFunctions": TOKEN},
    {"step-function": TOKEN},
    {"taskToken": TOKEN},
    {"callback_id": TOKEN},
    {" resumes ": TOKEN},
]


@pytest.mark.parametrize("resume", WITH_TOKENS, ids=str)
@pytest.mark.parametrize("of", ["{}", "[{}", '{{"requests": [{}]}}'])
@pytest.mark.parametrize("encoded", ["python", 0, 1, 2])
def test_a_token_is_left_out_of_any_body_and_error(resume, of, encoded):
    request = str({**resume, "tag": "t"})
    if encoded != "python":
        request = json.dumps({**resume, "tag": "t"})
    for _ in range(encoded if encoded != "python" else 0):
        request = json.dumps(request)
    body = of.format(request)
    (rejected,) = parse(body).rejected
    values = [value_line(name, value) for name, value in resume.items()]
    for text in (*body_lines(body), value_line("body", body), rejected.reason, *values):
        assert "secret" not in text
    assert "tag" in "".join(body_lines(body))


def test_a_long_body_is_cut_by_lines():
    lines = body_lines(json.dumps({"requests": [*range(1000)]}), 20)
    assert (len(lines), lines[-1]) == (20, "… and 985 more lines")
    lines = body_lines("a\nb\n" * 5000, 20)
    assert (len(lines), lines[-1]) == (21, "… and 18,000 more characters")


@pytest.mark.parametrize("body", ["", "no JSON\x1b", "[1]", "5", "[" * 100_000, '{"a":' * 100_000])
def test_any_body_has_printable_lines(body):
    lines = body_lines(body)
    assert lines
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize(
    "hidden", "\u034f\u115f\u1160\u17b4\u180b\u2800\u3164\ufe0f\uffa0\U000e0100\u202e\x1b\u00ad"
)
def test_a_character_that_nobody_sees_is_escaped(hidden):
    assert printable(f"a{hidden}b") == f"a{hidden.encode('unicode_escape').decode()}b"
    assert body_lines(json.dumps({"tag": f"a{hidden}b"}))[1].isascii()


def test_what_people_see_is_not_escaped():
    text = "Σίσυφος, 日本語, naïve 👍 한글 – “x”"
    assert printable(text) == text


def test_a_value_is_one_line():
    assert value_line("tag", {"a": ["\u202e\n"]}) == 'tag: {"a": ["\\u202e\\n"]}'
    assert value_line("stamp", "A" * 99) == f'stamp: "{"A" * 24}… (99 characters)"'
    assert len(value_line("detail", ["x"] * 1000)) < 250
    assert value_line("started", read_json("[" + "9" * 5000 + "]")[0]).startswith('started: "999')
