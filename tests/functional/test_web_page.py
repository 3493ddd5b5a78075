"""The pages of `xorack web` in headless Chromium: live, by keyboard, and no text runs."""

from __future__ import annotations

import re

import pytest

from tests.functional.test_widget_page import HACKS, contrast
from tests.support.cli import TAG, apply, finish, start
from tests.support.dead_letters import bodies, put, put_messages
from tests.support.in_process import create_resources, locked_aws
from tests.support.web import running, serving
from xorack import traced
from xorack.core.request import Request
from xorack.core.stamp import xor
from xorack.ops import redrive

pytestmark = pytest.mark.browser

SHOWN = "document.querySelector('#main').innerText"
NEWS = "document.querySelector('#news').textContent"
CONNECTION = "document.querySelector('#connection')"


@pytest.fixture
def web(aws, sqs):
    with serving(aws) as server:
        yield server


@pytest.fixture
def visit(browser, web):
    """A function that opens a page; at the end, its script must have had no error."""
    opened = []

    def open_page(path="", **options):
        opened.append(browser.open(web.url + path, **options))
        return opened[-1]

    yield open_page
    for page in opened:
        page.close()
        assert page.problems == []


def start_many(aws, tag, units):
    stamp = xor(*(traced(unit + 1) for unit in range(units)))
    apply(aws, Request.create(tag, "c", stamp, started=units, timeout=5000))


def test_a_chain_that_ends_is_shown_without_a_reload(aws, visit):
    start(aws)
    page = visit()
    assert "open" not in page.evaluate(f"return {CONNECTION}.className")
    page.evaluate("window.before = document.querySelector('tr[data-key]')")
    assert "66.6 %" in page.evaluate(f"return {SHOWN}")
    finish(aws)
    page.wait(f"{SHOWN}.includes('100 %')")  # by its own timer
    assert page.evaluate("return window.before === document.querySelector('tr[data-key]')")
    assert page.evaluate(f"return {NEWS}") == "0 unfinished, 0 failed, 1 acked"
    assert re.fullmatch(r"Live · [0-9:]{8}Z", page.evaluate(f"return {CONNECTION}.textContent"))


def test_a_refresh_keeps_what_is_open_typed_focused_and_scrolled(aws, visit):
    for number in range(3):
        start_many(aws, f"many/{number}", 9)
    page = visit(height=300)
    page.click("tr:last-child summary")
    page.evaluate("document.querySelector('#prefix').focus({preventScroll: true})")
    for letter in "many":
        page.press(letter)
    page.evaluate("scrollTo(0, 100)")
    start_many(aws, "another", 2)
    apply(aws, Request("fail", "many/0", "f", reason="x"))
    state = """return {
        open: [...document.querySelectorAll('details[open]')].map(
            (one) => one.closest('tr').dataset.key),
        typed: document.querySelector('#prefix').value,
        focused: document.activeElement.id,
        scrolled: scrollY,
        rows: [...document.querySelectorAll('tr[data-key]')].map((one) => one.dataset.key),
    }"""
    before = page.evaluate(state)
    page.evaluate("return refresh()")
    after = page.evaluate(state)
    assert before.pop("rows") == ["many/0", "many/1", "many/2"]
    assert after.pop("rows") == ["many/1", "many/2", "another", "many/0"]
    assert before == after == {
        "open": ["many/2"], "typed": "many", "focused": "prefix", "scrolled": 100,
    }  # fmt: skip
    page.press("Enter")
    page.wait("location.search === '?prefix=many' && document.readyState === 'complete'")
    page.wait("document.querySelectorAll('tr[data-key]').length === 3")


def test_a_chain_is_reached_and_left_by_keyboard(aws, visit):
    start(aws)
    page = visit()
    for _ in range(20):
        page.press("Tab")
        if page.evaluate("return document.activeElement.closest('tr') !== null"):
            break
    page.press("Enter")
    page.wait(f"document.querySelector('h1').textContent === '{TAG}'")
    assert page.evaluate("return document.querySelectorAll('table.units tbody tr').length") == 2


