"""The server of `xorack web` over moto in process: its pages, changes and rejections."""

import html
import json
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta, timezone
from urllib.parse import quote, unquote

import pytest
from botocore.exceptions import EndpointConnectionError

from tests.support.cli import TAG, apply, finish, put_invalid_item, start, store
from tests.support.dead_letters import put, put_messages
from tests.support.dead_letters import request as request_of
from tests.support.fakes import FakeBus
from tests.support.web import press, request, running, serving
from xorack import traced, unit_id, xor
from xorack.core.hashing import child_id
from xorack.core.message import pack
from xorack.core.request import Request
from xorack.ops import browse
from xorack.ops.status import read_status
from xorack.web.page import pages
from xorack.web.page import site as site_module
from xorack.web.page.site import Site


def tags(response):
    return [html.unescape(tag) for tag in re.findall(r'<tr data-key="(.*?)">', response.text)]


def fail(aws, tag, reason="the ship sank"):
    apply(aws, Request("fail", tag, "f", reason=reason))


# -- chains --------------------------------------------------------------------------------------


@pytest.fixture
def chains(aws):
    """Chains of every status; the tags in the order of the page."""
    start(aws, "late", timeout=90_000)
    start(aws, "soon", timeout=60)
    start(aws, "run/failed")
    fail(aws, "run/failed")
    start(aws, "run/acked")
    finish(aws, "run/acked")
    return ["soon", "late", "run/failed", "run/acked"]


FILTERS = {
    "group=failed": [2],
    "group=unfinished": [0, 1],
    "group=acked": [3],
    "prefix=run/": [2, 3],
    "prefix=run/&group=acked": [3],
    "prefix=%2525": [],
}


def test_chains_are_listed_unfinished_first_and_filtered(web, chains):
    page = request(web)
    assert page.status == 200
    assert tags(page) == chains
    for text in ("failed: the ship sank", "1 due within 10 min.", "66.6 %", "acked", "stack test"):
        assert text in page.text
    assert 'data-news="2 unfinished, 1 failed, 1 acked"' in page.text
    for query, expected in FILTERS.items():
        page = request(web, f"?{query}")
        assert tags(page) == [chains[n] for n in expected], query
        assert ("No chains whose tag begins with “%25”." in page.text) == (not expected)


def test_each_number_and_cause_of_the_first_screen_leads_to_what_it_counts(aws, web, sqs):
    empty = request(web).text
    assert "Each chain appears here as soon as its create is applied" in empty
    assert "No dead-lettered messages" in request(web, "dead-letters").text
    for run, reason in (("a", "row {} is bad"), ("b", "the disk is full")):
        for number in range(6):
            start(aws, f"{run}/{number}")
            fail(aws, f"{run}/{number}", reason.format(number))
    start(aws, "overdue", timeout=0.001)
    put_messages(aws, failed=(1, 2))
    aws.client("sqs").send_message(QueueUrl=aws.queue_url, MessageBody="{}")
    page = request(web).text
    links = dict(re.findall(r'<a href="([^"]*)"><b class="num[^"]*">(\d+</b> [^<]*)', page))
    assert {target: number.replace("</b>", "") for target, number in links.items()} == {
        "./?group=failed": "12 failed",
        "./?group=overdue": "1 overdue",
        "./?group=unfinished": "1 waiting in the queue",
        "dead-letters": "2 dead letters",
    }
    assert tags(request(web, "?group=overdue")) == ["overdue"]
    causes = re.findall(r'<li><a href="./([^"]*)"><span class="num">6</span> failed</a>', page)
    shown = [{*tags(request(web, html.unescape(cause)))} for cause in causes]
    assert sorted(map(sorted, shown)) == [[f"{run}/{n}" for n in range(6)] for run in "ab"]
    for text in ("at most 12 in one", "−60 min", "now</span>", 'class="late"'):
        assert text in page, text


