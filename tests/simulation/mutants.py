"""Broken versions of the code, which the simulation must catch.

A mutant edits the source of one or more functions. The replaced text must occur exactly once, so
that no mutant outlives the code that it breaks. The function object stays and gets the code of the
edited source: every module that imported it runs the mutant.
"""

from __future__ import annotations
import __future__

import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import CodeType
from typing import Any, NamedTuple

from xorack.acker import chain_writer as exactly_once
from xorack.acker import consumer as consume
from xorack.acker import sweeper as sweep
from xorack.aws import eventbridge
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.core import chain
from xorack.core import event as events


class Edit(NamedTuple):
    """An edit of a function's source; new lines are indented as the first line of `old`."""

    function: Callable[..., Any]
    old: str
    new: str


def _edited_code(function: Callable[..., Any], edits: list[Edit]) -> CodeType:
    source = textwrap.dedent(inspect.getsource(function))
    name = function.__qualname__
    for _, old, new in edits:
        assert source.count(old) == 1, f"{name} has {old!r} {source.count(old)} times"
        before = source[: source.index(old)].rpartition("\n")[2]
        indent = before if before.isspace() else ""
        source = source.replace(old, new.replace("\n", "\n" + indent))
    namespace = dict(function.__globals__)
    flags = __future__.annotations.compiler_flag
    exec(compile(source, f"<mutant of {name}>", "exec", flags, True), namespace)
    return namespace[function.__name__].__code__


@contextmanager
def mutated(name: str | None) -> Iterator[None]:
    """Run a mutant; None runs the code itself."""
    edits = MUTANTS[name] if name else []
    with ExitStack() as stack:
        for function in {edit.function for edit in edits}:
            code = _edited_code(function, [edit for edit in edits if edit.function is function])
            stack.callback(setattr, function, "__code__", function.__code__)
            function.__code__ = code
        yield


