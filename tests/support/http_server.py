"""A server on the loopback address, which stands for a service."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    """A handler that keeps connections open and logs nothing."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # a response leaves in one piece

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers["Content-Length"]))

    def respond(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response_only(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class Server(ThreadingHTTPServer):
    """A context manager that serves in a thread, at `endpoint_url`."""

    request_queue_size = 128

    def __init__(self, handler: type[Handler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.endpoint_url = f"http://127.0.0.1:{self.server_port}"

    def __enter__(self) -> Server:
        # Leaving waits for the next poll: the default of half a second would be most of a test.
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, *_: object) -> None:
        """Log nothing: broken connections are normal here."""