def test_a_stopped_consumer_is_an_alarm_after_a_minute(aws, web):
    now = [0.0]
    web.site.letters._backlog.clock = lambda: now[0]
    aws.client("sqs").send_message(QueueUrl=aws.queue_url, MessageBody="{}")
    assert "data-alarm" not in request(web).text
    now[0] = 61.0
    for path in ("", "dead-letters", "windows"):
        page = request(web, path).text
        assert 'data-alarm="the consumer takes no messages"' in page
        assert (
            "The consumer takes no messages: 1 message in the queue, the oldest for 1 min" in page
        )


def test_an_ended_chain_has_no_deadline_and_leads_to_its_likes(web, chains):
    for tag in chains:
        page = request(web, f"chain?tag={quote(tag, safe='')}").text
        assert ("Deadline</b>" in page) == (tag in ("soon", "late"))
        assert ("time-out: 1 min" in page) == (tag == "soon")
    page = request(web, "chain?tag=run%2Ffailed").text
    (likes,) = re.findall(r'<a href="./([^"]*)">chains that failed for the same reason', page)
    assert tags(request(web, html.unescape(likes))) == ["run/failed"]


def test_local_times_are_beside_utc():
    assert pages.local_time(0, timezone.utc) == ""
    assert pages.local_time(0, timezone(timedelta(hours=2), "CEST")) == "Thu 02:00:00 CEST"


def test_a_large_table_shows_the_nearest_deadlines_first(aws, web, monkeypatch):
    monkeypatch.setattr(browse.read_chains, "__defaults__", (50, 1))
    for number in range(4):
        start(aws, f"t{number}", timeout=1000 * (4 - number))
    assert tags(request(web)) == ["t3", "t2", "t1", "t0"]


def test_any_part_of_a_chain_is_searched(aws, web, chains):
    apply(aws, Request("note", "late", "n", text="The CRANE broke"))
    start(aws, "customer", detail={"ship": "Pequod"})
    for text, found in {"ACK": ["run/acked"], "sank": ["run/failed"], "crane": ["late"]}.items():
        assert tags(request(web, f"?text={text}")) == found
    assert tags(request(web, "?text=pequod")) == ["customer"]
    assert "No chains that have “whale”." in request(web, "?text=whale").text


@pytest.mark.parametrize(
    "query", ["group=x", "order=x", "skip=-1", "skip=%C2%B2", "a=b" + "&a=b" * 300]
)
def test_an_invalid_query_is_explained(unused, query):
    page = request(unused, f"?{query}")
    assert page.status == 400
    assert "expected" in page.text


def test_an_item_that_is_not_a_chain_hides_none(aws, web, chains):
    put_invalid_item(aws, "<i>")
    page = request(web)
    assert tags(page) == chains
    assert "&lt;i&gt; cannot be read" in page.text
    assert request(web, "chain?tag=%3Ci%3E").status == 404


def test_a_chain_has_a_timeline_and_its_dead_letters(aws, web, sqs):
    start(aws, timeout=3600)
    apply(aws, Request("note", TAG, "n", text="the <crane> broke"))
    path = f"chain?tag={quote(TAG, safe='')}"
    moments = re.compile(r'<li class="(\w*)">.*?<b>(.*?)</b>', re.DOTALL)
    shown = request(web, path).text
    steps = [("", "Created"), ("", "Last step"), ("", "Note"), ("next", "Deadline")]
    assert moments.findall(shown) == steps
    assert "the &lt;crane&gt; broke" in shown
    fail(aws, TAG)
    words = "this unit's step ran before with other children; 'a9b8' was started by it only"
    error = f"id: 'id-5', expected a unique id: {words}"
    id = put(aws, next(pack([request_of(5, TAG)])), error=error)
    put_messages(aws, failed=(1,))
    shown = request(web, path).text
    ends = [("late", "Failed"), ("", "Event published")]
    assert moments.findall(shown) == [*steps[:3], *ends]
    assert 'Dead letters of this chain <span class="count">1</span>' in shown
    assert f'<a href="dead-letters#{id}">rejected</a> {error}' in html.unescape(shown)
    assert f'<a href="{path}">{TAG}</a>' in request(web, "dead-letters").text
    sqs.names.clear()
    request(web, path)
    assert "ReceiveMessage" not in sqs.names  # they are read again when their number changes


