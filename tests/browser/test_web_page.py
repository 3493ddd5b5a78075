"""The pages of `xorack web` in headless Chromium: updates, the keyboard, and escaped texts."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.functional.test_cli_windows import open_windows
from tests.support.cli import TAG, apply, finish, start
from tests.support.dead_letters import bodies, put_messages
from tests.support.in_process import create_resources, locked_aws
from tests.support.web import running, serving
from xorack import traced
from xorack.core.request import Request
from xorack.core.stamp import xor
from xorack.ops import redrive

expect.set_options(timeout=600_000)

REFRESH_MS = 2000
WIDER = "document.scrollingElement.scrollWidth - innerWidth"
CUT = """[...document.querySelectorAll('td')]
    .filter((cell) => cell.scrollWidth > cell.clientWidth).map((cell) => cell.innerText)"""

COLOURS = """() => {
    const under = (one) => {
        const colour = getComputedStyle(one).backgroundColor;
        return colour === 'rgba(0, 0, 0, 0)' && one.parentElement
            ? under(one.parentElement) : colour;
    };
    return [...document.querySelectorAll('body :not(style)')]
        .filter((one) => [...one.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))
        .map((one) => [getComputedStyle(one).color, under(one), one.textContent]);
}"""


def light(colour: str) -> float:
    """Return the relative luminance of a CSS colour by WCAG."""
    parts = [int(part) / 255 for part in re.findall(r"[0-9]+", colour)[:3]]
    r, g, b = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def colours_with_contrast(page) -> set[str]:
    """Return the colours of a page's texts; each has enough contrast by WCAG."""
    found = page.evaluate(COLOURS)
    for colour, under, text in found:
        low, high = sorted((light(colour), light(under)))
        assert (high + 0.05) / (low + 0.05) >= 4.5, (page.url, text, colour, under)
    return {colour for colour, *_ in found}


@pytest.fixture
def problems():
    """Errors of the pages' script, and resources that their content security policy blocked."""
    return []


@pytest.fixture
def visit(browser, problems, web):
    """A function that opens a page, whose clock can be advanced; at the end, no error is left."""
    opened = []

    def open_page(path="", height=900):
        page = browser.new_page(viewport={"width": 1200, "height": height})
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda said: said.type == "error" and problems.append(said.text))
        page.set_default_timeout(600_000)
        page.clock.install()
        page.goto(web.url + path)
        opened.append(page)
        return page

    yield open_page
    for page in opened:
        page.close()
    assert problems == []


def start_many(aws, tag, units):
    stamp = xor(*(traced(unit + 1) for unit in range(units)))
    apply(aws, Request.create(tag, "c", stamp, started=units, timeout=5000))


def test_a_chain_that_ends_is_shown_without_a_reload(aws, visit):
    start(aws)
    page = visit()
    expect(page.locator("#connection")).to_have_text("Live")
    page.evaluate("window.before = document.querySelector('tr[data-key]')")
    expect(page.locator("#main")).to_contain_text("66.6 %")
    finish(aws)
    page.clock.fast_forward(REFRESH_MS)
    expect(page.locator("#main")).to_contain_text("100 %")
    assert page.evaluate("window.before === document.querySelector('tr[data-key]')")
    expect(page.locator("#news")).to_have_text("0 unfinished, 0 failed, 1 acked")
    expect(page.locator("#connection")).to_have_text(re.compile(r"^Live · [0-9:]{8}Z$"))
    expect(page.locator("#connection")).not_to_have_class("lost")


STATE = """({
    open: [...document.querySelectorAll('details[open]')].map(
        (one) => one.closest('tr').dataset.key),
    typed: document.querySelector('#text').value,
    focused: document.activeElement.id,
    scrolled: scrollY,
    rows: [...document.querySelectorAll('tr[data-key]')].map((one) => one.dataset.key),
})"""


def test_a_refresh_keeps_what_is_open_typed_focused_and_scrolled(aws, visit):
    for number in range(3):
        start_many(aws, f"many/{number}", 9)
    page = visit(height=300)
    page.click("tr:last-child summary")
    page.evaluate("document.querySelector('#text').focus({preventScroll: true})")
    page.keyboard.type("many")
    page.evaluate("scrollTo(0, 100)")
    start_many(aws, "another", 2)
    apply(aws, Request("fail", "many/0", "f", reason="x"))
    before = page.evaluate(STATE)
    page.evaluate("refresh()")
    after = page.evaluate(STATE)
    assert before.pop("rows") == ["many/0", "many/1", "many/2"]
    assert after.pop("rows") == ["many/1", "many/2", "another", "many/0"]
    assert (
        before
        == after
        == {
            "open": ["many/2"],
            "typed": "many",
            "focused": "text",
            "scrolled": 100,
        }
    )
    page.keyboard.press("Enter")
    page.wait_for_url("**/?text=many")
    expect(page.locator("tr[data-key]")).to_have_count(3)


