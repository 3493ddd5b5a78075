"""The commands `xorack web` and `xorack local web`: a page in the browser."""

from __future__ import annotations

import errno
import functools
import os
import sys
import threading
import time
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

import click

from xorack.aws.eventbridge import EventBus
from xorack.cli import screen
from xorack.cli.error_messages import explain
from xorack.cli.local import local, local_environ
from xorack.cli.options import Target, among_option, text_option, with_table
from xorack.client.names import Candidate
from xorack.core.errors import NotRunningError
from xorack.local import background
from xorack.ops.among import candidates_in
from xorack.ops.explain import names_in
from xorack.ops.status import ChainStatus
from xorack.web.page.pages import Names
from xorack.web.page.server import WebServer
from xorack.web.page.site import DeadLetters, Naming, Site

_FEW = 10_000
"""Most candidates that are tried for each chain of a list: 50 chains take 2 s once."""
_CHAINS_KEPT = 1000
_LOOK_SECONDS = 1.0


def _with_page(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of the page to a command, as its argument ``page``."""

    @click.option(
        "--port",
        type=click.IntRange(0, 65_535),
        default=0,
        show_default=False,
        help="The port to listen on.  [default: a free one]",
    )
    @click.option(
        "--open/--no-open",
        "opens",
        default=None,
        help="Open the page in a browser.  [default: on a desktop]",
    )
    @among_option(help="Name outstanding units: a file of names, one a line, as for `xorack show`.")
    @functools.wraps(command)
    def wrapped(port: int, opens: bool | None, among: TextIO | None, **arguments: Any) -> Any:
        candidates = list(candidates_in(among or ()))
        return command(page=functools.partial(_serve, port, opens, candidates), **arguments)

    return wrapped


@click.command(epilog="Example: xorack web --stack orders --among lines-of-the-orders.txt")
@_with_page
@text_option("--dead-letters", metavar="URL", help="The dead-letter queue, with --table.")
@text_option("--queue", metavar="URL", help="The queue that messages go back to, with --table.")
@with_table
@click.pass_context
def web(
    context: click.Context,
    page: Callable[..., int],
    dead_letters: str | None,
    queue: str | None,
    target: Target,
) -> int:
    """Show chains and dead letters in a browser, live.

    Runs until Ctrl-C. Prints the page's address. It is a secret: whoever of this machine has it can
    read and delete dead-lettered messages with your permissions. The page listens on 127.0.0.1
    only.

    With --local, it ends when `xorack local` stops.
    """
    if bool(dead_letters) != bool(queue):
        raise click.UsageError("--dead-letters and --queue must be used together")
    if dead_letters and target.table is None:
        raise click.UsageError("--dead-letters requires --table: a stack has its own")
    if context.find_root().params.get("is_local"):
        return page(target, has_ended=_local_has_ended())
    return page(target, dead_letters, queue)


@local.command("web", epilog="Example: xorack local web --port 8080")
@_with_page
def local_web(page: Callable[..., int]) -> int:
    """Show its chains and dead letters in a browser.

    Runs until Ctrl-C or `xorack local stop`. See `xorack web --help`.
    """
    with local_environ():
        target = Target(os.environ["XORACK_STACK"], None, None)
        return page(target, has_ended=_local_has_ended())


def _serve(
    port: int,
    opens: bool | None,
    candidates: list[Candidate],
    target: Target,
    *queues: str | None,
    has_ended: Callable[[], bool] | None = None,
) -> int:
    """Serve the page until Ctrl-C, or until what it shows has ended."""
    store, bus = target.open()
    events = target.client("events") if bus else None
    letters = None
    if target.table is None or any(queues):
        letters = DeadLetters(target.dead_letters(*queues))
    title = f"table {target.table}" if target.table else f"stack {target.stack}"
    site = Site(
        "xorack local" if has_ended else title,
        store,
        letters,
        naming=Naming(_names_among(candidates), len(candidates) <= _FEW, candidates),
        publisher=EventBus(bus, events, find_table=store.table.find_arn) if bus else None,
        explain=explain,
    )
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
        if opens or (opens is None and _on_desktop()):
            webbrowser.open(server.url)
        if has_ended:
            threading.Thread(target=_stop, args=(server, has_ended), daemon=True).start()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return 0
    screen.say("xorack local has stopped", error=True)
    return 0


def _on_desktop() -> bool:
    """Return True if a browser opens a window: elsewhere Python runs one in the terminal."""
    return sys.stdout.isatty() and bool(
        sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )


def _local_has_ended() -> Callable[[], bool]:
    started_at = background.find().started_at

    def has_ended() -> bool:
        try:
            return background.find().started_at != started_at
        except NotRunningError:
            return True

    return has_ended


def _stop(server: WebServer, has_ended: Callable[[], bool]) -> None:
    while not has_ended():
        time.sleep(_LOOK_SECONDS)
    server.shutdown()


def _names_among(candidates: Sequence[Candidate]) -> Names:
    """Return a function that names the outstanding units of a chain, and keeps what it found."""

    @functools.lru_cache(maxsize=_CHAINS_KEPT)
    def find(tag: str, units: tuple[int, ...], tried: int) -> Mapping[int, str]:
        return names_in(units, candidates, tag)

    def names(status: ChainStatus) -> Mapping[int, str]:
        if not candidates or status.chain.status == "acked":
            return status.partitions
        return find(status.chain.tag, tuple(status.outstanding), len(candidates))

    return names
