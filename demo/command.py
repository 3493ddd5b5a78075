"""The command ``demo``: its options."""

from __future__ import annotations

import codecs
from pathlib import Path

import click

from demo.children import Interrupted
from demo.display import run_demo
from demo.errors import InvalidDatabase
from demo.run import Options
from xorack.cli import screen

__all__ = ["demo"]


def _check_encoding(_: click.Context, __: click.Parameter, value: str) -> str:
    try:
        codecs.lookup(value)
    except (LookupError, ValueError):
        raise click.BadParameter(f"{value!r} is not known") from None
    return value


@click.command(epilog="Example: xorack demo --dir ~/texts")
@click.option(
    "--dir",
    "folder",
    metavar="DIR",
    help="A folder tree of text files.  [default: the sources of Python's standard library]",
)
@click.option(
    "--encoding",
    default="UTF-8",
    show_default=True,
    callback=_check_encoding,
    help="Of the files in DIR.",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    help="The embedded AWS's port on 127.0.0.1.  [default: a free one]",
)
@click.option(
    "--lose",
    type=click.IntRange(0, 1_000_000),
    default=0,
    metavar="N",
    help="Lose N words as they are counted; see them named, and repaired.",
)
@click.option("--work", hidden=True, help="The folder for all output.  [default: .demo]")
def demo(folder: str | None, encoding: str, port: int | None, lose: int, work: str | None) -> int:
    """See it all work on this machine, without an AWS account.

    Starts an AWS on the loopback interface, deploys the stack into it, and runs two Spark jobs
    over a database of text files: one splits the files into words, one counts the words. Each
    file is a chain, acked when the last of its words is counted.
    """
    if folder == "":
        raise click.BadParameter("it is empty", param_hint="--dir")
    options = Options(
        folder=None if folder is None else Path(folder),
        encoding=encoding,
        port=port,
        lose=lose,
        **({} if work is None else {"work": Path(work)}),
    )
    try:
        return run_demo(options)
    except Interrupted:
        screen.say("interrupted", error=True)
        return 130
    except InvalidDatabase as error:
        raise click.BadParameter(str(error), param_hint="--dir") from error