ROPE = "rope <four>"


def linked(page, tag):
    """Return the address of a chain's page, to which the page has a link."""
    targets = map(html.unescape, re.findall(r'href="(chain\?tag=[^"]*)"', page.text))
    (target,) = {each for each in targets if unquote(each) == f"chain?tag={tag}"}
    return target


def test_a_run_leads_to_its_failed_file_its_missing_words_and_back(aws, web):
    file, missing = "run/file/a", f"{unit_id('whale'):016x}"
    parent = {"unit": f"{5:016x}", "tags": ["run"], "kind": "plain"}
    create = Request.create(file, "c", starts=[6, 7], cells=0, parents=[parent])
    note = Request("note", file, "n", text="word = 'whale'", missing=[unit_id("whale")])
    run = Request.create("run", "c", starts=[4, 5], cells=0)
    apply(aws, run, create, note, Request.fail(file, "f", "2 words are missing"))
    page = request(web, "chain?tag=run")
    assert "0 acked, 1 other unit open, 1 failed: run/file/a" in page.text
    assert "1 of 1 chain failed: 2 words are missing: word = &#39;whale&#39;" in page.text
    page = request(web, linked(page, file))
    assert missing in page.text
    assert "1 other unit open, 1 failed" in request(web, linked(page, "run")).text


def start_with_rope(aws):
    rope, other = child_id(unit_id(TAG), ROPE), child_id(unit_id(TAG), "lamp")
    apply(aws, Request.create(TAG, "c", xor(traced(rope), traced(other)), started=2, timeout=3600))
    return f"{other:016x}"


def test_names_are_shown_where_they_are_known(aws, sqs, monkeypatch):
    other, chain = start_with_rope(aws), f"chain?tag={quote(TAG, safe='')}"
    with serving(aws, candidates=["cord", ROPE]) as server:
        for path in ("", chain):
            page = request(server, path).text
            assert page.index("rope &lt;four&gt;") < page.index(other)
        monkeypatch.setattr(site_module, "_FEW", 1)
        assert "rope" not in request(server).text
        assert "rope" in request(server, chain).text


def change(web, action, **fields):
    return press(web, action, path="chain", fields=[("tag", TAG), *fields.items()])


def test_a_chain_is_changed_by_its_forms(aws, sqs):
    start_with_rope(aws)
    bus = FakeBus()
    with serving(aws, publisher=bus) as web:
        assert "rope &lt;four&gt;</td>" in change(web, "names", among=f"cord\n{ROPE}\n").text
        assert "rope &lt;four&gt;</code>" in request(web).text
        before = read_status(store(aws), TAG).deadline
        assert "Deadline changed." in change(web, "extend", minutes="9000").text
        assert read_status(store(aws), TAG).deadline > before
        for wrong in ({"minutes": "-1"}, {"minutes": "0"}, {}):
            assert change(web, "extend", **wrong).status == 400
        assert change(web, "fail").status == change(web, "ack").status == 400
        assert press(web, "fail", path="chain", token="x").status == 403
        page = change(web, "fail", reason="the ship sank")
        assert "failed: the ship sank" in page.text
        assert 'value="fail"' not in page.text
        assert "Already ended; nothing changed." in change(web, "extend", minutes="5").text
    assert [event["reason"] for event in bus.events] == ["the ship sank"]


def test_a_form_names_its_chain_whatever_its_characters(aws, web):
    tag = "a\u202etxt\n"
    start(aws, tag)
    page = request(web, f"chain?tag={quote(tag)}").text
    (address,) = {html.unescape(one) for one in re.findall('action="(chain[^"]*)"', page)}
    assert "Failed." in press(web, "fail", path=address, fields=[("reason", "x")]).text
    assert read_status(store(aws), tag).chain.status == "failed"


