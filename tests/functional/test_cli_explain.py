"""`xorack explain`, over moto in process."""

import json

import pytest
from botocore.exceptions import ClientError

from tests.support.cli import TAG, apply, assert_error, deliver, named_lines, start, store
from tests.support.dead_letters import put
from tests.support.functions import message
from tests.support.services import Message
from xorack import Token, Tracker, plain, traced, unit_id
from xorack.cli import options
from xorack.core.hashing import child_id
from xorack.core.request import Request

RUN = "2026-01-31"


def lines_of(result):
    """Return the printed lines by name: a list for each."""
    status, out, err = result
    assert (status, err) == (0, [])
    return named_lines(out)


@pytest.fixture
def run(stack):
    """Orders of a run: the orders of the EU have no bill, and failed."""
    tracker, requests = Tracker(stack.queue_url), []
    for number in range(40):
        country = "eu" if number % 4 == 0 else "us"
        tag = f"{RUN}/{country}/{number}"
        root = unit_id(tag)
        detail = {"carrier": "ship" if number < 30 else "rail"}
        requests.append(Request("create", tag, "c", traced(root), 1, timeout=3600, detail=detail))
        step = tracker.step(Token(root, (tag,)))
        bill, _ = step.child("bill"), step.child("line", number) if number == 0 else None
        requests += step.requests()
        failed = [Request("fail", tag, "f", reason="no VAT number")]
        requests += tracker.step(bill).requests() if country == "us" else failed
    apply(stack, *requests)
    return RUN


def test_failed_chains_of_a_run_have_something_in_common(run, stack, xorack, tmp_path):
    names = tmp_path / "names.txt"
    names.write_text("bill\nparcel\n")
    shown = lines_of(xorack("explain", "--run", run, "--among", names))
    assert shown["run"] == [f"10 of 40 chains of run {RUN} have failed"]
    assert shown["why"] == [
        "part 2 = 'eu': 10 of 10 failed chains, 0 of 30 others",
        "name = 'bill': 10 of 10 outstanding names, 0 of 10 others",
    ]
    assert shown["reasons"] == ["10  no VAT number"]
    assert shown["outstanding"] == [
        "10  bill",
        "1  unit without a name: no --among candidate matches",
    ]
    assert len(shown["tags"]) == 10
    (found,) = map(json.loads, xorack("explain", "--run", run, "--json")[1])
    assert (found["state"], found["count"], found["unnamed"]) == ("failed", 10, 11)
    (group,) = found["groups"]
    assert (group["reason"], group["count"]) == ("no VAT number", 10)
    assert group["findings"][0]["condition"] == "part 2 = 'eu'"


def test_unfinished_chains_and_runs_without_chains(stack, xorack):
    start(stack, f"{RUN}/a", timeout=3600)
    apply(stack, Request("create", f"{RUN}/b", "c", traced(unit_id(f"{RUN}/b")), 1, timeout=3600))
    shown = lines_of(xorack("explain", "--run", RUN))
    assert shown["run"] == [f"2 of 2 chains of run {RUN} have not ended yet"]
    assert "1  the chain's own unit: its first step did not end" in shown["outstanding"]
    assert shown["outstanding"][-1].endswith("units without a name: pass candidates with --among")
    for tag in ("a", "b"):
        put(
            stack,
            message(Request("stamp", f"{RUN}/{tag}", "s", traced(7))),
            error="id: 's' is used",
        )
    shown = lines_of(xorack("explain", "--run", RUN))
    assert shown["why"][0] == "each has a dead letter: rejected: id: 's' is used"
    status, out, _ = xorack("explain", "--run", "other")
    assert (status, out[0][13:]) == (
        1,
        "0 chains of run other: is the name correct?",
    )


@pytest.mark.parametrize("tag", [TAG, "order/\x1b[2J17"])
def test_a_step_that_ran_twice_is_shown_on_its_chain(stack, xorack, sqs, monkeypatch, tag):
    """The error's words are in the dead letter of the rejected request, not in the chain."""
    command = "show"
    assert_error(xorack(command, "none"), 1, "tag: 'none' does not exist")
    tracker, token = Tracker(stack.queue_url), Token(unit_id(tag), (tag,))
    apply(stack, Request.create(tag, "c", traced(token.unit), timeout=3600))
    assert "dead letters" not in lines_of(xorack(command, tag))
    for name in ("oil", "wick"):
        step = tracker.step(token)
        step.child(name)
        deliver(stack, [Message(name, message(*step.requests()))])
    wick = f"{child_id(token.unit, 'wick'):016x}"
    words = f"token passed on, instead of a child's?; '{wick}' was started by the rejected"
    text, link = named_lines(xorack(command, tag)[1])["dead letters"]
    assert text.startswith("rejected: id: 'step-")
    assert words in text
    (shown,) = map(json.loads, xorack(command, tag, "--json")[1])
    assert [one["kind"] for one in shown["dead_letters"]] == ["rejected"]
    assert words in shown["dead_letters"][0]["error"]
    which = f"--tag {TAG}" if tag == TAG else shown["dead_letters"][0]["id"]
    assert link == f"xorack dead-letters show {which}"
    monkeypatch.setattr(options, "_LETTERS", 1)
    assert "1 of about 1 dead letter read" in xorack(command, tag)[2]

    def forbidden(_):
        raise ClientError({"Error": {"Code": "AccessDenied"}}, "ReceiveMessage")

    sqs.before["ReceiveMessage"] = forbidden
    status, out, (line, *_) = xorack(command, tag)
    assert (status, "dead letters" in named_lines(out)) == (0, False)
    assert line.startswith("the dead letters cannot be read: AWS rejected ReceiveMessage")


