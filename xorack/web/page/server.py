"""The HTTP server of `xorack web`, for one user's browser on this machine.

It listens on 127.0.0.1. A page's path begins with a secret, so other users and programs of the
machine cannot see anything. A request with another Host is rejected because of DNS rebinding. A
change is rejected unless it comes from a form of these pages.
"""

from __future__ import annotations

import hmac
import logging
import re
import secrets
import socketserver
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from botocore.exceptions import BotoCoreError, ClientError

from xorack.core.errors import ArgumentError, XorAckError
from xorack.web.page.site import Response, Site

_LOG = logging.getLogger("xorack")
_HOST = "127.0.0.1"
_MAX_BODY = 64 * 1024
"""A form with 100 ids has 5 KB."""
_MAX_FIELDS = 200
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Without any referrer, browsers would hide the origin of the page's own forms.
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class WebServer(ThreadingHTTPServer):
    """A server of a site. It serves until `shutdown` is called."""

    daemon_threads = True

    def __init__(self, site: Site, port: int = 0) -> None:
        """Listen on a port of the loopback interface. For 0, choose a free port."""
        super().__init__((_HOST, port), _Handler)
        self.site = site
        self.secret = secrets.token_urlsafe(24)

    def server_bind(self) -> None:
        """Bind without looking up a host's name, which may take seconds."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = _HOST, self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report an error of a connection, unless the browser has closed it."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        return f"http://{_HOST}:{self.server_port}/{self.secret}/"

    @property
    def hosts(self) -> tuple[str, ...]:
        """The values of Host that a browser on this machine sends."""
        return f"{_HOST}:{self.server_port}", f"localhost:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: WebServer
    server_version = "xorack"
    sys_version = ""
    timeout = 30

    def do_GET(self) -> None:
        site, known = self.server.site, self.headers.get("X-Known")
        self._answer(lambda path, query: site.get(path, _single(query), known))

    def do_POST(self) -> None:
        self._answer(self._post)

    def _answer(self, respond: Callable[[str, str], Response]) -> None:
        """Check the origin of a request, and answer it."""
        address, _, query = self.path.partition("?")
        secret, slash, path = address.removeprefix("/").partition("/")
        if self.headers.get("Host") not in self.server.hosts:
            self._send(Response(403, b"unknown host", "text/plain"))
        elif not (slash and hmac.compare_digest(secret.encode(), self.server.secret.encode())):
            hint = b"open the address that xorack web has printed"
            self._send(Response(403, hint, "text/plain"))
        else:
            self._send(self._respond(lambda: respond(path, query)))

    def _respond(self, respond: Callable[[], Response]) -> Response:
        site = self.server.site
        try:
            return respond()
        except (XorAckError, ClientError, BotoCoreError) as error:
            return site.failure(error)
        except Exception:  # noqa: BLE001 - the server keeps serving other requests
            _LOG.exception("xorack web cannot answer %s", self.command)
            return site.problem(500, "Error", "xorack web has a defect; see its terminal.")

    def _post(self, path: str, query: str) -> Response:
        site = self.server.site
        length = self.headers.get("Content-Length", "")
        if not (re.fullmatch("[0-9]{1,9}", length) and int(length) <= _MAX_BODY):
            return site.problem(400, "Bad request", "The form has no length, or is too long.")
        body = self.rfile.read(int(length)).decode("utf-8", "replace")
        tag = {name: values for name, values in _fields(query).items() if name == "tag"}
        fields = tag | _fields(body)
        token = fields.get("token", [""])[0]
        if not (
            self._is_same_origin() and hmac.compare_digest(token.encode(), site.token.encode())
        ):
            return site.problem(403, "Not allowed", "This form is not from these pages; reload.")
        return site.post(path, fields)

    def _is_same_origin(self) -> bool:
        """Return whether a page of this server sent the request, as browsers report it."""
        same_site = self.headers.get("Sec-Fetch-Site", "same-origin") == "same-origin"
        return same_site and self.headers.get("Origin") == f"http://{self.headers['Host']}"

    def _send(self, response: Response) -> None:
        self.send_response(response.status)
        self.send_header("Content-Type", response.type)
        self.send_header("Content-Length", str(len(response.body)))
        self.end_headers()
        self.wfile.write(response.body)

    def end_headers(self) -> None:
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, *_: Any) -> None:
        """Do not log requests, because their paths contain the secret."""


def _fields(text: str) -> dict[str, list[str]]:
    try:
        return parse_qs(text, max_num_fields=_MAX_FIELDS)
    except ValueError as error:
        raise ArgumentError("form", text, f"at most {_MAX_FIELDS} fields") from error


def _single(query: str) -> dict[str, str]:
    return {name: values[0] for name, values in _fields(query).items()}
