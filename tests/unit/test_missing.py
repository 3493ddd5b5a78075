"""Missing words, tags of attempts, and events for the repair, without Spark."""

import io
import json
from dataclasses import replace
from functools import partial

import pytest

from pipeline import repair
from pipeline.errors import JobError
from pipeline.missing import (
    Chain,
    Failed,
    Inconsistent,
    Overfull,
    attempt_tag,
    base_of,
    detail_of,
    missing_units,
    read_events,
)
from xorack import plain, traced, unit_id, xor
from xorack.core.request import Request

KEY = unit_id("db/a.txt")


def units(count, start=0):
    return [unit_id("word", at) for at in range(start, start + count)]


def chain(words, counted, stamp=traced):
    """Make a chain of a number of words, some of them counted."""
    every = units(words)
    finished = [stamp(every[at]) for at in counted]
    return Chain(
        key=KEY,
        tag="db/a.txt",
        words=words,
        stamp=xor(stamp(KEY), *map(stamp, every)) if words else stamp(KEY),
        finished=len(finished),
        counted=xor(bytes(len(finished[0])), *finished) if finished else None,
    )


@pytest.mark.parametrize(
    ("words", "counted", "missing"),
    [(500, [*range(100), *range(108, 500)], range(100, 108)), (50, range(50), []), (0, [], [])],
)
def test_missing_units_are_named(words, counted, missing):
    assert missing_units(chain(words, counted)) == {unit_id("word", at) for at in missing}


@pytest.mark.parametrize("stamp", [traced, plain])
def test_without_counted_words_all_are_missing(stamp):
    assert missing_units(chain(5000, [], stamp)) is None


def test_plain_stamps_name_one_missing_unit_and_too_many_are_an_error():
    assert missing_units(chain(9, range(8), plain)) == set(units(1, 8))
    for whole in (chain(9, range(7), plain), chain(500, range(100))):
        with pytest.raises(Overfull, match=r"'db/a\.txt'"):
            missing_units(whole)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"finished": 51}, "51 of its 50 words are said to be counted"),
        ({"finished": 50}, "50 of its 50"),  # the stamps differ
        ({"counted": plain(1)}, "Buffer lengths are not equal"),
        ({"finished": 47}, "3 words are missing, but 2 are named"),
    ],
)
def test_counts_that_contradict_the_words_are_an_error(fields, why):
    whole = chain(50, range(48))
    with pytest.raises(Inconsistent, match=why):
        missing_units(replace(whole, **fields))


def test_tags_of_attempts():
    assert attempt_tag("db/a.txt", 2) == "db/a.txt~2"
    assert base_of("db/a.txt~2") == ("db/a.txt", 2)
    assert base_of("db/a\nb~2~13") == ("db/a\nb~2", 13)
    assert [base_of(tag) for tag in ("db/a.txt", "~2", "a~", "a~0", "a~02", "a~2b")] == [None] * 6


@pytest.mark.parametrize("letter", ["x", "é", "日", "\U0001f600"])
def test_tags_of_attempts_stay_valid_when_the_tag_is_long(letter):
    tag = letter * (1024 // len(letter.encode()))
    made = {attempt_tag(tag[:-1] + last, n) for last in (letter, "y") for n in (2, 3, 10)}
    assert len(made) == 6
    for one in made:
        Request.fail(one, "id")  # is a valid tag
        assert one.startswith(tag[:200])


def test_details_are_shortened_to_the_limit_of_a_request():
    small = {"path": "/a", "repairs": "db/a", "missing": 3}
    assert json.loads(detail_of(small)) == small
    for path, tag in (("\x01" * 4000, "db/a"), ("/a", "\x01" * 1024), ("日" * 4000, "é" * 512)):
        detail = json.loads(detail_of({"path": path, "repairs": tag, "missing": 3}))
        Request.create("tag", "id", traced(1), detail=detail)
        assert detail["missing"] == 3
        assert tag.startswith(detail["repairs"])
        assert len(detail["repairs"]) >= min(len(tag), 500)


def event(**fields):
    return {"tag": "db/a", "status": "failed", "outstanding": ["00000000000000ff"], **fields}


def envelope(detail, **fields):
    return {"source": "xorack", "detail-type": "failed", "detail": detail, **fields}


def test_events_are_read_with_and_without_envelope():
    lines = [
        json.dumps(envelope(event())),
        "",
        json.dumps(event()),  # a duplicate
        json.dumps(event(tag="db/b", outstanding=[], detail={"run": "r1"})),
        json.dumps({"tag": "db/opaque", "status": "failed", "detail": {"run": 5}}),
    ]
    assert read_events(lines, "file") == [
        Failed("db/a", frozenset({255})),
        Failed("db/b", frozenset(), "r1"),
        Failed("db/opaque"),
    ]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("hello", "--events x line 2 is no JSON"),
        ("[" * 100_000, "line 2 is no JSON"),
        ("[1]", "line 2 is no event of xorack: it has no tag"),
        ('{"status": "failed"}', "it has no tag"),
        (json.dumps(envelope(event(), source="aws.s3")), "its source is 'aws.s3'"),
        (json.dumps(envelope([])), "it has no tag"),
        (json.dumps(envelope(event(status="acked"))), "line 2: 'db/a' has not failed, its status"),
        (json.dumps({"tag": "db/a"}), "its status is None"),
        (json.dumps(event(outstanding=["xyz"])), "outstanding is no list of ids"),
        (json.dumps(event(outstanding="00000000000000ff")), "outstanding is no list of ids"),
    ],
)
def test_lines_other_than_failed_events_are_named(line, why):
    with pytest.raises(JobError) as caught:
        read_events([json.dumps(event()), line], "--events x")
    assert why in str(caught.value)


@pytest.mark.parametrize("stamp", [plain, traced, partial(traced, cells=256)])
def test_the_one_missing_word_of_a_chain_is_named(stamp):
    """The words and the counts are at rest, so a plain stamp names a single word."""
    assert missing_units(chain(3, [1, 2], stamp)) == {units(3)[0]}


def test_a_file_without_events_is_an_error():
    with pytest.raises(JobError, match="--events x has no events in it"):
        read_events(["\n", " "], "--events x")


@pytest.mark.parametrize(
    ("port", "why"),
    [
        (None, "repair: --events line 1 is no JSON\n"),
        ("1", "repair: --events -: spark-submit does not pass stdin on: give a file\n"),
    ],
)
def test_events_on_stdin(monkeypatch, capsys, port, why):
    monkeypatch.setattr("sys.stdin", io.StringIO("hello\n"))
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    if port:
        monkeypatch.setenv("PYSPARK_GATEWAY_PORT", port)
    needed = ("--words=w", "--counts=c", "--repaired=r", "--queue-url=http://q/1/q", "--run-id=1")
    assert repair.main([*needed, "--events", "-"]) == 1
    assert capsys.readouterr().err == why
