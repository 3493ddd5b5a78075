"""Applies the ends of chains to their parents, in which these chains are units.

When a chain is acked, the acker finishes the chain's unit in each parent. When the chain fails, the
unit stays outstanding. The parent then gets a note that names the chain, or fails at once. The
chain writer applies these requests. Their id follows from the child's end, so that a repeated
report counts once. Ends that share a parent share writes. If the parent ends, the outbox reports
its end in the same way.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from xorack.acker.chain_writer import Application, ChainWriter
from xorack.acker.parallel import Workers
from xorack.aws.log import log_chain
from xorack.core.chain import Chain, Parent
from xorack.core.checks import MAX_REASON_BYTES
from xorack.core.errors import TagNotFound
from xorack.core.event import event_id
from xorack.core.ports import NO_TIME, Failure
from xorack.core.request import Request
from xorack.core.transitions import in_order


class _End(NamedTuple):
    """The end of a child, in the form of a request to one of its parents."""

    child: Chain
    request: Request


@dataclass
class EndsApplied:
    """The results of applying ends of chains to their parents.

    Attributes:
        failures: Children with a parent that could not be written, by tag. The sweeper retries.
        ended: Parents that these ends have ended.
        dropped: The number of ends that no parent got because they are older than the retention.
    """

    failures: dict[str, Failure] = field(default_factory=dict)
    ended: list[Chain] = field(default_factory=list)
    dropped: int = 0


def apply_ends(writer: ChainWriter, workers: Workers, children: Sequence[Chain]) -> EndsApplied:
    """Apply the ends of chains to their parents, while there is time."""
    by_parent: dict[str, list[_End]] = defaultdict(list)
    for child in children:
        for parent in child.parent_units:
            for tag in parent.tags:
                by_parent[tag].append(_End(child, request_of(child, parent, tag)))
    applied = EndsApplied()
    tags = sorted(by_parent)
    results = workers.map(lambda tag: _write(writer, tag, by_parent[tag]), tags)
    for tag, result in zip(tags, results, strict=True):
        if isinstance(result, Failure):
            applied.failures.update((end.child.tag, result) for end in by_parent[tag])
            continue
        applied.ended += [] if result.ended is None else [result.ended]
        applied.dropped += result.dropped
    return applied


def request_of(child: Chain, parent: Parent, tag: str) -> Request:
    """Return the request that a chain's end makes to one of its parents."""
    if child.status == "acked":
        request = Request.stamp_(tag, "end", finishes=[parent.unit], cells=parent.cells)
    else:
        why = f"chain {child.tag} failed: {child.reason}".encode()[:MAX_REASON_BYTES]
        text = why.decode(errors="ignore")
        if child.fail_parent:
            request = Request.fail(tag, "end", text)
        else:
            request = Request("note", tag, "end", text=text, missing=[parent.unit])
    return request.of_child(child.tag, event_id(child), child.ended_at or 0)


class _Applied(NamedTuple):
    ended: Chain | None
    dropped: int


def _write(writer: ChainWriter, tag: str, ends: Sequence[_End]) -> _Applied | Failure:
    """Apply ends to one parent. If the parent does not exist, recent ends start it as pending."""
    oldest = writer.oldest()
    # The mark of an end that was pending for so long may have expired, so the end may already have
    # been applied. If this end is dropped, the parent at worst fails at its deadline.
    forgotten = [end for end in ends if (end.child.ended_at or 0) < oldest]
    if forgotten:
        _log_dropped("ends dropped: older than the retention", tag, forgotten)
    ends = [end for end in ends if (end.child.ended_at or 0) >= oldest]
    dropped = len(forgotten)
    ended: Chain | None = None
    # The tombstone of an old child's parent may have expired. Old ends must not start the parent
    # again.
    for is_old in (False, True):
        selected = [end for end in ends if ((end.child.created_at or 0) < oldest) == is_old]
        if not selected:
            continue
        if not writer.has_time():
            return NO_TIME
        requests = in_order((end.request for end in selected), lambda request: request)
        work = Application(tag, requests, must_exist=is_old)
        try:
            writer.apply(work)
            _count_late(writer, work)
        except TagNotFound:
            dropped += len(selected)
            _log_dropped("ends dropped: no parent", tag, selected)
            continue
        except Exception as error:  # noqa: BLE001 - the other parents are still written
            return Failure("outage", f"{type(error).__name__}: {error}")
        _log_rejected(work)
        ended = work.chain if work.has_ended_chain else ended
    return _Applied(ended, dropped)


def _log_dropped(message: str, tag: str, ends: Sequence[_End]) -> None:
    why = f"of chain {ends[0].child.tag}"
    log_chain(logging.WARNING, message, tag, failures=len(ends), why=why)


def _count_late(writer: ChainWriter, work: Application) -> None:
    late = sum(outcome.kind == "late" for outcome in work.outcomes)
    if late and work.chain is not None:
        writer.count_late(work.chain, 0, late)


def _log_rejected(work: Application) -> None:
    """Log the ends that a parent rejects, for example because its stamps have another length."""
    reasons = Counter(str(each.error) for each in work.outcomes if each.error is not None)
    for reason, count in reasons.items():
        log_chain(
            logging.ERROR, "ends rejected by the parent", work.tag, failures=count, why=reason
        )
