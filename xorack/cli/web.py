"""The command `xorack web`, which serves a page for the browser."""

from __future__ import annotations

import errno
import sys
from contextlib import suppress
from typing import TextIO

import click

from xorack.cli import screen
from xorack.cli.error_messages import error_text
from xorack.cli.options import Target, among_option, lines_of, with_table
from xorack.ops.unit_names import candidates_in
from xorack.web.page.server import WebServer
from xorack.web.page.site import DeadLetters, Site


@click.command(epilog="Example: xorack web --stack orders --among lines-of-the-orders.txt")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=0,
    show_default=False,
    help="The port to listen on.  [default: a free one]",
)
@among_option(help="Name outstanding units: a file of names, one a line, as for `xorack show`.")
@with_table
def web(port: int, among: TextIO | None, target: Target) -> None:
    """Show chains and dead letters in a browser, live.

    The command runs until Ctrl-C, and prints the page's address. The address is a secret: with it,
    any user of this machine can read and delete dead letters with your permissions. The page
    listens only on 127.0.0.1.
    """
    store, letters = target.open(), None
    if target.table is None:
        letters = DeadLetters(target.open_dead_letters(), target.queues())
    names, bus = candidates_in(lines_of(among)), target.open_bus(store)
    site = Site(target.title, store, letters, candidates=names, publisher=bus, explain=error_text)
    try:
        server = WebServer(site, port)
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        raise click.ClickException(f"port {port}: {error.strerror}") from error
    with server:
        screen.say(server.url)
        sys.stdout.flush()
        screen.say("Ctrl-C stops it", error=True)
        with suppress(KeyboardInterrupt):
            server.serve_forever()
