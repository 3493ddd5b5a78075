"""The page of `xorack web` over the AWS of a test."""

import http.client
import threading
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from urllib.parse import urlencode

from tests.support.cli import store
from xorack.ops.backlog import read_backlog
from xorack.ops.redrive import Redrive
from xorack.web.page.server import WebServer
from xorack.web.page.site import DeadLetters, Site


@contextmanager
def serving(aws, title="stack test", **options):
    """Serve the page of a table and its queues; yield the server."""
    client = aws.client("sqs")
    queues = partial(read_backlog, client, aws.queue_url, aws.dead_letter_queue_url)
    letters = DeadLetters(Redrive(aws.dead_letter_queue_url, aws.queue_url, client), queues)
    with running(Site(title, store(aws), letters, **options)) as server:
        yield server


@contextmanager
def running(site, port=0):
    """Serve a site; yield the server."""
    with WebServer(site, port) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def request(server, path="", *, method="GET", body=None, secret=None, **headers):
    """Send a request as a program would; return its status, headers and text.

    A header's name is written with underscores; None leaves one out.
    """
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=600)
    path = f"/{server.secret if secret is None else secret}/{path}"
    connection.putrequest(method, path, skip_host="Host" in headers, skip_accept_encoding=True)
    for name, value in headers.items():
        if value is not None:
            connection.putheader(name.replace("_", "-"), value)
    data = None if body is None else body.encode()
    if data is not None and "Content_Length" not in headers:
        connection.putheader("Content-Length", str(len(data)))
    connection.endheaders(data)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return SimpleNamespace(status=response.status, headers=response.headers, text=text)


def press(server, action, *ids, token=None, path="dead-letters", fields=(), **headers):
    """Send the form of a page, as a browser does."""
    token = server.site.token if token is None else token
    fields = [*(("id", id) for id in ids), ("action", action), ("token", token), *fields]
    origin = f"http://127.0.0.1:{server.server_port}"
    given = {"Origin": origin, "Sec_Fetch_Site": "same-origin", **headers}
    return request(server, path, method="POST", body=urlencode(fields), **given)
