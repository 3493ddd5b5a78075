"""What the consumer does with a batch of messages: fold, apply, publish.

A request's way: message -> requests (`xorack.core.message`) -> folded per chain -> one conditional
write (`xorack.acker.chain_writer`, `xorack.core.chain`) -> event (`xorack.core.event`). This file is the order
in which that happens, and what becomes of a message when a step fails:

- what is refused goes to the dead-letter queue, and the requests around it apply;
- a chain that cannot be written fails only the messages that hold requests for it; their other
  requests are duplicates when they come again;
- an event is published after the state was written with the event still owed, and only then
  crossed off; whoever sees it owed publishes it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from xorack.acker.chain_writer import CachedChain, WriteStats, apply_requests
from xorack.acker.outbox import each, publish_pending
from xorack.core.chain import Chain, Outcome
from xorack.core.clock import milliseconds
from xorack.core.errors import RequestIdReused, shown
from xorack.core.message import Rejected, parse, rejected_body
from xorack.core.ports import (
    DEFAULT_RETENTION_MS,
    ChainStore,
    DeadLetters,
    Publisher,
    Unavailable,
)
from xorack.core.request import Request
from xorack.core.retry import RetryPolicy

__all__ = ["BatchResult", "Message", "consume"]

_LOG = logging.getLogger("xorack")


class Message(NamedTuple):
    """A message as the queue delivered it.

    Attributes:
        id: The queue's id of it.
        body: Its body.
    """

    id: str
    body: str


@dataclass
class BatchResult:
    """What became of a batch.

    Attributes:
        failed: Messages that must come again: id -> why.
        outcomes: How many requests were ``applied``, ``duplicate``, ``late``, ``refused``; of the
            refused, how many ``reused`` another request's id.
        created: Chains created.
        ended: Chains ended: status -> how many.
        latencies: Milliseconds from create to acked, of each chain acked here.
        events: Events published.
        event_pending: Events that could not be published.
        stats: What it took.
    """

    failed: dict[str, str] = field(default_factory=dict)
    outcomes: Counter[str] = field(default_factory=Counter)
    created: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    latencies: list[int] = field(default_factory=list)
    events: int = 0
    event_pending: int = 0
    stats: WriteStats = field(default_factory=WriteStats)


class _Asked(NamedTuple):
    """What is asked of one chain: requests, and for each the message that it came in."""

    requests: list[Request]
    messages: list[int]


@dataclass(eq=False, repr=False)
class _Done:
    """What became of one chain's requests."""

    tag: str
    chain: Chain | None = None
    outcomes: list[Outcome] = field(default_factory=list)
    problem: str | None = None
    stats: WriteStats = field(default_factory=WriteStats)


def consume(
    messages: Sequence[Message],
    store: ChainStore,
    publisher: Publisher,
    dead_letters: DeadLetters,
    *,
    policy: RetryPolicy | None = None,
    now: Callable[[], int] = milliseconds,
    default_timeout: int | None = None,
    retention: int = DEFAULT_RETENTION_MS,
    workers: int = 8,
) -> BatchResult:
    """Do what a batch of messages asks.

    Args:
        messages: Any number, in any order, duplicates and rubbish among them.
        store: Where chains are kept.
        publisher: Where events go.
        dead_letters: Where refused requests go.
        policy: When to try again; its ``time_left`` bounds the whole.
        now: The clock, milliseconds since 1970.
        default_timeout: Milliseconds, for chains whose create names no timeout.
        retention: Milliseconds that marks are kept.
        workers: Chains that are written at the same time.

    Returns:
        What became of them. Messages that are not among ``failed`` are done with.
    """
    policy = policy or RetryPolicy()
    done = BatchResult()
    refused: list[tuple[Rejected, int]] = []
    by_tag: dict[str, _Asked] = {}
    for index, message in enumerate(messages):
        requests, wrong = parse(message.body)
        for request in requests:
            asked = by_tag.get(request.tag)
            if asked is None:
                asked = by_tag[request.tag] = _Asked([], [])
            asked.requests.append(request)
            asked.messages.append(index)
        if wrong:
            refused.extend((letter, index) for letter in wrong)
    done.outcomes["rejected"] += sum(letter.held for letter, _ in refused)

    known = _read_known(by_tag, store, policy)

    def work(tag: str) -> _Done:
        requests, before = by_tag[tag].requests, known.get(tag)
        return _apply_chain(tag, requests, before, store, policy, now, default_timeout, retention)

    failed: dict[int, str] = {}
    event_pending: dict[str, Chain] = {}
    for one in each(work, list(by_tag), workers):
        done.stats.add(one.stats)
        if one.problem is not None:
            for index in by_tag[one.tag].messages:
                failed.setdefault(index, one.problem)
            continue
        refused.extend(_account(one, by_tag[one.tag].messages, done))
        if one.chain is not None and one.chain.event_pending:
            event_pending[one.tag] = one.chain

    unpublished = publish_pending(
        list(event_pending.values()), store, publisher, policy, done.stats, workers=workers
    )
    done.events += len(event_pending) - len(unpublished)
    done.event_pending += len(unpublished)
    for tag, why in unpublished.items():
        # The event is safe, it is owed; coming again is the quickest way to another try.
        for index in by_tag[tag].messages:
            failed.setdefault(index, f"event not published: {why}")

    # A message that comes again as a whole brings its refused requests again, too.
    letters = [(letter, index) for letter, index in refused if index not in failed]
    for position in dead_letters.send([letter for letter, _ in letters]):
        failed.setdefault(letters[position][1], "its refused requests could not be sent away")
    for index, why in failed.items():
        done.failed[messages[index].id] = why
    return done