def messages(page):
    return page.evaluate("return document.querySelectorAll('main>details').length")


def test_retry_sends_a_message_back(aws, visit):
    put_messages(aws, failed=(1, 2))
    page = visit("dead-letters")
    assert messages(page) == 2
    page.click("main>details>summary")
    gone = page.evaluate("return document.querySelector('main>details').dataset.key")
    page.click("main>details[open] button[value=retry]")
    page.wait(f"{SHOWN}.includes('1 message sent back.')")
    assert messages(page) == 1
    assert gone not in page.evaluate("return document.querySelector('main').outerHTML")
    assert page.evaluate(f"return {NEWS}") == "1 message sent back."
    assert page.evaluate("return document.activeElement.id") == "main"
    assert page.evaluate("return document.querySelector('nav .count').textContent") == "1"
    assert len(aws.receive_all(aws.queue_url)) == 1
    assert len(aws.dead_letters()) == 1


def test_delete_asks_first_and_works_by_keyboard(aws, visit):
    put_messages(aws, failed=(1,), malformed=(2, 2))
    page = visit("dead-letters")
    page.evaluate("document.querySelector('td button[value=delete]').focus()")
    page.press("Enter")
    page.wait("document.querySelector('dialog').open")
    question = page.evaluate("return document.querySelector('dialog p').textContent")
    assert question == "Delete 2 messages? There is no copy."
    assert page.evaluate("return document.activeElement.textContent") == "Cancel"
    page.press("Enter")
    page.wait("!document.querySelector('dialog').open")
    assert messages(page) == 3
    page.press("Enter")
    page.wait("document.querySelector('dialog').open")
    page.press("Tab")
    page.press("Enter")
    page.wait(f"{SHOWN}.includes('2 messages deleted.')")
    assert messages(page) == 1
    (left,) = aws.dead_letters()
    assert left["Body"] in bodies(1)


def test_new_dead_letters_appear(aws, visit):
    page = visit("dead-letters")
    assert "No dead-lettered messages." in page.evaluate(f"return {SHOWN}")
    put_messages(aws, failed=(1,))
    page.wait("document.querySelectorAll('main>details').length === 1")


def test_a_lost_connection_is_shown_and_ends(aws, browser):
    start(aws)
    with serving(aws) as server:
        page = browser.open(server.url)
        port, secret, site = server.server_port, server.secret, server.site
    page.evaluate("return refresh()")
    assert page.evaluate(f"return [{CONNECTION}.className, {NEWS}]") == [
        "lost", "No connection: is xorack web still running?",
    ]  # fmt: skip
    assert TAG in page.evaluate(f"return {SHOWN}")
    with running(site, port) as server:
        page.evaluate("return refresh()")
        text = page.evaluate(f"return {CONNECTION}.textContent")
        assert text == "xorack web was started again: open its new address"
        server.secret = secret
        page.evaluate("return refresh()")
        assert page.evaluate(f"return [{CONNECTION}.className, {NEWS}]") == ["", "connected again"]
        page.close()


def test_an_error_of_aws_keeps_the_page(aws, visit, sqs):
    from botocore.exceptions import EndpointConnectionError

    start(aws)
    page = visit()

    def broken(arguments):
        raise EndpointConnectionError(endpoint_url="http://127.0.0.1:9/")

    sqs.before["Scan"] = broken
    page.evaluate("return refresh()")
    assert "http://127.0.0.1:9/" in page.evaluate(f"return {CONNECTION}.textContent")
    assert TAG in page.evaluate(f"return {SHOWN}")
    page.problems.clear()  # the browser reports the status 503