def test_delete_asks_first_and_works_by_keyboard(aws, visit):
    put_messages(aws, failed=(1,), malformed=(2, 2))
    page = visit("dead-letters")
    letters, dialog = page.locator("main>details"), page.locator("dialog")
    page.locator("td button[value=delete]").first.focus()
    page.keyboard.press("Enter")
    expect(dialog.locator("p")).to_have_text("Delete 2 messages? There is no copy.")
    expect(dialog.get_by_text("Cancel")).to_be_focused()
    page.keyboard.press("Enter")
    expect(dialog).to_be_hidden()
    expect(letters).to_have_count(3)
    page.keyboard.press("Enter")
    expect(dialog).to_be_visible()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_contain_text("2 messages deleted.")
    expect(page.locator("#news")).to_have_text("2 messages deleted.")
    expect(page.locator("#main")).to_be_focused()
    expect(page.locator("nav .count")).to_have_text("1")
    expect(letters).to_have_count(1)
    (left,) = aws.dead_letters()
    assert left["Body"] in bodies(1)


def test_a_chain_is_failed_after_a_question(aws, visit):
    start(aws)
    page = visit(f"chain?tag={TAG}")
    dialog = page.locator("dialog")
    page.fill("#reason", "withdrawn")
    page.click("text=Fail")
    dialog.get_by_text("Cancel").click()
    expect(page.locator(".state")).to_have_text("open")
    page.click("text=Fail")
    dialog.get_by_text("Fail", exact=True).click()
    expect(page.locator(".state")).to_have_text("failed: withdrawn")


def test_a_lost_connection_is_shown_and_ends(aws, browser):
    start(aws)
    page = browser.new_page()
    connection, news = page.locator("#connection"), page.locator("#news")
    with serving(aws) as server:
        page.goto(server.url)
        port, secret, site = server.server_port, server.secret, server.site
        page.evaluate("refresh()")
        expect(connection).to_contain_text("Z")
    page.evaluate("refresh()")
    expect(connection).to_have_class("lost")
    expect(news).to_have_text("No connection. Is xorack web still running?")
    expect(page.locator("#main")).to_contain_text(TAG)
    expect(connection).to_have_text(re.compile(r" · as of [0-9:]{8}Z$"))
    with running(site, port) as server:
        page.evaluate("refresh()")
        again = "xorack web was started again: open its new address"
        expect(connection).to_contain_text(again)
        server.secret = secret
        page.evaluate("refresh()")
        expect(connection).to_have_class("")
        expect(news).to_have_text("connected again")
        page.close()


def test_a_stopped_consumer_is_said_and_a_slash_begins_a_search(aws, visit, web):
    now = [0.0]
    web.site.letters._backlog.clock = lambda: now[0]
    aws.client("sqs").send_message(QueueUrl=aws.queue_url, MessageBody="{}")
    page = visit()
    expect(page.locator("#connection")).to_have_text(re.compile("^Live"))
    now[0] = 61.0
    page.clock.fast_forward(REFRESH_MS)
    alarm = re.compile("^the consumer takes no messages · [0-9:]{8}Z$")
    expect(page.locator("#connection")).to_have_text(alarm)
    expect(page.locator("#connection")).to_have_class("lost")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "text"


PATHS = (
    "",
    "?group=failed&prefix=f",
    f"chain?tag={TAG}",
    "chain?tag=failed",
    "windows",
    "dead-letters",
    "x",
)


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
        open_windows(aws)

        def visit(width=1200, scheme="light"):
            viewport = {"width": width, "height": 900}
            page = browser.new_page(viewport=viewport, color_scheme=scheme)
            for path in PATHS:
                page.goto(server.url + path)
                page.evaluate("document.querySelectorAll('details').forEach((d) => d.open = true)")
                yield path, page
            page.close()

        yield visit


@pytest.mark.parametrize("width", [400, 800, pytest.param(1200, marks=pytest.mark.slow)])
def test_every_page_fits_its_window(gallery, width):
    for path, page in gallery(width):
        assert page.evaluate(WIDER) <= 0, path
        assert page.evaluate(CUT) == [], path
        rights = "(all) => all.map((one) => one.getBoundingClientRect().right)"
        assert max(page.locator("main button").evaluate_all(rights), default=0) <= width, path


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_every_text_of_every_page_has_enough_contrast(gallery, scheme):
    colours = [colours_with_contrast(page) for _, page in gallery(scheme=scheme)]
    assert len(set().union(*colours)) >= 5


def test_every_control_has_a_name_and_every_page_its_landmarks(gallery):
    for path, page in gallery():
        names = {}
        devtools = page.context.new_cdp_session(page)
        for node in devtools.send("Accessibility.getFullAXTree")["nodes"]:
            if not node.get("ignored"):
                name = node.get("name", {}).get("value", "")
                names.setdefault(node["role"]["value"], []).append(name)
        assert {"banner", "main", "navigation", "heading", "status"} <= names.keys(), path
        for role in ("link", "button", "searchbox", "navigation"):
            assert all(names.get(role, ())), (path, role)