def _read_known(
    by_tag: dict[str, _Asked], store: ChainStore, policy: RetryPolicy
) -> dict[str, CachedChain]:
    """Read the chains that must be there; those that are to be created are guessed not to be."""
    known: dict[str, CachedChain] = {}
    to_read = []
    for tag, asked in by_tag.items():
        if "create" in [request.op for request in asked.requests]:
            known[tag] = CachedChain(None, fresh=False)
        else:
            to_read.append(tag)
    if not to_read:
        return known
    retry = policy.start()
    while True:
        try:
            chains = store.read(to_read)
        except Exception as problem:  # noqa: BLE001 - one chain's trouble is not the others'
            again = isinstance(problem, Unavailable) and retry.attempt < 3
            if not again or not retry.again():
                # Each chain is read on its own then, and fails on its own.
                why = f"{type(problem).__name__}: {problem}"
                _LOG.warning("chains could not be read in one go", extra={"why": why})
                return known
            continue
        known.update({tag: CachedChain(chains.get(tag), fresh=True) for tag in to_read})
        return known


def _apply_chain(
    tag: str,
    requests: list[Request],
    known: CachedChain | None,
    store: ChainStore,
    policy: RetryPolicy,
    now: Callable[[], int],
    default_timeout: int | None,
    retention: int,
) -> _Done:
    """Apply one chain's requests; whatever goes wrong stays with this chain."""
    done = _Done(tag)
    if policy.time_left() <= 0:
        done.problem = "no time left in this invocation"
        return done
    try:
        applied = apply_requests(
            store,
            tag,
            requests,
            now=now,
            policy=policy,
            known=known,
            default_timeout=default_timeout,
            retention=retention,
            stats=done.stats,
        )
    except Exception as problem:  # noqa: BLE001 - one chain's trouble is not the others'
        done.problem = f"{type(problem).__name__}: {problem}"
        _LOG.warning("chain not written", extra={"tag": shown(tag), "why": done.problem})
        return done
    done.chain, done.outcomes = applied
    return done


def _account(one: _Done, messages: list[int], done: BatchResult) -> list[tuple[Rejected, int]]:
    """Count what became of a chain's requests; return those that were refused."""
    refused = []
    kinds = Counter([outcome.kind for outcome in one.outcomes])
    done.outcomes.update(kinds)
    done.created += [kind for request, kind, _ in one.outcomes if request.op == "create"].count(
        "applied"
    )
    if kinds["rejected"]:
        for (request, kind, error), message in zip(one.outcomes, messages, strict=True):
            if kind == "rejected":
                done.outcomes["reused"] += isinstance(error, RequestIdReused)
                refused.append((Rejected(rejected_body(request), str(error)), message))
    chain = one.chain
    if kinds["applied"] and chain is not None and chain.final:
        # Not its reason: whoever sends `fail` may say anything, "acked" too.
        done.ended[chain.status] += 1
        if chain.status == "acked" and chain.created_at is not None and chain.ended_at is not None:
            done.latencies.append(max(0, chain.ended_at - chain.created_at))
    return refused
