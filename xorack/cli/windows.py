"""The command `xorack windows`."""

from __future__ import annotations

import click

from xorack.aws.clock import milliseconds
from xorack.cli import screen
from xorack.cli.options import Target, json_option, run_option, with_table
from xorack.core.errors import NotAChainError
from xorack.ops.run import Run
from xorack.ops.status import ChainStatus
from xorack.ops.text import printable
from xorack.ops.windows import stage_table


@click.command(epilog="Example: xorack windows raw clean mart --run shop")
@click.argument("logs", nargs=-1, metavar="[LOG]...")
@run_option(help="Only windows of this run.")
@click.option("--limit", type=click.IntRange(min=1), default=48, help="Maximum number of windows.")
@json_option
@with_table
def windows(
    logs: tuple[str, ...], run: Run | None, limit: int, as_json: bool, target: Target
) -> int:
    """List windows over logs by stage, the last ones first.

    A stage is a LOG, by default each, the one that was first opened first. A window is whole; open,
    with the share of its partitions that have passed its end, and those that lag; late, after its
    deadline; missing rows; failed; or not open.

    Reads the whole table. With --json, prints one JSON object a window. The exit status is 0:
    `xorack wait --window` is for schedulers.
    """
    invalid: list[NotAChainError] = []
    chains = target.open().scan(invalid.append, prefix=run.prefix if run else "")
    now = milliseconds()
    table = stage_table((ChainStatus(chain, now) for chain in chains), logs, limit)
    lines = []
    for head, (run_name, name, cells) in zip(table.heads, table.rows, strict=True):
        stages = dict(zip(table.logs, cells, strict=True))
        if as_json:
            found = {log: one and one.to_json() for log, one in stages.items()}
            screen.print_json({"run": run_name, "window": name, "stages": found})
        texts = {log: one.text if one else "not open" for log, one in stages.items()}
        lines.append({"WINDOW": head, **texts})
    if lines and not as_json:
        rows = [{printable(k): printable(text) for k, text in line.items()} for line in lines]
        screen.print_rows(rows, right=set(), fold={*map(printable, table.logs)})
    elif not lines and not as_json:
        screen.say("no windows")
    for error in invalid:
        screen.say(f"error: {printable(str(error))}", error=True)
    return int(bool(invalid))
