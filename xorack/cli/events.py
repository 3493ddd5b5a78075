"""The command `xorack events`, which prints the events of a deployed stack from now on."""

from __future__ import annotations

import json
import secrets
import signal
import sys
from contextlib import suppress
from functools import cache

import click

from xorack.cli import screen
from xorack.cli.options import Target, text_option, with_target
from xorack.ops.doctor.subscription import Subscription


@click.command(epilog="Example: xorack events --stack orders --follow | jq .detail.tag")
@click.option("--follow", "-f", is_flag=True, help="Print events as they arrive, until Ctrl-C.")
@text_option("--prefix", default=None, help="Only of chains whose tags begin with this.")
@with_target()
def events(follow: bool, prefix: str | None, target: Target) -> None:
    """Print the events of a stack's chains, from now on.

    Each event is a line of JSON, as EventBridge delivers it. A temporary rule and a temporary queue
    receive the events, and are removed at the end. EventBridge delivers an event at least once.
    """
    if not follow:
        raise click.UsageError("a bus stores no events: use --follow to print future events")
    name, client = f"events-{secrets.token_hex(4)}", cache(target.client)
    subscription = Subscription(name, target.find_stack().bus_name, client, prefix or "")
    # A SIGTERM ends the command like Ctrl-C, so that the rule and the queue are removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with suppress(KeyboardInterrupt), subscription.open():
            screen.say("receiving; Ctrl-C stops it", error=True)
            while True:
                for event in subscription.receive():
                    click.echo(json.dumps(event))
                sys.stdout.flush()
    finally:
        for line in subscription.left_behind:
            screen.say(f"left behind: {line}", error=True)
