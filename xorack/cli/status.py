"""The command `xorack status`, which is the first screen of `xorack web` in a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from xorack.aws.clock import milliseconds
from xorack.cli import screen
from xorack.cli.options import Target, json_option, with_table
from xorack.core.event import rfc3339
from xorack.core.text import listed, plural, span
from xorack.ops.backlog import Backlog
from xorack.ops.browse import OVERDUE, ChainPage, Hour, Query, read_chains

_SHOWN = 10
_BARS = " ▁▂▃▄▅▆▇█"


@click.command(
    short_help="Show what needs attention, once.",
    epilog="Example: xorack status --stack orders",
)
@json_option
@with_table
def status(as_json: bool, target: Target) -> int:
    """Show the problems that need attention: failed and overdue chains, queue, dead letters.

    This is the first screen of `xorack web`. It has these four numbers, whether the consumer takes
    messages, the causes of failed chains, the last hour, and the chains with the nearest deadlines.
    The command reads at most 5,000 items of the table, and the nearest deadlines. A plus means that
    there may be more.

    Exit status: 0, or 1 if a chain is overdue or the consumer takes no messages.
    """
    page, backlog = read_chains(target.open(), Query(), shown=_SHOWN), target.queues()()
    is_stuck = backlog is not None and backlog.is_stuck
    if as_json:
        screen.print_json(_to_dict(page, backlog))
    else:
        screen.print_properties(_facts(target.title, page, backlog))
        unfinished = [screen.cells(each) for each in page.chains if not each.chain.final]
        if unfinished:
            screen.say()
            right = {"DONE", "UNITS", "AGE", "TIME LEFT"}
            screen.print_rows(unfinished, right=right, fold={"TAG", "REASON"})
    invalid = screen.print_invalid(page.invalid)
    return int(is_stuck or page.overdue > 0 or invalid > 0)


def _facts(title: str, page: ChainPage, backlog: Backlog | None) -> Iterator[tuple[str, str]]:
    """Yield names and values, a line each: the four numbers, and their details."""
    plus = "" if page.complete else "+"
    yield "as of", f"{rfc3339(milliseconds())}, {title}"
    yield "failed", _number(page.counts["failed"], plus, "xorack list --status failed")
    yield "overdue", _number(page.overdue, plus, "the sweeper ends them within a minute")
    if backlog is None:
        yield "queue", "unknown; pass --stack"
    else:
        oldest = f", the oldest for {span(backlog.oldest_ms)}" if backlog.oldest_ms else ""
        waiting = f"{plural(backlog.waiting, 'message')} not applied yet{oldest}"
        yield "queue", ": ".join(filter(None, (waiting, backlog.advice)))
        yield "dead letters", _number(backlog.dead_letters, "", "xorack dead-letters list")
        if backlog.is_stuck:
            yield "consumer", backlog.stuck_text
    for cause in page.causes:
        run = f" of run {cause.prefix[:-1]}" if cause.prefix else ""
        why = [f"{cause.count:,} failed{run}: {cause.reason}", cause.sentence]
        yield from listed("cause", filter(None, why))
    if page.hour:
        yield from listed("last hour", _hour_lines(page.hour))
    if not page.counts.total():
        yield "chains", "none yet: each is counted as soon as its create is applied"


def _number(count: int, plus: str, hint: str) -> str:
    return f"{count:,}{plus}" + (f"  {hint}" if count else "")


def _hour_lines(hour: Hour) -> Iterator[str]:
    """Yield the last hour's numbers, and bars for acks, failures and latency."""
    acked, failed = sum(hour.acked), sum(hour.failed)
    yield f"{hour.created:,} created, {acked:,} acked, {failed:,} failed"
    for name, values, most in (
        ("acked", hour.acked, f"{max(hour.acked):,} a minute"),
        ("failed", hour.failed, f"{max(hour.failed):,} a minute"),
        ("median time", [took or 0 for took in hour.took_ms], span(hour.longest_ms)),
    ):
        if top := max(values):
            bars = "".join(_BARS[-(-value * 8 // top)] for value in values)
            yield f"{name:<12}|{bars}| at most {most}"


def _to_dict(page: ChainPage, backlog: Backlog | None) -> dict[str, Any]:
    """Return what ``xorack status --json`` prints."""
    hour = page.hour
    return {
        "as_of": rfc3339(milliseconds()),
        "complete": page.complete,
        "unfinished": page.counts["unfinished"],
        "failed": page.counts["failed"],
        "acked": page.counts["acked"],
        OVERDUE: page.overdue,
        "waiting": backlog and backlog.waiting,
        "oldest_ms": backlog and backlog.oldest_ms,
        "dead_letters": backlog and backlog.dead_letters,
        "consumer": backlog.stuck_text if backlog else "",
        "causes": [
            {
                "run": each.prefix[:-1],
                "reason": each.reason,
                "count": each.count,
                "why": each.sentence,
            }
            for each in page.causes
        ],
        "last_hour": hour and {name: getattr(hour, name) for name in hour._fields},
        "nearest": [each.to_dict() for each in page.chains if not each.chain.final],
    }
