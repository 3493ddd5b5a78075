"""`xorack web`: its target, its address and its end, over moto in process."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.cli import start
from tests.support.dead_letters import put_messages
from tests.support.web import request
from xorack.web.page.server import WebServer


@pytest.fixture
def visit(monkeypatch):
    """A function that lets a command serve, visits its page, and presses Ctrl-C."""

    def set_up(*paths):
        def serve_forever(server):
            with ThreadPoolExecutor(1) as pool:
                serving = pool.submit(serve, server, 0.02)
                pages.extend(request(server, path).text for path in paths)
                server.shutdown()
                serving.result()
            raise KeyboardInterrupt

        monkeypatch.setattr(WebServer, "serve_forever", serve_forever)
        return pages

    pages, serve = [], WebServer.serve_forever
    return set_up


def test_it_prints_its_address_and_serves_the_stack(stack, sqs, xorack, visit):
    start(stack, "order/17")
    put_messages(stack, failed=(1,))
    pages = visit("", "dead-letters")
    status, (url,), err = xorack("web")
    assert (status, err) == (0, ["Ctrl-C stops it"])
    assert url.startswith("http://127.0.0.1:")
    assert "order/17" in pages[0]
    assert "stack xorack" in pages[0]
    assert "1 dead-lettered message." in pages[1]


def test_a_table_has_no_dead_letters(stack, sqs, xorack, visit):
    start(stack, "order/17")
    pages = visit("", "dead-letters")
    assert xorack("web", "--table", stack.table_name)[0] == 0
    assert "order/17" in pages[0]
    assert "pass --stack" in pages[1]


def test_a_port_that_is_taken(stack, xorack):
    with WebServer(None) as other:
        status, _, (line,) = xorack("web", "--port", str(other.server_port))
    assert status == 1
    assert line == f"error: port {other.server_port}: Address already in use"
