"""The commands `xorack list` and `xorack windows`."""

from __future__ import annotations

from itertools import islice

import click

from xorack.aws.clock import milliseconds
from xorack.cli import screen
from xorack.cli.options import Target, json_option, run_option, with_table
from xorack.core.errors import NotAChainError
from xorack.core.text import printable
from xorack.ops.log_windows import window_table
from xorack.ops.run_chains import RunChains
from xorack.ops.status import STATUSES, ChainStatus


@click.command("list", epilog="Example: xorack list --status open --run 2026-01-31")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice(STATUSES),
    help="Only chains of this status; may be given several times.",
)
@run_option(help="Only chains whose tags begin with RUN/.")
@click.option(
    "--limit",
    type=click.IntRange(0, 1_000_000_000),
    default=100,
    help="Maximum number of chains; 0 for all.",
)
@json_option
@with_table
def list_(
    statuses: tuple[str, ...], run: RunChains | None, limit: int, as_json: bool, target: Target
) -> int:
    """List all chains, or the chains that meet both conditions.

    The command reads the table, in no order, until the limit is reached. Lines on stderr say
    whether there are more chains, and count the messages in the queue and the dead letters.

    With --json, the command prints one JSON object a line. Items that are not chains are reported
    on stderr, and the exit status is then 1.
    """
    invalid: list[NotAChainError] = []
    now = milliseconds()
    chains = target.open().scan(invalid.append, prefix=run.prefix if run else "")
    statuses_read = (
        ChainStatus(chain, now) for chain in chains if not statuses or chain.status in statuses
    )
    limited = islice(statuses_read, limit or None)
    if as_json:
        for status in limited:
            screen.print_json(status.to_dict())
    elif rows := [*map(screen.cells, limited)]:
        right = {"DONE", "UNITS", "AGE", "TIME LEFT"}
        screen.print_rows(rows, right=right, fold={"TAG", "REASON"})
    else:
        screen.say("no chains that meet all conditions" if run or statuses else "no chains")
    if limit and next(statuses_read, None):
        screen.say(f"the first {limit:,}; there are more: --limit 0 lists all", error=True)
    screen.say_backlog(target.queues()())
    return int(screen.print_invalid(invalid) > 0)


@click.command(epilog="Example: xorack windows raw clean mart --run shop")
@click.argument("logs", nargs=-1, metavar="[LOG]...")
@run_option(help="Only windows of this run.")
@click.option("--limit", type=click.IntRange(min=1), default=48, help="Maximum number of windows.")
@json_option
@with_table
def windows(
    logs: tuple[str, ...], run: RunChains | None, limit: int, as_json: bool, target: Target
) -> int:
    """List windows by log, the latest windows first.

    The LOGs are shown in the order of the arguments. By default, all logs are shown, ordered by
    their first window. The state of a window is complete, open, late (after its deadline), missing
    (rows), failed, or not open. An open window also has the share of its partitions that have
    passed its end, and the partitions that lag.

    The command reads the entire table. With --json, it prints one JSON object a window. The exit
    status is always 0. For schedulers, use `xorack wait --window`.
    """
    invalid: list[NotAChainError] = []
    chains = target.open().scan(invalid.append, prefix=run.prefix if run else "")
    now = milliseconds()
    table = window_table((ChainStatus(chain, now) for chain in chains), logs, limit)
    lines = []
    for head, (run_name, name, cells) in zip(table.heads, table.rows, strict=True):
        cells_of = dict(zip(table.logs, cells, strict=True))
        if as_json:
            windows_by_log = {log: cell and cell.to_dict() for log, cell in cells_of.items()}
            screen.print_json({"run": run_name, "window": name, "logs": windows_by_log})
        texts = {log: cell.text if cell else "not open" for log, cell in cells_of.items()}
        lines.append({"WINDOW": head, **texts})
    if lines and not as_json:
        screen.print_rows(lines, right=set(), fold={*map(printable, table.logs)})
    elif not lines and not as_json:
        screen.say("no windows")
    return int(screen.print_invalid(invalid) > 0)
