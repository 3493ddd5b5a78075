"""The commands of ``xorack local``, and the option ``--local``. They use the embedded AWS."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import click

from xorack.cli import screen
from xorack.cli.options import json_option
from xorack.errors import LocalError, NotRunningError
from xorack.local import background
from xorack.local.background import Background
from xorack.local.java import spark_environ

_POLL_SECONDS = 0.5
_notify = partial(screen.say, error=True)


@contextmanager
def local_environ() -> Iterator[None]:
    """Let boto3 and the options of a command find the embedded AWS."""
    before = dict(os.environ)
    running = background.find(_instance(None, None, os.environ.get(background.NAME, "")))
    for name, value in running.environ().items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _instance(_: object, __: object, name: str) -> str:
    if not re.fullmatch("[a-z0-9][a-z0-9-]{0,30}|", name):
        raise click.BadParameter(f"{name!r}, expected lower-case letters, digits and hyphens")
    return name


_name_option = click.option(
    "--name",
    "instance",
    envvar=background.NAME,
    default="",
    callback=_instance,
    help="Which one, if several run on this machine.",
)
local_option = click.option(
    "--local",
    "is_local",
    is_flag=True,
    envvar="XORACK_LOCAL",
    help="Use the embedded AWS that `xorack local start` started; XORACK_LOCAL_NAME names one of "
    "several.",
)


@click.group(
    short_help="Run the stack on this machine, in the background.",
    subcommand_metavar="COMMAND [ARGS]...",
    epilog='Example: xorack local start && eval "$(xorack local env)" && xorack list',
)
def local() -> None:
    """Run AWS on this machine, in the background, with the stack in it.

    The embedded AWS listens only on the loopback interface. It needs no account, docker or Node,
    and keeps no data after it stops.
    """


@local.command(epilog="Example: xorack local start")
@_name_option
@json_option
def start(instance: str, as_json: bool) -> None:
    """Start the embedded AWS with the stack, and wait until it is ready.

    If it already runs, nothing happens. The first start installs about 20 packages into a separate
    environment, and checks their hashes.
    """
    begun = time.monotonic()
    running, started = background.start(_notify, instance)
    seconds = time.monotonic() - begun
    if as_json:
        screen.print_json({**running.to_dict(), "started": started, "seconds": round(seconds, 1)})
        return
    screen.say(f"ready after {seconds:.1f} s" if started else "running already")
    _show(running)
    name = f" --name {instance}" if instance else ""
    screen.say(f'for this shell: eval "$(xorack local env{name})"')
    if not name:
        screen.say("for one command: xorack --local list; in a browser: xorack --local web")


def _show(running: Background) -> None:
    for name, value in running.to_dict().items():
        screen.say(f"{name.replace('_', ' '):<22}{value}")


@local.command(epilog="Example: xorack local status --json | jq -r .queue_url")
@_name_option
@json_option
def status(instance: str, as_json: bool) -> int:
    """Show the addresses and the log of the embedded AWS.

    Exit status: 0 if it runs and responds, 1 if not.
    """
    try:
        running = background.find(instance)
    except NotRunningError as error:
        if not as_json:
            raise
        screen.print_json({"running": False, "reason": str(error)})
        return 1
    answers = running.stack.aws.answers()
    if as_json:
        screen.print_json({"running": True, "responds": answers, **running.to_dict()})
    else:
        screen.say("running" if answers else "running, but it does not respond")
        _show(running)
    return 0 if answers else 1


@local.command(epilog="Example: xorack local stop")
@_name_option
def stop(instance: str) -> None:
    """Stop the embedded AWS, and remove all its data."""
    stopped = background.stop(_notify, instance)
    screen.say("stopped" if stopped else "not running")


@local.command(epilog="Example: xorack local env > local.sh")
@_name_option
def env(instance: str) -> None:
    """Print shell commands that connect programs to the embedded AWS.

    Run them with `eval "$(xorack local env)"`. They export AWS_ENDPOINT_URL, XORACK_QUEUE_URL and
    others, and hide the AWS account of the shell. If pyspark is installed, the commands also set
    its Python and a suitable Java.
    """
    variables: dict[str, str | None] = background.find(instance).environ()
    try:
        variables.update(spark_environ())
    except LocalError as error:
        screen.say(f"Spark: {error}", error=True)
    for name, value in variables.items():
        command = f"unset {name}" if value is None else f"export {name}={shlex.quote(value)}"
        click.echo(command)


@local.command(epilog="Example: xorack local events --follow | jq .detail.tag")
@click.option("--follow", "-f", is_flag=True, help="Wait for more, until Ctrl-C.")
@_name_option
def events(follow: bool, instance: str) -> None:
    """Print the events of all chains since the start.

    Each event is a line of JSON, as EventBridge delivers it. Several readers can follow: each gets
    all events.
    """
    running, seen = background.find(instance), 0
    try:
        while True:
            arrived, seen = running.events(seen)
            for event in arrived:
                click.echo(json.dumps(event))
            if not follow:
                return
            sys.stdout.flush()
            time.sleep(_POLL_SECONDS)
    except KeyboardInterrupt:
        if not follow:
            raise