MUTANTS: dict[str, list[Edit]] = {
    "the mark is written after the XOR": [
        Edit(
            exactly_once._apply_part,
            "store.write(chain, after)",
            "from dataclasses import replace\n"
            "bare = replace(after, marks=chain.marks if chain else b'')\n"
            "store.write(chain, bare)\n"
            "after = replace(after, version=after.version + 1)\n"
            "store.write(bare, after)",
        )
    ],
    "the mark is written before the XOR": [
        Edit(
            exactly_once._apply_part,
            "store.write(chain, after)",
            "from dataclasses import replace\n"
            "if chain is not None:\n"
            "    marked = replace(chain, marks=after.marks, spilled=after.spilled)\n"
            "    marked = replace(marked, version=after.version)\n"
            "    store.write(chain, marked)\n"
            "    chain, after = marked, replace(after, version=after.version + 1)\n"
            "store.write(chain, after)",
        )
    ],
    "requests are merged before duplicates are dropped": [
        Edit(
            chain.apply,
            "if before is not None:",
            "if before is not None and all(mark_of(r)[:12] in known for r in requests):",
        )
    ],
    "a duplicate within a batch is not dropped": [Edit(chain.apply, "taken[key] = mark", "pass")],
    "the event goes out before the state is written": [
        Edit(
            DynamoDBStore.write,
            "item = self.to_item(after)",
            "from xorack.aws.eventbridge import EventBus\n"
            "from xorack.core.retry import RetryPolicy\n"
            "if after.final and not (before and before.final):\n"
            "    once = RetryPolicy(attempts=1)\n"
            "    EventBus('bus', self.client, policy=once).publish([after])\n"
            "item = self.to_item(after)",
        )
    ],
    "no event is ever pending": [
        Edit(chain._ended, "event_pending=True", "event_pending=False"),
        Edit(
            consume.consume,
            "one.chain.event_pending:",
            "one.chain.final and any(kind == 'applied' for _, kind, _ in one.outcomes):",
        ),
        Edit(sweep.sweep, "if after.event_pending:", "if after.final and not before.final:"),
    ],
    "the event is marked as published before it is published": [
        Edit(
            consume.publish_pending,
            "unpublished = publisher.publish(chains)",
            "for chain in chains:\n"
            "    try:\n"
            "        write_retrying(store, chain, _mark_published(chain), policy, stats)\n"
            "    except Exception:\n"
            "        pass\n"
            "unpublished = publisher.publish(chains)",
        )
    ],
    "failed entries of PutEvents are ignored": [
        Edit(eventbridge.EventBus._publish_batch, 'if answer.get("FailedEntryCount"):', "if False:")
    ],
    "each copy of an event has another id": [
        Edit(events.event_id, "chain.ended_at]", "chain.ended_at, __import__('uuid').uuid4().hex]")
    ],
    "a chain is deleted at zero": [
        Edit(
            DynamoDBStore.write,
            "item = self.to_item(after)",
            "if after.status == 'acked' and not after.event_pending:\n"
            "    self._call('delete_item', Key=self._key(after.tag))\n"
            "    return\n"
            "item = self.to_item(after)",
        )
    ],
    "a late request is applied to a finished chain": [
        Edit(chain.apply, "if ended is not None:", "if False:")
    ],
    "a due chain is ended without checking its deadline again": [
        Edit(
            chain.expire, "if deadline is not None and deadline <= now:", "if deadline is not None:"
        )
    ],
    "an earlier deadline does not update the index": [
        Edit(chain._judged, " or deadline < chain.due_at", "")
    ],
    "an expiration overwrites concurrent changes": [
        Edit(
            exactly_once.write_retrying,
            "current = conflict.chain",
            "from dataclasses import replace\n"
            "there = conflict.chain\n"
            "current = there and replace(current, version=there.version, stamp=there.stamp)",
        )
    ],
    "after a conflict the stale state is written": [
        Edit(
            exactly_once._apply_part,
            "known = CachedChain(conflict.chain, fresh=True)",
            "from dataclasses import replace\n"
            "there = conflict.chain\n"
            "if chain is not None and there is not None:\n"
            "    there = replace(chain, version=there.version, stamp=there.stamp)\n"
            "known = CachedChain(there, fresh=True)",
        )
    ],
    "the item returned by a failed condition is ignored": [
        Edit(
            DynamoDBStore.write,
            "there = self.from_item(item) if item else self.read([after.tag]).get(after.tag)",
            "there = None",
        )
    ],
    "the write has no condition": [
        Edit(DynamoDBStore.write, "ConditionExpression=condition", "ConditionExpression=None")
    ],
    "the write's condition leaves the version out": [
        Edit(DynamoDBStore.write, 'condition += " AND #version = :old_version"', "pass")
    ],
    "the write's condition leaves the stamp out": [
        Edit(DynamoDBStore.write, 'condition += " AND #stamp = :old_stamp"', "pass")
    ],
    "reads are not consistent": [
        Edit(DynamoDBStore._batch_get, "ConsistentRead=True", "ConsistentRead=False")
    ],
    "batch reads are not consistent": [
        Edit(DynamoDBStore._batch_get, '"ConsistentRead": True', '"ConsistentRead": False')
    ],
    "spilled marks are not looked up": [
        Edit(exactly_once._marks_elsewhere, "if chain is None or not chain.spilled:", "if True:")
    ],
    "a call does not look up its own request after a lost response": [
        Edit(
            exactly_once._apply_part,
            "asked = [marks[index] for index in sorted(tried)] if new_ids else marks",
            "asked = [] if new_ids else marks",
        )
    ],
    "requests from the queue are assumed to be new": [
        Edit(exactly_once._apply_part, "if new_ids else marks", "if True else marks")
    ],
    "marks leave the item before they are copied": [
        Edit(
            exactly_once._apply_part,
            "store.put_spilled_marks(chain, moved, until)",
            "later = (chain, moved, until)",
        ),
        Edit(
            exactly_once._apply_part,
            "store.write(chain, after)",
            "store.write(chain, after)\n"
            "if after.spilled != (chain.spilled if chain else 0):\n"
            "    store.put_spilled_marks(*later)",
        ),
    ],
    "unprocessed marks of a batch write are dropped": [
        Edit(DynamoDBStore.put_spilled_marks, "if not left:", "if True:")
    ],
    "unprocessed keys of a batch read are dropped": [
        Edit(DynamoDBStore._batch_get, "wanted = still", "wanted = []")
    ],
    "a lost response is retried blindly": [
        Edit(
            exactly_once._apply_part,
            "chain = known.chain",
            "if tried and known.chain is not None:\n"
            "    from dataclasses import replace\n"
            "    ours = {mark[:12] for mark in marks}\n"
            "    held = known.chain.marks\n"
            "    kept = [held[at : at + 16] for at in range(0, len(held), 16)]\n"
            "    kept = b''.join(mark for mark in kept if mark[:12] not in ours)\n"
            "    known = CachedChain(replace(known.chain, marks=kept), known.fresh)\n"
            "chain = known.chain",
        )
    ],
    "a fail is not sticky": [
        Edit(
            chain._Draft.settled,
            '"failing": old.failing or self.failing',
            '"failing": self.failing',
        )
    ],
    "a second create is applied": [
        Edit(chain._Draft.take, 'if request.op == "create" and (', "if False and (")
    ],
    "another request under a used id counts as a duplicate": [
        Edit(chain._seen, "if same:", "if True:")
    ],
    "a message is deleted although its chain was not written": [
        Edit(consume.consume, "failed.setdefault(index, one.problem)", "pass")
    ],
    "a dead letter that cannot be sent is dropped": [
        Edit(
            consume.consume,
            "failed.setdefault(letters[position][1], "
            '"its refused requests could not be sent away")',
            "pass",
        )
    ],
    "our own write counts as another's at the last attempt": [
        Edit(
            exactly_once._apply_part,
            "spent = StaleLocalData(tag, retry.attempt)",
            "raise StaleLocalData(tag, retry.attempt)",
        )
    ],
}
"""Effect of each mutant -> its edits."""
