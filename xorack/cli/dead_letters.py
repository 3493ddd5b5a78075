"""The commands of dead-lettered messages: `xorack dead-letters` and `xorack redrive`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TextIO

import click

from xorack.aws.clock import milliseconds
from xorack.aws.sqs import make_message, send_messages
from xorack.cli import dead_letter_output as output
from xorack.cli import screen
from xorack.cli.options import (
    Target,
    gathered,
    json_option,
    letters_option,
    lines_of,
    queue_option,
    run_option,
    text_file,
    text_option,
    with_target,
    yes_option,
)
from xorack.core.message import pack
from xorack.core.ports import DEFAULT_RETENTION_MS
from xorack.core.text import cut, plural
from xorack.ops.dead_letters import KINDS, Kind, Selector, corrected
from xorack.ops.redrive import MAX_READ

_SHOWN = 20


def _with_selector(*kinds: Kind) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the options that select messages to a command, as its argument ``selector``."""
    return gathered(
        "selector",
        Selector,
        click.argument("ids", nargs=-1, metavar="[ID]..."),
        text_option("--reason", metavar="TEXT", help="Only messages with this text in the reason."),
        click.option(
            "--kind",
            "kinds",
            multiple=True,
            type=click.Choice(kinds),
            help="Only messages of this kind; may be given several times.",
        ),
        text_option("--tag", help="Only messages with a request for the chain of this tag."),
        run_option(help="Only messages with a request for a chain of this run."),
    )


@click.group(
    "dead-letters",
    short_help="List, show, delete and redrive dead-lettered messages.",
)
def dead_letters() -> None:
    """Inspect and clear the dead-letter queue.

    Its messages are of four kinds. failed: the consumer could not process the message at any
    attempt. rejected: a chain rejects the request. malformed: the consumer cannot parse the
    request. expired: first sent longer ago than finished chains are kept.

    Every command reads the queue. That hides the messages from other readers for a short time,
    and SQS counts it as a receive.
    """


@dead_letters.command("list", epilog="Example: xorack dead-letters list --run 2026-01-31")
@_with_selector(*KINDS)
@json_option
@with_target(letters_option)
def list_(selector: Selector, as_json: bool, target: Target) -> int:
    """Count the messages by reason.

    Without ID and options, reads about 1,000 messages; with them, up to 100,000. The exit status
    is 1 if no message matches.
    """
    queues = target.open_dead_letters()
    survey = queues.survey(selector)
    if as_json:
        screen.print_json(output.to_dict(survey, queues.retention_ms))
    else:
        output.print_groups(survey)
    return int(survey.selects_nothing)


@dead_letters.command(epilog="Example: xorack dead-letters show --kind malformed --limit 3")
@_with_selector(*KINDS)
@click.option(
    "--limit",
    type=click.IntRange(1, MAX_READ),
    default=_SHOWN,
    help="Maximum number of messages.",
)
@json_option
@with_target(letters_option)
def show(selector: Selector, limit: int, as_json: bool, target: Target) -> int:
    """Show messages with body, invalid value, reason, sender and times.

    Cuts long values. With --json, prints one object a line, with the complete body. The exit
    status is 1 if no message matches.
    """
    # A selected message may be among the last: all are read then.
    most = limit if selector == Selector() else None
    survey = target.open_dead_letters().survey(selector, limit=most, keep=limit)
    output.print_messages(survey, as_json=as_json)
    return int(survey.selects_nothing)


@dead_letters.command(epilog="Example: xorack dead-letters delete --kind expired")
@_with_selector(*KINDS)
@click.option("--all", "all_", is_flag=True, help="Delete all messages.")
@yes_option
@json_option
@with_target(letters_option)
def delete(selector: Selector, target: Target, **flags: Any) -> int:
    """Delete messages: these IDs, or those that meet all conditions.

    Shows the messages first, and asks. Deletes only what it showed: messages that arrive later
    stay. With --json and without --yes, deletes nothing.

    Exit status: 0 if all are deleted; 1 if not, or if you answer no.
    """
    every = flags.pop("all_")
    if (selector == Selector()) != every:
        raise click.UsageError(
            "--all cannot be used with ID or conditions"
            if every
            else "Missing ID, --reason, --kind, --tag or --run; --all deletes all messages"
        )
    queues = target.open_dead_letters()
    return output.run_delete(queues, queues.survey(selector, limit=MAX_READ), **flags)


@click.command(epilog="Example: xorack redrive --stack orders --yes")
@_with_selector("failed", "rejected", "malformed")
@click.option("--all", "all_", is_flag=True, help="Send rejected messages, too.")
@yes_option
@json_option
@with_target(queue_option, letters_option)
def redrive(selector: Selector, target: Target, **flags: Any) -> int:
    """Send dead-lettered messages back to the queue.

    Run it once the cause is fixed. It shows the reasons first, and asks. Messages that failed at
    every attempt go back. Rejected ones stay, since their chains would reject them again: use
    --all once you have fixed the chains. With ID or --kind, the selected messages go back, even
    malformed ones.

    A request takes effect once, so it is harmless to send too many messages back. Messages older
    than the retention of finished chains always stay, since this does not hold for them.

    Exit status: 0 if all selected messages are back; 1 if not, or if you answer no.
    """
    every, named = flags.pop("all_"), bool(selector.ids or selector.kinds)
    if named and every:
        raise click.UsageError("--all cannot be used with ID or --kind")
    if bool(target.dead_letters) != bool(target.queue):
        raise click.UsageError("--dead-letters and --queue must be used together")
    queues = target.open_dead_letters()
    if queues.dead_letters_url == queues.queue_url:
        raise click.UsageError("--queue and --dead-letters are the same queue")
    kinds = KINDS[: 3 if named else 2 if every else 1]
    return output.run_redrive(queues, queues.survey(selector), kinds, **flags)


@dead_letters.command("send", epilog="Example: xorack dead-letters send corrected.json")
@click.argument("file", type=text_file)
@with_target(queue_option)
def send_corrected(file: TextIO, target: Target) -> None:
    """Send corrected messages, or say what is wrong with them.

    FILE has one JSON object a line; - is stdin. It is what `show --json` prints, with its ``body``
    corrected, or a body. The messages keep their time, ``sent_at``. If a request is invalid, or a
    message older than messages are taken, nothing is sent. Then delete the dead letters.
    """
    url, retention_ms = target.queue, DEFAULT_RETENTION_MS
    if not url:
        stack = target.find_stack(", or the queue with --queue")
        url, retention_ms = stack.queue_url, stack.retention_ms
    read = corrected(lines_of(file), milliseconds() - retention_ms)
    if read.problems:
        raise click.ClickException(f"nothing was sent: {'; '.join(cut(read.problems, _SHOWN))}")
    messages = (
        make_message(body, None, {"sent_at": sent_at})
        for sent_at, requests in read.requests.items()
        for body in pack(requests)
    )
    send_messages(url, messages, target.client("sqs"))
    screen.say(f"{plural(sum(map(len, read.requests.values())), 'request')} sent")


dead_letters.add_command(redrive)