def test_errors(stack, xorack):
    assert_error(xorack("explain"), 2, "Missing TAG or --run")
    assert_error(xorack("explain", "a", "--run", "b"), 2, "TAG and --run exclude each other")
    start(stack, "plain", timeout=3600)
    apply(stack, Request("stamp", "plain-2", "s", plain(9), 1))
    assert "its create has not arrived" in lines_of(xorack("explain", "plain-2"))["why"][0]
    assert lines_of(xorack("show", "plain-2"))["created"][0].startswith("not created: ")


def test_the_units_of_a_parent_that_are_no_chains_are_not_counted_as_its_children(stack, xorack):
    parent = {"unit": f"{5:016x}", "tags": [RUN], "kind": "plain"}
    file = Request.create("file", "c", starts=[7], parents=[parent])
    apply(stack, file, Request.stamp_("file", "s", finishes=[7]))
    # Before the create, nobody knows how many units are open.
    assert lines_of(xorack("show", RUN))["children"] == ["1 acked, 0 failed"]
    apply(stack, Request.create(RUN, "c", starts=[5, 6], cells=0))
    assert lines_of(xorack("show", RUN))["children"] == ["1 acked, 1 other unit open, 0 failed"]


def test_a_child_that_failed_twice_under_one_tag_is_explained_once(stack, xorack):
    parent = {"unit": f"{5:016x}", "tags": [RUN], "kind": "plain"}
    for reason in ("no disk", "no network"):
        create = Request.create("file", "c", starts=[7], parents=[parent])
        apply(stack, create, Request.fail("file", "f", reason))
        if reason == "no disk":
            store(stack).delete("file", force=True)
    why = lines_of(xorack("explain", RUN))["why"]
    assert "2 chains that are units of it failed: xorack explain file" in why
    assert "1 of 1 chain failed: no network" in why
    store(stack).delete("file", force=True)
    apply(stack, Request.create("file", "c", starts=[7]))
    # The chain that has the tag now has not failed.
    failed = [text for text in lines_of(xorack("explain", RUN))["why"] if "failed" in text]
    assert failed == [
        "chain file failed: no network",
        "2 chains that are units of it failed: xorack explain file",
    ]


def test_a_parent_leads_to_its_failed_child_and_back(stack, xorack):
    tracker = Tracker(stack.queue_url)
    day, file = f"{RUN}", f"{RUN}/file13"
    step = tracker.step(Token(unit_id(day), (day,)))
    unit = step.child("file13")
    parent = {"unit": f"{unit.unit:016x}", "tags": [day], "kind": "traced"}
    create = Request.create(file, "c", traced(unit_id(file)), started=1, parents=[parent])
    apply(
        stack,
        Request.create(day, "c", traced(unit_id(day)), 1, timeout=3600, tolerated_units=1),
        *step.requests(),
        create,
        Request.fail(file, "f", "the file cannot be read"),
    )
    shown = lines_of(xorack("show", day))
    assert shown["children"] == [f"0 acked, 0 other units open, 1 failed: {file}"]
    assert shown["note"] == [f"chain {file} failed: the file cannot be read"]
    assert lines_of(xorack("show", file))["parent"] == [day]
    why = lines_of(xorack("explain", day))["why"]
    assert f"1 chain that is a unit of it failed: xorack explain {file}" in why
    assert "1 of 1 chain failed: the file cannot be read" in why
    why = lines_of(xorack("explain", file))["why"]
    # The day may be acked without the file, because it tolerates a unit.
    assert f"it is a unit of {day}, and its failure left this unit outstanding" in why
    apply(stack, Request.fail(day, "f", "the day is over"))
    failure = f"{day}: the day is over; 0 acked, 1 failed: {file}"
    assert xorack("wait", day) == (1, ["1 chain: 1 failed"], [failure])
    (found,) = map(json.loads, xorack("show", day, "--json")[1])
    assert found["children"] == {"acked": 0, "failed": 1, "failed_tags": [file]}
    assert (found["open_units"], found["parent_tags"]) == (0, [])
    listed = map(json.loads, xorack("list", "--run", RUN, "--json")[1])
    assert [one["parent_tags"] for one in listed] == [[day]]