POISON = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "a\u202etxt.exe",
    "&lt;b&gt;%00\n",
    "<" * 1024,
)


def test_text_of_others_is_only_text(aws, web):
    paths = ["", "dead-letters"]
    for text in POISON:
        apply(aws, Request.create(text, "c", traced(1), detail={text[:200]: text[:200]}))
        fail(aws, text, text[:100])
        put(aws, json.dumps({"x": text}), error=f"tag: {text[:100]}".replace("\n", " "))
        paths += [f"?prefix={quote(text)}", f"chain?tag={quote(text)}"]
    for path in paths:
        page = request(web, path)
        assert page.status == 200, path
        assert not re.search(r"<script>|<img src=x|\u202e|onmouseover='", page.text)
        assert page.text.count("<script ") == 1
    shown = {text.replace("\u202e", "\\u202e").replace("\n", "\\n") for text in POISON}
    assert set(tags(request(web))) == shown


# -- dead letters --------------------------------------------------------------------------------


def letters(server):
    """The ids of the messages on the page."""
    page = request(server, "dead-letters").text
    return re.findall(r'<details data-key="(.*?)">', page)


def test_dead_letters_are_shown_with_body_and_invalid_value(aws, web):
    request_ = {"op": "create", "tag": "order/1", "id": "c", "timeout": "1h"}
    put(aws, json.dumps({"version": 1, "requests": [request_]}), sender="AROA:intake")
    put_messages(aws, failed=(1, 2))
    page = html.unescape(request(web, "dead-letters").text)
    for text in ("3 dead-lettered messages.", 'timeout: "1h"', "Retry 2", "order/1"):
        assert text in page, text
    assert '"op": "create"' in page
    assert 'Dead letters <span class="count">3</span>' in page


def test_a_button_changes_the_named_messages_and_no_other(aws, web):
    put_messages(aws, failed=(1, 2), malformed=(3,), rejected=(4,))
    first, *two, kept = letters(web)
    page = press(web, "retry", first)
    assert page.status == 200
    assert "1 message sent back." in page.text
    assert letters(web) == [*two, kept]
    assert len(aws.receive_all(aws.queue_url)) == 1
    assert "2 messages deleted." in press(web, "delete", *two).text
    assert letters(web) == [kept]
    page = press(web, "delete", *two)
    assert "0 of 2 messages deleted. The others were deleted" in page.text
    assert len(aws.dead_letters()) == 1
    assert aws.receive_all(aws.queue_url) == []


def test_what_would_be_rejected_again_has_no_retry(aws, web):
    start(aws, "books/4")
    put_messages(aws, rejected=(4, 5), malformed=(3,))
    expired = put(aws, "{}", sent_at="1")
    assert "0 of 1 message sent back." in press(web, "retry", expired).text
    page = request(web, "dead-letters").text
    assert "<strong>expired</strong>" in page
    for message in re.findall("<details.*?</details>", page, re.DOTALL):
        assert (">Retry</button>" in message) == (
            "<strong>rejected</strong> tag: &#39;books/5" in message
        )
    assert page.count("rejected again while the chain exists") == 2  # of both, of books/4
    assert page.count("rejected again; correct it with xorack dead-letters send") == 2


def test_a_page_that_is_up_to_date_receives_nothing(aws, web, sqs):
    put_messages(aws, failed=(1, 2))
    sqs.names.clear()
    assert request(web, "dead-letters", X_Known="2").status == 204
    assert sqs.names == ["GetQueueAttributes"]
    assert request(web, "dead-letters", X_Known="1").status == 200


