"""The commands `xorack list` and `xorack windows`."""

from __future__ import annotations

from itertools import islice
from typing import Any

import click

from xorack.aws.clock import milliseconds
from xorack.cli import screen
from xorack.cli.options import Duration, Target, json_option, run_option, text_option, with_table
from xorack.core.checks import MAX_TIMEOUT_SECONDS
from xorack.core.errors import NotAChainError
from xorack.ops.listing import ORDERS, ChainFilter, Order, list_chains
from xorack.ops.log_windows import window_table
from xorack.ops.run_chains import RunChains
from xorack.ops.status import STATUSES, ChainStatus
from xorack.ops.text import printable


@click.command("list", epilog="Example: xorack list --status open --order deadline --limit 10")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice(STATUSES),
    help="Only chains of this status; may be given several times.",
)
@run_option(help="Only chains whose tags begin with RUN/.")
@text_option("--prefix", metavar="TEXT", help="Only chains whose tags begin with TEXT.")
@text_option("--reason", metavar="TEXT", help="Only chains with TEXT in the reason of the failure.")
@click.option(
    "--older-than",
    type=Duration(min=0, max=MAX_TIMEOUT_SECONDS),
    default=0.0,
    show_default=False,
    metavar="TIME",
    help="Only chains created at least this long ago: seconds, or 30m, 2h, 1d.",
)
@click.option(
    "--order",
    type=click.Choice(ORDERS),
    help="Nearest deadline, oldest or least tag first.  [default: none]",
)
@click.option(
    "--limit",
    type=click.IntRange(0, 1_000_000_000),
    default=100,
    help="Maximum number of chains; 0 for all.",
)
@text_option("--after", metavar="TAG", help="Continue where an earlier list has stopped.")
@json_option
@with_table
def list_(run: RunChains | None, as_json: bool, target: Target, **options: Any) -> int:
    """List chains: all, or those that meet all conditions.

    Reads the table until the limit is reached. With --order, reads the entire table, and keeps as
    many chains as the limit in memory. If there are more chains, a line on stderr says how to list
    them. Another line counts the messages in the queue and the dead letters.

    With --json, prints one JSON object a line. Reports items that are not chains on stderr; the
    exit status is then 1.
    """
    if run and options["prefix"]:
        raise click.UsageError("--run and --prefix cannot be used together")
    if options["order"] and options["after"]:
        raise click.UsageError("--order and --after cannot be used together")
    chosen = ChainFilter(
        options["statuses"],
        run.prefix if run else options["prefix"] or "",
        options["reason"] or "",
        round(options["older_than"] * 1000),
    )
    order: Order | None = options["order"]
    invalid: list[NotAChainError] = []
    limit, after = options["limit"] or None, options["after"] or ""
    most, store = limit and limit + 1, target.open()
    found = list_chains(store, chosen, invalid.append, order=order, limit=most, after=after)
    shown = islice(found, limit)
    if as_json:
        for status in shown:
            screen.print_json(status.to_dict())
            after = status.chain.tag
    elif chains := list(shown):
        right = {"DONE", "UNITS", "AGE", "TIME LEFT"}
        screen.print_rows([*map(screen.cells, chains)], right=right, fold={"TAG", "REASON"})
        after = chains[-1].chain.tag
    else:
        is_any = chosen == ChainFilter(())
        screen.say("no chains" if is_any else "no chains that meet all conditions")
    if limit and next(found, None):
        page = "" if order else f", the next page is --after {screen.shell_quoted(after)}"
        screen.say(f"the first {limit:,}; there are more: --limit 0 lists all{page}", error=True)
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
    """List windows by log, the last ones first.

    Shows the LOGs in this order, by default all, the one that was first opened first. A window is
    whole; open, with the share of its partitions that have passed its end, and those that lag;
    late, after its deadline; missing rows; failed; or not open.

    Reads the entire table. With --json, prints one JSON object a window. The exit status is 0:
    `xorack wait --window` is for schedulers.
    """
    invalid: list[NotAChainError] = []
    chains = target.open().scan(invalid.append, prefix=run.prefix if run else "")
    now = milliseconds()
    table = window_table((ChainStatus(chain, now) for chain in chains), logs, limit)
    lines = []
    for head, (run_name, name, cells) in zip(table.heads, table.rows, strict=True):
        cells_of = dict(zip(table.logs, cells, strict=True))
        if as_json:
            found = {log: one and one.to_dict() for log, one in cells_of.items()}
            screen.print_json({"run": run_name, "window": name, "logs": found})
        texts = {log: one.text if one else "not open" for log, one in cells_of.items()}
        lines.append({"WINDOW": head, **texts})
    if lines and not as_json:
        screen.print_rows(lines, right=set(), fold={*map(printable, table.logs)})
    elif not lines and not as_json:
        screen.say("no windows")
    return int(screen.print_invalid(invalid) > 0)
