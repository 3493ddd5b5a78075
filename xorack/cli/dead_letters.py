"""The commands for dead letters, `xorack dead-letters` and `xorack redrive`."""

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
    """Add the options that select messages to a command. It gets them as ``selector``."""
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
    request. expired: the message was first sent longer ago than ended chains are kept.

    Each command reads the queue. Reading hides the messages from other readers for a short time,
    and SQS counts it as a receive.
    """


@dead_letters.command("list", epilog="Example: xorack dead-letters list --run 2026-01-31")
@_with_selector(*KINDS)
@json_option
@with_target(letters_option)
def list_(selector: Selector, as_json: bool, target: Target) -> int:
    """Count the messages by reason.

    Without ID and options, the command reads about 1,000 messages; with them, up to 100,000. The
    exit status is 1 if no message matches.
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
    """Show messages with body, invalid value, reason and times.

    The sender is shown too. Long values are cut off. With --json, the command prints one object a
    line, with the complete body. The exit status is 1 if no message matches.
    """
    # A selected message may be one of the last, so read all messages.
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
    """Delete messages: these IDs, or all that meet the conditions.

    The command shows the messages first, and asks for a confirmation. It deletes only the messages
    that it has shown. With --json and without --yes, it deletes nothing.

    Exit status: 0 if all messages are deleted; 1 if not, or if you answer no.
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
    """Send dead letters back to the queue.

    Use this command after the cause is fixed. It shows the reasons first, and asks for a
    confirmation. It sends the messages that failed at every attempt. Rejected messages stay,
    because their chains would reject them again. If you have fixed the chains, use --all. With ID
    or --kind, the command sends the selected messages, even malformed messages.

    Sending too many messages is harmless, because a request takes effect once. Messages that are
    older than the retention of ended chains could take effect twice, so they always stay.

    Exit status: 0 if all selected messages are back in the queue; 1 if not, or if you answer no.
    """
    every, named = flags.pop("all_"), bool(selector.ids or selector.kinds)
    if named and every:
        raise click.UsageError("--all cannot be used with ID or --kind")
    if bool(target.dead_letters) != bool(target.queue):
        raise click.UsageError("--dead-letters and --queue must be used together")
    queues = target.open_dead_letters()
    if queues.dead_letters_url == queues.queue_url:
        raise click.UsageError("--queue and --dead-letters must name different queues")
    kinds = KINDS[: 3 if named else 2 if every else 1]
    return output.run_redrive(queues, queues.survey(selector), kinds, **flags)


@dead_letters.command("send", epilog="Example: xorack dead-letters send corrected.json")
@click.argument("file", type=text_file)
@with_target(queue_option)
def send_corrected(file: TextIO, target: Target) -> None:
    """Send corrected messages, or print what is wrong with them.

    FILE has one JSON object a line; - is stdin. A line is a line that `show --json` printed, with a
    corrected ``body``, or a body alone. The messages keep their time, ``sent_at``. If a request is
    invalid, or a message is too old, nothing is sent. Delete the dead letters afterwards.
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
