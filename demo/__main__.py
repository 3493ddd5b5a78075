"""``python -m demo`` runs the demo with its options."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from demo.database import InvalidDatabase, open_database
from demo.display import Display, print_result
from demo.run import ROOT, Demo
from xorack.cli import screen
from xorack.cli.commands import run


@click.command(epilog="Example: make demo DIR=~/texts")
@click.option(
    "--dir",
    "folder",
    metavar="DIR",
    help="A folder tree of text files.  [default: the sources of Python's standard library]",
)
@click.option("--encoding", default="UTF-8", show_default=True, help="Of the files in DIR.")
@click.option(
    "--lose",
    type=click.IntRange(0, 1_000_000),
    default=0,
    metavar="N",
    help="Lose a row of each of N files between the two jobs, as people do, and see them named.",
)
@click.option("--page", is_flag=True, help="Keep the page of the chains open until Ctrl-C.")
@click.option("--work", hidden=True, default=str(ROOT / ".demo"), help="The folder for all output.")
def demo(folder: str | None, encoding: str, lose: int, page: bool, work: str) -> int:
    """See xorack work on this machine, without an AWS account.

    The demo starts an AWS on the loopback interface, deploys the stack into it, and runs two Spark
    jobs over a database of text files. One job splits the files into words, and one counts the
    words. Each file is a chain, which is acked when the last of its words is counted.
    """
    if folder == "":
        raise click.BadParameter(
            "it is empty; name a folder, or leave the option out", param_hint="--dir"
        )
    out = screen.console()
    try:
        database = None if folder is None else open_database(Path(folder))
        result = Demo(database, encoding, Path(work), lose, Display(out), page).run()
    except KeyboardInterrupt:
        screen.say("interrupted", error=True)
        return 130
    except InvalidDatabase as error:
        raise click.BadParameter(str(error), param_hint="--dir") from error
    print_result(out, result)
    return 0 if result.is_good else 1


if __name__ == "__main__":
    sys.exit(run(command=demo))
