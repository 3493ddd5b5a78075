"""The filters, orders and pages of `xorack list`, over moto in process."""

import json
import random
import shlex
import subprocess

import pytest

from tests.support.cli import apply, store
from xorack import traced
from xorack.aws.clock import milliseconds
from xorack.aws.item import encode
from xorack.core.chain import Chain
from xorack.core.request import Request

HOUR = 3_600_000


@pytest.fixture
def chains(stack):
    """25 chains in random order: tag, hours since the create, hours until the deadline."""
    chance, now = random.Random(3), milliseconds()
    numbers = [*range(25)]
    chance.shuffle(numbers)
    for number in numbers:
        chain = Chain(
            f"{'ab'[number % 2]}/{number:02}",
            traced(1),
            "failed" if number % 5 == 0 else "open",
            version=1,
            created_at=now - number * HOUR - 1,
            ended_at=now if number % 5 == 0 else None,
            deadline=now + (7 * number % 25) * HOUR + 60_000,
            reason=f"reason {number}" if number % 5 == 0 else None,
        )
        item = encode(chain, "tag", HOUR)
        stack.client("dynamodb").put_item(TableName=stack.table_name, Item=item)
    # Of xor-ack-dynamodb: nobody knows its age.
    item = {"tag": {"S": "theirs\x1b'☃"}, "stamp": {"B": b"\1"}}
    stack.client("dynamodb").put_item(TableName=stack.table_name, Item=item)
    return stack


def tags(xorack, *arguments):
    status, out, _ = xorack("list", "--json", *arguments)
    assert status == 0
    return [json.loads(line)["tag"] for line in out]


def pasted(line):
    """Return the option --after of a line on stderr, as a shell reads it."""
    option = line.partition("the next page is ")[2]
    if "$'" not in option:
        return shlex.split(option)
    echo = ["bash", "-c", f"printf '%s\\0' {option}"]
    printed = subprocess.run(echo, capture_output=True, check=True).stdout
    return printed.decode().split("\0")[:2]


def numbers(found):
    return [int(tag[2:]) for tag in found if tag[2:].isdigit()]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ("--prefix a/", range(0, 25, 2)),
        ("--run b", range(1, 25, 2)),
        ("--older-than 72000", range(20, 25)),
        ("--older-than 72000 --status open", range(21, 25)),
        ("--reason reason", range(0, 25, 5)),
        ("--reason 15 --older-than 1 --prefix b", [15]),
        ("--reason none", []),
    ],
)
def test_chains_are_filtered(chains, xorack, filters, expected):
    assert sorted(numbers(tags(xorack, *filters.split()))) == [*expected]


ORDERS = {
    "tag": [*range(0, 25, 2), *range(1, 25, 2)],
    "age": [*range(24, -1, -1)],
    "deadline": sorted((n for n in range(25) if n % 5), key=lambda n: 7 * n % 25),
}


@pytest.mark.parametrize("order", ORDERS)
def test_chains_are_in_order(chains, xorack, order):
    found = tags(xorack, "--order", order, "--limit", "0")
    ended = [0, 10, 20, 5, 15] if order == "deadline" else []
    # What has no such value comes last, by tag.
    assert numbers(found) == [*ORDERS[order], *ended]
    assert found.index("theirs\x1b'☃") == 25
    _, out, (line,) = xorack("list", "--json", "--order", order, "--limit", "3")
    assert [json.loads(one)["tag"] for one in out] == found[:3]
    assert line == "the first 3; there are more: --limit 0 lists all"
    assert xorack("list", "--order", order, "--after", "a")[0] == 2


@pytest.mark.parametrize("filters", [(), ("--status", "open", "--prefix", "a/")])
def test_pages_have_every_chain_once(chains, xorack, filters):
    everything = tags(xorack, "--limit", "0", *filters)
    pages, after = [], []
    while True:
        status, out, err = xorack("list", "--json", "--limit", "4", *filters, *after)
        assert (status, len(err) <= 1) == (0, True)
        pages.append([json.loads(line)["tag"] for line in out])
        if not err:
            break
        assert len(pages[-1]) == 4
        after = pasted(err[0])
    assert [tag for page in pages for tag in page] == everything
    assert len(everything) == len(set(everything))


def test_a_page_ends_with_a_tag_of_hidden_characters(stack, xorack):
    evil = [f"{n}\x1b[2J'☃\n\\" for n in range(3)]
    apply(stack, *(Request("create", tag, "c", traced(1), 1) for tag in evil))
    first, *others = tags(xorack, "--limit", "0")
    (line,) = xorack("list", "--limit", "1")[2]
    after = pasted(line)
    assert after == ["--after", first]
    assert tags(xorack, *after) == others


def test_a_chain_that_is_gone_ends_no_page(chains, xorack):
    everything = tags(xorack, "--limit", "0")
    store(chains).delete(everything[3])
    assert tags(xorack, "--after", everything[3]) == everything[4:]