def test_reads_change_nothing(aws, web, chains, sqs):
    put_messages(aws, failed=(1,))
    sqs.names.clear()
    action = f"dead-letters?action=delete&id=x&token={web.site.token}"
    for path in ("", f"chain?tag={chains[0]}", "page.js", "dead-letters", action):
        assert request(web, path).status == 200
    reads = {"Scan", "Query", "GetItem", "BatchGetItem", "ReceiveMessage", "GetQueueAttributes"}
    assert set(sqs.names) <= reads | {"ChangeMessageVisibilityBatch"}
    assert len(aws.dead_letters()) == 1


# -- what it rejects -----------------------------------------------------------------------------


class NoLetters:
    """A dead-letter queue that nobody may change."""

    def count(self):
        return 7

    def waiting(self):
        return None

    def change(self, ids, *, delete):
        raise AssertionError(ids)


@pytest.fixture(scope="module")
def unused():
    """A server whose table and queue no request reaches."""
    with running(Site("stack test", None, NoLetters())) as server:
        yield server


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "", None])
def test_a_foreign_host_is_rejected(unused, host):
    host = host and host.format(port=unused.server_port)
    answer = request(unused, "page.js", Host=host)
    assert (answer.status, answer.text) == (403, "unknown host")
    assert request(unused, "page.js", Host=f"localhost:{unused.server_port}").status == 200


@pytest.mark.parametrize("secret", ["", "x", "..", "%C3%A9"])
@pytest.mark.parametrize("path", ["", "page.js"])
def test_an_address_without_the_secret_shows_nothing(unused, path, secret):
    answer = request(unused, path, secret=secret)
    assert answer.status == 403
    assert answer.text == "open the address that xorack web has printed"


@pytest.mark.parametrize(
    ("given", "status"),
    [
        *(({"Origin": of}, 403) for of in ("http://evil.example", "null", None)),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        *(({"Sec_Fetch_Site": site}, 403) for site in ("cross-site", "same-site")),
        *(({"token": token}, 403) for token in ("", "x", "é")),
        *(({"Content_Length": length}, 400) for length in (None, "-1", "x", "70000")),
    ],
)
def test_a_form_that_no_page_sends_changes_nothing(unused, given, status):
    assert press(unused, "delete", "x", **given).status == status


@pytest.mark.parametrize(
    ("actions", "ids"),
    [(["delete"], 0), (["delete"], 101), (["purge"], 1), (["retry", "delete"], 1)],
)
def test_a_form_that_no_page_has_is_not_understood(unused, actions, ids):
    answer = unused.site.post("dead-letters", {"action": actions, "id": [*map(str, range(ids))]})
    assert answer.status == 400
    assert b"Bad request" in answer.body


@pytest.mark.parametrize("method", ["PUT", "<b>"])
def test_other_methods_are_rejected(unused, method):
    answer = request(unused, "dead-letters", method=method)
    assert answer.status == 501
    assert "<b>" not in answer.text


def test_every_response_has_a_strict_policy(web):
    for path in ("", "page.css", "nothing", "chain?tag=gone"):
        headers = request(web, path).headers
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
    assert not re.search(r" style=| on[a-z]+=|<style|https?://", request(web).text)


# -- errors --------------------------------------------------------------------------------------


def test_an_error_of_aws_is_a_page_and_the_server_goes_on(web, sqs):
    def broken(arguments):
        raise EndpointConnectionError(endpoint_url="http://<b>")

    sqs.before["Scan"] = broken
    page = request(web)
    assert page.status == 503
    assert "http://&lt;b&gt;" in page.text
    sqs.before.clear()
    assert request(web).status == 200


def test_a_defect_is_a_page_without_its_text(web, monkeypatch, caplog):
    monkeypatch.setattr(web.site, "get", lambda *_: 1 / 0)
    page = request(web)
    assert page.status == 500
    assert "division" not in page.text
    assert "ZeroDivisionError" in caplog.text


def test_two_readers_of_the_queue_take_turns(aws, web):
    """A look while a retry holds messages would see none of them."""
    put_messages(aws, failed=range(12))
    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(lambda _: len(letters(web)), range(6)))
    assert found == [12] * 6