def test_no_text_of_others_runs(aws, visit):
    for number, text in enumerate(HACKS):
        apply(aws, Request.create(text, "c", traced(number + 1), detail={text: text}))
        put(aws, text, error=f"tag: {text}")
    hacked = "return window.hacked === undefined ? null : window.hacked"
    found = "return [...document.querySelectorAll('tr[data-key]')].map((one) => one.dataset.key)"
    page = visit()
    assert sorted(page.evaluate(found)) == sorted(HACKS)
    page.evaluate("return refresh()")
    assert page.evaluate(hacked) is None
    for number in range(1, len(HACKS) + 1):
        page.click(f"tr:nth-child({number}) .tag a")
        page.wait("document.querySelector('h1.tag')")
        assert page.evaluate("return document.querySelector('h1').textContent") in HACKS
        assert page.evaluate(hacked) is None
        page.go(page.evaluate("return document.querySelector('.brand').href"))
    page = visit("dead-letters")
    assert messages(page) == len(HACKS)
    assert page.evaluate(hacked) is None


def test_the_policy_stops_a_script_that_gets_in(aws, visit):
    page = visit()
    page.evaluate(
        "document.querySelector('#main').innerHTML = '<img src=x onerror=\"window.hacked = 1\">';"
        "const one = document.createElement('script'); one.textContent = 'window.hacked = 2';"
        "document.body.append(one)"
    )
    page.wait("document.querySelector('#main img').complete")
    assert page.evaluate("return window.hacked === undefined")
    assert any("Content Security Policy" in problem for problem in page.problems)
    page.problems.clear()


PATHS = ("", "?group=failed&prefix=f", f"chain?tag={TAG}", "chain?tag=failed", "dead-letters", "x")


@pytest.fixture(scope="module")
def gallery(browser):
    """A function that opens the pages of a full table, one by one, with all details open."""
    with (
        pytest.MonkeyPatch.context() as patch,
        locked_aws() as started,
        serving(aws := create_resources(started)) as server,
    ):
        patch.setattr(redrive, "_WAIT_SECONDS", 0)
        start(aws, detail={"customer": "Ahab"}, timeout=60)
        start(aws, "/".join(["a-folder-of-some-length"] * 40), timeout=5000)
        start(aws, "failed")
        apply(aws, Request("fail", "failed", "f", reason="the ship sank " * 20))
        start(aws, "acked")
        finish(aws, "acked")
        put_messages(aws, failed=(1, 2), malformed=(3,))

        def visit(**options):
            page = browser.open(server.url, **options)
            for path in PATHS:
                page.go(server.url + path)
                page.evaluate("document.querySelectorAll('details').forEach((d) => d.open = true)")
                yield path, page
            page.close()

        yield visit


@pytest.mark.parametrize("width", [420, 1200])
def test_every_page_fits_its_window(gallery, width):
    for path, page in gallery(width=width):
        assert page.evaluate("return document.scrollingElement.scrollWidth - innerWidth") <= 0, path
        cut = "[...document.querySelectorAll('td')].filter((td) => td.scrollWidth > td.clientWidth)"
        assert page.evaluate(f"return {cut}.map((td) => td.innerText)") == [], path


COLOURS = """
const under = (one) => {
    const colour = getComputedStyle(one).backgroundColor;
    return colour === 'rgba(0, 0, 0, 0)' && one.parentElement ? under(one.parentElement) : colour;
};
return [...document.querySelectorAll('body *')]
    .filter((one) => [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim()))
    .map((one) => [getComputedStyle(one).color, under(one), one.textContent]);
"""


@pytest.mark.parametrize("dark", [False, True])
def test_every_text_of_every_page_has_enough_contrast(gallery, dark):
    seen = set()
    for path, page in gallery(dark=dark):
        for colour, under, text in page.evaluate(COLOURS):
            seen.add(colour)
            assert contrast(colour, under) >= 4.5, (path, text, colour, under)
    assert len(seen) >= 5


def test_every_control_has_a_name_and_every_page_its_landmarks(gallery):
    for path, page in gallery():
        names = {}
        for node in page.call("Accessibility.getFullAXTree")["nodes"]:
            if not node.get("ignored"):
                name = node.get("name", {}).get("value", "")
                names.setdefault(node["role"]["value"], []).append(name)
        assert {"banner", "main", "navigation", "heading", "status"} <= names.keys(), path
        for role in ("link", "button", "searchbox", "navigation"):
            assert all(names.get(role, ())), (path, role)
